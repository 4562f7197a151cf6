"""Losses of many runs that are summed up before one backward pass: part of `graph-retained`.

The gradient of a sum is the sum of the gradients. Where the runs have nothing in common but
parameters, a pass for each run gives the same, and keeps the graph of one run instead of all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tether.analysis.copies.totals import Total, UnusedTotals, total_of
from tether.analysis.gradients.graph import graph_of
from tether.analysis.history import History
from tether.finding import At, Bytes, Claim, Code, Repair, Step, say


def summed(history: History) -> Iterator[Claim]:
    """Yield a note for each backward pass through the graphs of many runs, the first of a line."""
    told: set[int] = set()
    for backward in history.backwards:
        event = history.events[backward]
        if event.site in told or event.operation != "backward" or event.create_graph:
            continue
        told.add(event.site)
        total = total_of(history, backward)
        if total is not None:
            yield _claim(history, backward, total.terms, total.sizes)


def summed_in_vain(history: History, told: set[int]) -> Iterator[Claim]:
    """Yield one claim for each line that adds up numbers with graphs that no pass goes through."""
    lines: set[int] = set()
    for total in history.get(UnusedTotals).all:
        claim, (size, most) = _adding(history, total), (sum(total.sizes), max(total.sizes))
        graphs = {*total.terms}.union(*(graph_of(history, one) for one in total.terms))
        if history.events[total.adds].site in lines or not told.isdisjoint(graphs):
            continue
        lines.add(history.events[total.adds].site)
        yield replace(
            claim,
            message=say(
                "{code} at {line} adds up {n} results of {term} with their graphs, and no backward"
                " pass goes through them: {size} are kept as long as the sum, where one run takes"
                " {one}.",
                **claim.message.parts, size=Bytes(size), one=Bytes(most),
            ),
            repair=Repair(say("Add numbers without a graph: .item() or .detach(); or run it under"
                              " torch.no_grad().")),
            bytes=size - most,
        )  # fmt: skip


def summed_after_passes(history: History, told: set[int]) -> Iterator[Claim]:
    """Yield a note for each line that adds up losses which had their backward pass."""
    lines: set[int] = set()
    for total in history.get(UnusedTotals).after_passes:
        if history.events[total.adds].site not in lines and told.isdisjoint(total.terms):
            lines.add(history.events[total.adds].site)
            yield replace(_adding(history, total), severity="note")


def _adding(history: History, total: Total) -> Claim:
    """Return the claim on a line that adds up losses with their graphs, each after its pass."""
    event, last = history.events[total.adds], history.events[total.terms[-1]]
    return Claim(
        tensors=tuple(one.tensor for one in event.results[:1]),
        cause=("total", event.site),
        site=event.site,
        operation=event.operation,
        message=say(
            "{code} at {line} adds up {n} results of {term} with their graphs, which have backward"
            " passes of their own: the graphs of {n} runs are kept as long as the sum, and nothing"
            " goes back through it.",
            code=Code(event.site), line=At(event.site), n=len(total.terms), term=At(last.site),
        ),
        story=(
            Step("made", last.site, say("each run makes a graph of its own")),
            Step("grows", event.site, say("the sum keeps the graph of each run")),
        ),
        repair=Repair(say("Add numbers without a graph: .item(), or .detach() where the sum is to"
                          " stay on the device.")),
        count=len(total.terms),
        calls=(total.adds,),
    )  # fmt: skip


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
        calls=(terms[-1],),
    )  # fmt: skip
