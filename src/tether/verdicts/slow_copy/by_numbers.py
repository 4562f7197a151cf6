"""Numbers that are computed and read one by one of what one tensor holds: part of `slow-copy`.

Of single elements, each taken, computed with and read by calls of its own; or of a whole tensor
that is gone through anew for each number that is looked for in it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise

from tether.facts import Operand
from tether.operations.table import operation
from tether.verdicts.slow_copy.by_rows import CALLS
from tether.verdicts.slow_copy.on_device import COUNT, LARGE, READS, Lines, Slow

STEPS_BACK = 8
"""Calls on single elements between a number that is read and the element it was computed of."""

Runs = list[tuple[int, Operand]]
"""Positions of calls, each with the operand that is asked about."""


def by_numbers(lines: Lines) -> Iterator[Slow]:
    """Give each of the user's lines that reads numbers so."""
    for (_, name), places in lines.by_line.items():
        row, found = operation(name), None
        if row.leaves in ("number", "truth"):
            found = _computed_singly(lines, places)
        elif row.selects == "comparison":
            found = _gone_through(lines, places)
        if found is not None:
            yield found


# -- element by element ----------------------------------------------------------------------------


def _computed_singly(lines: Lines, places: Sequence[int]) -> Slow | None:
    """Find numbers that are each computed of an element of one tensor, by calls of their own."""
    origins: Runs = []
    calls = 0
    for at in places:
        element, count = _element_behind(lines, at)
        if element is not None:
            origins.append((at, element))
            calls += count
    best = max(_of_one_tensor(origins).values(), key=len, default=[])
    offsets = {one.offset for _, one in best}
    if len(offsets) < COUNT or len(origins) < READS or calls < CALLS:
        return None
    at, element = best[0]
    name = lines.events[at].operation
    what = (
        f"{calls:,} calls take {len(offsets):,} of its elements one by one, compute with each and"
    )
    what += f" read {len(origins):,} numbers"
    fix = "Compute for the whole tensor, by one call for all elements; where that cannot be, take"
    fix += " them all at once, .tolist(), and go on with numbers of Python."
    if name == "__bool__":
        fix = "Ask for all elements at once: a comparison of whole tensors, a mask, torch.where;"
        fix += " where that cannot be, take them all, .tolist(), and ask numbers of Python."
    return Slow(at, element, len(origins), 0, None, "read", what, fix)


def _of_one_tensor(runs: Runs) -> dict[tuple[object, ...], Runs]:
    found: dict[tuple[object, ...], Runs] = defaultdict(list)
    for at, one in runs:
        found[one.storage, one.version, one.dtype].append((at, one))
    return found


def _element_behind(lines: Lines, at: int) -> tuple[Operand | None, int]:
    """Return the element of a larger tensor that a number was computed of, and by how many calls.

    None where there was nothing but to read it, which is told elsewhere, and where it was computed
    of more than single elements.
    """
    reads, calls = lines.events[at].reads, 1
    computed = operation(lines.events[at].operation).leaves == "truth"
    for _ in range(STEPS_BACK):
        element = next((one for one in reads if _is_part(lines, one)), None)
        if element is not None:
            return (element, calls + 1) if computed else (None, 0)
        made = lines.history.made_at(reads[0].tensor) if reads else -1
        if made < 0:
            break
        event = lines.events[made]
        single = all(math.prod(one.shape) == 1 for one in event.reads)
        if event.writes or not (single and operation(event.operation).pointwise):
            break
        reads, computed, calls = event.reads, True, calls + 1
    return None, 0


def _is_part(lines: Lines, operand: Operand) -> bool:
    """Whether an operand is one element of a memory that has many."""
    if math.prod(operand.shape) != 1:
        return False
    made = lines.history.made_at(operand.tensor)
    event = lines.events[made] if made >= 0 else None
    if event is None or not event.reads or event.reads[0].storage != operand.storage:
        return False
    return lines.history.trace.storages[operand.storage].nbytes >= COUNT


# -- one number looked for at a time ---------------------------------------------------------------


def _gone_through(lines: Lines, places: Sequence[int]) -> Slow | None:
    """Find comparisons of all of an unwritten tensor with one number, for many numbers in turn."""
    runs = [(at, one) for at in places if (one := _all_with_one(lines, at)) is not None]
    groups = [part for some in _of_one_tensor(runs).values() for part in _in_a_row(some)]
    groups = [some for some in groups if len(some) >= COUNT]
    count = sum(map(len, groups))
    elements = sum(math.prod(one.shape) for some in groups for _, one in some)
    if count < READS or (count < CALLS and elements < LARGE) or 2 * count < len(places):
        return None
    at, whole = max(groups, key=len)[0]
    many = math.prod(whole.shape)
    what = f"all of its {many:,} elements with one number in each of {count:,} runs,"
    what += f" {elements:,} comparisons in all"
    fix = "Ask for all numbers by one call: compare along a new dimension, or sort it once and use"
    fix += " torch.searchsorted; to count or add up by number there is torch.bincount, index_add_."
    return Slow(at, whole, count, 0, None, "compared", what, fix)


def _in_a_row(runs: Runs) -> Iterator[Runs]:
    """Yield the runs of one loop after those of another: turns make about as many calls each."""
    gaps = [after - before for (before, _), (after, _) in pairwise(runs)]
    usual, begun = sorted(gaps)[len(gaps) // 2] if gaps else 0, 0
    for n, gap in enumerate(gaps, 1):
        if gap > 2 * usual:
            yield runs[begun:n]
            begun = n
    yield runs[begun:]


def _all_with_one(lines: Lines, at: int) -> Operand | None:
    """Return the tensor that a call compared with a single number, if it has many elements."""
    event = lines.events[at]
    large = [one for one in event.reads if math.prod(one.shape) > 1]
    if len(large) != 1 or math.prod(large[0].shape) < COUNT or len(event.results) != 1:
        return None
    return large[0] if event.results[0].shape == large[0].shape else None
