"""Trained values that were copied before an evaluation with others, and never put back.

A program that keeps what it trains, writes other values over it (an average), computes without
gradients and goes on training wants its own values back. Told are copies of which nothing is ever
read, at no run of their line, where the next call that writes the parameter is a step.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from tether.analysis.history import History
from tether.analysis.training.loaded_over import gives_others
from tether.facts import GRAD_ON, UNKNOWN, Operand
from tether.finding import At, Claim, Repair, Step, say
from tether.operations.table import operation

OFTEN = 2
"""Times that values were lost (once may be where a training ends, or begins), and that an average
took them up before each."""

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


class NeverKept(NamedTuple):
    """A line that gives parameters others of their values to train on from, and keeps none."""

    tensors: tuple[int, ...]
    written: int  # the first time
    evaluated: int  # a call that computes with what was written
    step: int  # the line of the step that goes on from it
    times: int  # that the first of them lost its values


class _Lost(NamedTuple):
    written: int
    evaluated: int
    step: int


class _LostCopied(NamedTuple):
    tensor: int
    copied: int
    lost: _Lost


def never_put_back(history: History) -> Iterator[NeverPutBack]:
    """Yield them by the line that copies."""
    if history.in_part or not history.steps:
        return
    steps = history.get(_StepsOfEach)
    for copies in _copies(history).values():
        if any(_is_read(history, at) for at, _ in copies):
            continue
        lost = [
            _LostCopied(tensor, at, one)
            for at, tensor in copies[:MOST_COPIES]
            if (one := steps.lost(at, tensor)) is not None
        ]
        if lost:
            tensors = tuple(dict.fromkeys(one.tensor for one in lost))
            whole = any(set(tensors) >= set(one.tensors) for one in history.trace.optimizers)
            times = sum(one.tensor == tensors[0] for one in lost)
            yield NeverPutBack(tensors, lost[0].copied, *lost[0].lost, whole, times)


def never_kept(history: History) -> Iterator[NeverKept]:
    """Yield the lines that write averages over what they are averages of, for an evaluation.

    An average takes up the values several times before it is written over them: what is written
    back each time that it took them up (slow weights, beside fast ones) is to be trained on from.
    """
    if history.in_part or not history.steps:
        return
    steps = history.get(_StepsOfEach)
    found: dict[int, dict[int, list[_Lost]]] = defaultdict(dict)
    for tensor in sorted(history.held):
        lost = steps.overwritten(tensor)
        if len(lost) >= OFTEN:
            found[history.events[lost[0].written].site][tensor] = lost
    for some in found.values():
        first, *_ = some.values()
        yield NeverKept(tuple(some), *first[0], len(first))


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
        self._of: dict[int, array[int]] = defaultdict(lambda: array("q"))
        self._lines: dict[int, int] = {}  # by these steps
        for fact in history.steps:
            at = history.position(fact.at)
            self._lines[at] = int(fact.site)
            for tensor, status in fact.status.items():
                if status != "none":
                    self._of[tensor].append(at)

    def overwritten(self, tensor: int) -> list[_Lost]:
        """Return how an average of its own was written over a parameter, if each time was alike."""
        operand = self._history.operand_of(tensor)
        if operand is None:
            return []
        found, before = list[_Lost](), UNKNOWN
        for at in self._between(tensor, operand):
            lost = self._overwritten(tensor, operand, at)
            if lost is None or self._taken_up(operand, before, at) < OFTEN:
                return []
            found.append(lost)
            before = at
        return found

    def _between(self, tensor: int, operand: Operand) -> Iterator[int]:
        """Yield the writes to a parameter that come between two steps of it, and are no step."""
        history, steps = self._history, self._of[tensor]
        for at in history.written(operand, history.by_steps) if steps else ():
            if steps[0] < at < steps[-1]:
                yield at

    def _overwritten(self, tensor: int, operand: Operand, at: int) -> _Lost | None:
        """Return what became of a parameter that a call writes; None if its values were kept."""
        number = bisect_left(self._of[tensor], at)
        since, until = self._of[tensor][number - 1 : number + 1]
        if not gives_others(self._history, at, operand) or self._kept(operand, since, at):
            return None
        evaluated = self._evaluated(operand, at, until)
        return None if evaluated < 0 else _Lost(at, evaluated, self._lines[until])

    def _kept(self, operand: Operand, since: int, until: int) -> bool:
        """Whether a call copied a tensor, or gave it away, between two others."""
        history, memory = self._history, self._history.flow.memory(operand)
        rows = (
            operation(history.events[at].operation)
            for at in history.on_storage(operand)
            if since < at < until
        )
        return any(row.copies or row.exports or row.leaves or row.lends for row in rows) or any(
            memory in map(history.flow.memory, history.saved(at))
            for at, _ in history.events.where("save".__eq__)
            if since < at < until
        )

    def _taken_up(self, operand: Operand, since: int, written: int) -> int:
        """Return how often what is written over a tensor had been given its values since a call."""
        history, memory = self._history, self._history.flow.memory
        *_, average = history.events[written].reads
        return sum(
            any(memory(one) == memory(operand) for one in history.events[at].reads)
            for at in history.writes_to(average, since)
            if at < written
        )

    def lost(self, copied: int, tensor: int) -> _Lost | None:
        """Return what became of a parameter after a copy of it, if its values were lost."""
        history, operand = self._history, self._history.operand_of(tensor)
        number = bisect_left(self._of[tensor], copied)
        if operand is None or not 0 < number < len(self._of[tensor]):
            return None
        until = self._of[tensor][number]
        writes = [at for at in history.writes_to(operand, copied) if at < until]
        written = [at for at in writes if history.inside(history.events[at], "step") < 0]
        if len(written) != 1 or not gives_others(history, written[0], operand):
            return None
        evaluated = self._evaluated(operand, written[0], until)
        return None if evaluated < 0 else _Lost(written[0], evaluated, self._lines[until])

    def _evaluated(self, operand: Operand, since: int, until: int) -> int:
        """Return a call that computes with a tensor and for no gradient, between two others."""
        for at in self._history.readers(operand, since, until):
            event = self._history.events[at]
            apart = event.grad_mode != GRAD_ON and not event.writes
            if apart and event.results and not operation(event.operation).copies:
                return at
        return UNKNOWN


def claims(history: History) -> Iterator[Claim]:
    """Give one claim for each such line."""
    for found in never_put_back(history):
        yield _kept(history, found)
    for averaged in never_kept(history):
        yield _averaged(history, averaged)


SEVERAL = 3
"""Evaluations after which it is no accident that what was copied was not put back."""


def _averaged(history: History, found: NeverKept) -> Claim:
    written, evaluated = (history.events[at].site for at in (found.written, found.evaluated))
    parts = {"written": At(written), "step": At(found.step), "n": found.times}
    return Claim(
        tensors=found.tensors,
        cause=("averaged", written),
        site=written,
        operation=history.events[found.written].operation,
        severity="note",
        message=say(
            "The trained values of {subject} are lost, {n} times: {written} writes others over"
            " them, made of earlier ones, to compute without gradients, no copy of them is there,"
            " and the step at {step} goes on from the others.",
            **parts,
        ),
        story=(
            Step("written", written, say("other values are written over the trained ones")),
            Step("used", evaluated, say("a call without gradients computes with the others")),
            Step("step", found.step, say("the training goes on from the others")),
        ),
        repair=Repair(say("Copy the trained values before {written}, and write them back after the"
                          " evaluation; or evaluate another model, with the others loaded.",
                          **parts)),
        count=found.times,
        calls=(found.written,),
    )  # fmt: skip


def _kept(history: History, found: NeverPutBack) -> Claim:
    copied, written, evaluated = (
        history.events[at].site for at in (found.copied, found.written, found.evaluated)
    )
    parts = {"copied": At(copied), "written": At(written), "step": At(found.step)}
    return Claim(
        tensors=found.tensors,
        cause=("kept", copied, written),
        site=written,
        operation=history.events[found.written].operation,
        severity="warning" if found.whole and found.times >= SEVERAL else "note",
        message=say(
            "The trained values of {subject}, which {copied} copies, are lost: {written} writes"
            " others over them to compute without gradients, nothing ever reads a copy, and the"
            " step at {step} goes on from the others.",
            **parts,
        ),
        story=(
            Step("saved", copied, say("the trained values are copied")),
            Step("written", written, say("other values are written over them")),
            Step("used", evaluated, say("a call without gradients computes with the others")),
            Step("step", found.step, say("the training goes on from the others")),
        ),
        repair=Repair(say("Write the copies back into the parameters after the evaluation, before"
                          " {step}.", **parts)),
        assumes=(say("no line of the program that did not run puts them back"),),
        count=found.times,
        calls=(found.written,),
    )  # fmt: skip
