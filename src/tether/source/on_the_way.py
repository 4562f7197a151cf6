"""Which of two places of the text is reached first, and what decides whether it is reached."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator
from typing import NamedTuple

from tether.source.syntax import CALLABLES, COMPREHENSIONS, LOOPS, Source

Place = tuple[int, int]  # a line, and a byte column from 0

_LEAVES = (ast.Return, ast.Raise, ast.Break, ast.Continue)
_WHOLE = (ast.expr, ast.Assign, ast.AugAssign, ast.Expr, ast.Return)
_IN_PARTS = (ast.IfExp, ast.BoolOp, ast.Lambda, *COMPREHENSIONS)
"""Expressions of which not every part is computed, or not once."""


def start(node: ast.AST) -> Place:
    """Return where a node begins."""
    return node.lineno, node.col_offset  # type: ignore[attr-defined]


def end(node: ast.AST) -> Place:
    """Return where a node ends."""
    return node.end_lineno or 0, node.end_col_offset or 0  # type: ignore[attr-defined]


def around(source: Source, node: ast.AST, scope: ast.AST) -> list[ast.AST]:
    """Return a node and what is around it, the nearest first, up to a scope, which is left out."""
    above = itertools.takewhile(lambda one: one is not scope, source.outwards(source.parent(node)))
    return [node, *above]


def loops_around(source: Source, node: ast.AST, scope: ast.AST) -> Iterator[ast.AST]:
    """Yield the loops of a scope whose body a node is in, the nearest first."""
    nodes = around(source, node, scope)
    for inner, one in itertools.pairwise(nodes):
        if isinstance(one, LOOPS) and inner in one.body:
            yield one


def decided(source: Source, node: ast.AST, scope: ast.AST) -> list[ast.AST]:
    """Return what decides in a scope whether a node is reached: conditions, loops around it."""
    nodes = around(source, node, scope)
    return [
        one
        for inner, one in itertools.pairwise(nodes)
        if not isinstance(one, (ast.With, ast.AsyncWith)) and _decides(one, inner)
    ]


def _decides(node: ast.AST, inner: ast.AST) -> bool:
    """Whether a node is a condition of what stands in it."""
    if isinstance(node, (ast.If, ast.IfExp)):
        return inner is not node.test
    if isinstance(node, LOOPS):
        return inner is not getattr(node, "iter", None)
    if isinstance(node, ast.BoolOp):
        return inner is not node.values[0]
    return isinstance(node, (ast.Try, ast.ExceptHandler, ast.match_case, *CALLABLES))


class Order(NamedTuple):
    """How a second place of a scope follows on a first one."""

    sure: bool  # the first is reached wherever both are about to be
    decided: list[ast.AST]  # conditions of the second that are not those of the first
    leaves: bool  # the way from one to the other may be left


def follows(source: Source, first: ast.AST, second: ast.AST, scope: ast.AST) -> Order | None:
    """Return how a place follows on another one on one way; None where it does not."""
    before, after = around(source, first, scope), around(source, second, scope)
    if first in after or second in before or start(second) < end(first):
        return None
    common = next((one for one in after if one in before), scope)
    one, other = _last_before(before, common), _last_before(after, common)
    sure, conditions = not decided(source, first, common), decided(source, second, common)
    if isinstance(common, ast.If) and one is common.test:
        return Order(sure, [*conditions, common], leaves=False)
    left = _is_left(source, common, one, other)
    return None if left is None else Order(sure, conditions, left)


def _is_left(source: Source, common: ast.AST, one: ast.AST, other: ast.AST) -> bool | None:
    """Whether the way between two parts of a node may be left; None: there is no such way."""
    for block in blocks(common):
        if one in block and other in block:
            between = block[block.index(one) : block.index(other)]
            return any(leaves(source, stop) for stop in between)
    return False if isinstance(common, _WHOLE) and not isinstance(common, _IN_PARTS) else None


def _last_before(nodes: list[ast.AST], common: ast.AST) -> ast.AST:
    """Return the node of a way outwards that is nearest to one further out."""
    return nodes[nodes.index(common) - 1] if common in nodes else nodes[-1]


def leaves(source: Source, statement: ast.AST) -> bool:
    """Whether a statement may end the way through the block that it stands in."""
    return any(
        isinstance(one, _LEAVES) and not _own_loop(source, one, statement)
        for one in ast.walk(statement)
    )


def _own_loop(source: Source, leaf: ast.AST, statement: ast.AST) -> bool:
    """Whether a `break` or `continue` stays within a statement."""
    if not isinstance(leaf, (ast.Break, ast.Continue)):
        return False
    return any(isinstance(one, LOOPS) for one in (*around(source, leaf, statement), statement))


def blocks(node: ast.AST) -> Iterator[list[ast.stmt]]:
    """Yield the blocks of statements of a node."""
    for name in ("body", "orelse", "finalbody"):
        block = getattr(node, name, None)
        if isinstance(block, list):
            yield block


def beside(source: Source, node: ast.AST) -> tuple[list[ast.stmt], list[ast.stmt]]:
    """Return the statements before and after the one of the block that a node is in."""
    inner = node
    while (above := source.parent(inner)) is not None:
        for block in blocks(above):
            if inner in block:
                at = block.index(inner)
                return block[:at], block[at + 1 :]
        inner = above
    return [], []
