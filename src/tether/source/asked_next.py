"""Whether a value is made for the question that comes right behind it, and nothing else uses it."""

from __future__ import annotations

import ast

from tether.facts import Site
from tether.operations.table import operation
from tether.source.syntax import Source

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Module)


def asked_next(source: Source, site: Site) -> bool:
    """Whether the statement at a site could as well stand in the ``if`` right behind it.

    It gives its value to one name, which nothing outside the branches of that ``if`` uses; and the
    question calls nothing but what makes numbers of tensors.
    """
    node = source.node_at(site)
    made = source.around(node, (ast.stmt,)) if node is not None else None
    if not isinstance(made, ast.Assign) or not isinstance(made.targets[0], ast.Name):
        return False
    question = _behind(source, made)
    if (
        question is None
        or len(made.targets) > 1
        or any(_may_do(one) for one in ast.walk(question.test))
    ):
        return False
    answer = {one for part in (*question.body, *question.orelse) for one in ast.walk(part)}
    name, scope = made.targets[0], source.around(made, _FUNCTIONS)
    uses = {one for one in ast.walk(scope) if isinstance(one, ast.Name) and one.id == name.id}
    return uses - {name} <= answer and all(isinstance(one.ctx, ast.Load) for one in uses - {name})


def _behind(source: Source, made: ast.stmt) -> ast.If | None:
    """Return the statement right behind another one, if that is an ``if``."""
    for _, block in ast.iter_fields(source.parent(made) or made):
        if isinstance(block, list) and made in block[:-1]:
            then = block[block.index(made) + 1]
            return then if isinstance(then, ast.If) else None
    return None


def _may_do(node: ast.AST) -> bool:
    """Whether a part of a question may change something."""
    if isinstance(node, ast.Call):
        asks = isinstance(node.func, ast.Attribute) and operation(node.func.attr).leaves == "number"
        return not asks
    return isinstance(node, (ast.NamedExpr, ast.Await, ast.Yield))
