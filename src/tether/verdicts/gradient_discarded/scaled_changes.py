"""Lines that bound gradients while these still hold the scale of the loss.

A gradient scaler multiplies the loss before backward and divides the gradients before the step. A
bound that is applied in between (a greatest norm, a greatest value) is divided with them: it is
smaller by the scale than the program says, and another one each time that the scale is adapted.
A bound that the program made of that very scale is scaled in the same way, and is right.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from tether.analysis.history import History, latest
from tether.facts import Operand, SiteId
from tether.finding import At, Claim, Repair, Step, say
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
    bounds, owners = Bounds(history), _owners(history)
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
    # A scaler has a number for its scale only from its first pass on: any pass speaks for the line.
    for calls in found.values():
        if any(bounds.scaled(write, at) for _, write, at, _ in calls):
            continue
        tensors = tuple(dict.fromkeys(owner for *_, owner in calls))
        times = len({one[0] for one in calls})
        if times == MOST_DIVISIONS:
            times = history.times(calls[0][1])
        yield ScaledChange(*calls[0][:3], tensors, times)


def _owners(history: History) -> dict[int, int]:
    """Return the tensor that each gradient was asked of."""
    return {int(one.tensor): tensor for tensor, one in gradients_asked(history)}


def gradients_asked(history: History) -> Iterator[tuple[int, Operand]]:
    """Yield the gradients that lines asked for, each after the tensor that it was asked of."""
    for _, event in history.events.where("grad.__get__".__eq__):
        for one in event.results if event.reads else ():
            yield int(event.reads[0].tensor), one


class Bounds:
    """What calls that write gradients were given beside them."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._factors: dict[int, set[int]] = {}  # call -> storages that its factors were made of
        self._scaled: dict[tuple[int, int], bool] = {}  # bound, division -> made of one scale

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

    def scaled(self, write: int, division: int) -> bool:
        """Whether what bounds gradients was computed of the scale that divides them afterwards."""
        known = self._scaled.get((write, division))
        if known is None:
            since = latest(self._history.backwards, division)
            scale = set(self._made_of(division, since))
            before = {
                one.storage
                for at in self._behind(write, since)
                for one in self._history.events[at].reads
            }
            known = self._scaled[write, division] = not scale.isdisjoint(before)
        return known

    def _made_of(self, call: int, since: int) -> Iterator[int]:
        """Yield the storages that a call's other operands were computed from since a pass."""
        for at in self._behind(call, since):
            if at > since:
                yield from (one.storage for one in self._history.events[at].reads)

    def _behind(self, call: int, since: int) -> Iterator[int]:
        """Yield the calls that what a call got beside what it writes was computed by.

        Of those from before a pass only the last on each way: numbers may be taken in advance.
        """
        history = self._history
        event = history.events[call]
        written = {one.tensor for one in event.writes}
        waiting = [history.made_at(one.tensor) for one in event.reads if one.tensor not in written]
        waiting += [one.source for one in history.flow.edges[call] if one.operand is None]
        seen = set[int]()
        while waiting:
            at = waiting.pop()
            if at >= 0 and at not in seen:
                seen.add(at)
                yield at
                waiting += history.flow.edges.sources(at) if at > since else ()


def claims(history: History) -> Iterator[Claim]:
    """Give one claim for each such line."""
    for found in scaled_changes(history):
        yield _claim(history, found)


def _claim(history: History, found: ScaledChange) -> Claim:
    events = history.events
    passed, written, divided = (
        events[at].site for at in (found.backward, found.write, found.divided)
    )
    return Claim(
        tensors=found.tensors,
        cause=("scaled", written),
        site=written,
        calls=(found.write,),
        operation=events[found.write].operation,
        message=say(
            "The gradient of {subject} still held the scale of the loss when {line} limited it,"
            " each of {n} times: {divided} divides it by that scale afterwards, and the limit with"
            " it.",
            line=At(written), divided=At(divided), n=found.times,
        ),
        story=(
            Step("made", passed, say("backward of a scaled loss fills the gradient")),
            Step("written", written, say("it is limited here")),
            Step("cleared", divided, say("the scale is taken out here, before the step")),
        ),
        repair=Repair(
            say("Call `unscale_` of the gradient scaler, with the optimizer, before {line}.",
                line=At(written))
        ),
        count=found.times,
    )  # fmt: skip
