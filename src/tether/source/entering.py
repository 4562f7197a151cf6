"""What a call is given, and what the names in it were last given, as a function's text has it.

Read while the program runs, of a line that gives PyTorch an array: the text says where another
array may lie that the first was made of. Nothing is concluded from it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tether.facts import Site
from tether.source.syntax import COMPREHENSIONS, LOOPS, SCOPES, Source, called, site_of_node

_SCOPES = (*SCOPES, *COMPREHENSIONS)

Place = tuple[int, int]


def given_to(source: Source, site: Site) -> ast.expr | None:
    """Return what the call at a site is given first."""
    call = source.node_at(site)
    if not isinstance(call, ast.Call):
        return None
    first = [*call.args, *(word.value for word in call.keywords)][:1]
    return next((one for one in first if not isinstance(one, ast.Starred)), None)


def last_given(source: Source, node: ast.expr) -> ast.expr | None:
    """Return what the variable or attribute at a place was given last in the same function.

    None where that is not plain to see: another statement gives it a value as well, what it was
    given is named by variables that changed since, or a call or a statement may have written it.
    """
    scope, path = source.around(node, _SCOPES), ast.unparse(node)
    known = list(_within(scope))
    bound = [one for one in known if _binds(one, path)]
    before = [one for one in bound if _bound_by(source, one) <= _start(node)]
    value = _value_of(source, max(before, key=_start)) if before else None
    if value is None or _bound_later_in_loop(source, node, bound):
        return None
    if any(_is_stored_into(source, one, path) for one in known):
        return None  # though it may have changed nothing this time
    between = [one for one in known if _end(value) <= _start(one) and _end(one) <= _start(node)]
    return None if _is_changed(source, value, path, between) else value


def _is_changed(source: Source, value: ast.expr, path: str, between: list[ast.AST]) -> bool:
    """Whether some nodes may write what has a name, or rebind a variable of what it was given."""
    names = {one.id for one in ast.walk(value) if isinstance(one, ast.Name)} - {path}
    rebound = any(_binds(one, name) for name in names for one in between)
    return rebound or any(_may_write(source, one, path) for one in between)


def named_in(node: ast.expr) -> Iterator[ast.expr]:
    """Yield an expression and what it is an index or attribute of: places that are assigned to."""
    while True:
        yield node
        if not isinstance(node, (ast.Subscript, ast.Attribute)):
            return
        node = node.value


def place_of(file: str, node: ast.expr, source: Source, function: str, first_line: int) -> Site:
    """Return the site of an expression in a function."""
    found = site_of_node(file, node, source.lines)
    return found._replace(function=function, first_line=first_line)


def _within(scope: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a scope that have a place, and not those of scopes within."""
    waiting = list(ast.iter_child_nodes(scope))
    while waiting:
        node = waiting.pop()
        if hasattr(node, "lineno"):
            yield node
        if not isinstance(node, _SCOPES):
            waiting += ast.iter_child_nodes(node)


def _binds(node: ast.AST, path: str) -> bool:
    """Whether a node is a place to which a value is given under a name."""
    if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.alias)):
        return path == (getattr(node, "asname", None) or node.name)
    stored = isinstance(node, (ast.Name, ast.Attribute, ast.Subscript))
    return stored and not isinstance(node.ctx, ast.Load) and ast.unparse(node) == path  # type: ignore[attr-defined]


def _value_of(source: Source, target: ast.AST) -> ast.expr | None:
    """Return the value of the plain assignment that a target is of."""
    match source.parent(target):
        case ast.Assign(targets=[one], value=value) if one is target:
            return value
        case ast.AnnAssign(value=ast.expr() as value) | ast.NamedExpr(value=value):
            return value
    return None


def _bound_later_in_loop(source: Source, node: ast.expr, bound: list[ast.AST]) -> bool:
    """Whether a loop around a place gives the name a value after it, for the next round."""
    loops = [one for one in source.outwards(node, _SCOPES) if isinstance(one, LOOPS)]
    return any(_start(node) < _start(one) <= _end(loop) for loop in loops for one in bound)


def _may_write(source: Source, node: ast.AST, path: str) -> bool:
    """Whether a node names a place in a way that may write it, or give it to who may."""
    if not isinstance(node, (ast.Name, ast.Attribute)) or ast.unparse(node) != path:
        return False
    above = source.parent(node)
    match above:
        case ast.Assign(targets=targets) if node in targets:
            return False  # of a later one: it is given a value, and none is written
        case ast.Attribute():
            beyond = source.parent(above)
            return isinstance(beyond, ast.Call) and beyond.func is above
        case ast.Call():
            return called(above.func) != "len"
    return not isinstance(above, (ast.BinOp, ast.Compare, ast.UnaryOp))


def _is_stored_into(source: Source, node: ast.AST, path: str) -> bool:
    """Whether a statement assigns into what has a name, or a call is given it for its result."""
    if not isinstance(node, (ast.Name, ast.Attribute)) or ast.unparse(node) != path:
        return False
    match source.parent(node):
        case ast.Subscript(ctx=context, value=value):
            return value is node and not isinstance(context, ast.Load)
        case ast.AugAssign(target=target):
            return target is node
        case ast.keyword(arg=word):
            return word == "out"
    return False


def _bound_by(source: Source, target: ast.AST) -> Place:
    """Return where the statement ends by which a place is given a value."""
    around = source.parent(target)
    while isinstance(around, (ast.Tuple, ast.List, ast.Starred)):
        around = source.parent(around)
    assigned = isinstance(around, (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.NamedExpr))
    return _end(around if assigned and around is not None else target)


def _start(node: ast.AST) -> Place:
    return node.lineno, node.col_offset  # type: ignore[attr-defined]


def _end(node: ast.AST) -> Place:
    return node.end_lineno, node.end_col_offset  # type: ignore[attr-defined]
