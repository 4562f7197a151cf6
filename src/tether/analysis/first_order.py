"""Updates inside a loss by gradients that have no graph: the loss is differentiated as if constant.

`autograd.grad` without `create_graph=True` gives values. Where they change the very tensors whose
gradient they are, and a loss goes through the result, backward takes the update for a constant.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from tether.analysis.graph import Graph
from tether.analysis.history import History
from tether.facts import UNKNOWN, Event, Operand, SiteId

MOST_RUNS = 8
"""Runs of a line, each the last before a loss, that are followed until one is found."""


class FirstOrder(NamedTuple):
    """Calls, by position."""

    gradient: int
    update: int  # takes the gradient and the tensor that it is the gradient of
    loss: int
    tensors: tuple[int, ...]  # that the gradient was asked for


def first_order(history: History) -> Iterator[FirstOrder]:
    """Yield for each line that asks for gradients the first update that a loss goes through."""
    runs: dict[SiteId, list[int]] = {}
    for at, event in history.events.where("autograd.grad".__eq__):
        if not event.raised and not any(one.requires_grad for one in event.results):
            runs.setdefault(event.site, []).append(at)
    events = history.events
    passes = [at for at in history.backwards if events[at].operation == "backward"]
    for some in runs.values():  # those that come before no loss may be of an evaluation
        last = dict.fromkeys(bisect_left(some, at) for at in passes if at > some[0])
        found = (_first(history, some[:end][-MOST_RUNS:]) for end in islice(last, MOST_RUNS))
        yield from islice((one for one in found if one is not None), 1)


def _first(history: History, runs: list[int]) -> FirstOrder | None:
    """Return the first of the runs, from the last one back, whose updates one loss goes through."""
    found = None
    for at in reversed(runs):
        one = _followed(history, at)
        if one is None or (found is not None and one.loss != found.loss):
            break
        found = one
    return found


def _followed(history: History, at: int) -> FirstOrder | None:
    event = history.events[at]
    wanted = event.reads[event.losses :]
    if len(wanted) != len(event.results) or not all(_is_trained(history, one) for one in wanted):
        return None
    update = _update(history, at, event, wanted)
    loss = UNKNOWN if update < 0 else _loss_through(history, update)
    if loss < 0:
        return None
    return FirstOrder(at, update, loss, tuple(one.tensor for one in wanted))


def _is_trained(history: History, operand: Operand) -> bool:
    """Whether a tensor is held by an optimizer, or was computed from one that is."""
    if operand.leaf:
        return operand.tensor in history.held
    made = history.made_at(operand.tensor)
    return made >= 0 and not history.held.isdisjoint(history.get(Graph).leaves_behind(made))


def _update(history: History, at: int, event: Event, wanted: tuple[Operand, ...]) -> int:
    """Return the first call that joins a gradient, or what was computed of it, with its tensor."""
    of: dict[int, int] = {
        got.tensor: one.tensor for got, one in zip(event.results, wanted, strict=True)
    }
    for position in range(at + 1, history.next_pass(at)):
        one = history.events[position]
        whose = {of[read.tensor] for read in one.reads if read.tensor in of}
        if not whose or not history.flow.carries[position]:
            continue
        if _joins(one, whose):
            return position
        if len(whose) == 1 and not any(made.requires_grad for made in one.results):
            of.update(dict.fromkeys((made.tensor for made in one.results), whose.pop()))
    return UNKNOWN


def _joins(event: Event, tensors: set[int]) -> bool:
    """Whether a call takes one of some tensors into the graph of its result."""
    reads = (one.requires_grad and one.tensor in tensors for one in event.reads)
    return any(reads) and any(made.requires_grad for made in event.results)


def _loss_through(history: History, update: int) -> int:
    """Return the first backward() after a call, if the call is in its graph; else -1."""
    graph = history.get(Graph)
    for backward in history.backwards:
        if backward > update and history.events[backward].operation == "backward":
            return backward if update in graph.behind(backward) else UNKNOWN
    return UNKNOWN
