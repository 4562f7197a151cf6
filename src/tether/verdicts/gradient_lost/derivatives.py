"""What derivatives of derivatives lack, where one on the way was asked for without a graph."""

from __future__ import annotations

from collections.abc import Iterator

from tether.analysis.gradients.second_order import (
    FirstOrder,
    LastDerivative,
    OnlyTheChange,
    TakenForConstant,
    first_order,
    last_derivatives,
    only_the_change,
    taken_for_constant,
)
from tether.analysis.history import History
from tether.analysis.surroundings import Surroundings
from tether.finding import At, CallOf, Claim, Repair, Step, Tensor, say
from tether.source.handing import saved_at


def claims(history: History) -> Iterator[Claim]:
    """Give what derivatives of derivatives lack."""
    for update in first_order(history):
        yield _constant(history, update)
    for change in only_the_change(history):
        yield _without_its_start(history, change)
    for last in last_derivatives(history):
        yield _last(history, last)
    for kept in taken_for_constant(history):
        yield _second(history, kept)


def _constant(history: History, found: FirstOrder) -> Claim:
    events = history.events
    asked, update, loss = (events[at].site for at in (found.gradient, found.update, found.loss))
    return Claim(
        tensors=found.tensors,
        cause=("first order", asked),
        site=asked,
        calls=found.calls,
        operation="autograd.grad",
        severity="note",
        message=say(
            "{line} asks for the gradient of {subject} without create_graph=True, and {update}"
            " changes {subject} by it: backward at {loss} takes the change for a constant"
            " (first-order; that may be meant).",
            line=At(asked), update=At(update), loss=At(loss),
        ),
        story=(
            Step("cut", asked, say("the gradient has no graph")),
            Step("used", update, say("{call} uses it, and the graph goes on",
                 call=CallOf(found.update))),
            Step("loss", loss, say("backward starts from the loss here")),
        ),
        repair=Repair(say("Where the change itself is to be differentiated: autograd.grad(...,"
                          " create_graph=True).")),
        count=len(found.calls),
    )  # fmt: skip


def _without_its_start(history: History, found: OnlyTheChange) -> Claim:
    events = history.events
    asked, cut, update, loss = (
        events[at].site for at in (found.gradient, found.cut, found.update, found.loss)
    )
    return Claim(
        tensors=(found.tensor,),
        cause=("only the change", cut),
        site=cut,
        calls=(found.cut,),
        operation=events[found.cut].operation,
        severity="note",
        message=say(
            "{update} changes {subject} by a gradient that has a graph, and takes {subject} itself"
            " without one ({call} at {cut}): what backward at {loss} gives back to it comes through"
            " the gradient alone, and the next step uses that.",
            update=At(update), call=CallOf(found.cut), cut=At(cut), loss=At(loss),
        ),
        story=(
            Step("asked", asked, say("the gradient is asked for, with its graph")),
            Step("cut", cut, say("the values are taken here, without their graph")),
            Step("used", update, say("{call} joins both", call=CallOf(found.update))),
            Step("loss", loss, say("backward starts from the loss here")),
        ),
        repair=Repair(say("Start from the tensor itself, as autograd.grad was asked to make a"
                          " graph: without .data or detach at {cut}.", cut=At(cut))),
        count=history.times(found.cut),
    )  # fmt: skip


def _last(history: History, found: LastDerivative) -> Claim:
    asked, used, loss = (history.events[at].site for at in (found.gradient, found.used, found.loss))
    event = history.events[found.gradient]
    own, tensor = event.inner == event.site, event.results[0].tensor
    return Claim(
        tensors=(tensor,),
        cause=("last", asked),
        site=asked,
        calls=(found.gradient,),
        operation="autograd.grad",
        severity="note",
        message=say(
            "{line} asks for a derivative{of} without create_graph=True, so {subject}"
            " has no graph: the loss of {loss}, which it goes into, takes it for a constant.",
            line=At(asked), loss=At(loss), of=" of a derivative" if found.second and own else "",
        ),
        story=(
            Step("cut", asked, say("the derivative has no graph")),
            Step("used", used, say("{call} joins it with what has one", call=CallOf(found.used))),
            Step("loss", loss, say("backward starts from the loss here")),
        ),
        repair=Repair(say("Where it is to be learned from: create_graph=True at {line}; where not,"
                          " say so with detach().", line=At(asked))),
        count=history.times(found.gradient),
    )  # fmt: skip


def _second(history: History, found: TakenForConstant) -> Claim:
    events = history.events
    made, used, first, second = (
        events[at].site for at in (found.made, found.used, found.first, found.second)
    )
    site = history.site(made)
    saved = saved_at(history.get(Surroundings).source(site.file), site)
    parts = {
        "name": found.name, "made": At(made), "used": At(used), "first": At(first),
        "second": At(second), "x": Tensor(found.tensor),
    }  # fmt: skip
    return Claim(
        tensors=(found.tensor,),
        cause=("second", made),
        site=saved or made,
        operation="apply",
        message=say(
            "The derivative at {second} lacks a part: {used} in the backward of {name} uses"
            " {subject}, which its forward computes from its input at {made}, as a constant.",
            **parts,
        ),
        story=(
            Step("made", made, say("{x} is computed from the input; forward makes no graph",
                 **parts)),
            *([] if saved is None else [Step("saved", saved, say("{x} is kept", **parts))]),
            Step("used", used, say("backward uses it, in a pass that makes a graph", **parts)),
            Step("asked", first, say("create_graph=True: this gradient has a graph")),
            Step("loss", second, say("this pass differentiates it, and {x} has no graph", **parts)),
        ),
        repair=Repair(say("Keep the input of {name} in place of {x}, and compute {x} from it in"
                          " backward; or mark backward with once_differentiable, so that a second"
                          " derivative raises.", **parts)),
        count=0,
    )  # fmt: skip
