"""A second pass through what a first one freed: the value at which they part, and its ways in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tether.analysis.gradients.graph import Graph
from tether.analysis.history import History
from tether.analysis.sharing.fillings import set_at
from tether.analysis.surroundings import WaysThere
from tether.facts import CREATE_GRAPH, RETAIN_GRAPH, UNKNOWN, Operand
from tether.finding import At, Repair, Sentence, Step, Tensor, say


class Parted(NamedTuple):
    """A value with a graph that was freed, as a call takes it that only the second pass meets."""

    value: Operand
    made: int  # the call that made it, which both passes meet
    entry: int  # the first call after it that only the second meets; or the second pass
    before: int  # and the first that only the first one meets; UNKNOWN: none


class SecondPass(NamedTuple):
    """Two passes through one graph, the values at which their graphs part, the latest first."""

    earlier: int
    at: int
    parted: tuple[Parted, ...]
    again: bool  # the line that made the latest made a value of this pass, too: it is carried


def second_pass(
    history: History, at: int, mine: frozenset[int], freed: frozenset[int]
) -> SecondPass | None:
    """Return the first pass that freed a part of the graph of a call, and what leads there."""
    graph = history.get(Graph)
    for earlier in history.backwards:
        event = history.events[earlier]
        if earlier >= at:
            break
        common = mine & graph.behind(earlier)
        if not common or event.raised or event.flags & (RETAIN_GRAPH | CREATE_GRAPH):
            continue
        parted = sorted(_parted(history, at, (earlier, mine), freed), key=lambda one: -one.made)
        if parted:
            return SecondPass(earlier, at, tuple(parted), _again(history, at, mine, parted[0]))
    return None


def _parted(
    history: History, at: int, passed: tuple[int, frozenset[int]], freed: frozenset[int]
) -> Iterator[Parted]:
    """Yield the values that both passes go through, as calls of the second alone take them."""
    (earlier, mine), graph, told = passed, history.get(Graph), set[int]()
    theirs = graph.behind(earlier)
    for entry in [*sorted(mine - theirs), at]:
        for one in history.events[entry].reads:
            made = max(graph.makers_of(one, entry), default=UNKNOWN)
            if made not in theirs or one.tensor in told or made in told:
                continue
            if not freed or not freed.isdisjoint({made, *graph.behind(made)}):
                told |= {one.tensor, made}
                yield Parted(one, made, entry, _taken(history, one, theirs - mine))


def _taken(history: History, value: Operand, calls: frozenset[int]) -> int:
    """Return the first of some calls that read a value."""
    reads = (at for at in calls if any(r.tensor == value.tensor for r in history.events[at].reads))
    return min(reads, default=UNKNOWN)


def _again(history: History, at: int, mine: frozenset[int], one: Parted) -> bool:
    """Whether the line that made a value made another one of this pass."""
    made, ways = history.events[one.made], history.get(WaysThere)
    line = ways.seen_by(one.made, at)
    alike = (
        later
        for later in mine
        if later > one.made
        and history.events[later].site == made.site
        and history.events[later].operation == made.operation
    )
    return any(ways.seen_by(later, at) == line for later in alike)


def told_twice(history: History, found: SecondPass) -> Iterator[Step]:
    """Yield where each value was made and went into both passes, and the pass that freed it."""
    steps: list[tuple[int, Step]] = []
    for one in found.parted[:3]:
        x = Tensor(one.value.tensor)
        steps += _led(history, found, one.made, ("made", say("{x} is made here", x=x)))
        steps += [(one.made, step) for step in kept_from(history, one.value.tensor)]
        if one.before >= 0:
            said = say("{x} goes into the first loss here", x=x)
            steps += _led(history, found, one.before, ("used", said))
        if one.entry != found.at:
            said = say("{x} goes into this loss here", x=x)
            steps += _led(history, found, one.entry, ("used", said))
    freed = say("this pass frees what the graph had saved")
    steps.append((found.earlier, Step("loss", history.events[found.earlier].site, freed)))
    yield from (step for _, step in sorted(steps, key=lambda one: one[0]))


def kept_from(history: History, tensor: int) -> Iterator[Step]:
    """Yield the line from which an attribute or a container keeps a tensor."""
    for name in history.names_of(tensor):
        kept = set_at(history, name, tensor)
        if kept is not None:
            yield Step("kept", kept, say("{x} is kept from this line on", x=Tensor(tensor)))
            return


def _led(
    history: History, found: SecondPass, at: int, told: tuple[str, Sentence]
) -> Iterator[tuple[int, Step]]:
    """Yield a call's line in the function that ran the pass, and its own where it is another."""
    line, own = history.get(WaysThere).seen_by(at, found.at), history.events[at].site
    yield at, Step(told[0], line, told[1])
    if own != line:
        yield at, Step("inside", own, say("inside, at this line"))


def why_twice(history: History, found: SecondPass) -> Sentence:
    """Say which value leads back to the first pass, where it was made, and where it goes in."""
    one, ways = found.parted[0], history.get(WaysThere)
    text = (
        "{x} carries a graph from before: {x} was made at {made}, the pass at {earlier} freed that"
        " graph, and {x} goes into this loss at {entry}."
    )
    if one.entry == found.at:
        text = "the pass at {earlier} went through the graph of {x} before, and freed it."
    elif one.before >= 0 and not found.again:
        text = (
            "{x}, made at {made}, went into the loss of the pass at {earlier} (at {before}), which"
            " freed its graph, and goes into this loss at {entry}."
        )
    return say(
        text,
        x=Tensor(one.value.tensor),
        made=At(ways.seen_by(one.made, found.at)),
        earlier=At(history.events[found.earlier].site),
        before=At(ways.seen_by(one.before, found.at)) if one.before >= 0 else "",
        entry=At(ways.seen_by(one.entry, found.at)),
    )


def repair_twice(history: History, found: SecondPass) -> Repair:
    """Say what to do: cut what is carried, and where a loss has no use of the graph."""
    one, ways, trained = found.parted[0], history.get(WaysThere), _trained(history, found)
    x, once = Tensor(one.value.tensor), "add both losses and call backward once"
    parts = {"x": x, "entry": At(ways.seen_by(one.entry, found.at)),
             "earlier": At(history.events[found.earlier].site)}  # fmt: skip
    if one.entry == found.at:
        text = "Compute {x} again for the second pass, or pass retain_graph=True at {earlier}."
    elif found.again:
        text = "Cut {x} before it goes in again at {entry}: `{x!s} = {x!s}.detach()`."
        if "[" in history.name_of(one.value.tensor):
            text = "Cut {x} where it goes in again, at {entry}: `{x!s}.detach()` in its place."
    elif history.events[found.earlier].site == history.events[found.at].site:
        text = (
            "Compute {x} again for each pass, after the step before; or, if what it is computed"
            " from is not to train by this loss, use `{x!s}.detach()` at {entry}."
        )
    elif trained is False and one.before >= 0:
        text = (
            "Use `{x!s}.detach()` at {before}: no optimizer that steps between the passes trains"
            " what {x} was computed from, so the first loss has no need of its graph."
        )
        parts["before"] = At(ways.seen_by(one.before, found.at))
    elif trained is None:
        text = f"Pass retain_graph=True to the pass at {{earlier}}, or {once}."
    else:
        text = f"Compute {{x}} again after the step, or {once} before it."
    return Repair(say(text, **parts))


def _trained(history: History, found: SecondPass) -> bool | None:
    """Whether a step between two passes moved what a value was computed from; None: no step."""
    leaves = history.get(Graph).leaves_behind(found.parted[0].made)
    stepped = {
        fact.optimizer
        for fact in history.steps
        if found.earlier < history.position(fact.at) < found.at
    }
    if not stepped:
        return None
    return any(not leaves.isdisjoint(history.trace.optimizers[one].tensors) for one in stepped)
