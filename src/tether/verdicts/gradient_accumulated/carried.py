"""Gradients that steps use again after the step that they were made for."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from tether.analysis.history import History, latest
from tether.analysis.libraries import scaled_by_library
from tether.facts import Gradients, SiteId, TensorId
from tether.finding import At, Claim, Repair, Sentence, Step, Tensor, say


def carried(history: History) -> dict[TensorId, Gradients]:
    """Return the tensors whose gradients a step was seen to use again, each with the first look."""
    first: dict[TensorId, Gradients] = {}
    for one in history.trace.gradients:
        if one.moment == "carried":
            first = dict.fromkeys(one.status, one) | first
    return first


def claims(history: History) -> Iterator[Claim]:
    """Give one claim for each parameter whose gradient was carried from step to step."""
    first, looks = carried(history), history.trace.gradients
    times = Counter(tensor for one in looks if one.moment == "carried" for tensor in one.status)
    overwritten = _overwritten(history) if first else set()
    for tensor, fact in first.items():
        if tensor not in overwritten:
            second = history.steps_of(tensor)[1:2] == [history.position(fact.at)]
            yield _claim(history, tensor, fact, always=second and times[tensor] > 1)


def _overwritten(history: History) -> set[TensorId]:
    """Return the tensors whose gradients the program itself writes in place."""
    owners: dict[TensorId, TensorId] = {}  # a gradient -> the tensor that it was read from
    for _, event in history.events.where("grad.__get__".__eq__):
        owners.update({made.tensor: event.reads[0].tensor for made in event.results if event.reads})
    if not owners:
        return set()
    return {
        owners[written.tensor]
        for _, event in history.events.having("writes")
        if not event.is_backward and not scaled_by_library(history, event)
        for written in event.writes
        if written.tensor in owners
    }


def _claim(history: History, tensor: TensorId, fact: Gradients, *, always: bool) -> Claim:
    at = history.position(fact.at)
    before = latest(history.backwards, at)
    backward = history.events[before].site if before >= 0 else fact.site
    cleared, others = _clearing(history, tensor, at)
    tied = _shared(history, tensor, at) if cleared else None
    return Claim(
        tensors=(tensor,),
        cause=(fact.optimizer, backward),
        site=fact.site,
        operation="step",
        severity="warning" if always else "note",
        message=_message(history, tensor, backward, cleared, tied),
        story=(
            *(Step("shared", history.events[one.at].site, say("here a tensor is given the gradient"
                   " of another one itself, and no copy")) for one in ([tied] if tied else [])),
            Step("step", fact.site, say("this step uses the gradients")),
            Step("loss", backward, say("backward adds to what that step used")),
            *(Step("cleared", one, say("the gradients of what the step changes are cleared here"))
              for one in cleared),
            *(Step("cleared", one, say("{x} is not among what is cleared here", x=Tensor(tensor)))
              for one in others),
            *(Step("cleared", one, say("gradients are cleared here, but not between these steps"))
              for one in _elsewhere(history, tensor, [*cleared, *others])),
        ),
        repair=Repair(say("Clear the gradients before each backward: call zero_grad() on the model"
                          " that has {y}.", y=Tensor(tied.other)) if tied else
                      say("Clear the gradients before each backward: call zero_grad() on the model"
                          " that backward goes through.")),
        count=0,
    )  # fmt: skip


def _message(
    history: History,
    tensor: TensorId,
    backward: SiteId,
    cleared: list[SiteId],
    tied: SharedGradient | None,
) -> Sentence:
    """Say why a gradient was there still: it is another tensor's, too, or nothing clears it."""
    if tied is not None:
        return say(
            "Later steps use again what a step has used: {tied} makes one tensor the gradient of"
            " {x} and of {y}. {cleared} clears it for {x} alone, and backward at {loss} adds to"
            " what {y} still has.",
            tied=At(history.events[tied.at].site), x=Tensor(tensor), y=Tensor(tied.other),
            cleared=At(cleared[0]), loss=At(backward),
        )  # fmt: skip
    if cleared:
        return say(
            "Later steps use again what a step has used: what {line} lets go of as the gradient of"
            " {subject} is that of another tensor, too, and backward adds to it.",
            line=At(cleared[0]),
        )
    return say(
        "Later steps use again what a step has used: nothing clears the gradient of {subject}"
        " before backward at {line} adds to it.",
        line=At(backward),
    )


class SharedGradient(NamedTuple):
    """A call that gave a tensor the gradient of another one, and that one."""

    at: int
    other: TensorId


class HandedGradients:
    """The calls that gave tensors the gradients of others."""

    def __init__(self, history: History) -> None:
        self.given: dict[TensorId, list[SharedGradient]] = defaultdict(list)
        owners: dict[TensorId, TensorId] = {}  # a gradient -> the tensor it was read from last
        for at, event in history.events.where(_HANDS_ON.__contains__):
            if event.operation == "grad.__get__":
                owners.update((made.tensor, event.reads[0].tensor) for made in event.results)
            elif event.reads:
                taken = event.reads[1:2]
                other = owners.get(taken[0].tensor) if taken else None
                tensor = event.reads[0].tensor
                self.given[tensor].append(SharedGradient(at, tensor if other is None else other))


_HANDS_ON = ("grad.__get__", "grad.__set__")


def _shared(history: History, tensor: TensorId, until: int) -> SharedGradient | None:
    """Return the last call before a step that gave a tensor a gradient, if it is another's."""
    given = history.get(HandedGradients).given[tensor]
    number = bisect_left(given, until, key=lambda one: one.at)
    last = given[number - 1] if number else None
    if last is None or last.other == tensor or _is_cleared(history, last.other, tensor, until):
        return None
    return last


def _is_cleared(history: History, other: TensorId, tensor: TensorId, until: int) -> bool:
    """Whether a call cleared the other one's gradient since the step before."""
    since = max(latest(history.steps_of(tensor), until), 0)
    return any(
        read.tensor == other
        for event in history.events[since:until] if event.operation == "zero_grad"
        for read in event.reads
    )  # fmt: skip


def _clearing(history: History, tensor: TensorId, until: int) -> tuple[list[SiteId], list[SiteId]]:
    """Return the lines that clear gradients before a step: with that of a tensor, and without."""
    since = latest(history.steps_of(tensor), until)
    events = [one for one in history.events[max(since, 0) : until] if one.operation == "zero_grad"]
    cleared = [one.site for one in events if any(read.tensor == tensor for read in one.reads)]
    others = [one.site for one in events if one.site not in cleared]
    return list(dict.fromkeys(cleared))[:1], list(dict.fromkeys(others))[:1]


def _elsewhere(history: History, tensor: TensorId, told: list[SiteId]) -> list[SiteId]:
    """Return the first line that clears a tensor's gradient at other times."""
    clears = (event for _, event in history.events.where("zero_grad".__eq__))
    found = (one.site for one in clears if any(read.tensor == tensor for read in one.reads))
    return [one for one in dict.fromkeys(found) if one not in told][:1]
