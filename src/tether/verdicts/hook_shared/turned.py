"""Hooks that reverse a gradient which comes back from several calls, of all that lies behind.

A hook on a tensor sees the sum of what the calls that use the tensor give back. Where one branch
was to be reversed, another one leads past the tensor; where none does, whatever the tensor was
computed from is moved against each part of the loss.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tether.analysis.gradients.graph import Graph
from tether.analysis.history import History


class TurnedGradient(NamedTuple):
    """A tensor whose gradient a hook reverses: positions."""

    made: int
    hooked: int  # the call that registered the hook
    backward: int
    users: tuple[int, ...]  # the calls of the graph that use it


def turned_gradients(history: History) -> Iterator[TurnedGradient]:
    """Yield those of the passes that were followed."""
    graph = history.get(Graph)
    for fact in history.trace.followed:
        backward = history.position(fact.event)
        for node in fact.turned if backward >= 0 else ():
            made = graph.call_of(fact.thread, node)
            hooked = _registered(history, made, backward)
            if hooked >= 0 and not _leads_past(history, made, backward):
                users = (at for at in sorted(graph.behind(backward)) if made in graph.parents(at))
                yield TurnedGradient(made, hooked, backward, tuple(users))


def _registered(history: History, made: int, backward: int) -> int:
    """Return the last call before a pass that put a hook on what a call gave; -1 for none."""
    results = {one.tensor for one in history.events[made].results} if made >= 0 else set()
    found = (
        at
        for at, event in history.events.where("register_hook".__eq__)
        if made < at < backward and event.reads and event.reads[0].tensor in results
    )
    return max(found, default=-1)


def _leads_past(history: History, made: int, backward: int) -> bool:
    """Whether a way from the loss to what lies behind a call goes past the call."""
    graph, events = history.get(Graph), history.events
    beyond = graph.behind(made)
    leaves = {one.tensor for at in (*beyond, made) for one in events[at].reads if one.leaf}
    wanted = leaves & (graph.leaves(backward) or frozenset())
    past = graph.behind(backward) - beyond - {made}
    return any(
        not beyond.isdisjoint(graph.parents(at))
        or not wanted.isdisjoint(one.tensor for one in events[at].reads)
        for at in past
    )
