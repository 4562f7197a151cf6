"""The lines that copy a whole tensor to put a few elements, and let the old one go: of `slow-copy`.

The call that does it in place writes those elements alone. What else of the old tensor lives, or is
read, needs it as it was; where it goes with the call, nothing does.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cached_property

from tether.analysis.copies.already_there import nbytes
from tether.analysis.copies.needs import read_unseen
from tether.analysis.copies.other_processes import OtherProcesses
from tether.facts import GRAD_INFERENCE, UNKNOWN, Event, Operand
from tether.operations.table import in_place, operation
from tether.regions import extent
from tether.store.numbers import Numbers
from tether.verdicts.slow_copy.elements_read import elements
from tether.verdicts.slow_copy.on_device import LARGE, Lines, Slow

RUNS = 8
"""Runs from which it is no matter of chance that the old tensor goes each time."""

PART = 8
"""One element in so many, at most, is put there."""

MOSTLY = 0.75
"""The share of a line's runs that let the old tensor go."""

CLOSED = ("transform", "function", "checkpoint", "backward", "hook")
"""Spans in which a call in place may be refused, or run again."""


def put_elsewhere(lines: Lines) -> Iterator[Slow]:
    """Give each of the user's lines whose old tensor could have been written instead."""
    asked = _LetGo(lines)
    for (_, name), places in lines.by_line.items():
        if not operation(name).puts or len(places) < RUNS:
            continue
        found = [at for at in places if asked.takes_its_place(at)]
        total = sum(nbytes(lines.events[at].results[0]) for at in found)
        mostly = len(found) >= max(RUNS, MOSTLY * len(places))
        if mostly and total >= LARGE and not read_unseen(lines.history):
            yield _slow(lines, found, total, len(places))


class _LetGo:
    """Whether what a call was given could have been written in the place of its result."""

    def __init__(self, lines: Lines) -> None:
        self._history = lines.history
        self._others = lines.history.get(OtherProcesses)

    @cached_property
    def _closed(self) -> Numbers:
        return self._history.within(*CLOSED)

    def takes_its_place(self, at: int) -> bool:
        """Whether a result took the place of what went with the call, and is nearly the same."""
        event = self._history.events[at]
        if not event.reads or len(event.results) != 1 or event.writes or self._closed[at]:
            return False
        made = event.results[0]
        few = PART * most_put(event) <= elements(made)
        return few and _can_be_written(event, made) and self._goes(event.reads[0], at)

    def _goes(self, old: Operand, at: int) -> bool:
        """Whether a memory went with the call, which was the last that was given it."""
        history = self._history
        life = history.trace.storages[old.storage]
        if life.memory != UNKNOWN or life.freed == UNKNOWN:
            return False
        last = history.on_storage(old)[-1] <= at and history.position(life.freed) <= at + 1
        return last and not self._others.read(old, at - 1, at + 1)


def _can_be_written(event: Event, made: Operand) -> bool:
    """Whether the first argument takes the result's values, each element of it there once."""
    old, *others = event.reads
    if any(one.requires_grad or one.storage == old.storage for one in (*others, made)):
        return False
    first, last = extent(old)
    inference = old.version == UNKNOWN and event.grad_mode != GRAD_INFERENCE
    once = last - first == elements(old) and not old.requires_grad
    return once and not inference and (old.shape, old.dtype) == (made.shape, made.dtype)


def most_put(event: Event) -> int:
    """Return how many elements a call puts, at most; of a mask, or what is not known, all."""
    whole, *others = event.reads
    if operation(event.operation).puts == "given" and others:
        return max(map(elements, others))
    numbers = others[:-1] or others  # behind them stands what is put
    if not numbers or any(not one.dtype.startswith("int") for one in numbers):
        return elements(whole)
    # Along which dimensions the numbers count is not known: along the shortest it is the most.
    along = math.prod(sorted(whole.shape)[: len(numbers)])
    return elements(whole) // max(1, along) * _together([one.shape for one in numbers])


def _together(shapes: Sequence[tuple[int, ...]]) -> int:
    """Return how many places some shapes give, each expanded to the others."""
    width = max(map(len, shapes))
    filled = [(1,) * (width - len(shape)) + shape for shape in shapes]
    return math.prod(max(sizes) for sizes in zip(*filled, strict=True))


def _slow(lines: Lines, found: Sequence[int], total: int, runs: int) -> Slow:
    """Say what one line copies to put a few elements."""
    event = lines.events[found[0]]
    name, old, made = event.operation, event.reads[0], event.results[0]
    put = max(most_put(lines.events[at]) for at in found)
    what = f"{name} copies {nbytes(made):,} bytes to put {put:,} of {elements(made):,} elements at"
    what += (
        f" most, {total:,} bytes in {len(found):,} of its {runs:,} runs, and what it was made of"
    )
    what += " goes at once, with nothing else that reads it"
    way = in_place(name)
    fix = f"Write into the tensor that is there: `{lines.text(found[0])}.{way}(...)`."
    if not way:
        fix = "Write into the tensor that is there: assign to the part, x[...] = values."
    return Slow(found[0], old, len(found), total, None, "copied", what, fix)
