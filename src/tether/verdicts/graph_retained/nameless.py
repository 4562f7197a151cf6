"""What keeps its graph though no variable holds it, or did so until one thing let go of it.

A closure, a hook's closure, an exception's traceback, a ring of objects.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator

import numpy as np

from tether.analysis.gradients.graph import Graph
from tether.analysis.gradients.on_ctx import results_on_ctx
from tether.analysis.history import History
from tether.analysis.sharing.fillings import comprehended
from tether.facts import UNKNOWN, TensorId
from tether.finding import Bytes, Claim, Repair, Step, say
from tether.store.lives import tensors_of
from tether.verdicts.graph_retained.on_ctx import LARGE
from tether.verdicts.graph_retained.steps import (
    LEAST,
    bytes_kept,
    graphs_apart,
    key_of,
    runs_apart,
    steps_of,
)
from tether.verdicts.graph_retained.telling import handed_on_at
from tether.verdicts.graph_retained.viewed import held_by_views


def claims(history: History, told: set[int]) -> Iterator[Claim]:
    """Give one claim for each line, but of tensors that were told of."""
    for some in (_nameless(history, told), _in_rings(history), _gone_together(history, told)):
        yield from some


def _nameless(history: History, told: set[int]) -> Iterator[Claim]:
    """Find what a line made in several steps, alive at the end though no variable holds it.

    A closure, a hook's closure or an exception's traceback holds it then.
    """
    if not history.backwards and history.trace.outcome != "finished":
        return  # the traceback of what ended it holds all that was being worked on
    unheld = _unheld(history, told)
    groups: dict[int, list[int]] = defaultdict(list)
    for at in sorted(unheld):
        if history.inside(history.events[at], "backward", "function") < 0:
            groups[history.events[at].site].append(at)
    for places in groups.values():
        steps = steps_of(history, places) if history.backwards else runs_apart(history, places)
        if steps >= LEAST:
            tensors = [unheld[at] for at in places]
            yield held_by_views(history, _held(history, tensors, places, steps))


def _unheld(history: History, told: set[int]) -> dict[int, int]:
    """Return what is alive at the end with a graph and in no other's graph: maker -> tensor.

    What a graph holds lives as well; so nothing is in the graph of what is named, or of one told.
    """
    # A variable holds one tensor at a time: the latest that bore its name.
    latest = {fact.name: fact.tensor for fact in sorted(history.trace.names, key=lambda n: n.at)}
    held = {*latest.values(), *told}
    alive: dict[int, int] = {}
    graph, within = history.get(Graph), set[int]()
    for tensor in history.left:
        made = history.made_at(tensor)
        if made < 0 or not history.had_graph(tensor):
            continue
        if tensor in held:
            graph.add_behind(made, within)
            within.add(made)
        elif history.trace.tensors[TensorId(tensor)].kind == "Tensor":
            alive[made] = tensor
    for at in sorted(alive, reverse=True):
        if at not in within:
            graph.add_behind(at, within)
    return {at: tensor for at, tensor in alive.items() if at not in within}


def _in_rings(history: History) -> Iterator[Claim]:
    """Find what a line made in several steps, and what only rings of objects had after each.

    The ring of a Function's ctx and its own result is told as that.
    """
    rings = _by_moment(history, ringed=True) if history.trace.in_rings else ()
    on_its_ctx = {one.tensor for calls in results_on_ctx(history).values() for _, one in calls}
    for tensors in rings:
        for together in _made_alike(history, [one for one in tensors if one not in on_its_ctx]):
            places = [history.made_at(one) for one in together]
            steps = graphs_apart(history, places)
            if steps >= LEAST and (nbytes := bytes_kept(history, together, places)) >= LARGE:
                yield _ring(history, together, steps, nbytes)


def _ring(history: History, tensors: list[int], steps: int, nbytes: int) -> Claim:
    event = history.events[history.made_at(tensors[0])]
    name = history.site_of(event).target or history.name_of(tensors[0]).strip("`")
    return Claim(
        tensors=tuple(tensors),
        cause=("ring", event.site),
        site=event.site,
        operation=event.operation,
        severity="note",
        subject=name,
        message=say(
            "`{name}` of {steps} steps lived on with its graphs until Python's garbage collector"
            " ran, {size} in all: each was in a ring of objects that hold each other (a reference"
            " cycle), which goes only then.",
            name=name, steps=steps, size=Bytes(nbytes),
        ),
        story=(Step("made", event.site, say("`{name}` is made with its graph here", name=name)),),
        repair=Repair(
            say("Break the ring when the step is over: let an object not keep what leads back to"
                " it (no cache of results, a weakref.ref, .detach() of what is kept).")),
        count=len(tensors),
        bytes=nbytes,
        calls=(history.made_at(tensors[0]),),
    )  # fmt: skip


def _gone_together(history: History, told: set[int]) -> Iterator[Claim]:
    """Find what a line made in several steps, and what went at one moment after: one thing had it.

    What a graph has saved, or the graph of another holds, goes with that.
    """
    for tensors in _by_moment(history, ringed=False) if history.backwards else ():
        if not _over_steps(history, tensors):
            continue
        within = set(map(history.made_at, told.intersection(tensors)))
        for together in _made_alike(history, tensors):
            places = [history.made_at(one) for one in together]
            by_graphs = not within.isdisjoint(places) or _is_saved(history, together[0])
            if not by_graphs and (steps := graphs_apart(history, places)) >= LEAST:
                yield _held(history, together, places, steps)
            for at in places:
                history.get(Graph).add_behind(at, within)


def _over_steps(history: History, tensors: list[int]) -> bool:
    """Whether enough backward passes lie between the calls that made some tensors."""
    made = [*map(history.made_at, tensors)]
    first, last = (bisect_left(history.backwards, one) for one in (min(made), max(made)))
    return last - first + 1 >= LEAST


def _by_moment(history: History, *, ringed: bool) -> Iterable[list[int]]:
    """Return the tensors that calls made and that are gone, by the moment when they went.

    `ringed`: those that Python's collector found in rings, or else all others. Not what went in
    twos or alone.
    """
    found = [(one.tensor, history.made_at(one.tensor)) for one in history.trace.in_rings]
    named = {history.events[at].site for one, at in found if _had_a_name(history, one, at)}
    rings = [one for one, at in found if at < 0 or history.events[at].site not in named]
    lives = tensors_of(history.trace.tensors)
    plain = [number for number, word in lives.names.words.items() if word == "Tensor"]
    serials, died = lives.column("serial"), lives.column("died")
    chosen = (died != UNKNOWN) & np.isin(lives.column("kind"), plain)
    chosen &= np.isin(serials, rings) == ringed
    _, which, counts = np.unique(died[chosen], return_inverse=True, return_counts=True)
    several = counts[which] >= LEAST
    moments: dict[int, list[int]] = defaultdict(list)
    for tensor, at in zip(serials[chosen][several].tolist(), which[several].tolist(), strict=True):
        if history.made_at(tensor) >= 0:
            moments[at].append(tensor)
    return moments.values()


def _had_a_name(history: History, tensor: int, made: int) -> bool:
    """Whether a variable led to a tensor still when the line that made it had run again.

    It lay in a ring by then or not: the variable kept it.
    """
    named = max((history.position(one.at) for one in history.facts_of_names(tensor)), default=made)
    line = history.events[made].site if made >= 0 else UNKNOWN
    return any(history.events[at].site == line for at in range(made + 1, max(named, 0)))


def _is_saved(history: History, tensor: int) -> bool:
    """Whether a call has kept a tensor for its backward: its graph may be what holds it."""
    operand, graph = history.operand_of(tensor), history.get(Graph)
    return operand is None or any(
        one.tensor == tensor
        for at in history.on_storage(operand)
        for one in graph.saved(at, unchecked=True)
    )


def _made_alike(history: History, tensors: list[int]) -> list[list[int]]:
    """Return those of some tensors with a graph that each line made, what ran last first."""
    groups: dict[tuple[str, int, int] | None, list[int]] = defaultdict(list)
    for tensor in sorted(tensors, key=history.made_at) if len(tensors) >= LEAST else ():
        if history.had_graph(tensor):
            groups[key_of(history, tensor)].append(tensor)
    found = [some for some in groups.values() if len(some) >= LEAST]
    return sorted(found, key=lambda some: -history.made_at(some[-1]))


def _held(history: History, tensors: list[int], places: list[int], steps: int) -> Claim:
    event = history.events[places[0]]
    name = history.site_of(event).target or history.name_of(tensors[0]).strip("`")
    nbytes = bytes_kept(history, tensors, places)
    died = history.trace.tensors[tensors[0]].died != UNKNOWN
    return Claim(
        tensors=tuple(tensors),
        cause=("held", event.site),
        site=event.site,
        operation=event.operation,
        subject=name,
        message=say(
            "`{name}` of {steps} steps lived on with its graphs, {size} or {each} more each step,"
            " and all of them went at one moment: one thing held them until then."
            if died
            else "`{name}` of {steps} {times} is still alive with its graphs, {size} or {each} more"
            " each time, and no variable holds the tensor itself: a closure, a hook, a cache, a"
            " grad_fn or the traceback of an exception that is kept does.",
            name=name, steps=steps, times="steps" if history.backwards else "calls",
            size=Bytes(nbytes), each=Bytes(nbytes // steps),
        ),
        story=(
            Step("made", event.site, say("`{name}` is made with its graph here", name=name)),
            *_put_together(history, tensors),
            *_hooked(history, tensors, name),
        ),
        repair=Repair(
            say("Keep values without their graph: {name}.detach(), or {name}.item() for a number.",
                name=name)
            if died
            else say("Give the closure, hook or cache what it needs of `{name}` and no graph:"
                " {name}.detach(); of an exception keep the message, not the object.", name=name)
        ),
        count=len(tensors),
        bytes=nbytes,
        calls=(places[0],),
    )  # fmt: skip


def _put_together(history: History, tensors: list[int]) -> Iterator[Step]:
    """Yield the line that may keep what a line made in each step."""
    where = comprehended(history, tensors)
    if where is None:
        yield from handed_on_at(history, tensors[0])
    else:
        yield Step("grows", where, say("each step's is kept here, with its graph"))


def _hooked(history: History, tensors: list[int], name: str) -> Iterator[Step]:
    """Yield the line that puts hooks on tensors which hold the very tensor that they are on."""
    for fact in history.trace.hooks:
        if fact.own and fact.tensor in tensors:
            text = say(
                "this hook reads the very `{name}` that it is on: each keeps the other, and"
                " Python's collector cannot see it", name=name,
            )  # fmt: skip
            yield Step("kept", fact.site, text)
            return
