"""Several recordings as one: the ranks of a distributed run, or parts of one that was restarted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tether.facts import (
    UNKNOWN,
    Event,
    EventId,
    MemoryId,
    ModuleId,
    Moment,
    Operand,
    Site,
    SiteId,
    StorageId,
    TensorId,
    ThreadId,
    Trace,
)
from tether.store.columns import Events, Names, Operands, columns_of
from tether.store.fields import PLACES, Change, check, moved, numbered_fields, numbers_in
from tether.store.layout import TABLES
from tether.store.numbers import Numbers

_SERIALS = (TensorId, StorageId, MemoryId, ThreadId, ModuleId)  # minted, and nobody else's

_WORST_FIRST = ("raised", "unfinished", "interrupted", "finished")


def merge(traces: Sequence[Trace]) -> Trace:
    """Return one trace of several recordings (one per rank of a distributed run, in rank order).

    They are laid end to end, each with the time of the events that it has forgotten: the ranks'
    clocks cannot be compared, and no fact of one rank speaks of another's tensors. Serial numbers,
    threads and positions are moved so that none collide; equal sites become one. Program and
    versions are the first's, the outcome the worst.
    """
    return traces[0] if len(traces) == 1 else laid_out(traces)[0]


def laid_out(traces: Sequence[Trace]) -> tuple[Trace, list[int]]:
    """Return one trace of several recordings, and what was added to the tensors of each.

    What lived when a process ended went with it: only the last one's is alive at the end.
    """
    merged = Trace()
    events, sites, added, start = _Joined(), dict[Site, int](), list[int](), 0
    free: dict[Any, int] = dict.fromkeys(_SERIALS, 0)
    for number, trace in enumerate(traces):
        columns = columns_of(trace.events)
        added.append(free[TensorId])
        changes = _changes(trace, merged, start, sites, free)
        _forgotten(trace, merged, start, events.count)
        last = Moment(UNKNOWN) if number == len(traces) - 1 else changes[Moment](trace.ended)
        for name in TABLES:
            if name != "sites":
                facts = [moved(fact, changes) for fact in getattr(trace, name)]
                getattr(merged, name).extend(facts)
        merged.tensors = {**merged.tensors, **_lives(trace.tensors, TensorId, changes, last)}
        merged.storages = {**merged.storages, **_lives(trace.storages, StorageId, changes, last)}
        for file, text in trace.sources.items():
            merged.sources.setdefault(file, text)
        events.add(columns, changes)
        start += trace.ended
        for kind, largest in _largest(trace, columns).items():
            free[kind] += largest + 1
    merged.events, merged.sites = events.whole(), list(sites)
    if traces:
        first = traces[0]
        merged.program, merged.folder = list(first.program), first.folder
        merged.torch = first.torch
        merged.outcome = min((trace.outcome for trace in traces), key=_WORST_FIRST.index)
    check(merged)
    return merged, added


def _changes(
    trace: Trace, merged: Trace, start: int, sites: dict[Site, int], free: Mapping[Any, int]
) -> dict[Any, Change]:
    """Return what becomes of each kind of number of a trace that begins at `start` in `merged`."""
    numbers = [sites.setdefault(site, len(sites)) for site in trace.sites]

    def later(offset: int) -> Change:
        return lambda number: number if number < 0 else number + offset

    return {
        SiteId: lambda number: numbers[number] if number >= 0 else number,
        EventId: later(start),
        Moment: later(start),
        **{kind: later(len(getattr(merged, name))) for kind, name in PLACES.items()},
        **{kind: later(offset) for kind, offset in free.items()},
    }


def _forgotten(trace: Trace, merged: Trace, start: int, before: int) -> None:
    """Take over which events of a trace are there, which begins at `start` in `merged`.

    Where it has forgotten some, all that are there from before these (`before` of other traces,
    and those that it has kept) are kept ones.
    """
    if trace.dropped:
        merged.kept += [merged.event_id(at) for at in range(len(merged.kept), before)]
        merged.kept += [EventId(start + at) for at in trace.kept]
        merged.dropped = Moment(start + trace.dropped)


def _lives(
    lives: Mapping[Any, Any], kind: Any, changes: Mapping[Any, Change], last: int
) -> dict[Any, Any]:
    """Return lives with their numbers changed; those that were not over were so at `last`."""
    end = "died" if kind is TensorId else "freed"

    def ended(fact: Any) -> Any:
        return fact._replace(**{end: last}) if getattr(fact, end) == UNKNOWN else fact

    return {changes[kind](serial): ended(moved(fact, changes)) for serial, fact in lives.items()}


def _largest(trace: Trace, events: Events) -> dict[Any, int]:
    """Return the largest number of each kind of serial that a trace speaks of."""
    found: dict[Any, list[Any]] = {
        **{kind: [] for kind in _SERIALS},
        TensorId: [events.operands.column("tensor"), list(trace.tensors)],
        StorageId: [events.operands.column("storage"), list(trace.storages)],
        MemoryId: [[one.memory for one in trace.storages.values()]],
        ThreadId: [events.column("thread")],
    }
    for name in TABLES:
        for fact in getattr(trace, name):
            for kind, numbers in found.items():
                numbers.append(numbers_in(fact, kind))
    return {kind: max(map(_most, numbers)) for kind, numbers in found.items()}


def _most(numbers: Any) -> int:
    return int(max(numbers)) if len(numbers) else -1


class _Joined:
    """The events of several recordings, one after the other."""

    def __init__(self) -> None:
        self.count = 0
        self._names = Names()
        self._strings = {"": 0}
        self._words: dict[str, int] = {}
        self._tuples: dict[tuple[int, ...], int] = {}
        self._heads: list[list[Numbers]] = []
        self._rows: list[Numbers] = []
        self._tables: list[list[Numbers]] = []
        self._operands = 0

    def add(self, events: Events, changes: Mapping[Any, Change]) -> None:
        """Append the events of one recording, its numbers changed."""
        heads = dict(events.heads.by_name)
        strings = _renumbered(events.names.strings, self._strings)
        texts = dict.fromkeys(("operation", "detail"), strings.__getitem__)
        for name, change in (texts | _changes_of(Event, changes)).items():
            heads[name] = _mapped(heads[name], change)
        operands = dict(events.operands.columns.by_name)
        words = _renumbered(events.names.words, self._words)
        tuples = _renumbered(events.names.tuples, self._tuples)
        dtypes: dict[str, Change] = {"kind": lambda kind: words[kind >> 2] << 2 | kind & 3}
        layouts = dict.fromkeys(("shape", "strides"), tuples.__getitem__)
        for name, change in (dtypes | layouts | _changes_of(Operand, changes)).items():
            operands[name] = _mapped(operands[name], change)
        self._heads.append(list(heads.values()))
        self._rows.append(events.rows + self._operands)
        self._tables.append(list(operands.values()))
        self._operands += len(events.operands)
        self.count += len(events)

    def whole(self) -> Events:
        """Return all of them."""
        names = self._names
        names.strings = {number: text for text, number in self._strings.items()}
        names.words = {number: text for text, number in self._words.items()}
        names.tuples = {number: value for value, number in self._tuples.items()}
        if not self._heads:
            return columns_of([])
        operands = Operands([np.arange(self._operands), *_below(self._tables)], names)
        return Events(_below(self._heads), np.concatenate(self._rows), operands, names)


def _changes_of(kind: Any, changes: Mapping[Any, Change]) -> dict[str, Change]:
    """Return what becomes of the numbers in the columns that stand for a class of facts."""
    fields = numbered_fields(kind)
    return {one.name: changes[one.number] for one in fields if one.fact is None}


def _below(tables: list[list[Numbers]]) -> list[Numbers]:
    """Return the columns of several tables, one table below the other."""
    return [np.concatenate(columns) for columns in zip(*tables, strict=True)]


def _mapped(numbers: Numbers, change: Change) -> Numbers:
    """Return numbers with each changed; every distinct one is asked for once."""
    known, back = np.unique(numbers, return_inverse=True)
    return np.array([change(number) for number in known.tolist()], np.int64)[back]


def _renumbered(names: Mapping[int, Any], known: dict[Any, int]) -> dict[int, int]:
    """Return what each number becomes where the same thing has one number only."""
    return {number: known.setdefault(value, len(known)) for number, value in names.items()}
