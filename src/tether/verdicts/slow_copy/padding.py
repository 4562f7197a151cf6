"""The calls that leave padding out where there is none: part of `slow-copy`."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator

from tether.analysis.copies.already_there import nbytes
from tether.operations.table import operation, shown
from tether.verdicts.slow_copy.on_device import LARGE, STEPS, Lines, Slow


def no_padding(lines: Lines) -> Iterator[Slow]:
    """Give each line that packed sequences of which, in all its runs, none was shorter."""
    runs: dict[int, list[int]] = defaultdict(list)
    for at, event in lines.events.where(lambda name: operation(name).unpads):
        if not event.raised and event.reads and event.results:
            runs[event.site].append(at)
    for places in runs.values():
        total = sum(nbytes(lines.events[at].results[0]) for at in places)
        whole = all(_leaves_nothing_out(lines, at) for at in places)
        if not whole or len(places) < STEPS or total < LARGE or lines.history.in_part:
            continue
        at = places[0]
        name = shown(lines.events[at].operation)
        what = f"{name} leaves no padding out, all sequences being of one length, and copies"
        what += f" {total:,} bytes in {len(places):,} runs"
        fix = "Give the batch as it is to what reads it, where no sequence is shorter than others."
        yield Slow(at, lines.events[at].results[0], len(places), total, None, "copied", what, fix)


def _leaves_nothing_out(lines: Lines, at: int) -> bool:
    """Whether a call gave as many elements as it was given."""
    event = lines.events[at]
    return math.prod(event.reads[0].shape) == math.prod(event.results[0].shape)
