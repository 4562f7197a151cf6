"""Learning rates that are one tensor: of groups of one optimizer, or of several optimizers.

A scheduler is given one optimizer and sets the rate of each of its groups, in place where that is a
tensor. Who else has the tensor as a rate goes on with what was written.
"""

from __future__ import annotations

import functools
import math
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import torch
from torch.optim import Optimizer, lr_scheduler

from tether.facts import Moment, OptimizerId, RateOfAnother, SharedRate, SiteId, TensorId
from tether.record.mode_stack import muted
from tether.record.patches.replacing import Original, Replacements
from tether.record.patches.schedules import number_of, rate_of
from tether.record.sites import here
from tether.record.tape import Tape
from tether.record.training.saved_states import held_by

__tracebackhide__ = True

_SETTER = "_update_param_group_val"
"""PyTorch's function by which a scheduler sets a group's rate, in place where it is a tensor."""

_RATE = "lr"
"""What optimizers call the rate of a group."""

CLOSE = 1e-6
"""Rates that differ by less, relatively, are one rate that was computed in two ways."""

Known = Callable[[], Iterable[tuple[Optimizer, int]]]
"""Returns the optimizers and their numbers."""


class SharedRates:
    """Hears what schedulers set the learning rates to that are tensors."""

    def __init__(self, replacements: Replacements, known: Known) -> None:
        self._replacements = replacements
        self._known = known
        self._wanted: dict[tuple[int, str], dict[int, tuple[float, float]]] = {}
        self.of_others = RatesOfOthers(replacements.tape)

    def install(self) -> None:
        """Put the replacement in place; before PyTorch had the function, nothing is heard."""
        if hasattr(lr_scheduler, _SETTER):
            self._replacements.replace(lr_scheduler, _SETTER, self._setting)

    def _setting(self, original: Original) -> Original:
        @functools.wraps(original)
        def setting(group: dict[str, Any], key: str, value: Any) -> Any:
            before = None
            listener = self._replacements.listener()
            listener = listener if isinstance(group.get(key), torch.Tensor) else None
            if listener is not None:
                with muted(listener):
                    before = number_of(group[key])
            result = original(group, key, value)
            if listener is not None and before is not None:
                with muted(listener):
                    self._set(group, key, before, value)
            return result

        return setting

    def _set(self, group: dict[str, Any], key: str, before: float, value: Any) -> None:
        """Take note of a value that the scheduler of one optimizer has written."""
        number, known = number_of(value), list(self._known())
        for optimizer, fact in known:
            if number is not None and any(one is group for one in optimizer.param_groups):
                self._among(optimizer.param_groups, group, (fact, key), (before, number))
                if key == _RATE:
                    site = self._replacements.tape.places.user_place(here(3))[0]
                    written = RateSet(fact, site, before, number_of(group[key]) or 0.0)
                    self.of_others.written(optimizer, group, written, known)
                return

    def _among(
        self, groups: list[dict[str, Any]], group: dict[str, Any], held: tuple[int, str],
        values: tuple[float, float],
    ) -> None:  # fmt: skip
        """Take note of a group's value; once the last of the groups has its own, compare them."""
        alike = [at for at, one in enumerate(groups) if one.get(held[1]) is group[held[1]]]
        if len(alike) > 1:
            wanted = self._wanted.setdefault(held, {})
            wanted[next(at for at in alike if groups[at] is group)] = values
            if groups[alike[-1]] is group:
                self._compare(held[0], self._wanted.pop(held))

    def _compare(self, optimizer: int, wanted: dict[int, tuple[float, float]]) -> None:
        """Note the rates that were to be different, the first time of each optimizer."""
        tape = self._replacements.tape
        before, rates = zip(*wanted.values(), strict=True)
        told = any(one.optimizer == optimizer for one in tape.shared_rates)
        if len(set(rates)) > 1 and not told:
            site = SiteId(tape.places.user_place(here(4))[0])
            number, now = OptimizerId(optimizer), Moment(tape.now())
            tape.shared_rates.append(SharedRate(now, site, number, tuple(wanted), rates, before))


# -- of several optimizers -------------------------------------------------------------------------


class RateSet(NamedTuple):
    """What a scheduler wrote into the rate of a group."""

    by: int  # number of its optimizer
    site: int
    before: float  # what the group would have had without it
    after: float


class RatesOfOthers:
    """The steps of optimizers that used a rate which the scheduler of another one had written.

    An optimizer's own scheduler may come to the same rate: then nothing is noted.
    """

    def __init__(self, tape: Tape) -> None:
        self._tape = tape
        self._found = tape.rates_of_others
        self._agreed: set[tuple[int, int]] = set()
        self._scheduled: weakref.WeakSet[Optimizer] = weakref.WeakSet()
        # For an optimizer, by group, what others have written since it, or its scheduler, set it.
        self._waiting: weakref.WeakKeyDictionary[Optimizer, dict[int, RateSet]] = (
            weakref.WeakKeyDictionary()
        )

    def written(
        self, owner: Optimizer, group: dict[str, Any], done: RateSet,
        known: list[tuple[Optimizer, int]],
    ) -> None:  # fmt: skip
        """Take note that the scheduler of an optimizer wrote the rate of one of its groups."""
        others = [one for one, _ in known if one is not owner and _apart(one, owner)]
        at = next(at for at, one in enumerate(owner.param_groups) if one is group)
        self._waiting.get(owner, {}).pop(at, None)
        changed = not math.isclose(done.before, done.after, rel_tol=CLOSE)
        for other in others:
            for number in _groups_with(other, group[_RATE]):
                self._scheduled.add(owner)
                waiting = self._waiting.setdefault(other, {})
                first = waiting.get(number, done)
                if changed:
                    waiting[number] = done._replace(before=first.before)
        if not changed:
            self._agrees(done.by)

    def _agrees(self, number: int) -> None:
        """Forget what others wrote for an optimizer whose scheduler has come to the same."""
        for pair in [one for one in self._found if one[0] == number]:
            self._agreed.add(pair)
            del self._found[pair]

    def steps(self, optimizer: Optimizer, number: int) -> None:
        """Look whose rates an optimizer has, as a step of it begins."""
        waiting = self._waiting.pop(optimizer, None) if self._waiting else None
        for at, done in (waiting or {}).items():
            group, pair = optimizer.param_groups[at], (number, done.by)
            if rate_of(group) != done.after or pair in self._agreed:
                continue
            known = self._found.get(pair)
            self._found[pair] = (
                RateOfAnother(
                    Moment(self._tape.now()), SiteId(done.site), OptimizerId(number), at,
                    OptimizerId(done.by), TensorId(self._tape.who.serial(group[_RATE])),
                    (done.before, done.after, done.after), optimizer in self._scheduled,
                )
                if known is None
                else known._replace(rates=(*known.rates[:2], done.after))
            )  # fmt: skip


def _apart(one: Optimizer, other: Optimizer) -> bool:
    """Whether two optimizers have no more than a rate in common: neither wraps the other."""
    groups = {id(group) for group in one.param_groups} | {id(param) for param in held_by(one)}
    return groups.isdisjoint(map(id, (*other.param_groups, *held_by(other))))


def _groups_with(optimizer: Optimizer, rate: torch.Tensor) -> Iterator[int]:
    """Return the groups of an optimizer that have a tensor as their rate."""
    return (at for at, one in enumerate(optimizer.param_groups) if one.get(_RATE) is rate)
