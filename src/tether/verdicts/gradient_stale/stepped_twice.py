"""Parameters that two optimizers step, one after the other, by one gradient.

An encoder may be among the parameters of two optimizers, as where one is given all of a model. If
both step after one backward pass, each moves it by the gradient that the other one has used. Told
is of what happens again and again: a single time may be where one takes over from the other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from tether.analysis.history import History, following
from tether.facts import Gradients, SiteId
from tether.finding import At, Claim, Repair, Step, say

LEAST = 2
"""Pairs of such steps."""


_MOVED_BY = {"some", "unchecked"}
"""What a gradient is that a step moves a tensor by, as far as it was looked at."""


class SteppedTwice(NamedTuple):
    """What two optimizers stepped by one gradient."""

    tensors: tuple[int, ...]
    first: Gradients
    second: Gradients
    times: int


def stepped_twice(history: History) -> Iterator[SteppedTwice]:
    """Yield them by the two lines that step."""
    several = {int(one) for one in history.held if len(history.holders_of(one)) > 1}
    pairs: dict[tuple[SiteId, SiteId], list[SteppedTwice]] = defaultdict(list)
    for first, second in pairwise(history.steps if several else ()):
        if first.optimizer != second.optimizer and _by_one_pass(history, first, second):
            tensors = tuple(_of_both(history, several, first, second))
            if tensors:
                found = SteppedTwice(tensors, first, second, 1)
                pairs[first.site, second.site].append(found)
    for some in pairs.values():
        if len(some) >= LEAST:
            yield some[0]._replace(times=len(some))


def _by_one_pass(history: History, first: Gradients, second: Gradients) -> bool:
    """Whether no pass came between two steps, of which neither called the other."""
    one, other = (history.position(fact.at) for fact in (first, second))
    apart = all(history.inside(history.events[at], "step") < 0 for at in (one, other) if at >= 0)
    return 0 <= one < other < history.next_pass(one) and apart


def _of_both(
    history: History, several: set[int], first: Gradients, second: Gradients
) -> Iterator[int]:
    """Yield the tensors whose gradient both steps used, neither set nor cleared in between."""
    since, until = (history.position(fact.at) for fact in (first, second))
    for tensor, status in second.status.items():
        used = _MOVED_BY.issuperset((status, first.status.get(tensor, "none")))
        if tensor in several and used:
            replaced = following(history.gradients_replaced.get(tensor, ()), since)
            if not since < replaced < until:
                yield tensor


def claims(history: History) -> Iterator[Claim]:
    """Give one claim for each pair of lines."""
    for found in stepped_twice(history):
        yield _claim(history, found)


def _claim(history: History, found: SteppedTwice) -> Claim:
    first, second = found.first.site, found.second.site
    makers = [history.trace.optimizers[fact.optimizer] for fact in (found.first, found.second)]
    one, other = (maker.kind for maker in makers)
    parts = {"one": one, "other": other, "first": At(first), "second": At(second)}
    return Claim(
        tensors=found.tensors,
        cause=("stepped twice", first, second),
        site=second,
        operation="step",
        severity="note",
        message=say(
            "Two optimizers step {subject} by one gradient: {one} at {first}, and {other} at"
            " {second} without a backward pass in between ({n} times).",
            n=found.times, **parts,
        ),
        story=(
            *(Step("held", maker.site, say("{kind} is given it", kind=maker.kind))
              for maker in makers),
            Step("step", first, say("{one} steps by the gradient", **parts)),
            Step("step", second, say("{other} steps by the same gradient again", **parts)),
        ),
        repair=Repair(say("Give each parameter to one optimizer; or clear the gradients and compute"
                          " them anew before {second}.", **parts)),
        count=found.times,
    )  # fmt: skip
