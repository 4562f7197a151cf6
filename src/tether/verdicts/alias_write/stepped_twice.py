"""One memory that an optimizer steps as two parameters: part of `alias-write`.

A parameter that stands in two places is listed once. Two Parameter objects on one memory are two:
each has a gradient, a state and a weight decay of its own, and each step writes the memory twice.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import combinations

from tether.analysis.history import History
from tether.facts import Event, Operand
from tether.finding import At, CallOf, Claim, Code, Repair, Step, Tensor, say
from tether.regions import overlaps


def stepped_twice(history: History) -> Iterator[Claim]:
    """Yield a note for each line that steps one memory as two parameters of one optimizer.

    `.data` may have tied them on purpose: plain SGD then adds up both gradients.
    """
    told: set[int] = set()
    for at, event in history.events.where("step".__eq__):
        if event.site not in told:
            pairs = list(_pairs(history, event))
            if pairs:
                told.add(event.site)
                yield _claim(history, at, pairs)


def _pairs(history: History, step: Event) -> Iterator[tuple[Operand, Operand]]:
    """Yield the parameters with elements in common, the one that was there first before."""
    by_memory: dict[int, dict[int, Operand]] = defaultdict(dict)
    for one in step.writes:
        if one.tensor in history.had_gradient:
            by_memory[history.flow.memory(one)].setdefault(one.tensor, one)
    for found in by_memory.values():
        ordered = sorted(found.values(), key=lambda one: history.made_at(one.tensor))
        yield from (pair for pair in combinations(ordered, 2) if overlaps(*pair))


def _claim(history: History, at: int, pairs: list[tuple[Operand, Operand]]) -> Claim:
    one, other = (operand.tensor for operand in pairs[0])
    step, made = history.events[at], history.made_at(other)
    since = step.site if made < 0 else history.events[made].site
    x, y = Tensor(one), Tensor(other)
    return Claim(
        tensors=(other, one),
        cause=("stepped twice", step.site),
        site=since,
        operation=step.operation if made < 0 else history.events[made].operation,
        severity="note",
        message=say(
            "{x} and {y} are two parameters on one memory, from {since} on: {call} at {write}"
            " updates it twice, with the gradient, the state and the weight decay of each.",
            x=x, y=y, since=At(since), call=CallOf(at), write=At(step.site),
        ),
        story=(
            Step("shared", since, say("{code} makes another parameter of the memory of {x}",
                 code=Code(since), x=x)),
            Step("written", step.site, say("written once for each")),
        ),
        repair=Repair(
            say("If they are to be one parameter, let both places hold the same object; if not,"
                " give {y} memory of its own: .clone().", y=y)
        ),
        count=len(pairs),
    )  # fmt: skip
