"""Gradients that passes of one loss leave, step after step, where nothing clears them."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Container, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from tether.analysis.gradients.graph import Graph
from tether.analysis.history import History, following, latest
from tether.facts import OptimizerId, TensorId
from tether.finding import At, Claim, Repair, Step, Tensor, say
from tether.verdicts.gradient_accumulated.adding import gradients_met, passes_that_add

LEAST_STEPS = 2
"""Passes, and later steps without one: of one nothing is known."""


class PiledUp(NamedTuple):
    """A first step that used what passes for another optimizer's steps had added up: positions."""

    first: int  # the first of those passes
    stepped: int  # the other's step that came after it
    step: int
    cleared: int  # the call that cleared gradients then, and not these; -1: none
    passes: int  # that each had a step of another optimizer after them
    tensors: tuple[int, ...]


def piled_up(history: History) -> Iterator[PiledUp]:
    """Yield the first steps that used such a sum, where each later one has passes of its own."""
    by = defaultdict[OptimizerId, list[int]](list)
    for one in history.steps:
        by[one.optimizer].append(history.position(one.at))
    if len(by) < 2 or history.in_part:
        return
    windows = _Windows(history)
    for number, steps in by.items():
        groups = defaultdict[tuple[int, ...], list[int]](list)
        for tensor in history.trace.optimizers[number].tensors:
            groups[tuple(windows.piled(tensor, steps[0]))].append(tensor)
        for passes, tensors in groups.items():
            later = [windows.piled(tensors[0], at) for at in steps[1:]]
            if min(len(passes), len(later)) >= LEAST_STEPS and not any(later):
                reached = [one for one in tensors if windows.adds(passes, one)]
                if reached:
                    stepped = windows.stepped(passes[0])
                    cleared = windows.clears(passes[0], passes[1])
                    yield PiledUp(
                        passes[0], stepped, steps[0], cleared, len(passes), tuple(reached)
                    )


class _Windows:
    """What is in the gradients of a tensor as a step uses them."""

    def __init__(self, history: History) -> None:
        self._history, self._graph = history, history.get(Graph)
        self._passes = passes_that_add(history)
        self._steps = sorted({history.position(one.at) for one in history.steps})
        self._clears: list[int] = []
        self._met: dict[int, list[int]] = defaultdict(list)  # tensor -> what may have cleared it
        for at, event in gradients_met(history):
            if event.operation == "zero_grad":
                self._clears.append(at)
            for read in event.reads:
                self._met[read.tensor].append(at)

    def piled(self, tensor: int, step: int) -> list[int]:
        """Return the passes whose gradients a step used, but for those after the last of others."""
        own = self._history.steps_of(tensor)
        since = max(latest(own, step), latest(self._met[tensor], step))
        first, last = bisect_right(self._passes, since), bisect_right(self._passes, step)
        passes = self._history.while_alive(tensor, self._passes[first:last])
        return [at for at, after in pairwise(passes) if -1 < self.stepped(at) < after]

    def stepped(self, at: int) -> int:
        """Return the next step of all after a pass."""
        return following(self._steps, at)

    def clears(self, first: int, last: int) -> int:
        """Return the first call between two passes that clears gradients; -1 for none."""
        found = following(self._clears, first)
        return found if found < last else -1

    def adds(self, passes: Sequence[int], tensor: int) -> bool:
        """Whether the first, the last and all those passes that were walked go through a tensor."""
        walked = [one for one in (self._graph.leaves(at) for at in passes) if one is not None]
        ends = (self._graph.leaves_led_to(at) for at in (passes[0], passes[-1]))
        return all(tensor in leaves for leaves in (*walked, *ends))


def claims(history: History, told: Container[int]) -> Iterator[Claim]:
    """Give one claim for each such line, but of tensors that were told of."""
    for found in piled_up(history):
        if found.tensors[0] not in told:
            yield _claim(history, found)


def _claim(history: History, found: PiledUp) -> Claim:
    events = history.events
    loss, stepped, step = (events[at].site for at in (found.first, found.stepped, found.step))
    cleared = [events[found.cleared].site] if found.cleared >= 0 else []
    return Claim(
        tensors=found.tensors,
        cause=("piled", loss, step),
        site=cleared[0] if cleared else loss,
        operation="step",
        message=say(
            "The first step of an optimizer at {step} uses gradients of {subject} that {n} passes"
            " before had added up from {loss} on: another optimizer stepped after each of them, and"
            " nothing cleared these.",
            step=At(step), loss=At(loss), n=found.passes,
        ),
        story=(
            *_holders(history, found.tensors[0], found.step),
            Step("loss", loss, say("each backward adds to the gradient of {x}, too",
                 x=Tensor(found.tensors[0]))),
            Step("step", stepped, say("another optimizer steps, without it")),
            *(Step("cleared", one, say("{x} is not among what is cleared here",
                   x=Tensor(found.tensors[0]))) for one in cleared),
            Step("step", step, say("this step uses the sum of all that")),
        ),
        repair=Repair(say("Clear all gradients before the first step of {subject}: call zero_grad()"
                          " on the whole model, or on this optimizer, before the backward pass of"
                          " that step. Or switch requires_grad off as long as it is not to"
                          " train.")),
        count=0,
    )  # fmt: skip


def _holders(history: History, tensor: TensorId | int, step: int) -> Iterator[Step]:
    """Yield where the optimizer of a step took a tensor."""
    for number in history.holders_of(tensor):
        fact = history.trace.optimizers[number]
        if any(one.optimizer == number and history.position(one.at) == step
               for one in history.steps):  # fmt: skip
            yield Step("held", fact.site, say("{kind} takes {x}", kind=fact.kind,
                       x=Tensor(TensorId(tensor))))  # fmt: skip
