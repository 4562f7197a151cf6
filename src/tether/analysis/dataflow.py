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

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from tether.analysis.timelines import Timeline, order_of
from tether.facts import GRAD_ON, OUT, UNKNOWN, Event, Operand, StorageFact, Trace
from tether.operations.table import ALL, operation
from tether.regions import extent, may_overlap
from tether.store.columns import STORAGE, columns_of
from tether.store.lives import StorageLives
from tether.store.numbers import Numbers

_REGIONS = 32
"""Regions of one memory whose last writes are kept apart."""


class Edge(NamedTuple):
    """A value that went into an event: from where, and as which operand."""

    source: int  # position of the event it came from; -1: from before the recording
    operand: Operand | None  # None: it came over a bridge, outside the tensors


class _Values:
    """Which event made the values of a tensor, and which wrote a memory, by any time.

    Only logs are made of all events: what is asked of one event is looked up in them.
    """

    def __init__(self, trace: Trace, flow: Dataflow) -> None:
        self._flow = flow
        self._events = events = columns_of(trace.events)
        carries = np.frombuffer(flow.carries, bool)
        made_at, made = events.touched("results")
        put_at = np.flatnonzero(
            carries & events.called("data.__set__".__eq__) & (events.column("reads") > 0)
        )
        wrote_at, wrote = (
            one[carries[events.touched("writes")[0]]] for one in events.touched("writes")
        )
        anew = self._begins_anew(trace, wrote_at, wrote)
        tensor = events.operands.column("tensor")
        # Of one event the results come first, and then what it wrote: the last counts.
        tensors = [tensor[one] for one in (made, events.rows[events.starts[put_at]], wrote)]
        noted = np.concatenate(tensors), np.concatenate([made_at, put_at, wrote_at])
        order = order_of(*noted)
        self._notes = Timeline(*noted, order)
        known = np.concatenate([carries[made_at], np.ones(len(put_at), bool), ~anew])
        self._known = known[order].tobytes()
        memories = flow.memories(events.operands.column("storage"))
        order = order_of(memories[wrote], wrote_at)
        self._writes = Timeline(memories[wrote], wrote_at, order)
        self._written = wrote[order]
        self._anew = anew[order].tobytes()
        self._shown: dict[int, dict[int, int]] = {}
        on_it = carries[made_at]
        returned = memories[made[on_it]], made_at[on_it]
        order = order_of(*returned)
        self._returns = Timeline(*returned, order)
        self._returned = tensor[made[on_it]][order]
        self._note_shown(carries)

    def _begins_anew(self, trace: Trace, at: Numbers, rows: Numbers) -> Numbers:
        """Return for each write whether it only initialises: what was there before goes with it."""
        events, guarded = self._events, _initialised_until(trace, self._flow)
        if not guarded:
            return np.zeros(len(at), bool)
        column = events.operands.column
        memories = self._flow.memories(column("storage")[rows])
        memories, back = np.unique(memories, return_inverse=True)
        until = np.array([guarded.get(one, -1) for one in memories.tolist()], np.int64)[back]
        tracked = np.zeros(len(events), bool)
        tracked[at[(column("kind")[rows] & 2) > 0]] = True
        tracked &= events.column("grad_mode") == GRAD_ON
        found: Numbers = (at < until) & ~tracked[at]
        return found

    def producer(self, tensor: int, position: int) -> int:
        """Return which event, before another one, returned or wrote a tensor last; or -1."""
        at = self._notes.before(tensor, position)
        if at < 0 or not self._known[at]:
            return UNKNOWN
        return self._source(tensor, self._notes.event(at))

    def _source(self, tensor: int, made: int) -> int:
        return self._shown[made].get(tensor, made) if made in self._shown else made

    def returned(self, memory: int, position: int) -> int:
        """Return which event, before another one, last returned a tensor on a memory; or -1."""
        at = self._returns.before(memory, position)
        if at < 0:
            return UNKNOWN
        return self._source(int(self._returned[at]), self._returns.event(at))

    def writers(self, memory: int, position: int, since: int) -> list[tuple[int, Operand]]:
        """Return the last writes to the regions of a memory between two events, in order.

        A write covers earlier ones of the same elements (and read them first).
        """
        found: dict[object, tuple[int, Operand]] = {}
        for at, writer in self._writes.back(memory, position):
            if writer <= since or self._anew[at] or len(found) > _REGIONS:
                break
            written = self._events.operands[int(self._written[at])]
            found.setdefault((written.storage, extent(written)), (writer, written))
        return [*found.values()][::-1]

    def _note_shown(self, carries: Numbers) -> None:
        """Note whose values results show, where one call views several tensors.

        Each result of ``broadcast_tensors``, ``meshgrid`` and their kin shows one argument, and no
        value of the others: it stands for that argument, and the call for nothing.
        """
        events = self._events
        several = (events.column("results") > 1) & (events.column("reads") > 1)
        chosen = carries & several & (events.column("writes") == 0)
        for position, event in events.at(np.flatnonzero(chosen)):
            shown = self._shown_through(position, event)
            if shown:
                self._shown[position] = shown

    def _shown_through(self, position: int, event: Event) -> dict[int, int]:
        """Return result -> the event whose values it shows."""
        memory = self._flow.memory
        arguments = {memory(one): one.tensor for one in event.reads}
        found = {one.tensor: arguments.get(memory(one)) for one in event.results}
        if None in found.values() or len(set(found.values())) < 2:
            return {}
        sources = {one: self.producer(read or UNKNOWN, position) for one, read in found.items()}
        return {one: source for one, source in sources.items() if source != UNKNOWN}


class Edges:
    """The edges into each event, by its position: looked up when they are asked for."""

    def __init__(self, trace: Trace, flow: Dataflow) -> None:
        self._trace = trace
        self._flow = flow
        self._events = columns_of(trace.events)
        self._found: dict[int, tuple[tuple[int, ...], tuple[int, ...]]] = {}

    @cached_property
    def _values(self) -> _Values:
        return _Values(self._trace, self._flow)

    def sources(self, position: int) -> tuple[int, ...]:
        """Return where the values that went into an event came from."""
        return self._into(position)[0]

    def __getitem__(self, position: int) -> tuple[Edge, ...]:
        reads = self._events[position].reads
        return tuple(
            Edge(source, reads[place] if place >= 0 else None)
            for source, place in zip(*self._into(position), strict=True)
        )

    def _into(self, position: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return where the values came from, and as which operands: UNKNOWN is over a bridge."""
        known = self._found.get(position)
        if known is None:
            found = list(self._edges(position, self._events[position]))
            known = tuple(one for one, _ in found), tuple(one for _, one in found)
            self._found[position] = known
        return known

    def _edges(self, position: int, event: Event) -> Iterator[tuple[int, int]]:
        if not self._flow.carries[position]:
            yield from self._sources(position, range(len(event.reads)))  # asked by why()
            return
        yield from self._sources(position, values_read(event), event.results)
        yield from ((exit_, UNKNOWN) for exit_ in self._flow.bridges.get(position, ()))
        if event.operation == "apply":
            # What the forward computed from tensors that were not arguments flows through too.
            inside = (self._values.producer(one.tensor, position) for one in event.results)
            yield from ((at, UNKNOWN) for at in inside if at != UNKNOWN)

    def _sources(
        self, position: int, places: Iterable[int], results: Sequence[Operand] = ()
    ) -> Iterator[tuple[int, int]]:
        reads, values = self._events[position].reads, self._values
        for place in places:
            operand = reads[place]
            memory = self._flow.memory(operand)
            # A view takes on the values of the part that it shows, and of no other.
            shown = [one for one in results if one.storage == operand.storage] or [operand]
            producer = self._producer(operand, shown, position)
            if producer == UNKNOWN and operand.storage != UNKNOWN:
                # A tensor that came about unheard: most likely from the latest one on its memory.
                producer = values.returned(memory, self._first_seen(operand.tensor, position))
            yield producer, place
            for writer, written in values.writers(memory, position, producer):
                if any(may_overlap(one, written) for one in shown):
                    yield writer, place

    def _producer(self, operand: Operand, shown: Sequence[Operand], position: int) -> int:
        """Return which event made a tensor or wrote of it what is shown, among its last writes."""
        before, tensor = position, operand.tensor
        for _ in range(_REGIONS):
            before = self._values.producer(tensor, before)
            event = self._events[before] if before != UNKNOWN else None
            written = [one for one in event.writes if one.tensor == tensor] if event else []
            if not written or any(may_overlap(one, other) for one in shown for other in written):
                break
        return before

    def _first_seen(self, tensor: int, position: int) -> int:
        """Return the event that met a tensor first, or another one that met it before that."""
        life = self._trace.tensors.get(tensor)
        return position if life is None else min(position, self._trace.position(life.born))


class Dataflow:
    """The flow of a trace; nothing is made of all its events before an edge is asked for."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._memory: dict[int, int] = {
            serial: -2 - memory for serial, memory in _shared_memories(trace.storages)
        }

    @cached_property
    def edges(self) -> Edges:
        """For each event what went into it."""
        return Edges(self._trace, self)

    def free_indexes(self) -> None:
        """Free what edges are looked up in; it is made again for the next one."""
        vars(self).pop("edges", None)

    @cached_property
    def carries(self) -> bytes:
        """For each event whether it is part of the flow at all."""
        events = columns_of(self._trace.events)
        carries = events.called(lambda name: operation(name).carries)
        carries[[at for at in self.bridges if 0 <= at < len(events)]] = True
        quiet = np.isin(events.column("span"), list(_quiet_spans(self._trace)))
        return (carries & ~quiet).tobytes()

    @cached_property
    def bridges(self) -> dict[int, list[int]]:
        """The events by which values came in from outside the tensors: by which they had left."""
        found: dict[int, list[int]] = {}
        for bridge in self._trace.bridges:
            entry, exit_ = self._trace.position(bridge.entry), self._trace.position(bridge.exit)
            if exit_ >= 0:
                found.setdefault(entry, []).append(exit_)
        return found

    @cached_property
    def doubtful(self) -> set[tuple[int, int]]:
        """The events by which values left and came in of which the text does not tell for sure."""
        place = self._trace.position
        of = (one for one in self._trace.bridges if one.doubtful)
        return {(place(one.exit), place(one.entry)) for one in of}

    @cached_property
    def likely(self) -> set[tuple[int, int]]:
        """The events by which values left and came in where no fact says that they are the same."""
        place = self._trace.position
        of = (one for one in self._trace.bridges if not one.certain)
        return {(place(one.exit), place(one.entry)) for one in of}

    def known_sources(self, position: int) -> Iterator[int]:
        """Yield where values that went into an event came from, as far as facts say so.

        What was followed through Python, by the text, is left out: it may be another value.
        """
        for edge in self.edges[position]:
            if edge.operand is not None or (edge.source, position) not in self.likely:
                yield edge.source

    def is_known_behind(self, position: int, source: int) -> bool:
        """Whether facts say that what an event gave, or some of it, went into a later one."""
        waiting, seen = [position], {position}
        while waiting:
            at = waiting.pop()
            if at == source:
                return True
            # Nothing flows back in time: what came before the source is no way to it.
            for one in self.known_sources(at) if self.carries[at] else ():
                if one >= source and one not in seen:
                    seen.add(one)
                    waiting.append(one)
        return False

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
        shared, memories = self._shared
        at = np.minimum(np.searchsorted(shared, storages), len(shared) - 1)
        return np.where(shared[at] == storages, memories[at].astype(storages.dtype), storages)

    @cached_property
    def _shared(self) -> tuple[Numbers, Numbers]:
        """The storages on memory that others have as well, in order, and its numbers."""
        found = np.array(sorted(self._memory.items()), np.int64)
        return found[:, 0].copy(), found[:, 1].copy()

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


def _quiet_spans(trace: Trace) -> set[int]:
    """Return the spans of backward passes and optimizer steps, with all that lies within them."""
    quiet: set[int] = set()
    for number, span in enumerate(trace.spans):
        if span.kind in ("backward", "step") or (span.parent in quiet and span.kind != "closure"):
            quiet.add(number)
    return quiet


def _initialised_until(trace: Trace, flow: Dataflow) -> dict[int, int]:
    """Return for the memory of each trained tensor when the first optimizer took hold of it."""
    taken: dict[int, int] = {}
    for optimizer in trace.optimizers:
        for tensor in optimizer.tensors:
            taken.setdefault(tensor, trace.position(optimizer.at))
    until: dict[int, int] = {}
    column = columns_of(trace.events).operands.column
    held = np.isin(column("tensor"), list(taken))
    of_these = np.stack([column(one)[held] for one in ("tensor", "storage")], axis=1)
    for tensor, storage in np.unique(of_these, axis=0).tolist():
        memory = flow.memory_of(storage)
        until[memory] = max(taken[tensor], until.get(memory, -1))
    return until
