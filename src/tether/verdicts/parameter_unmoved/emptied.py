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
