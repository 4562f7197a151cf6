"""Calls that compute, and gave what was there already: whether they would give it for any values.

A factor of one does, and so does what is turned round twice; a bound that nothing went beyond, or a
rounding of whole numbers, gave it this time. PyTorch's own formulas tell the two apart: the
derivative of what is linear says nothing of the values.
"""

from __future__ import annotations

from collections.abc import Sequence

from tether.analysis.history import History
from tether.facts import Event, Operand
from tether.operations.table import operation


def computes(event: Event) -> bool:
    """Whether a call is none that gives elements as they are, whatever they are."""
    row = operation(event.operation)
    return not (row.copies or row.regroups or row.joins or row.repeats or row.chooses or row.enters)


def leads_back(history: History, position: int, first: int, behind: Sequence[int]) -> bool:
    """Whether all calls by which elements came from one call to another keep them apart."""
    on_the_way = {first}
    for at in (*(one for one in behind if one > first), position):
        if on_the_way.intersection(history.flow.edges.sources(at)):
            on_the_way.add(at)
    return all(_keeps_apart(history.events[at]) for at in on_the_way)


def _keeps_apart(event: Event) -> bool:
    """Whether a call gives elements as they are, or makes each of the one in its place."""
    row = operation(event.operation)
    if not row.known or row.random or event.writes:
        return False
    moves = len(event.reads) == 1 and row.linear == (0,)
    out_and_in = row.enters or row.exports
    return bool(row.view or row.chooses or row.copies or row.pointwise or out_and_in or moves)


def pays(event: Event, source: Operand) -> str:
    """Say what else got a gradient by a call that computes; "" where nothing did."""
    others = [one for one in event.reads if one.tensor != source.tensor]
    more = len(others) < len(event.reads) and any(one.requires_grad for one in others)
    return "what else it is made of gets a gradient by it" if computes(event) and more else ""


def doubt(history: History, event: Event, source: Operand) -> str:
    """Say why a call that computes may give other values, or gradients; "" where it may not."""
    if not computes(event):
        return ""
    if _with_one_of_a_module(history, event, source):
        return "what it gives hangs on the values of a parameter or a buffer"
    graph = event.results[0].requires_grad
    given = [n for n, one in enumerate(event.reads) if one.tensor == source.tensor]
    if not given:
        return "the calls that lead back have gradients" if graph else ""
    linear = len(given) == 1 and given[0] in operation(event.operation).linear
    if not (linear or _twice(history, event)):
        return "what it gives hangs on the values"
    return "it may give another gradient" if graph and not _grades_alike(history, event) else ""


def _grades_alike(history: History, event: Event) -> bool:
    """Whether each element's gradient goes to the element that it is made of, not rounded."""
    rounds = event.kind >= 0 and history.trace.kinds[event.kind].rounds
    return bool(operation(event.operation).pointwise and not rounds)


def _with_one_of_a_module(history: History, event: Event, source: Operand) -> bool:
    """Whether a call computes with a parameter or a buffer, which may be trained or loaded."""
    others = [one.tensor for one in event.reads if one.tensor != source.tensor]
    names = map(history.facts_of_name, others)
    return any(map(history.is_parameter, others)) or any(one and one.module for one in names)


def _twice(history: History, event: Event) -> bool:
    """Whether a call was given what the same call had made: a relu of a relu."""
    made = history.made_at(event.reads[0].tensor) if len(event.reads) == 1 else -1
    return made >= 0 and history.events[made].operation == event.operation
