"""The lines that copy more than is used, or the same again: part of `slow-copy`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise

from tether.analysis.already_there import nbytes
from tether.facts import GRAD_ON, UNKNOWN, Event, Operand
from tether.operations.table import operation
from tether.verdicts.slow_copy.on_device import LARGE, STEPS, Lines, Slow, Spec, converts

PART = 4
"""How many times more is copied than is used, from which it is told."""


def vain(lines: Lines) -> Iterator[Slow]:
    """Give each of the user's lines that copies for nothing."""
    for (_, name), places in lines.by_line.items():
        found = None
        if operation(name).joins:
            found = _grown(lines, places)
        elif converts(name) or operation(name).copies == "clone" or name == "contiguous":
            found = _partly_used(lines, places)
        if found is not None and not lines.needless(found.at):
            yield found


def _grown(lines: Lines, places: list[int]) -> Slow | None:
    """Find a tensor that grows by being joined anew: all that it has is copied at each step.

    Nothing but the next join reads what it was in between.
    """
    again, rounds, last = 0, 0, UNKNOWN
    for at, following in pairwise(places):
        made = lines.events[at].results[:1]
        grown = [one for one in lines.events[following].reads for it in made if one[:2] == it[:2]]
        if grown and _read_by(lines, at, grown[0]) == [following]:
            again, rounds, last = again + nbytes(grown[0]), rounds + 1, following
    if rounds < STEPS or again < LARGE:
        return None
    whole = lines.events[last].results[0]
    if again < PART * nbytes(whole):
        return None
    name = lines.events[last].operation
    what = f"{name} copies all that was joined before at each of {rounds:,} steps, {again:,} bytes"
    fix = f"Append the parts to a list, and join them once at the end: {name}(parts)."
    what += f" for {nbytes(whole):,}"
    return Slow(last, whole, len(places), again, None, "copied", what, fix)


def _read_by(lines: Lines, at: int, made: Operand) -> list[int]:
    """Return the later events that touched what a call made, by whatever view."""
    return [one for one in lines.history.on_storage(made) if one > at]


def _partly_used(lines: Lines, places: list[int]) -> Slow | None:
    """Find copies of which one small part is taken, and nothing else is ever used."""
    found = []
    for at in places:
        part = _part(lines, at)
        if part is None:
            return None
        found.append((at, lines.events[at].reads[0], lines.events[at].results[0], part))
    more = sum(nbytes(copy) - nbytes(part[1]) for _, _, copy, part in found)
    if len(found) < STEPS or more < LARGE:
        return None
    at, source, copy, (then, taken) = max(found, key=lambda one: nbytes(one[2]))
    times = math.prod(copy.shape) // max(1, math.prod(taken.shape))
    what = f"{lines.events[at].operation} gives {math.prod(copy.shape):,} elements at a time, of"
    what += f" which one in {times:,} is used"
    fix = f"Take the part first, and copy that: {lines.text(at)}[...] before the call."
    spec = _whole_or_part(lines, at, source, copy, times)
    return Slow(at, source, len(found), more, spec, "copied", what, fix, then)


def _part(lines: Lines, at: int) -> tuple[int, Operand] | None:
    """Return the only call that a copy was given to, and the small part of it that this took."""
    event = lines.events[at]
    if not event.reads or not event.results or event.writes:
        return None
    source, copy = event.reads[0], event.results[0]
    later = lines.after(copy.tensor, at)
    if source.storage == copy.storage or source.shape != copy.shape or len(later) != 1:
        return None
    then = lines.events[later[0]]
    if then.writes or len(then.results) != 1 or then.reads[0].tensor != copy.tensor:
        return None
    return (later[0], then.results[0]) if _is_small_part(then, copy) else None


def _is_small_part(then: Event, copy: Operand) -> bool:
    """Whether a call took a few of a tensor's elements, and no more than took them."""
    part = then.results[0]
    taken = part.storage == copy.storage or operation(then.operation).picks
    return taken and nbytes(copy) >= PART * nbytes(part)


def _whole_or_part(
    lines: Lines, at: int, source: Operand, copy: Operand, times: int
) -> Spec | None:
    """Say what to time: rows of the whole, before it is copied and after."""
    rows, device = source.shape[0], lines.device(source)
    if rows < PART or device != lines.device(copy):
        return None
    count, call = max(1, rows // times), "to(dtype)" if source.dtype != copy.dtype else "clone()"
    return Spec(
        f"x.{call}[:{count}]", f"x[:{count}].{call}", (source,), device, dtype=copy.dtype,
        grad=lines.events[at].grad_mode == GRAD_ON,
    )  # fmt: skip
