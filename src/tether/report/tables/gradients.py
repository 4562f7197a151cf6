"""Which parameters the gradient reached."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Literal, NamedTuple

from tether.analysis.history import History
from tether.analysis.training.unmoved import Training
from tether.facts import UNKNOWN, Gradients, TensorId, Trace
from tether.finding import Finding

Status = Literal["reached", "zero", "none"]


class Gradient(NamedTuple):
    """What one parameter's gradient was, over the whole recording."""

    name: str
    status: Status
    finding: int | None  # the finding that says why, as an index
    module: str = ""  # the part of the name before the last dot
    changed: bool | None = None  # its values are others than at the first look; None: not known
    ranks: str = ""  # what which rank saw, where they differ
    # Of one that was zero whenever it was looked into: how often it was, and how often it was not.
    looked: int = 0
    unlooked: int = 0


_OF_COST = frozenset({"needless-copy", "slow-copy", "repeated-transfer", "storage-pinned"})
"""Findings that say what something costs, and never why a gradient is missing."""


def gradients(history: History, findings: Sequence[Finding] = ()) -> list[Gradient]:
    """Return a row for each parameter that an optimizer holds, by name.

    Judged where the optimizer was about to step, since many programs clear gradients at the end;
    where nothing stepped, after each backward pass, and for all that the program trains. One that
    no optimizer holds, and that a finding is about, has a row as well.
    """
    trace = history.trace
    trained = any(one.moment in ("step", "backward") for one in trace.gradients)
    if not trained and not trace.trains:
        return []  # nothing here trains: it may be done elsewhere, in another process
    names = shortest_names(history)
    training = history.get(Training)
    numbered = [(n, one) for n, one in enumerate(findings) if one.slug not in _OF_COST]
    why = {tensor: n for n, one in reversed(numbered) for tensor in one.tensors}
    seen = _statuses(history, names) | _of_none(history, why, names)
    rows = [
        Gradient(
            names.get(tensor, f"parameter {tensor}"),
            _status(statuses),
            why.get(tensor),
            names.get(tensor, "").rpartition(".")[0],
            training.moved(tensor),
            looked=_times(statuses, "zero"),
            unlooked=_times(statuses, "unchecked"),
        )
        for tensor, statuses in seen.items()
    ]
    first = {name: place for place, name in enumerate(names.values())}
    rows.sort(key=lambda row: first.get(row.name, len(first)))
    return rows


def _statuses(history: History, names: Mapping[int, str]) -> dict[int, Counter[str]]:
    """Return what the gradient of each parameter was seen to be, and how often."""
    trace, held = history.trace, history.held
    if not trace.gradients:
        return {}
    judged = held or names.keys()
    seen: dict[int, Counter[str]] = {tensor: Counter() for tensor in held}
    for moment in _judged_at(trace):
        for tensor, status in moment.status.items():
            if tensor in judged:
                seen.setdefault(tensor, Counter())[status] += 1
    return {
        tensor: statuses
        for tensor, statuses in seen.items()
        if tensor in held or statuses.keys() != {"none"} or _is_trained(history, tensor)
    }


def _is_trained(history: History, tensor: int) -> bool:
    """Whether a tensor that no optimizer holds, and that got no gradient, might have got one.

    A module has registered it, the program asked for its gradient, or a graph leads to it. A copy
    of parameters that only keeps numbers is a Parameter by its class alone.
    """
    if any(one.holder != UNKNOWN for one in history.facts_of_names(tensor)):
        return True
    operand = history.operand_of(tensor)
    if operand is None or tensor in history.asked:
        return operand is not None
    calls = (history.events[at] for at in history.readers(operand, UNKNOWN))
    return any(
        one.requires_grad and one.tensor != tensor for event in calls for one in event.results
    )


def _of_none(
    history: History, told: Collection[int], names: Mapping[int, str]
) -> dict[int, Counter[str]]:
    """Return what backward gave to parameters of modules that no optimizer holds, of some told."""
    left = [
        one
        for one in told
        if one not in history.held and one in names and history.is_parameter(one)
    ]
    looks = [look.status for look in history.after_backward]
    seen = {
        one: Counter(str(look[one]) for look in looks if one in look) for one in map(TensorId, left)
    }
    return {int(one): found for one, found in seen.items() if found.keys() - {"none"}}


def _judged_at(trace: Trace) -> list[Gradients]:
    """Return the looks at gradients that count: before a step, else after a backward pass."""
    for moment in ("step", "backward"):
        found = [one for one in trace.gradients if one.moment == moment]
        if found:
            return found
    return trace.gradients


def _times(seen: Counter[str], status: str) -> int:
    """Return how often a gradient that is only known as zero was seen so."""
    return seen[status] if _status(seen) == "zero" else 0


def _status(seen: Collection[str]) -> Status:
    if "some" in seen:
        return "reached"
    if "zero" in seen:
        return "zero"  # whenever it was looked into
    return "reached" if "unchecked" in seen else "none"


def shortest_names(history: History) -> dict[int, str]:
    """Return for each named tensor the best of its names, as the findings call it."""
    return {name.tensor: history.name_of(name.tensor) for name in history.trace.names}
