"""Learning rates that a loaded state brought, and that a scheduler replaced before any step."""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

from tether.analysis.history import History
from tether.facts import (
    UNKNOWN,
    Gradients,
    Movement,
    OptimizerId,
    Rate,
    RatePutBack,
    Schedule,
    SiteId,
    TensorId,
)

LOADS = "load_state_dict"


class RateLost(NamedTuple):
    """A loaded rate that no step used."""

    loaded: Schedule
    replaced: Schedule
    group: int  # the first whose rate is another one
    before: float
    after: float


def rates_lost(history: History) -> Iterator[RateLost]:
    """Yield where a scheduler, as it was made, gave other rates than the state loaded before it.

    That is what its constructor does: it begins with the rate of its first step, unless it is told
    by `last_epoch` at which one it goes on.
    """
    loads: dict[OptimizerId, Schedule] = {}
    steps = [(one.optimizer, history.position(one.at)) for one in history.steps]
    for fact in sorted(history.trace.schedules, key=lambda one: one.at):
        if fact.kind == LOADS:
            loads[fact.optimizer] = fact
            continue
        loaded = loads.pop(fact.optimizer, None)
        if loaded is None:
            continue
        since, until = history.position(loaded.at), history.position(fact.at)
        if any(one == fact.optimizer and since <= at < until for one, at in steps):
            continue
        for group, (before, after) in enumerate(zip(fact.before, fact.after, strict=False)):
            if before != after:
                yield RateLost(loaded, fact, group, before, after)
                break


class RateUndone(NamedTuple):
    """A rate that the program gave a group whose schedule has none but zero."""

    fact: RatePutBack
    made: Schedule | None  # the scheduler, where it is known which one
    used: int  # steps that had the rate
    steps: int  # after it, that had the zero again


def rates_undone(history: History) -> Iterator[RateUndone]:
    """Yield the groups that a scheduler's next step put back to zero, once and for all.

    A group whose rate is set again and again trains, and so does one that has another rate later.
    """
    found: dict[tuple[int, int], list[RatePutBack]] = defaultdict(list)
    for fact in history.trace.rates_put_back if history.whole else ():
        found[fact.optimizer, fact.group].append(fact)
    for fact, *others in found.values():
        # A sequence of schedulers and the one that it steps say the same at one time.
        if all(one.at == fact.at for one in others) and _stays_zero(history, fact):
            undone = _undone(history, fact)
            if undone.steps >= LEAST:
                yield undone


def _stays_zero(history: History, fact: RatePutBack) -> bool:
    """Whether each step after a rate was put back has zero; a rate is noted where it changes."""
    rates = _rates_of(history, fact)
    later = [one for one in rates if one.at >= fact.at]
    return bool(rates) and not any(one.rate for one in later or rates[-1:])


def _undone(history: History, fact: RatePutBack) -> RateUndone:
    given = min((one.at for one in _rates_of(history, fact) if one.rate), default=fact.at)
    steps = [one.at for one in history.steps if one.optimizer == fact.optimizer]
    used = sum(given <= at < fact.at for at in steps)
    return RateUndone(fact, _maker(history, fact), used, sum(at >= fact.at for at in steps))


def _rates_of(history: History, fact: RatePutBack) -> list[Rate]:
    group = fact.optimizer, fact.group
    return [one for one in history.trace.rates if (one.optimizer, one.group) == group]


def _maker(history: History, fact: RatePutBack) -> Schedule | None:
    made = [one for one in history.trace.schedules if one.optimizer == fact.optimizer]
    return next((one for one in made if one.kind == fact.kind and one.at <= fact.at), None)


# -- rates spent -----------------------------------------------------------------------------------
# Optimizers that go on stepping at a rate that has become too small to change anything. A schedule
# that ends at zero ends with the training. Where it is there long before (it was made for epochs,
# and counts batches), the steps change no bit of any parameter that the optimizer holds. That it is
# for the rate: a step of the size that moved a parameter before, made smaller as the rate was, is
# less than half of the last place of the step itself; and where values were looked at, none had
# changed.


LEAST_PART = 4
"""Of all steps of an optimizer, at least one in so many changes nothing: more than an end."""

LOST = {"float64": 2.0**-54}
"""By which factor the rate fell, at most, by the type of a parameter; else `LOST_IN_SINGLE`."""

LOST_IN_SINGLE = 2.0**-25


class RateSpent(NamedTuple):
    """An optimizer whose last steps change nothing of some parameter groups, or of all."""

    optimizer: OptimizerId
    tensors: tuple[TensorId, ...]  # of the groups that were the first to stay
    others: int  # tensors of groups that stayed later
    last: int  # the step from which on the last of all stays
    schedule: Schedule | None  # what set its rate, last of all
    step: SiteId  # the line of its steps
    number: int  # the first step that was seen to change nothing
    steps: int  # in all
    rate: float  # the greatest of a group at that step
    before: float  # and of the steps before it
    alone: bool  # nothing else moved in the meantime


def rates_spent(history: History) -> Iterator[RateSpent]:
    """Yield them."""
    if not history.whole:
        return
    looks: dict[OptimizerId, list[Movement]] = defaultdict(list)
    for one in history.trace.movements:
        if one.moment == "step":
            looks[one.optimizer].append(one)
    for number, some in looks.items():
        groups = sorted(_still(history, number, some).items())
        found = [_spent(history, number, those, some[at:]) for at, those in groups]
        spent = [one for one in found if one is not None]
        if spent:
            others = sum(len(one.tensors) for one in spent[1:])
            yield spent[0]._replace(others=others, last=spent[-1].number)


def _still(
    history: History, number: OptimizerId, looks: list[Movement]
) -> dict[int, dict[int, list[TensorId]]]:
    """Return the groups that moved once and then no more, by the first look that found them so."""
    members: dict[int, list[TensorId]] = defaultdict(list)
    for tensor, group in history.trace.optimizers[number].members():
        members[group].append(tensor)
    found: dict[int, dict[int, list[TensorId]]] = defaultdict(dict)
    for group, tensors in members.items():
        first = len(looks)
        while first and {looks[first - 1].status.get(one) for one in tensors} == {"same"}:
            first -= 1
        if 0 < first < len(looks):
            found[first][group] = tensors
    return found


def _spent(
    history: History,
    number: OptimizerId,
    groups: dict[int, list[TensorId]],
    still: list[Movement],
) -> RateSpent | None:
    rates = _Rates(history, number, groups)
    spent = next((one for one in still if rates.spent(one)), None)
    if spent is None:
        return None
    facts = [one for one in history.steps if one.optimizer == number]
    steps = [history.position(one.at) for one in facts]
    at = bisect_right(steps, history.position(spent.at))
    # Values are looked at ever more rarely; a rate once spent stays so.
    first = bisect_left(facts, True, hi=at, key=rates.spent)
    if LEAST_PART * (len(steps) - first) < len(steps):
        return None
    made = [one for one in history.trace.schedules if one.optimizer == number and one.after]
    return RateSpent(
        number, tuple(itertools.chain(*groups.values())), 0, at, made[-1] if made else None,
        spent.site, at, len(steps), max(rates.since(spent).values()), max(rates.greatest.values()),
        _alone(history, spent),
    )  # fmt: skip


def _alone(history: History, still: Movement) -> bool:
    """Whether no step was seen to move anything after a look, or in it."""
    return not any(
        one.moment == "step" and one.at >= still.at and "moved" in one.status.values()
        for one in history.trace.movements
    )


class _Rates:
    """The rates of some groups of an optimizer, as far as they were noted."""

    def __init__(
        self, history: History, number: OptimizerId, groups: dict[int, list[TensorId]]
    ) -> None:
        self._groups = groups.keys()
        self._facts = [
            one for one in history.trace.rates if one.optimizer == number and one.group in groups
        ]
        self.greatest: dict[int, float] = {}
        for one in self._facts:
            self.greatest[one.group] = max(one.rate, self.greatest.get(one.group, 0.0))
        self._lost = _lost(history, itertools.chain(*groups.values()))

    def spent(self, look: Movement | Gradients) -> bool:
        """Whether the rate of each group is too small from a step on, and is known."""
        now = self.since(look)
        return now.keys() == self._groups and all(
            rate <= self.greatest[one] * self._lost for one, rate in now.items()
        )

    def at(self, look: Movement | Gradients) -> dict[int, float]:
        """Return the rate of each group as the step was made that was looked at."""
        return {one.group: one.rate for one in self._facts if one.at <= look.at}

    def since(self, look: Movement | Gradients) -> dict[int, float]:
        """Return the greatest rate of each group from that step on."""
        found = self.at(look)
        for one in self._facts:
            if one.at > look.at:
                found[one.group] = max(one.rate, found.get(one.group, 0.0))
        return found


def _lost(history: History, tensors: Iterable[TensorId]) -> float:
    operands = map(history.operand_of, tensors)
    return min((LOST.get(one.dtype, LOST_IN_SINGLE) for one in operands if one), default=0.0)


# -- schedules in vain -----------------------------------------------------------------------------
# Schedulers that set no rate of the training: never stepped, of another optimizer, made anew. And
# those whose course is another one than the training's. What a course was made for is told by its
# length: if that is the number of the optimizer's steps, or of the passes of one line, it counts
# these; a scheduler that is stepped far less often comes through a part of it alone.


LEAST = 3
"""Schedulers of one line, or steps of an optimizer: two may be a beginning."""

LEAST_TURNS = 2
"""Times that a rate falls and rises: a training may be a little longer than its schedule."""


class ScheduleInVain(NamedTuple):
    """A scheduler that does not do what it is there for."""

    why: Literal["never", "other", "anew", "short", "again"]
    schedule: Schedule
    stepped: SiteId  # the line of the steps that it was to set the rate of
    # Of the optimizer that trains, or passes of a line; of the schedulers, where they are made
    # anew; times that the rate rose again.
    steps: int
    other: OptimizerId  # the optimizer that trains


def schedules_in_vain(history: History) -> Iterator[ScheduleInVain]:
    """Yield the first of each line."""
    if not history.whole:
        return
    made: dict[OptimizerId, list[Schedule]] = defaultdict(list)
    for one in history.trace.schedules:
        if one.kind != LOADS:
            made[one.optimizer].append(one)
    steps: dict[OptimizerId, list[SiteId]] = defaultdict(list)
    for fact in history.steps:
        steps[fact.optimizer].append(fact.site)
    for number, schedules in made.items():
        taken = steps.get(number, [])
        if not taken:
            yield from _of_another(history, schedules[0], steps)
        elif all(one.steps == 0 for one in schedules):
            if len(taken) >= LEAST and _constant(history, number):
                yield ScheduleInVain("never", schedules[0], taken[0], len(taken), number)
        else:
            yield from _anew(schedules, taken[0])
            yield from _of_another_length(history, schedules, taken[0])


def _of_another_length(
    history: History, schedules: list[Schedule], stepped: SiteId
) -> Iterator[ScheduleInVain]:
    """Yield the schedulers that come through a part of their course, or through it many times."""
    for one in schedules:
        if one.turns >= LEAST_TURNS:
            yield ScheduleInVain("again", one, stepped, one.turns, one.optimizer)
        elif one.planned and one.steps > 0 and history.trace.outcome == "finished":
            counted = Counter(_counted(history, one))
            for site, times in counted.items():
                if abs(times - one.planned) <= 1 and one.steps * 2 <= times:
                    yield ScheduleInVain("short", one, site, times, one.optimizer)
                    break


def _counted(history: History, schedule: Schedule) -> Iterator[SiteId]:
    """Yield the lines of the steps of its optimizer, and of the passes, since it was made."""
    since = history.position(schedule.at)
    for one in history.steps:
        if one.optimizer == schedule.optimizer and history.position(one.at) >= since:
            yield one.site
    yield from (history.events[at].site for at in history.backwards if at >= since)


def _of_another(
    history: History, schedule: Schedule, steps: dict[OptimizerId, list[SiteId]]
) -> Iterator[ScheduleInVain]:
    """Yield a scheduler that was stepped, of an optimizer that was not, where another was."""
    tensors = set(history.trace.optimizers[schedule.optimizer].tensors)
    for number, taken in steps.items():
        same = tensors & set(history.trace.optimizers[number].tensors)
        if same and schedule.steps > 0 and len(taken) >= LEAST:
            yield ScheduleInVain("other", schedule, taken[0], len(taken), number)
            return


def _constant(history: History, number: OptimizerId) -> bool:
    """Whether the steps of an optimizer were seen to have one rate for each group."""
    rates = {(one.group, one.rate) for one in history.trace.rates if one.optimizer == number}
    return bool(rates) and len(rates) == len({group for group, _ in rates})


def _anew(schedules: list[Schedule], stepped: SiteId) -> Iterator[ScheduleInVain]:
    """Yield a line that makes a scheduler for each step of it, which begins where all begin."""
    lines: dict[SiteId, list[Schedule]] = defaultdict(list)
    for one in schedules:
        lines[one.site].append(one)
    for some in lines.values() if stepped != UNKNOWN else ():
        alike = len({one.after for one in some}) == 1
        if len(some) >= LEAST and alike and all(one.steps == 1 for one in some):
            yield ScheduleInVain("anew", some[0], stepped, len(some), some[0].optimizer)
