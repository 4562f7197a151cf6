"""Values drawn at random without a graph that teach what they were drawn from nothing.

A distribution is computed from parameters, and a value is drawn from it with gradients off, or by a
call that has no gradient. Where the value then meets those parameters again, as in the logarithm of
its probability, they learn from it all the same. Where it goes into a loss as a value of its own,
and they are in other summands of that loss alone, what the value does to the loss teaches them
nothing. Whoever wrote the line that leaves the graph (no_grad, detach) asked for that.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from tether.analysis.gradients.cut_words import described
from tether.analysis.gradients.cuts import Cuts, Met
from tether.analysis.gradients.ends import GradientEnds
from tether.analysis.gradients.graph import Graph
from tether.analysis.gradients.leaving import gives_graph, has_graph
from tether.analysis.gradients.summands import is_followed, leaves_of, losses, summands
from tether.analysis.history import History, latest
from tether.facts import GRAD_ON, Event, SiteId
from tether.finding import At, Claim, Code, Repair, Step, say
from tether.operations.table import operation

MOST_CALLS = 2_000
"""Calls of one line, one after another, among which a random draw is looked for."""

MOST_BETWEEN = 200_000
"""Calls between a draw and a pass that its values are followed through."""


class DrawnApart(NamedTuple):
    """A draw whose values meet what they were drawn from in no summand of a loss; positions."""

    draw: int  # the call that reads the distribution's parameters and gives no graph
    entered: int  # by which its values joined the graph of the loss
    loss: int
    tensors: tuple[int, ...]  # that it was drawn from, and other summands give gradients to


def drawn_apart(history: History) -> Iterator[DrawnApart]:
    """Yield the first case of each line that draws, unless its values may meet their parameters."""
    if history.in_part or not history.steps:
        return
    for by_loss in _lines(history).values():
        cases = [_of_loss(history, some) for some in by_loss.values()]
        known = [one for one in cases if one is not None]
        if len(known) == len(cases):
            yield from [one for one in known if one.tensors][:1]


def _lines(history: History) -> dict[SiteId, dict[int, list[Met]]]:
    """Return the calls that cut and draw, by their line and the loss that used their values."""
    lines: dict[SiteId, dict[int, list[Met]]] = defaultdict(lambda: defaultdict(list))
    known: dict[tuple[SiteId, SiteId], bool] = {}
    for met in history.get(Cuts).met:
        event = history.events[met.cut]
        place = (event.site, event.inner)
        if place not in known:
            known[place] = is_draw(history, met.cut)
        if known[place]:
            lines[event.site][met.loss].append(met)
    return lines


def _of_loss(history: History, some: list[Met]) -> DrawnApart | None:
    """Return what a loss makes of the values of a line; None where they meet their parameters."""
    graph, first = history.get(Graph), min(some, key=lambda one: one.cut)
    cuts = {one.cut for one in some if first.loss - one.cut < MOST_BETWEEN}
    behind = set[int]().union(*map(graph.leaves_behind, cuts)) & history.held
    others = set[int]()
    for backward in _passes(history, first) if cuts else ():
        reached = _reached(history, cuts, backward)
        used, besides = _summands(history, reached, backward)
        left = any(_left(history.events[at]) for at in reached)
        if used & behind or left or not is_followed(history, backward):
            return None
        if backward == first.loss:
            ends = history.get(GradientEnds)
            others = {one for one in besides & behind if ends.after(one, backward).uses}
            others = others if used else set()
    ordered = sorted(others, key=lambda one: history.order.get(one, 0))
    return DrawnApart(first.cut, first.entered, first.loss, tuple(ordered))


def _summands(history: History, reached: set[int], backward: int) -> tuple[set[int], set[int]]:
    """Return the leaves of the summands that some calls lead to, and those of all others.

    A product of a drawn value, which has no graph, and what has one is where the two meet.
    """
    used, besides = set[int](), set[int]()
    joined = {at for at in reached if not reached.isdisjoint(_without(history, at))}
    for one in summands(history, backward, joined):
        makers = history.get(Graph).makers_of(one.operand, one.joined)
        of = used if any(at in reached for at in makers) else besides
        of |= leaves_of(history, one)
    return used, besides


def _left(event: Event) -> bool:
    """Whether a drawn value became numbers: they may come back, unseen, to meet the parameters."""
    row = operation(event.operation)
    return (
        row.exports and row.leaves != "truth" and not any(one.requires_grad for one in event.reads)
    )


def _passes(history: History, met: Met) -> Iterator[int]:
    """Yield the pass, and the first one of each other line after the draw and before its next."""
    line, yielded = history.events[met.loss].site, {history.events[met.loss].site}
    yield met.loss
    for at in history.backwards:
        site = history.events[at].site
        if at > met.loss and site == line:
            return
        if at > met.cut and site not in yielded and losses(history, at):
            yielded.add(site)
            yield at


def _reached(history: History, calls: set[int], until: int) -> set[int]:
    """Return the calls before a pass that the values of some calls flow into."""
    flow, reached = history.flow, set[int](calls)
    for at in range(min(calls) + 1, until):
        if flow.carries[at] and not reached.isdisjoint(flow.edges.sources(at)):
            reached.add(at)
    return {at for at in reached if at < until}


def is_draw(history: History, cut: int) -> bool:
    """Whether a call that cuts draws at random, or goes into such a draw within a library's call.

    Or is handed what was drawn there: `loc + scale * noise`, with gradients off. A line of the
    program's own that asks to leave the graph is meant.
    """
    event = history.events[cut]
    if history.site(event.inner).user:
        return operation(event.operation).draws and event.grad_mode == GRAD_ON
    switch = latest([history.switch_in_force(cut)], cut)
    if event.grad_mode != GRAD_ON and not _is_same_call(history, event, switch):
        return False
    return not operation(event.operation).cuts and _draws_within(history, cut)


def _is_same_call(history: History, event: Event, switch: int) -> bool:
    """Whether the call that made an event had switched gradients off itself."""
    if switch < 0:
        return False
    where = history.events[switch].site
    return event.site == where or not history.site(where).user


def _draws_within(history: History, cut: int) -> bool:
    """Whether values without a graph lead from or to a cut, in its line's call, and a draw."""
    events, edges = history.events, history.flow.edges
    calls = _one_call(history, cut)
    apart = {cut}
    for at in range(cut + 1, calls.stop):
        if not apart.isdisjoint(edges.sources(at)) and not gives_graph(events[at]):
            apart.add(at)
    waiting = list(apart)
    while waiting:
        fresh = {one for one in _without(history, waiting.pop()) if one in calls} - apart
        apart |= fresh
        waiting += fresh
    return any(operation(events[at].operation).draws for at in apart)


def _one_call(history: History, at: int) -> range:
    """Return the calls of one line around a call of it, one after another."""
    sites = history.events.column("site")
    first = last = at
    while at - first < MOST_CALLS and first and sites[first - 1] == sites[at]:
        first -= 1
    while last - at < MOST_CALLS and last + 1 < len(sites) and sites[last + 1] == sites[at]:
        last += 1
    return range(first, last + 1)


def _without(history: History, at: int) -> Iterator[int]:
    """Yield the calls that a call has values without a graph from."""
    for edge in history.flow.edges[at]:
        if edge.operand is None or not has_graph(history, edge.operand):
            yield edge.source


def claims(history: History) -> Iterator[Claim]:
    """Give one claim for each line whose draw teaches what it was drawn from nothing."""
    for found in drawn_apart(history):
        yield _claim(history, found)


def _claim(history: History, found: DrawnApart) -> Claim:
    events, cut = history.events, described(history, found.draw)
    site, loss = events[found.draw].site, events[found.loss].site
    return Claim(
        tensors=found.tensors,
        cause=("drawn", site),
        site=site,
        calls=(found.draw,),
        operation=events[found.draw].operation,
        severity="note",
        message=say(
            "{call} at {line} draws from {subject} without a graph. What the loss of {loss} makes"
            " of the drawn values gives {subject} no gradient; only its other terms do.",
            call=Code(site), line=At(site), loss=At(loss),
        ),
        story=(
            *cut.story,
            Step("used", events[found.entered].site, say("the drawn values go into the loss")),
            Step("loss", loss, say("backward starts from that loss")),
        ),
        repair=Repair(cut.fix._replace(template=f"{cut.fix.template}.")),
        count=history.times(found.draw),
    )  # fmt: skip
