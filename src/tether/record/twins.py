"""Two ways of one graph that give the same gradients back to the same leaves.

A value that is computed twice, by the same calls of the same operands, has two graphs. Where one is
taken from the other, what comes back over the first way is undone by what comes back over the
second. What a node gives back is decided by its class and by what it saved, so both are compared,
from the two nodes down to the leaves that they share.
"""

from __future__ import annotations

from typing import Any

import torch

from tether.record.graph import accumulates, saved_hooks, saved_names, saved_values

MOST_PAIRS = 5_000
"""Pairs of nodes that are compared."""

ROUNDED = 8
"""Units in the last place by which two gradients may differ that formulas alone make opposite."""


def undo_each_other(node: Any, given_back: tuple[Any, ...]) -> bool:
    """Whether a node gives opposite gradients back to two ways that are the same.

    To be asked right after the node has run, while what lies behind it still has what it saved.
    """
    ways = [edge for edge in node.next_functions if edge[0] is not None]
    if len(ways) != 2 or len(given_back) != 2 or saved_hooks():
        return False
    (first, _), (second, _) = ways
    one, other = given_back
    if type(first) is not type(second) or one is None or other is None:
        return False
    return _are_opposite(one, other) and _alike(*ways)


def _are_opposite(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two gradients add up to zero, but for their rounding: of a quotient, for one."""
    if one.shape != other.shape or one.dtype != other.dtype or not one.is_floating_point():
        return False
    return torch.allclose(one, -other, rtol=ROUNDED * torch.finfo(one.dtype).eps, atol=0.0)


def _alike(first: tuple[Any, int], second: tuple[Any, int]) -> bool:
    """Whether two edges lead to the same gradients of the same leaves."""
    waiting, seen = [(first, second)], set[tuple[Any, Any]]()
    while waiting:
        (one, place), (other, other_place) = waiting.pop()
        if place != other_place:
            return False
        if one is other or (one, other) in seen:
            continue
        if len(seen) == MOST_PAIRS or not _same(one, other):
            return False
        seen.add((one, other))
        waiting += zip(one.next_functions, other.next_functions, strict=True)
    return True


def _same(one: Any, other: Any) -> bool:
    """Whether two nodes do the same to a gradient."""
    if type(one) is not type(other) or accumulates(one) or _keeps_more(one):
        return False
    if len(one.next_functions) != len(other.next_functions):
        return False
    values, others = saved_values(one), saved_values(other)
    known = len(values) == len(others) == len(saved_names(one.__class__))
    return known and all(_equal(value, others[name]) for name, value in values.items())


def _keeps_more(node: Any) -> bool:
    """Whether what a node does hangs on what it does not show: a custom Function, a write."""
    kind = type(node)
    return kind.__name__ == "CopySlices" or hasattr(kind, "saved_tensors")


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, (tuple, list)) and isinstance(other, (tuple, list)):
        return len(one) == len(other) and all(map(_equal, one, other))
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return one.shape == other.shape and one.dtype == other.dtype and torch.equal(one, other)
    return type(one) is type(other) and bool(one == other)
