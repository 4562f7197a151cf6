"""Lines that run several times for one loss, each run cut off from the one before.

The values of a run go on into the next one, and the graph does not: it was made, and no backward
pass goes through it. So of a recurrence the last run alone is trained. Or the loss takes something
of each round, and each is trained for itself: what a round gives to later ones is not.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from tether.analysis.gradients.cuts import Cuts, Met
from tether.analysis.gradients.graph import Graph
from tether.analysis.history import History, latest
from tether.finding import At, CallOf, Claim, Repair, Sentence, Step, say

MOST_PASSES = 8
"""Later backward passes that are asked whether they go through a run."""

LEAST_ROUNDS = 4
"""Cuts within one loss, from which it is seen that a round uses nothing of two rounds before."""


class CutRuns(NamedTuple):
    """A line whose runs are cut off from each other, for one loss."""

    cut: int  # the last call that cuts
    entered: int  # the run that goes on with its values
    loss: int  # the backward pass
    tensors: tuple[int, ...]  # that the runs use
    runs: int  # of that line since the pass before
    reached: int  # the last ones: those that backward goes through
    single: bool  # the line makes one such call in each run


def cut_runs(history: History) -> Iterator[CutRuns]:
    """Yield the first case of each line that cuts."""
    seen = set[object]()
    for met in history.get(Cuts).met:
        site = history.events[met.cut].site
        found = None if site in seen else _between(history, met)
        if found is not None:
            seen.add(site)
            yield found


def _between(history: History, met: Met) -> CutRuns | None:
    graph, events = history.get(Graph), history.events
    since = latest(history.backwards, met.loss)
    runs = _alike(history, since + 1, met.loss, met.entered)
    groups = _by_runs(history, runs, since + 1, met)
    before = [at for some in groups for at in some if at < met.cut]
    if not before or _passed(history, before):
        return None
    makers = {at for one in events[met.cut].reads for at in graph.makers_of(one, met.cut)}
    tensors = graph.leaves_behind(met.entered) & graph.leaves_behind(before[-1]) & history.held
    if not tensors or before[-1] not in makers.union(*map(graph.behind, makers)):
        return None
    if not history.flow.is_known_behind(met.entered, met.cut):
        return None  # what the run is given may be another value
    reached = _last_ones([not graph.behind(met.loss).isdisjoint(some) for some in groups])
    if not reached:
        return None
    order = sorted(tensors, key=lambda one: history.order.get(one, 0))
    single = len(groups) == len(runs)
    return CutRuns(met.cut, met.entered, met.loss, tuple(order), len(groups), reached, single)


def _last_ones(through: Sequence[bool]) -> int:
    """Return how many runs a pass goes through, if they are the last ones; else 0."""
    count = sum(through)
    return count if count and all(through[-count:]) else 0


def _by_runs(history: History, calls: Sequence[int], first: int, met: Met) -> list[list[int]]:
    """Return the calls of a line by the runs that they are of.

    For each layer of a model a line may make the same call, so several in a run. With the same
    parameters it is called once in each; where it has none, what lies between two cuts is a run.
    """
    used = _leaves_of(history, met.entered)
    if used:
        return [[at] for at in calls if _leaves_of(history, at) == used]
    found: dict[int, list[int]] = defaultdict(list)
    cuts = _alike(history, first, met.loss, met.cut)
    for at in calls:
        found[bisect_left(cuts, at)].append(at)
    return list(found.values())


def _leaves_of(history: History, at: int) -> set[int]:
    """Return which of what is trained a call was given itself."""
    return {int(one.tensor) for one in history.events[at].reads} & history.held


def _passed(history: History, runs: list[int]) -> bool:
    """Whether some backward pass goes through one of the runs."""
    passes = [at for at in history.backwards if at > runs[-1]][:MOST_PASSES]
    return any(not history.get(Graph).behind(at).isdisjoint(runs) for at in passes)


def _alike(history: History, first: int, last: int, call: int) -> list[int]:
    """Return the calls like one between two events: of its operation, by its line."""
    kinds, *places = (
        history.events.column(name) for name in ("kind", "operation", "site", "inner")
    )
    alike = (kinds[first:last] >= 0) == (kinds[call] >= 0)
    for one in places:
        alike = alike & (one[first:last] == one[call])
    found: list[int] = (np.flatnonzero(alike) + first).tolist()
    return found


class PartedRuns(NamedTuple):
    """A line that cuts between any two rounds of one loss, which goes through each round."""

    cut: int  # the second call of that line
    loss: int
    tensors: tuple[int, ...]  # that each round uses
    rounds: int


def parted_runs(history: History) -> Iterator[PartedRuns]:
    """Yield the first case of each line that cuts each round off from the one before.

    The loss is made of all rounds, so a pass goes through each, and through no two in a row.
    """
    cuts: dict[tuple[int, int], list[int]] = defaultdict(list)
    for met in history.get(Cuts).met:
        cuts[history.events[met.cut].site, met.loss].append(met.cut)
    seen = set[int]()
    for (site, loss), some in cuts.items():
        rounds = _rounds(history, loss, sorted(some))
        if site in seen or len(rounds) < LEAST_ROUNDS:
            continue
        tensors = _in_each(history, loss, rounds)
        if tensors:
            seen.add(site)
            order = sorted(tensors, key=lambda one: history.order.get(one, 0))
            yield PartedRuns(rounds[1][0], loss, tuple(order), len(rounds))


def _rounds(history: History, loss: int, cuts: list[int]) -> list[list[int]]:
    """Return the cuts by rounds: calls that backward goes through lie between two of these."""
    inside = sorted(history.get(Graph).behind(loss))
    found: dict[int, list[int]] = defaultdict(list)
    for cut in cuts:
        found[bisect_left(inside, cut)].append(cut)
    return list(found.values())


def _in_each(history: History, loss: int, rounds: list[list[int]]) -> set[int]:
    """Return what is trained and is used in each round once; nothing where rounds are joined."""
    behind, used = _behind(history, rounds[0]), set[int]()
    for n, (before, now) in enumerate(pairwise(rounds)):
        earlier, behind = behind, _behind(history, now)
        apart = _is_apart(earlier, behind, rounds[0][-1], rounds[max(n - 1, 0)][-1])
        if not apart or not _reaches(history, before, now):
            return set()
        uses = _uses(history, loss, behind)
        if not uses or (used and uses != used):
            return set()
        used = uses
    return used


def _behind(history: History, cuts: list[int]) -> set[int]:
    """Return the calls in the graphs of what some calls cut off."""
    graph, events = history.get(Graph), history.events
    makers = {at for cut in cuts for one in events[cut].reads for at in graph.makers_of(one, cut)}
    return makers.union(*map(graph.behind, makers))


def _uses(history: History, loss: int, calls: set[int]) -> set[int]:
    """Return what is trained and some calls use, each once and in the graph of a loss."""
    inside, events = history.get(Graph).behind(loss), history.events
    uses = [
        (int(one.tensor), at in inside)
        for at in calls
        for one in events[at].reads
        if one.tensor in history.held
    ]
    found = {tensor for tensor, trained in uses if trained}
    return found if len(found) == len(uses) else set()  # else a gradient goes through several runs


def _is_apart(before: set[int], now: set[int], first: int, since: int) -> bool:
    """Whether the calls of a round are none of the round before, or of those before that.

    What was computed before the first cut, at `first`, may be for all rounds.
    """
    return not any(at > first and (at < since or at in before) for at in now)


def _reaches(history: History, cuts: list[int], later: list[int]) -> bool:
    """Whether what was cut off goes into each of some later cuts."""
    reached, flow = set(cuts), history.flow
    for at in range(cuts[0] + 1, later[-1] + 1):
        if at in reached or (flow.carries[at] and not reached.isdisjoint(flow.known_sources(at))):
            reached.add(at)
    return reached.issuperset(later)


def claims(history: History) -> Iterator[Claim]:
    """Give one claim for each such line."""
    for found in cut_runs(history):
        yield _cut_off(history, found)
    for parted in parted_runs(history):
        yield _parted(history, parted)


def _cut_off(history: History, found: CutRuns) -> Claim:
    cut, entered, loss = (history.events[at].site for at in (found.cut, found.entered, found.loss))
    return Claim(
        tensors=found.tensors,
        cause=("runs", cut),
        site=cut,
        calls=(found.cut,),
        operation=history.events[found.cut].operation,
        severity="note",
        message=say(
            "Backward at {loss} goes through only {last} of the {n} runs of {runs}: {cut} cuts off"
            " what {subject} gave in the runs before.",
            last="the last one" if found.reached == 1 else f"the last {found.reached}",
            n=found.runs, runs=_what_runs(found, At(entered)), loss=At(loss),
            cut=CallOf(found.cut),
        ),
        story=(
            Step("made", entered, say("each run makes a graph")),
            Step("cut", cut, say("{call} gives the values of a run without its graph",
                 call=CallOf(found.cut))),
            Step("used", entered, say("the next run uses them")),
            Step("loss", loss, say("backward goes through what was made after the last cut")),
        ),
        repair=Repair(say("Detach where a backward pass has gone through what came before, not"
                          " between runs that one loss is to train.")),
        count=0,
    )  # fmt: skip


def _what_runs(found: CutRuns, line: At) -> Sentence:
    """Return what runs: a call, where its line makes it once in each run, or the line."""
    return (
        say("{call} at {line}", call=CallOf(found.entered), line=line)
        if found.single
        else say("{line}", line=line)
    )


def _parted(history: History, found: PartedRuns) -> Claim:
    cut, loss = (history.events[at].site for at in (found.cut, found.loss))
    return Claim(
        tensors=found.tensors,
        cause=("parted", cut),
        site=cut,
        operation=history.events[found.cut].operation,
        severity="note",
        message=say(
            "{call} at {cut} cuts {n} times within the loss of {loss}, each time off what a round"
            " hands to the next: no gradient of {subject} goes through more than one round.",
            n=found.rounds, loss=At(loss), call=CallOf(found.cut), cut=At(cut),
        ),
        story=(
            Step("cut", cut, say("{call} gives the values of a round without its graph",
                 call=CallOf(found.cut))),
            Step("loss", loss, say("one backward pass goes through all rounds")),
        ),
        repair=Repair(say("Where what a later round makes of it is to give a round gradients,"
                          " detach once for each backward pass, after it, and not between the"
                          " rounds of one loss.")),
        count=0,
        calls=(found.cut,),
    )  # fmt: skip
