"""Terms of a loss that change nothing: all that they give gradients to has them cleared unused.

A pass gives each summand's gradients to the leaves behind it. Where all of those are leaves whose
gradients of this pass are cleared before a step or a reader comes, the summand might as well not be
there. It could have reached what the next step trains, and was cut off from it on its way.

A line that adds up such a term is used in other passes, perhaps: where the losses of two optimizers
are added up and the two step in turn. So each pass with it is asked.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from tether.analysis.gradients.cuts import Cuts
from tether.analysis.gradients.ends import End, GradientEnds
from tether.analysis.gradients.graph import Graph
from tether.analysis.gradients.summands import Summand, is_followed, leaves_of, losses, parts
from tether.analysis.history import History, latest
from tether.facts import UNKNOWN
from tether.finding import At, Claim, Code, Repair, Step, Tensor, Tensors, say
from tether.operations.table import operation

LEAST = 2
"""Passes in which a term must be in vain: a single one may be a retry."""

MOST_LOOKED = 8
"""Passes of which the graph of the term is followed; of the others the gradients are asked."""

MOST_PASSES = 8
"""Other passes that are asked whether they use the graph of the term."""


class VainTerm(NamedTuple):
    """A summand of a loss whose gradients no step uses; positions."""

    term: Summand
    tensor: int  # itself, or what it is a multiple or a sum of and has a name
    backward: int
    cut: int  # the call that cuts it off
    cleared: int  # the call that cleared what it gave; UNKNOWN: no step ever takes that
    reached: tuple[int, ...]  # the leaves that it gives gradients to
    missed: tuple[int, ...]  # what the next step trains, and the term was cut off from
    alone: bool  # nothing else in the loss goes through those leaves to what the step trains


def vain_terms(history: History) -> Iterator[VainTerm]:
    """Yield the first case of each line that adds up such a term."""
    if history.in_part or not history.steps:
        return
    seen = set[object]()
    for walk in history.trace.walks:
        backward = history.position(walk.event)
        for found in _of_pass(history, backward) if _is_plain(history, backward) else ():
            place = (history.events[found.term.joined].site, found.term.place)
            if place not in seen and _always(history, found):
                seen.add(place)
                yield found


def _is_plain(history: History, backward: int) -> bool:
    """Whether all that a pass gave is what was added to the gradients of its leaves."""
    event, graph = history.events[backward], history.get(Graph)
    return (
        event.operation == "backward"
        and not event.raised
        and not event.create_graph
        and not graph.asked(backward)
        and history.inside(event, "closure", "backward") < 0
        and backward not in history.get(_Hooked).passes
    )


class _Hooked:
    """The passes in which hooks made something of gradients, and the tensors that have hooks."""

    def __init__(self, history: History) -> None:
        spans = history.trace.spans
        outer = [spans[one.parent] for one in spans if one.kind == "hook" and one.parent >= 0]
        self.passes = {history.position(one.event) for one in outer if one.kind == "backward"}
        self.tensors = {one.tensor for one in history.trace.hooks}


def _of_pass(history: History, backward: int) -> Iterator[VainTerm]:
    ends = _ends(history, backward)
    unused = {one for one, end in ends.items() if not end.uses} - history.get(_Hooked).tensors
    stepped = {one for one, end in ends.items() if end.by == "step"}
    if not unused or not stepped or not is_followed(history, backward):
        return
    found, others = _parted(history, backward, unused)
    for term in found:
        reached = leaves_of(history, term)
        cut, missed = _cut(history, term, stepped, backward)
        if missed and not _used_elsewhere(history, term, reached, backward):
            alone = not any(reached & one and stepped & one for one in others)
            cleared = max(ends[one].at for one in reached)
            named, ordered = _named(history, term), _ordered(history, reached)
            yield VainTerm(term, named, backward, cut, cleared, ordered, missed, alone)


def _ends(history: History, backward: int) -> dict[int, End]:
    """Return the leaves of a pass with what became of the gradients that it gave them."""
    leaves = history.get(Graph).leaves(backward) or ()
    return {one: history.get(GradientEnds).after(one, backward) for one in leaves}


def _named(history: History, term: Summand) -> int:
    """Return a term, or what it is a multiple of, or a sum of elements, that has a name."""
    one, further = term, [term]
    while len(further) == 1:
        one = further[0]
        if history.names_of(one.operand.tensor) or history.target_of(one.operand.tensor):
            return one.operand.tensor
        further = parts(history, one) or []
    return term.operand.tensor


def _parted(
    history: History, backward: int, unused: set[int]
) -> tuple[list[Summand], list[set[int]]]:
    """Return the summands all of whose leaves are unused, and the leaves of each other one."""
    found, others, seen = list[Summand](), list[set[int]](), set[tuple[int, int]]()
    waiting = losses(history, backward)
    while waiting:
        one = waiting.pop()
        if one[1:] in seen:
            continue
        seen.add(one[1:])
        leaves = leaves_of(history, one)
        further = None if leaves <= unused else parts(history, one)
        if leaves and leaves <= unused:
            found.append(one)
        elif further is None:
            others.append(leaves)
        else:
            waiting += further
    return found, others


def _cut(
    history: History, term: Summand, stepped: set[int], backward: int
) -> tuple[int, tuple[int, ...]]:
    """Return the call that cut a term off from the most of what is stepped, and from what."""
    makers = list(history.get(Graph).makers_of(term.operand, term.joined))
    found: dict[int, set[int]] = {}
    for met in history.get(Cuts).behind_calls(makers, backward):
        event = history.events[met.cut]
        shaped = any(one.shape for one in event.results)  # a number may be a weight
        if shaped and not operation(event.operation).exports:
            missed = history.get(Graph).leaves_behind(met.cut) & stepped
            found[met.cut] = {one for one in missed if _is_fresh(history, met.cut, one)}
    cut = max(found, key=lambda at: (len(found[at]), at), default=UNKNOWN)
    return cut, _ordered(history, found.get(cut, set()))


def _is_fresh(history: History, cut: int, tensor: int) -> bool:
    """Whether no step has moved a parameter since what a call cut off was computed from it."""
    reads = [one for one in history.events[cut].reads if one.requires_grad]
    made = min((history.made_at(one.tensor) for one in reads if not one.leaf), default=cut)
    return latest(history.steps_of(tensor), cut) < made


def _used_elsewhere(history: History, term: Summand, reached: set[int], backward: int) -> bool:
    """Whether another pass goes through the graph of a term, and what it gave was used."""
    graph, ends = history.get(Graph), history.get(GradientEnds)
    makers = set(graph.makers_of(term.operand, term.joined))
    passes = [at for at in history.backwards if at > min(makers, default=backward)]
    return any(
        not graph.behind(at).isdisjoint(makers) and any(ends.after(one, at).uses for one in reached)
        for at in passes[:MOST_PASSES]
        if at != backward
    )


def _always(history: History, found: VainTerm) -> bool:
    """Whether the term of a line is in vain in every pass."""
    ends = history.get(GradientEnds)
    some = {tuple(history.holders_of(one)): one for one in found.reached}  # one of each optimizer
    passes = [(at, history.next_pass(at)) for at in _alike(history, found.term.joined)]
    passes = [(at, backward) for at, backward in passes if backward < len(history.events)]
    if len(passes) < LEAST:
        return False
    if any(ends.after(one, backward).uses for one in some.values() for _, backward in passes):
        return False
    apart = max(len(passes) // MOST_LOOKED, 1)
    return all(_is_in_vain(history, found.term, *one) for one in (*passes[::apart], passes[-1]))


def _is_in_vain(history: History, term: Summand, joined: int, backward: int) -> bool:
    reads, ends = history.events[joined].reads, history.get(GradientEnds)
    if term.place >= len(reads):
        return False
    leaves = leaves_of(history, Summand(reads[term.place], joined, term.place))
    return bool(leaves) and not any(ends.after(one, backward).uses for one in leaves)


def _alike(history: History, call: int) -> list[int]:
    """Return the calls that were made as one was, from the same place."""
    columns = [history.events.column(name) for name in ("operation", "site", "inner")]
    alike = np.logical_and.reduce([one == one[call] for one in columns])
    found: list[int] = np.flatnonzero(alike).tolist()
    return found


def _ordered(history: History, tensors: set[int]) -> tuple[int, ...]:
    order = history.order
    return tuple(sorted(tensors, key=lambda one: (order.get(one, len(order)), one)))


def claims(history: History) -> Iterator[Claim]:
    """Give one claim for each term whose gradients no step uses.

    What an optimizer holds that never steps is not spoken of: the step is what is missing there.
    """
    for found in vain_terms(history):
        unstepped = [one for one in found.reached if not history.steps_of(one)]
        if history.held.isdisjoint(unstepped):
            yield _claim(history, found, certain=found.alone and not unstepped)


def _claim(history: History, found: VainTerm, *, certain: bool) -> Claim:
    cut = history.events[found.cut]
    return Claim(
        tensors=(found.tensor,),
        cause=("in vain", history.events[found.term.joined].site, found.term.place),
        site=cut.site,
        calls=(found.cut,),
        operation=cut.operation,
        severity="warning" if certain else "note",
        message=say(
            "{subject} is a term of the loss of {loss} and changes nothing: it gives gradients"
            f" only to {{reached}}, and {_unused(found)}. {{call}} cuts it off from {{missed}},"
            " which the step after {loss} trains.",
            **_parts(history, found),
        ),
        story=tuple(_story(history, found)),
        repair=Repair(
            say(
                "Keep the graph at {cut} where {x} is to train {missed}; where not, leave {x} out"
                " of the loss.",
                **_parts(history, found),
            )
        ),
        count=0,
    )


def _unused(found: VainTerm) -> str:
    if found.cleared == UNKNOWN:
        return "no step uses these gradients"
    return "{cleared} clears these gradients before a step uses them"


def _parts(history: History, found: VainTerm) -> dict[str, Any]:
    calls = {
        "cut": found.cut, "made": history.made_at(found.tensor), "used": found.term.joined,
        "loss": found.backward, "cleared": found.cleared,
    }  # fmt: skip
    sites = {name: history.events[at].site for name, at in calls.items() if at >= 0}
    return {
        **{name: At(site) for name, site in sites.items()},
        "x": Tensor(found.tensor),
        "call": Code(sites["cut"]),
        "reached": Tensors(found.reached),
        "missed": Tensors(found.missed),
    }


_TOLD = {
    "cut": "{call} gives values without a graph",
    "made": "{x} is computed from these values",
    "used": "{x} becomes a term of the loss",
    "loss": "backward starts from that loss",
    "cleared": "the gradients that {x} gave are cleared, unused",
}


def _story(history: History, found: VainTerm) -> Iterator[Step]:
    parts = _parts(history, found)
    for role, text in _TOLD.items():
        if role in parts:
            yield Step(role, parts[role].site, say(text, **parts))
