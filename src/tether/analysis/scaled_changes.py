"""Lines that bound gradients while these still hold the scale of the loss.

A gradient scaler multiplies the loss before backward and divides the gradients before the step. A
bound that is applied in between (a greatest norm, a greatest value) is divided with them: it is
smaller by the scale than the program says, and another one each time that the scale is adapted.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tether.analysis.history import History, latest
from tether.facts import Event, Operand, SiteId
from tether.operations.table import operation
from tether.regions import overlaps

MOST_BEHIND = 4_000
"""Calls behind a factor that are looked through for what it was computed from."""


class ScaledChange(NamedTuple):
    """A line that bounds gradients which are divided afterwards."""

    backward: int  # the pass that gave them
    write: int  # the first call that bounds one
    divided: int  # the call that takes the scale out
    tensors: tuple[int, ...]  # whose gradients
    times: int  # passes whose gradients it bounded


def scaled_changes(history: History) -> Iterator[ScaledChange]:
    """Yield the lines that bound scaled gradients."""
    owners = _owners(history)
    found: dict[SiteId, list[tuple[int, int, int, int]]] = {}
    for at, event in history.events.where(lambda name: operation(name).unscales):
        backward = latest(history.backwards, at)
        for gradient in event.writes:
            for write in history.writes_to(gradient, backward):
                if write >= at:
                    break
                if gradient.tensor in owners and _bounds(history, write, gradient, backward):
                    line = history.events[write].site
                    owner = owners[gradient.tensor]
                    found.setdefault(line, []).append((backward, write, at, owner))
    for calls in found.values():
        tensors = tuple(dict.fromkeys(owner for *_, owner in calls))
        yield ScaledChange(*calls[0][:3], tensors, len({one[0] for one in calls}))


def _owners(history: History) -> dict[int, int]:
    """Return the tensor that each gradient was asked of."""
    return {
        int(one.tensor): int(event.reads[0].tensor)
        for _, event in history.events.where(lambda name: name == "grad.__get__")
        for one in event.results
        if event.reads
    }


def _bounds(history: History, write: int, gradient: Operand, backward: int) -> bool:
    """Whether a write bounds a gradient: by values, or a factor made of scaled gradients."""
    event = history.events[write]
    if operation(event.operation).bounds:
        return True
    written = {one.tensor for one in event.writes}
    return any(
        _made_of(history, history.made_at(one.tensor), gradient, backward)
        for one in event.reads
        if one.tensor not in written
    )


def _made_of(history: History, made: int, gradient: Operand, since: int) -> bool:
    """Whether something was computed from a gradient since the pass that gave it."""
    if made <= since:
        return False
    behind = [made, *history.flow.behind(made, MOST_BEHIND)]
    return any(at > since and _reads(history.events[at], gradient) for at in behind)


def _reads(event: Event, gradient: Operand) -> bool:
    return any(overlaps(one, gradient) for one in event.reads)
