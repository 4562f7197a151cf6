"""Where the text keeps what a call gives, which lines name it, and what can have run before them.

Reads of a NumPy array are not recorded: that a line names it is all there is to know of them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from tether.facts import UNKNOWN, Site
from tether.source.syntax import LOOPS, SCOPES, Source, called

_ENDLESS = 1 << 60  # the last line of a module


class Kept(NamedTuple):
    """Where the program's text keeps what a call gives."""

    name: str
    node: ast.Call  # that made it
    many: bool  # the name is a container's, with a place for each


def keeping(source: Source, site: Site) -> Kept | None:
    """Return where the text puts what the call at a site gives, where it puts it as it is."""
    call = source.node_at(site)
    if not isinstance(call, ast.Call):
        return None
    node: ast.AST = call
    above = source.parent(node)
    while above is not None and _hands_on(above, node):
        node, above = above, source.parent(above)
    match above:
        case ast.Assign(targets=[target]) | ast.AnnAssign(target=target):
            return _target(target, call)
        case ast.Call(func=ast.Attribute(value=into, attr="append"), args=[one]) if one is node:
            return Kept(ast.unparse(into), call, many=True)
    return None


def _hands_on(above: ast.AST, node: ast.AST) -> bool:
    """Whether an expression gives what a part of it gives: itself, or in a container.

    What a method or an index gives is kept: the array lived on, so that is a view of it.
    """
    match above:
        case (
            ast.Call(func=part) | ast.Attribute(value=part) | ast.Subscript(value=part)
            | ast.ListComp(elt=part) | ast.DictComp(value=part)
        ):  # fmt: skip
            return part is node
    return isinstance(above, (ast.List, ast.Dict, ast.Tuple))


def _target(target: ast.expr, call: ast.Call) -> Kept | None:
    """Return what is assigned to; a place in a container stands for the container."""
    if isinstance(target, ast.Subscript):
        return Kept(ast.unparse(target.value), call, many=True)
    if isinstance(target, (ast.Name, ast.Attribute)):
        return Kept(ast.unparse(target), call, many=False)
    return None


def loads(source: Source, kept: Kept) -> list[ast.expr]:
    """Return the places that read the name, in the order of the text."""
    found = [one for one in _named(source, kept.name, ast.Load) if not _fills(source, one)]
    return sorted(found, key=lambda node: (node.lineno, node.col_offset))


def _named(source: Source, name: str, context: type[ast.expr_context]) -> Iterator[ast.expr]:
    for node in source.nodes:
        named = isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, context)
        if named and ast.unparse(node) == name:
            yield node  # type: ignore[misc]


def _fills(source: Source, node: ast.AST) -> bool:
    """Whether a place names a container to put something into it."""
    above = source.parent(node)
    if isinstance(above, ast.Attribute):
        return above.attr in ("append", "extend", "clear")
    return isinstance(above, ast.Subscript) and not isinstance(above.ctx, ast.Load)


def follows(source: Source, node: ast.expr, kept: Kept, write: Site) -> bool:
    """Whether a place runs after a write in its file: lower in the function, and not set anew."""
    scope = source.around(node)
    if scope is not source.around(kept.node):
        return False
    line = _line_in(source, scope, kept.node, write)
    if line == UNKNOWN or node.lineno <= max(line, kept.node.lineno):
        return False
    loop = _loop(source, kept.node)
    if loop is not None and not kept.many and node.lineno <= (loop.end_lineno or 0):
        return False
    return kept.many or _set_once(source, kept, scope, node.lineno)


def _line_in(source: Source, scope: ast.AST, taken: ast.Call, write: Site) -> int:
    """Return the line of a scope at which a write happens: its own, or that of a call."""
    around = [one for one in source.nodes if isinstance(one, SCOPES) and _spans(one, write.line)]
    if around and around[-1] is scope:
        return write.line
    name, start = write.function.rpartition(".")[2], (_loop(source, taken) or taken).lineno
    lines = [
        node.lineno
        for node in source.nodes
        if isinstance(node, ast.Call) and node.lineno >= start
        and source.around(node) is scope and called(node.func) == name
    ]  # fmt: skip
    return min(lines, default=UNKNOWN)


def _spans(scope: ast.AST, line: int) -> bool:
    first, last = getattr(scope, "lineno", 0), getattr(scope, "end_lineno", None)
    return first <= line <= (last or _ENDLESS)


def _loop(source: Source, node: ast.AST) -> ast.For | ast.While | ast.AsyncFor | None:
    """Return the outermost loop around a node within its scope."""
    loops = [one for one in source.outwards(node, SCOPES) if isinstance(one, LOOPS)]
    return loops[-1] if loops else None


def _set_once(source: Source, kept: Kept, scope: ast.AST, line: int) -> bool:
    """Whether a name set by the call is set nowhere else, but for a `best = None` above it."""
    stores = [
        one.lineno
        for one in _named(source, kept.name, ast.Store)
        if source.around(one) is scope
    ]  # fmt: skip
    last = kept.node.end_lineno or kept.node.lineno
    return len(stores) <= 2 and not any(last < one <= line for one in stores)
