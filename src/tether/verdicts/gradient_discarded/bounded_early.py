"""Lines that bound gradients to which backward adds before the step.

A greatest norm, or a greatest value, is meant for what the step uses. A line that comes before the
last pass of an accumulation bounds a part of it: what later passes add is not bounded with it, and
where the line runs after each of them, what an early pass gave is scaled again for each later one.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from tether.analysis.history import History, latest
from tether.facts import Operand, SiteId
from tether.finding import At, CallOf, Claim, Repair, Step, say
from tether.verdicts.gradient_discarded.scaled_changes import Bounds, gradients_asked

LEAST_STEPS = 2
"""Steps that used such a sum: one may be an accident."""

MOST_GRADIENTS = 64
"""Gradients of one tensor that are looked at; later ones are of the same lines."""


class BoundedEarly(NamedTuple):
    """A line that bounds a gradient, which then grows until a step uses it."""

    write: int  # the first call that did so
    tensors: tuple[int, ...]  # whose gradients
    added: int  # the last pass that adds to what was bounded
    step: int  # position of the step that uses the sum
    passes: int  # that gave the sum
    again: bool  # the sum is bounded as well
    alike: bool  # all these passes are of one line
    steps: int  # that used such a sum


class _SumOfPasses(NamedTuple):
    """A gradient that a step used, by positions."""

    passes: list[int]  # after each pass that added to it
    step: int


def bounded_early(history: History) -> Iterator[BoundedEarly]:
    """Yield each line once, with the tensors whose gradients it bounds."""
    if not history.whole:
        return
    bounds, found = Bounds(history), dict[SiteId, BoundedEarly | None]()
    tensors: dict[SiteId, list[int]] = defaultdict(list)
    for tensor, gradients in _gradients(history).items():
        sums = _sums(history, tensor)
        # Of gradients that one pass gives nothing is asked: that is most of all training.
        calls = _bounding(history, bounds, gradients[:MOST_GRADIENTS]) if sums else []
        for line in {history.events[at].site for at in calls}:
            tensors[line].append(tensor)
            if line not in found:
                found[line] = _early(history, line, calls, sums)
    for line, one in found.items():
        if one is not None:
            yield one._replace(tensors=tuple(tensors[line]))


def _gradients(history: History) -> dict[int, list[Operand]]:
    """Return the gradients that lines asked of each tensor that a step used."""
    found: dict[int, dict[int, Operand]] = defaultdict(dict)
    for tensor, one in gradients_asked(history):
        if tensor in history.held:
            found[tensor].setdefault(one.tensor, one)
    return {tensor: list(gradients.values()) for tensor, gradients in found.items()}


def _bounding(history: History, bounds: Bounds, gradients: list[Operand]) -> list[int]:
    """Return the calls that bound one of some gradients, in order."""
    return sorted(
        {
            at
            for one in gradients
            for at in history.on_storage(one)
            if bounds.is_bound(at, one, latest(history.backwards, at))
        }
    )


def _sums(history: History, tensor: int) -> list[_SumOfPasses]:
    """Return the gradients of a tensor that are sums of several passes."""
    steps, found = history.steps_of(tensor), list[_SumOfPasses]()
    passes, ends = history.graded_after(tensor), history.gradients_replaced.get(tensor, ())
    for step in steps:
        since = max(latest(steps, step), latest(ends, step))
        some = passes[bisect_right(passes, since) : bisect_right(passes, step)]
        if len(some) > 1:
            found.append(_SumOfPasses(some, step))
    return found


def _early(
    history: History, line: SiteId, calls: list[int], sums: list[_SumOfPasses]
) -> BoundedEarly | None:
    """Tell of a line that bounds each sum before it is complete, or after each pass."""
    own = [at for at in calls if history.events[at].site == line]
    found = [(_within(own, one.passes[0], one.step), one) for one in sums]
    early = [(some, one) for some, one in found if some]
    again = {bool(_within(calls, one.passes[-1], one.step)) for _, one in early}
    complete = any(some[0] >= one.passes[-1] for some, one in early)
    if complete or len(early) < LEAST_STEPS or len(again) > 1:
        return None
    (write, *_), one = early[0]
    added = [latest(history.backwards, at) for at in one.passes]
    alike = len({history.events[at].site for at in added}) == 1
    return BoundedEarly(write, (), added[-1], one.step, len(added), again.pop(), alike, len(early))


def _within(calls: list[int], since: int, until: int) -> list[int]:
    """Return the calls from a moment on, and before another."""
    return calls[bisect_left(calls, since) : bisect_left(calls, until)]


def claims(history: History) -> Iterator[Claim]:
    """Give one claim for each such line."""
    for found in bounded_early(history):
        yield _claim(history, found)


def _claim(history: History, found: BoundedEarly) -> Claim:
    events = history.events
    written, added = events[found.write].site, events[found.added].site
    parts = {
        "written": At(written), "added": At(added), "step": At(events[found.step].site),
        "passes": found.passes, "n": found.steps, "call": CallOf(found.write),
    }  # fmt: skip
    then = (
        "what an early pass gave is scaled again after each later one, for each of {n} steps."
        if found.again
        else "nothing limits the sum that {step} uses, in each of {n} steps."
    )
    return Claim(
        tensors=found.tensors,
        cause=("in part", written),
        site=written,
        calls=(found.write,),
        operation=events[found.write].operation,
        severity="warning" if found.alike and not found.again else "note",
        message=say(
            "The gradient of {subject} is limited at {written} as the sum of a part of {passes}"
            " passes; backward at {added} adds to it, and " + then,
            **parts,
        ),
        story=(
            Step("written", written, say("it is limited here, before all passes have added to it")),
            Step("made", added, say("this pass adds to what was limited")),
            Step("step", events[found.step].site, say("the optimizer uses the sum")),
        ),
        repair=Repair(
            say("Limit the gradients once for each step, after its last pass of backward.", **parts)
        ),
        count=found.steps,
    )  # fmt: skip
