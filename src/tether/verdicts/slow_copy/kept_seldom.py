"""The lines whose copies mostly go unread, before their source has changed: part of `slow-copy`.

A state is copied first, and asked afterwards whether it is worth keeping. As long as the source has
the same values a copy made after the question is as good. One that is kept in case, to go back to,
goes when its source has other values, and is none of these.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tether.analysis.already_there import Copied, nbytes
from tether.analysis.copy_needs import Need, needs, read_unseen
from tether.analysis.elements_read import ElementsRead
from tether.analysis.memory_lives import MemoryLives
from tether.analysis.other_processes import OtherProcesses
from tether.facts import UNKNOWN
from tether.verdicts.slow_copy.on_device import LARGE, Lines, Slow
from tether.verdicts.slow_copy.overwritten import each_run

RUNS = 8
"""Copies that went unread, from which it is no matter of chance."""

FIX = "Ask first, and copy where the answer is to keep it."


class _Copying(NamedTuple):
    """What one run of a line copied, and what became of it."""

    copies: Sequence[Copied]
    nbytes: int
    read: bool
    gone: float  # the position when the last of it went

    @property
    def last(self) -> int:
        """The position of the last call that copied."""
        return self.copies[-1].position


def kept_seldom(lines: Lines) -> Iterator[Slow]:
    """Give each of the user's lines whose copies mostly go as they were made, and some are used."""
    for (_, inner, _), need in needs(lines.history).items():
        if inner != UNKNOWN or need.needed == "no" or need.bytes < LARGE or need.count < RUNS:
            continue
        if not read_unseen(lines.history) and not any(one.taken for one in need.executions):
            yield from _mostly_let_go(lines, need)


def _mostly_let_go(lines: Lines, need: Need) -> Iterator[Slow]:
    runs = [_run(lines, some) for some in each_run(lines, need.executions)]
    lives = MemoryLives(
        lines.history, {lines.history.flow.memory(one.source) for one in need.executions}
    )
    found = [run for run in _gone_unread(runs) if not _written(lives, run, run.gone)]
    total = sum(run.nbytes for run in found)
    kept = [run for run in runs if run.read]
    if kept and len(found) >= max(RUNS, len(runs) / 2) and total >= LARGE:
        # The question comes while the copy is there: what is kept must be the same until then.
        most = max(run.gone - run.last for run in found)
        if not any(_written(lives, run, run.last + most + 1) for run in kept):
            yield _slow(found, total, len(runs), len(kept))


def _gone_unread(runs: Sequence[_Copying]) -> Iterator[_Copying]:
    """Yield what was copied, read by nothing and gone before the line ran again."""
    ends = [float(run.copies[0].position) for run in runs[1:]] + [math.inf]
    for run, end in zip(runs, ends, strict=True):
        if not run.read and run.gone <= end and run.gone < math.inf:
            yield run


def _run(lines: Lines, copies: Sequence[Copied]) -> _Copying:
    history, reads = lines.history, lines.history.get(ElementsRead)
    others, gone, read = history.get(OtherProcesses), 0.0, False
    for one in copies:
        life = history.trace.storages[one.copy.storage]
        until = math.inf if life.freed == UNKNOWN else history.position(life.freed)
        gone = max(gone, until)
        seen = life.memory != UNKNOWN or others.read(one.copy, one.position, until)
        read |= seen or reads.between(one.copy, one.position, math.inf) > 0
    return _Copying(copies, sum(nbytes(one.copy) for one in copies), read, gone)


def _written(lives: MemoryLives, run: _Copying, until: float) -> bool:
    """Whether a source of a run's copies may have been written until some time."""
    return any(
        lives.memory(one.source) in lives.exported
        or any(True for _ in lives.written(one.source, one.position, until))
        for one in run.copies
    )


def _slow(found: Sequence[_Copying], total: int, runs: int, kept: int) -> Slow:
    """Say how many of one line's copies went unread."""
    first = found[0].copies[0]
    what = f"in {len(found):,} of {runs:,} runs, {total:,} bytes, the copy goes before anything has"
    what += " read it and before its source has changed; "
    what += f"those of {kept:,} runs are used" if kept > 1 else "that of one run is used"
    return Slow(first.position, first.source, runs, total, None, "copied", what, FIX)
