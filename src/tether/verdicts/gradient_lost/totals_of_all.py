"""Totals of all processes that are put into a value with a graph, which has no derivative of it.

A collective of `torch.distributed` writes into memory, and autograd takes what it wrote for what
was there. What comes back to the value is the derivative of this process's loss by the total. The
losses of the other processes depend on it as well, and their derivatives come from nowhere. Where
the loss is linear in the total, that is no more than a factor.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tether.analysis.gradients.graph import Graph
from tether.analysis.history import History
from tether.facts import GRAD_ON, Operand, SiteId
from tether.finding import At, CallOf, Claim, Repair, Step, say
from tether.operations.table import operation


class TotalOfAll(NamedTuple):
    """Positions of calls."""

    call: int  # the collective
    tensor: int  # that it wrote
    used: int  # needs its value for a derivative
    loss: int


def totals_of_all(history: History) -> Iterator[TotalOfAll]:
    """Yield the first case of each line."""
    told = set[SiteId]()
    for at, event in history.events.where(_totals):
        if event.site in told or event.raised or event.grad_mode != GRAD_ON:
            continue
        if history.inside(event, "function", "backward", "step") >= 0:
            continue  # whose own backward says what comes back
        for found in (_found(history, at, one) for one in event.writes if _has_graph(one)):
            if found is not None and event.site not in told:
                told.add(event.site)
                yield found


def _totals(name: str) -> bool:
    return operation(name).reduces


def _has_graph(operand: Operand) -> bool:
    return operand.requires_grad and not operand.leaf


def _found(history: History, at: int, operand: Operand) -> TotalOfAll | None:
    """Return a case, if the next pass goes through what was computed of the total, and needs it."""
    graph = history.get(Graph)
    made = set(graph.makers_of(operand, at))
    loss = next((one for one in history.backwards if one > at and made & graph.behind(one)), -1)
    if loss < 0 or history.events[loss].raised:
        return None
    of = {at, *made}  # autograd may note the call as one that it knows no derivative of
    for later in range(at + 1, loss):
        if of.isdisjoint(graph.parents(later)):
            continue
        of.add(later)  # a view that is written gets another node: its own is in no pass
        if later in graph.behind(loss) and _needs_values(history, later):
            return TotalOfAll(at, operand.tensor, later, loss)
    return None


def _needs_values(history: History, at: int) -> bool:
    """Whether the derivative of a call needs values.

    What a write into a view has saved lies within the node that copies it into the whole.
    """
    graph = history.get(Graph)
    kind = graph.kind(at)
    if kind is not None and any(one.endswith("CopySlices") for one in kind.nodes):
        return 0 not in operation(history.events[at].operation).linear
    return any(True for _ in graph.saved(at, unchecked=True))


def claims(history: History) -> Iterator[Claim]:
    """Give a note for each such line."""
    for found in totals_of_all(history):
        yield _claim(history, found)


def _claim(history: History, found: TotalOfAll) -> Claim:
    events = history.events
    call, used, loss = (events[at].site for at in (found.call, found.used, found.loss))
    return Claim(
        tensors=(found.tensor,),
        cause=("total", call),
        site=call,
        calls=(found.call,),
        operation=events[found.call].operation,
        severity="note",
        message=say(
            "{call} at {line} writes the total of all processes into {subject}, which has a graph,"
            " and autograd has no derivative of that call: backward at {loss} gives {subject} what"
            " comes from the loss of this process alone, though the losses of the others depend on"
            " it, too (where all compute the same loss, that is a factor; it may be meant).",
            call=CallOf(found.call), line=At(call), loss=At(loss),
        ),
        story=(
            Step("written", call, say("the total is written here")),
            Step("used", used, say("{call} computes with the total", call=CallOf(found.used))),
            Step("loss", loss, say("backward starts from the loss here")),
        ),
        repair=Repair(say("Go on with what torch.distributed.nn.functional.all_reduce returns: its"
                          " backward adds up the gradients of all processes. Of what is only to be"
                          " looked at, send a detached copy.")),
        count=history.times(found.call),
    )  # fmt: skip
