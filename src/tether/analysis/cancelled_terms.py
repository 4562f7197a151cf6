"""Terms of a loss that undo each other: what they give back to one value adds up to nothing.

A value that two terms use gets the sum of what comes back from both. Where that is zero, element by
element, in each pass that was followed from node to node, neither term moves what the value was
computed from: one of them was to take it for a constant. Told is of terms that the loss only adds
up, each of which gives something back by itself; within one term it is the formula's own matter.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from tether.analysis.graph import Graph
from tether.analysis.history import History
from tether.analysis.summands import calls_behind, summands
from tether.facts import SiteId

LEAST_PASSES = 2
"""Passes that were followed: in a first one, two factors may be equal by their first values."""


class CancelledTerms(NamedTuple):
    """A value that terms of a loss use, and that gets nothing of what they give: positions."""

    made: int
    users: tuple[int, ...]  # the first call of each term that uses it
    backward: int
    passes: int  # that were followed, each with this


def cancelled_terms(history: History) -> Iterator[CancelledTerms]:
    """Yield those of each line of backward passes."""
    followed: dict[SiteId, int] = defaultdict(int)
    lines: dict[tuple[SiteId, SiteId], list[CancelledTerms]] = defaultdict(list)
    graph = history.get(Graph)
    for fact in history.trace.followed:
        backward = history.position(fact.event)
        if backward < 0:
            continue
        site = history.events[backward].site
        followed[site] += 1
        for node in fact.cancelled:
            one = _of_call(history, graph.call_of(fact.thread, node), backward)
            if one is not None:
                lines[site, history.events[one.made].site].append(one)
    for (site, _), found in lines.items():
        if len(found) == followed[site] >= LEAST_PASSES:
            yield found[0]._replace(passes=len(found))


def _of_call(history: History, made: int, backward: int) -> CancelledTerms | None:
    """Return what terms do with the result of a call; None where it is not several terms."""
    if made < 0:
        return None
    graph = history.get(Graph)
    users = [at for at in sorted(graph.behind(backward)) if made in graph.parents(at)]
    owners: dict[int, list[int]] = defaultdict(list)  # call that uses it -> terms that hold it
    for number, term in enumerate(summands(history, backward, users)):
        for at in calls_behind(history, term).intersection(users):
            owners[at].append(number)
    terms = {some[0]: at for at, some in sorted(owners.items(), reverse=True)}
    alone = len(owners) == len(users) and all(len(some) == 1 for some in owners.values())
    if not alone or len(terms) < 2:
        return None
    return CancelledTerms(made, tuple(sorted(terms.values())), backward, 1)
