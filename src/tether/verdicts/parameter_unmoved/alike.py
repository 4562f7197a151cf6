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
