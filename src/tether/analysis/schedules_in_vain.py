"""Schedulers that set no rate of the training: never stepped, of another optimizer, made anew."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Literal, NamedTuple

from tether.analysis.history import History
from tether.analysis.rates_lost import LOADS
from tether.facts import UNKNOWN, OptimizerId, Schedule, SiteId

LEAST = 3
"""Schedulers of one line, or steps of an optimizer: two may be a beginning."""


class ScheduleInVain(NamedTuple):
    """A scheduler that does not do what it is there for."""

    why: Literal["never", "other", "anew"]
    schedule: Schedule
    stepped: SiteId  # the line of the steps that it was to set the rate of
    steps: int  # of the optimizer that trains; of the schedulers, where they are made anew
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
    rates: dict[int, set[float]] = defaultdict(set)
    for one in history.trace.rates:
        if one.optimizer == number:
            rates[one.group].add(one.rate)
    return bool(rates) and all(len(one) == 1 for one in rates.values())


def _anew(schedules: list[Schedule], stepped: SiteId) -> Iterator[ScheduleInVain]:
    """Yield a line that makes a scheduler for each step of it, which begins where all begin."""
    lines: dict[SiteId, list[Schedule]] = defaultdict(list)
    for one in schedules:
        lines[one.site].append(one)
    for some in lines.values() if stepped != UNKNOWN else ():
        alike = len({one.after for one in some}) == 1
        if len(some) >= LEAST and alike and all(one.steps == 1 for one in some):
            yield ScheduleInVain("anew", some[0], stepped, len(some), some[0].optimizer)
