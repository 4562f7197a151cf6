"""The lines that stack large tensors only to add them up: part of `slow-copy`.

All parts are copied once more, and what is computed of the stack takes as much again. Added into
one memory part by part they need neither. From a stack of a megabyte, of parts of 64 KB and more,
that took less than half the time for 4 to 64 parts, along the first dimension and the last.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from tether.analysis.copies.already_there import nbytes
from tether.facts import Event, Operand
from tether.operations.table import operation
from tether.verdicts.slow_copy.on_device import LARGE, NODE, STEPS, Lines, Slow, Spec

FIX = (
    "Add them up one by one: total = torch.zeros_like(parts[0]), and total.add_(part) for each of"
    " them (alpha= is its weight); a mean is divided at the end. The sum may round in another way."
)


class _Added(NamedTuple):
    """A stack of which nothing but a sum along its new dimension was used."""

    at: int
    made: Operand
    dimension: int
    between: int  # the call that computes each element of the stack, or -1
    sum: int


def stacked_to_add(lines: Lines) -> Iterator[Slow]:
    """Give each of the user's lines that stacks what is then added up along that dimension."""
    for (_, name), places in lines.by_line.items():
        if operation(name).joins == "new":
            found = [one for at in places if (one := _added(lines, at)) is not None]
            total = sum(nbytes(one.made) for one in found)
            large = len(found) == len(places) and total >= STEPS * LARGE
            if large and not lines.needless(places[0]):
                yield _slow(lines, found, total)


def _added(lines: Lines, at: int) -> _Added | None:
    """Return a stack of large tensors that was only added up."""
    event = lines.events[at]
    dimension = _stacked_along(event)
    if dimension is None:
        return None
    made, between = event.results[0], -1
    reader = _only_reader(lines, made, at)
    if reader is not None and _of_each(lines.events[reader], made, len(event.reads)):
        between, made = reader, lines.events[reader].results[0]
        reader = _only_reader(lines, made, reader)
    if reader is None or not _adds(lines.events[reader], event.reads[0].shape, dimension):
        return None
    return _Added(at, event.results[0], dimension, between, reader)


def _stacked_along(event: Event) -> int | None:
    """Return the dimension along which large tensors without a graph lie in a stack of them."""
    if not event.results or len(event.reads) <= STEPS:
        return None
    made, part, count = event.results[0], event.reads[0], len(event.reads)
    alike = {(one.shape, one.dtype) for one in event.reads} == {(part.shape, made.dtype)}
    one_more = len(made.shape) == len(part.shape) + 1 and count not in part.shape
    if min(nbytes(made) / LARGE, nbytes(part) / NODE) < 1 or made.requires_grad:
        return None
    apart = alike and one_more and len({one.storage for one in event.reads}) == count
    return made.shape.index(count) if apart else None


def _only_reader(lines: Lines, made: Operand, at: int) -> int | None:
    """Return the call that read a result, if that was the only one, and nothing keeps it."""
    later = [one for one in lines.history.on_storage(made) if one > at]
    given = [one.tensor for one in lines.events[later[0]].reads] if later else []
    kept = made.tensor in lines.history.held
    return later[0] if len(later) == 1 and given.count(made.tensor) == 1 and not kept else None


def _of_each(event: Event, made: Operand, count: int) -> bool:
    """Whether a call computes each element from its own and, at most, a number for each part."""
    if not operation(event.operation).pointwise or event.writes or len(event.results) != 1:
        return False
    others = [one for one in event.reads if one.tensor != made.tensor]
    small = all(math.prod(one.shape) in (1, count) for one in others)
    return small and event.results[0].shape == made.shape


def _adds(event: Event, shape: tuple[int, ...], dimension: int) -> bool:
    """Whether a call adds its only operand up along one dimension."""
    if not operation(event.operation).adds or len(event.reads) != 1 or not event.results:
        return False
    kept = (*shape[:dimension], 1, *shape[dimension:])
    same = event.results[0].dtype == event.reads[0].dtype
    return same and event.results[0].shape in (shape, kept)


def _slow(lines: Lines, found: list[_Added], total: int) -> Slow:
    """Say what one line stacks, and what reads it."""
    most = max(found, key=lambda one: nbytes(one.made))
    event = lines.events[most.at]
    by = lines.events[most.sum].operation
    what = f"{event.operation} copies {len(event.reads):,} tensors into one,"
    what += f" {total:,} bytes in {len(found):,} runs, and nothing but {by} along that dimension"
    what += " reads it"
    if most.between >= 0:
        name = operation(lines.events[most.between].operation).name
        what += f", after {name}, which takes as much memory again"
    d = most.dimension
    slow = f"torch.stack(list(xs.values()), {d}).sum({d})"
    fast = "(lambda total: [total.add_(one) for one in xs.values()])(torch.zeros_like(x))"
    spec = Spec(slow, fast, tuple(event.reads), lines.device(event.reads[0]))
    return Slow(most.at, event.reads[0], len(found), total, spec, "copied", what, FIX, most.sum)
