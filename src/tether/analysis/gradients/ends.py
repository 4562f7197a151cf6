"""What becomes of the gradients that a backward pass gave: a step, a reader, or nobody."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from tether.analysis.history import History, following
from tether.analysis.timelines import by_number
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
        events = history.events
        self.clears = events.called("zero_grad".__eq__).tobytes()  # whether each call does
        ends = events.called({"zero_grad", "grad.__get__"}.__contains__)
        at, rows = events.touched("reads")
        tensors = events.operands.column("tensor")[rows[ends[at]]]
        pairs = np.unique(tensors.astype(np.int64) * len(events) + at[ends[at]])
        self._times = by_number(pairs // max(len(events), 1), pairs % max(len(events), 1))

    def times(self, tensor: int) -> Sequence[int]:
        """Return the calls that read or clear a gradient, in order."""
        return self._times.get(tensor, ())

    def after(self, tensor: int, backward: int) -> End:
        """Return what became of the gradient that a pass gave, or added to, a tensor."""
        step = following(self._history.steps_of(tensor), backward)
        end = following(self.times(tensor), backward)
        if step >= 0 and (end < 0 or step < end):
            return End("step", step)
        if end < 0:
            return End("")
        return End("clear" if self.clears[end] else "read", end)
