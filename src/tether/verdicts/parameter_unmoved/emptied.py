"""Optimizers that are made again and get nothing, as an iterator of parameters gives nothing twice.

PyTorch refuses an optimizer without any parameters, and not one whose groups are empty. A group
that the same line had filled before was meant to be filled again, where what it held still gets
gradients and no step uses these.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tether.analysis.gradients.graph import Graph
from tether.analysis.history import History
from tether.facts import OptimizerFact
from tether.finding import At, Claim, Repair, Step, Tensor, say


class Emptied(NamedTuple):
    """An optimizer that was made again, with nothing in parameter groups that were filled."""

    before: OptimizerFact
    after: OptimizerFact
    groups: int  # that are empty now
    tensors: tuple[int, ...]  # that they held, and that losses still lead to
    passes: int  # backward passes since that gave them gradients


def emptied(history: History) -> Iterator[Emptied]:
    """Yield the optimizers that lost parameters as they were made again."""
    made = history.trace.optimizers
    for number, after in enumerate(made):
        earlier = [one for one in made[:number] if one.site == after.site and any(one.groups)]
        if earlier and 0 in after.groups:
            yield from _lost(history, earlier[-1], after)


def _lost(history: History, before: OptimizerFact, after: OptimizerFact) -> Iterator[Emptied]:
    """Yield what the groups that are empty now held, where it no longer trains."""
    since = history.position(after.at)
    graph = history.get(Graph)
    passes = [{*map(int, graph.leaves_led_to(at))} for at in history.backwards if at > since]
    tensors, groups, most, start = [], 0, 0, 0
    for had, has in zip(before.groups, after.groups, strict=False):
        held, start = before.tensors[start : start + had], start + had
        graded = {
            one: sum(one in leaves for leaves in passes)
            for one in (held if not has else ())
            if max(history.steps_of(one), default=since) < since
        }
        lost = [one for one, times in graded.items() if times]
        tensors += lost
        groups += bool(lost)
        most = max(most, *graded.values()) if lost else most
    if tensors:
        yield Emptied(before, after, groups, tuple(tensors), most)


def claims(history: History) -> Iterator[Claim]:
    """Give one claim for each such line."""
    for found in emptied(history):
        yield _claim(found)


def _claim(found: Emptied) -> Claim:
    parts = {"kind": found.after.kind, "n": found.groups, "held": At(found.after.site)}
    return Claim(
        tensors=found.tensors,
        cause=("emptied", found.after.site),
        site=found.after.site,
        operation="step",
        message=say(
            "No step moves {subject} any longer once {held} makes the optimizer again: of the"
            " groups of the new {kind}, {n} got nothing. The gradients of {passes} more backward"
            " passes are used by no step.",
            passes=found.passes, **parts,
        ),
        story=(
            Step("held", found.after.site, say("the first {kind} made here holds {x}, a later"
                 " one does not", x=Tensor(found.tensors[0]), **parts)),
        ),
        repair=Repair(say("Hand the optimizer a list, list(model.parameters()), or ask for the"
                          " parameters anew: an iterator gives them once.")),
        count=0,
    )  # fmt: skip
