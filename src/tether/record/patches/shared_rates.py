"""Learning rates that a scheduler writes for several groups into one tensor."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.optim import Optimizer, lr_scheduler

from tether.facts import Moment, OptimizerId, SharedRate, SiteId
from tether.record.contents import words_of
from tether.record.mode_stack import muted
from tether.record.patches.replacing import Original, Replacements
from tether.record.sites import here

__tracebackhide__ = True

_SETTER = "_update_param_group_val"
"""PyTorch's function by which a scheduler sets a group's rate, in place where it is a tensor."""

Known = Callable[[], Iterable[tuple[Optimizer, int]]]
"""Returns the optimizers and their numbers."""


class SharedRates:
    """Hears what schedulers set the learning rates to that are tensors."""

    def __init__(self, replacements: Replacements, known: Known) -> None:
        self._replacements = replacements
        self._known = known
        self._wanted: dict[tuple[int, str], dict[int, float]] = {}

    def install(self) -> None:
        """Put the replacement in place; before PyTorch had the function, nothing is heard."""
        if hasattr(lr_scheduler, _SETTER):
            self._replacements.replace(lr_scheduler, _SETTER, self._setting)

    def _setting(self, original: Original) -> Original:
        @functools.wraps(original)
        def setting(group: dict[str, Any], key: str, value: Any) -> Any:
            result = original(group, key, value)
            if isinstance(group[key], torch.Tensor):
                listener = self._replacements.listener()
                if listener is not None:
                    with muted(listener):
                        self._set(group, key, value)
            return result

        return setting

    def _set(self, group: dict[str, Any], key: str, value: Any) -> None:
        """Take note of a value; once the last of the groups has its own, compare them."""
        number = _number_of(value)
        for optimizer, known in self._known():
            groups = optimizer.param_groups
            if number is None or all(one is not group for one in groups):
                continue
            alike = [at for at, one in enumerate(groups) if one.get(key) is group[key]]
            if len(alike) > 1:
                wanted = self._wanted.setdefault((known, key), {})
                wanted[next(at for at in alike if groups[at] is group)] = number
                if groups[alike[-1]] is group:
                    self._compare(known, self._wanted.pop((known, key)))
            return

    def _compare(self, optimizer: int, wanted: dict[int, float]) -> None:
        """Note the rates that were to be different, the first time of each optimizer."""
        tape = self._replacements.tape
        told = any(one.optimizer == optimizer for one in tape.shared_rates)
        if len(set(wanted.values())) > 1 and not told:
            site = SiteId(tape.places.user_place(here(3))[0])
            number, now = OptimizerId(optimizer), Moment(tape.now())
            groups, rates = tuple(wanted), tuple(wanted.values())
            tape.shared_rates.append(SharedRate(now, site, number, groups, rates))


def _number_of(value: Any) -> float | None:
    """Return a value as a number; None where it cannot be read without waiting."""
    if isinstance(value, torch.Tensor):
        words = words_of(value)
        return float(value.detach()) if words is not None and words.size == 1 else None
    return float(value)
