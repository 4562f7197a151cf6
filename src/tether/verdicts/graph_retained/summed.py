"""Losses of many runs that are summed up before one backward pass: part of `graph-retained`.

The gradient of a sum is the sum of the gradients. Where the runs have nothing in common but
parameters, a pass for each run gives the same, and keeps the graph of one run instead of all.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from tether.analysis.graph import Graph, graph_of
from tether.analysis.history import History, losses_of
from tether.analysis.idle import LEAST_BYTES, LEAST_RUNS
from tether.finding import At, Bytes, Claim, Code, Repair, Step, say

MOST_TERMS = 512
"""Runs of one pass that are looked at."""


def summed(history: History) -> Iterator[Claim]:
    """Yield a note for each backward pass through the graphs of many runs, the first of a line."""
    told: set[int] = set()
    for backward in history.backwards:
        event = history.events[backward]
        if event.site in told or event.operation != "backward" or event.create_graph:
            continue
        told.add(event.site)
        terms = _terms(history, backward)
        if len(terms) >= LEAST_RUNS and _apart(history, terms):
            sizes = [_bytes(history, one, backward) for one in terms]
            if sum(sizes) - max(sizes) >= LEAST_BYTES:
                yield _claim(history, backward, terms, sizes)


def _terms(history: History, backward: int) -> list[int]:
    """Return the runs of the one line whose results add up to most of a loss."""
    graph, event = history.get(Graph), history.events[backward]
    waiting = [at for one in losses_of(event) for at in graph.makers_of(one, backward)]
    lines: dict[int, set[int]] = defaultdict(set)
    seen: set[int] = set()
    while waiting and len(seen) < 4 * MOST_TERMS:
        at = waiting.pop()
        if at in seen:
            continue
        seen.add(at)
        if _adds(history, at):
            waiting += graph.parents(at)
        else:
            lines[history.events[at].site].add(at)
    most = max(lines, key=lambda site: len(lines[site]), default=-1)
    return sorted(lines[most])[:MOST_TERMS]


def _adds(history: History, at: int) -> bool:
    """Whether a call makes numbers of numbers, or a row of them, and needs none for its gradient.

    So does a sum, a mean, a difference and a part of a number.
    """
    event, graph = history.events[at], history.get(Graph)
    kind = graph.kind(at)
    numbers = all(len(one.shape) < 2 for one in (*event.reads, *event.results))
    return numbers and kind is not None and kind.known and not kind.saved and kind.made == 1


def _apart(history: History, terms: list[int]) -> bool:
    """Whether the graphs of some calls have no call in common."""
    seen: set[int] = set()
    for at in terms:
        graph = {at, *graph_of(history, at)}
        if not seen.isdisjoint(graph):
            return False
        seen |= graph
    return True


def _bytes(history: History, term: int, backward: int) -> int:
    """Return the bytes that the graph of a run made, and that live until the pass."""
    storages = {
        one.storage for at in (term, *graph_of(history, term)) for one in history.events[at].results
    }
    facts = (history.trace.storages.get(one) for one in storages)
    return sum(
        fact.nbytes
        for fact in facts
        if fact is not None and (fact.freed < 0 or history.position(fact.freed) >= backward)
    )


def _claim(history: History, backward: int, terms: list[int], sizes: list[int]) -> Claim:
    event, last = history.events[backward], history.events[terms[-1]]
    return Claim(
        tensors=tuple(one.tensor for one in last.results[:1]),
        cause=("summed", event.site),
        site=last.site,
        operation=last.operation,
        severity="note",
        message=say(
            "The graphs of {n} runs of {code} ({line}) are kept until the backward pass at"
            " {backward}: {size}, where one run takes {one}. They have nothing in common but"
            " parameters.",
            n=len(terms), code=Code(last.site), line=At(last.site), backward=At(event.site),
            size=Bytes(sum(sizes)), one=Bytes(max(sizes)),
        ),
        story=(
            Step("made", last.site, say("each run makes a graph of its own")),
            Step("loss", event.site, say("one pass goes through all of them")),
        ),
        repair=Repair(
            say("Call backward() on the loss of each run (divided as the sum is): the gradients add"
                " up to the same, and each graph is freed at once.")
        ),
        count=len(terms),
        bytes=sum(sizes) - max(sizes),
    )  # fmt: skip
