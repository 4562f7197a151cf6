"""Where the text writes entries into a dict that a call has just made, and then lets go of it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tether.facts import Site
from tether.source.syntax import Source

GROUPS = "param_groups"
"""The entry of an optimizer's state that is made anew to its last dict."""

_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef, ast.Module)
_FILLERS = frozenset({"update", "setdefault", "pop", "clear", "popitem"})
"""Methods of a dict that, where nothing takes what they give, do nothing but change it."""
_READERS = frozenset({"items", "keys", "values", "get"})


def stores_in_vain(source: Source, site: Site, made: str) -> list[int]:
    """Return the lines that write into the dict made by the call at a site; none where it is used.

    `made` is the name that the call must have. It is used where anything but a write, or a read
    before the last write, is done to it: it may be handed on then.
    """
    call = source.node_at(site)
    if not isinstance(call, ast.Call) or not _calls(call, made):
        return []
    written = _written(source, call)
    if written:
        return [written]
    above = source.parent(call)
    if isinstance(above, ast.Assign) and len(above.targets) == 1:
        target = above.targets[0]
        if isinstance(target, ast.Name):
            return _into_variable(source, target)
    return []


def _calls(call: ast.Call, name: str) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr == name


def _written(source: Source, node: ast.expr) -> int:
    """Return the line of a statement that only changes the dict that an expression gives; or 0."""
    above = source.parent(node)
    if isinstance(above, ast.Attribute) and above.attr in _FILLERS:
        call = source.parent(above)
        alone = source.parent(call) if isinstance(call, ast.Call) else None
        return above.lineno if isinstance(alone, ast.Expr) else 0
    if not isinstance(above, ast.Subscript) or above.value is not node:
        return 0
    within = above
    while _is_of_groups(above) and isinstance(deeper := source.parent(within), ast.Subscript):
        within = deeper
    if isinstance(within.ctx, ast.Del):
        return within.lineno
    stored = isinstance(within.ctx, ast.Store)
    return within.lineno if stored and isinstance(source.parent(within), ast.Assign) else 0


def _is_of_groups(node: ast.Subscript) -> bool:
    return isinstance(node.slice, ast.Constant) and node.slice.value == GROUPS


def _into_variable(source: Source, target: ast.Name) -> list[int]:
    """Return the lines that write into the dict that a variable holds, if nothing else uses it."""
    uses = [one for one in _uses(source, target) if one is not target]
    lines = {one: _written(source, one) for one in uses}
    last = max(lines.values(), default=0)
    stored = [one for one in uses if not isinstance(one.ctx, ast.Load)]
    if not last or stored or any(not line and not _reads(source, one, last)
                                 for one, line in lines.items()):  # fmt: skip
        return []
    return sorted({line for line in lines.values() if line})


def _uses(source: Source, target: ast.Name) -> Iterator[ast.Name]:
    """Yield the places that name a variable; those of inner functions too, and all of a global."""
    scope = _scope(source, target)
    for node in ast.walk(scope):
        if isinstance(node, ast.Name) and node.id == target.id:
            yield node


def _scope(source: Source, node: ast.AST) -> ast.AST:
    while not isinstance(node, _SCOPES):
        node = source.parent(node) or source.nodes[0]
    return node


def _reads(source: Source, node: ast.Name, last: int) -> bool:
    """Whether a place only looks something up in a dict, before it is last written.

    A comprehension or another call's argument may keep what it is given.
    """
    if node.lineno > last:
        return False
    above = source.parent(node)
    match above:
        case ast.Subscript(value=value):
            return value is node
        case ast.Attribute(attr=name):
            return name in _READERS
        case ast.Compare() | ast.For():
            return True
    return False
