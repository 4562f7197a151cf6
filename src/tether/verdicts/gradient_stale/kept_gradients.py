"""Gradients that the program has set once, and that step after step uses again.

A gradient may come from elsewhere: a worker's copy of the network computes it, and it is assigned
to the parameter that is trained. Where that is done once, and backward goes on to give the copy
gradients of its own, each step goes by the first one. That nothing renews it is known from its
memory, which nothing writes, and from the parameter, whose `.grad` is neither set nor cleared.
Several steps on one gradient may be meant; so it is told where a pass came before each of them.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from tether.analysis.gradients.graph import Graph
from tether.analysis.history import History, following
from tether.facts import UNKNOWN, Operand, SiteId, TensorId
from tether.finding import At, Claim, Repair, Step, Tensor, say
from tether.operations.table import operation

LEAST_STEPS = 4
"""Steps by one gradient, with passes in between."""


class KeptGradient(NamedTuple):
    """Tensors whose gradients were set once, and used by each step since; positions."""

    tensors: tuple[int, ...]
    given: int  # sets the gradient of the first
    of: int  # the tensor whose gradient that was; UNKNOWN: of none that is known
    read: int  # the first call that finds the gradient there, after a step; UNKNOWN: none
    cleared: int  # the first that lets go of it on the other tensor; UNKNOWN: none
    step: int  # the second step by it
    steps: int


def kept_gradients(history: History) -> Iterator[KeptGradient]:
    """Yield them by the line that set them."""
    if not history.whole:
        return
    touched = history.gradients_replaced
    lines: dict[SiteId, list[KeptGradient]] = defaultdict(list)
    for tensor in sorted(touched.keys() & history.held, key=lambda one: history.order[one]):
        calls = touched[tensor]
        event = history.events[calls[-1]]
        if event.operation == "grad.__set__" and not event.none and len(event.reads) > 1:
            found = _kept(history, tensor, calls[-1], touched)
            if found is not None:
                lines[event.site].append(found)
    for some in lines.values():
        yield some[0]._replace(tensors=tuple(one.tensors[0] for one in some))


def _kept(
    history: History, tensor: int, given: int, touched: dict[int, array[int]]
) -> KeptGradient | None:
    gradient, every = history.events[given].reads[1], history.steps_of(tensor)
    steps = every[bisect_right(every, given) :]
    if len(steps) < LEAST_STEPS or 2 * len(steps) < len(every):
        return None
    between = all(history.next_pass(one) < other for one, other in pairwise(steps))
    some = _statuses(history, tensor, given) - {"unchecked"} == {"some"}
    if not between or not some or _renewed(history, tensor, gradient, given):
        return None
    of = _owner(history, gradient, given)
    read = next((at for at in _reads(history, tensor) if at > steps[0]), UNKNOWN)
    cleared = following(touched.get(of, ()), given)
    return KeptGradient((tensor,), given, of, read, cleared, steps[1], len(steps))


def _statuses(history: History, tensor: int, since: int) -> set[str]:
    """Return what the gradient of a tensor was at the steps since a call."""
    facts = (one for one in history.steps if history.position(one.at) > since)
    return {one.status[TensorId(tensor)] for one in facts if tensor in one.status}


def _renewed(history: History, tensor: int, gradient: Operand, given: int) -> bool:
    """Whether a gradient may have been written since it was set, or a pass have added to it."""
    graph, events = history.get(Graph), history.events
    shown = any(
        operation(events[at].operation).leaves == "array"
        for at in history.on_storage(gradient)
        if at > given
    )
    passes = history.backwards[bisect_right(history.backwards, given) :]
    added = any(tensor in (graph.leaves(at) or ()) for at in passes)
    return shown or added or next(history.writes_to(gradient, given), UNKNOWN) != UNKNOWN


def _owner(history: History, gradient: Operand, until: int) -> int:
    """Return the tensor that a gradient was read of, last of all before a call."""
    found = UNKNOWN
    for at, event in history.events.where("grad.__get__".__eq__):
        if at < until and any(one.tensor == gradient.tensor for one in event.results):
            found = int(event.reads[0].tensor)
    return found


def _reads(history: History, tensor: int) -> Iterator[int]:
    for at, event in history.events.where("grad.__get__".__eq__):
        if event.inner == event.site and event.reads[0].tensor == tensor:
            yield at


def claims(history: History) -> Iterator[Claim]:
    """Give one claim for each such line."""
    for found in kept_gradients(history):
        yield _claim(history, found)


def _claim(history: History, found: KeptGradient) -> Claim:
    events, own = history.events, Tensor(TensorId(found.tensors[0]))
    given, step = events[found.given].site, events[found.step].site
    of = () if found.of == UNKNOWN else (TensorId(found.of),)
    read = () if found.read == UNKNOWN else (events[found.read].site,)
    cleared = () if found.cleared == UNKNOWN else (events[found.cleared].site,)
    return Claim(
        tensors=found.tensors,
        cause=("kept", given, step),
        site=given,
        operation="grad",
        message=say(
            "{n} steps at {step} use one and the same gradient of {subject}: {given} sets it once,"
            " and no backward pass adds to it. Nothing clears it or sets it again.",
            n=found.steps, step=At(step), given=At(given),
        ),
        story=(
            *(Step("written", given, say("the gradient of {x} is set to that of {y}", x=own,
                   y=Tensor(one))) for one in of),
            *(() if of else (Step("written", given, say("the gradient of {x} is set", x=own)),)),
            *(Step("cleared", site, say("{y} lets go of it, and the next pass gives {y} another",
                   y=Tensor(one))) for one in of for site in cleared),
            *(Step("read", site, say("{x} still has it here", x=own)) for site in read),
            Step("step", step, say("a step uses it again")),
        ),
        repair=Repair(say("Set the gradient of {x} anew for each step, or clear it after each:"
                          " `.grad = None`.", x=own)),
        count=0,
        calls=(found.given,),
    )  # fmt: skip
