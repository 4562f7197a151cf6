"""Whether the values of parameters moved: over a step, since the first look, until the end.

Values are compared by a check sum of their bits, at the 1st, 2nd, 4th, 8th... step of an optimizer
and at the end, for at most `SHARE` of the time since the recording began.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

import torch

from tether.facts import Moment, Movement, OptimizerId, SiteId, TensorId, ValueStatus
from tether.record.budget import Budget
from tether.record.contents import fingerprint, is_finite
from tether.record.tape import Tape

SHARE = 0.02
"""Of the run's time that looking may take."""

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
        self._budget = Budget(SHARE, allowed=0.5)

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
        self._add("step", site, optimizer, self._compared(before, self._sums(held), held))

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
        self._add("end", -1, -1, self._compared(self._first, self._sums(known), known))

    def forget(self, number: int) -> None:
        """Let go of a tensor that is gone."""
        self._first.pop(TensorId(number), None)
        self._graded.discard(TensorId(number))

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
