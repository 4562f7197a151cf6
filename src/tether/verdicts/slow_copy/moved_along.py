"""Calls that move all that a memory holds by a few places, to make room for one entry more.

A roll, a join of a part of what it had made before with something new, an assignment of a part to
the places beside it. What they are is said by the operation's row, and by where the elements lie.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from tether.analysis.copies.already_there import nbytes
from tether.analysis.copies.memory_lives import MemoryLives
from tether.analysis.copies.needs import read_unseen
from tether.analysis.copies.other_processes import OtherProcesses
from tether.analysis.history import History
from tether.facts import UNKNOWN, Event, Operand
from tether.operations.table import operation
from tether.verdicts.slow_copy.elements_read import ElementsRead, elements
from tether.verdicts.slow_copy.on_device import LARGE, NODE, Lines, Slow

MOST = 4
"""One part in so many, at most, is new."""


class Move(NamedTuple):
    """One call that moved the elements of a memory along."""

    at: int
    begin: int  # the call that began it: the clone of the part that is assigned
    old: Operand  # what was moved, where it had been
    made: Operand  # where it is since
    written: bool  # the new entry is written by a later call


def may_move(name: str) -> bool:
    """Whether a call may be one that moves, by its name."""
    row = operation(name)
    return row.shifts or row.joins == "along" or bool(row.writes and (row.places or row.copies))


def moved_on(history: History, places: Sequence[int]) -> Iterator[list[Move]]:
    """Yield the moves of one line that each took what the one before had made, in order."""
    runs: dict[int, list[Move]] = {}  # by the memory that was made last
    memory = history.flow.memory
    for at in places:
        move = _moved(history, at)
        if move is None:
            continue
        run = runs.pop(memory(move.old), [])
        if run and not _is_same(run[-1], move):
            yield run
            run = []
        run.append(move)
        runs[memory(move.made)] = run
    yield from runs.values()


def _is_same(before: Move, move: Move) -> bool:
    """Whether two moves are of as many elements, of which the second took the first one's."""
    one, other = before.made, move.made
    return one.shape == other.shape and one.dtype == other.dtype


def _moved(history: History, at: int) -> Move | None:
    event = history.events[at]
    row, several = operation(event.operation), len(event.reads) > 1
    if any(one.requires_grad for one in (*event.reads, *event.results, *event.writes)):
        return None
    if row.shifts:
        return _rolled(event, at)
    if several and row.joins == "along":
        return _joined(event, at)
    if several and len(event.writes) == 1 and (event.named or row.copies):
        return _assigned(history, event, at)
    return None


def _rolled(event: Event, at: int) -> Move | None:
    old, made = event.reads[0], event.results[0] if event.results else None
    if made is None or made.storage == old.storage or made.shape != old.shape:
        return None
    return Move(at, at, old, made, written=True)


def _joined(event: Event, at: int) -> Move | None:
    """Return a join of which most is a part of one memory, shorter in one dimension."""
    old, made = max(event.reads, key=elements), event.results[0] if event.results else None
    if made is None or made.storage == old.storage or len(old.shape) != len(made.shape):
        return None
    shorter = [a < b for a, b in zip(old.shape, made.shape, strict=True) if a != b]
    most = MOST * elements(old) >= (MOST - 1) * elements(made)
    return Move(at, at, old, made, written=False) if shorter == [True] and most else None


def _assigned(history: History, event: Event, at: int) -> Move | None:
    """Return an assignment of a copy of elements to the places a few steps beside them."""
    made, source = event.writes[0], event.reads[-1]
    begin = history.made_at(source.tensor)
    copied = history.events[begin] if begin != UNKNOWN else None
    if copied is None or len(copied.reads) != 1 or source.storage == made.storage:
        return None
    old = copied.reads[0]
    alone = set(history.on_storage(source)) == {begin, at} and source.shape == made.shape
    moved = alone and _is_moved(copied.operation, old, made)
    return Move(at, begin, old, made, written=True) if moved else None


def _is_moved(name: str, old: Operand, made: Operand) -> bool:
    """Whether elements are put back into the memory that they are of, a few steps further."""
    row = operation(name)
    if old.storage != made.storage or old[4:7] != made[4:7]:
        return False
    beside = row.copies == "clone" and _is_beside(old, made)
    return beside or (row.shifts and old.offset == made.offset)


def _is_beside(old: Operand, made: Operand) -> bool:
    """Whether elements are assigned to those a few steps beside them, along one dimension."""
    apart = abs(old.offset - made.offset)
    return any(
        apart and stride and apart % stride == 0 and MOST * (apart // stride) <= size
        for size, stride in zip(made.shape, made.strides, strict=True)
    )


RUNS = 8
"""Moves from which it is no matter of chance that nothing reads what they moved."""


PART = 8
"""One element in so many, at most, is read before the next move, and written to add an entry."""


MOSTLY = 0.75
"""The share of a line's runs of which no more was read. A ring is put in order for the others, and
that moves as much as each of them does now."""


FIX = (
    "Leave the entries where they are, and write each new one over the oldest, at an index that"
    " goes round: history[step % length] = entry. Where all of them are read in order, roll them"
    " then; or keep a collections.deque(maxlen=length), and stack it there."
)


class _Unread(NamedTuple):
    """A move of which little was read before the next one."""

    move: Move
    read: int  # elements


def moved_along(lines: Lines) -> Iterator[Slow]:
    """Give each of the user's lines that moves a history at each step, which is seldom read."""
    for (_, name), places in lines.by_line.items():
        if not may_move(name) or len(places) <= RUNS:
            continue
        runs = [run for run in moved_on(lines.history, places) if _is_large(run)]
        if not runs or read_unseen(lines.history):
            continue
        found = [one for run in runs for one in _unread(lines, run)]
        total = sum(nbytes(one.move.made) for one in found)
        if len(found) >= max(RUNS, MOSTLY * len(places)) and total >= LARGE:
            yield _slow(lines, found, total, len(places))


def _is_large(run: Sequence[Move]) -> bool:
    return len(run) > RUNS and nbytes(run[0].made) >= NODE


def _unread(lines: Lines, run: Sequence[Move]) -> Iterator[_Unread]:
    """Yield those of some moves of which little is read before the next one, and nothing after."""
    history, reads = lines.history, lines.history.get(ElementsRead)
    memories = {history.flow.memory(move.made) for move in run}
    lent = MemoryLives(history, memories).exported
    ends = [move.at for move in run[2:]] + [len(lines.events)]
    for (move, then), end in zip(pairwise(run), ends, strict=True):
        made = move.made
        read = reads.between(made, move.at, then.begin)
        written = reads.least_written(made, move.at, then.begin)
        small = PART * read <= elements(made) and PART * written <= elements(made)
        seen = history.flow.memory(made) in lent or not _is_done_with(lines, move, then, end)
        if small and not seen and (written or not move.written):
            yield _Unread(move, read)


def _is_done_with(lines: Lines, move: Move, then: Move, end: int) -> bool:
    """Whether a memory is done with since the next move: it went, or is what that moved within.

    Nothing but tensors of this process shows it.
    """
    history, made = lines.history, move.made
    life = history.trace.storages[made.storage]
    if life.memory != UNKNOWN or history.get(OtherProcesses).read(made, move.at, then.at):
        return False
    if history.flow.memory(made) == history.flow.memory(then.made):
        return True
    later = history.on_storage(made)[-1] > then.at
    return not later and life.freed != UNKNOWN and history.position(life.freed) <= end


def _slow(lines: Lines, found: Sequence[_Unread], total: int, runs: int) -> Slow:
    """Say what one line moves, and how little of that is read."""
    most = max(found, key=lambda one: one.read)
    at, made = found[0].move.at, found[0].move.made
    event = lines.events[at]
    what = f"it moves {nbytes(made):,} bytes to add one entry, {total:,} bytes in {len(found):,} of"
    what += f" its {runs:,} runs, after which nothing reads"
    what += (
        f" more than {most.read:,} of {elements(made):,} elements" if most.read else " any of it"
    )
    what += " before the next one"
    done = "copied" if event.results[:1] == (made,) else "written"
    whole = found[0].move.old if event.results else event.reads[0]
    return Slow(at, whole, len(found), total, None, done, what, FIX)
