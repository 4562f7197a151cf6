"""Training that goes on from saved values, with an optimizer or a scheduler that starts from none.

As a state is handed out, the values that the optimizer's parameters have are summed, and what it,
or the scheduler, was made with is kept beside it; so they are as a file gets all of the parameters.
As another optimizer begins its first step, its parameters are asked whether they have the very
values of such a moment.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from tether.facts import Moment, OptimizerId, SiteId, StateGiven, StateLeft
from tether.record.arrays.contents import fingerprint
from tether.record.budget import Budget
from tether.record.tape import Tape
from tether.record.training.saved_states import held_by

MOST_SAVED = 1 << 10
"""Moments that are kept; states that are handed out later are not noted."""

_PLAIN = (int, float, str, bool, type(None))

Numbered = Callable[[Optimizer, int], int]
"""Returns the number of an optimizer's latest fact; a line is for one that was not known."""

Values = tuple[tuple[tuple[int, ...], int], ...]
"""The shape and the check sum of each parameter, in order."""


class _HandedState(NamedTuple):
    """A state that was handed out."""

    optimizer: int
    serials: tuple[int, ...]  # of its parameters
    kind: str
    made: tuple[Any, ...]  # with
    site: int
    steps: int  # that it had taken, or the scheduler
    going: list[int]  # steps that the optimizer has taken by now
    pace: int  # and had then
    filed: bool  # a file got the parameters: the state was not handed out with them


class _AsMade(NamedTuple):
    site: int
    settings: tuple[Any, ...]  # what was plain of it as it had been made


class Resumptions:
    """What was handed out for which values, and who begins with them again."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape
        self.facts: list[StateLeft] = []
        self.given: list[StateGiven] = []
        self.numbered: Numbered = lambda _, site: site
        self._handed: dict[Values, dict[str, _HandedState]] = {}
        self._made: weakref.WeakKeyDictionary[Any, _AsMade] = weakref.WeakKeyDictionary()
        self._steps: weakref.WeakKeyDictionary[Optimizer, list[int]] = weakref.WeakKeyDictionary()
        self._loaded: weakref.WeakSet[Optimizer] = weakref.WeakSet()
        self._schedulers: weakref.WeakKeyDictionary[Optimizer, list[weakref.ref[LRScheduler]]] = (
            weakref.WeakKeyDictionary()
        )
        self._budget = Budget(0.02, allowed=0.5)

    # -- what is told ----------------------------------------------------------------------------

    def made(self, one: Any, site: int) -> None:
        """Take note of an optimizer or a scheduler that has just been made."""
        plain = one.defaults if isinstance(one, Optimizer) else vars(one)
        self._made[one] = _AsMade(site, _settings(plain))
        if isinstance(one, LRScheduler):
            self._schedulers.setdefault(one.optimizer, []).append(weakref.ref(one))

    def saved(self, one: Any, site: int) -> None:
        """Take note of a state that is handed out, with the values of the parameters."""
        optimizer = one if isinstance(one, Optimizer) else getattr(one, "optimizer", None)
        if isinstance(one, Optimizer) and len(self.given) < MOST_SAVED:
            number, full = OptimizerId(self.numbered(one, site)), any(one.state.values())
            self.given.append(StateGiven(Moment(self._tape.now()), SiteId(site), number, full))
        if isinstance(optimizer, Optimizer):
            self._keep(one, optimizer, site, filed=False)

    def filed(self, tensors: Sequence[Tensor], site: int) -> None:
        """Take note of what a file gets, where that is all that an optimizer steps.

        What the optimizer keeps for it may be handed out for the same values afterwards.
        """
        optimizers = [one for one in self._made if isinstance(one, Optimizer) and self._taken(one)]
        storages = {self._tape.who.snapshot(one)[1] for one in tensors} if optimizers else set()
        objects = set(map(id, tensors))
        for one in optimizers:
            kept = (id(part) for state in one.state.values() for part in state.values())
            held = {self._tape.who.snapshot(parameter)[1] for parameter in held_by(one)}
            if held <= storages and objects.isdisjoint(kept):
                self._keep(one, one, site, filed=True)

    def loaded(self, optimizer: Optimizer) -> None:
        """Take note that an optimizer was given a state."""
        self._loaded.add(optimizer)

    def steps(self, optimizer: Optimizer, number: int) -> None:
        """Look at an optimizer that begins a step, if it is the first."""
        going = self._going(optimizer)
        going[0] += 1
        if going[0] > 1 or not self._handed:
            return
        values = self._values(optimizer)
        handed = self._handed.get(values, {}) if values else {}
        for one in self._at_the_start(optimizer) if handed else ():
            before, made = handed.get(_kind(one)), self._made.get(one)
            if before is None or made is None or before.made != made.settings:
                continue
            # Nothing has changed the parameters since: it is no return to what was saved.
            still = before.going[0] == before.pace and before.serials == self._serials(optimizer)
            if not still:
                self._add(before, number, made.site)

    # -- parts -----------------------------------------------------------------------------------

    def _keep(self, one: Any, optimizer: Optimizer, site: int, *, filed: bool) -> None:
        """Keep the values that an optimizer's parameters have, as a state is, or is not, saved."""
        made, steps = self._made.get(one), self._taken(one)
        if made is None or not steps or len(self._handed) >= MOST_SAVED:
            return
        values = self._values(optimizer)
        if values and not (filed and _kind(one) in self._handed.get(values, {})):
            going, known = self._going(optimizer), self._handed.setdefault(values, {})
            known[_kind(one)] = _HandedState(
                self.numbered(optimizer, site), self._serials(optimizer), _kind(one), made.settings,
                site, steps, going, going[0], filed,
            )  # fmt: skip

    def _at_the_start(self, optimizer: Optimizer) -> list[Any]:
        """Return the optimizer, if it has no state, and those of its schedulers that did not go."""
        refs = self._schedulers.get(optimizer, ())
        found: list[Any] = [one for one in (ref() for ref in refs) if one is not None]
        found = [one for one in found if not self._taken(one)]
        fresh = optimizer not in self._loaded and not optimizer.state
        return [optimizer, *found] if fresh else found

    def _going(self, optimizer: Optimizer) -> list[int]:
        return self._steps.setdefault(optimizer, [0])

    def _serials(self, optimizer: Optimizer) -> tuple[int, ...]:
        return tuple(self._tape.who.serial(one) for one in held_by(optimizer))

    def _add(self, before: _HandedState, number: int, site: int) -> None:
        now, whose = Moment(self._tape.now()), OptimizerId(before.optimizer)
        places = SiteId(site), before.kind, OptimizerId(number), whose, SiteId(before.site)
        self.facts.append(StateLeft(now, *places, before.steps, before.filed))

    def _taken(self, one: Any) -> int:
        """Return how far an optimizer that keeps something, or a scheduler, has come."""
        if isinstance(one, Optimizer):
            return self._going(one)[0] if any(one.state.values()) else 0
        reached = getattr(one, "last_epoch", 0)
        return reached if isinstance(reached, int) else 0

    def _values(self, optimizer: Optimizer) -> Values | None:
        """Return what the parameters of an optimizer are; None where that cannot be told."""
        if self._budget.late():
            return None
        with self._budget:
            found = [(tuple(one.shape), fingerprint(one)) for one in held_by(optimizer)]
        known = tuple((shape, one) for shape, one in found if one is not None)
        return known if len(known) == len(found) else None


def _kind(one: Any) -> str:
    return type(one).__name__


def _settings(plain: dict[str, Any]) -> tuple[Any, ...]:
    """Return the plain values among some, in an order of their own."""
    found = {name: one for name, one in plain.items() if _is_plain(one)}
    return tuple(sorted((name, repr(one)) for name, one in found.items()))


def _is_plain(one: Any) -> bool:
    if isinstance(one, list | tuple):
        return all(map(_is_plain, one))
    return isinstance(one, _PLAIN)
