"""Where gradients became zero on their way back to a tensor, in the passes that were followed.

The ways from tensors through the graph of a pass are worked out once, forward: a bit for each call
that uses one of the tensors, handed on from call to call.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import islice
from typing import NamedTuple

from tether.analysis.gradients.graph import Graph
from tether.analysis.history import History
from tether.facts import Followed, Operand, SiteId, Stop, TensorId
from tether.operations.table import flat_inputs

MOST_USES = 32
"""Calls that use a tensor and are told apart; later ones count as the last of them."""


_HOOKS = ("register_hook", "register_post_accumulate_grad_hook")


class Ways(NamedTuple):
    """The ways from some tensors to the loss of one pass: a bit for each call that uses one."""

    calls: tuple[int, ...]  # of the graph, in order
    reaching: dict[int, int]  # call -> the bits that reach it
    bits: dict[int, int]  # tensor -> its bits
    uses: dict[int, list[int]]  # tensor -> the calls of its bits


class Zeroed:
    """Asked of the tensors whose gradient was zero and never anything else."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._graph = history.get(Graph)
        wanted = {tensor for tensor, seen in history.trained.items() if "some" not in seen}
        self._passes = [(one, self._ways(one, wanted)) for one in history.trace.followed]

    def stops(self, tensor: int) -> Iterator[tuple[int, Stop | None]]:
        """Yield the calls behind which only zeros came back, of those that a tensor went into.

        Of the first followed pass in which a gradient stopped on its way to the tensor.
        """
        for fact, ways in self._passes:
            places: list[tuple[int, Stop | None]] = [
                (self._graph.call_of(fact.thread, stop.node), stop)
                for stop in fact.stops
                if not stop.broken
            ]
            places += [(self._graph.call_of(fact.thread, node), None) for node in fact.zeroed]
            found = [
                (at, stop)
                for at, stop in sorted(places, key=lambda one: one[0], reverse=True)
                if at >= 0 and self._went_into(tensor, at, stop, ways)
            ]
            if found:
                yield from found
                return

    def by_formula(self, at: int, stop: Stop | None) -> bool:
        """Whether a stop is an edge whose gradient is zero whatever the values are.

        As PyTorch's own derivatives have it: the second argument of `copysign`, for one.
        """
        kind = self._graph.kind(at)
        if stop is None or kind is None:
            return False
        flat = [
            place in flat_inputs(kind.nodes[node])
            for node, place, _ in kind.edges
            if place == stop.input
        ]
        return bool(flat) and all(flat)

    def users(self, at: int) -> list[SiteId]:
        """Return the lines of the graph that use the result of a call, in order."""
        return list(dict.fromkeys(self._history.events[one].site for one in self._users[at]))

    def cancelled(self, at: int) -> bool:
        """Whether gradients that are not zero come back to a call and add up to zero.

        Asked of a call that got zeros though no call behind it gave any: with one way back to it,
        or a hook of the program's on its result, they are not a sum.
        """
        hooked = any(self.hooks(one.tensor) for one in self._history.events[at].results)
        return not hooked and len(self._users[at]) > 1

    @cached_property
    def _users(self) -> dict[int, list[int]]:
        """For each call of a graph those that use its result, once for each use."""
        found: dict[int, list[int]] = defaultdict(list)
        for call in sorted({call for _, ways in self._passes for call in ways.calls}):
            for parent in self._graph.parents(call):
                found[parent].append(call)
        return found

    def meeting(self, tensor: int) -> tuple[int, list[int]] | None:
        """Return the call in which several ways from a tensor first meet, and where they begin.

        None unless the gradient was zero right after the followed pass, no hook of the program's
        own changed it, and no call gave back zeros on one of the ways: then they add up to zero.
        """
        if self.hooks(tensor) or any(self.stops(tensor)):
            return None
        for fact, ways in self._passes:
            bits, uses = ways.bits.get(tensor, 0), ways.uses.get(tensor, [])
            if len(uses) < 2 or not self._zero_after(fact, tensor):
                continue
            for at in ways.calls:
                if (ways.reaching[at] & bits).bit_count() > 1:
                    return at, uses
        return None

    def hooks(self, tensor: int) -> list[int]:
        """Return the calls that put hooks of the program's on the gradient of a tensor."""
        return self._hooked.get(tensor, [])

    @cached_property
    def _hooked(self) -> dict[int, list[int]]:
        found: dict[int, list[int]] = defaultdict(list)
        for at, event in self._history.events.where(_HOOKS.__contains__):
            for one in {int(one.tensor) for one in event.reads}:
                found[one].append(at)
        return found

    # -- parts -----------------------------------------------------------------------------------

    def _ways(self, fact: Followed, wanted: set[int]) -> Ways:
        events, graph = self._history.events, self._graph
        backward = self._history.position(fact.event)
        leaves, calls = graph.leaves(backward), tuple(sorted(graph.behind(backward)))
        wanted = wanted if leaves is None else wanted & leaves
        uses: dict[int, list[int]] = {}
        places: dict[tuple[int, int], int] = {}  # tensor and which use of it -> bit
        bits: dict[int, int] = {}
        reaching: dict[int, int] = {}
        for at in calls:
            here = 0
            for tensor in {int(one.tensor) for one in events[at].reads} & wanted:
                known = uses.setdefault(tensor, [])
                if len(known) < MOST_USES:
                    known.append(at)
                bit = 1 << places.setdefault((tensor, len(known)), len(places))
                bits[tensor] = bits.get(tensor, 0) | bit
                here |= bit
            for parent in graph.parents(at):
                here |= reaching.get(parent, 0)
            reaching[at] = here
        return Ways(calls, reaching, bits, uses)

    def _went_into(self, tensor: int, at: int, stop: Stop | None, ways: Ways) -> bool:
        """Whether a tensor is behind a call, or behind the edge of it that gave no gradient."""
        bits = ways.bits.get(tensor, 0)
        if stop is None:
            return bool(ways.reaching.get(at, 0) & bits)
        return bool(bits) and any(
            one.tensor == tensor
            or any(ways.reaching.get(made, 0) & bits for made in self._graph.makers_of(one, at))
            for one in self._operands(at, stop)
        )

    def _operands(self, at: int, stop: Stop) -> Sequence[Operand]:
        """Return the operands to which the edge of a stop leads; all of them if that is unknown."""
        reads, kind = self._history.events[at].reads, self._graph.kind(at)
        edges = kind.edges if kind is not None else ()
        places = {-1 - target for _, place, target in edges if place == stop.input and target < 0}
        return [one for n, one in enumerate(reads) if n in places] or reads

    def _zero_after(self, fact: Followed, tensor: int) -> bool:
        """Whether a gradient was seen to be zero right after a pass."""
        number = TensorId(tensor)
        later = (one for one in self._history.after_backward if one.at > fact.event)
        return any(one.status.get(number) == "zero" for one in islice(later, 1))
