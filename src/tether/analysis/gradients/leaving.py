"""Where values without a graph had left it."""

from __future__ import annotations

from collections.abc import Iterator

from tether.analysis.history import History
from tether.analysis.training.frozen import SWITCHES, taken_off
from tether.facts import GRAD_ON, Event, Operand
from tether.operations.table import operation


def is_view_without(event: Event, result: Operand) -> bool:
    """Whether a result of a call is a view, taken with gradients off, of what has a graph.

    It says that it requires grad, and is a leaf: nothing leads from it to what it shows.
    """
    return (
        event.grad_mode != GRAD_ON
        and result.leaf
        and result.requires_grad
        and not operation(event.operation).rebuilds
        and any(
            one.requires_grad and one.storage == result.storage and one.tensor != result.tensor
            for one in event.reads
        )
    )


def gives_graph(event: Event) -> bool:
    """Whether something that a call returned or wrote has a graph."""
    given = (*event.results, *event.writes)
    return any(one.requires_grad and not is_view_without(event, one) for one in given)


def has_graph(history: History, operand: Operand) -> bool:
    """Whether a gradient can come to what an operand was made of, or to the leaf that it is."""
    if not operand.requires_grad or not operand.leaf:
        return operand.requires_grad
    made = history.made_at(operand.tensor)
    return made < 0 or not is_view_without(history.events[made], operand)


def left_the_graph(history: History, start: int) -> set[int]:
    """Follow what a call reads without a graph back to the calls that read values with one.

    A leaf that was switched off counts as well, by the call that did so.
    """
    seen: set[int] = set()
    found: set[int] = set()
    waiting = [start]
    while waiting:
        at = waiting.pop()
        for edge in history.flow.edges[at]:
            operand, source = edge.operand, edge.source
            if operand is not None and has_graph(history, operand):
                continue
            if operand is not None:
                found.update(_turned_off(history, operand, at))
            if source < 0 and operand is not None:
                source = history.made_at(operand.tensor)  # a gradient: no value flows to it
            if source < 0 or source in seen:
                continue
            seen.add(source)
            if any(has_graph(history, one) for one in history.events[source].reads):
                found.add(source)
            else:
                waiting.append(source)
    return found


def _turned_off(history: History, operand: Operand, until: int) -> Iterator[int]:
    """Yield the last call that switched a leaf's requires_grad off."""
    calls = [
        at
        for at in history.on_storage(operand)
        if at < until
        and _switches(history.events[at])
        and history.events[at].reads[0].tensor == operand.tensor
    ]
    if calls and not history.events[calls[-1]].on:
        yield calls[-1]


def _switches(event: Event) -> bool:
    return event.operation in SWITCHES or taken_off(event) is not None
