"""Lines that compute a part of some losses, where a scaler left out the step of each of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from tether.analysis.gradients.graph import Graph
from tether.analysis.history import History, latest, shortened
from tether.facts import UNKNOWN, SiteId
from tether.finding import At, Claim, Repair, Step, say
from tether.operations.table import operation

LEAST_STEPS = 2
"""Losses without the part, that a step used."""

LEAST_SKIPPED = 3
"""Steps that a scaler must have left out, all with a part of a loss: the first few may be, until
its scale has fallen."""


class SkippedPart(NamedTuple):
    """A part of a loss of whose passes a gradient scaler let no step come."""

    call: int  # the last call of the part, in one of the passes
    backward: int
    rescaled: int  # the call of the scaler that came next
    times: int
    stepped: int  # passes without the part that a step came after
    meant: bool  # values of the pass were read before the part, or it may have been tried again


class _Window(NamedTuple):
    since: int  # the scaler's call before
    backward: int
    until: int  # the scaler's call after it
    stepped: bool


def skipped_parts(history: History) -> Iterator[SkippedPart]:
    """Yield what no step ever used, since the scaler left out each that was to."""
    windows = _windows(history)
    skipped = [number for number, one in enumerate(windows) if not one.stepped]
    others = len(windows) - len(skipped)
    if len(skipped) < LEAST_SKIPPED or others < LEAST_STEPS or history.in_part:
        return
    for calls in _parts(history, windows, skipped):
        number = list(calls)[1]  # before the first one, more may be read
        since, backward, until, _ = windows[number]
        first, last = min(calls[number]), max(calls[number])
        meant = _read(history, since, first) or _tried_again(history, windows, set(calls))
        yield SkippedPart(last, backward, until, len(calls), others, meant)


def _windows(history: History) -> list[_Window]:
    """Return the last pass before each call of a scaler, and whether a step came after it."""
    found, steps = list[_Window](), sorted(history.position(one.at) for one in history.steps)
    updates = [at for at, _ in history.events.where(lambda name: operation(name).rescales)]
    for since, until in pairwise([UNKNOWN, *updates]):
        backward = latest(history.backwards, until)
        if backward > since:
            found.append(_Window(since, backward, until, latest(steps, until) > since))
    return found


def _parts(
    history: History, windows: list[_Window], skipped: list[int]
) -> Iterator[dict[int, list[int]]]:
    """Yield calls with a graph that only skipped windows have, of lines that go together."""
    others = _lines(history, windows, set(skipped), inside=False)
    found: dict[SiteId, dict[int, int]] = defaultdict(dict)  # line -> window -> its last call
    for number in skipped:
        for at in sorted(history.get(Graph).behind(windows[number].backward)):
            if at > windows[number].since:
                found[history.events[at].site][number] = at
    groups: dict[tuple[int, ...], dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for site, calls in found.items():
        if site not in others and len(calls) >= LEAST_SKIPPED:
            for number, at in calls.items():
                groups[tuple(calls)][number].append(at)
    yield from groups.values()


def _lines(
    history: History, windows: list[_Window], numbers: set[int], *, inside: bool
) -> set[SiteId]:
    """Return the lines of calls with a graph that are in some windows, or outside of them all."""
    chosen = np.full(len(history.events), not inside)
    for number in numbers:
        chosen[windows[number].since + 1 : windows[number].until] = inside
    sites = history.events.column("site")[chosen & (history.events.column("kind") >= 0)]
    return set(map(SiteId, sites.tolist()))


def _read(history: History, since: int, until: int) -> bool:
    """Whether a value that was computed after a call was read before another one."""
    return any(
        operation(event.operation).leaves and history.made_at(one.tensor) > since
        for event in history.events[since + 1 : until]
        for one in event.reads
    )


def _tried_again(history: History, windows: list[_Window], numbers: set[int]) -> bool:
    """Whether steps right after those that were left out have lines that no others have."""
    after = {one + 1 for one in numbers if one + 1 < len(windows) and windows[one + 1].stepped}
    others = {number for number, one in enumerate(windows) if one.stepped} - after
    again = _lines(history, windows, after, inside=True)
    return not again <= _lines(history, windows, others, inside=True)


def claims(history: History) -> Iterator[Claim]:
    """Give one claim for each such line."""
    for found in skipped_parts(history):
        yield _claim(history, found)


def _claim(history: History, found: SkippedPart) -> Claim:
    part, loss, rescaled = (
        history.events[at].site for at in (found.call, found.backward, found.rescaled)
    )
    return Claim(
        tensors=(),
        cause=("skipped", part),
        site=part,
        calls=(found.call,),
        operation=history.events[found.call].operation,
        severity="note" if found.meant else "warning",
        message=say(
            "No step ever used what {part} computes: it is behind the losses of {n} passes, and the"
            " gradient scaler left out the step after each of them. {m} steps came after passes"
            " without it.",
            part=At(part), n=found.times, m=found.stepped,
        ),
        subject=shortened(history.site(part).expression),
        story=(
            Step("used", part, say("this is a part of some losses only")),
            Step("made", loss, say("backward of such a loss fills the gradients")),
            Step("cleared", rescaled, say("the scaler goes on, and no step was taken")),
        ),
        repair=Repair(say("Keep the scale at which such a loss overflows from coming back: a larger"
                          " growth_interval of the scaler than the passes between, or a smaller"
                          " loss; or repeat a step that was left out.")),
        count=found.times,
    )  # fmt: skip
