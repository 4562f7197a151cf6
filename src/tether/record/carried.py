"""Gradients that a step has used and that backward adds to, for the next step to use again.

After the 1st, 2nd, 4th... step of an optimizer what it used is watched, by identity,
since one object can be the gradient of several leaves in turn. As a pass begins, one that no leaf
has any more, or that is zero by then, was cleared, and is watched no longer. What is left at a
later step, and was added to, is carried.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch

from tether.facts import TensorId
from tether.record.contents import is_zero
from tether.record.gradients import GradientLog, gradient_of
from tether.record.identity import version_of

MOST_STEPS = 3
"""Steps of an optimizer with carried gradients after which it is watched no more."""


class CarriedLog:
    """The gradients that optimizers have used at the steps that were looked at."""

    def __init__(self, gradients: GradientLog) -> None:
        self._gradients = gradients
        self._watched: dict[int, dict[int, int]] = {}  # optimizer -> id of a gradient -> version
        self._found: dict[int, int] = {}  # optimizer -> steps into which some were carried

    def stepped(self, optimizer: int, tensors: Iterable[torch.Tensor]) -> None:
        """Watch the gradients that a step has used."""
        if self._found.get(optimizer, 0) < MOST_STEPS:
            found = [gradient_of(one) for one in tensors]
            watched = self._watched.setdefault(optimizer, {})
            watched |= {id(one): version_of(one) for one in found if one is not None}

    def passes(self) -> None:
        """Watch no longer what was cleared by the time that a backward pass begins."""
        wanted = {number for one in self._watched.values() for number in one}
        full: set[int] = set()
        for serial, leaf in self._gradients.leaves() if wanted else ():
            gradient = gradient_of(leaf) if self._gradients.safe(serial) else None
            if gradient is not None and id(gradient) in wanted and is_zero(gradient) is False:
                full.add(id(gradient))
        for optimizer, watched in self._watched.items():
            left = {number: version for number, version in watched.items() if number in full}
            self._watched[optimizer] = left

    def steps(
        self, optimizer: int, held: Callable[[], dict[TensorId, torch.Tensor]]
    ) -> list[TensorId]:
        """Return the tensors whose gradients are carried into the step that begins.

        Which ones the optimizer holds is asked only while some are watched.
        """
        watched = self._watched.get(optimizer, {})
        found = []
        for number, tensor in held().items() if watched else ():
            gradient = gradient_of(tensor)
            if gradient is not None and version_of(gradient) > watched.get(id(gradient), 1 << 62):
                found.append(number)
        if found:
            self._found[optimizer] = self._found.get(optimizer, 0) + 1
            if self._found[optimizer] == MOST_STEPS:
                del self._watched[optimizer]
        return found
