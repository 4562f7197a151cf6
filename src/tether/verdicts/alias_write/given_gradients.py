"""A gradient that a backward or a hook was given and wrote in place, while others held it."""

from __future__ import annotations

from collections.abc import Iterator

from tether.analysis.given_gradients import Written, written_in_backward
from tether.analysis.history import History
from tether.finding import At, CallOf, Claim, Repair, Step, Tensor, say
from tether.verdicts.alias_write.telling import written


def given_gradients(history: History) -> Iterator[Claim]:
    """Give one claim for each line that wrote one."""
    for found in written_in_backward(history):
        yield _claim(history, found)


def _claim(history: History, found: Written) -> Claim:
    fact = found.fact
    how = "the hook {name}" if fact.node < 0 else "the backward of {name}"
    what = "{call} at {line}" if found.write >= 0 else "Code that was not recorded"
    part = (
        "the caller of autograd.grad, or another part of the graph"
        if found.asked
        else ("another part of the graph")
    )
    return Claim(
        tensors=(),
        subject=fact.name,
        cause=("given", fact.site, found.site),
        site=found.site,
        operation="backward" if found.write < 0 else history.events[found.write].operation,
        message=say(
            f"{what} writes in place the gradient that {how} is given."
            f" PyTorch still held the same tensor for {part}, which gets what the write left.",
            name=fact.name, line=At(found.site), call=CallOf(max(found.write, 0)),
        ),
        story=(*_steps(history, found),),
        repair=Repair(say("Leave what is given as it is, and return a new tensor:"
                          " `grad * scale`, not `grad.mul_(scale)`; or write into grad.clone().")),
        count=found.times,
    )  # fmt: skip


def _steps(history: History, found: Written) -> Iterator[Step]:
    """Give where the Function was applied, what uses its result, and the write."""
    fact, events = found.fact, history.events
    if found.applied >= 0:
        yield Step("made", events[found.applied].site, say("{name} is applied", name=fact.name))
    if found.joined >= 0:
        beside = " beside {x}" if found.other >= 0 else ""
        text = say("{call} uses its result" + beside, call=CallOf(found.joined),
                   x=Tensor(found.other))  # fmt: skip
        yield Step("used", events[found.joined].site, text)
    given = say("{name} is given a gradient that somebody else still holds", name=fact.name)
    yield Step("shared", fact.site, given)
    if found.write >= 0:
        yield written(history, found.write)
