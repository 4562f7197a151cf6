"""The lines that move a whole history along to add an entry to it: part of `slow-copy`.

Where between two moves nothing reads what was moved, or a small part of it, as the oldest entry: an
index that goes round leaves all that is there where it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from tether.analysis.already_there import nbytes
from tether.analysis.copy_needs import read_unseen
from tether.analysis.elements_read import ElementsRead, elements
from tether.analysis.memory_lives import MemoryLives
from tether.analysis.moved_along import Move, may_move, moved_on
from tether.analysis.other_processes import OtherProcesses
from tether.facts import UNKNOWN
from tether.verdicts.slow_copy.on_device import LARGE, NODE, Lines, Slow

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
        seen = history.flow.memory(made) in lent or not _is_let_go(lines, move, then, end)
        if small and not seen and (written or not move.written):
            yield _Unread(move, read)


def _is_let_go(lines: Lines, move: Move, then: Move, end: int) -> bool:
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
