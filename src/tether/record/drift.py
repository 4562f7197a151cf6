"""What a step moves although its gradient is zero: by momentum, or by weight decay.

Element by element, at the same steps as `movement` looks. Only where a part of a gradient is zero:
one that is zero throughout is told by its parameter.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch

from tether.facts import Drift, Moment, OptimizerId, SiteId, TensorId
from tether.record.budget import Budget
from tether.record.contents import Array, words_of
from tether.record.gradients import gradient_of
from tether.record.tape import Tape

SHARE = 0.005
"""Of the run's time that looking may take."""


class Still(NamedTuple):
    """The elements of a parameter whose gradient is zero, as they were before a step."""

    places: Array  # whether the gradient of each is zero
    values: Array


class DriftLog:
    """The elements that steps moved with a gradient of zero."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape
        self.facts: list[Drift] = []
        self._budget = Budget(SHARE, allowed=0.1)

    def before_step(self, held: Mapping[TensorId, torch.Tensor]) -> dict[TensorId, Still]:
        """Look at the elements that a step has no gradient for."""
        found: dict[TensorId, Still] = {}
        for number, tensor in held.items():
            if self._budget.late():
                break
            with self._budget:
                still = _still(tensor)
                if still is not None:
                    found[number] = still
        return found

    def stepped(
        self,
        before: Mapping[TensorId, Still],
        held: Mapping[TensorId, torch.Tensor],
        site: int,
        optimizer: int,
    ) -> None:
        """Note how many of them the step has moved."""
        moved: dict[TensorId, int] = {}
        with self._budget:
            for number, still in before.items():
                words = words_of(held[number]) if number in held else None
                if words is not None and words.shape == still.places.shape:
                    moved[number] = int((words[still.places] != still.values).sum())
        if moved := {number: count for number, count in moved.items() if count}:
            now = Moment(self._tape.now())
            self.facts.append(Drift(now, SiteId(site), OptimizerId(optimizer), moved))


def _still(tensor: torch.Tensor) -> Still | None:
    gradient = gradient_of(tensor)
    if gradient is None or gradient.dtype != tensor.dtype:
        return None
    words, slopes = words_of(tensor), words_of(gradient)
    if words is None or slopes is None or words.shape != slopes.shape:
        return None
    places = slopes == 0
    return Still(places, words[places]) if places.any() and not places.all() else None
