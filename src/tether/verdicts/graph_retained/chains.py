"""A running total, a state carried on: one graph that reaches back over several steps."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from tether.analysis.gradients.graph import Graph, graph_of
from tether.analysis.history import History
from tether.finding import At, Bytes, Claim, Repair, Step, say
from tether.verdicts.graph_retained.steps import LEAST, _passes, bytes_kept, death_of, steps_of


def claims(history: History, kept: list[int], told: set[int]) -> Iterator[Claim]:
    """Find a named tensor whose one graph reaches back over several steps.

    The graph that can reach furthest is followed first: those that cannot reach as far as what
    was found at their line are not, as a graph is as long as the program has run.
    """
    places: dict[int, tuple[int, int, int]] = {}
    ends = [(tensor, at, _reach(history, at)) for tensor, at in _ends(history, kept, told)]
    for tensor, at, most in sorted(ends, key=lambda one: -one[2]):
        number = history.events[at].site
        if most < LEAST or (number in places and most <= places[number][2]):
            continue
        steps = _steps_behind(history, at)
        if steps >= LEAST and (number not in places or steps > places[number][2]):
            places[number] = (tensor, at, steps)
    graphs: set[int] = set()
    for tensor, at, steps in sorted(places.values(), key=lambda one: one[1]):
        graph = graph_of(history, at)
        if at in graphs:
            continue
        graphs |= graph
        yield _chain(history, tensor, at, steps)


def _ends(history: History, kept: list[int], told: set[int]) -> Iterator[tuple[int, int]]:
    """Yield the tensors that are there at the end, with the call that last added to each."""
    for tensor in kept:
        made, operand = history.made_at(tensor), history.operand_of(tensor)
        if tensor not in told and made >= 0 and death_of(history, tensor) >= len(history.events):
            writes = history.writes_to(operand, made) if operand else ()
            yield tensor, max(writes, default=made)


def _reach(history: History, at: int) -> int:
    """Return how many steps the graph behind a call can be of, at most."""
    passes, first = history.backwards, history.get(Graph).first_behind(at)
    return bisect_left(passes, at) - bisect_left(passes, first) + 1


def _steps_behind(history: History, at: int) -> int:
    """Return over how many steps the graph behind a call reaches, if its own line made it grow."""
    reached = {at, *graph_of(history, at)}
    if steps_of(history, reached) < LEAST or not _grows(history, at):
        return 0
    return steps_of(history, reached, _summed(history, at))


def _grows(history: History, at: int) -> bool:
    """Whether earlier runs of a call's own line are in its graph: each run added to it."""
    site = history.events[at].site
    runs = sum(history.events[one].site == site for one in graph_of(history, at))
    return runs >= LEAST - 1


def _summed(history: History, at: int) -> list[int] | None:
    """Return the passes that part steps for a graph that grows at the line of a call."""
    site = history.events[at].site

    def used(graph: frozenset[int]) -> bool:
        return len([one for one in graph if history.events[one].site == site]) > 1

    return _passes(history, {at}, used)


def _chain(history: History, tensor: int, at: int, steps: int) -> Claim:
    event, name = history.events[at], history.name_of(tensor)
    nbytes, line = bytes_kept(history, [tensor], [at]), At(event.site)
    return Claim(
        tensors=(tensor,),
        cause=("chain", event.site),
        site=event.site,
        operation=event.operation,
        subject=name,
        message=say(
            "The graph of `{name}` reaches back over {steps} steps, {size}: each step at {line}"
            " adds to it.",
            name=name, steps=steps, size=Bytes(nbytes), line=line,
        ),
        story=(Step("grows", event.site, say("`{name}` takes on another step's graph here",
                    name=name)),),
        repair=Repair(
            say("Add values without their graph at {line}: .item() or .detach() (or {name} ="
                " {name}.detach() once a step).", line=line, name=name),
            "detach",
        ),
        count=steps,
        bytes=nbytes,
        calls=(at,),
    )  # fmt: skip
