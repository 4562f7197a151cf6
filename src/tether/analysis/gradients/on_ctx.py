"""Values that a custom Function keeps as attributes of its ctx: written before use, or its own.

What `save_for_backward` keeps is compared by version, and a write to it raises. An attribute is
not compared: the Function's backward reads whatever the memory shows by then. Where the attribute
is what the Function returns, the result has the graph's node, the node has the ctx, and the ctx has
the result: nothing of it is freed when the program lets go of it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple

from tether.analysis.gradients.graph import Graph
from tether.analysis.history import History
from tether.analysis.sharing.acts import reaches
from tether.analysis.sharing.shared_memory import Sharing, Touch
from tether.facts import Operand, SiteId

MOST_PASSES = 8
"""Backward passes after a call that are asked whether they go through it."""


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
            writes = found.writes.get(memory)
            for write in writes[bisect_right(writes, at, key=_when) :]:
                if reaches(history, write.operand, operand):
                    read = _read_in_backward(history, at, memory, write.at)
                    if read >= 0:
                        yield KeptOnCtx(at, operand, write.at, read)
                    break


def results_on_ctx(history: History) -> dict[SiteId, list[tuple[int, Operand]]]:
    """Return the calls whose result is kept on their own ctx, by line, each with that result."""
    graph, found = history.get(Graph), dict[SiteId, list[tuple[int, Operand]]]()
    for at, event in history.events.where("apply".__eq__):
        checked = {one.tensor for one in graph.saved(at)}
        made = {one.tensor for one in event.results} - {one.tensor for one in event.reads} - checked
        for operand in graph.on_ctx(at) if made and not event.raised else ():
            if operand.tensor in made:  # another tensor on its memory would hold no graph
                found.setdefault(event.site, []).append((at, operand))
    return found


def _when(touch: Touch) -> int:
    return touch.at


def _read_in_backward(history: History, at: int, memory: int, write: int) -> int:
    """Return the first call by which the Function's backward read a memory after a write, or -1.

    If no pass had gone through the Function before that write.
    """
    graph, passes = history.get(Graph), history.backwards
    later = passes[bisect_right(passes, at) :][:MOST_PASSES]
    used = next((one for one in later if at in graph.behind(one)), -1)
    positions = history.on_memory(memory) if used > write else []
    for position in positions[bisect_right(positions, write) : bisect_right(positions, used)]:
        event = history.events[position]
        if history.inside(event, "backward") >= 0 and event.reads and not event.writes:
            return position
    return -1
