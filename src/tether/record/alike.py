"""Parameters whose slices are the same: the units of a layer that were all given one value.

Units that begin with the same weights, and get the same gradients, stay the same for ever. Slices
along the first two dimensions are compared bit for bit as a step of an optimizer begins, at its
1st, 2nd, 4th, 8th..., and as the recording ends; so are those of the gradient that the step is
about to use. What was once seen to differ is not looked at again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import torch

from tether.facts import Moment, SlicesAlike, TensorId
from tether.record.budget import Budget
from tether.record.contents import Array, is_zero, words_of
from tether.record.gradients import gradient_of
from tether.record.tape import Tape

SHARE = 0.005
"""Of the run's time that looking may take."""


class AlikeLog:
    """What was the same in each slice when it was first looked at, and since when it is not."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape
        self._found: dict[tuple[TensorId, int], SlicesAlike] = {}  # by tensor and dimension
        self._met: set[TensorId] = set()
        self._budget = Budget(SHARE, allowed=0.1)

    def before_step(self, held: Mapping[TensorId, torch.Tensor]) -> None:
        """Look at what a step is about to change, and at the gradients that it uses."""
        for tensor, value in held.items():
            if value.dim() > 1 and not self._budget.late():
                with self._budget:
                    if tensor not in self._met:
                        self._meet(tensor, value)
                    self._look(tensor, value)

    def at_end(self, leaves: Iterable[tuple[int, torch.Tensor]]) -> None:
        """Look at the values for the last time."""
        for number, value in leaves:
            for dimension in (0, 1):
                fact = self._found.get((TensorId(number), dimension))
                if fact is not None and fact.alike and not _same(value, dimension):
                    self._found[fact.tensor, dimension] = fact._replace(alike=False)

    def facts(self) -> list[SlicesAlike]:
        """Return what was found."""
        return list(self._found.values())

    def _meet(self, tensor: TensorId, value: torch.Tensor) -> None:
        self._met.add(tensor)
        for dimension in (0, 1):
            if _same(value, dimension):
                now, slices = Moment(self._tape.now()), value.shape[dimension]
                self._found[tensor, dimension] = SlicesAlike(tensor, dimension, slices, now)

    def _look(self, tensor: TensorId, value: torch.Tensor) -> None:
        for dimension in (0, 1):
            fact = self._found.get((tensor, dimension))
            if fact is None or not fact.alike:
                continue
            gradient = gradient_of(value)
            if not _same(value, dimension):
                fact = fact._replace(alike=False)
            elif gradient is not None and is_zero(gradient) is False:
                alike = _same(gradient, dimension)
                fact = fact._replace(alike=alike, looks=fact.looks + alike)
            self._found[tensor, dimension] = fact


def _same(tensor: torch.Tensor, dimension: int) -> bool:
    """Whether there are several slices along a dimension, each with elements, and all the same."""
    words = words_of(tensor)
    if words is None or words.shape[:2] != tensor.shape[:2] or not words.size:
        return False
    slices: Array = np.moveaxis(words, dimension, 0)
    if len(slices) < 2 or not (slices[1] == slices[0]).all():
        return False
    return bool((slices == slices[0]).all())
