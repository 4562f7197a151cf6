"""Gradients that a line of the program asks for when they are not there: None, each time.

The line changes parameters by their gradients itself, and finds those of the others. Of one it
never finds any, though each backward pass gives it one: the line runs before that, in a hook or on
the wrong side of what clears the gradients, and what is given later is cleared before it runs
again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from tether.analysis.history import History, following
from tether.facts import UNKNOWN, SiteId
from tether.finding import At, Claim, Repair, Step, say

LEAST_PASSES = 3
"""Backward passes after which it is no accident that a gradient was always gone."""


class AskedInVain(NamedTuple):
    """A line that asks for gradients and never finds those of some tensors."""

    site: SiteId
    tensors: tuple[int, ...]
    others: int  # tensors whose gradients it finds
    passes: int  # that gave the first of the tensors a gradient
    backward: int  # the last of them
    cleared: int  # the call that cleared the gradient after it; UNKNOWN: none was heard to


def asked_in_vain(history: History) -> Iterator[AskedInVain]:
    """Yield the lines."""
    found: dict[SiteId, set[int]] = defaultdict(set)
    missed: dict[SiteId, set[int]] = defaultdict(set)
    met: set[int] = set()
    for _, event in history.events.where("grad.__get__".__eq__):
        for one in event.reads[:1]:
            (missed if event.none else found)[event.site].add(one.tensor)
            if not event.none:
                met.add(one.tensor)
    for site, tensors in missed.items():
        lost = [one for one in sorted(tensors - met) if _is_lost(history, one)]
        if found[site] and lost:
            yield _told(history, site, lost, len(found[site]))


def _is_lost(history: History, tensor: int) -> bool:
    """Whether passes give a tensor gradients, and no optimizer and no line changes it by them."""
    operand = history.operand_of(tensor)
    if (
        operand is None
        or tensor in history.held
        or len(history.graded_after(tensor)) < LEAST_PASSES
    ):
        return False
    return next(history.writes_to(operand, history.backwards[0]), None) is None


def _told(history: History, site: SiteId, tensors: list[int], others: int) -> AskedInVain:
    passes = history.graded_after(tensors[0])
    last = history.backwards[max(bisect_left(history.backwards, passes[-1]) - 1, 0)]
    cleared = following(history.gradients_replaced.get(tensors[0], []), passes[0])
    return AskedInVain(site, tuple(tensors), others, len(passes), last, cleared)


def claims(history: History) -> Iterator[Claim]:
    """Give one claim for each such line."""
    for found in asked_in_vain(history):
        yield _claim(history, found)


def _claim(history: History, asked: AskedInVain) -> Claim:
    backward = history.events[asked.backward].site
    cleared = history.events[asked.cleared].site if asked.cleared != UNKNOWN else None
    clears = () if cleared is None else (
        Step("cleared", cleared, say("it is cleared here before the line asks again")),
    )  # fmt: skip
    return Claim(
        tensors=asked.tensors,
        cause=("asked", asked.site),
        site=asked.site,
        operation="grad",
        message=say(
            "{here} asks for the gradient of {subject} and never finds one, though each of {n}"
            " backward passes gives it one afterwards: nothing uses it. It finds those of {others}"
            " other parameters.",
            here=At(asked.site), n=asked.passes, others=asked.others,
        ),
        story=(
            Step("used", asked.site, say("the gradient is asked for here, and is None")),
            Step("made", backward, say("this backward pass gives it")),
            *clears,
        ),
        repair=Repair(
            say("Ask once more when the pass has ended. A hook that `Tensor.register_hook` adds"
                " runs before the gradient is stored; one that"
                " `register_post_accumulate_grad_hook` adds runs after it.")
        ),
        count=asked.passes,
    )  # fmt: skip
