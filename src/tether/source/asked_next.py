"""Whether a value is made for the question that comes right behind it, and nothing else uses it."""

from __future__ import annotations

import ast

from tether.facts import Site
from tether.operations.table import operation
from tether.source.on_the_way import beside
from tether.source.syntax import RUNS, Source


def asked_next(source: Source, site: Site) -> bool:
    """Whether the statement at a site could as well stand in the ``if`` right behind it.

    It gives its value to one name, which is used once, in a branch of that ``if``; and the question
    calls nothing but what makes numbers of tensors.
    """
    node = source.node_at(site)
    made = source.around(node, (ast.stmt,)) if node is not None else None
    if not isinstance(made, ast.Assign) or len(made.targets) > 1:
        return False
    question, name = _behind(source, made), made.targets[0]
    if question is None or not isinstance(name, ast.Name):
        return False
    if any(_may_do(one) for one in ast.walk(question.test)):
        return False
    uses = _uses(source.around(made, RUNS), name)
    return len(uses) == 1 and any(
        uses[0] is one
        for part in (*question.body, *question.orelse)
        for one in ast.walk(part)
        if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load)
    )


def _uses(scope: ast.AST, name: ast.Name) -> list[ast.Name]:
    """Return where else in a function a name stands."""
    named = (one for one in ast.walk(scope) if isinstance(one, ast.Name) and one.id == name.id)
    return [one for one in named if one is not name]


def _behind(source: Source, made: ast.stmt) -> ast.If | None:
    """Return the statement right behind another one, if that is an ``if``."""
    then = next(iter(beside(source, made)[1]), None)
    return then if isinstance(then, ast.If) else None


def _may_do(node: ast.AST) -> bool:
    """Whether a part of a question may change something."""
    if isinstance(node, ast.Call):
        asks = isinstance(node.func, ast.Attribute) and operation(node.func.attr).leaves == "number"
        return not asks
    return isinstance(node, (ast.NamedExpr, ast.Await, ast.Yield))
