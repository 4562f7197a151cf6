"""Work on one number at a time of what a tensor holds: part of `slow-copy`.

On single elements, each taken and computed with by calls of its own; or on a whole tensor, gone
through anew for each number that is looked for in it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise

from tether.facts import Operand
from tether.operations.table import operation
from tether.verdicts.slow_copy.by_rows import CALLS, is_choice
from tether.verdicts.slow_copy.on_device import COUNT, LARGE, READS, Lines, Slow

SETTINGS = 48
"""Elements of a tensor that may be settings, one for each channel or layer, used as such."""

LOOKED = 8
"""Runs of a line of which is asked what else they were given."""

FAR = 50
"""Calls behind an operand that are looked through."""

Runs = list[tuple[int, Operand]]
"""Positions of calls, each with the operand that is asked about."""


def by_numbers(lines: Lines) -> Iterator[Slow]:
    """Give each of the user's lines that works so."""
    for (_, name), places in lines.by_line.items():
        row, found = operation(name), None
        if row.leaves == "truth" or (row.pointwise and not (row.writes or row.copies)):
            found = _singly(lines, places)
        if found is None and (row.selects == "comparison" or row.leaves == "answer"):
            found = _gone_through(lines, places)
        if found is not None:
            yield found


# -- element by element ----------------------------------------------------------------------------


def _singly(lines: Lines, places: Sequence[int]) -> Slow | None:
    """Find calls that are each given another element of one tensor, in loops that do little else.

    Not where a turn needs what came of the one before, unless that is all there is to it: a sum.
    """
    singly = [at for at in places if lines.single[at]]
    if len(singly) < READS:
        return None
    runs = [(at, one) for at in singly if (one := _element(lines, at)) is not None]
    best = max(_of_one_tensor(runs).values(), key=len, default=[])
    offsets = set(_offsets(lines, best))
    if len(offsets) <= SETTINGS or len(runs) < READS:
        return None
    at, element = best[0]
    graded = any(one.requires_grad for one in (*lines.events[at].results, element))
    if len(runs) * _single_calls(lines, best) < CALLS or _carried(lines, best):
        return None
    what = f"{len(offsets):,} of its elements are taken one by one, and calls of their own compute"
    what += f" with each, {lines.events[at].operation} in {len(best):,} runs"
    fix = "Compute for the whole tensor, by one call for all elements"
    fix += "." if graded else "; where that cannot be, take them all at once, .tolist(), and go on"
    fix += "" if graded else " with numbers of Python."
    return Slow(at, element, len(best), 0, None, "read", what, fix)


def _offsets(lines: Lines, runs: Runs) -> Iterator[int]:
    """Yield where the elements of one tensor lie that calls were given, however many each."""
    for at, element in runs:
        for one in lines.events[at].reads:
            if (one.storage, one.dtype) == (element.storage, element.dtype):
                yield one.offset


def _element(lines: Lines, at: int) -> Operand | None:
    """Return the element of a larger tensor that a call was given, if it was given no more."""
    event = lines.events[at]
    if any(math.prod(one.shape) != 1 for one in (*event.reads, *event.results)):
        return None
    return next((one for one in event.reads if _is_part(lines, one)), None)


def _is_part(lines: Lines, operand: Operand) -> bool:
    """Whether an operand is one element of a memory that has many."""
    made = lines.history.made_at(operand.tensor)
    event = lines.events[made] if made >= 0 else None
    if event is None or not event.reads or event.reads[0].storage != operand.storage:
        return False
    return lines.history.trace.storages[operand.storage].nbytes >= COUNT


def _single_calls(lines: Lines, runs: Runs) -> int:
    """Return how many calls a turn makes on single elements; 0 where others are worth a word.

    With a tenth of the calls left to make it is no longer several times faster.
    """
    events = [lines.events[at] for at in range(runs[0][0], runs[-1][0] + 1)]
    computed = [event for event in events if not is_choice(event)]
    single = sum(all(math.prod(one.shape) == 1 for one in event.results) for event in computed)
    return len(events) // len(runs) if 10 * single >= 9 * len(computed) else 0


def _carried(lines: Lines, runs: Runs) -> bool:
    """Whether what a run was given was computed of what the run before gave."""
    flow = lines.history.flow
    for (before, _), (at, _) in list(pairwise(runs))[:: max(1, len(runs) // LOOKED)]:
        for one in lines.events[at].reads:
            made = lines.history.made_at(one.tensor)
            if made > before and before in flow.behind(made, FAR):
                return True
    return False


def _of_one_tensor(runs: Runs) -> dict[tuple[object, ...], Runs]:
    found: dict[tuple[object, ...], Runs] = defaultdict(list)
    for at, one in runs:
        found[one.storage, one.version, one.dtype].append((at, one))
    return found


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
    what = _compared(whole, groups)
    fix = "Ask for all numbers by one call: compare along a new dimension, or sort it once and use"
    fix += " torch.searchsorted; to count or add up by number there is torch.bincount, index_add_."
    return Slow(at, whole, count, 0, None, "compared", what, fix)


def _compared(whole: Operand, groups: list[Runs]) -> str:
    """Say how often all of a tensor was compared, and how often others were."""
    own = sum(len(some) for some in groups if some[0][1].storage == whole.storage)
    count = sum(map(len, groups))
    elements = sum(math.prod(one.shape) for some in groups for _, one in some)
    what = (
        f"all of its {math.prod(whole.shape):,} elements with one number in each of {own:,} runs,"
    )
    if own < count:
        what += f" and so others in {count - own:,} runs,"
    return f"{what} {elements:,} comparisons in all"


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
    if len(large) != 1 or math.prod(large[0].shape) < COUNT:
        return None
    return large[0] if all(one.shape == large[0].shape for one in event.results) else None
