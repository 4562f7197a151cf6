"""Lines that clip gradients and found none, each time that they ran.

PyTorch's clipping then makes the norm of nothing: a zero from no tensor. It was given nothing at
all (an iterator that had been gone through), or tensors whose gradients were None.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import PurePath
from typing import NamedTuple

import numpy as np

from tether.analysis.history import History, shortened
from tether.facts import SiteId
from tether.finding import At, Claim, Repair, Sentence, Step, say

CLIPPING = ("nn", "utils", "clip_grad.py")
"""PyTorch's own file that looks for gradients to clip."""


LEAST_RUNS = 2


class VainClip(NamedTuple):
    """A line that clips nothing."""

    first: int  # the call that made the norm of nothing
    tensors: tuple[int, ...]  # whose gradients were None; none: it was given nothing
    runs: int


def vain_clips(history: History) -> Iterator[VainClip]:
    """Yield the lines whose clipping never found a gradient."""
    within = {
        number
        for number, site in enumerate(history.trace.sites)
        if PurePath(site.file).parts[-len(CLIPPING) :] == CLIPPING
    }
    made: dict[SiteId, list[int]] = defaultdict(list)
    asked: dict[SiteId, dict[int, bool]] = defaultdict(dict)  # tensor -> it had a gradient
    for at in np.flatnonzero(np.isin(history.events.column("inner"), [*within])).tolist():
        event = history.events[at]
        for one in event.reads:
            asked[event.site][one.tensor] = not event.none
        if event.results and not event.reads:
            made[event.site].append(at)
    for site, calls in made.items():
        if len(calls) >= LEAST_RUNS and not any(asked[site].values()):
            yield VainClip(calls[0], tuple(asked[site]), len(calls))


def claims(history: History) -> Iterator[Claim]:
    """Give one claim for each such line."""
    for found in vain_clips(history):
        yield _claim(history, found)


def _claim(history: History, clip: VainClip) -> Claim:
    site = history.events[clip.first].site
    why = (
        "what it was given, {subject} among it, had none then."
        if clip.tensors
        else "it was given no parameters, or an iterator that had been gone through before."
    )
    return Claim(
        tensors=clip.tensors,
        cause=("clip", site),
        site=site,
        operation=history.site(history.events[clip.first].inner).function,
        message=say(
            "The clipping at {line} found no gradient, each of {n} times: " + why,
            line=At(site), n=clip.runs,
        ),
        subject=shortened(history.site(site).expression),
        story=(Step("written", site, say("nothing is clipped here")),),
        repair=Repair(_instead(history, clip)),
        count=0,
        calls=(clip.first,),
    )  # fmt: skip


def _instead(history: History, clip: VainClip) -> Sentence:
    """Say what to clip, or when: what a call computed keeps no gradient at any time."""
    if not clip.tensors:
        return say("Give it a list, or ask for the parameters anew: an iterator gives what it has"
                   " once.")  # fmt: skip
    if all(history.had_graph(tensor) for tensor in clip.tensors):
        return say("Give it the parameters: no gradient is kept in what a call computes of them.")
    return say("Clip between the backward pass and the step.")
