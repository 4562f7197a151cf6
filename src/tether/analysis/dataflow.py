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

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tether.facts import GRAD_ON, OUT, UNKNOWN, Event, Operand, Trace
from tether.operations.table import ALL, operation
from tether.regions import extent, may_overlap

_REGIONS = 32
"""Regions of one memory whose last writes are kept apart."""


class Edge(NamedTuple):
    """A value that went into an event: from where, and as which operand."""

    source: int  # position of the event it came from; -1: from before the recording
    operand: Operand | None  # None: it came over a bridge, outside the tensors


class Dataflow:
    """The edges of a trace; built in one pass."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self.edges: list[tuple[Edge, ...]] = []
        self.carries: list[bool] = []  # whether the event is part of the flow at all
        self._memory: dict[int, int] = {
            serial: -2 - fact.memory for serial, fact in trace.storages.items() if fact.memory >= 0
        }
        self._producer: dict[int, int] = {}  # tensor -> event that returned or wrote it last
        # memory -> the events that wrote it last, each with the elements it wrote
        self._writers: dict[int, list[tuple[int, Operand]]] = {}
        self._alias: dict[int, int] = {}  # memory -> event that last returned a tensor on it
        self._quiet_spans = _quiet_spans(trace)
        self._guarded = _initialised_until(trace, self._memory)
        self._bridges: dict[int, list[int]] = {}
        for bridge in trace.bridges:
            entry, exit_ = trace.position(bridge.entry), trace.position(bridge.exit)
            if exit_ >= 0:
                self._bridges.setdefault(entry, []).append(exit_)
        for position, event in enumerate(trace.events):
            self._add(position, event)

    def memory(self, operand: Operand) -> int:
        """Return the number of the memory behind an operand; storages on one array have one."""
        return self.memory_of(operand.storage)

    def memory_of(self, storage: int) -> int:
        """Return the number of the memory behind a storage."""
        return self._memory.get(storage, storage)

    def _add(self, position: int, event: Event) -> None:
        if event.span in self._quiet_spans or (
            not operation(event.operation).carries and position not in self._bridges
        ):
            self.edges.append(tuple(self._sources(event.reads)))  # asked by why(), not by flow
            self.carries.append(False)
            for result in event.results:
                self._producer.pop(result.tensor, None)
            return
        edges = list(self._sources(_values_read(event), event.results))
        edges += (Edge(exit_, None) for exit_ in self._bridges.get(position, ()))
        if event.operation == "apply":
            # What the forward computed from tensors that were not arguments flows through too.
            for result in event.results:
                inner = self._producer.get(result.tensor)
                if inner is not None:
                    edges.append(Edge(inner, None))
        self.edges.append(tuple(edges))
        self.carries.append(True)
        shown = self._shown_through(event)
        for result in event.results:
            source = shown.get(result.tensor, position)
            self._producer[result.tensor] = source
            self._alias[self.memory(result)] = source
        if event.operation == "data.__set__" and event.reads:
            self._producer[event.reads[0].tensor] = position
        for written in event.writes:
            memory = self.memory(written)
            if position < self._guarded.get(memory, -1) and not _tracked(event):
                self._producer.pop(written.tensor, None)
                self._writers.pop(memory, None)
                continue
            self._producer[written.tensor] = position
            self._note_write(memory, position, written)

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
        self, operands: Sequence[Operand], results: Sequence[Operand] = ()
    ) -> Iterator[Edge]:
        for operand in operands:
            # A view takes on the values of the part that it shows, and of no other.
            shown = [one for one in results if one.storage == operand.storage] or [operand]
            producer = self._producer.get(operand.tensor, UNKNOWN)
            if producer == UNKNOWN and operand.storage != UNKNOWN:
                # A tensor that came about unheard: most likely from the latest one on its memory.
                producer = self._alias.get(self.memory(operand), UNKNOWN)
            yield Edge(producer, operand)
            for writer, written in self._writers.get(self.memory(operand), ()):
                if writer > producer and any(may_overlap(one, written) for one in shown):
                    yield Edge(writer, operand)

    def behind(self, position: int, most: int = 300_000) -> list[int]:
        """Return the events whose values flow into `position`, in order; at most `most`."""
        seen = {position}
        queue = [position]
        while queue and len(seen) < most:
            for edge in self.edges[queue.pop()]:
                if edge.source >= 0 and edge.source not in seen:
                    seen.add(edge.source)
                    if self.carries[edge.source]:
                        queue.append(edge.source)
        seen.discard(position)
        return sorted(seen)


def _values_read(event: Event) -> tuple[Operand, ...]:
    """Return the operands whose values matter to the results: no templates, nothing overwritten."""
    row = operation(event.operation)
    if row.template == ALL:
        return ()
    reads = tuple(one for at, one in enumerate(event.reads) if at not in row.template)
    if event.operation == "data.__set__":
        return reads[1:]
    if event.flags & OUT or (row.overwrites and event.writes):
        written = {operand.tensor for operand in event.writes}
        return tuple(operand for operand in reads if operand.tensor not in written)
    return reads


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
    for event in trace.events:
        for operand in (*event.reads, *event.results):
            at = taken.get(operand.tensor)
            if at is not None:
                memory = memories.get(operand.storage, operand.storage)
                until[memory] = max(at, until.get(memory, -1))
    return until
