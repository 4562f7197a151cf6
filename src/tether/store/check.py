"""What must hold between the facts of a trace; asked by tests and when a file is opened."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tether.facts import EventId, Moment, OptimizerId, SiteId, SpanId, Trace
from tether.store.columns import Events
from tether.store.fields import numbered_fields, numbers_in
from tether.store.layout import TABLES

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
