"""Values that are added and taken away again, and get no gradient for it: part of `gradient-lost`.

``x + (y - x)`` has the values of ``y``; what it is there for is the gradient, which is to go to
``x`` as if nothing had been done to it. That takes ``x + (y - x).detach()``: where the difference
keeps its graph, or the sum is cut as a whole, ``x`` gets nothing. And where ``x`` was computed from
``y``, over no path of the graph, the two have changed places: the values are those of before.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import permutations
from typing import NamedTuple

from tether.analysis.gradients.graph import Graph
from tether.analysis.history import History
from tether.facts import Operand, SiteId
from tether.finding import At, Claim, Code, Repair, Step, Tensor, say


class StraightThrough(NamedTuple):
    """A sum of a value and of what another one is more than it; positions, tensors."""

    at: int  # the sum
    difference: int
    x: int  # added, and taken away
    y: int  # whose values the sum has
    to_x: int  # how many times the gradient of the sum comes back to `x` itself
    to_y: int


def claims(history: History) -> Iterator[Claim]:
    """Give one claim for each line whose sums are all of one kind, before a backward pass."""
    by_line: dict[SiteId, list[StraightThrough]] = defaultdict(list)
    for at, event in history.events.where("add".__eq__):
        for added, other in permutations(event.reads) if len(event.reads) == 2 else ():
            found = _sum(history, at, added, other)
            if found is not None and history.next_pass(at) < len(history.events):
                by_line[event.site].append(found)
    for lines in by_line.values():
        if all(one.to_x < 1 for one in lines):
            yield _nothing(history, lines)
        elif all(_changed_places(history, one) for one in lines):
            yield _wrong_values(history, lines)


def _sum(history: History, at: int, added: Operand, other: Operand) -> StraightThrough | None:
    """Return how a sum is made, if what is added to a value is a difference to this value."""
    x, has_gradient = _itself(history, added.tensor)
    made = history.made_at(_itself(history, other.tensor)[0])
    if made < 0 or not has_gradient or history.events[made].operation != "sub":
        return None
    if not (_takes(history, at) and _takes(history, made)):
        return None
    more, less = history.events[made].reads
    y = _itself(history, more.tensor)[0]
    if y == x or _itself(history, less.tensor)[0] != x or less.version != added.version:
        return None
    to_x, to_y = (one.requires_grad and other.requires_grad for one in (less, more))
    return StraightThrough(at, made, x, y, added.requires_grad - to_x, int(to_y))


def _takes(history: History, at: int) -> bool:
    """Whether a call takes two tensors as they are: with `alpha` it goes a part of the way."""
    event = history.events[at]
    two = len(event.reads) == 2 and not event.reads[0].whole
    return two and "alpha" not in history.site_of(event).expression


def _itself(history: History, tensor: int) -> tuple[int, bool]:
    """Return what a tensor shows whole, as `detach` shows it, and whether that requires grad."""
    operand = history.operand_of(tensor)
    while (made := history.made_at(tensor)) >= 0:
        event = history.events[made]
        shown = event.reads[0] if event.reads and event.shows(event.reads[0]) else None
        if shown is None or shown.elements != event.results[0].elements or shown.tensor == tensor:
            break
        tensor, operand = shown.tensor, shown
    return tensor, operand is not None and operand.requires_grad


def _changed_places(history: History, found: StraightThrough) -> bool:
    """Whether `x`, which gets the gradient, was computed from `y`, which has the values."""
    made, before = history.made_at(found.x), history.made_at(found.y)
    if found.to_y or not history.had_graph(found.y) or not 0 <= before < made:
        return False
    led = history.get(Graph).behind(made)
    return before not in led and history.flow.is_known_behind(made, before)


def _nothing(history: History, lines: list[StraightThrough]) -> Claim:
    found = lines[0]
    event, difference = (history.events[at] for at in (found.at, found.difference))
    parts = {"x": Tensor(found.x), "y": Tensor(found.y), "line": At(event.site)}
    back = "no gradient" if not found.to_x else "the gradient with its sign changed"
    return Claim(
        tensors=(found.x,),
        cause=("straight through", event.site),
        site=event.site,
        operation=event.operation,
        severity="warning",
        message=say(
            "{code} has the values of {y}: {x} is added and taken away again, and through"
            f" this it gets {back}.",
            code=Code(event.site), **parts,
        ),
        story=(
            Step("made", difference.site, say("{x} is taken away", **parts)),
            Step("lost", event.site, say("{x} is added", **parts)),
        ),
        repair=Repair(say("To hand the gradient of the sum on to what is added, detach the"
                          " difference and nothing else: `x + (y - x).detach()`.")),
        count=len(lines),
        calls=(found.at,),
    )  # fmt: skip


def _wrong_values(history: History, lines: list[StraightThrough]) -> Claim:
    found = lines[0]
    event, made = history.events[found.at], history.events[history.made_at(found.x)]
    parts = {"x": Tensor(found.x), "y": Tensor(found.y), "made": At(made.site)}
    return Claim(
        tensors=(found.x, found.y),
        cause=("straight through", event.site),
        site=event.site,
        operation=event.operation,
        severity="note",
        message=say(
            "{code} has the values of {y}, and its gradient goes to {x}, which was computed from"
            " {y} at {made} and hands nothing back to it.",
            code=Code(event.site), **parts,
        ),
        story=(
            Step("made", made.site, say("{x} is computed here", **parts)),
            Step("lost", event.site, say("{y} gives the values, {x} gets the gradient", **parts)),
        ),
        repair=Repair(say("To use the values of {x} and hand the gradient on to {y}, let {y} be"
                          " the `x` of `x + (y - x).detach()`, and {x} its `y`.", **parts)),
        count=len(lines),
        calls=(found.at,),
    )  # fmt: skip
