"""Registered buffers that a write gave a graph, which no backward pass goes through.

``self.scale[0] = outputs.mean()`` makes the whole buffer part of the graph of the outputs: it keeps
that graph, requires grad from then on, and its module cannot be deep-copied any more. Nothing is
said of a buffer that passes go back through: a memory that is trained over several steps.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence

from tether.analysis.gradients.graph import Graph
from tether.analysis.history import History
from tether.finding import At, CallOf, Claim, Repair, Step, Tensor, say

MOST_PASSES = 16
"""Backward passes after the write that are asked whether they go through it."""


def in_buffers(history: History, kept: Sequence[int], told: set[int]) -> Iterator[Claim]:
    """Yield a note for each write that gave a buffer of a module a graph, in a run with passes."""
    buffers = {fact.tensor for fact in history.trace.names if fact.module}
    for tensor in kept if history.backwards else ():
        if tensor in buffers and tensor not in told and not history.is_parameter(tensor):
            at = _given_a_graph(history, tensor)
            if at >= 0 and not _is_gone_through(history, at):
                yield _claim(history, tensor, at)


def _given_a_graph(history: History, tensor: int) -> int:
    """Return the program's own write by which a tensor without a graph got one; or -1."""
    operand = history.operand_of(tensor)
    for at in () if operand is None else history.writes_to(operand):
        event = history.events[at]
        if any(one.tensor == tensor and one.requires_grad for one in event.writes):
            before = next((one for one in event.reads if one.tensor == tensor), None)
            first = before is not None and not before.requires_grad
            return at if first and event.inner == event.site else -1
    return -1


def _is_gone_through(history: History, at: int) -> bool:
    graph, first = history.get(Graph), bisect_right(history.backwards, at)
    return any(at in graph.behind(one) for one in history.backwards[first : first + MOST_PASSES])


def _claim(history: History, tensor: int, at: int) -> Claim:
    event, buffer = history.events[at], Tensor(tensor)
    given = next((one for one in event.reads if one.requires_grad), event.writes[0])
    parts = {"buffer": buffer, "given": Tensor(given.tensor), "line": At(event.site)}
    return Claim(
        tensors=(tensor,),
        cause=("in a buffer", event.site),
        site=event.site,
        operation=event.operation,
        severity="note",
        message=say(
            "{call} at {line} writes a value with a graph into {subject}, a buffer of its module:"
            " the buffer keeps the graph of {given} and requires grad from then on, and no backward"
            " pass that was looked at goes through it. copy.deepcopy of the module raises.",
            call=CallOf(at), **parts,
        ),
        story=(Step("written", event.site, say("{given} goes into {buffer}", **parts)),),
        repair=Repair(say("Write values alone: `.detach()` at {line}, or the block under"
                          " torch.no_grad().", **parts)),
        calls=(at,),
    )  # fmt: skip
