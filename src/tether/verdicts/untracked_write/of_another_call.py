"""Custom Functions whose backward reads what the forward of another call had kept.

What a Function keeps outside of its ctx, as an attribute of its class or in a table, is one for all
calls: where a graph goes through several, the last one's forward has replaced it. So is memory that
each forward writes over, a buffer of a pool that is put on the ctx. Known by what is read: in one
backward pass a line of the Function's backward runs for several calls, and reads one tensor each
time, which belongs to one of them, while the others had one of their own, or values of their own in
it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from tether.analysis.gradients.graph import Graph
from tether.analysis.history import History
from tether.facts import OUT, UNKNOWN, Event, Operand
from tether.operations.table import operation
from tether.source.slicing import returns_depend
from tether.source.syntax import source_of


class OfAnotherCall(NamedTuple):
    """A line of a Function's backward that reads what one call kept, for each of several."""

    name: str  # class of the Function
    read: int  # the first such read
    tensor: int
    kept: int  # the call whose it is
    others: tuple[int, ...]  # that the pass went through as well
    backward: int
    written: int = UNKNOWN  # by which the last one's forward overwrote what the others had there


_Place = tuple[str, int, int]
"""How a tensor belongs to a call: it was made in its forward at a line, or given as an operand."""


class _Belonging:
    """Which tensors belong to which calls of custom Functions, and as what."""

    def __init__(self, history: History) -> None:
        self._calls: dict[int, list[tuple[int, _Place]]] = defaultdict(list)  # by tensor
        self._at: dict[tuple[int, _Place], int] = {}  # the tensor of a call at a place
        # Tensor -> calls that filled it anew, and by what.
        self._writers: dict[int, dict[int, int]] = defaultdict(dict)
        self.names: dict[int, str] = {}  # of the Function of a call
        walks = [history.position(one.event) for one in history.trace.walks if one.asked]
        self.asked = {history.events[at].site for at in walks if at >= 0}
        for at, event in history.events.where("apply".__eq__):
            if not event.raised:
                self.names[at] = event.detail
                for place, operand in enumerate(event.reads):
                    self._add(at, ("given", place, 0), operand.tensor)
        if len(self.names) > 1:
            self._look_inside(history)

    def _look_inside(self, history: History) -> None:
        """Find what the forwards made."""
        calls = {
            number: history.position(one.event)
            for number, one in enumerate(history.trace.spans)
            if one.kind == "function" and one.event >= 0
        }
        for at, event in enumerate(history.events):
            call = calls.get(event.span, -1)
            if call in self.names:
                self._happened(call, at, event)

    def _happened(self, call: int, at: int, event: Event) -> None:
        for operand in event.results:
            self._add(call, ("made", event.site, event.inner), operand.tensor)
        if event.flags & OUT or operation(event.operation).overwrites:
            for operand in event.writes:
                self._writers[operand.tensor].setdefault(call, at)

    def overwritten(self, tensor: int, calls: list[int]) -> list[tuple[int, int]]:
        """Return those of some calls that filled a tensor anew, in order, each with the write."""
        by = self._writers.get(tensor, {})
        return [(one, by[one]) for one in calls if one in by]

    def replaced(self, tensor: int, calls: list[int], runs: int) -> tuple[int, tuple[int, ...]]:
        """Return whose a tensor is, of some calls, and those that have another in its place.

        None of those where it is read by no more calls than it belongs to.
        """
        for kept, place in self._calls.get(tensor, ()):
            own = [one for one in calls if self._at.get((one, place)) == tensor]
            others = [one for one in calls if one not in own and (one, place) in self._at]
            if kept in own and others and runs > len(own):
                return kept, tuple(others)
        return -1, ()

    def _add(self, call: int, place: _Place, tensor: int) -> None:
        self._calls[tensor].append((call, place))
        self._at.setdefault((call, place), tensor)


def of_another_call(history: History) -> Iterator[OfAnotherCall]:
    """Yield each line of a Function's backward, with the first pass in which it does so."""
    if not any(one.kind == "function" for one in history.trace.spans):
        return
    belonging, told = history.get(_Belonging), set[int]()
    for (span, site), reads in _reads(history, belonging).items():
        found = None if site in told else _found(history, belonging, span, reads)
        if found is not None:
            told.add(site)
            yield found


def _reads(history: History, belonging: _Belonging) -> dict[tuple[int, int], list[int]]:
    """Return the calls made in backward by each line of a Function's, by pass and line."""
    backwards = {f"{name}.backward" for name in belonging.names.values()}
    sites = [
        number
        for number, site in enumerate(history.trace.sites)
        if ".".join(site.function.split(".")[-2:]) in backwards
    ]
    found: dict[tuple[int, int], list[int]] = defaultdict(list)
    for at, event in history.events.at(
        np.flatnonzero(np.isin(history.events.column("site"), sites))
    ):
        span = history.inside(event, "backward") if event.reads else UNKNOWN
        if span >= 0:
            found[span, event.site].append(at)
    return found


def _found(
    history: History, belonging: _Belonging, span: int, reads: list[int]
) -> OfAnotherCall | None:
    """Return what a line read in one pass, if it was the same of one call for several."""
    events, backward = history.events, history.position(history.trace.spans[span].event)
    name = history.site_of(events[reads[0]]).function.split(".")[-2]
    # A pass that was asked for some gradients alone does not run the backward of all calls.
    asked = events[backward].operation != "backward" or events[backward].site in belonging.asked
    passed = () if asked else history.get(Graph).behind(backward)
    calls = [at for at in sorted(passed) if belonging.names.get(at) == name]
    if not 1 < len(reads) <= len(calls):
        return None
    for number, operand in enumerate(events[reads[0]].reads):
        if all(_tensor(events[at], number) == operand.tensor for at in reads):
            kept, others = belonging.replaced(operand.tensor, calls, len(reads))
            if others:
                return OfAnotherCall(name, reads[0], operand.tensor, kept, others, backward)
            filled = belonging.overwritten(operand.tensor, calls)
            if len(filled) > 1 and not _is_written(history, operand, filled[-1][0], reads[-1]):
                (kept, write), others = filled[-1], tuple(one for one, _ in filled[:-1])
                return OfAnotherCall(name, reads[0], operand.tensor, kept, others, backward, write)
    return None


def _is_written(history: History, operand: Operand, after: int, before: int) -> bool:
    """Whether something else wrote a memory between two calls: by then it may be anybody's."""
    return any(after < at < before for at in history.writes_to(operand, after))


def _tensor(event: Event, number: int) -> int:
    return event.reads[number].tensor if number < len(event.reads) else UNKNOWN


class SetAnew(NamedTuple):
    """A plain value that a Function keeps outside of its ctx, as one call left it and a later."""

    name: str  # of the Function
    attribute: str
    kept: int  # a call whose backward read it
    value: str  # as that call left it
    later: int  # the call that replaced it before the pass
    other: str
    backward: int
    decides: bool = False  # the text says that the gradient depends on it


def set_anew(history: History) -> Iterator[SetAnew]:
    """Yield for each such value of a Function the first pass that goes by a later call's."""
    states: dict[tuple[str, str], list[tuple[int, str]]] = defaultdict(list)
    for fact in history.trace.function_states:
        at = history.position(fact.event)
        if at >= 0:
            states[history.events[at].detail, fact.name].append((at, fact.value))
    for (name, attribute), values in states.items():
        found = None
        for backward in history.backwards if len(values) > 1 else ():
            found = found or _by_a_later(history, name, values, backward)
        if found is not None:
            texts = (source_of(*one) for one in history.trace.sources.items())
            decides = any(returns_depend(one, name, "backward", attribute) for one in texts)
            yield found._replace(attribute=attribute, decides=decides)


def _by_a_later(
    history: History, name: str, values: list[tuple[int, str]], backward: int
) -> SetAnew | None:
    """Return a call of a pass that had left another value than the one that is there by then."""
    later, other = max((one for one in values if one[0] < backward), default=(UNKNOWN, ""))
    for at in sorted(history.get(Graph).behind(backward)) if later >= 0 else ():
        event = history.events[at]
        if event.operation == "apply" and event.detail == name and at < later:
            before = [one for one in values if one[0] <= at]
            if before and max(before)[1] != other:
                return SetAnew(name, "", at, max(before)[1], later, other, backward)
    return None
