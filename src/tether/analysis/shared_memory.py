"""Which tensors show one memory, since which call, and what was written and read of it.

A record is a tensor made by a call that looks like a copy and shares memory all the same. The
tensors made from it by views belong to it.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import NamedTuple

import numpy as np

from tether.analysis.history import History
from tether.facts import OUT, UNKNOWN, Event, Operand, Unseen
from tether.operations.table import operation
from tether.regions import extent
from tether.source.names import paths_to
from tether.store.columns import Numbers


class Link(NamedTuple):
    """How a tensor came to share memory."""

    at: int  # the call that returned it
    source: int  # the tensor it was made from


class Touch(NamedTuple):
    """A write or a read of some memory."""

    at: int
    operand: Operand


class Sharing:
    """The links and writes of a trace, by memory; its reads, when they are asked for."""

    def __init__(self, history: History) -> None:
        self._history = history
        self.links: dict[int, Link] = {}
        self.writes: dict[int, list[Touch]] = defaultdict(list)
        self._reads: dict[int, list[Touch]] = {}
        for at, event in history.events.at(_on_what_they_read(history)):
            self._link(at, event)
        for at, event in history.events.having("writes"):
            for one in () if onto_itself(history, at) else _target(event):
                self.writes[history.flow.memory(one)].append(Touch(at, one))

    def reads_of(self, memory: int) -> list[Touch]:
        """Return what was read of a memory, in order: the operands whose bytes a call looked at."""
        found = self._reads.get(memory)
        if found is None:
            memories, places = self._looked_at
            first, last = np.searchsorted(memories, [memory, memory + 1])
            found = self._reads[memory] = list(self._touches(places[first:last]))
        return found

    def _touches(self, places: Numbers) -> Iterator[Touch]:
        """Yield reads, which are given by their places among all."""
        events, (at, rows) = self._history.events, self._history.events.touched("reads")
        for position, row in zip(at[places].tolist(), rows[places].tolist(), strict=True):
            yield Touch(position, events.operands[row])

    @cached_property
    def _looked_at(self) -> tuple[Numbers, Numbers]:
        """The memories that were read, in order, and beside each the place of a read."""
        at, rows = self._history.events.touched("reads")
        places = np.flatnonzero(_matters(self._history)[at] & ~_overwritten(self._history))
        memories = self._history.memories[rows[places]]
        order = np.argsort(memories, kind="stable")
        return memories[order], places[order]

    def _link(self, at: int, event: Event) -> None:
        """Note which results of a call lie on which of its operands' memory."""
        memory = self._history.flow.memory
        read: dict[int, list[int]] = defaultdict(list)  # a call on lists may read thousands
        for one in event.reads:
            read[memory(one)].append(one.tensor)
        for made in event.results:
            for tensor in read.get(memory(made), ()) if made.storage != UNKNOWN else ():
                self._join(at, event, tensor, made.tensor)

    def _join(self, at: int, event: Event, read: int, made: int) -> None:
        """Note that a call made one tensor on the memory of another that it read."""
        if event.operation == "apply":  # what its forward made came of what it was given
            while made in self.links:
                made = self.links[made].source
        if made == read or made in self.links:
            return
        if any(made == link.source for link in self.chain(read)):
            return
        self.links[made] = Link(at, read)

    @cached_property
    def records(self) -> dict[int, list[int]]:
        """Memory -> the tensors on it that a call which looks like a copy made, in order."""
        found: dict[int, list[int]] = defaultdict(list)
        for tensor, link in self.links.items():
            event = self._history.events[link.at]
            if operation(event.operation).records:
                found[self._history.flow.memory(event.results[0])].append(tensor)
        return found

    def record_of(self, tensor: int) -> int:
        """Return the record that a tensor belongs to, itself or what it is a view of; or -1."""
        first, is_record = self._up(tensor, lambda name: operation(name).records)
        return first if is_record else UNKNOWN

    def family(self, tensor: int) -> int:
        """Return the tensor at the start of the views: the record, or the owner of the memory."""
        return self._up(tensor, lambda name: operation(name).records or name == "Parameter")[0]

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
            if link is None or made(self._history.events[link.at].operation):
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
                waiting += self._made_from.get(one, ())
        return found

    @cached_property
    def _made_from(self) -> dict[int, list[int]]:
        made: dict[int, list[int]] = defaultdict(list)
        for tensor, link in self.links.items():
            made[link.source].append(tensor)
        return made

    def chain(self, tensor: int) -> list[Link]:
        """Return the links from a tensor to the owner of its memory."""
        found: list[Link] = []
        while tensor in self.links and len(found) < 64:
            found.append(self.links[tensor])
            tensor = found[-1].source
        return found


def _on_what_they_read(history: History) -> Numbers:
    """Return the calls that gave a tensor on the memory of one that they read."""
    read_at, read = history.events.touched("reads")
    made_at, made = history.events.touched("results")
    memories = history.memories
    return np.unique(made_at[_among(made_at, memories[made], read_at, memories[read])])


def _target(event: Event) -> tuple[Operand, ...]:
    """Return what the call wrote; arguments that share its version counter moved with it."""
    if event.operation.startswith("_foreach") or not event.reads:
        return event.writes
    if event.operation.endswith("_"):
        first = event.reads[0].tensor
        return tuple(one for one in event.writes if one.tensor == first) or event.writes
    return event.writes


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
    made_at, made = events.touched("results")
    read_at, read = events.touched("reads")
    storages = events.operands.table[:, 2]
    apart = ~_among(made_at, storages[made], read_at, storages[read])
    # A view shows bytes and looks at none.
    shows = (events.column("results") > 0) & (events.column("writes") == 0)
    shows[made_at[apart]] = False
    looks = events.called(lambda name: operation(name).carries or name in ("save", "__repr__"))
    fills = (events.column("flags") & OUT > 0) | events.called("Parameter".__eq__)
    found: Numbers = looks & ((~fills & ~shows) | _overwrites(history))
    return found


def _overwrites(history: History) -> Numbers:
    """Return for each call whether nothing is left of what was in the memory that it wrote."""
    events = history.events
    found: Numbers = events.called(lambda name: operation(name).overwrites)
    return found & (events.column("writes") > 0)


def _overwritten(history: History) -> Numbers:
    """Return for each operand that calls read whether the call wrote over it, unread."""
    at, rows = history.events.touched("reads")
    found = np.zeros(len(rows), bool)
    for position in np.flatnonzero(_overwrites(history)).tolist():
        event = history.events[position]
        written = {one.tensor for one in _target(event)}
        first = int(np.searchsorted(at, position))
        found[first : first + len(event.reads)] = [one.tensor in written for one in event.reads]
    return found


def _among(at: Numbers, numbers: Numbers, others_at: Numbers, others: Numbers) -> Numbers:
    """Return for each number of an event whether it is among other numbers of that event."""
    least = min(int(numbers.min(initial=0)), int(others.min(initial=0)))
    width = max(int(numbers.max(initial=0)), int(others.max(initial=0))) - least + 1
    keys, known = (
        events.astype(np.int64) * width + some - least
        for events, some in ((at, numbers), (others_at, others))
    )
    return np.isin(keys, known)


def fills_anew(event: Event) -> bool:
    """Whether a write counts on nothing that was there: what it wrote to was given to be filled."""
    return bool(event.flags & OUT) or operation(event.operation).overwrites


def unheard(history: History) -> list[Unseen]:
    """Return the writes found by bytes that no recorded call explains."""
    found = history.get(Sharing)
    rest = []
    for fact in history.trace.unseen:
        after, before = history.position(fact.after), history.position(fact.before)
        heard = found.writes.get(history.flow.memory_of(fact.storage), ())
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


def container(names: list[str]) -> str:
    """Return the longest path that all names lie in: ``best`` of ``best['w']``, ``best['b']``."""
    common = ""
    for level in zip(*map(paths_to, names), strict=False):
        if len(set(level)) > 1:
            break
        common = level[0]
    return common
