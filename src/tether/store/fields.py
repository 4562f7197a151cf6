"""What the numbers in a fact's fields are, read off its annotations.

Checking a recording and merging several ask the same question of every field: is this the number
of an event, of a site, of a tensor? `Mover` answers it once for each class of fact, so that a new
fact is checked and merged without a line of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, NewType, get_args, get_origin, get_type_hints

import numpy as np

from tether.facts import (
    UNKNOWN,
    Event,
    EventId,
    KindId,
    Moment,
    NameId,
    OptimizerId,
    SiteId,
    SpanId,
    Trace,
)
from tether.store.columns import Events
from tether.store.layout import TABLES

Number = NewType
Change = Callable[[int], int]
"""What becomes of a number of one kind."""


class Field(NamedTuple):
    """A field of a fact that holds numbers of one kind, or facts that do."""

    name: str
    number: Any  # one of the types in `tether.facts`: EventId, SiteId ...; None: facts
    many: bool  # a tuple, or the keys of a dictionary
    keys: bool  # the keys of a dictionary
    fact: Any = None  # the class of the facts in a tuple of facts


def numbered_fields(kind: Any) -> tuple[Field, ...]:
    """Return the fields of a class of facts that hold numbers of some kind."""
    known = _fields.get(kind)
    if known is None:
        known = _fields[kind] = tuple(_numbered(kind))
    return known


_fields: dict[Any, tuple[Field, ...]] = {}


def _numbered(kind: Any) -> Iterator[Field]:
    for name, hint in get_type_hints(kind).items():
        origin, arguments = get_origin(hint), get_args(hint)
        if isinstance(hint, NewType):
            yield Field(name, hint, many=False, keys=False)
        elif origin is tuple and isinstance(arguments[0], NewType):
            yield Field(name, arguments[0], many=True, keys=False)
        elif origin is dict and isinstance(arguments[0], NewType):
            yield Field(name, arguments[0], many=True, keys=True)
        elif origin is tuple and hasattr(arguments[0], "_fields"):
            yield Field(name, None, many=True, keys=False, fact=arguments[0])


def moved(fact: Any, changes: Mapping[Any, Change]) -> Any:
    """Return a fact with every number changed by what `changes` says for its kind."""
    new: dict[str, Any] = {}
    for one in numbered_fields(type(fact)):
        value = getattr(fact, one.name)
        if one.fact is not None:
            new[one.name] = tuple([moved(inner, changes) for inner in value])
        elif one.number in changes:
            change = changes[one.number]
            if one.keys:
                new[one.name] = {change(key): item for key, item in value.items()}
            elif one.many:
                new[one.name] = tuple([change(number) for number in value])
            else:
                new[one.name] = change(value)
    return fact._replace(**new) if new else fact


def numbers_in(fact: Any, kind: Any) -> Sequence[int]:
    """Return the numbers of one kind that a fact holds."""
    found: list[int] = []
    for one in numbered_fields(type(fact)):
        value = getattr(fact, one.name)
        if one.fact is not None:
            found += [number for inner in value for number in numbers_in(inner, kind)]
        elif one.number is kind:
            found += list(value) if one.many else [value]
    return found


def kinds_in(kind: Any) -> set[Any]:
    """Return the kinds of numbers that facts of a class hold."""
    fields = numbered_fields(kind)
    inner = (kinds_in(one.fact) for one in fields if one.fact is not None)
    return {one.number for one in fields if one.fact is None}.union(*inner)


# -- check -----------------------------------------------------------------------------------------
# What must hold between the facts of a trace; asked by tests and when a file is opened.


_WORDS = {
    SiteId: "a site",
    SpanId: "a span",
    OptimizerId: "an optimizer",
    KindId: "a kind of call",
    EventId: "an event",
    Moment: "a time",
    NameId: "a name",
}

PLACES = {SpanId: "spans", OptimizerId: "optimizers", KindId: "kinds", NameId: "names"}
"""The kinds of numbers that count the rows of a table, and which; sites are shared, when merged."""

_KINDS = {name: kinds_in(kind) for name, kind in TABLES.items()}
"""The kinds of numbers in each table. Now: annotations are read where their modules still are."""

_OF_EVENTS = [one for one in numbered_fields(Event) if one.number in _WORDS]

Bounds = Mapping[Any, tuple[int, int]]


def check(trace: Trace) -> None:
    """Assert that every number in every fact is of something that is there.

    Raises `ValueError` naming the first fact that points nowhere.
    """
    _check_forgotten(trace)
    bounds = _bounds(trace)
    for name in TABLES:
        for kind in _KINDS[name] & bounds.keys():
            least, most = bounds[kind]
            for fact in getattr(trace, name):
                if not all(least <= number <= most for number in numbers_in(fact, kind)):
                    raise ValueError(f"a fact points at {_WORDS[kind]} that is not there: {fact}")
    _check_events(trace.events, bounds)
    for number, span in enumerate(trace.spans):
        if span.parent >= number:
            raise ValueError(f"span {number} lies within one that began after it")


def _check_forgotten(trace: Trace) -> None:
    kept = [-1, *trace.kept, trace.dropped]
    rising = all(one < then for one, then in pairwise(kept)) or not (trace.dropped or trace.kept)
    if not rising or len(trace.kept) > len(trace.events):
        raise ValueError("the events that are left from before the limit are not there")


def _bounds(trace: Trace) -> Bounds:
    """Return the least and the largest number that each kind may have; `UNKNOWN` is the least."""
    end = trace.ended
    counts = {kind: len(getattr(trace, name)) for kind, name in PLACES.items()}
    most = {kind: count - 1 for kind, count in counts.items()}
    most |= {SiteId: len(trace.sites) - 1, EventId: end - 1}
    most |= {Moment: end, NameId: counts[NameId]}  # so many had come: all of them is one, too
    return {kind: (UNKNOWN, number) for kind, number in most.items()}


def _check_events(events: Sequence[Event], bounds: Bounds) -> None:
    for one in _OF_EVENTS:
        least, most = bounds[one.number]
        if isinstance(events, Events):
            column = events.column(one.name)
        else:
            column = np.array([getattr(event, one.name) for event in events], np.int64)
        if len(column) and not least <= int(np.min(column)) <= int(np.max(column)) <= most:
            raise ValueError(f"an event points at {_WORDS[one.number]} that is not there")
