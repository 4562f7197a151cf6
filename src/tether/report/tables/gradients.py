"""Which parameters the gradient reached."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Literal, NamedTuple

from tether.analysis.history import History
from tether.analysis.training.unmoved import Training
from tether.facts import UNKNOWN, Gradients
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
    """Return a row for each parameter that an optimizer holds or backward gave a gradient, by name.

    Judged where the optimizer was about to step, since many programs clear gradients at the end;
    what had none there, after each backward pass, and by what `autograd.grad` returned for it,
    unless a finding tells why it had none. Without an optimizer, all that the program trains.
    """
    trace = history.trace
    trained = any(one.moment in ("step", "backward") for one in trace.gradients)
    if not trained and not trace.trains:
        return []  # nothing here trains: it may be done elsewhere, in another process
    names = shortest_names(history)
    training = history.get(Training)
    numbered = [(n, one) for n, one in enumerate(findings) if one.slug not in _OF_COST]
    why = {tensor: n for n, one in reversed(numbered) for tensor in one.tensors}
    seen = _statuses(history, names, why.keys())
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


def _statuses(
    history: History, names: Mapping[int, str], told: AbstractSet[int]
) -> dict[int, Counter[str]]:
    """Return what the gradient of each parameter was seen to be, and how often."""
    looks, held = history.trace.gradients, history.held
    given = _seen(looks, "backward")
    judged = _seen(looks, "step") or given or _seen(looks)
    seen = {one: judged.get(one, Counter()) for one in held or judged.keys() & names.keys()}
    for tensor in _parameters(history, names) & given.keys():
        if _status(seen.get(tensor, ())) == "none" != _status(given[tensor]):
            seen[tensor] = given[tensor]
    asked = _seen(looks, "asked")
    for tensor in (seen.keys() | _parameters(history, names)) & asked.keys() - told:
        if _status(seen.get(tensor, ())) == "none" != _status(asked[tensor]):
            seen[tensor] = asked[tensor]
    return {
        tensor: statuses
        for tensor, statuses in seen.items()
        if tensor in held or statuses.keys() != {"none"} or _is_trained(history, tensor)
    }


def _parameters(history: History, names: Iterable[int]) -> set[int]:
    """Return what an optimizer holds, and the parameters that have a name."""
    return history.held | {one for one in names if history.is_parameter(one)}


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


def _seen(looks: Sequence[Gradients], *moments: str) -> dict[int, Counter[str]]:
    """Return what each gradient was at the looks of some moments, or of all, and how often."""
    seen: dict[int, Counter[str]] = defaultdict(Counter)
    for look in looks:
        if not moments or look.moment in moments:
            for tensor, status in look.status.items():
                seen[tensor][status] += 1
    return seen


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
