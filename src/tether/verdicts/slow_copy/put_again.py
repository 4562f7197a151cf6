"""The lines that copy into a place what it holds already: part of `slow-copy`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from tether.analysis.copies.already_there import nbytes
from tether.analysis.copies.memory_lives import MemoryLives
from tether.analysis.history import History
from tether.facts import Event, Operand
from tether.operations.table import operation
from tether.verdicts.slow_copy.on_device import LARGE, STEPS, Lines, Slow


def put_again(lines: Lines) -> Iterator[Slow]:
    """Give each of the user's lines that copies again what it, or a library, copied there last."""
    repeats, runs = _repeats(lines.history)
    events, memory = lines.events, lines.history.flow.memory
    pairs = [pair for found in repeats.values() for pair in found]
    if not pairs:
        return
    lives = MemoryLives(lines.history, {memory(one) for _, at in pairs for one in events[at].reads})
    for line, found in repeats.items():
        same = [at for before, at in found if not _written(lives, events[at].reads, before, at)]
        total = sum(nbytes(events[at].reads[0]) for at in same)
        if len(same) >= STEPS and total >= LARGE:
            yield _slow(lines, same, total, runs[line])


def _repeats(
    history: History,
) -> tuple[dict[tuple[str, int], list[tuple[int, int]]], dict[tuple[str, int], int]]:
    """Return by line the copies like the last one to the same place, with that, and all its runs.

    Neither tensor had another version in between.
    """
    last: dict[int, int] = {}  # tensor -> the copy that filled it last
    found: dict[tuple[str, int], list[tuple[int, int]]] = defaultdict(list)
    runs: dict[tuple[str, int], int] = defaultdict(int)
    for at, event in history.events.where(_puts):
        if event.raised or len(event.reads) != 2 or not event.writes:
            continue
        line, target = event[:2], event.reads[0]
        runs[line] += 1
        before = last.get(target.tensor)
        last[target.tensor] = at
        if before is not None and _alike(history, history.events[before], event):
            found[line].append((before, at))
    return found, runs


def _puts(name: str) -> bool:
    row = operation(name)
    return bool(row.copies and row.writes)


def _alike(history: History, before: Event, event: Event) -> bool:
    """Whether two copies have one source and one target, of which none was written in between."""
    target, source = event.reads
    filled, earlier = before.writes[0], before.reads[1]
    if source.version < 0 or (filled.version, earlier.version) != (target.version, source.version):
        return False
    memory = history.flow.memory
    places = [(memory(one), one[3:7]) for one in (filled, target, earlier, source)]
    return places[0] == places[1] and places[2] == places[3]


def _written(lives: MemoryLives, operands: Sequence[Operand], before: int, at: int) -> bool:
    """Whether any of some memory was written between two copies, but by these."""
    writes = (one for operand in operands for one in lives.written(operand, before, at))
    return any(not one.is_of((before, at)) for one in writes)


def _slow(lines: Lines, same: Sequence[int], total: int, runs: int) -> Slow:
    """Say what one line copies again."""
    at = max(same, key=lambda one: nbytes(lines.events[one].reads[0]))
    event = lines.events[at]
    what = f"{event.operation} puts there what it had put there before, and nothing wrote either"
    what += f" since, in {len(same):,} of {runs:,} runs, {total:,} bytes"
    fix = "Copy only when the source has changed: where it is written, not where it is read."
    return Slow(at, event.reads[1], len(same), total, None, "copied", what, fix)
