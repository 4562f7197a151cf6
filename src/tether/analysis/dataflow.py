"""Where values flow: from call to call, through memory, and out of the tensors and back.

Nodes are events, by their position in the trace. An operand's value comes from the call that
returned the tensor and, when the memory was written after that through another name, from that
write. Memory is known by storage serial (storages that wrap one array count as one), so a view, a
detached alias or an array lead to the same place.

What carries no values: reading or clearing ``.grad``, the backward pass and the optimizer's step
(through them everything would reach everything), templates (``zeros_like(x)``, the argument of
``type_as``), and writes that initialise a parameter before an optimizer holds it.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from tether.facts import GRAD_ON, OUT, UNKNOWN, Event, Operand, StorageFact, Trace
from tether.operations.table import ALL, operation
from tether.regions import extent, may_overlap
from tether.store.columns import STORAGE, Events, Numbers, StorageLives, columns_of

_REGIONS = 32
"""Regions of one memory whose last writes are kept apart."""


class Edge(NamedTuple):
    """A value that went into an event: from where, and as which operand."""

    source: int  # position of the event it came from; -1: from before the recording
    operand: Operand | None  # None: it came over a bridge, outside the tensors


class Edges:
    """The edges into each event, by its position: numbers, of which edges are made when asked."""

    def __init__(self, events: Events) -> None:
        self._events = events
        self._ends = array("q", [0])
        self._sources = array("i")
        self._places = array("i")  # in what the event read; UNKNOWN: over a bridge

    def add(self, found: Iterable[tuple[int, int]]) -> None:
        """Append the edges of the next event: where from, and as which of its operands."""
        for source, place in found:
            self._sources.append(source)
            self._places.append(place)
        self._ends.append(len(self._sources))

    def sources(self, position: int) -> array[int]:
        """Return where the values that went into an event came from."""
        return self._sources[self._ends[position] : self._ends[position + 1]]

    def __getitem__(self, position: int) -> tuple[Edge, ...]:
        places = self._places[self._ends[position] : self._ends[position + 1]]
        reads = self._events[position].reads
        return tuple(
            Edge(source, reads[place] if place >= 0 else None)
            for source, place in zip(self.sources(position), places, strict=True)
        )


class Dataflow:
    """The edges of a trace; built in one pass when they are first asked for."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._memory: dict[int, int] = {
            serial: -2 - memory for serial, memory in _shared_memories(trace.storages)
        }

    @cached_property
    def edges(self) -> Edges:
        """For each event what went into it."""
        return self._built[0]

    @cached_property
    def carries(self) -> bytearray:
        """For each event whether it is part of the flow at all."""
        return self._built[1]

    @cached_property
    def _built(self) -> tuple[Edges, bytearray]:
        events = columns_of(self._trace.events)
        self._edges, self._carries = Edges(events), bytearray()
        self._producer: dict[int, int] = {}  # tensor -> event that returned or wrote it last
        # memory -> the events that wrote it last, each with the elements it wrote
        self._writers: dict[int, list[tuple[int, Operand]]] = {}
        self._alias: dict[int, int] = {}  # memory -> event that last returned a tensor on it
        self._quiet_spans = _quiet_spans(self._trace)
        self._guarded = _initialised_until(self._trace, self._memory)
        self._bridges: dict[int, list[int]] = {}
        for bridge in self._trace.bridges:
            entry, exit_ = self._trace.position(bridge.entry), self._trace.position(bridge.exit)
            if exit_ >= 0:
                self._bridges.setdefault(entry, []).append(exit_)
        for position, event in enumerate(events):
            self._add(position, event)
        return self._edges, self._carries

    def memory(self, operand: Operand) -> int:
        """Return the number of the memory behind an operand; storages on one array have one."""
        return self.memory_of(operand.storage)

    def memory_of(self, storage: int) -> int:
        """Return the number of the memory behind a storage."""
        return self._memory.get(storage, storage)

    def memories(self, storages: Numbers) -> Numbers:
        """Return the numbers of the memories behind storages."""
        if not self._memory:
            return storages
        known, back = np.unique(storages, return_inverse=True)
        return np.array([self.memory_of(one) for one in known.tolist()], np.int64)[back]

    def _add(self, position: int, event: Event) -> None:
        carries = event.span not in self._quiet_spans and (
            operation(event.operation).carries or position in self._bridges
        )
        self._carries.append(carries)
        if not carries:
            self._edges.add(self._sources(event, range(len(event.reads))))  # asked by why()
            for result in event.results:
                self._producer.pop(result.tensor, None)
            return
        edges = list(self._sources(event, values_read(event), event.results))
        edges += ((exit_, UNKNOWN) for exit_ in self._bridges.get(position, ()))
        if event.operation == "apply":
            # What the forward computed from tensors that were not arguments flows through too.
            inside = (self._producer.get(result.tensor) for result in event.results)
            edges += ((at, UNKNOWN) for at in inside if at is not None)
        self._edges.add(edges)
        self._note_results(position, event)
        for written in event.writes:
            memory = self.memory(written)
            if position < self._guarded.get(memory, -1) and not _tracked(event):
                self._producer.pop(written.tensor, None)
                self._writers.pop(memory, None)
                continue
            self._producer[written.tensor] = position
            self._note_write(memory, position, written)

    def _note_results(self, position: int, event: Event) -> None:
        """Remember which event made the values that each result of a call shows."""
        shown = self._shown_through(event)
        for result in event.results:
            source = shown.get(result.tensor, position)
            self._producer[result.tensor] = source
            self._alias[self.memory(result)] = source
        if event.operation == "data.__set__" and event.reads:
            self._producer[event.reads[0].tensor] = position

    def _shown_through(self, event: Event) -> dict[int, int]:
        """Return result -> the event whose values it shows, where one call views several tensors.

        Each result of ``broadcast_tensors``, ``meshgrid`` and their kin shows one argument, and no
        value of the others: it stands for that argument, and the call for nothing.
        """
        if len(event.results) < 2 or len(event.reads) < 2 or event.writes:
            return {}
        arguments = {self.memory(one): one.tensor for one in event.reads}
        found = {one.tensor: arguments.get(self.memory(one)) for one in event.results}
        if None in found.values() or len(set(found.values())) < 2:
            return {}
        sources = {one: self._producer.get(read or UNKNOWN, UNKNOWN) for one, read in found.items()}
        return {one: source for one, source in sources.items() if source != UNKNOWN}

    def _note_write(self, memory: int, position: int, written: Operand) -> None:
        """Remember a write; it covers earlier ones of the same elements (and read them first)."""
        region = (written.storage, extent(written))
        kept = [
            one
            for one in self._writers.get(memory, ())
            if (one[1].storage, extent(one[1])) != region
        ]
        self._writers[memory] = [*kept[-_REGIONS:], (position, written)]

    def _sources(
        self, event: Event, places: Iterable[int], results: Sequence[Operand] = ()
    ) -> Iterator[tuple[int, int]]:
        for place in places:
            operand = event.reads[place]
            # A view takes on the values of the part that it shows, and of no other.
            shown = [one for one in results if one.storage == operand.storage] or [operand]
            producer = self._producer.get(operand.tensor, UNKNOWN)
            if producer == UNKNOWN and operand.storage != UNKNOWN:
                # A tensor that came about unheard: most likely from the latest one on its memory.
                latest = self._alias.get(self.memory(operand), UNKNOWN)
                producer = latest if self._came_after(operand.tensor, latest) else UNKNOWN
            yield producer, place
            for writer, written in self._writers.get(self.memory(operand), ()):
                if writer > producer and any(may_overlap(one, written) for one in shown):
                    yield writer, place

    def _came_after(self, tensor: int, position: int) -> bool:
        """Whether a tensor was not there yet as a call was made."""
        life = self._trace.tensors.get(tensor)
        return life is None or self._trace.position(life.born) > position

    def behind(self, position: int, most: int = 300_000) -> list[int]:
        """Return the events whose values flow into `position`, in order; at most `most`."""
        seen = {position}
        queue = [position]
        while queue and len(seen) < most:
            for source in self.edges.sources(queue.pop()):
                if source >= 0 and source not in seen:
                    seen.add(source)
                    if self.carries[source]:
                        queue.append(source)
        seen.discard(position)
        return sorted(seen)


def values_read(event: Event) -> Sequence[int]:
    """Return which operands' values matter to the results: no templates, nothing overwritten."""
    row = operation(event.operation)
    if row.template == ALL:
        return ()
    places: Sequence[int] = range(len(event.reads))
    if row.template:
        places = [at for at in places if at not in row.template]
    if event.operation == "data.__set__":
        return places[1:]
    if event.flags & OUT or ((row.overwrites or row.aside) and event.writes):
        written = {operand.tensor for operand in event.writes}
        return [at for at in places if event.reads[at].tensor not in written]
    return places


def _shared_memories(storages: Mapping[int, StorageFact]) -> Iterator[tuple[int, int]]:
    """Yield the storages on memory that others have as well, and the number of that memory."""
    if isinstance(storages, StorageLives):
        table = storages.table
        memories = table[:, STORAGE.index("memory")]
        yield from table[memories >= 0][:, [0, STORAGE.index("memory")]].tolist()
    else:
        yield from ((one, fact.memory) for one, fact in storages.items() if fact.memory >= 0)


def _tracked(event: Event) -> bool:
    return event.grad_mode == GRAD_ON and any(one.requires_grad for one in event.writes)


def _quiet_spans(trace: Trace) -> set[int]:
    """Return the spans of backward passes and optimizer steps, with all that lies within them."""
    quiet: set[int] = set()
    for number, span in enumerate(trace.spans):
        if span.kind in ("backward", "step") or (span.parent in quiet and span.kind != "closure"):
            quiet.add(number)
    return quiet


def _initialised_until(trace: Trace, memories: dict[int, int]) -> dict[int, int]:
    """Return for the memory of each trained tensor when the first optimizer took hold of it."""
    taken: dict[int, int] = {}
    for optimizer in trace.optimizers:
        for tensor in optimizer.tensors:
            taken.setdefault(tensor, trace.position(optimizer.at))
    until: dict[int, int] = {}
    seen = columns_of(trace.events).operands.table[:, 1:3]
    of_these = seen[np.isin(seen[:, 0], list(taken))]
    for tensor, storage in np.unique(of_these, axis=0).tolist():
        memory = memories.get(storage, storage)
        until[memory] = max(taken[tensor], until.get(memory, -1))
    return until
