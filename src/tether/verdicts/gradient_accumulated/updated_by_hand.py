"""Tensors that the program changes by their gradients itself, without an optimizer.

An update is a write into a tensor by what was computed, a few calls before, from its gradient. That
nothing clears the gradient between two updates is known from the gradient's own memory: backward
has added to it, and nobody else has written it, nor given the tensor another.

Where an optimizer holds the tensor, too, the update by hand may be a move that is taken back, as to
the place at which a second gradient is asked for. The step then uses the sum of both gradients.
That is meant where only some of what the step trains was moved (a loss and its adversarial one are
added up), so it is told where all of it was.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from tether.analysis.history import History, following
from tether.analysis.libraries import scaled_by_library
from tether.facts import BACKWARDS, UNKNOWN, Event, Operand, TensorId
from tether.finding import At, Claim, Repair, Step, Tensor, say
from tether.operations.table import operation

MOST_BETWEEN = 16
"""Calls that are looked through between a gradient and the write that it goes into."""

LEAST_STEPS = 3
"""Steps of one line that use the sum of two gradients."""


class CarriedUpdates(NamedTuple):
    """Updates that use what earlier updates have used."""

    tensor: int
    update: int  # the first one whose gradient is used again
    backward: int  # the pass that adds to it
    carried: int  # updates that use the gradients of earlier ones, too
    always: bool  # each update after the first does


def carried_updates(history: History) -> Iterator[CarriedUpdates]:
    """Yield the tensors whose gradients are used by an update and added to for the next."""
    if history.in_part:
        return
    given = history.gradients_replaced
    for tensor, gradients in _gradients_asked_for(history).items():
        operand = history.operand_of(tensor)
        if operand is None or history.steps_of(tensor):
            continue
        updates = _updates(history, operand, gradients)
        touched = {one: history.on_storage(of) for one, of in gradients.items()}
        pairs = [
            (at, added_between(history, touched[gradient], given.get(tensor, []), at, later))
            for (at, _, gradient), (_, later, _) in pairwise(updates)
            if history.next_pass(at) < later
        ]
        carried = [(at, backward) for at, backward in pairs if backward != UNKNOWN]
        if carried:
            always = len(carried) == len(pairs) > 1
            yield CarriedUpdates(tensor, *carried[0], len(carried), always)


class SummedGradients(NamedTuple):
    """Tensors that were moved by their gradients, and stepped by the sum of these and of others."""

    tensors: tuple[int, ...]  # all that the first step changes
    move: int
    backward: int  # the pass that adds to the gradient of the move
    step: int
    steps: int  # of that line that do so


def summed_gradients(history: History) -> Iterator[SummedGradients]:
    """Yield the first of each line of steps."""
    if history.in_part:
        return
    found: dict[int, dict[int, tuple[int, int]]] = defaultdict(dict)  # step -> tensor -> how
    given = history.gradients_replaced
    for tensor, gradients in _gradients_asked_for(history).items():
        for step, move, backward in _summed(history, tensor, gradients, given.get(tensor, [])):
            found[step].setdefault(tensor, (move, backward))
    lines: dict[int, list[SummedGradients]] = defaultdict(list)
    for fact in history.steps:
        step = history.position(fact.at)
        used = [one for one, status in fact.status.items() if status != "none"]
        if used and found[step].keys() >= set(used):
            one = SummedGradients(tuple(used), *found[step][used[0]], step, 0)
            lines[fact.site].append(one)
    for some in lines.values():
        if len(some) >= LEAST_STEPS:
            yield some[0]._replace(steps=len(some))


def _summed(
    history: History, tensor: int, gradients: dict[int, Operand], cleared: Sequence[int]
) -> Iterator[tuple[int, int, int]]:
    """Yield steps that use the gradient of a move, with the move and the pass that added to it."""
    operand, steps = history.operand_of(tensor), history.steps_of(tensor)
    if operand is None or not steps:
        return
    touched = {one: history.on_storage(of) for one, of in gradients.items()}
    for at, read, gradient in _updates(history, operand, gradients):
        step, here = following(steps, at), touched[gradient]
        if history.next_pass(at) < step and added_between(history, here, cleared, read, step) >= 0:
            yield step, at, added_between(history, here, cleared, at, step)


def _gradients_asked_for(history: History) -> dict[int, dict[int, Operand]]:
    """Return tensor -> its gradients that the program's own lines took."""
    found: dict[int, dict[int, Operand]] = defaultdict(dict)
    for _, event in history.events.where("grad.__get__".__eq__):
        if event.reads and event.results:
            found[int(event.reads[0].tensor)][int(event.results[0].tensor)] = event.results[0]
    return found


class _Update(NamedTuple):
    """A write into a tensor by its gradient."""

    at: int
    read: int  # the call that read the gradient
    gradient: int


def _updates(history: History, operand: Operand, gradients: dict[int, Operand]) -> list[_Update]:
    """Return them in order; of several by what one call read, as a move that is undone, the first.

    A step's own writes are not among them.
    """
    memory = history.flow.memory
    by_memory = {memory(one): tensor for tensor, one in gradients.items()}
    found: dict[int, _Update] = {}
    for at in sorted(history.writes_to(operand)):
        if history.events[at].operation not in (*BACKWARDS, "step"):
            for read, one in _read_behind(history, at, memory(operand)):
                if one in by_memory:
                    found.setdefault(read, _Update(at, read, by_memory[one]))
                    break
    return list(found.values())


def _read_behind(history: History, at: int, own: int) -> Iterator[tuple[int, int]]:
    """Yield the memories that a write reads, directly or some calls before, but for its own.

    Each with the call that read it.
    """
    waiting, later, seen = [at], list[int](), {at}
    while (waiting or later) and len(seen) < MOST_BETWEEN:
        at = (waiting or later).pop(0)
        event = history.events[at]
        memories = [history.flow.memory(one) for one in event.reads]
        earlier = len(seen) > 1 and own in map(history.flow.memory, event.writes)
        if event.is_backward or earlier:
            continue  # an earlier pass, or an earlier update
        yield from ((at, one) for one in memories if one != own)
        values, where = _sources(history, at)
        waiting += sorted(values - seen, reverse=True)
        later += sorted(where - seen, reverse=True)
        seen |= values | where


def _sources(history: History, at: int) -> tuple[set[int], set[int]]:
    """Return the calls whose values went into one, and those of the truths and places.

    These say where it is written, by what is mostly no gradient.
    """
    edges = [one for one in history.flow.edges[at] if one.source >= 0]
    values = {one.source for one in edges if one.operand is None or not one.operand.whole}
    return values, {one.source for one in edges} - values


def added_between(
    history: History, touched: Sequence[int], cleared: Sequence[int], since: int, until: int
) -> int:
    """Return the pass that added to a gradient between two updates; UNKNOWN: it was cleared.

    Both are positions: of the calls that touch its memory, and of those that let go of it.
    """
    if since < following(cleared, since) < until:
        return UNKNOWN
    between = touched[bisect_right(touched, since) : bisect_left(touched, until)]
    writes = [at for at in between if history.events[at].writes]
    own = [at for at in writes if not _adds_or_scales(history, history.events[at])]
    shown = any(operation(history.events[at].operation).leaves == "array" for at in between)
    passes = [at for at in writes if history.events[at].is_backward]
    return UNKNOWN if own or shown or not passes else passes[0]


def _adds_or_scales(history: History, event: Event) -> bool:
    """Whether what a gradient was is still part of it after a write: a pass, a clipping."""
    return event.is_backward or scaled_by_library(history, event)


def claims(history: History) -> Iterator[Claim]:
    """Give one claim for each such line."""
    for found in carried_updates(history):
        yield _carried(history, found)
    for summed in summed_gradients(history):
        yield _all_before(history, summed)


def _carried(history: History, found: CarriedUpdates) -> Claim:
    update, loss = (history.events[at].site for at in (found.update, found.backward))
    return Claim(
        tensors=(found.tensor,),
        cause=("by hand", update, loss),
        site=update,
        operation=history.events[found.update].operation,
        severity="warning" if found.always else "note",
        message=say(
            "{n} updates at {update} use again what the ones before have used: nothing clears the"
            " gradient of {subject} before backward at {line} adds to it.",
            n=found.carried, update=At(update), line=At(loss),
        ),
        story=(
            Step("step", update, say("{x} is changed by its gradient", x=Tensor(found.tensor))),
            Step("loss", loss, say("backward adds to that gradient")),
        ),
        repair=Repair(say("Set the gradient of {subject} to None after each update.")),
        count=0,
        calls=(found.update,),
    )  # fmt: skip


def _all_before(history: History, found: SummedGradients) -> Claim:
    move, loss, step = (history.events[at].site for at in (found.move, found.backward, found.step))
    subject = Tensor(TensorId(found.tensors[0]))
    return Claim(
        tensors=found.tensors,
        cause=("summed", move, loss, step),
        site=loss,
        operation="backward",
        severity="note",
        message=say(
            "{n} steps at {step} use the sum of two gradients of {subject}: the one by which"
            " {move} had moved it, and the one that backward at {loss} adds for the moved values."
            " Nothing clears the first in between.",
            n=found.steps, step=At(step), move=At(move), loss=At(loss),
        ),
        story=(
            Step("write", move, say("{x} is moved by its gradient", x=subject)),
            Step("loss", loss, say("backward adds to that gradient")),
            Step("step", step, say("this step uses the sum")),
        ),
        repair=Repair(say("Clear the gradients between {move} and {loss}, if the step is to follow"
                          " the gradient at the moved values alone.",
                          move=At(move), loss=At(loss))),
        count=0,
        calls=(found.backward,),
    )  # fmt: skip
