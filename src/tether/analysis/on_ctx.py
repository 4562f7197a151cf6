"""Values that a custom Function keeps as attributes of its ctx, and that are written before use.

What `save_for_backward` keeps is compared by version, and a write to it raises. An attribute is
not compared: the Function's backward reads whatever the memory shows by then.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple

from tether.analysis.acts import reaches
from tether.analysis.graph import Graph
from tether.analysis.history import History
from tether.analysis.shared_memory import Sharing
from tether.facts import Operand


class KeptOnCtx(NamedTuple):
    """A value on a ctx that was written between its Function's forward and backward."""

    at: int  # the call of the Function
    operand: Operand
    write: int
    read: int  # by which its backward read the memory


def overwritten_on_ctx(history: History) -> Iterator[KeptOnCtx]:
    """Yield for each call of a Function the first write to each value that it kept unchecked."""
    graph, found = history.get(Graph), history.get(Sharing)
    for at, event in history.events.where("apply".__eq__):
        checked = {one.tensor for one in graph.saved(at)}
        for operand in graph.saved(at, unchecked=True):
            if operand.tensor in checked or event.raised:
                continue
            memory = history.flow.memory(operand)
            for write in found.writes.get(memory, ()):
                if write.at <= at or not reaches(history, write.operand, operand):
                    continue
                read = _read_in_backward(history, at, memory, write.at)
                if read >= 0:
                    yield KeptOnCtx(at, operand, write.at, read)
                break


def _read_in_backward(history: History, at: int, memory: int, write: int) -> int:
    """Return the first call by which the Function's backward read a memory after a write, or -1.

    If no pass had gone through the Function before that write.
    """
    graph, positions = history.get(Graph), history.on_memory(memory)
    passes = [one for one in history.backwards if one > at and at in graph.behind(one)]
    if not passes or passes[0] < write:
        return -1
    for position in positions[bisect_right(positions, write) :]:
        if position > passes[0]:
            break
        event = history.events[position]
        if history.inside(event, "backward") >= 0 and event.reads and not event.writes:
            return position
    return -1
