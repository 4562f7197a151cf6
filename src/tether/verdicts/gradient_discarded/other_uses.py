"""What else may have used the gradients of a pass than a step, or a look at `.grad`.

A hook is given them, code of the program's runs within the pass, a tensor on the way keeps its own,
and a gradient may be a part of memory that has another name.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from itertools import islice

import numpy as np

from tether.analysis.history import History
from tether.operations.table import operation

_HOOK_OF_A_MODULE = "BackwardHookFunction"
"""The Function that PyTorch puts around a module whose gradients a hook is told of."""


class OtherUses:
    """The passes, and the tensors, of which that may be so."""

    def __init__(self, history: History) -> None:
        self._heard = _with_calls_inside(history)
        self._from = _first_hook(history)
        self._shown = _assigned(history) | (_zeroed(history) & history.asked.keys())

    def of(self, backward: int) -> bool:
        """Whether a pass may have had another use."""
        return backward > self._from or backward in self._heard

    def shows(self, leaves: AbstractSet[int]) -> bool:
        """Whether a gradient of some leaves may be seen by another name.

        It was assigned, or it is kept when it is cleared, zeroed in place, and was asked for.
        """
        return not self._shown.isdisjoint(leaves)


def _with_calls_inside(history: History) -> set[int]:
    """Return the passes within which the program's own code called PyTorch.

    What runs a block again is a part of the pass.
    """
    spans, aside = history.trace.spans, history.within("checkpoint")
    numbers = history.events.column("span")[history.within("backward") & ~aside]
    found = set[int]()
    waiting = np.unique(numbers).tolist()
    while waiting:
        span = spans[waiting.pop()]
        if span.kind == "backward":
            found.add(history.position(span.event))
        waiting += [span.parent] if span.parent >= 0 else []
    return found


def _first_hook(history: History) -> int:
    """Return when something first got a hook, the program's or a library's; past the end: never.

    A hook on a module's gradients is there from the module's next call on, by a Function.
    """
    events = history.events
    moments = [history.position(one) for fact in history.trace.hooks for one in fact.at]
    moments += [at for at, _ in islice(events.where(_keeps_an_eye), 1)]
    calls = (at for at, one in events.where("apply".__eq__) if one.detail == _HOOK_OF_A_MODULE)
    return min([*moments, *islice(calls, 1)], default=len(events))


def _keeps_an_eye(name: str) -> bool:
    """Whether a call has a tensor hand on its gradient, or keep it though it is no leaf."""
    return operation(name).own.startswith(("has a hook", "retains"))


def _assigned(history: History) -> set[int]:
    """Return the tensors that were given a gradient by the program."""
    sets = history.events.where("grad.__set__".__eq__)
    return {event.reads[0].tensor for _, event in sets if event.reads and not event.none}


def _zeroed(history: History) -> set[int]:
    """Return the tensors whose gradients were cleared in place."""
    calls = history.events.where("zero_grad".__eq__)
    return {one.tensor for _, event in calls if not event.none for one in event.reads}
