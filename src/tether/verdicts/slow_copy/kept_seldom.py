"""The lines whose copies mostly go unread, before their source has changed: part of `slow-copy`.

A state is copied first, and asked afterwards whether it is worth keeping. As long as the source has
the same values a copy made after the question is as good; so is one that only the ``if`` right
behind it uses. One that is kept in case, to go back to, goes when its source has other values, and
is none of these.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from tether.analysis.copies.already_there import Copied, nbytes
from tether.analysis.copies.memory_lives import MemoryLives
from tether.analysis.copies.needs import Need, needs, read_unseen
from tether.analysis.copies.other_processes import OtherProcesses
from tether.analysis.surroundings import Surroundings
from tether.facts import UNKNOWN
from tether.source.asked_next import asked_next
from tether.verdicts.slow_copy.elements_read import ElementsRead
from tether.verdicts.slow_copy.on_device import LARGE, Lines, Slow
from tether.verdicts.slow_copy.overwritten import each_run

RUNS = 8
"""Copies that went unread, from which it is no matter of chance."""

_ENGINE = ("backward", "hook")
"""Spans of the program's own code that PyTorch calls, and whose results it takes."""

FIX = "Ask first, and copy where the answer is to keep it."

WITHIN = "Copy within that `if`, where its branch begins that uses the copy."


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
            yield from _mostly_unread(lines, need)


def _mostly_unread(lines: Lines, need: Need) -> Iterator[Slow]:
    runs = [_run(lines, some) for some in each_run(lines, need.executions)]
    found, asked = _unwritten(lines, need, runs), False
    if not _is_told(found, runs) and _is_asked_next(lines, need):
        found, asked = list(_beside_a_kept_one(runs)), True
    if _is_told(found, runs):
        yield _slow(found, runs, asked=asked)


def _is_told(found: Sequence[_Copying], runs: Sequence[_Copying]) -> bool:
    """Whether enough of a line's copies went unread, and some were used."""
    large = sum(run.nbytes for run in found) >= LARGE
    return large and len(found) >= max(RUNS, len(runs) / 2) and any(run.read for run in runs)


def _is_asked_next(lines: Lines, need: Need) -> bool:
    """Whether the text uses the copies in the ``if`` right behind them and nowhere else."""
    site = lines.history.site_of(lines.events[need.executions[0].position])
    return asked_next(lines.history.get(Surroundings).source(site.file), site)


def _beside_a_kept_one(runs: Sequence[_Copying]) -> Iterator[_Copying]:
    """Yield what went unread as the line ran again, while an older copy lived on.

    Where one place keeps the copies the older one would have gone, had the newer taken that place.
    """
    longest = 0.0
    for run, then in pairwise(runs):
        end = then.last + 1
        if not run.read and run.gone <= end < longest:
            yield run
        longest = max(longest, run.gone)


def _unwritten(lines: Lines, need: Need, runs: Sequence[_Copying]) -> list[_Copying]:
    """Return the copies that went unread before their source was written, or the line ran again.

    The question comes while the copy is there. Of one that is used the source must be the same
    until then: else there are none.
    """
    memories = {lines.history.flow.memory(one.source) for one in need.executions}
    lives = MemoryLives(lines.history, memories)
    ends = [float(run.copies[0].position) for run in runs[1:]] + [math.inf]
    found = [
        run
        for run, end in zip(runs, ends, strict=True)
        if not run.read and run.gone <= end and run.gone < math.inf
        if not _written(lives, run, run.gone)
    ]
    most = max((run.gone - run.last for run in found), default=0)
    later = any(_written(lives, run, run.last + most + 1) for run in runs if run.read)
    return [] if later else found


def _run(lines: Lines, copies: Sequence[Copied]) -> _Copying:
    history, reads = lines.history, lines.history.get(ElementsRead)
    others, gone, read = history.get(OtherProcesses), 0.0, False
    for one in copies:
        life = history.trace.storages[one.copy.storage]
        until = math.inf if life.freed == UNKNOWN else history.position(life.freed)
        gone = max(gone, until)
        seen = life.memory != UNKNOWN or others.read(one.copy, one.position, until)
        # The engine reads what a backward, or a hook, returns: of which runs is not recorded.
        seen |= history.inside(history.events[one.position], *_ENGINE) != UNKNOWN
        read |= seen or reads.between(one.copy, one.position, math.inf) > 0
    return _Copying(copies, sum(nbytes(one.copy) for one in copies), read, gone)


def _written(lives: MemoryLives, run: _Copying, until: float) -> bool:
    """Whether a source of a run's copies may have been written until some time."""
    return any(
        lives.memory(one.source) in lives.exported
        or any(True for _ in lives.written(one.source, one.position, until))
        for one in run.copies
    )


def _slow(found: Sequence[_Copying], runs: Sequence[_Copying], *, asked: bool) -> Slow:
    """Say how many of one line's copies went unread."""
    total, kept = sum(run.nbytes for run in found), sum(run.read for run in runs)
    what = (
        f"in {len(found):,} of {len(runs):,} runs, {total:,} bytes, the copy goes before anything"
    )
    what += " has read it"
    what += (
        ", and only the next `if` uses it; " if asked else " and before its source has changed; "
    )
    what += f"those of {kept:,} runs are used" if kept > 1 else "that of one run is used"
    first, fix = found[0].copies[0], WITHIN if asked else FIX
    return Slow(first.position, first.source, len(runs), total, None, "copied", what, fix)
