"""How long the text can read what a call gives a variable: no longer than the variable has it."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tether.facts import Site
from tether.source.on_the_way import beside
from tether.source.syntax import FUNCTIONS, RUNS, SCOPES, Source, names

_SCOPES = (*SCOPES, ast.GeneratorExp, ast.ListComp)
_GIVES = (ast.Call, ast.keyword, ast.Attribute, ast.Return, ast.Yield, ast.YieldFrom)
_KEEPS = (ast.Return, ast.Yield, ast.YieldFrom, ast.Await)


class Readable(NamedTuple):
    """The lines of a function in which a variable is given a value, and can be read."""

    first: int
    last: int


def readable(source: Source, site: Site) -> Readable | None:
    """Return the lines between which a function's variable can be read that a call gives its value.

    None where the call is not all that gives it one, or where it is read anywhere but in the
    statements behind, in one block with the first: no way leads to these but by the first. Nor may
    what those statements make of it be handed to anything later, which may hold it.
    """
    target = _given_alone(source, site)
    scope = None if target is None else source.around(target, RUNS)
    if target is None or not isinstance(scope, FUNCTIONS):
        return None
    behind = {
        one: statement for statement in beside(source, target)[1] for one in ast.walk(statement)
    }
    reads = _read_in(source, scope, target)
    if not reads or any(one not in behind for one in reads):
        return None
    return Readable(target.lineno, max(_end(behind[one]) for one in reads))


def _read_in(source: Source, scope: ast.AST, target: ast.Name) -> list[ast.AST]:
    """Return where a function reads a variable, and hands on what it makes of that.

    Empty where the text does not say so.
    """
    reads = [one for one in _named(scope, target.id) if one is not target]
    made = _made_of(source, reads)
    if made is None or not all(_only_read(source, one, scope) for one in reads):
        return []
    return [*reads, *(one for name in made for one in _given(source, scope, name))]


def _given_alone(source: Source, site: Site) -> ast.Name | None:
    """Return the variable that is given what a call at a site makes."""
    node = source.node_at(site)
    match source.parent(node) if isinstance(node, ast.Call) else None:
        case ast.Assign(targets=[ast.Name() as target]):
            return target
    return None


def _only_read(source: Source, node: ast.AST, scope: ast.AST) -> bool:
    """Whether a place calls a variable or its method, or gives it to a call, in the function."""
    if not isinstance(node, ast.Name) or not isinstance(node.ctx, ast.Load):
        return False
    above = source.parent(node)
    if isinstance(above, ast.Attribute):
        call = source.parent(above)
        given = isinstance(call, ast.Call) and call.func is above
    else:
        given = isinstance(above, (ast.Call, ast.keyword))
    kept = isinstance(source.around(node, (*_KEEPS, ast.stmt)), _KEEPS)
    return given and not kept and source.around(node, _SCOPES) is scope


def _made_of(source: Source, reads: Iterable[ast.AST]) -> set[str] | None:
    """Return the variables that statements give what they make of another; None of attributes."""
    found = set[str]()
    for read in reads:
        for target in _targets(source.around(read, (ast.stmt,))):
            for one in ast.walk(target):
                if isinstance(one, (ast.Attribute, ast.Subscript)):
                    return None
                if isinstance(one, ast.Name):
                    found.add(one.id)
    return found


def _targets(statement: ast.AST) -> Iterator[ast.AST]:
    """Yield what a statement gives a value."""
    match statement:
        case ast.Assign(targets=targets):
            yield from targets
        case ast.AnnAssign(target=target) | ast.AugAssign(target=target) | ast.For(target=target):
            yield target
        case ast.With(items=items):
            yield from (one.optional_vars for one in items if one.optional_vars is not None)


def _given(source: Source, scope: ast.AST, name: str) -> Iterator[ast.AST]:
    """Yield where a variable is handed on, or asked for what it has."""
    for one in _named(scope, name):
        loaded = not isinstance(one, ast.Name) or isinstance(one.ctx, ast.Load)
        if loaded and isinstance(source.parent(one), _GIVES):
            yield one


def _named(scope: ast.AST, name: str) -> Iterator[ast.AST]:
    """Yield what reads or writes a variable, or says that it is another function's."""
    yield from (node for node in ast.walk(scope) if names(node, name))


def _end(statement: ast.stmt) -> int:
    return statement.end_lineno or statement.lineno
