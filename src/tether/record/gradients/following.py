"""Backward passes that are followed from node to node: over which edge a gradient stops.

A gradient that is zero at a leaf became so somewhere: at a product whose other factor is zero, at
a clamp beyond its bound, in a custom Function. Or what a node gives back over two ways comes to the
same leaves and adds up to nothing. PyTorch is asked: while one backward pass runs, each node says
whether a gradient came to it and what it gave back over each edge. A pass is followed when it is
the first of its line, and later while some leaf still has no gradient but zeros.

Nothing is followed where that could be heard or cost much: in graphs of many nodes, on devices
other than the CPU, under compiled autograd.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch

from tether.facts import Stop
from tether.record.arrays.contents import is_finite, is_zero, span_of
from tether.record.gradients.leaf_answers import runs_own_code
from tether.record.gradients.nodes import (
    accumulates,
    nodes_behind,
    saved_hooks,
    saved_names,
    saved_values,
    saved_with_names,
)

MOST_NODES = 20_000
"""Nodes of a graph that is followed."""


SAME_LINE = 1e-3
"""Part by which a product of two gradients in opposite directions may miss that of their norms."""


class PassFound(NamedTuple):
    """What one pass showed; the fields are those of `facts.Followed`."""

    stops: tuple[Stop, ...]
    zeroed: tuple[int, ...]
    undone: tuple[int, ...]
    turned: tuple[int, ...]
    cancelled: tuple[int, ...]


class Trail:
    """One backward pass while it is followed."""

    def __init__(self, roots: Iterable[torch.Tensor], *, partly: bool = False) -> None:
        self._partly = partly  # some gradients were not asked for: what has none says nothing
        self._stops: dict[tuple[int, int], Stop] = {}
        self._got_zeros: set[int] = set()  # nodes to which only zeros came
        self._undone: list[int] = []  # nodes whose two ways undo each other
        self._turned: list[int] = []  # nodes whose gradient came as another than over their edges
        self._cancelled: list[int] = []  # nodes whose edges brought what adds up to nothing
        self._edges: Counter[tuple[int, int]] = Counter()  # into each result of a node
        self._sums: dict[tuple[int, int], torch.Tensor] = {}  # what came over several of them
        self._parts: Counter[tuple[int, int]] = Counter()  # of them, those that were not zeros
        self._sources: dict[int, list[tuple[int, int]]] = {}  # node -> edges that lead to it
        self._handles: list[Any] = []
        self.hooked = frozenset[int]()  # of nodes with hooks, those that run the program's code
        found = list(nodes_behind(roots, MOST_NODES + 1))
        if len(found) <= MOST_NODES:
            self._attach([one for one in found if not accumulates(one)])

    def _attach(self, nodes: list[Any]) -> None:
        for node in nodes:
            number = node._sequence_nr()
            for place, (target, result) in enumerate(node.next_functions):
                if target is not None and not accumulates(target):
                    self._sources.setdefault(target._sequence_nr(), []).append((number, place))
                    self._edges[target._sequence_nr(), result] += 1
        self._handles = [node.register_hook(self._hook(node)) for node in nodes]
        self.hooked = frozenset(one._sequence_nr() for one in nodes if runs_own_code(one))

    def _hook(self, node: Any) -> Callable[[Any, Any], None]:
        number = node._sequence_nr()
        wanted = [target is not None for target, _ in node.next_functions]

        def ran(given_back: Any, came: Any) -> None:
            self._compare(number, came)
            if self._cancels(number, came):
                self._cancelled.append(number)
            if all(one is None or is_zero(one) for one in came):
                self._got_zeros.add(number)
                return
            returned = given_back if isinstance(given_back, tuple) else (given_back,)
            self._add(node, returned)
            if undo_each_other(node, returned):
                self._undone.append(number)
            for place, (one, has_edge) in enumerate(zip(returned, wanted, strict=False)):
                if has_edge and not (one is None and self._partly):
                    self._look(node, place, one, came)

        def safely(given_back: Any, came: Any) -> None:
            try:
                with torch._C.DisableTorchFunction():
                    ran(given_back, came)
            except Exception:  # noqa: BLE001 -- a gradient may be of any type: nothing is said
                return

        return safely

    def _add(self, node: Any, returned: tuple[torch.Tensor | None, ...]) -> None:
        """Add up what nodes give back to one that has several edges."""
        for one, (target, result) in zip(returned, node.next_functions, strict=False):
            if one is None or target is None or accumulates(target):
                continue
            key = target._sequence_nr(), result
            if self._edges[key] > 1:
                known = self._sums.get(key)
                self._sums[key] = one if known is None else known + one
                self._parts[key] += not is_zero(one)

    def _compare(self, number: int, came: tuple[torch.Tensor | None, ...]) -> None:
        """Find gradients that came over several edges and that a hook turned against itself."""
        for result, one in enumerate(came):
            known = self._sums.pop((number, result), None)
            if known is None or one is None or known.shape != one.shape:
                continue
            along, against = (known * one).sum(), -known.norm() * one.norm()
            if along < 0 and torch.allclose(along, against, rtol=SAME_LINE):
                self._turned.append(number)

    def _cancels(self, number: int, came: tuple[torch.Tensor | None, ...]) -> bool:
        """Whether several gradients of several elements came to a node, and add up to zeros."""
        parts = [self._parts.pop((number, result), 0) for result in range(len(came))]
        found = [one for one, count in zip(came, parts, strict=True) if count > 1]
        return bool(found) and all(
            one is not None and one.numel() > 1 and bool(is_zero(one)) for one in found
        )

    def _look(self, node: Any, place: int, one: torch.Tensor | None, came: Any) -> None:
        """Look at what a node gave back over one edge."""
        number = node._sequence_nr()
        if one is None or is_zero(one):
            self._stop(node, Stop(number, place, zeros=one is not None))
        elif is_finite(one) is False and _are_finite(came):
            self._stop(node, Stop(number, place, zeros=False, broken=True))

    def _stop(self, node: Any, found: Stop) -> None:
        values = {} if saved_hooks() else saved_with_names(node)
        spans = {name: span for name, one in values.items() if (span := span_of(one)) is not None}
        # Of several the one that is zero says why zeros came back; none of the others does.
        zero = [name for name, span in spans.items() if not any(span)]
        for name in [*zero, *(spans if found.broken or len(spans) == 1 else ())][:1]:
            saved, (low, high) = name.removeprefix("_saved_"), spans[name]
            found = found._replace(saved=saved, low=low, high=high)
        self._stops[found.node, found.input] = found

    def ended(self) -> PassFound | None:
        """Return what was found, and hear no more.

        None where the graph was too large to be followed.
        """
        if not self._handles:
            return None
        while self._handles:
            self._handles.pop().remove()
        zeroed = sorted(
            number
            for number in self._got_zeros
            if not any(
                edge in self._stops or edge[0] in self._got_zeros
                for edge in self._sources.get(number, ())
            )
        )
        return PassFound(
            tuple(self._stops.values()), tuple(zeroed), tuple(self._undone), tuple(self._turned),
            tuple(self._cancelled),
        )  # fmt: skip


def _are_finite(came: Iterable[torch.Tensor | None]) -> bool:
    return all(one is None or is_finite(one) is not False for one in came)


def runs_compiled() -> bool:
    """Whether backward passes are compiled: their nodes do not run one by one."""
    compiled = sys.modules.get("torch._dynamo.compiled_autograd")
    return bool(getattr(compiled, "compiled_autograd_enabled", False))


def can_follow(losses: Iterable[torch.Tensor]) -> bool:
    """Whether a backward pass from some losses may be followed without being heard."""
    return not runs_compiled() and all(loss.is_cpu for loss in losses)


# -- twins -----------------------------------------------------------------------------------------
# Two ways of one graph that give the same gradients back to the same leaves. A value that is
# computed twice, by the same calls of the same operands, has two graphs. Where one is taken from
# the other, what comes back over the first way is undone by what comes back over the second. What a
# node gives back is decided by its class and by what it saved, so both are compared, from the two
# nodes down to the leaves that they share.


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
