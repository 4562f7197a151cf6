"""Where the text binds the variable of a loop over parameters anew, and reads it nowhere after."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from tether.source.syntax import Source

_GIVES = frozenset({"parameters", "named_parameters", "buffers", "named_buffers"})
"""Methods of modules by which a loop is given what they hold."""

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.Module)
_LOOPS = (ast.For, ast.AsyncFor, ast.While)


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
            scope = _scope(source, node)
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
    above = source.parent(node)
    while above is not None and not isinstance(above, (*_FUNCTIONS, *_LOOPS)):
        above = source.parent(above)
    return above if isinstance(above, ast.For) else None


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


def _scope(source: Source, node: ast.AST) -> ast.AST:
    while not isinstance(node, _FUNCTIONS):
        node = source.parent(node) or source.nodes[0]
    return node


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
