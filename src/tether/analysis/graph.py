"""The gradient graph, from what was read off its nodes: which calls a loss leads back to.

A call that made nodes leads back, over the edges of its kind, to the calls that gave its operands
their place in the graph. That is not the last write of their values: a write that autograd does
not track leaves the graph as it was. Where the graph behind a backward pass was walked while the
program ran, the walk is right.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from tether.analysis.history import History, latest, losses_of
from tether.facts import UNKNOWN, Event, Kind, Operand, Walk


class Graph:
    """The calls of a history as autograd joined them."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._events = history.events
        self._kinds = history.trace.kinds
        self._behind: dict[int, frozenset[int]] = {}
        self._leaves: dict[int, frozenset[int]] = {}
        self._first: dict[int, int] = {}
        self._makers: dict[int, list[int]] = defaultdict(list)  # tensor -> calls, in order
        self._tracked: dict[int, list[int]] = defaultdict(list)  # memory -> tracked writes
        self._ends: dict[int, list[int]] = defaultdict(list)  # thread -> nodes made by then
        self._calls: dict[int, list[int]] = defaultdict(list)  # thread -> those calls
        for position, event in self._events.at(np.flatnonzero(self._events.column("kind") >= 0)):
            self._add(position, event)
        for position, event in self._events.where("autograd.grad".__eq__):
            for result in event.results:
                if result.requires_grad:  # create_graph=True
                    self._makers[result.tensor].append(position)
        self._walks = {history.position(walk.event): walk for walk in history.trace.walks}

    def _add(self, position: int, event: Event) -> None:
        self._ends[event.thread].append(event.nodes)
        self._calls[event.thread].append(position)
        for operand in (*self._made_by(event), *event.writes):
            if operand.requires_grad:
                self._makers[operand.tensor].append(position)
        for operand in event.writes:
            self._tracked[self._history.flow.memory(operand)].append(position)

    def _made_by(self, event: Event) -> Iterator[Operand]:
        """Yield the results that a call gave their place: not an operand that it only hands on."""
        ends = self._kinds[event.kind].results
        if len(ends) != len(event.results):
            yield from event.results
            return
        read = {one.tensor for one in event.reads}
        for end, result in zip(ends, event.results, strict=True):
            if end >= 0 or result.tensor not in read:
                yield result

    # -- one call --------------------------------------------------------------------------------

    def kind(self, position: int) -> Kind | None:
        """Return what autograd made of a call; None where it made no node of the graph."""
        number = self._events[position].kind
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

    def parents(self, position: int) -> Iterator[int]:
        """Yield the calls that a call's graph leads back to, at once."""
        kind, event = self.kind(position), self._events[position]
        if kind is None:
            if event.is_backward and any(one.requires_grad for one in event.results):
                for one in losses_of(event):
                    yield from self.makers_of(one, position)
            return
        for one in self._led_to(position):
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
        own = latest(self._makers.get(operand.tensor, ()), before)
        if own >= 0:
            yield own
        if not operand.leaf:
            written = latest(self._tracked.get(self._history.flow.memory(operand), ()), before)
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

    def first_behind(self, position: int) -> int:
        """Return the earliest call of the graph behind a call, or itself; each is met once."""
        if self._events[position].is_backward:
            return min(self.behind(position), default=position)
        waiting, first = [position], self._first
        while waiting:
            at = waiting[-1]
            parents = list(self.parents(at))
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
        event = self._events[position]
        if event.is_backward:
            losses = losses_of(event)
            waiting = [at for one in losses for at in self.makers_of(one, position)]
        else:
            waiting = list(self.parents(position))
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
        if self._events[position].is_backward:
            seen |= self.behind(position)
        else:
            self._spread(list(self.parents(position)), seen)

    def _of_walk(self, walk: Walk) -> frozenset[int]:
        """Return the calls whose nodes were walked."""
        return frozenset(self._calls_of(walk.thread, walk.nodes))

    def freed(self, backward: int) -> frozenset[int]:
        """Return the calls whose saved values were gone when a backward pass had raised."""
        walk = self._walks.get(backward)
        return frozenset(self._calls_of(walk.thread, walk.freed)) if walk else frozenset()

    def _calls_of(self, thread: int, stretches: tuple[tuple[int, int], ...]) -> Iterator[int]:
        ends, calls = self._ends.get(thread, []), self._calls.get(thread, [])
        for first, last in stretches:
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
