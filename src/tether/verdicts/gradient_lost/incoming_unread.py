"""Outputs of a custom Function whose gradients its backward never reads: part of `gradient-lost`.

``return logp, entropy`` in forward, and a backward that computes with ``grad_logp`` alone: what the
loss makes of the second output teaches nothing. Told of where the loss uses that output, and where
calls of PyTorch read the gradient of another one; it is a note, since code in C may read memory
unheard.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from tether.analysis.gradients.graph import Graph
from tether.analysis.history import History
from tether.facts import FunctionPass, SiteId
from tether.finding import At, Claim, Repair, Step, say
from tether.verdicts.gradient_lost.incoming import calls_of

LEAST = 2
"""Runs of a backward that were looked at."""


class Unread(NamedTuple):
    """An output of a Function whose gradient no run of its backward read."""

    fact: FunctionPass  # the last run of those looked at
    output: int  # its place, from 0 on
    made: SiteId  # the line that calls the Function
    used: SiteId  # the first line that computes with the output for a loss
    runs: int  # that were looked at


def unread(history: History) -> Iterator[Unread]:
    """Yield them by Function and output."""
    functions: dict[tuple[SiteId, str], list[FunctionPass]] = defaultdict(list)
    for fact in history.trace.function_passes:
        functions[fact.site, fact.name].append(fact)
    for facts in functions.values():
        last, places = facts[-1], {len(one.given) for one in facts}
        if len(facts) < LEAST or len(places) > 1:
            continue
        unread_in = [_unread_in(history, one) for one in facts]
        for output in sorted(set[int].intersection(*unread_in)):
            found = _in_a_loss(history, last, output)
            if found is not None:
                yield Unread(last, output, *found, len(facts))


def _unread_in(history: History, fact: FunctionPass) -> set[int]:
    """Return the places of the gradients that no call of a run read; none where it read none."""
    given = fact.memories[: len(fact.given)]
    read = {one.storage for event in calls_of(history, fact) for one in event.reads}
    read.update(fact.memories[len(fact.given) :])  # what is returned as it came
    left = {at for at, one in enumerate(given) if one not in read}
    return left if len(left) < len(given) else set()


def _in_a_loss(history: History, fact: FunctionPass, output: int) -> tuple[SiteId, SiteId] | None:
    """Return the lines that made an output and computed with it, on the way to a loss."""
    graph, backward = history.get(Graph), history.next_pass(history.position(fact.until) - 1)
    behind = sorted(graph.behind(backward)) if backward < len(history.events) else []
    for at in behind:
        event = history.events[at]
        if event.detail != fact.name or len(event.results) != len(fact.given):
            continue
        tensor = event.results[output].tensor
        for later in behind:
            if at in graph.parents(later) and _reads(history, later, tensor):
                return event.site, history.events[later].site
    return None


def _reads(history: History, at: int, tensor: int) -> bool:
    return any(one.tensor == tensor and one.requires_grad for one in history.events[at].reads)


def claims(history: History) -> Iterator[Claim]:
    """Give one claim for each such output."""
    for found in unread(history):
        yield _claim(found)


def _claim(found: Unread) -> Claim:
    fact = found.fact
    parts = {"name": fact.name, "n": found.output + 1, "used": At(found.used)}
    return Claim(
        tensors=(),
        subject=fact.name,
        cause=("unread", fact.site, found.output),
        site=fact.site,
        operation="apply",
        severity="note",
        message=say(
            "The backward of {name} does not use the gradient of output {n}: {used} computes with"
            " this output for the loss, and in {runs} runs that were looked at no call of PyTorch"
            " read its gradient.",
            runs=found.runs, **parts,
        ),
        story=(
            Step("made", fact.site, say("the backward of {name}", name=fact.name)),
            Step("made", found.made, say("{name} is called here", **parts)),
            Step("used", found.used, say("output {n} goes into the loss", **parts)),
        ),
        repair=Repair(say("Add what the gradient of output {n} makes of each input to what backward"
                          " returns; or mark the output with ctx.mark_non_differentiable().",
                          **parts)),
        count=0,
    )  # fmt: skip
