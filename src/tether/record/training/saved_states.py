"""Whose state an optimizer goes on with after one was loaded: known by values, not by names.

As a state is handed out, each parameter is noted with the check sums of its values and of what the
optimizer keeps for it. As the first step after a load begins, the same sums say which parameter the
values belong to, and which one the state was kept for.
"""

from __future__ import annotations

import weakref
from collections import defaultdict
from collections.abc import Iterator

import torch
from torch.optim import Optimizer

from tether.facts import UNKNOWN, Moment, OptimizerId, SiteId, StateOfAnother, TensorId
from tether.record.arrays.contents import fingerprint
from tether.record.budget import Budget
from tether.record.tape import Tape

MOST_SUMS = 1 << 16
"""Check sums that are kept; states that are handed out later are not noted."""

Sum = tuple[str, tuple[int, ...], int]
"""A part of a state ("" for the parameter itself), its shape, and the check sum of its values."""


class SavedStates:
    """What was handed out by `state_dict`, and by which optimizers states were loaded since."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape
        self.facts: list[StateOfAnother] = []
        self._owners: dict[Sum, dict[int, int]] = defaultdict(dict)  # serial -> where it was saved
        self._loaded: weakref.WeakKeyDictionary[Optimizer, int] = weakref.WeakKeyDictionary()
        self._budget = Budget(0.02, allowed=0.5)

    def saved(self, optimizer: Optimizer, site: int) -> None:
        """Take note of what an optimizer keeps, as its state is handed out."""
        for parameter in held_by(optimizer):
            serial = self._tape.who.serial(parameter)
            for one in self._sums(optimizer, parameter):
                if len(self._owners) < MOST_SUMS:
                    self._owners[one].setdefault(serial, site)

    def loaded(self, optimizer: Optimizer, site: int) -> None:
        """Take note that an optimizer was given a state."""
        if self._owners:
            self._loaded[optimizer] = site

    def steps(self, optimizer: Optimizer, number: int) -> None:
        """Look whose state an optimizer has, as the first step after a load begins."""
        site = self._loaded.pop(optimizer, None) if self._loaded else None
        if site is None:
            return
        for parameter in held_by(optimizer):
            owner, saved = self._other_owner(optimizer, parameter)
            if owner != UNKNOWN:
                serial = TensorId(self._tape.who.serial(parameter))
                now, by = Moment(self._tape.now()), OptimizerId(number)
                other = StateOfAnother(
                    now, SiteId(site), by, serial, TensorId(owner), SiteId(saved)
                )
                self.facts.append(other)

    def _other_owner(self, optimizer: Optimizer, parameter: torch.Tensor) -> tuple[int, int]:
        """Return whose state goes with the values of another parameter, and where it was saved.

        UNKNOWN where any of it was the same for several, or is of nobody.
        """
        found = [self._owners.get(one, {}) for one in self._sums(optimizer, parameter)]
        if not all(found) or any(len(one) != 1 for one in found):
            return UNKNOWN, UNKNOWN
        owners = [next(iter(one)) for one in found]
        if len(set(owners[1:])) != 1 or owners[0] == owners[1]:
            return UNKNOWN, UNKNOWN
        return owners[1], found[1][owners[1]]

    def _sums(self, optimizer: Optimizer, parameter: torch.Tensor) -> Iterator[Sum]:
        """Yield check sums of a parameter and of what is kept in its shape, while there is time.

        Nothing of one for which nothing is kept.
        """
        kept = optimizer.state.get(parameter, {})
        alike = {
            part: one
            for part, one in (kept.items() if isinstance(kept, dict) else ())
            if isinstance(one, torch.Tensor) and one.shape == parameter.shape and one.dim()
        }
        if not alike or self._budget.late():
            return
        with self._budget:
            found = {part: fingerprint(one) for part, one in {"": parameter, **alike}.items()}
        shape = tuple(parameter.shape)
        if None not in found.values():
            yield from ((str(part), shape, one or 0) for part, one in found.items())


def held_by(optimizer: Optimizer) -> list[torch.Tensor]:
    """Return the parameters of an optimizer, group by group."""
    return [one for group in optimizer.param_groups for one in group["params"]]


def wrapped_by(optimizer: Optimizer) -> Optimizer:
    """Return the optimizer whose parameter groups one shows as its own; itself, if it wraps none.

    Accelerate's optimizer, SAM and Lookahead have the groups of another one, and let it step.
    """
    groups, found = optimizer.param_groups, [optimizer]
    for outer in found:
        for inner in vars(outer).values():
            if isinstance(inner, Optimizer) and inner not in found:
                shown = inner.param_groups
                found += [inner] if groups and shown and groups[0] is shown[0] else []
    return found[-1]
