"""Blocks that go another way as the backward pass runs them again, with tensors of the same shapes.

PyTorch compares the number, the shapes and the types of what both runs save, and where these are
the same nothing raises. The calls of both runs are compared here.
"""

from __future__ import annotations

from collections.abc import Iterator

from tether.analysis.gradients.both_runs import Parting
from tether.analysis.gradients.recomputed import Recomputed
from tether.analysis.history import History
from tether.facts import RunAgain
from tether.finding import Claim, Step, say
from tether.verdicts.rerun_differs.runs import Checkpoints, of_the_loss


def claims(history: History) -> Iterator[Claim]:
    """Say of the first such run of each line that checkpoints where it parts, and why."""
    told, blocks = set[int](), history.get(Checkpoints)
    for run in blocks.runs:
        if run.site in told or blocks.same_calls(run):
            continue
        parted = blocks.both(run).parting
        if parted is None or not _counts(history, run, parted):
            continue
        told.add(run.site)
        found = Recomputed(history, run, parted)
        passed = history.events[found.passed]
        yield Claim(
            tensors=() if found.loss is None else (found.loss.tensor,),
            cause=(run.site, "way"),
            site=run.site,
            operation="checkpoint",
            message=say(
                "{why} The gradients belong to the second run, and not to {loss}.",
                why=found.why(""),
                loss=of_the_loss(history, found.passed),
            ),
            story=(
                *found.told(),
                Step("loss", passed.site, say("this pass runs the block again")),
            ),
            repair=found.repair(),
        )  # fmt: skip


def _counts(history: History, run: RunAgain, parted: Parting) -> bool:
    """Whether each run makes a call in place of the other's, and goes on with what it gives.

    A call that one run alone makes may only look: it prints, or fills a cache.
    """
    if parted.differs != "other":
        return False
    calls = (parted.first, run.last), (parted.again, run.ended)
    return all(_goes_on(history, at, history.trace.first_after(end)) for at, end in calls)


def _goes_on(history: History, at: int, end: int) -> bool:
    """Whether a later call of the run is given what a call gave."""
    made = history.events[at].results
    return any(at < one < end for result in made for one in history.reads_of(result.tensor))
