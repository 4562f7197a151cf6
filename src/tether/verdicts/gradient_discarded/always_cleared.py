"""Lines that clear a gradient between backward and step, each time."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator

from tether.analysis.gradients.graph import Graph
from tether.analysis.history import History
from tether.facts import UNKNOWN, Event, Gradients, SiteId, TensorId
from tether.finding import At, Claim, Repair, Step, say
from tether.operations.table import operation


def claims(history: History) -> Iterator[Claim]:
    """Give one claim for each line that clears gradients at every step."""
    groups: dict[int, list[int]] = defaultdict(list)
    where: dict[int, tuple[int, Gradients]] = {}
    for tensor in sorted(history.held, key=lambda one: history.order.get(one, 0)):
        found = _always_cleared(history, TensorId(tensor))
        if found is not None:
            site = int(history.events[found[0]].site)
            groups[site].append(tensor)
            where.setdefault(site, found)
    for site, tensors in groups.items():
        yield _claim(history, tensors, *where[site])


def _always_cleared(history: History, tensor: TensorId) -> tuple[int, Gradients] | None:
    """Return the first clearing call and its step, when every step found the gradient cleared."""
    steps = [fact for fact in history.steps if tensor in fact.status]
    used = {str(fact.status[tensor]) for fact in steps}
    if "some" in used or not history.backwards or _given_zeros(history, tensor, used):
        return None
    found: list[tuple[int, Gradients]] = []
    since = 0
    passes = _filling(history, tensor), history.graded_after(tensor)
    for step in steps:
        at = history.position(step.at)
        # What was not looked into says nothing; before the first pass there is nothing to clear.
        if step.status[tensor] != "unchecked" and history.backwards[0] < at:
            found.append((_clearing(history, tensor, passes, (since, at)), step))
        since = at
    return found[0] if found and all(one != UNKNOWN for one, _ in found) else None


def _given_zeros(history: History, tensor: TensorId, used: set[str]) -> bool:
    """Whether backward gave a parameter zeros, and they are what its steps used."""
    filled = {fact.status.get(tensor, "none") for fact in history.after_backward}
    return "zero" in filled and "some" not in filled and "none" not in used


def _clearing(
    history: History,
    tensor: TensorId,
    passes: tuple[set[SiteId], list[int]],
    stretch: tuple[int, int],
) -> int:
    """Return the last call in a stretch that took away a gradient which a backward had given.

    A later pass makes good for it where it is known to give the tensor one.

    `passes` are the lines whose passes were seen to give something, and when a gradient was there.
    """
    (filled, given), (since, until) = passes, stretch
    graph = history.get(Graph)
    if bisect_left(given, since) >= bisect_right(given, until):
        return UNKNOWN
    gradients: set[int] = set()
    found, kept, after_backward, nothing = UNKNOWN, UNKNOWN, False, True
    for position in range(max(0, since), min(until, len(history.events))):
        event = history.events[position]
        if event.operation == "backward":
            kept = UNKNOWN if tensor in (graph.leaves(position) or ()) else max(found, kept)
            found, after_backward, nothing = UNKNOWN, True, event.site not in filled
        elif event.operation == "grad.__get__" and _is_of(event, tensor):
            gradients.update(one.tensor for one in event.results)
        elif after_backward and _clears(
            event, tensor, gradients, known=nothing or found != UNKNOWN
        ):
            found = position
    return max(found, kept)


def _filling(history: History, tensor: TensorId) -> set[SiteId]:
    """Return the lines whose passes were seen to give a tensor something else than zeros."""
    return {one.site for one in history.after_backward if one.status.get(tensor) == "some"}


def _is_of(event: Event, tensor: TensorId) -> bool:
    return bool(event.reads) and event.reads[0].tensor == tensor


def _clears(event: Event, tensor: TensorId, gradients: set[int], *, known: bool) -> bool:
    """Whether a call takes a gradient away: sets it anew, or is the last to write over it.

    Where a call is known that did, a later one that computes with what is left is not it; nor where
    the pass was not seen to give anything but zeros.
    """
    if event.operation == "zero_grad":
        return any(one.tensor == tensor for one in event.reads)
    if event.operation == "grad.__set__":  # which may set what is there already
        return _is_of(event, tensor) and gradients.isdisjoint(one.tensor for one in event.reads)
    if known and not operation(event.operation).overwrites:
        return False
    return any(one.tensor in gradients for one in event.writes)


def _claim(history: History, tensors: list[int], position: int, step: Gradients) -> Claim:
    event, events = history.events[position], history.events
    first = history.backwards[0]
    count = sum(
        tensors[0] in fact.status and history.position(fact.at) > first for fact in history.steps
    )
    backward = next((one for one in reversed(history.backwards) if one < position), first)
    return Claim(
        tensors=tuple(tensors),
        cause=event.site,
        site=event.site,
        calls=(position,),
        operation=event.operation.removesuffix(".__set__"),
        message=say(
            "The gradient of {subject} was cleared between backward and step, before {every}: the"
            " optimizer had nothing to use.",
            every="the one step" if count == 1 else f"each of {count} steps",
        ),
        story=(
            Step("made", events[backward].site, say("backward fills the gradient")),
            Step("cleared", event.site, say("it is cleared here")),
            Step("step", step.site, say("the optimizer steps without it")),
        ),
        repair=Repair(say("Clear gradients before backward, not at {here}.", here=At(event.site))),
        count=count,
    )
