"""Modules with a method `backward` of their own, which is never called.

PyTorch computes gradients by what forward did; it calls the backward of an `autograd.Function`, and
never a method of a module.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tether.analysis.history import History
from tether.facts import OwnBackward, SiteId
from tether.finding import Claim, Repair, Step, say


def never_called(history: History) -> Iterator[OwnBackward]:
    """Yield the methods in which no call was made, where backward passes ran."""
    if not (history.trace.own_backwards and history.whole and history.backwards):
        return
    lines = {SiteId(number) for number in np.unique(history.events.column("site")).tolist()}
    lines.update(one for fact in history.trace.callers for one in fact.above)
    ran = {history.site(one).scope for one in lines}
    told = set[SiteId]()
    for one in history.trace.own_backwards:
        method = history.site(one.site)
        if one.site not in told and method.scope not in ran:
            told.add(one.site)
            yield one


def claims(history: History) -> Iterator[Claim]:
    """Give one claim for each such line."""
    for found in never_called(history):
        yield _claim(found)


def _claim(found: OwnBackward) -> Claim:
    return Claim(
        tensors=(),
        cause=("own backward", found.site),
        site=found.site,
        operation="backward",
        severity="note",
        message=say(
            f"No operation ran in `{found.owner}.backward`: PyTorch computes a module's gradients"
            " by what its forward did, and calls the backward of an autograd.Function only.",
        ),
        subject=f"`{found.owner}.backward`",
        story=(Step("made", found.site, say("the method that never runs")),),
        repair=Repair(
            say("Move it, and what forward computes, into a torch.autograd.Function, and let"
                " forward call its apply.")
        ),
        count=0,
    )  # fmt: skip
