"""Several recordings as one: the ranks of a distributed run, or parts of one that was restarted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Literal

from tether.facts import Event, Operand, Site, Trace


def merge(traces: Sequence[Trace]) -> Trace:
    """Return one trace of several recordings (one per rank of a distributed run, in rank order).

    They are laid end to end: the ranks' clocks cannot be compared, and no fact of one rank speaks
    of another's tensors. Serial numbers, threads and positions are moved so that none collide;
    equal sites become one. Program and versions are the first's, the outcome the worst.
    """
    if len(traces) == 1:
        return traces[0]
    merged = Trace(dropped=sum(trace.dropped for trace in traces))
    sites: dict[Site, int] = {}
    for trace in traces:
        _Move(trace, merged, sites).all()
    merged.sites = list(sites)
    if traces:
        first = traces[0]
        merged.program, merged.folder = list(first.program), first.folder
        merged.torch, merged.python = first.torch, first.python
        worst = ("raised", "unfinished", "interrupted", "finished")
        merged.outcome = min((trace.outcome for trace in traces), key=worst.index)
    merged.check()
    return merged


class _Move:
    """Moves the facts of one trace behind those of `merged`."""

    def __init__(self, trace: Trace, merged: Trace, sites: dict[Site, int]) -> None:
        self.trace, self.merged = trace, merged
        self.sites = [sites.setdefault(site, len(sites)) for site in trace.sites]
        self.start = merged.dropped + len(merged.events) - trace.dropped
        self.first = merged.dropped + len(merged.events)  # nothing of this trace is earlier
        self.spans, self.optimizers = len(merged.spans), len(merged.optimizers)
        self.threads = 1 + max((event.thread for event in merged.events), default=-1)
        self.tensors = _free_serial(merged.tensors, merged, "tensor")
        self.storages = _free_serial(merged.storages, merged, "storage")
        self.seen: dict[Operand, Operand] = {}

    def site(self, number: int) -> int:
        return self.sites[number] if number >= 0 else number

    def at(self, position: int) -> int:
        return position if position < 0 else max(position + self.start, self.first)

    def span(self, number: int) -> int:
        return number if number < 0 else number + self.spans

    def tensor(self, serial: int) -> int:
        return serial if serial < 0 else serial + self.tensors

    def storage(self, serial: int) -> int:
        return serial if serial < 0 else serial + self.storages

    def operands(self, operands: tuple[Operand, ...]) -> tuple[Operand, ...]:
        return tuple(self.operand(operand) for operand in operands)

    def operand(self, operand: Operand) -> Operand:
        moved = self.seen.get(operand)
        if moved is None:
            moved = self.seen[operand] = operand._replace(
                tensor=self.tensor(operand.tensor), storage=self.storage(operand.storage)
            )
        return moved

    def event(self, event: Event) -> Event:
        return event._replace(
            site=self.site(event.site),
            inner=self.site(event.inner),
            span=self.span(event.span),
            reads=self.operands(event.reads),
            results=self.operands(event.results),
            writes=self.operands(event.writes),
            thread=event.thread + self.threads,
        )

    def all(self) -> None:
        """Move every table."""
        trace, merged = self.trace, self.merged
        site, at = self.site, self.at
        moved = [self.event(event) for event in trace.events]
        merged.spans += (
            span._replace(
                site=site(span.site),
                first=at(span.first),
                last=at(span.last),
                parent=self.span(span.parent),
                event=at(span.event),
            )
            for span in trace.spans
        )
        for serial, life in trace.tensors.items():
            merged.tensors[self.tensor(serial)] = life._replace(
                born=at(life.born), died=at(life.died)
            )
        for serial, memory in trace.storages.items():
            merged.storages[self.storage(serial)] = memory._replace(
                born=at(memory.born), freed=at(memory.freed)
            )
        merged.names += (
            name._replace(tensor=self.tensor(name.tensor), at=at(name.at)) for name in trace.names
        )
        merged.gradients += (
            moment._replace(
                at=at(moment.at),
                site=site(moment.site),
                optimizer=moment.optimizer + self.optimizers * (moment.optimizer >= 0),
                status={self.tensor(serial): what for serial, what in moment.status.items()},
            )
            for moment in trace.gradients
        )
        merged.optimizers += (
            one._replace(
                site=site(one.site), at=at(one.at), tensors=tuple(map(self.tensor, one.tensors))
            )
            for one in trace.optimizers
        )
        merged.bridges += (
            bridge._replace(exit=at(bridge.exit), entry=at(bridge.entry))
            for bridge in trace.bridges
        )
        merged.arrays += (
            array._replace(event=at(array.event), released=at(array.released))
            for array in trace.arrays
        )
        merged.unseen += (
            write._replace(
                storage=self.storage(write.storage),
                after=at(write.after),
                before=at(write.before),
                event=at(write.event),
                site=site(write.site),
            )
            for write in trace.unseen
        )
        merged.raised += (
            error._replace(at=at(error.at), site=site(error.site)) for error in trace.raised
        )
        merged.gaps += (gap._replace(at=at(gap.at), site=site(gap.site)) for gap in trace.gaps)
        merged.attached += (
            fact._replace(
                tensor=self.tensor(fact.tensor),
                storage=self.storage(fact.storage),
                of=self.tensor(fact.of),
                at=at(fact.at),
                site=site(fact.site),
            )
            for fact in trace.attached
        )
        merged.allocators += trace.allocators
        for file, text in trace.sources.items():
            merged.sources.setdefault(file, text)
        merged.events += moved


def _free_serial(known: Iterable[int], merged: Trace, kind: Literal["tensor", "storage"]) -> int:
    """Return the first serial number of a tensor or storage that `merged` does not speak of."""
    serial_of = attrgetter(kind)
    largest = max(known, default=-1)
    for event in merged.events:
        for operand in (*event.reads, *event.results, *event.writes):
            largest = max(largest, serial_of(operand))
    if kind == "storage":
        others = [write.storage for write in merged.unseen]
    else:
        others = [name.tensor for name in merged.names]
        others += (serial for one in merged.optimizers for serial in one.tensors)
        others += (serial for moment in merged.gradients for serial in moment.status)
    return 1 + max(largest, *others) if others else 1 + largest
