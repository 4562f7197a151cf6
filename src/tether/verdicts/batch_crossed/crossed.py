"""Calls that join a column with a row of as many values, where each was to meet its own.

One value of a batch for each sample is a row, of shape (n,), or a column, (n, 1). A call that works
element by element on one of each makes n times n values: each sample with every other. Where all of
them go into one number, the samples were not to be paired: who wants the pairs makes the column for
them, right there, or uses the square as one.

What is joined need not have a graph: the advantage over a detached value weighs what has one. There
it takes a third value of each sample, which was computed and has a graph, that meets the square.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from tether.analysis.gradients.graph import Graph
from tether.analysis.history import History, latest
from tether.facts import Event, Operand, TensorId
from tether.finding import At, CallOf, Claim, Code, Repair, Step, Tensor, say
from tether.operations.table import operation
from tether.store.numbers import Numbers


class Crossed(NamedTuple):
    """A call that joins a row and a column, and the loss that it is in: positions."""

    call: int
    row: Operand
    column: Operand
    reduced: int  # the call that makes one number of all values
    backward: int


def crossed(history: History) -> Iterator[Crossed]:
    """Yield the first such call of each line."""
    told = set[int]()
    for at, event in history.events.at(np.flatnonzero(_joins(history))):
        found = None if event.site in told else _row_and_column(event)
        if found is None or _on_purpose(history, *found):
            continue
        reduced = _reduced(history, at)
        if reduced >= 0:
            told.add(event.site)
            yield Crossed(at, *found, reduced, history.get(_PassesOfCalls).of[reduced])


class _Pairs:
    """The squares that are made of nothing but joins of rows and columns which nobody meant."""

    def __init__(self, history: History) -> None:
        self.tensors: set[TensorId] = set()
        for event in history.events:
            if len(event.results) != 1 or len(event.results[0].shape) != 2:
                continue
            (made,) = event.results
            joined = _row_and_column(event) if _may_join(event.operation) else None
            if joined is not None:
                meant = _on_purpose(history, *joined)
            else:
                squares = [one.tensor for one in event.reads if one.shape == made.shape]
                known = squares and self.tensors.issuperset(squares)
                meant = not known or not _goes_on(event, made.shape)
            if not meant:
                self.tensors.add(made.tensor)


class _PassesOfCalls:
    """The calls in the graphs of losses, each with the first pass that goes back through it."""

    def __init__(self, history: History) -> None:
        graph = history.get(Graph)
        self.of: dict[int, int] = {}
        for backward in history.backwards:
            if graph.leaves(backward) is not None and not history.events[backward].raised:
                for at in graph.behind(backward):
                    self.of.setdefault(at, backward)


def _joins(history: History) -> Numbers:
    """Return for each call whether it joins a row with a column, by its shapes."""
    events = history.events
    asks = events.called(_may_join) & (events.column("reads") == 2)
    at = np.flatnonzero(asks & (events.column("results") == 1))
    first = events.starts[at]
    rows = (events.rows[first + place] for place in range(3))
    shapes = np.stack([events.operands.column("shape")[row] for row in rows], axis=1)
    keys = np.concatenate([events.column("operation")[at][:, None], shapes], axis=1)
    _, one, which = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    joins = [_row_and_column(events[place]) is not None for place in at[one].tolist()]
    found = np.zeros(len(events), bool)
    found[at[np.array(joins, bool)[which.ravel()]]] = True
    return found


def _may_join(name: str) -> bool:
    row = operation(name)
    return row.pointwise or row.compares or row.selects == "index"


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
    while made >= 0 and (before := _handed_on(history.events[made], column)):
        column = before[0]  # it was detached or copied after it was made
        made = latest([history.made_at(column.tensor)], made)
    if made < 0:
        return False
    event = history.events[made]
    shown = [one for one in event.reads if one.storage == column.storage]
    return operation(event.operation).regroups or any(len(one.shape) < 2 for one in shown)


def _handed_on(event: Event, operand: Operand) -> list[Operand]:
    """Return what a call gave a tensor's values from, one by one as they were."""
    same = operation(event.operation).same
    return [one for one in event.reads[:1] if same and one.shape == operand.shape]


def _reduced(history: History, call: int) -> int:
    """Return the call of a loss's graph that makes one number of all that a call gave.

    -1 where there is none before the values are used else, and where neither they nor what they
    meet has a graph.
    """
    events, passes = history.events, history.get(_PassesOfCalls).of
    (square,) = (one.shape for one in events[call].results)
    if not square:
        return call if call in passes else -1
    values, way, end = {events[call].results[0].tensor}, [call], len(events)
    for at in _uses(history, call, values):
        event = events[at]
        way.append(at)
        if _stays(event, history.get(_Pairs).tensors, square):
            values |= _squares(event)
        else:
            end = at
            break
    way = [one for one in way if passes.get(one, end) < end]
    reduced = max((one for one in way if not _shaped(events[one])), default=-1)
    met = call in passes or any(_meets(events[one], values, square) for one in way)
    return reduced if met and not _all_the_same(history, way, reduced) else -1


def _squares(event: Event) -> set[TensorId]:
    return {one.tensor for one in event.results if one.shape}


def _shaped(event: Event) -> bool:
    """Whether a call gave more than one number, or nothing."""
    return not event.results or any(one.shape for one in event.results)


def _stays(event: Event, pairs: set[TensorId], square: tuple[int, ...]) -> bool:
    """Whether a call meets no square of another origin, and gives one more or one number."""
    if any(one.shape == square and one.tensor not in pairs for one in event.reads):
        return False
    return not _shaped(event) or _goes_on(event, square)


def _uses(history: History, call: int, values: set[TensorId]) -> Iterator[int]:
    """Yield the calls that read some values, in order, of which there may come to be more."""
    events = history.events
    at, waiting, known = call, list[int](), set[TensorId]()
    while True:
        for one in (one for one in events[at].results if one.tensor in values - known):
            known.add(one.tensor)
            waiting += history.readers(one, at)
        waiting = sorted({one for one in waiting if one > at})
        if not waiting:
            return
        at = waiting[0]
        yield at


def _meets(event: Event, values: set[TensorId], square: tuple[int, ...]) -> bool:
    """Whether a call joins the square with one computed value for each sample."""
    size = square[0]
    return any(one.tensor in values for one in event.reads) and any(
        one.requires_grad and not one.leaf and one.shape in ((size,), (size, 1))
        for one in event.reads
    )


def _all_the_same(history: History, way: list[int], reduced: int) -> bool:
    """Whether the loss and its gradients are those of the pairs: a mean of sums, `(a + b).mean()`.

    No call on the way saved a value, so no derivative depends on who met whom.
    """
    graph, events = history.get(Graph), history.events
    free = all(graph.kind(at) is not None and not [*graph.saved(at)] for at in way)
    return free and events[reduced].operation == "mean"


def _goes_on(event: Event, square: tuple[int, ...]) -> bool:
    """Whether a call makes such a square element by element, hands it on, or takes its shape."""
    if [one.shape for one in event.results] != [square]:
        return False
    row = operation(event.operation)
    return _by_elements(event) or row.compares or bool(row.same or row.template)


def claims(history: History) -> Iterator[Claim]:
    """Give one claim for each line."""
    for found in crossed(history):
        yield _claim(history, found)


def _claim(history: History, found: Crossed) -> Claim:
    call, reduced, loss = (
        history.events[at].site for at in (found.call, found.reduced, found.backward)
    )
    row, column = Tensor(found.row.tensor), Tensor(found.column.tensor)
    size = found.row.shape[0]
    return Claim(
        tensors=(found.column.tensor, found.row.tensor),
        cause=call,
        site=call,
        operation=history.events[found.call].operation,
        message=say(
            "{code} joins {row} of shape ({n},) with {column} of shape ({n}, 1): each value of one"
            " with every value of the other. The {all} results make one number of the loss of"
            " {loss}.",
            code=Code(call), row=row, column=column, n=size, all=f"{size * size:,}", loss=At(loss),
        ),
        story=(
            *_made(history, found.row),
            *_made(history, found.column),
            Step("joined", call, say("{call} makes ({n}, {n}) of them", call=CallOf(found.call),
                 n=size)),
            Step("used", reduced, say("{call} makes one number of all results",
                 call=CallOf(found.reduced))),
            Step("loss", loss, say("backward starts from that loss")),
        ),
        repair=Repair(say("Give both one shape before they are joined: `squeeze(1)` of {column}, or"
                          " `unsqueeze(1)` of {row}.", column=column, row=row)),
        count=history.times(found.call),
        calls=(found.call,),
    )  # fmt: skip


def _made(history: History, operand: Operand) -> Iterator[Step]:
    at = history.made_at(operand.tensor)
    if at >= 0:
        shape = f"({', '.join(map(str, operand.shape))}{',' if len(operand.shape) == 1 else ''})"
        said = say(f"{{x}} is made here, of shape {shape}", x=Tensor(operand.tensor))
        yield Step("made", history.events[at].site, said)
