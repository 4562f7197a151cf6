"""Ties that acted: a write through one tensor changed what another one shows.

A *place* is what shows a memory and lives on: a tensor object, or an array that was handed out. A
tie acts when a write through one place changes elements that another place shows while that one
lives; the next read of the other place, and whether it was filled anew before, go with it. Nothing
is judged here: `ties` puts acts in order, and the verdicts say which were not meant.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from functools import cached_property
from operator import itemgetter
from typing import NamedTuple, TypeVar

import numpy as np

from tether.analysis.history import History
from tether.analysis.sharing.shared_memory import Link, Sharing, Touch, Touched, unheard
from tether.facts import UNKNOWN, Operand
from tether.operations.table import operation
from tether.regions import element_size, extent, may_overlap
from tether.store.numbers import Numbers, stable_order

Item = TypeVar("Item")

MOST_PLACES = 512
"""Places of one memory that are compared with its writes: the first and the last ones."""

MOST_SILENT = 512
"""Writes of one memory that no call tells of, which are looked at: the first and the last ones."""

MOST_WRITES = 64
"""Writes that are looked at for one place, the first ones and the last ones of its life."""


class Showing(NamedTuple):
    """What shows a memory, from when until when."""

    tensor: int
    first: int  # position from which it shows these elements
    last: int  # position of the first event without it
    shown: Operand
    array: int = UNKNOWN  # the call that handed out an array, or sent it; -1: neither


class Act(NamedTuple):
    """A write that another place shows."""

    place: Showing
    through: int  # the tensor that was written; UNKNOWN: an array was
    write: int  # position; of an unseen write, of the event before which it was noticed
    read: int  # the first read of the place after it; UNKNOWN: none was recorded
    since: tuple[int, ...]  # the calls by which the two came to share, the latest first
    filled: bool = False  # the place itself was written anew before it was read


class Acts:
    """Every act of a history between places of its own, in the order of the writes."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._found = history.get(Sharing)
        self._died: dict[int, int] = {}
        self._read: dict[int, dict[int, _Reads]] = {}
        self.places = self._places()
        self.all: list[Act] = sorted(self._heard(), key=lambda one: one.write)
        self.all += self._unheard()

    # -- places ------------------------------------------------------------------------------

    def _places(self) -> dict[int, list[Showing]]:
        """Return the places of each memory that was written and has more than one."""
        history, memory = self._history, self._history.flow.memory
        written = set(self._found.writes.memories())
        written |= {history.flow.memory_of(one.storage) for one in history.trace.unseen}
        now: dict[int, Showing] = {}
        found: dict[int, list[Showing]] = defaultdict(list)
        for at, one in _laid_out_anew(history, written):
            known = now.get(one.tensor)
            if known is not None:
                found[memory(known.shown)].append(known._replace(last=at))
            now[one.tensor] = Showing(one.tensor, at, self.died(one.tensor), one)
        for place in now.values():
            found[memory(place.shown)].append(place)
        for place in self._arrays():
            found[memory(place.shown)].append(place)
        return {
            number: sorted(places, key=lambda one: one.first)
            for number, places in found.items()
            if number in written and len(places) > 1
        }

    def _arrays(self) -> Iterator[Showing]:
        history = self._history
        for fact in history.trace.arrays:
            at = history.position(fact.event)
            event = history.events[at] if 0 <= at < len(history.events) else None
            if event is None or event.raised or not event.reads:
                continue
            gone = (
                history.position(fact.released) if fact.released >= 0 else len(history.events) + 1
            )
            yield Showing(event.reads[0].tensor, at, gone, event.reads[0], array=at)
        for at, event in history.events.where(lambda name: operation(name).leaves == "process"):
            for one in event.reads:  # how long the other holds it is not known
                yield Showing(one.tensor, at, len(history.events) + 1, one, array=at)

    def died(self, tensor: int) -> int:
        """Return the position of the first event without a tensor; past the last: it lives."""
        if tensor not in self._died:
            trace = self._history.trace
            fact, end = trace.tensors.get(tensor), len(trace.events) + 1
            if fact is not None and fact.died >= 0:
                end = trace.first_after(fact.died)
            self._died[tensor] = end
        return self._died[tensor]

    # -- acts --------------------------------------------------------------------------------

    def _heard(self) -> Iterator[Act]:
        for number, places in self.places.items():
            writes = self._found.writes.get(number)
            if writes:
                times = writes.at.tolist()
                for place in _some(places, MOST_PLACES):
                    yield from self._of_place(number, place, writes, times)

    def _of_place(
        self,
        number: int,
        place: Showing,
        writes: Touched,
        times: list[int],
    ) -> Iterator[Act]:
        """Yield what writes through other places did to one place of a memory."""
        first, last = bisect_right(times, place.first), bisect_left(times, place.last)
        own, others = [], []
        for write in _some(writes[first:last], MOST_WRITES):
            writer = self.writer(write)
            # What was made for one call shows its own write, whatever else that is a write of.
            itself = place.tensor in (writer, write.operand.tensor)
            if itself and place.array == UNKNOWN:
                own.append(write)
            elif reaches(self._history, write.operand, place.shown):
                others.append((write, writer))
        for write, writer in others:
            read = self._seen(number, place).after(write.at)
            filled = self._filled_between(own, write.at, read)
            since = tuple(at for at in self._since(place, writer) if at < write.at)
            alive = place.array != UNKNOWN or place.last > len(self._history.events)
            if since and (read >= 0 or alive):
                yield Act(place, writer, write.at, read, since, filled)

    def _seen(self, number: int, place: Showing) -> _Reads:
        """Return the reads of a place of a memory; what reads an array is not heard."""
        return _NONE if place.array != UNKNOWN else self._reads(number).get(place.tensor, _NONE)

    def _filled_between(self, writes: list[Touch], first: int, last: int) -> bool:
        """Whether one of some writes, between two positions, left nothing of the old values."""
        between = [one.at for one in writes if first < one.at < last]
        events = self._history.events
        return any(operation(events[at].operation).overwrites for at in between)

    def writer(self, write: Touch) -> int:
        """Return the tensor that a write went through; for one made in passing, what it is of."""
        tensor: int = write.operand.tensor
        for _ in range(64):
            link = self._found.links.get(tensor)
            if link is None or not self._in_passing(tensor, link.at, write.at):
                break
            tensor = link.source
        return tensor

    def _in_passing(self, tensor: int, made: int, at: int) -> bool:
        """Whether a tensor was made for one call, and is gone after it."""
        events = self._history.events
        if self.died(tensor) > at + 3:
            return False
        one, other = self._history.site_of(events[made]), self._history.site_of(events[at])
        return one.row == other.row or self.died(tensor) <= at + 1

    def _since(self, place: Showing, writer: int) -> tuple[int, ...]:
        """Return the calls by which a place and a tensor came to share, the latest first."""
        events = self._history.events
        ways = [] if place.array == UNKNOWN else [place.array]
        ways += [at for at in map(self.moves.get, (place.tensor, writer)) if at is not None]
        mine, theirs = self._found.chain(place.tensor), self._found.chain(writer)
        if place.tensor != writer:
            ways += _down_to(mine, {one.source for one in theirs} | {writer})
        ways += _down_to(theirs, {one.source for one in mine} | {place.tensor})
        if not ways:
            ways = [self._history.made_at(one) for one in (place.tensor, writer)]
        known = {one for one in ways if one >= 0 and events[one].site >= 0}
        return tuple(sorted(known, reverse=True))

    @cached_property
    def moves(self) -> dict[int, int]:
        """Tensor -> the call that put the memory under it that it has now (``p.data = x``)."""
        return {
            event.reads[0].tensor: at
            for at, event in self._history.events.where(lambda name: operation(name).replaces)
            if len(event.reads) > 1
        }

    def _reads(self, memory: int) -> dict[int, _Reads]:
        """Return tensor -> its reads.

        A read of a view is one of each tensor that the view was made of.
        """
        if memory in self._read:
            return self._read[memory]
        reads = self._found.reads.get(memory)
        heard = self._looks[reads.at]
        at = reads.at[heard]
        tensors = self._history.events.operands.column("tensor")[reads.rows[heard]]
        order = np.argsort(tensors, kind="stable")
        each, first = np.unique(tensors[order], return_index=True)
        found: dict[int, list[tuple[Numbers, int]]] = defaultdict(list)
        for tensor, own in zip(each.tolist(), np.split(at[order], first[1:]), strict=False):
            found[tensor].append((own, len(self._history.events)))
            for link in self._found.chain(tensor):
                found[link.source].append((own, link.at))
        self._read[memory] = {tensor: _Reads(some) for tensor, some in found.items()}
        return self._read[memory]

    @cached_property
    def _looks(self) -> Numbers:
        """Whether each call may look at values on its own: none within a step, a pass or a hook."""
        history = self._history
        # What replaces hands the memory over, and looks at no value.
        hands_over = history.events.called(lambda name: operation(name).replaces)
        found: Numbers = ~hands_over & ~history.within("step", "backward", "hook")
        return found

    # -- writes that no call tells of --------------------------------------------------------

    def _unheard(self) -> Iterator[Act]:
        history = self._history
        silent: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
        for fact in unheard(history):
            number = history.flow.memory_of(fact.storage)
            if number in self.places:
                at = history.position
                silent[number].append((at(fact.before), at(fact.after), at(fact.event)))
        for number, writes in silent.items():
            yield from self._shown_to(number, _some(sorted(writes), MOST_SILENT))

    def _shown_to(self, number: int, writes: Sequence[tuple[int, int, int]]) -> Iterator[Act]:
        """Give each silent write of a memory to the places that showed it: they come and go."""
        reads, coming = self._reads(number), deque(self.places[number])
        there: list[Showing] = []
        for before, after, export in writes:
            while coming and coming[0].first <= after:
                there.append(coming.popleft())
            there = [place for place in there if place.last >= before]
            since = (export,) if 0 <= export < len(self._history.events) else ()
            for place in _some(there, MOST_PLACES):
                if place.first > after or place.array != UNKNOWN:
                    continue
                read = reads.get(place.tensor, _NONE).after(before - 1)
                ways = [link.at for link in self._found.chain(place.tensor)]
                yield Act(place, UNKNOWN, before, read, (*since, *ways[:2]))


def _down_to(chain: list[Link], common: set[int]) -> Iterator[int]:
    """Yield the calls of a chain, down to the one that leads to something in common."""
    if chain and all(one.source not in common for one in chain):
        return
    for link in chain:
        yield link.at
        if link.source in common:
            return


class _Reads:
    """The reads of a tensor in order, and when the view was made through which it was read."""

    def __init__(self, some: Sequence[tuple[Numbers, int]]) -> None:
        found = [(at, made) for positions, made in some for at in positions.tolist()]
        found.sort(key=itemgetter(0))
        self._at = array("i", [at for at, _ in found])
        self._made = array("i", [made for _, made in found])

    def after(self, write: int) -> int:
        """Return the first read after a write of what was there before it."""
        for number in range(bisect_right(self._at, write), len(self._at)):
            if self._made[number] > write:
                return int(self._at[number])
        return UNKNOWN


_NONE = _Reads([])


def _some(them: Sequence[Item], most: int) -> Sequence[Item]:
    """Return the first and the last ones of too many."""
    return them if len(them) <= most else [*them[: most // 2], *them[-most // 2 :]]


def _laid_out_anew(history: History, memories: set[int]) -> Iterator[tuple[int, Operand]]:
    """Yield the tensors that were on some memories, whenever one shows other elements than before.

    In the order of the events; each also the first time that it is seen.
    """
    events, rows = history.events.touched()
    column = history.events.operands.column
    tensors = column("tensor")
    on_them = np.isin(history.memories, list(memories))
    chosen = np.flatnonzero(np.isin(tensors, tensors[on_them])[rows])
    chosen = chosen[stable_order(tensors[rows[chosen]])]
    anew = np.zeros(len(chosen), bool)
    anew[:1] = True
    for name in ("tensor", "storage", "offset", "shape", "strides"):
        shown = column(name)[rows[chosen]]
        anew[1:] |= shown[1:] != shown[:-1]
    for place in np.sort(chosen[anew]).tolist():
        yield int(events[place]), history.events.operands[int(rows[place])]


def reaches(history: History, written: Operand, shown: Operand) -> bool:
    """Whether two operands on one memory have elements in common, on whatever storages."""
    if written.storage == shown.storage:
        return may_overlap(written, shown)
    (a, b), (c, d) = (_bytes(history, one) for one in (written, shown))
    return a < d and c < b


def _bytes(history: History, operand: Operand) -> tuple[int, int]:
    fact = history.trace.storages.get(operand.storage)
    start, size = (fact.start if fact is not None else 0), element_size(operand.dtype)
    first, last = extent(operand)
    return start + first * size, start + last * size
