"""The loops that compute row by row what one call gives for all rows: part of `slow-copy`.

Seen from the memory: at every turn the same calls are given the next part of the same tensors, and
nothing of an earlier turn; what comes of each is put beside the others, or read as a number.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

import numpy as np

from tether.analysis.copies.already_there import nbytes
from tether.facts import UNKNOWN, Event, Operand
from tether.operations.table import operation
from tether.source.loops import takes_only
from tether.source.syntax import source_of
from tether.verdicts.slow_copy.on_device import COUNT, LARGE, SMALL, Lines, Slow

CALLS = 1_000
"""Calls, of some microseconds each, from which a loop takes milliseconds longer than one call."""


_PUT_BY_INDEX = (
    "an assignment of its own is made for each of them",
    (
        "Make one assignment for all: by a slice, there[:n] = parts[:n]; or, if they say at which"
        " place something is put, by an index of all of them, there[torch.arange(n), parts] = ...."
    ),
)
"""What is said of whole numbers: they may be what is written, or say where."""


class _Turns(NamedTuple):
    """The same calls made once for each row."""

    first: int  # position of the first call of the first turn
    calls: int  # of one turn
    turns: int
    ends: Literal["joined", "written", "read"]  # what becomes of each turn's result


class _Rows(NamedTuple):
    """A tensor of which each turn was given the next part."""

    at: int  # the event that took the first part
    source: Operand
    part: Operand


def by_rows(lines: Lines) -> Iterator[Slow]:
    """Give each of the user's loops that joins what one call could have given."""
    for (_, name), places in lines.by_line.items():
        loops = _loops(lines, name, places)
        if sum(one.turns * one.calls for one in loops) >= CALLS:
            slow = _slow(lines, name, loops)
            # A join of parts that nothing needs together is told as a copy.
            if slow is not None and not (operation(name).joins and lines.needless(places[0])):
                yield slow


def _loops(lines: Lines, name: str, places: Sequence[int]) -> list[_Turns]:
    """Return the loops whose turns end at a line, by what it does."""
    row = operation(name)
    if row.joins:
        return [found for at in places if (found := _joined(lines, at)) is not None]
    if row.places and row.writes:
        return list(_ended(lines, places, "written"))
    return list(_ended(lines, places, "read")) if row.leaves in ("number", "truth") else []


def _joined(lines: Lines, at: int) -> _Turns | None:
    """Return the turns whose results a call joined."""
    history, event = lines.history, lines.events[at]
    if len(event.reads) < COUNT:
        return None
    return _turns([history.made_at(one.tensor) for one in event.reads], "joined")


def _ended(
    lines: Lines, places: Sequence[int], how: Literal["written", "read"]
) -> Iterator[_Turns]:
    """Yield the turns at whose end a line wrote to a part of another tensor, or read a number."""
    ends: list[int] = []
    given: tuple[int, int] | None = None
    for at in (*places, UNKNOWN):
        now = _between(lines, at) if how == "written" else given
        if now != given or (len(ends) > 1 and at - ends[-1] != ends[1] - ends[0]):
            found = _turns(ends, how) if len(ends) >= COUNT else None
            if found is not None:
                yield found
            ends, given = [], now
        ends.append(at)


def _between(lines: Lines, at: int) -> tuple[int, int] | None:
    """Return the tensor that a write was to, and the one that its values are a part of, if any."""
    reads = lines.events[at].reads if at >= 0 else ()
    if not reads:
        return None
    made = lines.history.made_at(reads[-1].tensor)
    taken = made >= 0 and len(reads) > 1 and is_choice(lines.events[made])
    return reads[0].tensor, lines.events[made].reads[0].tensor if taken else UNKNOWN


def _turns(ends: Sequence[int], how: Literal["joined", "written", "read"]) -> _Turns | None:
    """Return the turns that end at some events, where all have as many calls."""
    steps = np.diff(ends)
    calls = int(steps[0]) if len(steps) else 0
    first = ends[0] - calls + 1 if ends else UNKNOWN
    if calls < 1 or first < 0 or bool((steps != calls).any()):
        return None
    return _Turns(first, calls, len(ends), how)


def _slow(lines: Lines, name: str, loops: Sequence[_Turns]) -> Slow | None:
    """Say what all the loops of a line do, where each could be one call."""
    taken = [_rows(lines, one) for one in loops]
    if not all(taken):
        return None
    loop, rows = max(zip(loops, taken, strict=True), key=lambda one: one[0].turns)
    row = rows[0]
    site = lines.history.site_of(lines.events[row.at])
    source = source_of(site.file, lines.history.trace.sources.get(site.file, ""))
    # Of numbers that are computed of single elements, `by_numbers` tells.
    single = loop.ends == "read" and all(math.prod(one.part.shape) == 1 for one in rows)
    if single or not takes_only(source, site, len(rows)):
        return None
    total = sum(one.turns for one in loops)
    sources = {one[0].source.storage: one[0].source for one in taken}
    others = tuple(one for one in sources.values() if one.storage != row.source.storage)
    parts = f"their {total:,} parts" if others else f"its {loop.turns:,} parts"
    what = _told(lines, loop, parts, name, row.part)
    return None if what is None else Slow(
        row.at, row.source, total, 0, None, "read", *what, others=others
    )  # fmt: skip


def _told(
    lines: Lines, loop: _Turns, parts: str, name: str, part: Operand
) -> tuple[str, str] | None:
    """Say what a loop does and what to do instead; None where it only reads, which others tell."""
    turn = [lines.events[loop.first + n] for n in range(loop.calls)]
    computing = [event for event in turn if not is_choice(event)]
    computed = len(computing) - (loop.ends != "joined")
    made = loop.calls - (loop.ends != "joined")
    joined = "an assignment puts" if loop.ends == "written" else f"{name} puts"
    calls = "1 call is" if made == 1 else f"{made} calls are"
    what = f"{calls} made for each of {parts}, and "
    fix = f"Make each call once for the whole tensor{_along(computing)}"
    if loop.ends == "read":
        what += "a number is read of what comes of them"
        return (what, f"{fix}, and read all numbers at once, .tolist().") if computed else None
    if computed:
        return f"{what}{joined} together what comes of them", f"{fix}."
    if part.whole and loop.ends == "written":
        return _PUT_BY_INDEX
    what = f"{joined} {parts} elsewhere one by one"
    return what, "Put them there all at once, by a slice: there[:n] = parts[:n]."


def _along(computing: Sequence[Event]) -> str:
    """Say how a call that leaves out dimensions is made of many rows."""
    fewer = [
        operation(event.operation).adds
        for event in computing
        if event.reads and event.results
        if len(event.results[0].shape) < len(event.reads[0].shape)
    ]
    if not fewer:
        return ""
    return f", along a dimension{' (keepdim=True keeps it)' if any(fewer) else ''}"


def is_choice(event: Event) -> bool:
    """Whether a call only shows a part of what it was given."""
    return bool(event.reads and event.results) and (
        event.results[0].storage == event.reads[0].storage
    )


def _rows(lines: Lines, loop: _Turns) -> list[_Rows]:
    """Return the tensors of which each turn was given the next part; none where turns differ."""
    columns = [lines.events.column(one) for one in ("site", "operation", "inner", "thread")]
    last = loop.first + loop.turns * loop.calls
    for column in columns:
        turns = column[loop.first : last].reshape(loop.turns, loop.calls)
        if bool((turns != turns[0]).any()):
            return []
    found: list[_Rows] = []
    for n in range(loop.calls):
        at = range(loop.first + n, last, loop.calls)
        events = [lines.events[one] for one in at]
        ends = loop.ends if n == loop.calls - 1 else "joined"
        if not all(_is_plain(event, ends) for event in events):
            return []
        rows = _of_call(lines, loop, at, events)
        if rows is None:
            return []
        found += rows
    small = bool(found) and _needs_no_more(lines, loop, found)
    return list({(one.part.storage, one.part.offset): one for one in found}.values()) * small


def _is_plain(event: Event, ends: str) -> bool:
    """Whether a call does the same for many at once, and nothing beside but as a turn ends."""
    row = operation(event.operation)
    if event.raised or not row.known or row.random or row.single:
        return False
    return bool(event.writes) == (ends == "written") and bool(row.leaves) == (ends == "read")


def _of_call(
    lines: Lines, loop: _Turns, at: Sequence[int], events: Sequence[Event]
) -> list[_Rows] | None:
    """Return the parts that one call is given turn by turn; None where turns are not alike."""
    first, made_at = events[0], lines.history.made_at
    if len({_shapes(event) for event in events}) > 1:
        return None
    found: list[tuple[int | None, _Rows]] = []  # how far the turns lie apart, and what they are
    for operands in list(zip(*(event.reads for event in events), strict=True))[
        bool(first.writes) :
    ]:
        one = operands[0]
        step = _given(lines, loop, operands)
        found.append((step, _Rows(max(made_at(one.tensor), 0), one, one)))
    if is_choice(first) and made_at(first.reads[0].tensor) < loop.first:
        step = _step([event.results[0] for event in events])
        found.append((step, _Rows(at[0], first.reads[0], first.results[0])))
    if any(step is None for step, _ in found):
        return None
    return [rows for step, rows in found if step]


def _shapes(event: Event) -> tuple[object, ...]:
    """Return what must be alike from turn to turn: how what a call reads and makes is laid out."""
    return (*(one[4:7] for one in event.reads), None, *(one[4:7] for one in event.results))


def _given(lines: Lines, loop: _Turns, operands: Sequence[Operand]) -> int | None:
    """Return by how much what each turn is given lies behind what the one before was given.

    0 for what the turn made itself, or is the same at each; None where turns differ otherwise.
    """
    makers = [lines.history.made_at(one.tensor) for one in operands]
    if all(made >= loop.first + turn * loop.calls for turn, made in enumerate(makers)):
        return 0
    return _step(operands) if all(made < loop.first for made in makers) else None


def _step(operands: Sequence[Operand]) -> int | None:
    """Return by how much each operand lies behind the one before, in one memory as it was.

    None where they lie in no such order.
    """
    if len({(one.storage, one.version) for one in operands}) > 1:
        return None
    steps = np.diff([one.offset for one in operands])
    return int(steps[0]) if bool((steps == steps[0]).all()) else None


def _needs_no_more(lines: Lines, loop: _Turns, rows: Sequence[_Rows]) -> bool:
    """Whether all rows at once take little memory, or no more than what is there.

    Then calls are what costs.
    """
    turn = [lines.events[loop.first + n] for n in range(loop.calls)]
    most = max((nbytes(one) for event in turn for one in event.results), default=0)
    single = all(_is_single(lines, one) for one in rows)
    if loop.ends == "read" and not single:
        return False  # batches: so many rows at a time, on purpose
    kept = turn[-1].results or turn[-1].reads[1:]
    room = [nbytes(one) for one in (*kept, *(one.part for one in rows))]
    return most <= max(room) <= SMALL or (single and most * loop.turns <= LARGE)


def _is_single(lines: Lines, row: _Rows) -> bool:
    """Whether a part is one row of what it was taken from."""
    taken = lines.events[row.at].reads
    dimensions = len(taken[0].shape) if taken else 0
    return len(row.part.shape) < dimensions or row.part.shape[:1] == (1,)
