"""Calls that move all that a memory holds by a few places, to make room for one entry more.

A roll, a join of a part of what it had made before with something new, an assignment of a part to
the places beside it. What they are is said by the operation's row, and by where the elements lie.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tether.analysis.elements_read import elements
from tether.analysis.history import History
from tether.facts import UNKNOWN, Event, Operand
from tether.operations.table import operation

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
