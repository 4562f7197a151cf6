"""Elements that are taken out of a tensor, or put into it, one call for each: part of `slow-copy`.

Reads that give numbers are told by `on_device`; here are those that stay tensors and are joined
again, and the writes of numbers.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence

from tether.facts import UNKNOWN, Operand
from tether.operations.table import operation
from tether.verdicts.slow_copy.by_rows import CALLS
from tether.verdicts.slow_copy.on_device import COUNT, Lines, Slow

FILLED = 2
"""Writes for each place along the longest dimension, from which they are of single elements."""


def by_elements(lines: Lines) -> Iterator[Slow]:
    """Give each of the user's lines that takes or puts single elements of one tensor."""
    for (_, name), places in lines.by_line.items():
        row = operation(name)
        if row.joins:
            found = _taken(lines, name, places)
        elif row.part and row.writes:
            found = _put(lines, places)
        else:
            continue
        if found is not None:
            yield found


def _taken(lines: Lines, name: str, places: Sequence[int]) -> Slow | None:
    """Find joins of single elements that calls took out of one tensor."""
    joins = [(at, source) for at in places if (source := _source(lines, at)) is not None]
    count = sum(len(lines.events[at].reads) for at, _ in joins)
    if len(joins) < len(places) or count < CALLS:
        return None
    at, source = joins[0]
    what = f"{name} joins elements that were taken out of it by one call each, {count:,} in"
    what += f" {len(joins):,} runs"
    fix = "Take them by one call: gather, or an index with a tensor for each dimension."
    return Slow(at, source, count, 0, None, "read", what, fix)


def _source(lines: Lines, at: int) -> Operand | None:
    """Return the tensor of which a join was given single elements, one call for each."""
    history, reads = lines.history, lines.events[at].reads
    if len(reads) < COUNT or any(one.shape for one in reads):
        return None
    makers = {history.made_at(one.tensor) for one in reads}
    if len(makers) < len(reads) or min(makers) < 0:
        return None
    taken = [lines.events[one] for one in makers]
    sources = {one.reads[0].tensor for one in taken if operation(one.operation).picks}
    if len(sources) != 1 or not all(operation(one.operation).picks for one in taken):
        return None
    return taken[0].reads[0]


def _put(lines: Lines, places: Sequence[int]) -> Slow | None:
    """Find writes of numbers to more places of a tensor than it has along any dimension."""
    events = [(at, lines.events[at]) for at in places]
    numbers = [(at, one) for at, one in events if len(one.reads) == 1 and one.writes]
    if len(numbers) < max(CALLS, len(places)):
        return None
    times = Counter(one.writes[0].tensor for _, one in numbers)
    at, largest = max(numbers, key=lambda one: math.prod(one[1].writes[0].shape))
    written = largest.writes[0]
    if len(written.shape) < 2 or times[written.tensor] < FILLED * max(written.shape):
        return None
    count = len(numbers)
    what = f"one call for each number that is put into it, {count:,} of {len(times):,} tensors"
    fix = "Make it of lists, by one torch.tensor(...), or join rows: pad_sequence fills them up."
    return Slow(at, written, count, 0, None, "written", what, fix, UNKNOWN)
