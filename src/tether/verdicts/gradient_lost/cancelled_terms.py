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

from tether.analysis.gradients.graph import Graph
from tether.analysis.gradients.summands import calls_behind, summands
from tether.analysis.history import History
from tether.facts import SiteId
from tether.finding import At, CallOf, Claim, Repair, Step, Tensor, say

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
        if backward < 0 or history.events[backward].create_graph:
            continue  # of what is differentiated again, the next derivative need not cancel out
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


def claims(history: History) -> Iterator[Claim]:
    """Give one claim for each such line."""
    for found in cancelled_terms(history):
        yield _claim(history, found)


def _claim(history: History, found: CancelledTerms) -> Claim:
    made, backward = (history.events[at].site for at in (found.made, found.backward))
    value = history.events[found.made].results[0].tensor
    used = dict.fromkeys(history.events[at].site for at in found.users)
    return Claim(
        tensors=(value,),
        cause=("cancelled", made),
        site=history.events[found.users[-1]].site,
        operation=history.events[found.users[-1]].operation,
        severity="warning",
        message=say(
            "What comes back to {subject} from {n} terms of the loss of {loss} adds up to zero,"
            " element by element, in each of {passes} passes that were looked at: the terms undo"
            " each other, and none of them moves what {subject} is computed from.",
            n=len(found.users), loss=At(backward), passes=found.passes,
        ),
        story=(
            Step("made", made, say("{call} makes it", call=CallOf(found.made))),
            *(Step("used", one, say("a term of the loss uses it here")) for one in used),
            Step("backward", backward, say("one pass goes back through both")),
        ),
        repair=Repair(say("Take the value for a constant in the term that is there for another"
                          " factor: `{x!s}.detach()`.", x=Tensor(value))),
        count=found.passes,
        calls=(found.users[-1],),
    )  # fmt: skip
