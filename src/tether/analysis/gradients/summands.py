"""The summands of a loss: what it adds up, however it is spelled, and what each leads back to.

A call adds up where no derivative of it depends on a value that has a graph: sums, means, views,
and products with what has none. What a call hands back to one summand then says nothing of the
others: each could have a backward pass of its own.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import NamedTuple

from tether.analysis.gradients.graph import Graph
from tether.analysis.history import History, losses_of
from tether.facts import Operand
from tether.operations.table import operation


class Summand(NamedTuple):
    """A value that a loss adds up."""

    operand: Operand
    joined: int  # position of the call that took it: the backward pass, for the loss itself
    place: int  # among what that call reads


def losses(history: History, backward: int) -> list[Summand]:
    """Return the losses of a pass: one summand each."""
    given = losses_of(history.events[backward])
    return [Summand(one, backward, place) for place, one in enumerate(given) if one.requires_grad]


def parts(history: History, summand: Summand) -> list[Summand] | None:
    """Return what a summand adds up itself; None where it is no sum."""
    makers = list(history.get(Graph).makers_of(summand.operand, summand.joined))
    if len(makers) != 1 or not _adds_up(history, makers[0]):
        return None
    (at,) = makers
    reads = history.events[at].reads
    return [Summand(one, at, place) for place, one in enumerate(reads) if one.requires_grad]


def summands(history: History, backward: int, undivided: Container[int]) -> Iterator[Summand]:
    """Yield the summands of a pass's losses that are no sums themselves, or made by some calls."""
    waiting, seen = losses(history, backward), set[tuple[int, int]]()
    while waiting:
        one = waiting.pop()
        if one[1:] in seen:
            continue
        seen.add(one[1:])
        makers = history.get(Graph).makers_of(one.operand, one.joined)
        further = None if any(at in undivided for at in makers) else parts(history, one)
        if further is None:
            yield one
        else:
            waiting += further


def calls_behind(history: History, summand: Summand) -> set[int]:
    """Return the calls in the graph of a summand."""
    graph = history.get(Graph)
    makers = set(graph.makers_of(summand.operand, summand.joined))
    return makers.union(*map(graph.behind, makers))


def leaves_of(history: History, summand: Summand) -> set[int]:
    """Return the leaves that the graph of a summand leads back to."""
    if summand.operand.leaf:
        return {summand.operand.tensor}
    reads = (one for at in calls_behind(history, summand) for one in history.events[at].reads)
    return {one.tensor for one in reads if one.leaf and one.requires_grad}


def is_followed(history: History, backward: int) -> bool:
    """Whether what was followed of a loss is all of its graph: no call of it is unknown."""
    graph, events, calls = history.get(Graph), history.events, set[int]()
    for one in losses(history, backward):
        calls |= calls_behind(history, one)
    joined = [(one, at) for at in calls for one in events[at].reads if one.requires_grad]
    leaves = {one.tensor for one, _ in joined if one.leaf}
    return (
        graph.behind(backward) <= calls
        and (graph.leaves(backward) or frozenset()) <= leaves
        and all(one.leaf or any(True for _ in graph.makers_of(one, at)) for one, at in joined)
    )


def _adds_up(history: History, at: int) -> bool:
    graph, event = history.get(Graph), history.events[at]
    kind, row = graph.kind(at), operation(event.operation)
    if kind is None or not kind.known:
        return False
    places = {place for place, one in enumerate(event.reads) if one.requires_grad}
    plain = row.adds or row.view or row.joins or row.same or places <= set(row.linear)
    return bool(plain) and not any(one.requires_grad for one in graph.saved(at, unchecked=True))
