"""Steps that use what the pass of another optimizer's loss had left in the gradients.

Two optimizers train two parts by two losses, in turn. The loss of the first part goes through all
of the second one and adds to its gradients; the first optimizer steps; then the second part's own
loss, which does not go through the first part, adds to the same gradients, and its optimizer steps
on the sum. Nothing cleared them in between. Or both optimizers step after both passes, in whatever
order these come; told where the second part's own loss was computed from what the first part gave,
cut off from it: then each part is to have a loss of its own.

Or one part trains alone first, with an optimizer that clears nothing but that part, and each of its
passes goes through the other part, too: their gradients pile up there until the first step of it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Container, Iterator
from itertools import islice
from operator import itemgetter
from typing import NamedTuple

from tether.analysis.gradients.cuts import Cuts
from tether.analysis.gradients.graph import Graph
from tether.analysis.history import History, following, latest
from tether.facts import UNKNOWN, OptimizerId
from tether.finding import At, Claim, Repair, Step, Tensor, say
from tether.verdicts.gradient_accumulated.adding import meets_gradients, passes_that_add

FOLLOWED = 8
"""Steps of each optimizer whose passes are followed where the engine did not walk them."""

LEAST_STEPS = 2
"""Steps that must each use another's gradients: one may be the first after a start."""


class ForeignGradients(NamedTuple):
    """A step that used the gradients of another optimizer's loss: positions."""

    other: int  # the pass of the other's loss
    stepped: int  # the other's step
    own: int  # the pass of its own loss
    step: int
    cleared: int  # the last call before that cleared the gradients, or looked at them; -1: none
    tensors: tuple[int, ...]
    parted: bool  # its own loss was computed from the other's values, cut off from them
    together: bool  # the other steps after both passes


def foreign_gradients(history: History) -> Iterator[ForeignGradients]:
    """Yield the last case of each optimizer that at every step uses gradients of another's."""
    optimizers = history.trace.optimizers
    if len({one.optimizer for one in history.steps if optimizers[one.optimizer].tensors}) < 2:
        return
    steps = _Steps(history)
    for number in steps.at:
        found = list[ForeignGradients]()
        for turn, passes in enumerate(one for one in steps.passes(number) if one):
            case = steps.case(number, passes)
            if case is not None:
                found.append(case)
            elif turn:
                break  # of the first step alone nothing is asked
        else:
            if len(found) >= LEAST_STEPS:
                yield found[-1]


class _Steps:
    def __init__(self, history: History) -> None:
        self._history, self._graph = history, history.get(Graph)
        self.at: dict[OptimizerId, list[int]] = {}  # the steps of each optimizer
        for one in history.steps:
            if history.trace.optimizers[one.optimizer].tensors:
                self.at.setdefault(one.optimizer, []).append(history.position(one.at))
        self._in_order = sorted((at, number) for number, steps in self.at.items() for at in steps)
        self._reached: dict[int, frozenset[int]] = {}
        self._passes = passes_that_add(history)
        self._walked = {
            history.events[at].site: at
            for at in reversed(self._passes)
            if self._graph.leaves(at) is not None
        }
        self._met: dict[int, list[int]] = defaultdict(list)  # tensor -> looks at its gradient
        self._cleared: dict[int, list[int]] = defaultdict(list)  # the calls that cleared it
        for at, event in history.events.where(meets_gradients):
            for read in event.reads:
                self._met[read.tensor].append(at)
                if event.operation == "zero_grad":
                    self._cleared[read.tensor].append(at)

    def passes(self, number: OptimizerId) -> Iterator[list[int]]:
        """Yield for each step the passes that its gradients are of, where their leaves are known.

        Those of the first steps are followed where their line was walked at another time.
        """
        held, before = self._history.trace.optimizers[number].tensors[0], -1
        passes = self._history.while_alive(held, self._passes)
        for turn, step in enumerate(self.at[number]):
            own = latest(passes, step)
            since = max(before, latest(self._met[held], own))
            found = list(passes[bisect_right(passes, since) : bisect_right(passes, own)])
            known = self._line_walked if turn < FOLLOWED else self._graph.leaves
            if all(known(at) is not None for at in found):
                yield found
            before = step

    def case(self, number: OptimizerId, passes: list[int]) -> ForeignGradients | None:
        """Return what a step uses of another's loss; None where it uses nothing of it.

        Its own loss has the last pass, or the first where the other's step waits for both.
        """
        for own in dict.fromkeys((passes[-1], passes[0])):
            found = self._beside(number, passes, own)
            if found is not None:
                return found
        return None

    def _beside(self, number: OptimizerId, passes: list[int], own: int) -> ForeignGradients | None:
        """Return what a step uses of another's loss beside the pass of its own."""
        tensors = self._history.trace.optimizers[number].tensors
        reached = [one for one in tensors if one in self._reach(own)]
        beside = {*map(int, self._reach(own))} & self._history.held - {*map(int, reached)}
        for other in (one for one in passes if reached and one != own):
            stepped, parts = UNKNOWN, set[int]()
            if other < own:
                stepped, parts = self._between(number, other, own, beside)
            together = stepped < 0 and self._is_lost(beside, own)
            if together:
                stepped, parts = self._after(number, other, own)
            if stepped >= 0 and self._reach(other).issuperset(reached):
                step = following(self.at[number], max(own, other))
                cleared = latest(self._met[reached[0]], min(own, other))
                parted = self._parted(own, parts)
                return ForeignGradients(
                    other, stepped, own, step, cleared, tuple(reached), parted, together
                )
        return None

    def _after(self, number: OptimizerId, other: int, own: int) -> tuple[int, set[int]]:
        """Return the step of another optimizer after two passes, and its tensors.

        The other pass goes through these, and its own was cut off from them; -1: there is none.
        """
        first, last = sorted((other, own))
        until = following(self._passes, last)
        for theirs, steps in self.at.items():
            stepped = following(steps, last)
            between = following(steps, first) < stepped
            parts = set(map(int, self._history.trace.optimizers[theirs].tensors))
            ours = theirs != number and not between and stepped >= 0 and not 0 <= until < stepped
            if ours and parts & self._reach(other) and self._parted(own, parts):
                return stepped, parts
        return -1, set()

    def _between(
        self, number: OptimizerId, other: int, own: int, beside: set[int]
    ) -> tuple[int, set[int]]:
        """Return the step of another optimizer on the first of two passes alone, and its tensors.

        -1 where there is none. What the second pass goes through `beside` is the other's, and lost.
        """
        first = bisect_right(self._in_order, other, key=itemgetter(0))
        seen = {number}
        for step, theirs in islice(self._in_order, first, None):
            if step >= own:
                break
            if theirs not in seen:
                seen.add(theirs)
                parts = set(map(int, self._history.trace.optimizers[theirs].tensors))
                lost = parts & self._reach(own) == beside
                lost = lost and self._are_cleared(beside, own, following(self.at[theirs], own))
                if parts & self._reach(other) and lost:
                    return step, parts
        return -1, set()

    def _is_lost(self, beside: set[int], own: int) -> bool:
        """Whether what a pass gives the tensors of other optimizers is cleared before they step."""
        optimizers = self._history.trace.optimizers
        parts = ((beside.intersection(optimizers[one].tensors), one) for one in self.at)
        return all(
            self._are_cleared(some, own, following(self.at[one], own))
            for some, one in parts
            if some
        )

    def _are_cleared(self, tensors: set[int], own: int, step: int) -> bool:
        """Whether what a pass gave some tensors is cleared before their next step; -1: none."""
        cleared = (following(self._cleared[one], own) for one in tensors)
        return all(own < at < step or step < 0 for at in cleared)

    def _reach(self, at: int) -> frozenset[int]:
        if at not in self._reached:
            walked = self._line_walked(at)
            asked = self._graph.asked(walked) if walked is not None else frozenset[int]()
            self._reached[at] = asked or self._graph.leaves_led_to(at)
        return self._reached[at]

    def _line_walked(self, at: int) -> int | None:
        """Return a pass that was walked: this one, or else another of its line; None: none was."""
        if self._graph.leaves(at) is not None:
            return at
        return self._walked.get(self._history.events[at].site)

    def _parted(self, own: int, parts: set[int]) -> bool:
        """Whether a loss was computed from some tensors and cut off from them."""
        events = self._history.events
        return any(
            events[met.loss].site == events[own].site and parts & self._graph.leaves_behind(met.cut)
            for met in self._history.get(Cuts).met
        )


def claims(history: History, told: Container[int]) -> Iterator[Claim]:
    """Give one claim for each such line, but of tensors that were told of."""
    for found in foreign_gradients(history):
        if found.tensors[0] not in told:
            yield _of_another(history, found)


def _of_another(history: History, found: ForeignGradients) -> Claim:
    events = history.events
    other, stepped, own, step = (
        events[at].site for at in (found.other, found.stepped, found.own, found.step)
    )
    cleared = [events[found.cleared].site] if found.cleared >= 0 else []
    begun = (Step("loss", own, say("backward adds the gradient of another loss")),)
    turn = (Step("step", stepped, say("another optimizer steps, without it")),)
    return Claim(
        tensors=found.tensors,
        cause=("another", own),
        site=other,
        operation="step",
        severity="warning" if found.parted and not found.together else "note",
        message=say(
            "Backward at {other}, for the step at {stepped}, adds to the gradient of {subject} as"
            " well."
            + (
                " So does backward at {own}, of another loss; nothing clears it in between, and"
                if found.together
                else " Nothing clears it before backward at {own} adds the gradient of another"
                " loss, and"
            )
            + " each step at {step} uses the sum.",
            other=At(other), stepped=At(stepped), own=At(own), step=At(step),
        ),
        story=(
            *(Step("cleared", one, say("the gradients are cleared here")) for one in cleared),
            *(() if found.other < found.own else begun),
            Step("loss", other, say("backward adds to the gradient of {x}",
                 x=Tensor(found.tensors[0]))),
            *(() if found.together else turn),
            *(begun if found.other < found.own else ()),
            *(turn if found.together else ()),
            Step("step", step, say("this step uses the sum")),
        ),
        repair=Repair(
            say("If its own loss is to train {subject} alone, let the loss of {other} use detached"
                " values of it (.detach()), or switch its requires_grad off for that loss.",
                other=At(other))
            if found.together
            else say("Clear the gradient of {subject} right before backward at {own}.", own=At(own))
        ),
        count=0,
        calls=(found.other,),
    )  # fmt: skip
