"""Calls that join a column with a row of as many values, where each was to meet its own.

One value of a batch for each sample is a row, of shape (n,), or a column, (n, 1). A call that works
element by element on one of each makes n times n values: each sample with every other. Where all of
them go into one number, the samples were not to be paired: who wants the pairs makes the column for
them, right there, or uses the square as one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tether.analysis.graph import Graph
from tether.analysis.history import History
from tether.facts import Event, Operand, TensorId
from tether.operations.table import operation


class Crossed(NamedTuple):
    """A call that joins a row and a column, and the loss that it is in: positions."""

    call: int
    row: Operand
    column: Operand
    reduced: int  # the call that makes one number of all values
    backward: int


def crossed(history: History) -> Iterator[Crossed]:
    """Yield the first such call of each line."""
    graph, told = history.get(Graph), set[int]()
    for backward in history.backwards:
        if graph.leaves(backward) is None or history.events[backward].raised:
            continue
        behind = graph.behind(backward)
        for at in sorted(behind):
            event = history.events[at]
            found = _row_and_column(event)
            if found is None or event.site in told or _on_purpose(history, *found):
                continue
            reduced = _reduced(history, at, backward)
            if reduced in behind and not _all_the_same(history, at, reduced):
                told.add(event.site)
                yield Crossed(at, *found, reduced, backward)


def _row_and_column(event: Event) -> tuple[Operand, Operand] | None:
    """Return the operands of a call that reads one row and one column of as many values."""
    if len(event.reads) != 2 or len(event.results) != 1:
        return None
    row, column = sorted(event.reads, key=lambda one: len(one.shape))
    size = row.shape[0] if row.shape else 0
    if size < 2 or (row.shape, column.shape) != ((size,), (size, 1)):
        return None
    wanted = ((), (size, size)) if operation(event.operation).compares else ((size, size),)
    by_elements = _by_elements(event) or operation(event.operation).compares
    return (row, column) if by_elements and event.results[0].shape in wanted else None


def _by_elements(event: Event) -> bool:
    """Whether each element of a result is made of the elements in its place."""
    row = operation(event.operation)
    of_two = row.selects == "index" and len(event.reads) == 2 and len(event.results) == 1
    return row.pointwise or of_two  # the greater one of two


def _on_purpose(history: History, row: Operand, column: Operand) -> bool:
    """Whether a parameter has this very shape, or a call made one of the two for the other.

    A tensor and a view of itself are joined to have all pairs, and so is a column that was none.
    """
    if row.storage == column.storage or any(
        one.leaf and one.requires_grad for one in (row, column)
    ):
        return True
    made = history.made_at(column.tensor)
    if made < 0:
        return False
    event = history.events[made]
    shown = [one for one in event.reads if one.storage == column.storage]
    return operation(event.operation).regroups or any(len(one.shape) < 2 for one in shown)


def _reduced(history: History, call: int, backward: int) -> int:
    """Return the call that makes one number of all that a call gave; -1 where it is used else."""
    events = history.events
    (square,) = (one.shape for one in events[call].results)
    if not square:
        return call
    values, reduced = {one.tensor for one in events[call].results}, -1
    for at in range(call + 1, backward):
        event = events[at]
        if values.isdisjoint(one.tensor for one in event.reads):
            continue
        if event.results and not any(one.shape for one in event.results):
            reduced = at
        elif _goes_on(event, values, square):
            values.add(event.results[0].tensor)
        else:
            return -1
    return reduced


def _all_the_same(history: History, call: int, reduced: int) -> bool:
    """Whether the loss and its gradients are those of the pairs: a mean of sums, `(a + b).mean()`.

    No call on the way saved a value, so no derivative depends on who met whom.
    """
    graph, events = history.get(Graph), history.events
    behind = {at for at in graph.behind(reduced) | {reduced} if call < at <= reduced}
    way = [call, *(at for at in behind if call in graph.behind(at))]
    free = all(graph.kind(at) is not None and not [*graph.saved(at)] for at in way)
    return free and events[reduced].operation == "mean"


def _goes_on(event: Event, values: set[TensorId], square: tuple[int, ...]) -> bool:
    """Whether a call makes such a square element by element, of no square of another origin."""
    if [one.shape for one in event.results] != [square] or not _by_elements(event):
        return False
    return all(one.tensor in values or one.shape != square for one in event.reads)
