"""Steps that take the gradients of fewer passes than the loss of each was divided by.

Where gradients are accumulated over so many passes, each loss is divided by their number. At the
end of an epoch fewer may be left: their step takes a part of a mean only.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import NamedTuple

from tether.analysis.history import History
from tether.analysis.stepped_apart import DividedPasses, divided_passes

LEAST = 2
"""Steps with as many passes as the loss is divided by: one may be a chance."""


class ShortWindow(NamedTuple):
    """A line of passes, some of whose steps have fewer of them; positions."""

    backward: int  # the first pass of such a step
    divided: int  # the call that divides the loss
    step: int  # the first such step
    number: int  # that all losses are divided by
    passes: int  # of that step
    short: int  # how many such steps
    full: int  # steps with as many passes as that
    tensors: tuple[int, ...]


def short_windows(history: History) -> Iterator[ShortWindow]:
    """Yield each line of passes that has both kinds of steps, and no other."""
    for line in divided_passes(history):
        windows = {step: passes for step, passes in _windows(line) if passes}
        full = [step for step, passes in windows.items() if len(passes) == line.number]
        short = [step for step, passes in windows.items() if len(passes) < line.number]
        if not short or len(full) < max(LEAST, len(short)):
            continue  # no step has fewer, or most have
        if len(full) + len(short) < len(windows):
            continue
        usual = {one for step in full for one in _done_between(history, windows[step][-1], step)}
        first, passes = short[0], windows[short[0]]
        if usual >= _done_between(history, passes[-1], first):
            yield ShortWindow(
                passes[0], line.divided, first, line.number, len(passes), len(short), len(full),
                line.tensors,
            )  # fmt: skip


def _windows(line: DividedPasses) -> Iterator[tuple[int, list[int]]]:
    """Yield each step with the passes since the one before it."""
    since = 0
    for step in line.steps:
        until = bisect_left(line.passes, step)
        yield step, line.passes[since:until]
        since = until


def _done_between(history: History, backward: int, step: int) -> set[int]:
    """Return the lines that write something between a pass and a step: a scaling may be one."""
    events = history.events
    return {events[at].site for at in range(backward + 1, step) if events[at].writes}
