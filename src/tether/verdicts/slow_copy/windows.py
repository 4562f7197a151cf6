"""Windows that move on by a join of what they had, without its begin, and more: of `slow-copy`.

All that stays is copied at each step. In a memory of twice the size it stays where it is: each new
part is written behind the last, and the window is a slice, which lies in one piece as before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from tether.analysis.already_there import nbytes
from tether.analysis.graph import Graph
from tether.analysis.layouts import contiguous, same_strides
from tether.facts import UNKNOWN, Operand
from tether.operations.table import operation
from tether.verdicts.slow_copy.on_device import LARGE, STEPS, Lines, Slow

PART = 4
"""How many times more is moved than the window has, from which it is told."""

FIX = (
    "Make a memory of twice the size once, write each new part behind the last, and read the slice"
    " that is the window; copy that to the front when the memory is full."
)


def windows(lines: Lines) -> Iterator[Slow]:
    """Give each of the user's lines that joins a window anew at each step."""
    for (_, name), places in lines.by_line.items():
        if operation(name).joins and len(places) > STEPS:
            found = _moved(lines, places)
            if found is not None and not lines.needless(found.at):
                yield found


def _moved(lines: Lines, places: Sequence[int]) -> Slow | None:
    """Return a line of which nearly each run was given a part of what the run before had made."""
    stays = [one for before, at in pairwise(places) if (one := _stays(lines, before, at))]
    last = places[-1]
    made = lines.events[last].results
    if len(stays) < STEPS or 2 * len(stays) < len(places) or not made:
        return None
    total = sum(map(nbytes, stays))
    if total < max(LARGE, PART * nbytes(made[0])):
        return None
    name = lines.events[last].operation
    what = f"{name} copies what stays of the window, as it moves on, at each of {len(stays):,}"
    what += f" steps, {total:,} bytes for {nbytes(made[0]):,}"
    return Slow(last, made[0], len(places), total, None, "copied", what, FIX)


def _stays(lines: Lines, before: int, at: int) -> Operand | None:
    """Return the part of what one run made that the next begins with, if no more was done with it.

    What is written, has a gradient or is read later on needs memory of its own.
    """
    old, new = lines.events[before], lines.events[at]
    if len(old.results) != 1 or len(new.results) != 1 or len(new.reads) < 2:
        return None
    window, part, made = old.results[0], new.reads[0], new.results[0]
    if part.storage != window.storage or window[4:7] != made[4:7] or made.requires_grad:
        return None
    return part if _is_end(part, window) and _is_done_with(lines, window, before, at) else None


def _is_end(part: Operand, window: Operand) -> bool:
    """Whether a part is what is left of a window without its begin, in one piece."""
    if part.offset <= window.offset or len(part.shape) != len(window.shape):
        return False
    shorter = [a < b for a, b in zip(part.shape, window.shape, strict=True) if a != b]
    whole = same_strides(part.shape, part.strides, contiguous(part.shape))
    return shorter == [True] and whole


def _is_done_with(lines: Lines, window: Operand, before: int, at: int) -> bool:
    """Whether a window was only read, until the next one was made, and went then."""
    history = lines.history
    touched = history.on_storage(window)
    freed = history.trace.storages[window.storage].freed
    if touched[-1] > at or freed == UNKNOWN or any(True for _ in history.writes_to(window, before)):
        return False
    if any(operation(lines.events[one].operation).lends for one in touched):
        return False
    # Autograd refuses a later write to what a call saved, as long as that may be asked for.
    graph = history.get(Graph)
    saved = any(one.storage == window.storage for each in touched for one in graph.saved(each))
    return not saved or history.position(freed) <= at + 1
