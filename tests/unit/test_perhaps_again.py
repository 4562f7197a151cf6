"""Which calls are looked at as such that may have computed what an earlier one computed."""

from __future__ import annotations

import numpy as np

from tether.analysis.copies.perhaps_again import perhaps_again
from tether.analysis.history import History
from tether.facts import Event, Operand, Site, Trace


def operand(number: int, version: int = 0) -> Operand:
    return Operand(number, number, version, 0, (4,), (1,), "float32", False, True)


def call(read: Operand, made: int, site: int = 0) -> Event:
    return Event("relu", site, (read,), (operand(made),), inner=site)


def looked_at(*events: Event) -> list[int]:
    trace = Trace(events=list(events), sites=[Site("a.py", 1), Site("a.py", 2)])
    return perhaps_again(History(trace), np.arange(len(events))).tolist()


def test_calls_that_were_given_the_same():
    assert looked_at(call(operand(0), 1), call(operand(0), 2)) == [0, 1]


def test_not_what_was_written_in_between():
    assert looked_at(call(operand(0), 1), call(operand(0, version=1), 2)) == []


def test_not_calls_of_two_lines():
    assert looked_at(call(operand(0), 1), call(operand(0), 2, site=1)) == []


def test_with_the_calls_that_made_what_they_were_given():
    # The second line was given the result of the first, twice; the first ran once.
    events = call(operand(0), 1), call(operand(1), 2, site=1), call(operand(1), 3, site=1)
    assert looked_at(*events) == [0, 1, 2]


def test_what_is_computed_of_what_was_written_differs_as_well():
    runs = ((operand(0, version=step), 1 + 2 * step) for step in range(3))
    pairs = ((call(read, made), call(operand(made), made + 1, site=1)) for read, made in runs)
    assert looked_at(*(one for pair in pairs for one in pair)) == []


def test_no_calls():
    assert looked_at() == []
