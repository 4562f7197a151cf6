"""A gradient that a backward of a custom Function, or a hook, wrote in place while others held it.

What the fact says is enough: somebody else got what the write left. Told besides, where the calls
say it, are the write, the call of the Function whose backward it was, and what its result meets in
the call that uses it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tether.analysis.gradients.graph import Graph
from tether.analysis.history import History
from tether.facts import UNKNOWN, GivenWritten, Operand, SiteId
from tether.finding import At, CallOf, Claim, Repair, Step, Tensor, say
from tether.verdicts.alias_write.telling import written


class Written(NamedTuple):
    """Such a gradient; calls are positions, -1 where they are not known."""

    fact: GivenWritten  # the first of its line
    site: SiteId  # of the write, or of what made it
    write: int
    applied: int
    joined: int  # the one call that uses the result, beside another tensor
    other: int  # that tensor
    asked: bool  # the pass was one of `autograd.grad`, which may return the tensor itself
    times: int  # that were looked at


def written_in_backward(history: History) -> Iterator[Written]:
    """Yield one for each line that wrote, and each Function or hook that it wrote for."""
    found: dict[tuple[SiteId, SiteId], list[Written]] = {}
    for fact in history.trace.given_written:
        write = _write(history, fact)
        site = fact.site if write < 0 else history.events[write].site
        one = Written(fact, site, write, *_joined(history, fact), _is_asked(history, fact), 1)
        found.setdefault((fact.site, site), []).append(one)
    for some in found.values():
        best = max(some, key=lambda one: one.other >= 0)  # of the first, where none says more
        yield best._replace(times=len(some))


def _is_asked(history: History, fact: GivenWritten) -> bool:
    """Whether the pass in which the run was, or the one around it, asked for gradients."""
    backward = history.next_pass(history.trace.first_after(fact.at) - 1)
    return backward >= 0 and history.events[backward].operation == "autograd.grad"


def _write(history: History, fact: GivenWritten) -> int:
    """Return the last call that wrote the gradient in the run."""
    first, last = (history.trace.first_after(at) for at in (fact.at, fact.until))
    return next(
        (
            at
            for at in range(last - 1, first - 1, -1)
            if any(one.storage == fact.storage for one in history.events[at].writes)
        ),
        UNKNOWN,
    )


def _joined(history: History, fact: GivenWritten) -> tuple[int, int, int]:
    """Return the call of the Function, the one call that uses its result, and what else that reads.

    -1 for what is not known. Who else held the gradient is not recorded: as a rule it is what that
    call takes besides, but a call further on may have given the tensor to several.
    """
    graph = history.get(Graph)
    applied = UNKNOWN if fact.node == UNKNOWN else graph.call_of(fact.thread, fact.node)
    if applied < 0:
        return UNKNOWN, UNKNOWN, UNKNOWN
    results = [one.tensor for one in history.events[applied].results if one.requires_grad]
    users = {at for one in results for at in history.reads_of(one) if graph.kind(at) is not None}
    if len(results) != 1 or len(users) != 1:
        return applied, UNKNOWN, UNKNOWN
    joined = users.pop()
    others = {one.tensor for one in _led_to(history, joined)} - set(results)
    return applied, joined, others.pop() if len(others) == 1 else UNKNOWN


def _led_to(history: History, at: int) -> Iterator[Operand]:
    """Yield the operands that the nodes of a call lead to."""
    kind, reads = history.get(Graph).kind(at), history.events[at].reads
    for _, _, target in kind.edges if kind is not None else ():
        if target < 0 and -1 - target < len(reads):
            yield reads[-1 - target]


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
