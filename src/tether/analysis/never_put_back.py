"""Trained values that were copied before an evaluation with others, and never put back.

A program that keeps what it trains, writes other values over it (an average), computes without
gradients and goes on training wants its own values back. Told are copies of which nothing is ever
read, at no run of their line, where the next call that writes the parameter is a step.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from tether.analysis.history import History
from tether.facts import GRAD_ON, UNKNOWN, Operand
from tether.operations.table import operation

MOST_COPIES = 256
"""Copies of one line of which each is asked what came after it."""


class NeverPutBack(NamedTuple):
    """A line that copies parameters, and one that gives them other values to train on from."""

    tensors: tuple[int, ...]
    copied: int  # the first call that copies one
    written: int  # over its values
    evaluated: int  # a call that computes with what was written
    step: int  # the line of the step that goes on from it
    whole: bool  # all that an optimizer holds
    times: int  # that the first of them lost its values


class _Lost(NamedTuple):
    tensor: int
    copied: int
    written: int
    evaluated: int
    step: int


def never_put_back(history: History) -> Iterator[NeverPutBack]:
    """Yield them by the line that copies."""
    if history.in_part or not history.steps:
        return
    steps = _StepsOfEach(history)
    for copies in _copies(history).values():
        if any(_is_read(history, at) for at, _ in copies):
            continue
        found = [steps.lost(at, tensor) for at, tensor in copies[:MOST_COPIES]]
        lost = [one for one in found if one is not None]
        if lost:
            tensors = tuple(dict.fromkeys(one.tensor for one in lost))
            whole = any(set(tensors) >= set(one.tensors) for one in history.trace.optimizers)
            times = sum(one.tensor == tensors[0] for one in lost)
            yield NeverPutBack(tensors, *lost[0][1:], whole, times)


def _copies(history: History) -> dict[int, list[tuple[int, int]]]:
    """Return the copies of what optimizers hold, by line: calls, and what each is a copy of."""
    memories = dict[int, int]()
    for tensor in history.held:
        operand = history.operand_of(tensor)
        if operand is not None:
            memories[history.flow.memory(operand)] = tensor
    found: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for at, event in history.events.where(lambda name: operation(name).copies == "clone"):
        if len(event.reads) == len(event.results) == 1:
            of, copy = (history.flow.memory(one) for one in (event.reads[0], event.results[0]))
            if of in memories and copy != of:
                found[event.site].append((at, memories[of]))
    return found


def _is_read(history: History, at: int) -> bool:
    """Whether anything read, or wrote, what a call made."""
    memory = history.flow.memory(history.events[at].results[0])
    return history.on_memory(memory)[-1] > at


class _StepsOfEach:
    """When the steps were that had a gradient of each parameter."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._of: dict[int, list[tuple[int, int]]] = defaultdict(list)  # and their lines
        for fact in history.steps:
            for tensor, status in fact.status.items():
                if status != "none":
                    self._of[tensor].append((history.position(fact.at), int(fact.site)))

    def lost(self, copied: int, tensor: int) -> _Lost | None:
        """Return what became of a parameter after a copy of it, if its values were lost."""
        history, operand = self._history, self._history.operand_of(tensor)
        number = bisect_right(self._of[tensor], (copied, UNKNOWN))
        if operand is None or not 0 < number < len(self._of[tensor]):
            return None
        until, line = self._of[tensor][number]
        writes = [at for at in history.writes_to(operand, copied) if at < until]
        written = [at for at in writes if history.inside(history.events[at], "step") < 0]
        if len(written) != 1 or not self._replaces(written[0], operand):
            return None
        evaluated = self._evaluated(operand, written[0], until)
        return None if evaluated < 0 else _Lost(tensor, copied, written[0], evaluated, line)

    def _replaces(self, at: int, operand: Operand) -> bool:
        """Whether a call gives a tensor the values of another memory."""
        event, memory = self._history.events[at], self._history.flow.memory
        others = [one for one in event.reads if memory(one) != memory(operand)]
        return operation(event.operation).overwrites and bool(others)

    def _evaluated(self, operand: Operand, since: int, until: int) -> int:
        """Return a call that computes with a tensor and for no gradient, between two others."""
        for at in self._history.readers(operand, since, until):
            event = self._history.events[at]
            apart = event.grad_mode != GRAD_ON and not event.writes
            if apart and event.results and not operation(event.operation).copies:
                return at
        return UNKNOWN
