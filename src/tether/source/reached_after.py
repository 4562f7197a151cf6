"""Whether the text lets a program come from one place of a function to another one."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tether.source.on_the_way import around, blocks, start
from tether.source.syntax import LOOPS, Source, names, own

_ENDS = (ast.Return, ast.Raise)
_TURNS = (ast.Break, ast.Continue)
_ONE_OF = (ast.IfExp, ast.If, ast.Match)
"""Of what stands in these, below what decides, one part is reached and no other."""


def reached_after(source: Source, first: ast.AST, second: ast.AST, scope: ast.AST) -> bool:
    """Whether a place of a scope may be reached after another one in one turn of the loops around.

    Of two branches of one `if` or `match` one is, and so it is of two conditions of which the text
    says that not both are true; what stands behind a `return` is not.
    """
    if _exclude_each_other(source, first, second, scope):
        return False
    way, goal = [*around(source, first, scope), scope], set(map(id, around(source, second, scope)))
    left: ast.AST | None = None
    for inner, above in itertools.pairwise(way):
        left = left or (inner if isinstance(inner, _ENDS) else None)
        if left is None:
            reached, left = _goes_on(above, inner, goal)
            if reached:
                return True
        if isinstance(left, _TURNS) and isinstance(above, LOOPS):
            left = None  # what follows on the loop is reached all the same
    return False


def _goes_on(above: ast.AST, inner: ast.AST, goal: set[int]) -> tuple[bool, ast.AST | None]:
    """Return whether a part of a node leads to a goal within the node; else what leaves its block.

    The goal is given by the ids of a node and of what it is in.
    """
    rest, others = _behind(above, inner)
    for part in rest:
        if id(part) in goal:
            return True, None
        if (left := _leaves_surely(part)) is not None:
            return False, left
    return not goal.isdisjoint(map(id, others)), None


def in_a_later_turn(
    source: Source, first: ast.AST, second: ast.AST, scope: ast.AST, name: str
) -> bool:
    """Whether a loop around two places of a scope comes to the second with the same variable."""
    others = around(source, second, scope)
    loops = [one for one in around(source, first, scope) if isinstance(one, LOOPS)]
    return any(one in others and not _gives(one, name) for one in loops)


def _gives(loop: ast.AST, name: str) -> bool:
    """Whether a loop gives a variable another value."""
    named = [one for one in ast.walk(loop) if names(one, name)]
    return any(not isinstance(getattr(one, "ctx", None), ast.Load) for one in named)


def _behind(node: ast.AST, inner: ast.AST) -> tuple[list[ast.stmt], list[ast.AST]]:
    """Return what follows on a part of a node in its block, and what else of the node may."""
    block = next((one for one in blocks(node) if inner in one), None)
    if block is None:
        return [], list(_behind_a_header(node, inner))
    rest = block[block.index(inner) + 1 :]  # type: ignore[arg-type]
    others: list[ast.AST] = []
    if isinstance(node, ast.Try):
        handlers = node.handlers if block is node.body else []
        orelse = node.orelse if block is node.body else []
        others = [*handlers, *orelse, *(node.finalbody if block is not node.finalbody else ())]
    elif isinstance(node, LOOPS) and block is node.body:
        others = [*node.orelse]
    return rest, others


def _behind_a_header(node: ast.AST, inner: ast.AST) -> Iterable[ast.AST]:
    """Return what may follow in a node on a part that is no statement of a block of its."""
    if isinstance(node, ast.Try):  # one of the handlers
        return node.finalbody
    decides = getattr(node, "test", getattr(node, "subject", None))
    if isinstance(node, _ONE_OF) and inner is not decides:
        return ()
    return (one for one in ast.iter_child_nodes(node) if one is not inner)


def _leaves_surely(statement: ast.AST) -> ast.AST | None:
    """Return what ends the way through the block of a statement, whatever happens in it."""
    if isinstance(statement, (*_ENDS, *_TURNS)):
        return statement
    if isinstance(statement, (ast.With, ast.AsyncWith)):
        return next(filter(None, map(_leaves_surely, statement.body)), None)
    if isinstance(statement, ast.If):
        parts = [statement.body, statement.orelse]
        found = [next(filter(None, map(_leaves_surely, one)), None) for one in parts]
        # Where one branch ends the function and the other the turn, a turn may follow.
        turns = [one for one in found if isinstance(one, _TURNS)]
        return None if None in found else (turns or found)[0]
    return None


# -- conditions ------------------------------------------------------------------------------------


class _Condition(NamedTuple):
    node: ast.AST  # that it is asked in
    test: ast.expr
    holds: bool  # in the branch that a place is in


def _exclude_each_other(source: Source, first: ast.AST, second: ast.AST, scope: ast.AST) -> bool:
    """Whether of two places one stands where something is true, the other where it is not."""
    pairs = itertools.product(_conditions(source, first, scope), _conditions(source, second, scope))
    return any(
        one.node is not other.node
        and _contradict(one, other)
        and not _is_stored_after(scope, one.test, first)
        for one, other in pairs
    )


def _conditions(source: Source, node: ast.AST, scope: ast.AST) -> Iterator[_Condition]:
    for inner, one in itertools.pairwise([*around(source, node, scope), scope]):
        if isinstance(one, ast.If) and inner is not one.test:
            test, holds = one.test, inner in one.body
            while isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
                test, holds = test.operand, not holds
            yield _Condition(one, test, holds)


def _contradict(one: _Condition, other: _Condition) -> bool:
    if one.holds != other.holds:
        return ast.dump(one.test) == ast.dump(other.test)
    first, second = _equals(one.test), _equals(other.test)
    if not one.holds or first is None or second is None:
        return False
    return first[0] == second[0] and first[1] != second[1]


def _equals(test: ast.expr) -> tuple[str, object] | None:
    """Return what a condition compares with which constant: ``kind == "adam"``."""
    if not isinstance(test, ast.Compare) or len(test.ops) != 1:
        return None
    given = test.comparators[0]
    equal = isinstance(test.ops[0], ast.Eq) and isinstance(given, ast.Constant)
    return (ast.dump(test.left), given.value) if equal else None  # type: ignore[attr-defined]


def _is_stored_after(scope: ast.AST, test: ast.expr, first: ast.AST) -> bool:
    """Whether a variable of a condition is given a value after a place, which may change it."""
    read = {one.id for one in ast.walk(test) if isinstance(one, ast.Name)}
    stores = (one for one in own(scope) if isinstance(one, ast.Name) and one.id in read)
    return any(isinstance(one.ctx, ast.Store) and start(one) > start(first) for one in stores)
