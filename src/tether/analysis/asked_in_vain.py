"""Gradients that a line of the program asks for when they are not there: None, each time.

The line changes parameters by their gradients itself, and finds those of the others. Of one it
never finds any, though each backward pass gives it one: the line runs before that, in a hook or on
the wrong side of what clears the gradients, and what is given later is cleared before it runs
again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from tether.analysis.history import History
from tether.facts import UNKNOWN, SiteId, TensorId

LEAST_PASSES = 3
"""Backward passes after which it is no accident that a gradient was always gone."""


class AskedInVain(NamedTuple):
    """A line that asks for gradients and never finds those of some tensors."""

    site: SiteId
    tensors: tuple[int, ...]
    others: int  # tensors whose gradients it finds
    passes: int  # that gave the first of the tensors a gradient
    backward: int  # the last of them
    cleared: int  # the call that cleared the gradient after it; UNKNOWN: none was heard to


def asked_in_vain(history: History) -> Iterator[AskedInVain]:
    """Yield the lines."""
    found: dict[SiteId, set[int]] = defaultdict(set)
    missed: dict[SiteId, set[int]] = defaultdict(set)
    met: set[int] = set()
    for _, event in history.events.where("grad.__get__".__eq__):
        for one in event.reads[:1]:
            (missed if event.none else found)[event.site].add(one.tensor)
            if not event.none:
                met.add(one.tensor)
    for site, tensors in missed.items():
        lost = [one for one in sorted(tensors - met) if _is_lost(history, one)]
        if found[site] and lost:
            yield _told(history, site, lost, len(found[site]))


def _is_lost(history: History, tensor: int) -> bool:
    """Whether passes give a tensor gradients, and no optimizer and no line changes it by them."""
    operand = history.operand_of(tensor)
    if (
        operand is None
        or tensor in history.held
        or len(_given(history, TensorId(tensor))) < LEAST_PASSES
    ):
        return False
    return next(history.writes_to(operand, history.backwards[0]), None) is None


def _given(history: History, tensor: TensorId) -> list[int]:
    """Return when a tensor had a gradient after a backward pass."""
    facts = history.after_backward
    return [history.position(one.at) for one in facts if one.status.get(tensor, "none") != "none"]


def _told(history: History, site: SiteId, tensors: list[int], others: int) -> AskedInVain:
    passes = _given(history, TensorId(tensors[0]))
    last = history.backwards[max(bisect_left(history.backwards, passes[-1]) - 1, 0)]
    clears = (
        at for at, event in history.events.where({"zero_grad", "grad.__set__"}.__contains__)
        if any(one.tensor == tensors[0] for one in event.reads)
    )  # fmt: skip
    cleared = next((at for at in clears if at > passes[0]), UNKNOWN)
    return AskedInVain(site, tuple(tensors), others, len(passes), last, cleared)
