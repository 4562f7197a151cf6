"""Blocks that read other values as the backward pass runs them again.

What a block reads and does not make, its weights, a buffer, what it was given, is to be the same in
both runs. PyTorch keeps count of writes to what a node saved, and refuses the pass; what a block
reads is no such thing, and nothing raises.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import NamedTuple

from tether.analysis.gradients.both_runs import BothRuns, pass_of
from tether.analysis.history import History
from tether.facts import UNKNOWN, Event, Operand, RunAgain
from tether.finding import At, CallOf, Claim, Repair, Sentence, Step, Tensor, say
from tether.operations.table import operation
from tether.verdicts.rerun_differs.runs import (
    Checkpoints,
    checkpointed,
    goes_into_a_graph,
    of_the_loss,
)


class OtherValues(NamedTuple):
    """A call of a block's second run that reads what was written after the first run read it."""

    run: RunAgain
    first: int  # the call in the forward, that reads the old values
    read: Operand
    write: int


def found(history: History) -> Iterator[OtherValues]:
    """Yield the first such read of each tensor, line that checkpoints and line that writes."""
    told, blocks = set[tuple[int, int, int]](), history.get(Checkpoints)
    for run in filter(blocks.written, blocks.runs):
        for one in _of_run(history, run, blocks.both(run)):
            place = one.read.tensor, run.site, history.events[one.write].site
            if place not in told:
                told.add(place)
                yield one


def _of_run(history: History, run: RunAgain, both: BothRuns) -> Iterator[OtherValues]:
    began, again = (history.trace.first_after(one) for one in (run.first, run.again))
    for first, at in both.same:
        event = history.events[at]
        if not event.reads or event.shows(event.reads[0]):
            continue  # who reads the view is met later
        for before, now in zip(history.events[first].reads, event.reads, strict=True):
            updated = any(one.storage == now.storage for one in event.writes)
            if updated or before.storage != now.storage:
                continue  # who reads what it wrote is met later
            write = _written(history, now, (began, first), (again, at))
            if write != UNKNOWN and goes_into_a_graph(history, both, at, now.tensor):
                yield OtherValues(run, first, now, write)


def _written(
    history: History, read: Operand, first: tuple[int, int], again: tuple[int, int]
) -> int:
    """Return the program's write between two reads, one in each run; UNKNOWN: there is none.

    What each run fills before it reads is that run's own.
    """
    writes = list(history.writes_to(read))
    for began, at in (first, again):
        within = writes[bisect_left(writes, began) : bisect_left(writes, at)]
        if any(operation(history.events[one].operation).overwrites for one in within):
            return UNKNOWN
    between = writes[bisect_left(writes, first[1]) : bisect_left(writes, again[1])]
    return next((one for one in between if _of_the_program(history.events[one])), UNKNOWN)


def _of_the_program(event: Event) -> bool:
    """Whether the program or its optimizer writes: a library may put the same values back."""
    return event.inner == event.site or event.operation == "step"


def claims(history: History) -> Iterator[Claim]:
    """Say of each such read who wrote, and which pass ran the block again."""
    for one in found(history):
        passed = pass_of(history, one.run)
        name = Tensor(one.read.tensor)
        write = history.events[one.write]
        yield Claim(
            tensors=(one.read.tensor,),
            cause=(one.run.site, write.site),
            site=write.site,
            operation=write.operation,
            message=say(
                "{how} The gradients belong to the second run, and not to {loss}.",
                how=_how(history, one, passed),
                loss=of_the_loss(history, passed),
            ),
            story=(
                checkpointed(one.run),
                Step("read", history.events[one.first].site, say("both runs read {x}", x=name)),
                Step("written", write.site, say("{call} changes it", call=CallOf(one.write))),
                Step("loss", history.events[passed].site, say("this pass runs the block again")),
            ),
            repair=_repair(history, one),
            calls=(one.write,),
        )  # fmt: skip


def _how(history: History, one: OtherValues, passed: int) -> Sentence:
    """Say who wrote, and that the block ran again only then."""
    text = "{call} at {line} writes {x}, and only then does the backward pass at {passed} run the"
    text += " block that {block} checkpoints again: it computes with the new values of {x}."
    if _in_a_run(history, one):
        text = "{call} at {line} changes {x} in each run of the block that {block} checkpoints: as"
        text += " the backward pass at {passed} runs it again, it computes with other values of {x}"
        text += " than in the forward."
    return say(
        text,
        call=CallOf(one.write),
        line=At(history.events[one.write].site),
        x=Tensor(one.read.tensor),
        passed=At(history.events[passed].site),
        block=At(one.run.site),
    )


def _in_a_run(history: History, one: OtherValues) -> bool:
    """Whether the block itself writes what it reads."""
    first_after = history.trace.first_after
    return not first_after(one.run.last) <= one.write < first_after(one.run.again)


def _repair(history: History, one: OtherValues) -> Repair:
    write, name = history.events[one.write], Tensor(one.read.tensor)
    if _in_a_run(history, one):
        text = (
            "The function that is checkpointed runs twice: let it return the new value of {x}, and"
        )
        return Repair(say(text + " set {x} after the backward pass.", x=name))
    return Repair(say("Do what {line} does only after the backward pass, or let the block read a"
                      " clone of {x}.", line=At(write.site), x=name))  # fmt: skip
