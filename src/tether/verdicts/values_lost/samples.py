"""Samples put back at an index that was drawn at random: part of `values-lost`.

A store of samples gives some of its elements, they are worked on, and put back at the same index.
Where one of them was drawn twice the store keeps one of the two, as it means to. Who adds to what
the index names has more in mind: each of the values that come in from elsewhere was to count.
"""

from __future__ import annotations

import math

from tether.analysis.history import History
from tether.facts import Event
from tether.operations.table import operation

_MOST_BACK = 64
"""Calls between an index and the draw, which are looked at."""


def is_drawn_index(history: History, at: int) -> bool:
    """Whether the index of a write was computed, element by element, from numbers drawn."""
    return any(_is_drawn(history, history.made_at(one)) for one in _index(history.events[at]))


def _is_drawn(history: History, made: int) -> bool:
    """Whether a call drew a value, or computed it of what was drawn, element by element."""
    waiting, seen = [made], set[int]()
    while waiting and len(seen) < _MOST_BACK:
        at = waiting.pop()
        if at < 0 or at in seen:
            continue
        seen.add(at)
        event = history.events[at]
        row = operation(event.operation)
        if row.random:
            return True
        if row.pointwise or row.copies or row.picks:
            waiting += [history.made_at(one.tensor) for one in event.reads]
    return False


def puts_back(history: History, at: int, update: int) -> bool:
    """Whether a write puts at an index what was worked out of what the same index gave.

    `update`: the call that read what the written values are an update of, if one did. Then what
    came to them was computed of those, or drawn.
    """
    event = history.events[at]
    made = history.made_at(event.reads[-1].tensor)
    behind = [] if made < 0 else [*history.flow.behind(made), made]
    taken = [one for one in behind if _takes(history, history.events[one], event)]
    if update < 0:
        return bool(taken)
    if history.site_of(history.events[update]).position == history.site_of(event).position:
        return False  # x[index] += y
    return _all_of_itself(history, made, update)


def _takes(history: History, one: Event, written: Event) -> bool:
    row = operation(one.operation)
    same = bool(one.reads) and one.reads[0].storage == written.reads[0].storage
    return row.picks and same and same_index(history, one, written)


def _all_of_itself(history: History, made: int, update: int) -> bool:
    """Whether each part of a value goes back to one reading, or to a draw.

    What is one and the same for all elements, as a rate is, tells none of them from another.
    """
    waiting, seen = [made], {update}
    while waiting:
        at = waiting.pop()
        if at in seen:
            continue
        seen.add(at)
        if at < 0:
            return False
        event = history.events[at]
        pointwise = operation(event.operation).pointwise
        most = max((math.prod(one.shape) for one in event.results), default=0)
        makers = [
            history.made_at(one.tensor)
            for one in event.reads
            if not pointwise or math.prod(one.shape) >= most
        ]
        if not (_is_drawn(history, at) or _is_behind(history, update, makers)):
            return False
        waiting += makers if pointwise else []
    return True


def _is_behind(history: History, update: int, makers: list[int]) -> bool:
    return any(one == update or (one >= 0 and update in history.flow.behind(one)) for one in makers)


def same_index(history: History, read: Event, written: Event) -> bool:
    """Whether a read and a write have the same tensors as index, or are one `x[...] += y`."""
    index = _index(read)
    one = history.site_of(read).position == history.site_of(written).position
    return index == _index(written) and (bool(index) or one)


def _index(event: Event) -> tuple[int, ...]:
    """Return the tensors that are the index of a call."""
    last = -1 if operation(event.operation).places else None
    return tuple(one.tensor for one in event.reads[1:last])
