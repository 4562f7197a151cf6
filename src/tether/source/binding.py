"""What the text calls the value of a call: the variable that it is bound to, and how it is read."""

from __future__ import annotations

import ast

from tether.facts import Site
from tether.source.syntax import Source, expression


def bound_to(source: Source, site: Site, number: int, count: int) -> str:
    """Return the variable that one of the results of a call is given to; "" where none is.

    By an index (``y = f(x)[0]``), or as one of as many targets as there are results.
    """
    node = source.node_at(site)
    around = source.parent(node) if node is not None else None
    if isinstance(around, ast.Subscript) and around.value is node:
        index = around.slice.value if isinstance(around.slice, ast.Constant) else None
        taken = index == (0 if count == 1 else number)
        return _only_target(source.parent(around), around) if taken else ""
    match around:
        case ast.Assign(targets=[ast.Tuple(elts=names)], value=value) if value is node:
            one = names[number] if len(names) == count else None
            return one.id if isinstance(one, ast.Name) else ""
    return ""


def _only_target(statement: ast.AST | None, value: ast.expr) -> str:
    match statement:
        case ast.Assign(targets=[ast.Name(id=name)], value=given) if given is value:
            return name
    return ""


def read_as(source: Source, operation: str, text: str) -> str:
    """Return the variable whose method a call is: ``x`` of ``x.float()``; "" for anything else."""
    match expression(text):
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=called)):
            return name if called == operation and name not in source.imported else ""
    return ""


def is_statement(text: str) -> bool:
    """Whether a text is no expression: the head of a loop, which calls what it goes through."""
    return bool(text) and expression(text) is None
