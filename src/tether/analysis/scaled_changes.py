"""Lines that bound gradients while these still hold the scale of the loss.

A gradient scaler multiplies the loss before backward and divides the gradients before the step. A
bound that is applied in between (a greatest norm, a greatest value) is divided with them: it is
smaller by the scale than the program says, and another one each time that the scale is adapted.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from tether.analysis.history import History, latest
from tether.facts import Operand, SiteId
from tether.operations.table import operation
from tether.regions import overlaps

MOST_DIVISIONS = 32
"""Calls that divide gradients of which each is asked what was done before it; later ones are of the
same lines."""


class ScaledChange(NamedTuple):
    """A line that bounds gradients which are divided afterwards."""

    backward: int  # the pass that gave them
    write: int  # the first call that bounds one
    divided: int  # the call that takes the scale out
    tensors: tuple[int, ...]  # whose gradients
    times: int  # passes whose gradients it bounded


def scaled_changes(history: History) -> Iterator[ScaledChange]:
    """Yield the lines that bound scaled gradients."""
    bounds, owners = _Bounds(history), _owners(history)
    found: dict[SiteId, list[tuple[int, int, int, int]]] = {}
    divisions = history.events.where(lambda name: operation(name).unscales)
    for at, event in islice(divisions, MOST_DIVISIONS):
        backward = latest(history.backwards, at)
        for gradient in event.writes:
            if gradient.tensor not in owners:
                continue
            touched = history.on_storage(gradient)
            for write in touched[bisect_right(touched, backward) : bisect_left(touched, at)]:
                if bounds.is_bound(write, gradient, backward):
                    line, owner = history.events[write].site, owners[gradient.tensor]
                    found.setdefault(line, []).append((backward, write, at, owner))
    for calls in found.values():
        tensors = tuple(dict.fromkeys(owner for *_, owner in calls))
        times = len({one[0] for one in calls})
        if times == MOST_DIVISIONS:
            times = history.times(calls[0][1])
        yield ScaledChange(*calls[0][:3], tensors, times)


def _owners(history: History) -> dict[int, int]:
    """Return the tensor that each gradient was asked of."""
    return {
        int(one.tensor): int(event.reads[0].tensor)
        for _, event in history.events.where("grad.__get__".__eq__)
        for one in event.results
        if event.reads
    }


class _Bounds:
    """What calls that write gradients were given beside them."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._factors: dict[int, set[int]] = {}  # call -> storages that its factors were made of

    def is_bound(self, write: int, gradient: Operand, backward: int) -> bool:
        """Whether a call bounds a gradient: by values, or a factor made of scaled gradients."""
        event = self._history.events[write]
        if not any(overlaps(one, gradient) for one in event.writes):
            return False
        if operation(event.operation).bounds:
            return True
        if write not in self._factors:
            self._factors[write] = set(self._made_of(write, backward))
        return gradient.storage in self._factors[write]

    def _made_of(self, write: int, since: int) -> Iterator[int]:
        """Yield the storages that a call's other operands were computed from since a pass."""
        history = self._history
        event = history.events[write]
        written = {one.tensor for one in event.writes}
        others = {one.tensor for one in event.reads} - written
        waiting, seen = [history.made_at(one) for one in others], set[int]()
        while waiting:
            at = waiting.pop()
            if at > since and at not in seen:
                seen.add(at)
                yield from (one.storage for one in history.events[at].reads)
                waiting += history.flow.edges.sources(at)
