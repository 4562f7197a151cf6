"""Learning rates that a loaded state brought, and that a scheduler replaced before any step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tether.analysis.history import History
from tether.facts import OptimizerId, Schedule

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
