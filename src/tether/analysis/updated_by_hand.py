"""Tensors that the program changes by their gradients itself, without an optimizer.

An update is a write into a tensor by what was computed, a few calls before, from its gradient. That
nothing clears the gradient between two updates is known from the gradient's own memory: backward
has added to it, and nobody else has written it, nor given the tensor another.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from tether.analysis.history import History, following
from tether.facts import UNKNOWN, Operand
from tether.operations.table import operation

MOST_BETWEEN = 16
"""Calls that are looked through between a gradient and the write that it goes into."""


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
    given: dict[int, list[int]] = defaultdict(list)  # tensor -> calls that clear its gradient
    for at, event in history.events.where({"zero_grad", "grad.__set__"}.__contains__):
        for one in event.reads:
            given[one.tensor].append(at)
    for tensor, gradients in _gradients_asked_for(history).items():
        operand = history.operand_of(tensor)
        if operand is None or history.steps_of(tensor):
            continue
        updates = sorted(_updates(history, operand, gradients))
        touched = {one: history.on_storage(of) for one, of in gradients.items()}
        pairs = [
            (at, added_between(history, touched[gradient], given[tensor], at, later))
            for (at, gradient), (later, _) in pairwise(updates)
            if history.next_pass(at) < later
        ]
        carried = [(at, backward) for at, backward in pairs if backward != UNKNOWN]
        if carried:
            always = len(carried) == len(pairs) > 1
            yield CarriedUpdates(tensor, *carried[0], len(carried), always)


def _gradients_asked_for(history: History) -> dict[int, dict[int, Operand]]:
    """Return tensor -> its gradients that the program's own lines took."""
    found: dict[int, dict[int, Operand]] = defaultdict(dict)
    for _, event in history.events.where("grad.__get__".__eq__):
        if event.reads and event.results:
            found[int(event.reads[0].tensor)][int(event.results[0].tensor)] = event.results[0]
    return found


def _updates(
    history: History, operand: Operand, gradients: dict[int, Operand]
) -> Iterator[tuple[int, int]]:
    """Yield the writes into a tensor by its gradients, with the gradient of each."""
    memory = history.flow.memory
    by_memory = {memory(one): tensor for tensor, one in gradients.items()}
    for at in history.writes_to(operand):
        if not history.events[at].is_backward:
            for one in _read_behind(history, at, memory(operand)):
                if one in by_memory:
                    yield at, by_memory[one]
                    break


def _read_behind(history: History, at: int, own: int) -> Iterator[int]:
    """Yield the memories that a write reads, directly or some calls before, but for its own."""
    waiting, seen = [at], {at}
    while waiting and len(seen) < MOST_BETWEEN:
        at = waiting.pop(0)
        event = history.events[at]
        memories = [history.flow.memory(one) for one in event.reads]
        earlier = len(seen) > 1 and own in map(history.flow.memory, event.writes)
        if event.is_backward or earlier:
            continue  # an earlier pass, or an earlier update
        yield from (one for one in memories if one != own)
        sources = {one for one in history.flow.edges.sources(at) if one >= 0} - seen
        waiting += sorted(sources, reverse=True)
        seen.update(sources)


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
    own = [at for at in writes if not history.events[at].is_backward]
    shown = any(operation(history.events[at].operation).leaves == "array" for at in between)
    return UNKNOWN if own or shown or not writes else writes[0]
