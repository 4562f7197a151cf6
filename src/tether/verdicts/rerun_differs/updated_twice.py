"""Buffers that a block updates in both of its runs: the statistics of a batch count twice.

A norm that runs in a block takes each batch into its running statistics in the forward, and once
more as the backward pass runs the block again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tether.analysis.history import History
from tether.facts import Event, Operand, RunAgain, TensorId
from tether.finding import Claim, Repair, Step, Tensor, say
from tether.operations.table import operation
from tether.verdicts.rerun_differs import other_values
from tether.verdicts.rerun_differs.runs import Checkpoints, checkpointed


class UpdatedTwice(NamedTuple):
    """Buffers that both runs of a block updated, and a call of the forward that did so."""

    run: RunAgain
    at: int
    buffers: tuple[TensorId, ...]


def found(history: History) -> Iterator[UpdatedTwice]:
    """Yield the buffers of each line that checkpoints, at its first such run."""
    told, blocks = set[int](), history.get(Checkpoints)
    read = {one.read.tensor for one in other_values.found(history)}  # that is more than a note
    for run in blocks.runs:
        if run.site in told or not blocks.updated(run):
            continue
        updated = [(one, at) for at, _ in blocks.both(run).same for one in _updated(history, at)]
        updated = [one for one in updated if one[0].tensor not in read]
        if updated:
            told.add(run.site)
            updated.sort(key=lambda one: one[0].whole)  # a count says less than a mean
            buffers = dict.fromkeys(one.tensor for one, _ in updated)
            yield UpdatedTwice(run, updated[0][1], tuple(buffers))


def _updated(history: History, at: int) -> Iterator[Operand]:
    """Yield the buffers that a call changes by what they were."""
    event, row = history.events[at], operation(history.events[at].operation)
    if row.overwrites or not (row.aside or row.pointwise):
        return
    for one in event.writes:
        name = history.facts_of_name(one.tensor)
        if name is not None and name.module and not history.is_parameter(one.tensor):
            yield one


def claims(history: History) -> Iterator[Claim]:
    """Say which buffers are updated twice for each call of the block."""
    for one in found(history):
        first = Tensor(one.buffers[0])
        more = len(one.buffers) - 1
        others = f" and {more} more buffer{'s' * (more > 1)}" if more else ""
        yield Claim(
            tensors=one.buffers,
            subject="",
            cause=(one.run.site, "twice"),
            site=one.run.site,
            operation="checkpoint",
            severity="note",
            message=say(
                "The block updates {x}{others} twice for each batch: in the forward, and as the"
                " backward pass runs it again.", x=first, others=others,
            ),
            story=(
                checkpointed(one.run),
                Step("written", history.events[one.at].site, say("both runs update {x}", x=first)),
            ),
            repair=_repair(history.events[one.at]),
        )  # fmt: skip


def _repair(event: Event) -> Repair:
    """Say how an update comes to count once."""
    if event.inner == event.site:
        return Repair(say("Update it after the block, with what the block returns."))
    return Repair(say("Make the norm with `momentum=1 - (1 - momentum) ** 0.5`: two such updates"
                      " with one batch count as one of `momentum`."))  # fmt: skip
