"""Gradients that have the graph by which they were made."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from tether.analysis.gradients.graph import graph_of
from tether.analysis.history import History
from tether.analysis.wording import and_more
from tether.facts import CREATE_GRAPH, UNKNOWN
from tether.finding import At, Claim, Repair, Step, say


def claims(history: History) -> Iterator[Claim]:
    """Find leaves whose .grad was made by backward(create_graph=True) and never let go."""
    stored = _stored(history)
    left: dict[int, list[int]] = defaultdict(list)
    for tensor, backwards in stored.items():
        if history.trace.tensors[tensor].died == UNKNOWN:
            left[history.events[backwards[-1]].site].append(tensor)
    for site, tensors in left.items():
        names = [f"{history.name_of(one)}.grad" for one in tensors]
        yield Claim(
            tensors=tuple(tensors),
            cause=("gradients", site),
            site=site,
            operation="backward",
            subject=names[0],
            also=tuple(names[1:]),
            message=say(
                "backward(create_graph=True) at {line} leaves {names} with the graph they were made"
                " by: parameter, gradient and graph hold each other, and none is freed.",
                line=At(site), names=and_more(names),
            ),
            story=(Step("grows", site, say("each gradient made here has a graph")),),
            repair=Repair(
                say("Ask for gradients that are not stored: torch.autograd.grad(loss, parameters,"
                    " create_graph=True); or set .grad to None when the step is done.")
            ),
            count=len(stored[tensors[0]]),
        )  # fmt: skip


def _stored(history: History) -> dict[int, list[int]]:
    """Return the backward passes that gave each leaf a gradient with a graph, never let go."""
    made: dict[int, list[int]] = defaultdict(list)
    cleared: dict[int, int] = {}  # tensor -> the last time that its gradient was let go
    clears = ("zero_grad", "grad.__set__")
    passes = history.events.called("backward".__eq__)
    if not (passes & history.events.flagged(CREATE_GRAPH)).any():
        return {}
    for at, event in history.events.where(lambda name: name == "backward" or name in clears):
        if event.operation == "backward" and event.create_graph:
            for tensor in _leaves(history, at):
                made[tensor].append(at)
        elif event.operation != "backward" and event.none:
            cleared.update((one.tensor, at) for one in event.reads)
    return {one: passes for one, passes in made.items() if cleared.get(one, UNKNOWN) < passes[-1]}


def _leaves(history: History, backward: int) -> list[int]:
    """Return the leaves to which a backward pass leads, in the order in which they were used."""
    reads = (one for at in sorted(graph_of(history, backward)) for one in history.events[at].reads)
    return list(dict.fromkeys(one.tensor for one in reads if one.leaf and one.requires_grad))
