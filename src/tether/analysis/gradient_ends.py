"""What becomes of the gradients that a backward pass gave: a step, a reader, or nobody."""

from __future__ import annotations

from collections import defaultdict
from typing import Literal, NamedTuple

from tether.analysis.history import History, following
from tether.facts import UNKNOWN

By = Literal["step", "read", "clear", ""]


class End(NamedTuple):
    """What came first after a pass, of a step, a look at the gradient, and its clearing."""

    by: By  # "": none of them came
    at: int = UNKNOWN

    @property
    def uses(self) -> bool:
        """Whether something was made of the gradient."""
        return self.by in ("step", "read")


class GradientEnds:
    """The calls that read or clear the gradients of each tensor, and the steps that use them."""

    def __init__(self, history: History) -> None:
        self._history = history
        self.of: dict[int, dict[int, bool]] = defaultdict(dict)  # tensor -> call -> clears
        for at, event in history.events.where({"zero_grad", "grad.__get__"}.__contains__):
            for one in event.reads:
                self.of[one.tensor][at] = event.operation == "zero_grad"
        self.times = defaultdict(list, {one: [*ends] for one, ends in self.of.items()})

    def after(self, tensor: int, backward: int) -> End:
        """Return what became of the gradient that a pass gave, or added to, a tensor."""
        step = following(self._history.steps_of(tensor), backward)
        end = following(self.times.get(tensor, ()), backward)
        if step >= 0 and (end < 0 or step < end):
            return End("step", step)
        if end < 0:
            return End("")
        return End("clear" if self.of[tensor][end] else "read", end)
