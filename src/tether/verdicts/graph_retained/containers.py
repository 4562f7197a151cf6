"""Containers, objects and variables that keep the graphs of several steps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from tether.analysis.gradients.graph import graph_of
from tether.analysis.history import History
from tether.analysis.sharing.fillings import growth_of
from tether.facts import UNKNOWN
from tether.finding import At, Bytes, Claim, Code, Repair, Step, say
from tether.store.lives import tensors_of
from tether.verdicts.graph_retained.kept_by import kept_by
from tether.verdicts.graph_retained.steps import (
    LEAST,
    bytes_kept,
    death_of,
    graphs_apart,
    key_of,
    steps_of,
)
from tether.verdicts.graph_retained.telling import handed_on_at, instead


def claims(history: History, kept: set[int]) -> Iterator[Claim]:
    """Give one claim for each name that leads to such tensors, of those that had a graph."""
    for name, tensors in _containers(history, kept).items():
        claim = _container(history, name, tensors)
        if claim is not None:
            yield claim


def _containers(history: History, kept: set[int]) -> dict[str, list[int]]:
    """Group the kept tensors by their container: that of ``agent.memory[0][1]`` is the first.

    A place holds one tensor at a time, the latest that was found there; of a set no place is known.
    """
    groups: dict[str, dict[int, None]] = defaultdict(dict)
    latest = {fact.name: fact.tensor for fact in sorted(history.trace.names, key=lambda n: n.at)}
    for fact in history.trace.names:
        there = latest[fact.name] == fact.tensor or "[...]" in fact.name
        if fact.tensor in kept and there and "[" in fact.name:
            groups[fact.name.partition("[")[0]].setdefault(fact.tensor)
    return {name: list(tensors) for name, tensors in _apart_from(history, groups).items()}


def _apart_from(history: History, groups: dict[str, dict[int, None]]) -> dict[str, dict[int, None]]:
    """Join the containers that hold a tensor in common and that no search found side by side.

    A search names what is in a container once: two names of one were found by different searches.
    """
    moments: dict[str, set[int]] = defaultdict(set)
    for fact in history.trace.names:
        moments[fact.name.partition("[")[0]].add(fact.at)
    found: dict[str, dict[int, None]] = {}
    for name in sorted(groups, key=lambda one: -len(groups[one])):
        same = (
            one for one in found
            if groups[name].keys() & found[one].keys() and moments[one].isdisjoint(moments[name])
        )  # fmt: skip
        found.setdefault(next(same, name), {}).update(groups[name])
    return found


def _together(history: History, tensors: list[int]) -> list[int]:
    """Return what a container held at one time: at the latest moment at which it held most."""
    known = {one: history.made_at(one) for one in tensors}
    latest = max(known.values())
    found = [one for one in tensors if known[one] >= 0 and death_of(history, one) > latest]
    return _with_siblings(history, found) if found else []


def _container(history: History, name: str, tensors: list[int]) -> Claim | None:
    together = _together(history, tensors)
    calls = [history.made_at(one) for one in together]
    graphs = graphs_apart(history, calls)
    if graphs < LEAST:
        return None
    grows, made = growth_of(history, name, together), history.events[calls[0]].site
    nbytes = bytes_kept(history, together, calls)
    where = say("where it grows") if grows is None else say("at {line}", line=At(grows))
    story = [Step("made", made, say("{code} has a graph", code=Code(made)))]
    if grows is not None:
        text = say("`{name}` takes another tensor with its graph here", name=name)
        story.insert(0, Step("grows", grows, text))
    else:
        story += handed_on_at(history, together[0])
    story += kept_by(history, together)
    story += _totals(history, calls[-1])
    if history.backwards:
        loss = history.events[history.backwards[-1]].site
        story.append(Step("loss", loss, say("each call of `backward()` here counts as one step")))
    return Claim(
        tensors=tuple(together),
        cause=("container", name),
        site=made if grows is None else grows,
        operation="append",
        subject=name,
        message=say(
            "`{name}` holds {count} tensors with the graphs of {graphs} steps, {size} that nothing"
            " else needs{growing}.",
            name=name, count=len(together), graphs=graphs, size=Bytes(nbytes),
            growing="" if grows is None else say("; it grows {where}", where=where),
        ),
        story=tuple(story),
        repair=Repair(instead(history, together, where)),
        count=graphs,
        bytes=nbytes,
    )  # fmt: skip


def _totals(history: History, made: int) -> Iterator[Step]:
    """Yield the lines by which the graph of a call goes back over steps: each adds to a total."""
    lines: dict[int, list[int]] = defaultdict(list)
    for at in sorted(graph_of(history, made)):
        lines[history.events[at].site].append(at)
    for site, runs in lines.items():
        given = {one.tensor for at in runs[1:] for one in history.events[at].reads}
        carried = sum(one.tensor in given for at in runs for one in history.events[at].results)
        if carried >= LEAST - 1 and steps_of(history, runs) >= LEAST:
            text = say("{code} adds the graph of each step to what came before", code=Code(site))
            yield Step("grows", site, text)


def _with_siblings(history: History, named: list[int]) -> list[int]:
    """Add what the same calls made and that died together with what bears the container's name.

    Names are looked for now and then, so the last things put there may bear none.
    """
    deaths = {history.trace.tensors[one].died for one in named}
    last = max(deaths)
    if UNKNOWN in deaths:
        return named  # the container was there at the end, when all was named
    keys = {key_of(history, one) for one in named}
    lives = tensors_of(history.trace.tensors)
    plain = [number for number, word in lives.names.words.items() if word == "Tensor"]
    alike = (lives.column("died") == last) & np.isin(lives.column("kind"), plain)
    found = dict.fromkeys(named)
    for tensor in lives.column("serial")[alike].tolist():
        if history.had_graph(tensor) and key_of(history, tensor) in keys:
            found[tensor] = None
    return sorted(found, key=history.made_at)
