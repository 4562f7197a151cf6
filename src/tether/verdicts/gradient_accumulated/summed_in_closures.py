"""Closures of one step whose backward passes add up: each evaluation of the loss leaves its own.

An optimizer that asks for the loss several times in a step (LBFGS) takes what it finds in `.grad`
after each call for the gradient of that call.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from tether.analysis.gradients.graph import Graph
from tether.analysis.history import History
from tether.facts import SiteId, Span
from tether.finding import At, Claim, Repair, Step, say

LEAST_CALLS = 3
"""Calls of a closure in one step, of which none cleared what the one before had given."""

CLEARS = ("zero_grad", "grad.__set__")


class SummedInClosures(NamedTuple):
    """A line of passes within the closure of one step: positions."""

    step: SiteId
    backward: int  # the first of the passes
    passes: int
    tensors: tuple[int, ...]


def summed_in_closures(history: History) -> Iterator[SummedInClosures]:
    """Yield the first step of each line of passes whose closures clear nothing."""
    told = set[SiteId]()
    cleared = np.flatnonzero(history.events.called(CLEARS.__contains__)).tolist()
    for step, passes in _passes_of_steps(history):
        site = history.events[passes[0]].site
        between = ((one, at) for one, at in pairwise(passes))
        if site in told or len(passes) < LEAST_CALLS:
            continue
        if any(any(one < at < then for at in cleared) for one, then in between):
            continue
        tensors = _added_to(history, passes)
        if tensors:
            told.add(site)
            yield SummedInClosures(step.site, passes[0], len(passes), tensors)


def _passes_of_steps(history: History) -> Iterator[tuple[Span, list[int]]]:
    """Yield each step whose closure ran, with the last backward pass of each of its calls."""
    spans = history.trace.spans
    last: dict[int, dict[int, int]] = defaultdict(dict)  # step -> closure -> its last pass
    for at in history.backwards:
        event = history.events[at]
        closure = history.inside(event, "closure") if event.operation == "backward" else -1
        if closure >= 0 and not event.raised and spans[closure].parent >= 0:
            last[spans[closure].parent][closure] = at
    for step, passes in last.items():
        yield spans[step], list(passes.values())


def _added_to(history: History, passes: list[int]) -> tuple[int, ...]:
    """Return what an optimizer holds that a pass leads to, and whose gradient nobody asked for."""
    led = {int(one) for one in history.get(Graph).leaves_led_to(passes[0])}
    asked = {
        one.tensor for _, event in history.events.where("grad.__get__".__eq__)
        for one in event.reads[:1]
    }  # fmt: skip
    return tuple(sorted(led & history.held - asked, key=lambda one: history.order.get(one, 0)))


def claims(history: History) -> Iterator[Claim]:
    """Give one claim for each such line."""
    for found in summed_in_closures(history):
        yield _claim(history, found)


def _claim(history: History, found: SummedInClosures) -> Claim:
    site = history.events[found.backward].site
    return Claim(
        tensors=found.tensors,
        cause=("closure", site),
        site=site,
        operation="backward",
        message=say(
            "Backward at {line} runs {n} times for the step at {step}, and nothing clears the"
            " gradient of {subject} in between: each call of the closure gives the sum of all"
            " before it.",
            line=At(site), n=found.passes, step=At(found.step),
        ),
        story=(
            Step("made", site, say("each call of the closure adds to the gradient here")),
            Step("step", found.step, say("the step calls the closure again and again")),
        ),
        repair=Repair(say("Clear the gradients in the closure, before backward.")),
        count=found.passes,
        calls=(found.backward,),
    )  # fmt: skip
