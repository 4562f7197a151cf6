"""Every copy and conversion met, by line: what it did to both ties, how often, how many bytes."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np

from tether.analysis.dataflow import values_read
from tether.facts import Event, Operand, Site, Trace
from tether.operations.table import operation
from tether.regions import element_size
from tether.store.columns import Events, columns_of
from tether.store.numbers import Numbers

Memory = Literal["owns", "shares", "varies"]
Gradient = Literal["keeps", "cuts", "none"]
"""What became of a gradient: "none" where nothing that was copied had one to keep or to cut."""

Needed = Literal["yes", "no", "unknown"]


@dataclass
class Copy:
    """What one operation at one site did, over all its runs (with this effect on gradients)."""

    site: Site
    operation: str
    memory: Memory
    gradient: Gradient
    count: int = 0
    bytes: int = 0  # copied, in all runs; 0 where the memory is shared
    needed: Needed = "unknown"
    library: bool = False  # the call stands in a library that this line called
    reason: str = ""  # why it was needed, or why that is not known
    ranks: str = ""  # the processes that made it, where not all did


class _Key(NamedTuple):
    site: int
    operation: str
    gradient: Gradient
    library: bool


@dataclass
class _Sum:
    count: int = 0
    bytes: int = 0
    memories: set[Memory] = field(default_factory=set)

    def add(self, other: _Sum) -> None:
        """Take in what another sum counted."""
        self.count += other.count
        self.bytes += other.bytes
        self.memories |= other.memories


_Answers = Mapping[tuple[int, str], tuple[Needed, str]]
"""Whether a copy was needed, and why, by the number of its line and its operation."""


def copies(trace: Trace, needed: _Answers | None = None) -> list[Copy]:
    """Return a row for each site, operation and effect on gradients, in the order of the source.

    `needed` says by (number of the site, operation) whether a copy was needed, and why. A call that
    is no way of copying, as a join, has a row where all that it made was there already for nothing.
    """
    answers = needed or {}
    sums = _summed(trace, answers)
    _join_without_graph(sums)
    made = [_row(trace, answers, key, total) for key, total in sums.items()]
    made.sort(key=lambda row: (row.site.file, row.site.line, row.site.column, row.library))
    return made


def _summed(trace: Trace, needed: _Answers) -> dict[_Key, _Sum]:
    """Return what each line, operation and effect on gradients did, in the order of its calls."""
    events = columns_of(trace.events)
    since = _first_seen(events)
    on_others = {trace.position(one.event) for one in trace.on_others}
    compiled = {number for number, one in enumerate(trace.spans) if one.kind == "compiled"}
    sums: dict[_Key, _Sum] = defaultdict(_Sum)
    for at, event in _copying(events, needed):
        if event.site < 0 or event.span in compiled:  # a backend may make it or not
            continue
        if at in on_others:
            memory: Memory = "shares"
        else:
            before = (*event.reads, *event.results)
            known = {int(one.storage) for one in before if since[one.storage + 1] < at}
            memory = _memory(event, known)
        library = event.inner not in (-1, event.site)
        total = sums[_Key(event.site, event.operation, _gradient(event), library)]
        total.add(_Sum(1, _moved(event) if memory == "owns" else 0, {memory}))
    return sums


def _row(trace: Trace, needed: _Answers, key: _Key, total: _Sum) -> Copy:
    return Copy(
        trace.sites[key.site],
        key.operation,
        next(iter(total.memories)) if len(total.memories) == 1 else "varies",
        key.gradient,
        total.count,
        total.bytes,
        *_need(needed, key, total),
    )


def _copying(events: Events, needed: _Answers) -> Iterator[tuple[int, Event]]:
    """Yield the calls that copy or convert, and those of a line that did so for nothing."""
    besides = {key for key, answer in needed.items() if answer[0] == "no"}
    names = {operation for _, operation in besides}
    for at, event in events.where(lambda name: _copies(name) or name in names):
        if _copies(event.operation) or (event.site, event.operation) in besides:
            yield at, event


def _copies(name: str) -> bool:
    """Whether a call does nothing but copy or convert."""
    row = operation(name)
    return bool(row.converts or row.repeats)


def _join_without_graph(sums: dict[_Key, _Sum]) -> None:
    """Make one row of a line that keeps a gradient, and of its runs where there was none."""
    for key in [one for one in sums if one.gradient == "none"]:
        kept = sums.get(key._replace(gradient="keeps"))
        if kept is not None:
            kept.add(sums.pop(key))


def _first_seen(events: Events) -> Numbers:
    """Return for each storage, from -1 on, the first call that was given it or returned it."""
    storages = events.operands.column("storage")
    found = np.full(int(storages.max(initial=0)) + 2, len(events), np.int32)
    for at, rows in (events.touched("reads"), events.touched("results")):
        first = np.full_like(found, len(events))
        first[storages[rows[::-1]] + 1] = at[::-1]
        np.minimum(found, first, out=found)
    return found


def _need(needed: _Answers, key: _Key, total: _Sum) -> tuple[Needed, bool, str]:
    """Return the last fields of a row; what shares memory is no copy that could be needed."""
    if total.memories == {"shares"}:
        return "unknown", key.library, ""
    answer, reason = needed.get((key.site, key.operation), ("unknown", ""))
    return answer, key.library, reason


def _memory(event: Event, known: set[int]) -> Memory:
    """Say whether what came out uses memory of a tensor that was there before the call."""
    row = operation(event.operation)
    if row.memory:
        return row.memory
    before = {operand.storage for operand in event.reads} | (known if row.enters else set())
    before.discard(-1)
    shared = [operand.storage in before for operand in event.results]
    if not shared:
        return "varies"
    return "shares" if all(shared) else "varies" if any(shared) else "owns"


def _gradient(event: Event) -> Gradient:
    """Say whether a gradient could flow from the result back to what was read."""
    given = [event.reads[at] for at in values_read(event) if event.reads[at].requires_grad]
    if not given:
        return "none"
    row = operation(event.operation)
    out = event.writes if event.operation == "copy_" else event.results
    tracked = [one for one in out if one.requires_grad]
    same = {one.tensor for one in given}
    kept = any(not one.leaf or one.tensor in same for one in tracked)
    return "keeps" if kept and not (row.cuts or row.exports) else "cuts"


def _moved(event: Event) -> int:
    """Return the bytes that the call made or filled."""
    made = event.results or event.writes
    return sum(nbytes(operand) for operand in (made or event.reads))


def nbytes(operand: Operand) -> int:
    """Return the bytes of a tensor's elements (each once, whatever its strides)."""
    return math.prod(operand.shape) * element_size(operand.dtype)
