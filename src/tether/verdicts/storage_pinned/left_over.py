"""Memory that a container, a closure or an exception keeps, run after run, outside of graphs."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tether.analysis.copies.idle import Idle, IdleMemory, runs_apart
from tether.analysis.copies.totals import UnusedTotals
from tether.analysis.gradients.graph import graph_of
from tether.analysis.history import History
from tether.analysis.sharing.fillings import growth_of
from tether.analysis.sharing.holding import Holding
from tether.analysis.surroundings import at_line
from tether.analysis.wording import listed
from tether.facts import CACHE, UNKNOWN, Site
from tether.finding import At, Bytes, Claim, Code, Repair, Sentence, Step, say
from tether.source.names import common_place, root_of

MOST_RUNS = 64
"""Runs of a line, the last ones, whose graphs are looked into for what they keep."""


class _LeftOver(NamedTuple):
    """What the runs of one line left, and the tensors that keep it."""

    idle: Idle
    tensors: list[int]


def claims(history: History, told: set[int]) -> Iterator[Claim]:
    """Give memory that a container, a closure or an exception keeps, run after run: a note."""
    holders: dict[tuple[str, ...], list[_LeftOver]] = defaultdict(list)
    for names, left in _left_over(history, told):
        if names:
            holders[names].append(left)
        else:
            yield _left(history, (), [left])
    for names, some in holders.items():
        yield _left(history, names, some)


def _left_over(history: History, told: set[int]) -> Iterator[tuple[tuple[str, ...], _LeftOver]]:
    """Yield what the runs of lines left outside of graphs, and what it lies in."""
    saved = _saved_by_graphs(history)
    for idle in (one for one in history.get(IdleMemory).all if one.more and not one.graph):
        tensors = _results(history, idle.kept)  # none: what is no tensor holds it
        named = [one for one in tensors if history.names_of(one) and one not in told]
        holds = _holds_several_runs(history, idle, named)
        names = _holders_of(history, named, tensors) if holds else ()
        apart = names or saved.isdisjoint(_memories(history, idle.kept))
        if tensors and apart and told.isdisjoint(tensors):
            yield names, _LeftOver(idle, named or tensors[-1:])


def _holds_several_runs(history: History, idle: Idle, named: list[int]) -> bool:
    """Whether names hold what several runs of a line left, where several runs left it.

    A name that was found for two tensors held one after the other, and never both: what a variable
    had before may live on in a ring of objects that Python's collector has not come to.
    """
    runs = runs_apart(history, idle.made)
    if len(set(runs)) in (1, len(runs)):
        return True  # of each run one: what is named was left by as many
    run_of = {
        memory: run
        for at, run in zip(idle.made, runs, strict=True)
        for memory in _memories(history, [at])
    }
    shown = ((one, history.operand_of(one)) for one in named)
    of = {run_of.get(history.flow.memory(shows), UNKNOWN) for _, shows in shown if shows}
    names = Counter(history.name_of(one) for one in named)
    return len(of) > 1 and max(names.values()) == 1


def _holders_of(history: History, named: list[int], tensors: list[int]) -> tuple[str, ...]:
    """Return what all named tensors lie in, or the two things that all tensors lie in; or none.

    What a loop's variable still leads to is called by that variable, and the rest by the container.
    """
    names = [history.name_of(one) for one in named]
    whole = common_place(names) if len(names) > 1 else ""
    if whole or not named or len(named) < len(tensors):
        return (whole,) if whole else ()
    parts: dict[str, list[str]] = defaultdict(list)
    for name in names:
        parts[root_of(name)].append(name)
    most, *others = sorted(parts, key=lambda root: len(parts[root]), reverse=True)
    return (common_place(parts[most]), others[0]) if len(others) == 1 else ()


def _left(history: History, names: tuple[str, ...], lefts: list[_LeftOver]) -> Claim:
    """Say what the runs of some lines left, and by which line it is kept."""
    first, name = lefts[0].idle, names[0] if names else ""
    event = history.events[first.kept[-1]]
    tensors = [tensor for one in lefts for tensor in one.tensors]
    steps = [step for one in lefts for step in _making(history, one.idle)]
    nbytes = sum(one.idle.nbytes for one in lefts)
    return Claim(
        tensors=tuple(tensors),
        cause=("unused", name or event.site),
        site=event.site,
        operation=event.operation,
        severity="note",
        subject=name,
        message=_keeps(history, names, [one.idle for one in lefts], nbytes),
        story=(*steps, *_keeping(history, name, tensors, history.site(first.site))),
        repair=Repair(say("Keep only what is used later: numbers made of it, its last values,"
                          " the text of an exception. A hook lives until it is removed, and a"
                          " cache finds nothing by a new tensor.")),
        count=max(len(one.idle.made) for one in lefts),
        bytes=nbytes,
    )  # fmt: skip


def _keeps(history: History, names: tuple[str, ...], idle: list[Idle], nbytes: int) -> Sentence:
    """Say who keeps how much, and which lines made it."""
    made = dict.fromkeys(history.events[one.made[-1]].site for one in idle)
    lines = {f"line{number}": At(site) for number, site in enumerate(made)}
    return say(
        "{who} {keeps} {size} alive that {lines} made and nothing uses again.",
        who=listed([f"`{one}`" for one in names]) if names else "Something",
        keeps="keeps" if len(names) < 2 else "keep",
        size=Bytes(nbytes),
        lines=say(listed([f"{{{one}}}" for one in lines]), **lines),
    )


def _making(history: History, idle: Idle) -> Iterator[Step]:
    """Yield the line that made memory, and the one that made what keeps it."""
    made, kept = history.events[idle.made[-1]].site, history.events[idle.kept[-1]].site
    yield Step("made", made, say("made here, run after run"))
    if kept != made:
        yield Step("kept", kept, say("{code} is what is kept", code=Code(kept)))


def _saved_by_graphs(history: History) -> set[int]:
    """Return the memories that graphs which nothing uses have saved: those are told of by them."""
    runs = [at for idle in history.get(IdleMemory).all if idle.graph
            for at in idle.made[-MOST_RUNS:]]  # fmt: skip
    runs += [at for total in history.get(UnusedTotals).all for at in total.terms]
    graphs = set(runs).union(*(graph_of(history, at) for at in runs))
    return {history.flow.memory(one) for at in graphs for one in history.events[at].reads}


def _results(history: History, calls: Iterable[int]) -> list[int]:
    return [int(one.tensor) for at in calls for one in history.events[at].results]


def _memories(history: History, calls: Iterable[int]) -> set[int]:
    return {history.flow.memory(one) for at in calls for one in history.events[at].results}


def _keeping(history: History, name: str, tensors: list[int], made: Site) -> Iterator[Step]:
    """Yield the lines by which a container came to hold tensors that a line had made."""
    grows = growth_of(history, name, tensors) if name else None
    if grows is not None:
        yield Step("grows", grows, say("`{name}` takes another one here", name=name))
    if CACHE in name:
        first = at_line(made, made.first_line)
        yield Step("kept", first, say("the cache of this function keeps it"))
    if tensors and "__closure__" in history.name_of(tensors[0]):
        for one in history.get(Holding).fillings.of(*made.scope, made.target):
            if one.how == "closure":
                yield Step("kept", one.site, say("a function holds `{x}`", x=made.target))
