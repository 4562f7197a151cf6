"""Which parameters the gradient reached."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from tether.analysis.history import History
from tether.facts import Trace
from tether.finding import Finding

Status = Literal["reached", "zero", "none"]


class Gradient(NamedTuple):
    """What one parameter's gradient was, over the whole recording."""

    name: str
    status: Status
    finding: int | None  # the finding that says why, as an index
    module: str = ""  # the part of the name before the last dot


_OF_COST = frozenset({"needless-copy", "slow-copy", "repeated-transfer", "storage-pinned"})
"""Findings that say what something costs, and never why a gradient is missing."""


_PASSES = ("backward", "autograd.grad", "step")


def gradients(trace: Trace, findings: Sequence[Finding] = ()) -> list[Gradient]:
    """Return a row for each parameter that an optimizer holds, by name.

    Judged where the optimizer was about to step, since many programs clear gradients at the end;
    where nothing stepped, after each backward pass, and for parameters no optimizer holds too.
    """
    moments = [one for one in trace.gradients if one.moment == "step"]
    moments = moments or [one for one in trace.gradients if one.moment == "backward"]
    if not moments and not any(one.operation in _PASSES for one in trace.events):
        return []  # nothing here trains: it may be done elsewhere, in another process
    moments = moments or trace.gradients
    held = {tensor for one in trace.optimizers for tensor in one.tensors}
    names = shortest_names(trace)
    seen: dict[int, set[str]] = {tensor: set() for tensor in held}
    for moment in moments:
        for tensor, status in moment.status.items():
            if tensor in held or (not held and tensor in names):
                seen.setdefault(tensor, set()).add(status)
    numbered = [(n, one) for n, one in enumerate(findings) if one.slug not in _OF_COST]
    why = {tensor: n for n, one in reversed(numbered) for tensor in one.tensors}
    rows = [
        Gradient(
            names.get(tensor, f"parameter {tensor}"),
            _status(statuses),
            why.get(tensor),
            names.get(tensor, "").rpartition(".")[0],
        )
        for tensor, statuses in seen.items()
        if moments
    ]
    first = {name: place for place, name in enumerate(names.values())}
    rows.sort(key=lambda row: first.get(row.name, len(first)))
    return rows


def _status(seen: set[str]) -> Status:
    if "some" in seen:
        return "reached"
    if "zero" in seen:
        return "zero"  # whenever it was looked into
    return "reached" if "unchecked" in seen else "none"


def shortest_names(trace: Trace) -> dict[int, str]:
    """Return for each named tensor the best of its names, as the findings call it."""
    history = History(trace)
    return {name.tensor: history.name_of(name.tensor) for name in trace.names}
