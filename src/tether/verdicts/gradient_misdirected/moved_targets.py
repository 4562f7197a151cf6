"""Targets of a loss that the loss moves: they were computed with a graph, of other parameters.

Of a loss such as the cross entropy one argument is said to be what the other is to become. Where
that one leads back to parameters which the other does not come from, a step moves these towards
what is predicted, too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from tether.analysis.gradients.ends import GradientEnds
from tether.analysis.gradients.graph import Graph
from tether.analysis.history import History
from tether.facts import Operand, SiteId
from tether.finding import At, CallOf, Claim, Repair, Step, Tensor, say
from tether.operations.table import operation

LEAST = 2
"""Passes of a line that must show it."""


class MovedTarget(NamedTuple):
    """A loss that moves what its target is computed of; positions."""

    loss: int  # the call
    entered: int  # the last call before it that reads the first of the parameters
    backward: int
    target: int  # a tensor
    tensors: tuple[int, ...]  # that the target comes from, and what it is compared with does not


def moved_targets(history: History) -> Iterator[MovedTarget]:
    """Yield each line of such a loss once, where several passes show it."""
    if history.in_part or not history.steps:
        return
    found: dict[SiteId, list[MovedTarget]] = defaultdict(list)
    graph = history.get(Graph)
    for walk in history.trace.walks:
        backward = history.position(walk.event)
        for at in sorted(graph.behind(backward)):
            one = _moved(history, at, backward)
            if one is not None:
                found[history.events[at].site].append(one)
    for cases in found.values():
        if len({one.backward for one in cases}) >= LEAST:
            yield cases[0]


def _moved(history: History, loss: int, backward: int) -> MovedTarget | None:
    """Return which parameters a loss moves by its target alone, if a step used what they got."""
    event = history.events[loss]
    if not operation(event.operation).aims or len(event.reads) < 2:
        return None
    given, target = event.reads[:2]
    if not (given.requires_grad and target.requires_grad):
        return None
    ends = history.get(GradientEnds)
    others = _leaves(history, target, loss) - _leaves(history, given, loss)
    moved = [one for one in others & history.held if ends.after(one, backward).uses]
    if not moved:
        return None
    moved.sort(key=lambda one: history.order.get(one, 0))
    return MovedTarget(
        loss, _entered(history, moved[0], loss), backward, int(target.tensor), tuple(moved)
    )


def _leaves(history: History, operand: Operand, before: int) -> set[int]:
    """Return the parameters that a tensor with a graph comes from."""
    graph = history.get(Graph)
    makers = graph.makers_of(operand, before)
    return set[int]().union(*map(graph.leaves_behind, makers))


def _entered(history: History, tensor: int, before: int) -> int:
    """Return the last call before another one that reads a parameter."""
    operand = history.operand_of(tensor)
    readers = [] if operand is None else list(history.readers(operand, -1, before))
    return readers[-1] if readers else before


def claims(history: History) -> Iterator[Claim]:
    """Give one claim for each such line."""
    for found in moved_targets(history):
        yield _claim(history, found)


def _claim(history: History, found: MovedTarget) -> Claim:
    events = history.events
    loss, entered, backward = (
        events[at].site for at in (found.loss, found.entered, found.backward)
    )
    optimizer = history.trace.optimizers[history.holders_of(found.tensors[0])[0]]
    names = {"target": Tensor(found.target), "kind": optimizer.kind, "call": CallOf(found.loss)}
    return Claim(
        tensors=found.tensors,
        cause=("target", loss),
        site=loss,
        operation=events[found.loss].operation,
        severity="note",
        message=say(
            "The target of {call} at {line} has a graph, to {subject}, which what it is compared"
            " with does not come from: steps of {kind} move the target towards it as well.",
            line=At(loss), **names,
        ),
        story=(
            Step("held", optimizer.site, say("{kind} takes {x}", x=Tensor(found.tensors[0]),
                 **names)),
            Step("used", entered, say("the target is computed from it here")),
            Step("loss", backward, say("backward goes through both")),
        ),
        repair=Repair(say("Detach the target, or compute it under torch.no_grad(), where only what"
                          " is compared with it is to learn.", **names)),
        count=0,
        calls=(found.loss,),
    )  # fmt: skip
