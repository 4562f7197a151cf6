"""What the numbers in a fact's fields are, read off its annotations.

Checking a recording and merging several ask the same question of every field: is this the number
of an event, of a site, of a tensor? `Mover` answers it once for each class of fact, so that a new
fact is checked and merged without a line of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, NewType, get_args, get_origin, get_type_hints

import numpy as np

from tether.facts import EventId, Moment, OptimizerId, SiteId, SpanId, Trace
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
        if one.number is kind:
            value = getattr(fact, one.name)
            found += list(value) if one.many else [value]
    return found


# -- check -----------------------------------------------------------------------------------------
# What must hold between the facts of a trace; asked by tests and when a file is opened.


_WORDS = {
    SiteId: "a site",
    SpanId: "a span",
    OptimizerId: "an optimizer",
    EventId: "an event",
    Moment: "a time",
}

_KINDS = {name: {one.number for one in numbered_fields(kind)} for name, kind in TABLES.items()}
"""The kinds of numbers in each table. Now: annotations are read where their modules still are."""


def check(trace: Trace) -> None:
    """Assert that every number in every fact is of something that is there.

    Raises `ValueError` naming the first fact that points nowhere.
    """
    end = trace.dropped + len(trace.events)
    least_and_most = {
        SiteId: (-1, len(trace.sites) - 1),
        SpanId: (-1, len(trace.spans) - 1),
        OptimizerId: (-1, len(trace.optimizers) - 1),
        EventId: (-1, end - 1),
        Moment: (-1, end),
    }

    def fits(kind: Any) -> Callable[[int], bool]:
        least, most = least_and_most[kind]
        return lambda number: least <= number <= most

    for name in TABLES:
        facts = getattr(trace, name)
        kinds = _KINDS[name] & least_and_most.keys()
        for kind in kinds:
            fitting = fits(kind)
            for fact in facts:
                if not all(map(fitting, numbers_in(fact, kind))):
                    raise ValueError(f"a fact points at {_WORDS[kind]} that is not there: {fact}")
    _check_events(trace)
    for number, span in enumerate(trace.spans):
        if span.parent >= number:
            raise ValueError(f"span {number} lies within one that began after it")


def _check_events(trace: Trace) -> None:
    sites, spans = len(trace.sites), len(trace.spans)
    events = trace.events
    if isinstance(events, Events):
        for name, count in (("site", sites), ("inner", sites), ("span", spans)):
            column = events.column(name)
            if len(column) and not (-1 <= int(np.min(column)) <= int(np.max(column)) < count):
                raise ValueError(f"an event's {name} is not there")
        return
    for number, event in enumerate(events):
        if not -1 <= event.site < sites or not -1 <= event.inner < sites:
            raise ValueError(f"event {number} points at a site that is not there")
        if not -1 <= event.span < spans:
            raise ValueError(f"event {number} points at a span that is not there")
