"""What sets learning rates: schedulers that are made and stepped, and states that are loaded."""

from __future__ import annotations

import functools
import math
import weakref
from typing import Any

import torch
from torch.optim import Optimizer, lr_scheduler
from torch.optim.lr_scheduler import LRScheduler

from tether.facts import (
    UNKNOWN,
    Moment,
    OptimizerId,
    RatePutBack,
    Schedule,
    SiteId,
)
from tether.record.arrays.contents import words_of
from tether.record.listener import Listener
from tether.record.mode_stack import muted
from tether.record.patches.replacing import Original, Replacements
from tether.record.sites import here
from tether.record.training.resumptions import Resumptions

__tracebackhide__ = True

_PLANS = {"OneCycleLR": "total_steps", "CosineAnnealingLR": "T_max", "PolynomialLR": "total_iters"}
"""Where schedulers keep how many steps their course has."""

_LITTLE, _SOME, _MUCH = 0.1, 0.2, 0.9
"""Of the greatest rate so far: what it fell to, passes on its way up, and has risen to."""

MOST = 4
"""Times that the rate of a group is put back, of which is told."""


class Schedules:
    """Hears of every scheduler that is made, and of the rates before and after."""

    def __init__(self, replacements: Replacements, resumptions: Resumptions) -> None:
        self._replacements = replacements
        self._tape = replacements.tape
        self._resumptions = resumptions
        self._facts: weakref.WeakKeyDictionary[LRScheduler, int] = weakref.WeakKeyDictionary()
        # The greatest rate so far, the last one, and whether it has fallen in between.
        # The rates before a scheduler's step, and those that the last one left an optimizer.
        self._before: weakref.WeakKeyDictionary[LRScheduler, tuple[float, ...]] = (
            weakref.WeakKeyDictionary()
        )
        self._left: weakref.WeakKeyDictionary[Optimizer, tuple[float, ...]] = (
            weakref.WeakKeyDictionary()
        )
        self._courses: weakref.WeakKeyDictionary[LRScheduler, tuple[float, float, bool]] = (
            weakref.WeakKeyDictionary()
        )

    def install(self) -> None:
        """Put the replacements in place."""
        self._replacements.replace(LRScheduler, "__init__", self._init)
        saving, loading = map(self._replacements.telling, (self._saved, self._loaded))
        stepping = self._replacements.telling(self._stepped, self._steps)
        heard = ("state_dict", saving), ("step", stepping)
        for kind in list(vars(lr_scheduler).values()):
            if isinstance(kind, type) and issubclass(kind, LRScheduler):
                for name, make in (*heard, ("load_state_dict", loading)):
                    if name in vars(kind):
                        self._replacements.replace(kind, name, make)

    def _saved(
        self, _listener: Listener, place: tuple[int, int], args: tuple[Any, ...], *_: Any
    ) -> None:
        self._resumptions.saved(args[0], place[0])

    def _loaded(
        self, _listener: Listener, place: tuple[int, int], args: tuple[Any, ...], *_: Any
    ) -> None:
        number, facts = self._facts.get(args[0]), self._tape.schedules
        if number is not None:
            facts[number] = facts[number]._replace(loaded=SiteId(place[0]))

    def _steps(self, args: tuple[Any, ...]) -> None:
        """Look at the rates before a scheduler's step."""
        self._before[args[0]] = rates_of(args[0].optimizer)

    def _put_back(self, scheduler: LRScheduler, site: SiteId) -> None:
        """Note the groups that a step gave the rate of zero again, and that had another one."""
        optimizer, before = scheduler.optimizer, self._before.pop(scheduler, ())
        left, self._left[optimizer] = self._left.get(optimizer, ()), rates_of(optimizer)
        rates = zip(left, before, self._left[optimizer], strict=False)
        for group, (last, given, now) in enumerate(rates):
            if last == now == 0 != given:
                number = OptimizerId(self._resumptions.numbered(optimizer, site))
                known = self._tape.rates_put_back
                if sum((number, group) == (one.optimizer, one.group) for one in known) < MOST:
                    moment, kind = Moment(self._tape.now()), type(scheduler).__name__
                    known.append(RatePutBack(moment, site, kind, number, group, given))

    def _stepped(
        self, _listener: Listener, place: tuple[int, int], args: tuple[Any, ...], *_: Any
    ) -> None:
        number, facts = self._facts.get(args[0]), self._tape.schedules
        if number is not None:
            fact = facts[number]
            stepped = fact.stepped if fact.steps else SiteId(place[0])
            turns = fact.turns + self._has_turned(args[0])
            facts[number] = fact._replace(steps=fact.steps + 1, stepped=stepped, turns=turns)
        self._put_back(args[0], SiteId(place[0]))

    def _has_turned(self, scheduler: LRScheduler) -> bool:
        """Whether the rate has come up again from where it had fallen to, and not by one leap."""
        rate = rate_of(scheduler.optimizer.param_groups[0])
        if rate is None:
            return False
        peak, last, fallen = self._courses.get(scheduler, (rate, rate, False))
        peak = max(peak, rate)
        risen = fallen and rate >= _MUCH * peak
        fallen = not risen and (fallen or rate <= _LITTLE * peak)
        self._courses[scheduler] = peak, rate, fallen
        return risen and last > _SOME * peak

    def _init(self, original: Original) -> Original:
        @functools.wraps(original)
        def __init__(  # noqa: N807 -- what it replaces is called so
            scheduler: LRScheduler, *args: Any, **kwargs: Any
        ) -> None:
            listener, before = self._replacements.listener(), tuple[float, ...]()
            given = args[0] if args else kwargs.get("optimizer")
            if listener is not None and isinstance(given, Optimizer):
                with muted(listener):
                    before = rates_of(given)
            original(scheduler, *args, **kwargs)
            if listener is not None:
                with muted(listener):
                    place = self._tape.places.user_place(here(2))
                    self._scheduled(scheduler, place[0], before)

        return __init__

    def _scheduled(self, scheduler: LRScheduler, site: int, before: tuple[float, ...]) -> None:
        """Note a scheduler, and the function of the user's that it computes the rate by."""
        optimizer = getattr(scheduler, "optimizer", None)
        if not isinstance(optimizer, Optimizer):
            return
        factor = next(iter(getattr(scheduler, "lr_lambdas", ())), None)
        at = self._tape.places.add_beginning(getattr(factor, "__code__", None))
        self._resumptions.made(scheduler, site)
        after = self._left[optimizer] = rates_of(optimizer)
        self.set_by(type(scheduler).__name__, optimizer, site, at, before, after)
        stepping = next(one for one in type(scheduler).__mro__ if "step" in vars(one))
        if stepping.__module__ == lr_scheduler.__name__:  # else it may step without being heard
            self._facts[scheduler] = len(self._tape.schedules) - 1
            names = (_PLANS.get(one.__name__) for one in type(scheduler).__mro__)
            planned = getattr(scheduler, next(filter(None, names), ""), 0)
            self._tape.schedules[-1] = self._tape.schedules[-1]._replace(
                steps=0, planned=planned if isinstance(planned, int) else 0
            )

    def set_by(
        self, kind: str, optimizer: Optimizer, site: int, factor: int = UNKNOWN,
        before: tuple[float, ...] = (), after: tuple[float, ...] = (),
    ) -> None:  # fmt: skip
        """Note what sets the learning rates of an optimizer."""
        number, now = (
            OptimizerId(self._resumptions.numbered(optimizer, site)),
            Moment(self._tape.now()),
        )
        fact = Schedule(kind, SiteId(site), now, number, SiteId(factor), before, after)
        self._tape.schedules.append(fact)


def rate_of(group: dict[str, Any]) -> float | None:
    """Return the learning rate of a group; None where it cannot be read without waiting."""
    rate = group.get("lr")
    if isinstance(rate, torch.Tensor):
        return number_of(rate)
    return float(rate) if isinstance(rate, (int, float)) and math.isfinite(rate) else None


def rates_of(optimizer: Optimizer) -> tuple[float, ...]:
    """Return the learning rates of all groups; nothing where one cannot be read."""
    rates = [rate_of(group) for group in optimizer.param_groups]
    known = tuple(one for one in rates if one is not None)
    return known if len(known) == len(rates) else ()


def number_of(value: Any) -> float | None:
    """Return a value as a number; None where it cannot be read without waiting."""
    if isinstance(value, torch.Tensor):
        words = words_of(value)
        return float(value.detach()) if words is not None and words.size == 1 else None
    return float(value)
