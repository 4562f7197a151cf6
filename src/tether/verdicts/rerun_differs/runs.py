"""The blocks that ran again in passes which went on, and what is said of each of them."""

from __future__ import annotations

import numpy as np

from tether.analysis.gradients.both_runs import BothRuns, known_whole, pass_of
from tether.analysis.history import History, losses_of
from tether.facts import UNKNOWN, Moment, RunAgain, TensorId
from tether.finding import Step, Tensor, say


class Checkpoints:
    """The blocks that ran again, of which all is known, in passes that did not fail: `runs`."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._compared: dict[RunAgain, BothRuns] = {}
        self.runs = [one for one in history.trace.runs_again if self._known(one)]

    def _known(self, run: RunAgain) -> bool:
        went_on = run.event == UNKNOWN and run.end != "raised"
        history = self._history
        return went_on and known_whole(history, run) and pass_of(history, run) != UNKNOWN

    def both(self, run: RunAgain) -> BothRuns:
        """Return the calls of both runs of a block, compared once for all that ask."""
        if run not in self._compared:
            self._compared[run] = BothRuns(self._history, run)
        return self._compared[run]

    def written(self, run: RunAgain) -> bool:
        """Whether anything is written from the start of the one run to the end of the other."""
        first, last = self._positions(run.first, run.ended)
        return bool(self._history.events.column("writes")[first:last].any())

    def updated(self, run: RunAgain) -> bool:
        """Whether the run in the forward writes anything."""
        first, last = self._positions(run.first, run.last)
        return bool(self._history.events.column("writes")[first:last].any())

    def same_calls(self, run: RunAgain) -> bool:
        """Whether the second run makes the calls of the first one, as far as it comes."""
        (first, end), (again, ended) = (
            self._positions(run.first, run.last), self._positions(run.again, run.ended)
        )  # fmt: skip
        count = ended - again - (run.end == "stopped")  # at the call that it stopped in
        column = self._history.events.column
        return count <= end - first and all(
            np.array_equal(column(one)[first : first + count], column(one)[again : again + count])
            for one in ("operation", "inner", "detail")
        )

    def _positions(self, since: Moment, until: Moment) -> tuple[int, int]:
        first_after = self._history.trace.first_after
        return first_after(since), first_after(until)


def goes_into_a_graph(history: History, both: BothRuns, at: int, tensor: TensorId) -> bool:
    """Whether the second run makes something with a graph of a tensor, from a call of its on."""
    made_of = {tensor}
    for _, later in both.same:
        event = history.events[later]
        if later < at or made_of.isdisjoint(one.tensor for one in event.reads):
            continue
        if any(one.requires_grad for one in event.results):
            return True
        made_of.update(one.tensor for one in event.results)
    return False


def checkpointed(run: RunAgain) -> Step:
    """Return the line that has the block run twice."""
    return Step("checkpoint", run.site, say("this block is checkpointed: it runs twice"))


def of_the_loss(history: History, passed: int) -> Tensor | str:
    """Return, for a sentence, what the pass started from that ran the block again."""
    loss = next(iter(losses_of(history.events[passed])), None)
    return "the loss" if loss is None else Tensor(loss.tensor)
