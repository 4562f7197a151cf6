"""Numbers of many runs that are added up with their graphs: all these graphs are kept meanwhile."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import NamedTuple

import numpy as np

from tether.analysis.copies.idle import LEAST_BYTES, LEAST_RUNS
from tether.analysis.gradients.graph import Graph, graph_of
from tether.analysis.history import History, losses_of
from tether.facts import Kind

MOST_TERMS = 512
"""Runs of one sum that are looked at."""


class Total(NamedTuple):
    """A sum of what the runs of one line made; the graphs have no call in common."""

    adds: int  # position of the call that adds, the last of its line
    terms: list[int]  # positions
    sizes: list[int]  # bytes of the graph of each that live until then, if it was asked


def total_of(history: History, at: int) -> Total | None:
    """Return what a backward pass goes through, or a call adds up, if it is that and weighs."""
    adding, terms = _terms(history, at)
    if len(terms) < LEAST_RUNS or not _apart(history, terms):
        return None
    return _weighed(history, Total(_that_adds(history, adding), terms, []), at)


def _weighed(history: History, total: Total, at: int) -> Total | None:
    """Return a sum with the bytes of its graphs that live until a moment; None if they are few."""
    sizes = [_bytes(history, one, at) for one in total.terms]
    return total._replace(sizes=sizes) if sum(sizes) - max(sizes) >= LEAST_BYTES else None


def _that_adds(history: History, adding: list[int]) -> int:
    """Return the last call of the line that adds most often, or most at once."""
    parents, events = history.get(Graph).parents, history.events
    times = Counter(events[at].site for at in adding)
    return max(adding, key=lambda at: (times[events[at].site], len(list(parents(at))), at))


class UnusedTotals:
    """Sums through which no backward pass goes. Empty for a program that did not finish."""

    def __init__(self, history: History) -> None:
        self.all: list[Total] = []  # no pass goes through what is added up either
        self.after_passes: list[Total] = []  # what is added up has had a pass of its own
        self._history = history
        for at in _sums(history) if history.whole else ():
            adding, terms = _terms(history, at)
            if len(terms) < LEAST_RUNS or self._is_used(at) or not _apart(history, terms):
                continue
            total = Total(_that_adds(history, adding), terms, [])
            used = [self._is_used(one) for one in terms]
            if all(used):
                if self._had_passes(total):
                    self.after_passes.append(total)
            elif not any(used) and (weighed := _weighed(history, total, at)):
                self.all.append(weighed)

    def _had_passes(self, total: Total) -> bool:
        """Whether the terms are of many passes, which were made before the sum was whole.

        The terms of one loss have one pass in common. The last loss may be added before its own.
        """
        last = self._history.get(Graph).last_pass
        passes = {last[one] for one in total.terms}
        return sum(one < total.adds for one in passes) >= LEAST_RUNS - 1

    def _is_used(self, at: int) -> bool:
        """Whether a backward pass goes through a call."""
        return self._history.get(Graph).last_pass[at] >= 0


def _sums(history: History) -> list[int]:
    """Return the calls that add up numbers, and whose result is added to nothing further."""
    adding = np.frombuffer(history.get(_Adding).calls, bool)
    ends = adding.copy()
    ends[history.get(Graph).parents_of(adding)] = False
    found: list[int] = np.flatnonzero(ends).tolist()
    return found


def _terms(history: History, at: int) -> tuple[list[int], list[int]]:
    """Return the calls that add up to a loss, or a sum, and the runs of the line that made most.

    What a pass goes through is a loss, and a term of a sum that none goes through.
    """
    graph, adds = history.get(Graph), history.get(_Adding).calls
    last, used = graph.last_pass, history.events[at].is_backward
    sites = history.events.column("site")
    waiting = [at]
    if graph.kind(at) is None and (event := history.events[at]).is_backward:
        waiting = [made for one in losses_of(event) for made in graph.makers_of(one, at)]
    lines: dict[int, set[int]] = defaultdict(set)
    seen, adding = set[int](), list[int]()
    while waiting and len(seen) < 4 * MOST_TERMS:
        at = waiting.pop()
        if at in seen:
            continue
        seen.add(at)
        if adds[at] and (used or last[at] < 0):
            adding.append(at)
            waiting += graph.parents(at)
        else:
            lines[int(sites[at])].add(at)
    most = max(lines, key=lambda site: len(lines[site]), default=-1)
    return adding, sorted(lines[most])[:MOST_TERMS]


class _Adding:
    """The calls that make numbers of numbers, or a row of them, and need none for their gradient.

    So does a sum, a mean, a difference and a part of a number.
    """

    def __init__(self, history: History) -> None:
        events, tuples = history.events, history.events.names.tuples
        kinds = [n for n, one in enumerate(history.trace.kinds) if _needs_nothing(one)]
        large = [number for number, shape in tuples.items() if len(shape) > 1]
        is_large = np.isin(events.operands.column("shape"), large)
        numbers = np.ones(len(events), bool)
        for at, rows in (events.touched("reads"), events.touched("results")):
            numbers[at[is_large[rows]]] = False
        self.calls = (numbers & np.isin(events.column("kind"), kinds)).tobytes()


def _needs_nothing(kind: Kind) -> bool:
    """Whether calls of a kind make one node, which needs no operand for its gradient."""
    return kind.known and not kind.saved and kind.made == 1


def _apart(history: History, terms: list[int]) -> bool:
    """Whether the graphs of some calls have no call in common."""
    seen: set[int] = set()
    for at in terms:
        graph = {at, *graph_of(history, at)}
        if not seen.isdisjoint(graph):
            return False
        seen |= graph
    return True


def _bytes(history: History, term: int, moment: int) -> int:
    """Return the bytes that the graph of a run made, and that live until a moment."""
    storages = {
        one.storage for at in (term, *graph_of(history, term)) for one in history.events[at].results
    }
    facts = (history.trace.storages.get(one) for one in storages)
    return sum(
        fact.nbytes
        for fact in facts
        if fact is not None and (fact.freed < 0 or history.position(fact.freed) >= moment)
    )
