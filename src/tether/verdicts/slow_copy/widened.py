"""Elements made wider on the way to a conversion that makes them narrow: part of `slow-copy`.

A small operand of a wider type gives the whole result that type; and what is joined before it is
converted is copied at its full width.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tether.analysis.copies.already_there import nbytes
from tether.analysis.copies.needs import read_unseen
from tether.analysis.copies.other_processes import OtherProcesses
from tether.facts import GRAD_ON, UNKNOWN, Event, Operand, StorageId
from tether.operations.table import operation
from tether.regions import element_size
from tether.verdicts.slow_copy.on_device import LARGE, SMALL, STEPS, Lines, Slow, Spec, converts

PART = 4
"""How many times smaller an operand is that gives its type to what is computed with it."""


class _Wide(NamedTuple):
    """A call that made elements wider than what is read of them."""

    at: int
    made: Operand
    then: int  # the first call that converts what was made
    more: int  # bytes that it need not have written


def widened(lines: Lines) -> Iterator[Slow]:
    """Give each line that widens, or joins, what is only read when it is narrow again."""
    if read_unseen(lines.history):
        return
    yield from _joined(lines)
    for places in lines.by_line.values():
        wider = places if _small_and_wide(lines.events[places[0]]) is not None else ()
        found = [one for at in wider if (one := _promoted(lines, at)) is not None]
        if len(found) == len(places) and sum(one.more for one in found) >= LARGE:
            yield _told_of_operand(lines, found)


def _joined(lines: Lines) -> Iterator[Slow]:
    """Give the lines at which tensors are joined that one of the user's then converts."""
    found: dict[tuple[int, int], list[_Wide]] = defaultdict(list)
    for (_, name), places in lines.by_line.items():
        for at in places if converts(name) else ():
            joined = _joined_before(lines, at)
            if joined is not None:
                event = lines.events[joined.at]
                found[event.site, event.inner].append(joined)
    for some in found.values():
        more = sum(one.more for one in some)
        if len(some) >= STEPS and more >= max(LARGE, SMALL * len(some)):
            yield _told_of_join(lines, some)


def _joined_before(lines: Lines, at: int) -> _Wide | None:
    """Return the call that joined what a conversion narrows, if nothing else reads that."""
    event = lines.events[at]
    made = _maker(lines, event.reads[0]) if _narrows(event) else UNKNOWN
    join = lines.events[made] if made >= 0 else None
    if join is None or not operation(join.operation).joins or not _wide_alike(join):
        return None
    then = _conversion(lines, made, join.results[0])
    if then < 0:
        return None
    more = nbytes(join.results[0]) - nbytes(lines.events[then].results[0])
    return _Wide(made, join.results[0], then, more)


def _maker(lines: Lines, operand: Operand) -> int:
    """Return the call that made a memory."""
    touched = lines.history.on_storage(operand)
    if not touched:
        return UNKNOWN
    made = lines.events[touched[0]].results
    return touched[0] if [one.storage for one in made] == [operand.storage] else UNKNOWN


def _wide_alike(event: Event) -> bool:
    made = event.results[0]
    return all(one.dtype == made.dtype and one.storage != made.storage for one in event.reads)


def _narrows(event: Event) -> bool:
    """Whether a call makes real numbers of real numbers of a wider type."""
    if not converts(event.operation) or len(event.reads) != 1 or len(event.results) != 1:
        return False
    given, made = event.reads[0].dtype, event.results[0].dtype
    return _real(given) and _real(made) and element_size(made) < element_size(given)


def _real(dtype: str) -> bool:
    return dtype.startswith(("float", "bfloat"))


def _conversion(lines: Lines, at: int, made: Operand, *, computed: bool = False) -> int:
    """Return the first conversion of a memory, if conversions to one type are all that read it.

    Views of it may lie between; where it may be `computed`, so may calls element by element.
    """
    waiting, met, found = [(at, made)], {made.storage}, set[int]()
    others = lines.history.get(OtherProcesses)
    while waiting:
        since, one = waiting.pop()
        later = [then for then in lines.history.on_storage(one) if then > since]
        if not later or made.requires_grad or others.read(one, since, math.inf):
            return UNKNOWN
        ends = set(filter(lambda then: _narrows(lines.events[then]), later))
        found |= ends
        further = [then for then in later if then not in ends and not _shown(lines, then, one)]
        if not all(computed and _goes_on(lines.events[then], made.dtype) for then in further):
            return UNKNOWN
        waiting += _first_met(lines, further, met)
    return min(found) if _to_one_type(lines, found) else UNKNOWN


def _to_one_type(lines: Lines, conversions: set[int]) -> bool:
    return len({lines.events[at].results[0].dtype for at in conversions}) == 1


def _first_met(
    lines: Lines, calls: list[int], met: set[StorageId]
) -> Iterator[tuple[int, Operand]]:
    """Yield the calls that made memory which was not met before, each with what it made."""
    for at in calls:
        made = lines.events[at].results[0]
        if made.storage not in met:
            met.add(made.storage)
            yield at, made


def _shown(lines: Lines, at: int, operand: Operand) -> bool:
    """Whether a call gives no more than a view of a memory, or says how it lies."""
    event, row = lines.events[at], operation(lines.events[at].operation)
    says = row.strides and not event.results and not event.writes
    return not row.leaves and bool(says or event.shows(operand))


def _goes_on(event: Event, dtype: str) -> bool:
    """Whether a call gives one wide tensor, of elements each made of those in its place."""
    row = operation(event.operation)
    alone = len(event.results) == 1 and event.results[0].dtype == dtype and not row.leaves
    return alone and bool(row.pointwise or row.exact or row.joins or row.copies)


def _small_and_wide(event: Event) -> tuple[Operand, Operand] | None:
    """Return the operand that gives its wider type to a result, and the one that has its size."""
    reads = [one for one in event.reads if _real(one.dtype)]
    if not _is_elementwise(event) or len(reads) < max(2, len(event.reads)):
        return None
    made = event.results[0]
    wide = [one for one in reads if one.dtype == made.dtype]
    narrow = [one for one in reads if element_size(one.dtype) < element_size(made.dtype)]
    large = next((one for one in narrow if one.shape == made.shape), None)
    if len(wide) + len(narrow) < len(reads) or large is None or not wide:
        return None
    small = max(wide, key=lambda one: math.prod(one.shape))
    return (small, large) if PART * math.prod(small.shape) <= math.prod(made.shape) else None


def _is_elementwise(event: Event) -> bool:
    """Whether a call makes real numbers in one new tensor, each of the elements in its place."""
    row = operation(event.operation)
    new = not event.writes and len(event.results) == 1 and _real(event.results[0].dtype)
    return new and bool(row.pointwise or row.exact)


def _promoted(lines: Lines, at: int) -> _Wide | None:
    """Return a call whose result is wide for a small operand, and is then converted back."""
    event = lines.events[at]
    operands = _small_and_wide(event)
    if operands is None:
        return None
    made = event.results[0]
    then = _conversion(lines, at, made, computed=True)
    if then == UNKNOWN or lines.events[then].results[0].dtype != operands[1].dtype:
        return None
    return _Wide(at, made, then, nbytes(made) - nbytes(operands[1]))


def _entered(lines: Lines, join: Event) -> Event | None:
    """Return the call that made a part of another library's data, where one of the user's did."""
    part = lines.history.made_at(join.reads[0].tensor)
    event = lines.events[part] if part >= 0 else None
    return event if event is not None and operation(event.operation).enters else None


def _told_of_operand(lines: Lines, found: Sequence[_Wide]) -> Slow:
    """Say which operand widens what a line computes."""
    one = max(found, key=lambda one: one.more)
    event = lines.events[one.at]
    small, large = _small_and_wide(event) or (one.made, one.made)
    total, then = sum(each.more for each in found), lines.events[one.then].operation
    name, maker = lines.history.name_of(small.tensor), lines.history.made_at(small.tensor)
    if maker >= 0:
        name += f" (line {lines.history.site_of(lines.events[maker]).line})"
    what = f"{name}, of {math.prod(small.shape):,} elements, makes {one.made.dtype} of all that"
    what += f" {event.operation} gives, {total:,} bytes more in {len(found):,} runs, and nothing"
    what += f" reads that but {then}, which makes {large.dtype} of it again"
    fix = f"Convert the small one, once: .to(torch.{large.dtype}) (it may round in another way)."
    spec = None
    if len(event.reads) == 2:
        call = f"xs['0'].{event.operation}(xs['1'])"
        narrow = [".to(dtype)" if each.dtype == one.made.dtype else "" for each in event.reads]
        fast = f"xs['0']{narrow[0]}.{event.operation}(xs['1']{narrow[1]})"
        spec = Spec(f"{call}.to(dtype)", fast, event.reads, lines.device(one.made),
                    dtype=large.dtype, grad=event.grad_mode == GRAD_ON)  # fmt: skip
    return Slow(one.at, large, len(found), total, spec, "made", what, fix, one.then)


def _told_of_join(lines: Lines, found: Sequence[_Wide]) -> Slow:
    """Say what is joined before it is converted."""
    one = max(found, key=lambda one: one.more)
    event, then = lines.events[one.at], lines.events[one.then]
    total, narrow = sum(nbytes(each.made) for each in found), then.results[0].dtype
    line = lines.history.site_of(event).line
    what = f"{event.operation} (line {line}) copies {one.made.dtype} elements, {total:,} bytes in"
    what += f" {len(found):,} runs, and nothing reads what it made but {then.operation}, which"
    what += f" makes {narrow} of them"
    part, spec = _entered(lines, event), None
    fix = "Convert the parts before they are joined."
    if part is not None:
        fix = f"Give {part.operation} (line {lines.history.site_of(part).line}) {narrow} elements:"
        fix += f" an array of NumPy's is {one.made.dtype} where it is computed with one that is."
    elif operation(event.operation).joins == "new":
        slow, fast = "torch.stack(rows).to(dtype)", "torch.stack([row.to(dtype) for row in rows])"
        spec = Spec(slow, fast, (one.made,), lines.device(one.made), dtype=narrow)
    return Slow(one.then, one.made, len(found), total, spec, "copied", what, fix)
