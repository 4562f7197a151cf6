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
from tether.finding import At, CallOf, Claim, Repair, Step, Tensor, say


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


def claims(history: History) -> Iterator[Claim]:
    """Give one claim for each line that registers such a hook."""
    for found in turned_gradients(history):
        yield _claim(history, found)


def _claim(history: History, found: TurnedGradient) -> Claim:
    events, users = history.events, found.users
    site, loss = events[found.hooked].site, events[found.backward].site
    tensor = events[found.hooked].reads[0].tensor
    return Claim(
        tensors=(tensor,),
        cause=site,
        site=site,
        operation="register_hook",
        message=say(
            "The hook of {line} reverses the gradient of {subject}, and {n} calls use {subject} on"
            " the way to the loss of {loss}: what comes back from all of them is reversed.",
            line=At(site), n=len(users), loss=At(loss),
        ),
        story=(
            Step("made", events[found.made].site, say("{x} is computed here", x=Tensor(tensor))),
            Step("hook", site, say("the hook is registered here")),
            *(Step("used", events[at].site, say("{call} uses {x}", call=CallOf(at),
              x=Tensor(tensor))) for at in users),
            Step("loss", loss, say("backward starts from the loss here")),
        ),
        repair=Repair(say("Where it is meant for one of them, give that one a tensor of its own,"
                          " such as x.view_as(x), and register the hook there.")),
        count=history.times(found.hooked),
        calls=(found.hooked,),
    )  # fmt: skip
