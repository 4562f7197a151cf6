"""Graphs that no backward pass ever goes through, alive run after run: part of `graph-retained`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from tether.analysis.copies.idle import LEAST_BYTES, LEAST_RUNS, Idle, IdleMemory, outlive
from tether.analysis.gradients.graph import Graph, graph_of
from tether.analysis.history import History
from tether.analysis.sharing.fillings import growth_of
from tether.analysis.sharing.holding import Holding
from tether.analysis.surroundings import WaysThere
from tether.facts import UNKNOWN
from tether.finding import At, Bytes, Claim, Code, Repair, Sentence, Step, say
from tether.source.filling import mentions
from tether.verdicts.graph_retained.telling import instead

MOST_AFTER = 200
"""Calls after a run among which the one is looked for that joins its graph to others."""


def unused(history: History, told: set[int]) -> Iterator[Claim]:
    """Yield one claim for each function whose runs leave graphs that nothing uses."""
    groups: dict[tuple[str, str], list[Idle]] = defaultdict(list)
    spoken = {history.made_at(one) for one in told}
    spoken |= {at for one in spoken if one >= 0 for at in graph_of(history, one)}
    for one in history.get(IdleMemory).all:
        if one.graph and spoken.isdisjoint(one.made):
            site = history.site(one.site)
            groups[site.scope].append(one)
    for found in groups.values():
        yield _claim(history, found)


def _claim(history: History, found: list[Idle]) -> Claim:
    largest = found[0]
    event = history.events[largest.made[-1]]
    nbytes = sum(one.nbytes for one in found)
    tensor, name = _holder(history, largest)
    steps = [Step("made", event.site, say("each run makes another part of a graph here"))]
    steps += [*_joined(history, largest), *_kept(history, largest)]
    grows = None if tensor == UNKNOWN else growth_of(history, name, [tensor])
    repair = _repair(history, largest)
    if grows is not None:
        steps.append(Step("grows", grows, say("`{name}` is filled here", name=name)))
        repair = instead(history, [tensor], say("at {line}", line=At(grows)))
    return Claim(
        tensors=(tensor if tensor != UNKNOWN else event.results[0].tensor,),
        cause=("unused", largest.site),
        site=event.site,
        operation=event.operation,
        severity=None if nbytes >= LEAST_BYTES else "note",
        subject=name,
        message=say(
            "{who} {size} of graphs that run after run of {code} made ({line}), and no backward"
            " pass goes through them.",
            who=f"`{name}` keeps alive" if name else "Something keeps alive", size=Bytes(nbytes),
            code=Code(event.site), line=At(event.site),
        ),
        story=tuple(steps),
        repair=Repair(repair),
        count=len(largest.made),
        bytes=nbytes,
        calls=largest.made,
    )  # fmt: skip


def _repair(history: History, idle: Idle) -> Sentence:
    """Return what to do; runs that were asked for from the same lines may need their graphs."""
    ways, graph = history.get(WaysThere), history.get(Graph)
    lines = {ways.above(at) for at in idle.made}
    trained = np.asarray(graph.last_pass) >= 0
    alike = np.flatnonzero(trained & (history.events.column("site") == idle.site)).tolist()
    keep = "eep values without their graph: .detach(), .item()."
    if any(ways.above(at) in lines for at in alike):
        return say(f"K{keep}")
    return say(f"Run it under torch.no_grad() where no pass follows, or k{keep}")


def _holder(history: History, idle: Idle) -> tuple[int, str]:
    """Return the tensor, and its name, by which most of the calls' graph is held; else -1 and "".

    One of many runs is what a variable of the last run holds: that keeps nothing of the others.
    """
    made, ways = set(idle.made), defaultdict[str, set[int]](set)
    tensors: dict[str, int] = {}
    for fact in history.trace.names:
        held = made & _behind(history, fact.tensor)
        for name in {history.name_of(fact.tensor), fact.name.partition("[")[0]} if held else ():
            ways[name] |= held
            tensors.setdefault(name, fact.tensor)
    best = max(ways, key=lambda name: (len(ways[name]), -len(name)), default="")
    return (tensors[best], best) if len(ways[best]) * 2 > len(made) else (UNKNOWN, "")


def _behind(history: History, tensor: int) -> set[int]:
    """Return the calls of the graph that a tensor holds."""
    at, operand = history.made_at(tensor), history.operand_of(tensor)
    if at < 0 or operand is None or not operand.requires_grad or operand.leaf:
        return set()
    return {at, *graph_of(history, at)}


def _joined(history: History, idle: Idle) -> Iterator[Step]:
    """Yield the line that joins a run's graph to those of the runs before it: a running total.

    And the first line of another function that goes on from it: who called is seldom recorded.
    """
    function, calls = "", _going_on(history, idle)
    lasting = max(calls, key=lambda at: _lived(history, at), default=UNKNOWN)
    for at in calls:
        event = history.events[at]
        where = history.site_of(event).function
        if where == function or at not in {lasting, *graph_of(history, lasting)}:
            continue  # others use what is kept, and are let go
        several = sum(one.requires_grad and not one.leaf for one in event.reads) > 1
        does = "joins each run's graph to" if several else "goes on from each run's graph and"
        yield Step("grows", event.site, say(f"{{code}} {does} the earlier ones",
                   code=Code(event.site)))  # fmt: skip
        if where != history.site(idle.site).function:
            return
        function = where


def _going_on(history: History, idle: Idle) -> list[int]:
    """Return the calls after the last run whose graph reaches back to several runs."""
    made, last = set(idle.made), idle.made[-1]
    after = range(last + 1, min(last + MOST_AFTER, len(history.events)))
    return [at for at in after if len(made & graph_of(history, at)) >= LEAST_RUNS]


def _lived(history: History, at: int) -> int:
    """Return when the last of a call's results was let go."""
    lives = (history.trace.tensors.get(one.tensor) for one in history.events[at].results)
    ends = (len(history.events) if life.died < 0 else history.position(life.died)
            for life in lives if life is not None)  # fmt: skip
    return max(ends, default=UNKNOWN)


def _kept(history: History, idle: Idle) -> Iterator[Step]:
    """Yield the lines of the function that put into an object what outlives a run."""
    site = history.site(idle.site)
    names = outlive(history, site)
    for fill in history.get(Holding).fillings.stored(*site.scope):
        if any(mentions(fill.site.expression, name) for name in names):
            yield Step("grows", fill.site, say("{code} keeps it", code=Code(fill.site)))
