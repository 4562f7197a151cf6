"""The gradient graph, from what was read off its nodes: which calls a loss leads back to.

A call that made nodes leads back, over the edges of its kind, to the calls that gave its operands
their place in the graph. That is not the last write of their values: a write that autograd does
not track leaves the graph as it was. Where the graph behind a backward pass was walked while the
program ran, the walk is right.
"""

from __future__ import annotations

import itertools
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np

from tether.analysis.history import History, losses_of
from tether.analysis.timelines import Timeline
from tether.facts import UNKNOWN, Kind, Operand, Walk
from tether.store.numbers import Numbers, concatenated_ranges, view_of

_AT_ONCE = 1 << 17  # calls


class Graph:
    """The calls of a history as autograd joined them."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._events = history.events
        self._kinds = history.trace.kinds
        self._behind: dict[int, frozenset[int]] = {}
        self._leaves: dict[int, frozenset[int]] = {}
        self._first: dict[int, int] = {}
        kinds = self._events.column("kind")
        self._number = view_of(kinds)  # of the kind, by position
        self._with_kind = kinds >= 0
        self._walks = {history.position(walk.event): walk for walk in history.trace.walks}

    def free_indexes(self) -> None:
        """Free the indexes: each is made again when it is asked for."""
        for name in ("_makers", "_tracked", "_numbered", "_parents"):
            vars(self).pop(name, None)

    # -- indexes ---------------------------------------------------------------------------------

    @cached_property
    def _makers(self) -> Timeline:
        """The calls that gave tensors their place."""
        column = self._events.operands.column
        made_at, made = self._events.touched("results")
        gives = (self._with_kind[made_at] & ~self._handed_on) | self._by_passes[made_at]
        wrote_at, wrote = self._events.touched("writes")
        tracked = self._with_kind[wrote_at]
        at = np.concatenate([made_at[gives], wrote_at[tracked]])
        rows = np.concatenate([made[gives], wrote[tracked]])
        grad = (column("kind")[rows] & 2) > 0
        return Timeline(column("tensor")[rows[grad]], at[grad])

    @property
    def _by_passes(self) -> Numbers:
        """Whether each call is one of those whose results have a graph by ``create_graph=True``."""
        return self._events.called("autograd.grad".__eq__)

    @property
    def _handed_on(self) -> Numbers:
        """Whether each result of the events is an operand that its call only hands on."""
        made_at, made = self._events.touched("results")
        found = np.zeros(len(made), bool)
        several = [n for n, one in enumerate(self._kinds) if min(one.results, default=0) < 0]
        for place in np.flatnonzero(
            np.isin(self._events.column("kind")[made_at], several)
        ).tolist():
            at = int(made_at[place])
            event, ends = self._events[at], self._kinds[self._number[at]].results
            number = place - int(np.searchsorted(made_at, at))
            if len(ends) == len(event.results) and ends[number] < 0:
                tensor = event.results[number].tensor
                found[place] = any(one.tensor == tensor for one in event.reads)
        return found

    @cached_property
    def _tracked(self) -> Timeline:
        """The tracked writes to memories."""
        at, rows = self._events.touched("writes")
        tracked = self._with_kind[at]
        return Timeline(self._history.memories[rows[tracked]], at[tracked])

    @cached_property
    def _numbered(self) -> dict[int, tuple[array[int], array[int]]]:
        """For each thread how many nodes it had made by its calls, and these calls."""
        threads, nodes = self._events.column("thread"), self._events.column("nodes")
        found = {}
        for thread in np.unique(threads[self._with_kind]).tolist():
            calls = np.flatnonzero(self._with_kind & (threads == thread))
            numbers = (nodes[calls].astype(np.int32), calls.astype(np.int32))
            found[thread] = (array("i", numbers[0].tobytes()), array("i", numbers[1].tobytes()))
        return found

    @cached_property
    def _parents(self) -> tuple[array[int], array[int]]:
        """The calls that each call with a kind leads back to, and where those of each begin."""
        at, rows = self._targets()
        column = self._events.operands.column
        led = np.empty((len(at), 2), np.int32)
        led[:, 0] = self._makers.latest_of_each(column("tensor")[rows], at)
        led[:, 1] = self._tracked.latest_of_each(self._history.memories[rows], at)
        led[(led[:, 1] <= led[:, 0]) | ((column("kind")[rows] & 1) > 0), 1] = UNKNOWN
        there = led >= 0
        counts = np.bincount(np.repeat(at, there.sum(axis=1)), minlength=len(self._events))
        starts = np.append(np.int32(0), np.cumsum(counts, dtype=np.int32))
        del at, rows, counts
        calls = led[there]
        return array("i", starts.tobytes()), array("i", calls.tobytes())

    def _targets(self) -> tuple[Numbers, Numbers]:
        """Return the operands that the nodes of calls lead to, and require grad, by their calls."""
        events, number = self._events, self._events.column("kind")
        places = [[-1 - target for *_, target in one.edges if target < 0] for one in self._kinds]
        lengths = np.array([*map(len, places), 0])  # of no kind: the last one
        flat = np.array([*itertools.chain.from_iterable(places)], np.int64)
        first = np.cumsum(lengths) - lengths
        found = [(np.zeros(0, np.int32), events.rows[:0])]
        for begin in range(0, len(events), _AT_ONCE):
            numbers = number[begin : begin + _AT_ONCE]
            of, places_of = concatenated_ranges(first[numbers], lengths[numbers])
            at, place = begin + of, flat[places_of]
            there = place < events.column("reads")[at]
            at, rows = at[there], events.rows[events.starts[at[there]] + place[there]]
            grad = (events.operands.column("kind")[rows] & 2) > 0
            found.append((at[grad], rows[grad]))
        every, rows = (np.concatenate(some) for some in zip(*found, strict=True))
        return every, rows

    # -- one call --------------------------------------------------------------------------------

    def kind(self, position: int) -> Kind | None:
        """Return what autograd made of a call; None where it made no node of the graph."""
        number = self._number[position]
        return self._kinds[number] if number >= 0 else None

    def saved(self, position: int, *, unchecked: bool = False) -> Iterator[Operand]:
        """Yield the operands that a call kept for its backward, as they were.

        With `unchecked` also those that a custom Function keeps on its ctx, where no version is
        compared.
        """
        kind, event = self.kind(position), self._events[position]
        if kind is None:
            return
        operands = (*event.reads, *event.results)
        places = kind.saved + (kind.held if unchecked else ())
        yield from (operands[place] for place in places if place < len(operands))

    def on_ctx(self, position: int) -> Iterator[Operand]:
        """Yield the operands of a custom Function that are themselves attributes of its ctx."""
        kind, event = self.kind(position), self._events[position]
        operands = (*event.reads, *event.results)
        places = () if kind is None else kind.on_ctx
        yield from (operands[place] for place in places if place < len(operands))

    def parents(self, position: int) -> Sequence[int]:
        """Return the calls that a call's graph leads back to, at once."""
        if self._number[position] < 0:
            return list(self._behind_pass(position))
        starts, calls = self._parents
        return calls[starts[position] : starts[position + 1]]

    def parents_of(self, calls: Numbers) -> Numbers:
        """Return what the calls of a kind among some, which are told of all, lead back to."""
        starts, parents = (np.asarray(one) for one in self._parents)
        found: Numbers = parents[np.repeat(calls, np.diff(starts))]
        return found

    def _behind_pass(self, position: int) -> Iterator[int]:
        event = self._events[position]
        if event.is_backward and any(one.requires_grad for one in event.results):
            for one in losses_of(event):
                yield from self.makers_of(one, position)

    def _led_to(self, position: int) -> Iterator[Operand]:
        """Yield the operands that the nodes of a call lead to."""
        kind, reads = self.kind(position), self._events[position].reads
        for _, _, target in kind.edges if kind is not None else ():
            if target < 0 and -1 - target < len(reads):
                yield reads[-1 - target]

    def given_nothing(self, position: int) -> frozenset[int]:
        """Return the tensors that require grad and to which no node of a call leads back.

        A target of a loss, a weight of samples: what its formula has no derivative for. A custom
        Function says by itself what it gives back.
        """
        kind, event = self.kind(position), self._events[position]
        if kind is None or not kind.known or not kind.edges or event.operation == "apply":
            return frozenset()
        led, calls = {one.tensor for one in self._led_to(position)}, set(self.parents(position))
        return frozenset(
            one.tensor
            for one in event.reads
            if one.requires_grad and one.tensor not in led
            # Results of one call have one node: which of them an edge leads to was not kept.
            and calls.isdisjoint(self.makers_of(one, position))
        )  # fmt: skip

    def behind_result(self, position: int, tensor: int) -> frozenset[int] | None:
        """Return the operands behind one result of a call that has several, by their tensors.

        None where the call has one result, or all its results may come from all its operands.
        """
        kind, event = self.kind(position), self._events[position]
        made = [int(one.tensor) for one in event.results]
        if kind is None or tensor not in made or len(kind.results) != len(made):
            return None
        waiting, seen, found = [kind.results[made.index(tensor)]], set[int](), set[int]()
        if waiting == [-1]:
            return None
        while waiting:
            node = waiting.pop()
            if node in seen:
                continue
            seen.add(node)
            targets = [target for at, _, target in kind.edges if at == node]
            waiting += [one for one in targets if one >= 0]
            places = [-1 - one for one in targets if one < 0]
            found |= {event.reads[one].tensor for one in places if one < len(event.reads)}
        return frozenset(found)

    def makers_of(self, operand: Operand, before: int) -> Iterator[int]:
        """Yield the calls that had given a tensor its place in the graph by some position.

        A tracked write through another name moves a view along with its memory.
        """
        if not operand.requires_grad:
            return
        own = self._makers.latest(operand.tensor, before)
        if own >= 0:
            yield own
        if not operand.leaf:
            written = self._tracked.latest(self._history.flow.memory(operand), before)
            if written > own:
                yield written

    # -- all that lies behind --------------------------------------------------------------------

    def behind(self, position: int) -> frozenset[int]:
        """Return the calls in the graph of a backward pass, or behind any other call."""
        known = self._behind.get(position)
        if known is None:
            walk = self._walks.get(position)
            found = self._of_walk(walk) if walk is not None and walk.whole else None
            known = self._behind[position] = self._followed(position) if found is None else found
        return known

    @cached_property
    def last_pass(self) -> array[int]:
        """For each call the last backward pass that goes through it; -1: none does."""
        last = array("i", [UNKNOWN]) * len(self._events)
        met = bytearray(len(self._events))
        for backward in reversed(self._history.backwards):
            walk = self._walks.get(backward)
            if walk is not None and walk.whole:
                through = self._calls_of(walk.thread, walk.nodes)
            else:
                through = self._newly_met(backward, met)
            for at in through:
                last[at] = backward if last[at] < 0 else last[at]
        return last

    def _newly_met(self, backward: int, met: bytearray) -> Iterator[int]:
        """Yield the calls behind a pass that were not met before: each is met once."""
        losses = losses_of(self._events[backward])
        waiting = [at for one in losses for at in self.makers_of(one, backward)]
        while waiting:
            at = waiting.pop()
            if not met[at]:
                met[at] = True
                waiting += self.parents(at)
                yield at

    def first_behind(self, position: int) -> int:
        """Return the earliest call of the graph behind a call, or itself; each is met once."""
        if self._events[position].is_backward:
            return min(self.behind(position), default=position)
        waiting, first = [position], self._first
        while waiting:
            at = waiting[-1]
            parents = self.parents(at)
            ahead = [one for one in parents if one not in first]
            if ahead:
                waiting += ahead
                continue
            first[at] = min([at, *(first[one] for one in parents)])
            waiting.pop()
        return first[position]

    def leaves_behind(self, position: int) -> frozenset[int]:
        """Return the leaves that the operands of a call were computed from, whatever it gave."""
        known = self._leaves.get(position)
        if known is None:
            reads = self._events[position].reads
            makers = {at for one in reads for at in self.makers_of(one, position)}
            calls = makers.union(*map(self.behind, makers), [position])
            found = (one.tensor for at in calls for one in self._events[at].reads if one.leaf)
            known = self._leaves[position] = frozenset(found)
        return known

    def _followed(self, position: int) -> frozenset[int]:
        if self._number[position] < 0 and (event := self._events[position]).is_backward:
            losses = losses_of(event)
            waiting = [at for one in losses for at in self.makers_of(one, position)]
        else:
            waiting = [*self.parents(position)]
        seen: set[int] = set()
        self._spread(waiting, seen)
        return frozenset(seen)

    def _spread(self, waiting: list[int], seen: set[int]) -> None:
        """Add calls, and all behind them, to those seen, of which that was done before."""
        while waiting:
            at = waiting.pop()
            if at not in seen:
                seen.add(at)
                waiting += self.parents(at)

    def add_behind(self, position: int, seen: set[int]) -> None:
        """Add the calls behind a call to a set that was made in this way; each is met once."""
        if self._number[position] < 0 and self._events[position].is_backward:
            seen |= self.behind(position)
        else:
            self._spread([*self.parents(position)], seen)

    def _of_walk(self, walk: Walk) -> frozenset[int]:
        """Return the calls whose nodes were walked."""
        return frozenset(self._calls_of(walk.thread, walk.nodes))

    def freed(self, backward: int) -> frozenset[int]:
        """Return the calls whose saved values were gone when a backward pass had raised."""
        walk = self._walks.get(backward)
        return frozenset(self._calls_of(walk.thread, walk.freed)) if walk else frozenset()

    def _calls_of(self, thread: int, ranges: tuple[tuple[int, int], ...]) -> Iterator[int]:
        ends, calls = self._numbered.get(thread, ((), ()))
        for first, last in ranges:
            at = bisect_left(ends, first + 1)
            while at < len(ends):
                kind = self.kind(calls[at])
                if kind is None or ends[at] - kind.made > last:
                    break
                yield calls[at]
                at += 1

    def call_of(self, thread: int, node: int) -> int:
        """Return the call that made a node, by its number in its thread; -1 for none recorded."""
        return next(self._calls_of(thread, ((node, node),)), UNKNOWN)

    def leaves(self, backward: int) -> frozenset[int] | None:
        """Return the leaves that a backward pass could reach; None where it was not walked."""
        walk = self._walks.get(backward)
        return frozenset(walk.leaves) if walk is not None and walk.whole else None

    def leaves_led_to(self, backward: int) -> frozenset[int]:
        """Return the leaves that the calls behind a backward pass lead to, walked or followed."""
        found = self.leaves(backward)
        if found is None:
            led = (one for at in self.behind(backward) for one in self._led_to(at))
            found = frozenset(one.tensor for one in led if one.leaf and one.requires_grad)
        return found

    def asked(self, backward: int) -> frozenset[int]:
        """Return the tensors that alone were to get gradients; none where all leaves were."""
        walk = self._walks.get(backward)
        return frozenset(walk.asked) if walk is not None else frozenset()

    def order(self, position: int) -> int:
        """Return a number that is higher for calls whose nodes a backward pass runs earlier."""
        return self._events[position].nodes


def graph_of(history: History, position: int) -> frozenset[int]:
    """Return the calls in the graph of a backward pass, or behind any other call."""
    return history.get(Graph).behind(position)
