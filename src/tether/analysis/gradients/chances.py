"""Which parameters a pass could have given a gradient: they required grad, and it went past them.

A program may switch requires_grad on and off in turn, as for the two nets of a game. How a tensor
ended says nothing then: what counts is how it was at the passes whose gradients its optimizers
stepped by.
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections import defaultdict

from tether.analysis.history import History, latest
from tether.analysis.training.frozen import SWITCHES
from tether.facts import GRAD_ON, Event
from tether.operations.table import operation

LAST = sys.maxsize


class PassesOfSteps:
    """The last backward pass before each step: what the optimizer stepped by.

    Each lies after the step before of the same optimizer, or after it was made.
    """

    def __init__(self, history: History) -> None:
        self.lines: dict[int, set[int]] = defaultdict(set)  # optimizer -> lines of the passes
        self.steppers: dict[int, frozenset[int]] = {}  # pass -> optimizers
        same: dict[frozenset[int], frozenset[int]] = {}  # few differ, of however many passes
        made = {n: history.position(one.at) for n, one in enumerate(history.trace.optimizers)}
        for fact in history.steps:
            if history.trace.optimizers[fact.optimizer].site == fact.site:
                made.pop(fact.optimizer, None)  # first met as it stepped: it is older than that
            at = history.position(fact.at)
            backward = latest(history.backwards, at)
            if backward >= made.get(fact.optimizer, 0):
                self.lines[fact.optimizer].add(history.events[backward].site)
                steppers = self.steppers.get(backward, frozenset()) | {fact.optimizer}
                self.steppers[backward] = same.setdefault(steppers, steppers)
            made[fact.optimizer] = at


class Chances:
    """Asks of tensors whether some pass could have given them a gradient, had it used them."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._steppers = history.get(PassesOfSteps).steppers
        self._known: dict[int, list[int]] = {}

    def had_one(self, tensor: int) -> bool:
        """Whether a tensor required grad throughout what led to a pass that its steps came after.

        Of one that no optimizer's step asked for, whether it did at any pass that finished.
        """
        return any(
            self.requires_grad(tensor, at) and not self._used_frozen(tensor, at)
            for at in self.passes_of(tensor)
        )

    def passes_of(self, tensor: int) -> list[int]:
        """Return the passes whose gradients the steps of a tensor's optimizers used."""
        history, holders = self._history, set(self._history.holders_of(tensor))
        if holders and history.steps_of(tensor):
            return [at for at, by in self._steppers.items() if not holders.isdisjoint(by)]
        return [at for at in history.backwards if not history.events[at].raised]

    def requires_grad(self, tensor: int, at: int = LAST) -> bool:
        """Whether a tensor required grad at a call, or in the end: as the one before left it."""
        touched = self._touched(tensor)
        before = bisect_right(touched, at)
        if not before:
            return bool(touched) and _as_given(self._history.events[touched[0]], tensor)
        event = self._history.events[touched[before - 1]]
        if event.operation in SWITCHES and event.reads[0].tensor == tensor:
            return event.on
        after = [one.requires_grad for one in event.results if one.tensor == tensor]
        return after[0] if after else _as_given(event, tensor)

    def ever_required(self, tensor: int) -> bool:
        """Whether a tensor was seen to require grad, or was asked to."""
        return any(self.requires_grad(tensor, at) for at in self._touched(tensor))

    def _touched(self, tensor: int) -> list[int]:
        """Return the calls that show whether a tensor requires grad, in order."""
        if tensor not in self._known:
            made = self._history.made_at(tensor)
            seen = {*self._history.reads_of(tensor), *([made] if made >= 0 else [])}
            self._known[tensor] = sorted(seen)
        return self._known[tensor]

    def _used_frozen(self, tensor: int, at: int) -> bool:
        """Whether a call computed with a tensor, on the way to a pass, while it was frozen."""
        touched, since = self._touched(tensor), latest(self._history.backwards, at)
        between = touched[bisect_right(touched, since) : bisect_right(touched, at)]
        events = [self._history.events[one] for one in between]
        return any(_computes(one) and _is_given_frozen(one, tensor) for one in events)


def _as_given(event: Event, tensor: int) -> bool:
    return any(one.requires_grad for one in event.reads if one.tensor == tensor)


def _is_given_frozen(event: Event, tensor: int) -> bool:
    return any(one.tensor == tensor and not one.requires_grad for one in event.reads)


def _computes(event: Event) -> bool:
    """Whether a call would have made a graph of what it is given, had that required grad."""
    row = operation(event.operation)
    apart = row.cuts or row.outside or row.rebuilds
    return event.grad_mode == GRAD_ON and row.carries and not apart and bool(event.results)
