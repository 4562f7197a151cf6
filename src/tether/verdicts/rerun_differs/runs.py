"""The blocks that ran again in passes which went on, and what is said of each of them."""

from __future__ import annotations

from collections.abc import Iterator

from tether.analysis.gradients.both_runs import BothRuns, known_whole, pass_of
from tether.analysis.history import History, losses_of
from tether.facts import UNKNOWN, RunAgain, TensorId
from tether.finding import Step, Tensor, say


class Checkpoints:
    """Both runs of each block that ran again, compared once for all that ask."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._compared: list[tuple[RunAgain, BothRuns]] | None = None

    def went_on(self) -> Iterator[tuple[RunAgain, BothRuns]]:
        """Yield the runs of which all is known, in passes that did not fail."""
        if self._compared is None:
            runs = self._history.trace.runs_again
            self._compared = [
                (one, BothRuns(self._history, one)) for one in runs if self._known(one)
            ]
        yield from self._compared

    def _known(self, run: RunAgain) -> bool:
        went_on = run.event == UNKNOWN and run.end != "raised"
        history = self._history
        return went_on and known_whole(history, run) and pass_of(history, run) != UNKNOWN


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
