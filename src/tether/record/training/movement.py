"""Whether the values of parameters moved: over a step, since the first look, until the end.

Values are compared by a check sum of their bits, at the 1st, 2nd, 4th, 8th... step of an optimizer
and at the end, for at most 2 % of the time since the recording began. What did not move so far is
looked at after the steps between as well, for half a percent: it may be gone before the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
import torch

from tether.facts import (
    Drift,
    Moment,
    Movement,
    OptimizerId,
    SiteId,
    SlicesAlike,
    TensorId,
    ValueStatus,
)
from tether.record.arrays.contents import Array, fingerprint, is_finite, is_zero, words_of
from tether.record.budget import Budget
from tether.record.gradients.gradients import gradient_of
from tether.record.tape import Tape

MOST_LEAVES = 4096
"""Tensors that no optimizer holds and that are followed."""

Held = Mapping[TensorId, torch.Tensor]
Sums = dict[TensorId, int | None]


class MovementLog:
    """The values of what can be trained, as check sums."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape
        self.facts: list[Movement] = []
        self._first: Sums = {}
        self._graded: set[TensorId] = set()  # those whose first look is after a gradient
        self._budget = Budget(0.02, allowed=0.5)
        self._still: set[TensorId] = set()  # those that had their first values at each look
        # Of these the last look between: when it was, its line and the optimizer.
        self._seen_still: dict[TensorId, tuple[Moment, SiteId, OptimizerId]] = {}
        self._between = Budget(0.005, allowed=0.1)

    # -- around a step ---------------------------------------------------------------------------

    def before_step(self, held: Held) -> Sums | None:
        """Look at the values that a step is about to change; None where there is no time for it."""
        if self._budget.late():
            return None
        sums = self._sums(held)
        for number, one in sums.items():
            self._first.setdefault(number, one)
        return sums

    def stepped(self, before: Sums, held: Held, site: int, optimizer: int) -> None:
        """Look at them again, now that the step has finished."""
        self._add("since", site, optimizer, self._compared(self._first, before, held))
        after = self._sums(held)
        self._add("step", site, optimizer, self._compared(before, after, held))
        for number, one in after.items():
            still = one is not None and one == self._first.get(number)
            (self._still.add if still else self._still.discard)(number)

    def stepped_between(
        self,
        numbers: Sequence[TensorId],
        tensors: Sequence[torch.Tensor],
        site: int,
        optimizer: int,
    ) -> None:
        """Look, after a step of which no look is due, at what did not move so far."""
        if self._still.isdisjoint(numbers) or self._between.late():
            return
        now = Moment(self._tape.now()), SiteId(site), OptimizerId(optimizer)
        moved: dict[TensorId, ValueStatus] = {}
        with self._between:
            for number, tensor in zip(numbers, tensors, strict=True):
                if number not in self._still:
                    continue
                if fingerprint(tensor) == self._first.get(number):
                    self._seen_still[number] = now
                else:
                    self._still.discard(number)
                    moved[number] = "moved"
        if moved:
            self._add("since", site, optimizer, moved)

    # -- of what no optimizer holds, and at the end ----------------------------------------------

    def met(
        self,
        leaves: Iterable[tuple[int, torch.Tensor]],
        graded: set[TensorId],
        site: int,
        *,
        look: bool,
    ) -> None:
        """Look for the first time at leaves, after a backward pass; with `look`, again at all.

        What became of a leaf before its first gradient (it was loaded, say) is no training: with
        that gradient the first look is taken anew.
        """
        again: dict[TensorId, torch.Tensor] = {}
        for number, leaf in leaves:
            tensor = TensorId(number)
            begins = tensor in graded and tensor not in self._graded
            if tensor in self._first and not begins:
                again[tensor] = leaf
            elif len(self._first) < MOST_LEAVES and not self._budget.late():
                self._first |= self._sums({tensor: leaf})
                self._graded |= {tensor} if begins else set()
        if look and again and not self._budget.late():
            self._add("since", site, -1, self._compared(self._first, self._sums(again), again))

    def at_end(self, leaves: Iterable[tuple[int, torch.Tensor]]) -> None:
        """Look for the last time."""
        known = {TensorId(n): one for n, one in leaves if TensorId(n) in self._first}
        looks: dict[tuple[Moment, SiteId, OptimizerId], dict[TensorId, ValueStatus]] = {}
        for number in self._still & self._seen_still.keys() - known.keys():
            looks.setdefault(self._seen_still[number], {})[number] = "same"
        self.facts += [Movement("since", *look, status) for look, status in looks.items()]
        self._add("end", -1, -1, self._compared(self._first, self._sums(known), known))

    # -- parts -----------------------------------------------------------------------------------

    def _sums(self, held: Held) -> Sums:
        with self._budget:
            return {number: fingerprint(one) for number, one in held.items()}

    @staticmethod
    def _compared(before: Sums, now: Sums, held: Held) -> dict[TensorId, ValueStatus]:
        found: dict[TensorId, ValueStatus] = {}
        for number, tensor in held.items():
            first, last = before.get(number), now.get(number)
            if first is None or last is None:
                found[number] = "unchecked"
            elif first != last:
                found[number] = "moved"
            else:
                found[number] = "lost" if is_finite(tensor) is False else "same"
        return found

    def _add(
        self,
        moment: Literal["step", "since", "end"],
        site: int,
        optimizer: int,
        status: dict[TensorId, ValueStatus],
    ) -> None:
        now = Moment(self._tape.now())
        self.facts.append(Movement(moment, now, SiteId(site), OptimizerId(optimizer), status))


# -- drift -----------------------------------------------------------------------------------------
# What a step moves although its gradient is zero: by momentum, or by weight decay. Element by
# element, at the same steps as `movement` looks. Only where a part of a gradient is zero: one that
# is zero throughout is told by its parameter.


class Still(NamedTuple):
    """The elements of a parameter whose gradient is zero, as they were before a step."""

    places: Array  # whether the gradient of each is zero
    values: Array


class DriftLog:
    """The elements that steps moved with a gradient of zero."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape
        self.facts: list[Drift] = []
        self._budget = Budget(0.005, allowed=0.1)

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


# -- alike -----------------------------------------------------------------------------------------
# Parameters whose slices are the same: the units of a layer that were all given one value. Units
# that begin with the same weights, and get the same gradients, stay the same for ever. Slices along
# the first two dimensions are compared bit for bit as a step of an optimizer begins, at its 1st,
# 2nd, 4th, 8th..., and as the recording ends; so are those of the gradient that the step is about
# to use. What was once seen to differ is not looked at again.


class AlikeLog:
    """What was the same in each slice when it was first looked at, and since when it is not."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape
        self._found: dict[tuple[TensorId, int], SlicesAlike] = {}  # by tensor and dimension
        self._met: set[TensorId] = set()
        self._budget = Budget(0.005, allowed=0.1)

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
