"""Where the text writes entries into a dict that a call has just made, and then lets go of it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from tether.facts import Site
from tether.source.syntax import LOOPS, RUNS, Source

GROUPS = "param_groups"
"""The entry of an optimizer's state that is made anew to its last dict."""

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
    scope = source.around(target)
    for node in ast.walk(scope):
        if isinstance(node, ast.Name) and node.id == target.id:
            yield node


def _reads(source: Source, node: ast.Name, last: int) -> bool:
    """Whether a place only looks something up in a dict, before it is last written.

    A comprehension or another call's argument may keep what it is given. Names alone, and how many
    there are, may be asked for at any time.
    """
    above = source.parent(node)
    match above:
        case ast.Compare() | ast.For() | ast.Call(func=ast.Name(id="len")):
            return True
        case ast.Subscript(value=value):
            return value is node and node.lineno <= last
        case ast.Attribute(attr=name):
            return name == "keys" or (name in _READERS and node.lineno <= last)
    return False


# -- rebound ---------------------------------------------------------------------------------------
# Where the text binds the variable of a loop over parameters anew, and reads it nowhere after.


_GIVES = frozenset({"parameters", "named_parameters", "buffers", "named_buffers"})
"""Methods of modules by which a loop is given what they hold."""


class BoundAgain(NamedTuple):
    """A statement that gives a loop's variable what is there already, for nobody."""

    variable: str
    line: int
    loop: int  # the line of the loop
    first: int  # lines of the function around it
    last: int


def rebound(source: Source) -> Iterator[BoundAgain]:
    """Yield the statements that can only have been meant to write into what the loop gives.

    What a call or an operator computes leaves a trace in what was recorded, and is asked there.
    """
    for node in source.nodes:
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and _is_plain(node.value):
            target, loop = node.targets[0], _loop(source, node)
            scope = source.around(node, RUNS)
            if not isinstance(target, ast.Name) or loop is None:
                continue
            if target.id in _given(loop, scope) and not _read_after(scope, node, target.id):
                first, last = getattr(scope, "lineno", 1), getattr(scope, "end_lineno", None)
                yield BoundAgain(
                    target.id, node.lineno, loop.lineno, first, last or len(source.lines)
                )


def _is_plain(value: ast.expr) -> bool:
    """Whether an expression hands on what is there: a name, an attribute or an item."""
    if not isinstance(value, (ast.Name, ast.Attribute, ast.Subscript)):
        return False
    return not any(isinstance(one, (ast.Call, ast.BinOp)) for one in ast.walk(value))


def _loop(source: Source, node: ast.AST) -> ast.For | None:
    """Return the loop that is nearest around a statement."""
    loop = source.around(node, (*RUNS, *LOOPS))
    return loop if isinstance(loop, ast.For) else None


def _given(loop: ast.For, scope: ast.AST) -> set[str]:
    """Return the variables of a loop that it gives the parameters or buffers of a module."""
    over, target = loop.iter, loop.target
    parts = [(target, over)]
    together = isinstance(over, ast.Call) and getattr(over.func, "id", "") == "zip"
    if together and isinstance(over, ast.Call) and isinstance(target, ast.Tuple):
        parts = list(zip(target.elts, over.args, strict=False))
    lasts = (
        part.elts[-1] if isinstance(part, ast.Tuple) and part.elts else part
        for part, given in parts
        if _asks(given) or _asks(_value(scope, given))
    )  # a number or a name comes before
    return {one.id for one in lasts if isinstance(one, ast.Name)}


def _asks(node: ast.AST | None) -> bool:
    """Whether an expression asks a module for what it holds."""
    parts = ast.walk(node) if node is not None else ()
    return any(isinstance(one, ast.Attribute) and one.attr in _GIVES for one in parts)


def _value(scope: ast.AST, given: ast.expr) -> ast.expr | None:
    """Return the list that a function gives the variable which a loop runs over, if it does once.

    ``params = list(net.parameters())``.
    """
    if isinstance(given, ast.Call) and getattr(given.func, "id", "") == "enumerate":
        given = given.args[0] if given.args else given
    name = given.id if isinstance(given, ast.Name) else ""
    found = [
        one.value
        for one in (ast.walk(scope) if name else ())
        if isinstance(one, ast.Assign) and any(name == getattr(to, "id", "") for to in one.targets)
    ]
    listed = [one for one in found if isinstance(one, ast.Call)
              and getattr(one.func, "id", "") in ("list", "tuple")]  # fmt: skip
    return listed[0] if len(found) == len(listed) == 1 else None


def _read_after(scope: ast.AST, node: ast.Assign, name: str) -> bool:
    """Whether a function reads a variable below a statement."""
    return any(
        isinstance(one, ast.Name)
        and one.id == name
        and isinstance(one.ctx, ast.Load)
        and one.lineno >= node.lineno
        and one is not node.value
        for one in ast.walk(scope)
    )
