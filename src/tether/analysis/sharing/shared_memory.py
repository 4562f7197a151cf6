"""Which tensors show one memory, since which call, and what was written and read of it.

A record is a tensor made by a call that looks like a copy and shares memory all the same. The
tensors made from it by views belong to it.
"""

from __future__ import annotations

import functools
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import NamedTuple, overload

import numpy as np

from tether.analysis.history import History
from tether.analysis.timelines import DistinctPairs, Groups, among, by_events, of_events
from tether.facts import OUT, UNKNOWN, Event, Operand, Unseen
from tether.operations.table import operation
from tether.regions import extent
from tether.store.columns import Operands
from tether.store.numbers import Numbers, stable_order


class Link(NamedTuple):
    """How a tensor came to share memory."""

    at: int  # the call that returned it
    source: int  # the tensor it was made from


class Touch(NamedTuple):
    """A write or a read of some memory."""

    at: int
    operand: Operand


class Links:
    """How each tensor came to share memory, by its number: in arrays, for there are many."""

    def __init__(self, most: int) -> None:
        # Of each tensor, from -1 on, the call, the source, and its turn among all links.
        self._at, self._source, self._turn = (array("i", [UNKNOWN]) * (most + 2) for _ in range(3))

    def add(self, tensor: int, link: Link, turn: int) -> None:
        """Note the link of a tensor that has none."""
        self._at[tensor + 1], self._source[tensor + 1] = link
        self._turn[tensor + 1] = turn

    def add_all(self, tensors: Numbers, at: Numbers, sources: Numbers, turns: Numbers) -> None:
        """Note the links of many tensors that have none; of one that is there twice the first."""
        columns = (self._at, at), (self._source, sources), (self._turn, turns)
        for column, numbers in columns:
            np.asarray(column)[tensors[::-1] + 1] = numbers[::-1]

    @property
    def _order(self) -> Numbers:
        """The tensors that have a link, in the order of the calls."""
        turns = np.asarray(self._turn)
        linked = np.flatnonzero(turns >= 0)
        found: Numbers = linked[np.argsort(turns[linked])] - 1
        return found

    def __contains__(self, tensor: int) -> bool:
        return tensor + 1 < len(self._at) and self._at[tensor + 1] >= 0

    def __getitem__(self, tensor: int) -> Link:
        return Link(self._at[tensor + 1], self._source[tensor + 1])

    def get(self, tensor: int) -> Link | None:
        """Return the link of a tensor, if it has one."""
        has_one = tensor in self
        return self[tensor] if has_one else None

    def by_source(self) -> DistinctPairs:
        """Return for each tensor those that were made from it."""
        tensors = self._order
        return DistinctPairs(len(tensors), [(np.asarray(self._source)[tensors + 1], tensors)])

    def by(self, calls: Numbers) -> Iterator[tuple[int, Link]]:
        """Yield the tensors that some calls linked, with their links, in the order of the calls.

        `calls` says of every event whether it is one of them.
        """
        tensors = self._order
        made = calls[np.asarray(self._at)[tensors + 1]]
        return ((tensor, self[tensor]) for tensor in tensors[made].tolist())


class Touched(Sequence[Touch]):
    """What was done to one memory, in order: each is made when it is asked for."""

    def __init__(self, operands: Operands, at: Numbers, rows: Numbers) -> None:
        self._operands, self.at, self.rows = operands, at, rows

    def __len__(self) -> int:
        return len(self.at)

    def tensors(self) -> list[int]:
        """Return the tensors by which it was done, each once."""
        found: list[int] = np.unique(self._operands.column("tensor")[self.rows]).tolist()
        return found

    @overload
    def __getitem__(self, index: int) -> Touch: ...
    @overload
    def __getitem__(self, index: slice) -> Touched: ...
    def __getitem__(self, index: int | slice) -> Touch | Touched:
        if isinstance(index, slice):
            return Touched(self._operands, self.at[index], self.rows[index])
        return Touch(int(self.at[index]), self._operands[int(self.rows[index])])

    def __iter__(self) -> Iterator[Touch]:
        operands = map(self._operands.__getitem__, self.rows.tolist())
        return (Touch(*one) for one in zip(self.at.tolist(), operands, strict=True))


class Touches:
    """What was done to each memory, in order; made when it is asked for."""

    def __init__(self, history: History, at: Numbers, rows: Numbers) -> None:
        self._operands = history.events.operands
        memories = history.memories[rows]
        order = stable_order(memories)
        self._at, self._rows = at[order], rows[order]
        self._groups = Groups(memories[order])

    def get(self, memory: int) -> Touched:
        """Return what was done to a memory."""
        first, last = self._groups.of(memory)
        return Touched(self._operands, self._at[first:last], self._rows[first:last])

    def memories(self) -> list[int]:
        """Return the memories, that which was touched first before the others."""
        order = np.argsort(self._at[self._groups.begins[:-1]], kind="stable")
        found: list[int] = self._groups.numbers[order].tolist()
        return found

    def calls(self) -> Numbers:
        """Return the positions of the calls that touched a memory, each once."""
        return np.unique(self._at)

    def of(self, chosen: Callable[[Numbers, Numbers], Numbers]) -> Iterator[tuple[int, Touch]]:
        """Yield some touches and their memories, as chosen by calls and rows of operands.

        In the order of `memories`.
        """
        places = np.flatnonzero(chosen(self._at, self._rows))
        begins = self._groups.begins
        which = np.searchsorted(begins, places.astype(begins.dtype), "right") - 1
        memories, first = self._groups.numbers[which], self._at[begins[which]]
        order = np.lexsort((places, memories, first))
        for place, memory in zip(places[order].tolist(), memories[order].tolist(), strict=True):
            operand = self._operands[int(self._rows[place])]
            yield memory, Touch(int(self._at[place]), operand)


class Sharing:
    """The links and writes of a trace, by memory; its reads, when they are asked for."""

    def __init__(self, history: History) -> None:
        self._history = history
        self.links = Links(int(history.events.operands.column("tensor").max(initial=0)))
        self.writes = Touches(history, *_writes(history))
        handed = history.events.called("apply".__eq__)
        at, read, made = _on_one_memory(history, handed)
        turns = np.arange(len(at))
        new = _is_new(history, at, made) & ~handed[at]
        self.links.add_all(made[new], at[new], read[new], turns[new])
        pairs = (one[~new].tolist() for one in (at, read, made, handed[at], turns))
        for call, given, result, from_forward, turn in zip(*pairs, strict=True):
            self._join(Link(call, given), result, turn, handed=from_forward)

    def reads_of(self, memory: int) -> Touched:
        """Return what was read of a memory, in order: the operands whose bytes a call looked at."""
        return self.reads.get(memory)

    @cached_property
    def reads(self) -> Touches:
        """What was read of each memory: the operands whose bytes a call looked at."""
        at, rows = self._history.events.touched("reads")
        places = np.flatnonzero(_matters(self._history)[at] & ~_overwritten(self._history))
        return Touches(self._history, at[places], rows[places])

    def _join(self, link: Link, made: int, turn: int, *, handed: bool) -> None:
        """Note that a call made one tensor on the memory of another that it read."""
        if handed:  # what a Function's forward made came of what it was given
            while made in self.links:
                made = self.links[made].source
        if made == link.source or made in self.links:
            return
        if all(made != one.source for one in self.chain(link.source)):
            self.links.add(made, link, turn)

    @cached_property
    def records(self) -> dict[int, list[int]]:
        """Memory -> the tensors on it that a call which looks like a copy made, in order."""
        history, found = self._history, defaultdict[int, list[int]](list)
        for tensor, link in self.links.by(history.events.called(lambda n: operation(n).records)):
            found[history.flow.memory(history.events[link.at].results[0])].append(tensor)
        return found

    def record_of(self, tensor: int) -> int:
        """Return the record that a tensor belongs to, itself or what it is a view of; or -1."""
        first, is_record = self._up(tensor, lambda name: operation(name).records)
        return first if is_record else UNKNOWN

    def family(self, tensor: int) -> int:
        """Return the tensor at the start of the views: the record, or the owner of the memory."""
        begins = lambda name: operation(name).records or operation(name).wraps  # noqa: E731
        return self._up(tensor, begins)[0]

    def counter(self, tensor: int) -> int:
        """Return a number that tensors counting their writes together have in common."""
        return self._up(tensor, lambda name: operation(name).own_counter)[0]

    def owner(self, tensor: int) -> int:
        """Return the tensor that owns the memory of one, as far as is known."""
        return next((int(link.source) for link in reversed(self.chain(tensor))), tensor)

    def _up(self, tensor: int, made: Callable[[str], object]) -> tuple[int, bool]:
        """Return the first on the way to the owner that some call made, or the last; and which."""
        for _ in range(64):
            link = self.links.get(tensor)
            if link is None or made(self._history.events.operation(link.at)):
                return tensor, link is not None
            tensor = link.source
        return tensor, False

    def views(self, tensor: int) -> set[int]:
        """Return a tensor with all that was made from it, on its memory."""
        found, waiting = set[int](), [tensor]
        while waiting:
            one = waiting.pop()
            if one not in found:
                found.add(one)
                waiting += self._made_from.on(one)
        return found

    @cached_property
    def _made_from(self) -> DistinctPairs:
        return self.links.by_source()

    def chain(self, tensor: int) -> list[Link]:
        """Return the links from a tensor to the owner of its memory."""
        found: list[Link] = []
        while tensor in self.links and len(found) < 64:
            found.append(self.links[tensor])
            tensor = found[-1].source
        return found


def _is_new(history: History, at: Numbers, tensors: Numbers) -> Numbers:
    """Return which tensors were first met as results of calls that were not given them.

    Nothing else has their link, and they are behind nothing that such a call was given.
    """
    found: Numbers = (history.makers(tensors) == at) & (history.first_reads(tensors) > at)
    return found


def _on_one_memory(history: History, handed: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """Return the calls with each result that lies on an operand's memory: call, operand, result.

    As tensors; not what a call returns as it was given it, but for a Function's.
    """
    read_at, read = history.events.touched("reads")
    made_at, made = history.events.touched("results")
    found = [
        _of_these(history, (read_at[given], read[given]), (made_at[results], made[results]))
        for given, results in by_events(read_at, made_at)
    ]
    none = np.zeros(0, np.int32)
    at, given, results = (np.concatenate(some) for some in zip((none,) * 3, *found, strict=True))
    chosen = (given != results) | handed[at]
    return at[chosen], given[chosen], results[chosen]


def _of_these(
    history: History, reads: tuple[Numbers, Numbers], results: tuple[Numbers, Numbers]
) -> tuple[Numbers, Numbers, Numbers]:
    """Return what `_on_one_memory` does of the operands of some events."""
    (read_at, read), (made_at, made) = reads, results
    column, memories = history.events.operands.column, history.memories
    read_keys, made_keys = of_events(read_at, memories[read], made_at, memories[made])
    order = np.argsort(read_keys, kind="stable")
    first, last = (np.searchsorted(read_keys[order], made_keys, side) for side in ("left", "right"))
    counts = np.where(column("storage")[made] != UNKNOWN, last - first, 0)
    ends = np.cumsum(counts)
    nth = np.arange(int(counts.sum())) - np.repeat(ends - counts, counts)
    tensors = column("tensor")
    given = tensors[read[order[np.repeat(first, counts) + nth]]]
    return np.repeat(made_at, counts), given, np.repeat(tensors[made], counts)


def _writes(history: History) -> tuple[Numbers, Numbers]:
    """Return the calls that wrote, and what: by its rows. Not what is the same after as before."""
    at, rows = history.events.touched("writes")
    chosen = _is_target(history)
    same = [one for one in _perhaps_onto_themselves(history) if onto_itself(history, one)]
    chosen &= ~np.isin(at, same)
    return at[chosen], rows[chosen]


def _is_target(history: History) -> Numbers:
    """Return for each operand that calls wrote whether it is what the call was to write.

    Arguments that share the version counter of the first one moved with it.
    """
    events = history.events
    at, rows = events.touched("writes")
    in_place = events.called(lambda name: name.endswith("_") and not name.startswith("_foreach"))
    asks = in_place & (events.column("reads") > 0)
    tensors = events.operands.column("tensor")
    first = np.full(len(events), UNKNOWN, np.int64)
    first[asks] = tensors[events.rows[events.starts[:-1][asks]]]
    same = tensors[rows] == first[at]
    none = asks & (np.bincount(at[same], minlength=len(events)) == 0)
    found: Numbers = ~asks[at] | same | none[at]
    return found


def _perhaps_onto_themselves(history: History) -> list[int]:
    """Return the calls that `onto_itself` may be true of."""
    events = history.events
    copies = events.called({"copy_", "__setitem__"}.__contains__) & (events.column("writes") > 0)
    at = np.flatnonzero(copies & (events.column("reads") == 2))
    storages = events.operands.column("storage")
    target, source = (storages[events.rows[events.starts[at] + n]] for n in (0, 1))
    found: list[int] = at[(target == source) & (target != UNKNOWN)].tolist()
    return found


def onto_itself(history: History, at: int) -> bool:
    """Whether a copy wrote the very elements that it read: nothing is another value after it.

    Loading a ``state_dict`` back into the model that it shows does so, parameter by parameter; and
    the end of ``x[i] += y``, which assigns the view that has just been written to its own place.
    """
    event = history.events[at]
    if len(event.reads) != 2:
        return False
    target, source = event.reads
    if target.storage != source.storage or target.storage == UNKNOWN:
        return False
    if event.operation == "copy_":
        return target[3:7] == source[3:7]
    taken, written = history.made_at(source.tensor), history.events[at - 1]
    return (
        event.operation == "__setitem__"
        and any(one.tensor == source.tensor for one in written.writes)
        and taken >= 0
        and history.events[taken].operation == "__getitem__"
        and history.events[taken].reads[0].tensor == target.tensor
        and history.site_of(history.events[taken]).line == history.site_of(event).line
        and history.site_of(written).line == history.site_of(event).line
    )


def _matters(history: History) -> Numbers:
    """Return for each call whether it looked at bytes of what it was given."""
    events = history.events
    made_at, _ = events.touched("results")
    # A view shows bytes and looks at none.
    shows = (events.column("results") > 0) & (events.column("writes") == 0)
    shows[made_at[~history.on_given]] = False
    looks = events.called(lambda name: operation(name).carries or name in ("save", "__repr__"))
    fills = events.flagged(OUT) | events.called(lambda name: operation(name).wraps)
    found: Numbers = looks & ((~fills & ~shows) | _overwrites(history))
    return found


def _overwrites(history: History) -> Numbers:
    """Return for each call whether nothing is left of what was in the memory that it wrote."""
    events = history.events
    found: Numbers = events.called(lambda name: operation(name).overwrites)
    return found & (events.column("writes") > 0)


def _overwritten(history: History) -> Numbers:
    """Return for each operand that calls read whether the call wrote over it, unread."""
    events, overwrites = history.events, _overwrites(history)
    tensors = events.operands.column("tensor")
    at, rows = events.touched("reads")
    wrote_at, wrote = events.touched("writes")
    chosen = overwrites[wrote_at] & _is_target(history)
    found = np.zeros(len(rows), bool)
    of_these = overwrites[at]
    found[of_these] = among(
        at[of_these], tensors[rows[of_these]], wrote_at[chosen], tensors[wrote[chosen]]
    )
    return found


def fills_anew(event: Event) -> bool:
    """Whether a write counts on nothing that was there: what it wrote to was given to be filled."""
    return bool(event.flags & OUT) or operation(event.operation).overwrites


def unheard(history: History) -> list[Unseen]:
    """Return the writes found by bytes that no recorded call explains."""
    found = history.get(Sharing)
    rest = []
    for fact in history.trace.unseen:
        after, before = history.position(fact.after), history.position(fact.before)
        heard = found.writes.get(history.flow.memory_of(fact.storage))
        if fact.event == UNKNOWN or not any(after < one.at <= before for one in heard):
            rest.append(fact)
    return rest


def overlaps_itself(operand: Operand) -> bool:
    """Whether two places of a tensor are one element of its memory (`expand`, `unfold`)."""
    return _meets_itself(operand.shape, operand.strides)


@functools.cache
def _meets_itself(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    reach = 0
    for stride, size in sorted(zip(strides, shape, strict=False)):
        if size > 1:
            if stride <= reach:
                return True
            reach += stride * (size - 1)
    return False


def same_place(a: Operand, b: Operand) -> bool:
    """Whether two operands on one memory show the same elements."""
    return extent(a) == extent(b)
