"""Lines that make a new optimizer for each step, of a kind that goes by earlier steps.

What it kept of their gradients (a momentum, averages) goes with it. Where the program gives the
parameters other values in between, a new beginning is what is meant.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from tether.analysis.history import History
from tether.facts import OptimizerId
from tether.finding import At, Claim, Repair, Step, say

LEAST = 3
"""Optimizers of one line: two may be two phases of a training."""


class BegunAnew(NamedTuple):
    """A line whose optimizers took one step each."""

    optimizer: OptimizerId  # one of them
    step: int  # its step
    times: int


def begun_anew(history: History) -> Iterator[BegunAnew]:
    """Yield the lines that make an optimizer of the same tensors for each step."""
    steps: dict[int, list[int]] = defaultdict(list)
    for one in history.steps:
        steps[one.optimizer].append(history.position(one.at))
    lines: dict[object, list[int]] = defaultdict(list)
    for number, fact in enumerate(history.trace.optimizers):
        if fact.tensors:
            lines[fact.site, fact.tensors].append(number)
    for numbers in lines.values():
        taken = [steps[one] for one in numbers]
        only = [some[0] for some in taken if len(some) == 1]
        if LEAST <= len(numbers) == len(only) and _begins(history, only):
            yield BegunAnew(OptimizerId(numbers[0]), only[0], len(numbers))


def _begins(history: History, steps: list[int]) -> bool:
    """Whether each step was the first of an optimizer that keeps something, on trained values."""
    return all(history.events[at].keeps for at in steps) and not _set_between(history, steps)


def _set_between(history: History, steps: list[int]) -> bool:
    """Whether something but steps wrote the tensors between steps, or a closure is stepped with."""
    events = history.events
    if any(history.inside(events[at], "closure") >= 0 for at in history.backwards):
        return True
    known = set(steps)
    return any(
        steps[0] < at < steps[-1] and at not in known
        for one in events[steps[0]].writes[:1]
        for at in history.writes_to(one)
    )


def claims(history: History) -> Iterator[Claim]:
    """Give one claim for each such line."""
    for found in begun_anew(history):
        yield _claim(history, found)


def _claim(history: History, found: BegunAnew) -> Claim:
    fact = history.trace.optimizers[found.optimizer]
    step = history.events[found.step].site
    return Claim(
        tensors=tuple(fact.tensors),
        cause=("anew", fact.site),
        site=fact.site,
        operation=fact.kind,
        message=say(
            "The {n} optimizers of {subject} that {line} made took one step each: what {kind} keeps"
            " of the gradients of earlier steps is lost each time.",
            line=At(fact.site), n=found.times, kind=fact.kind,
        ),
        story=(
            Step("made", fact.site, say("a new {kind} is made here", kind=fact.kind)),
            Step("step", step, say("it takes its only step")),
        ),
        repair=Repair(say("Make the optimizer once, before the loop.")),
        count=found.times,
    )  # fmt: skip
