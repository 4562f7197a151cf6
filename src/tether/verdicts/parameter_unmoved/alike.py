"""Layers whose units are all the same, and stay so: they were given one value, and one gradient.

The gradient of a unit's weights depends on what comes in, which all units share, on the unit's own
weights, and on the weights by which the next layer takes it up. Where both are the same for all
units, so are their gradients, at each step; a layer of many units does what one unit does.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tether.analysis.history import History
from tether.analysis.training.unmoved import Training
from tether.facts import UNKNOWN, SiteId, SlicesAlike, TensorId
from tether.finding import Claim, Repair, Step, Tensor, say

LEAST_LOOKS = 3
"""Looks at which the gradients were the same, too: at one step they may be by chance."""


class AlikeUnits(NamedTuple):
    """A parameter whose slices never differed, though its values changed."""

    fact: SlicesAlike
    filled: SiteId  # the line that gave it its values
    after: tuple[tuple[TensorId, SiteId], ...]  # the next with as many, along the other dimension,
    # that began the same, and the line that filled it


def alike_units(history: History) -> Iterator[AlikeUnits]:
    """Yield the parameters of modules whose units, the slices of the first dimension, are alike."""
    if history.trace.outcome != "finished":
        return
    for fact in history.trace.alike:
        if fact.alike and fact.dimension == 0 and fact.looks >= LEAST_LOOKS:
            name = history.facts_of_name(fact.tensor)
            if name is not None and name.module and history.get(Training).moved(fact.tensor):
                after = next(_taking_up(history, fact), None)
                yield AlikeUnits(fact, _filled(history, fact), () if after is None else (after,))


def _taking_up(history: History, fact: SlicesAlike) -> Iterator[tuple[TensorId, SiteId]]:
    """Yield what comes later in the optimizer, and began the same for as many along its second."""
    rank = history.order
    for one in history.trace.alike:
        later = rank.get(one.tensor, UNKNOWN) > rank.get(fact.tensor, UNKNOWN)
        if later and (one.dimension, one.slices) == (1, fact.slices):
            yield one.tensor, _filled(history, one)


def _filled(history: History, fact: SlicesAlike) -> SiteId:
    """Return the line of the last write before the first look, or that made the parameter."""
    operand, until = history.operand_of(fact.tensor), history.position(fact.at)
    writes = history.writes_to(operand) if operand is not None else ()
    at = max((one for one in writes if one < until), default=history.made_at(fact.tensor))
    return history.events[at].site if at >= 0 else SiteId(UNKNOWN)


def claims(history: History) -> Iterator[Claim]:
    """Give one claim for each such line."""
    for found in alike_units(history):
        yield _claim(history, found)


def _claim(history: History, found: AlikeUnits) -> Claim:
    fact = found.fact
    step = history.events[history.steps_of(fact.tensor)[0]].site
    return Claim(
        tensors=(fact.tensor,),
        cause=("alike", found.filled, fact.slices),
        site=found.filled,
        operation="step",
        severity="warning" if found.after else "note",
        message=say(
            "The {n} units of {subject}, the slices of the first dimension, began with the same"
            " values and never differed: at each step that was looked at their gradients were the"
            " same as well, bit for bit, so that all {n} do what one would do.",
            n=fact.slices,
        ),
        story=(
            Step("written", found.filled, say("each unit of {x} gets the same values here",
                 x=Tensor(fact.tensor))),
            *(Step("written", site, say("{y} begins with the same values for each of {n}, too",
                   y=Tensor(one), n=fact.slices)) for one, site in found.after),
            Step("step", step, say("each step changes all units of {x} alike",
                 x=Tensor(fact.tensor))),
        ),
        repair=Repair(say("Begin with random values (torch.nn.init.kaiming_uniform_,"
                          " xavier_uniform_, normal_), so that the units can become different.")),
        count=0,
    )  # fmt: skip
