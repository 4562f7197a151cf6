"""Which parameters a pass could have given a gradient: they required grad, and it went past them.

A program may switch requires_grad on and off in turn, as for the two nets of a game. How a tensor
ended says nothing then: what counts is how it was at the passes whose gradients its optimizers
stepped by.
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections import defaultdict
from functools import cached_property

import numpy as np

from tether.analysis.history import History, latest
from tether.analysis.training.frozen import SWITCHES
from tether.facts import GRAD_ON, ON, Event
from tether.operations.table import operation
from tether.store.numbers import Numbers

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
        self._known: dict[int, tuple[Numbers, Numbers]] = {}

    def had_one(self, tensor: int) -> bool:
        """Whether a tensor required grad throughout what led to a pass that its steps came after.

        Of one that no optimizer's step asked for, whether it did at any pass that finished.
        """
        calls, required = self._shown(tensor)
        passes = np.array(self.passes_of(tensor), np.int64)
        before = np.maximum(np.searchsorted(calls, passes, "right") - 1, 0)
        chances = passes[required[before]] if len(calls) else passes[:0]
        return any(not self._used_frozen(tensor, at) for at in chances.tolist())

    def passes_of(self, tensor: int) -> list[int]:
        """Return the passes whose gradients the steps of a tensor's optimizers used."""
        history, holders = self._history, set(self._history.holders_of(tensor))
        if holders and history.steps_of(tensor):
            return [at for at, by in self._steppers.items() if not holders.isdisjoint(by)]
        return [at for at in history.backwards if not history.events[at].raised]

    def requires_grad(self, tensor: int, at: int = LAST) -> bool:
        """Whether a tensor required grad at a call, or in the end: as the one before left it."""
        calls, required = self._shown(tensor)
        before = bisect_right(calls, at)
        return bool(len(calls)) and bool(required[max(before - 1, 0)])

    def ever_required(self, tensor: int) -> bool:
        """Whether a tensor was seen to require grad, or was asked to."""
        return bool(self._shown(tensor)[1].any())

    def _shown(self, tensor: int) -> tuple[Numbers, Numbers]:
        """Return the calls that met a tensor, in order, and whether it required grad after each."""
        if tensor not in self._known:
            tensors, calls, required = self._all
            first, last = np.searchsorted(tensors, np.array([tensor, tensor + 1], tensors.dtype))
            self._known[tensor] = calls[first:last], required[first:last]
        return self._known[tensor]

    @cached_property
    def _all(self) -> tuple[Numbers, Numbers, Numbers]:
        """The tensors that calls met, the calls, and whether each required grad after the call.

        As it was given, but for a switch: that tells what it makes of it. A result comes last.
        """
        events, parts = self._history.events, list[tuple[Numbers, Numbers, Numbers]]()
        column, switched = events.operands.column, events.called(SWITCHES.__contains__)
        for place in ("reads", "results"):
            at, rows = events.touched(place)
            required = column("kind")[rows] & 2 > 0
            if place == "reads":
                required = np.where(switched[at], events.flagged(ON)[at], required)
            parts.append((column("tensor")[rows], at, required))
        tensors, calls, required = map(np.concatenate, zip(*parts, strict=True))
        order = np.lexsort((calls, tensors))  # stable: of one call what it was given comes first
        return tensors[order], calls[order], required[order]

    def _used_frozen(self, tensor: int, at: int) -> bool:
        """Whether a call computed with a tensor, on the way to a pass, while it was frozen."""
        calls, since = self._shown(tensor)[0], latest(self._history.backwards, at)
        between = calls[bisect_right(calls, since) : bisect_right(calls, at)]
        events = (self._history.events[one] for one in dict.fromkeys(between.tolist()))
        return any(_computes(one) and _is_given_frozen(one, tensor) for one in events)


def _is_given_frozen(event: Event, tensor: int) -> bool:
    return any(one.tensor == tensor and not one.requires_grad for one in event.reads)


def _computes(event: Event) -> bool:
    """Whether a call would have made a graph of what it is given, had that required grad."""
    row = operation(event.operation)
    apart = row.cuts or row.outside or row.rebuilds
    return event.grad_mode == GRAD_ON and row.carries and not apart and bool(event.results)
