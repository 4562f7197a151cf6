"""Gradients that are read after each of several passes, while all of them add up in one place.

What is read after the second pass contains what was read after the first. Where both readings
become numbers that go into a later loss (the weights of its terms), one was taken for the gradient
of its own pass.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import islice, pairwise
from math import prod
from typing import NamedTuple

from tether.analysis.history import History, following
from tether.facts import UNKNOWN, Event, Operand
from tether.finding import At, Claim, Repair, Step, say
from tether.verdicts.gradient_accumulated.updated_by_hand import added_between

MOST_PAIRS = 4
"""Pairs of readings of one line that are followed."""

MOST_CALLS = 5_000
"""Calls through which a reading is followed to a loss."""


class MixedReading(NamedTuple):
    """Two readings of one gradient, the second of the sum of two passes: positions."""

    tensor: int
    first: int
    backward: int  # the pass that added to what had been read
    second: int
    loss: int  # the later pass whose loss both went into
    sure: bool  # not by way of numbers that were followed through the text


def mixed_readings(history: History) -> Iterator[MixedReading]:
    """Yield the first case of each line that reads gradients."""
    if history.in_part:
        return
    for line in _lines(history).values():
        yield from islice(_of_line(history, line), 1)


def _lines(history: History) -> dict[tuple[str, int], dict[int, list[int]]]:
    """Return line -> tensor -> the calls by which the program's own line reads its gradient."""
    found: dict[tuple[str, int], dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for at, event in history.events.where("grad.__get__".__eq__):
        own = event.inner == event.site and history.inside(event, "backward", "step") < 0
        if own and event.reads and event.results:
            line = history.site_of(event)
            found[line.file, line.line][event.reads[0].tensor].append(at)
    return found


def _of_line(history: History, line: dict[int, list[int]]) -> Iterator[MixedReading]:
    """Yield the cases of the first tensor whose gradient a line reads."""
    tensor, reads = next(iter(line.items()))
    events, steps = history.events, history.steps_of(tensor)
    clears = events.where({"zero_grad", "grad.__set__"}.__contains__)
    cleared = [at for at, event in clears if any(one.tensor == tensor for one in event.reads)]
    pairs = (
        (first, second, events[second].results[0])
        for first, second in pairwise(reads)
        if history.next_pass(first) < second and not first < following(steps, first) < second
    )
    for first, second, gradient in islice(pairs, MOST_PAIRS):
        if events[first].results[0].tensor == gradient.tensor:
            touched = history.on_storage(gradient)
            added = added_between(history, touched, cleared, first, second)
            if added < 0:
                continue
            loss, sure = _loss_of(history, gradient, first, second)
            if loss >= 0:
                yield MixedReading(tensor, first, added, second, loss, sure)


def _loss_of(history: History, gradient: Operand, first: int, second: int) -> tuple[int, bool]:
    """Return the first pass whose loss both readings go into, and whether that is sure.

    UNKNOWN: there is none, or one reading is set against the other, element by element: what was
    added since is their difference.
    """
    of_first, of_second = (_reached(history, gradient, one) for one in (first, second))
    for at in sorted(of_first & of_second):
        if history.events[at].is_backward:
            return at, _sure(history, {one for one in of_first | of_second if one < at})
        if _is_elementwise(history.events[at], gradient):
            break
    return UNKNOWN, False


def _reached(history: History, gradient: Operand, since: int) -> set[int]:
    """Return the calls that what is read of a gradient goes into, up to the losses it is part of.

    It is read from a call on, and before the next pass adds to it.
    """
    events, flow, own = history.events, history.flow, history.flow.memory(gradient)
    until, found, passes = history.next_pass(since), set[int](), set[int]()
    for at in range(since + 1, min(len(events), since + MOST_CALLS)):
        event = events[at]
        reads = at < until and any(flow.memory(one) == own for one in event.reads)
        if not reads and found.isdisjoint(flow.edges.sources(at)):
            continue
        if event.is_backward:
            passes.add(at)
        elif flow.carries[at] and not _trains(event, own, flow.memory):
            found.add(at)
    return found | passes


def _sure(history: History, calls: set[int]) -> bool:
    """Whether no value came into some calls by a bridge that is only likely."""
    likely = (one.entry for one in history.trace.bridges if not one.certain)
    return calls.isdisjoint(map(history.position, likely))


def _is_elementwise(event: Event, gradient: Operand) -> bool:
    """Whether a call joins tensors as large as a gradient to one as large as each."""
    sizes = {prod(one.shape) for one in (*event.reads, *event.results)}
    return len(event.reads) > 1 and len(sizes) == 1 and min(sizes) >= prod(gradient.shape) > 1


def _trains(event: Event, own: int, memory: Callable[[Operand], int]) -> bool:
    """Whether a call writes into a gradient, or into what is trained: a clipping, an update."""
    return any(one.requires_grad or memory(one) == own for one in event.writes)


def claims(history: History) -> Iterator[Claim]:
    """Give one claim for each such line."""
    for found in mixed_readings(history):
        yield _claim(history, found)


def _claim(history: History, found: MixedReading) -> Claim:
    backward, read, loss = (
        history.events[at].site for at in (found.backward, found.second, found.loss)
    )
    return Claim(
        tensors=(found.tensor,),
        cause=("mixed", read),
        site=read,
        operation="grad",
        severity="note",
        message=say(
            "The gradient of {subject} is read at {read} after one pass and again after the next,"
            " and nothing clears it in between: the second time it holds both. What is read"
            " {likely}goes on into the loss of {loss}.",
            read=At(read), loss=At(loss), likely="" if found.sure else "most likely ",
        ),
        story=(
            Step("loss", backward, say("backward adds to what has been read before")),
            Step("read", read, say("the sum of both passes is read here")),
            Step("used", loss, say("this pass is of a loss that both readings go into")),
        ),
        repair=Repair(say("Clear the gradients before each pass whose own gradient is to be read,"
                          " or ask for it by torch.autograd.grad, which adds to nothing.")),
        assumes=() if found.sure else (_FOLLOWED,),
        count=0,
        calls=(found.second,),
    )  # fmt: skip


_FOLLOWED = say("the value was followed through Python numbers or arrays in the source")
