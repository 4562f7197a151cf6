"""Blocks that draw random numbers in the forward, and others as the backward pass runs them again.

With `preserve_rng_state=False` the states of the generators are not put back. That both runs drew,
that the states differed, and that gradients go through what was drawn, is in the facts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tether.analysis.gradients.both_runs import BothRuns, pass_of
from tether.analysis.history import History, losses_of
from tether.facts import Event, RunAgain
from tether.finding import At, CallOf, Claim, Repair, Step, say
from tether.operations.table import operation
from tether.verdicts.rerun_differs.runs import (
    Checkpoints,
    checkpointed,
    goes_into_a_graph,
    of_the_loss,
)


class OtherNumbers(NamedTuple):
    """A block whose second run drew other numbers for the gradients."""

    run: RunAgain
    drawn: int  # the call of the forward that drew


def found(history: History) -> Iterator[OtherNumbers]:
    """Yield the first such run of each line that checkpoints."""
    told, blocks = set[int](), history.get(Checkpoints)
    for run in blocks.runs:
        if not run.other_random or run.site in told:
            continue
        drawn = _drawn(history, blocks.both(run))
        if drawn is not None:
            told.add(run.site)
            yield OtherNumbers(run, drawn)


def _drawn(history: History, both: BothRuns) -> int | None:
    """Return the call of the forward whose counterpart draws for what has a gradient.

    Where the second run stopped before the first one's last draw, the states at the ends may differ
    for that alone: nothing is known.
    """
    calls = [pair for pair in both.same if _draws(history.events[pair[1]])]
    if len(calls) < sum(_draws(history.events[at]) for at in both.first):
        return None
    for first, at in calls:
        made = history.events[at].results
        if any(
            one.requires_grad or goes_into_a_graph(history, both, at, one.tensor) for one in made
        ):
            return first
    return None


def _draws(event: Event) -> bool:
    """Whether a call drew: dropout in evaluation mode gives back what it was given."""
    given = {one.tensor for one in event.reads}
    made = event.writes or any(one.tensor not in given for one in event.results)
    return operation(event.operation).random and bool(made)


def claims(history: History) -> Iterator[Claim]:
    """Say of each such block where it draws, and which pass ran it again."""
    for one in found(history):
        passed = pass_of(history, one.run)
        drawn = history.events[one.drawn]
        yield Claim(
            tensors=tuple(one.tensor for one in losses_of(history.events[passed])[:1]),
            cause=(one.run.site, "numbers"),
            site=one.run.site,
            operation="checkpoint",
            message=say(
                "The backward pass at {line} runs the block that {block} checkpoints again, and"
                " {call} draws other numbers than in the forward (preserve_rng_state=False). The"
                " gradients belong to the second run, and not to {loss}.",
                line=At(history.events[passed].site), block=At(one.run.site),
                call=CallOf(one.drawn), loss=of_the_loss(history, passed),
            ),
            story=(
                checkpointed(one.run),
                Step("drawn", drawn.site, say("{call} draws in both runs", call=CallOf(one.drawn))),
                Step("loss", history.events[passed].site, say("this pass runs the block again")),
            ),
            repair=Repair(say("Omit preserve_rng_state=False: both runs draw the same numbers"
                              " then.")),
        )  # fmt: skip
