"""Which tensors show one memory, since which call, and what was written and read of it.

A record is a tensor made by a call that looks like a copy and shares memory all the same. The
tensors made from it by views belong to it.
"""

from __future__ import annotations

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
        """Return what was read of a memory, in order."""
        found = self._reads.get(memory)
        if found is None:
            calls = self._history.on_memory(memory)
            found = [touch for at in calls for touch in self._matters(at, memory)]
            self._reads[memory] = found
        return found

    def _matters(self, at: int, memory: int) -> Iterator[Touch]:
        """Yield the operands on a memory whose bytes a call looked at."""
        event, of = self._history.events[at], self._history.flow.memory
        if operation(event.operation).carries or event.operation in ("save", "__repr__"):
            yield from (Touch(at, one) for one in _matter(event) if of(one) == memory)

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
    least = int(history.memories.min(initial=0))
    width = int(history.memories.max(initial=0)) - least + 1
    keys = read_at.astype(np.int64) * width + history.memories[read] - least
    given = made_at.astype(np.int64) * width + history.memories[made] - least
    return np.unique(made_at[np.isin(given, keys)])


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


def _matter(event: Event) -> tuple[Operand, ...]:
    """Return the operands whose bytes the call looked at."""
    if operation(event.operation).overwrites and event.writes:
        written = {one.tensor for one in _target(event)}
        return tuple(one for one in event.reads if one.tensor not in written)
    if event.flags & OUT or event.operation == "Parameter":
        return ()
    if all(any(one.storage == made.storage for one in event.reads) for made in event.results):
        # A view shows bytes and looks at none.
        return () if event.results and not event.writes else event.reads
    return event.reads


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
    dims = sorted(
        (stride, size)
        for size, stride in zip(operand.shape, operand.strides, strict=False)
        if size > 1
    )
    reach = 0
    for stride, size in dims:
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
