"""`untracked-write`: a write that autograd cannot see changed a value that a backward used."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import numpy as np

from tether.analysis.gradients.graph import Graph
from tether.analysis.gradients.on_ctx import KeptOnCtx, overwritten_on_ctx
from tether.analysis.history import History
from tether.analysis.libraries import package_of
from tether.analysis.sharing.shared_memory import Sharing, unheard
from tether.facts import CREATE_GRAPH, RETAIN_GRAPH, UNKNOWN, Event, Operand
from tether.finding import At, CallOf, Claim, Repair, Step, Tensor, say
from tether.operations.table import operation, shown
from tether.regions import extent, may_overlap
from tether.store.numbers import Numbers
from tether.verdicts.base import Example, Expected, Verdict
from tether.verdicts.untracked_write.of_another_call import (
    OfAnotherCall,
    SetAnew,
    of_another_call,
    set_anew,
)
from tether.verdicts.untracked_write.packed_by_hooks import packed_by_hooks

PAGE = """
# untracked-write

## What it says
A call saved a value for its backward pass; the value was then written in a way that moves no
version counter (`.data`, a NumPy array, DLPack, the storage itself); then backward used it. Nothing
raised. Or a custom Function kept the value as an attribute of its ctx, which PyTorch does not
check, and any write changed it before the Function's backward read it. Or a Function keeps the
value outside of its ctx, where a later call's forward replaced it; where nothing shows that the
gradient depends on it, that is a note. Or a hook of the program's on saved tensors
(`saved_tensors_hooks`) keeps the memory of what it packs and no copy (`tensor.detach()`,
`tensor.cpu().numpy()` on the CPU), and any write changed it before backward asked for it. "The
gradient is wrong" is said where the node that saved the value was seen to give another gradient
after the write, and leaves of the graph behind it; otherwise that it was computed with the
overwritten values. Nothing is said where the leaves get the same gradients, since a later node
takes out what was written (a shift before a softmax).

## Why it matters
PyTorch refuses a backward whose saved values were written, by comparing version counters. It
cannot see these writes.

## Known problems
A write through an array is found by comparing bytes, of storages up to 16 MiB, for at most 2 % of
the run's time; the node is not asked then. Where the program has set its own hooks on saved
tensors, tether does not read what is saved: it knows what these hooks were given and gave back.
Hooks of libraries are not followed.

## Example
```python
h = torch.exp(w)
h.data.clamp_(max=1.0)               # exp saved h
h.sum().backward()                   # the gradient of w is wrong
```

## Use instead
```python
h = torch.exp(w).clamp(max=1.0)
```

## Fix safety
The fix changes what is computed, so none is applied automatically.
"""


class _Write(NamedTuple):
    """A write without a version: between two positions, at a site."""

    after: int  # the value was saved before this position ...
    before: int  # ... and used after this one
    operand: Operand | None  # None: which elements it wrote is not known
    memory: int
    site: int
    how: str  # what it went through: "data", "numpy", "the storage"
    export: int  # the call through which it could happen, -1


class _Saved(NamedTuple):
    """A value that a call saved, and the passes through that call up to the one that freed it."""

    at: int
    operand: Operand
    used: list[int]

    def after(self, position: int) -> int:
        """Return the first backward after a position that used the value, or UNKNOWN."""
        following = bisect_right(self.used, position)
        return self.used[following] if following < len(self.used) else UNKNOWN


def check(history: History) -> Iterator[Claim]:
    """Give each unseen write to a saved value that a backward pass used afterwards."""
    for value, write in _changed(history):
        backward = value.after(write.before)
        if history.events[backward].raised or not _reaches(history, value.operand, write):
            continue
        differs = _differs(history, value.at, write)
        if differs is not False:
            yield _claim(history, value, write, backward, wrong=bool(differs))
    for one in overwritten_on_ctx(history):
        yield _on_ctx(history, one)
    for other in of_another_call(history):
        yield _of_another(history, other)
    for anew in set_anew(history):
        yield _set_anew(history, anew)
    yield from packed_by_hooks(history)


def _changed(history: History) -> Iterator[tuple[_Saved, _Write]]:
    """Yield each saved value with the writes to its memory between its call and a backward.

    Writes are taken in their order beside the values that a later backward still uses, so that a
    long run costs what it has of both, and not their product.
    """
    writes: dict[int, list[_Write]] = defaultdict(list)
    for one in [*_through_aliases(history), *_unheard(history)] if history.backwards else ():
        writes[one.memory].append(one)
    saved = _saved(history, set(writes))
    for memory, touches in writes.items():
        ahead, alive = deque(saved[memory]), list[_Saved]()
        for write in sorted(touches, key=lambda one: one.before):
            while ahead and ahead[0].at <= write.before:
                alive.append(ahead.popleft())
            alive = [one for one in alive if one.used[-1] > write.before]
            # What was found changed just before a call was written before that call saved it.
            until = min(write.after, write.before)
            yield from ((value, write) for value in alive if value.at <= until)


def _through_aliases(history: History) -> Iterator[_Write]:
    """Yield the recorded writes that autograd does not count.

    Through a tensor that has a version counter of its own, or by a call that moves none (`apply_`).
    """
    found = history.get(Sharing)
    for memory, (at, operand) in found.writes.of(partial(_perhaps_uncounted, history)):
        event = history.events[at]
        if package_of(history, event) == "torch":
            continue  # gradcheck shifts each element, and puts it back
        if _moved_no_version(event, operand):
            yield _Write(at - 1, at, operand, memory, event.site, event.operation, UNKNOWN)
            continue
        made = _own_counter(history, operand.tensor)
        if made != UNKNOWN and event.operation != "step":
            how = history.events[made].operation
            yield _Write(at - 1, at, operand, memory, event.site, how, made)


def _own_counter(history: History, tensor: int) -> int:
    """Return the call that gave a tensor, or what it is a view of, a version counter of its own."""
    made = history.made_at(history.get(Sharing).counter(tensor))
    own = made != UNKNOWN and operation(history.events[made].operation).own_counter
    return made if own else UNKNOWN


def _perhaps_uncounted(history: History, at: Numbers, rows: Numbers) -> Numbers:
    """Return for writes, by their calls and the rows of what was written, which may be uncounted.

    They moved no version of the first argument, or went through a tensor with its own counter.
    """
    events = history.events
    tensor, version = (events.operands.column(one) for one in ("tensor", "version"))
    kept = events.column("reads")[at] > 0
    first = events.rows[np.where(kept, events.starts[at], 0)]
    kept &= (tensor[rows] == tensor[first]) & (version[rows] == version[first])
    kept &= events.called(lambda name: operation(name).writes == "values")[at]
    tensors = np.unique(tensor[rows])
    own = [one for one in tensors.tolist() if _own_counter(history, one) != UNKNOWN]
    found: Numbers = kept | np.isin(tensor[rows], own)
    return found


def _moved_no_version(event: Event, operand: Operand) -> bool:
    """Whether a call wrote its first argument and left the version as it was."""
    first = event.reads[0] if event.reads else None
    return (
        first is not None
        and first.tensor == operand.tensor
        and first.version == operand.version != UNKNOWN
        and operation(event.operation).writes == "values"
        and not operation(event.operation).retypes
    )


def _unheard(history: History) -> Iterator[_Write]:
    """Yield the writes that were found by comparing bytes, and those of storages."""
    for fact in unheard(history):
        export = history.position(fact.event) if fact.event != UNKNOWN else UNKNOWN
        after, before = history.position(fact.after), history.position(fact.before)
        memory = history.flow.memory_of(fact.storage)
        site, how = int(fact.site), "the storage"
        if export >= 0:
            site, how = history.events[export].site, history.events[export].operation
        yield _Write(after, before - 1, None, memory, site, how, export)


def _saved(history: History, memories: set[int]) -> dict[int, list[_Saved]]:
    """Return the values that calls saved on some memories, custom Functions' own among them.

    Only those that a backward pass went through.
    """
    graph, memory = history.get(Graph), history.flow.memory
    kept: list[tuple[int, Operand]] = []
    events, rows = history.events.touched("reads", "results")
    touching = np.unique(events[np.isin(history.memories, list(memories))[rows]])
    for at in touching[history.events.column("kind")[touching] >= 0].tolist():
        saved = graph.saved(at, unchecked=True)
        kept += [(at, operand) for operand in saved if memory(operand) in memories]
    used = _users(history, {at for at, _ in kept})
    found: dict[int, list[_Saved]] = defaultdict(list)
    for at, operand in kept:
        if at in used:
            found[memory(operand)].append(_Saved(at, operand, used[at]))
    return found


def _users(history: History, calls: set[int]) -> dict[int, list[int]]:
    """Return the backward passes through each of some calls, up to the one that freed its graph."""
    graph, found, freed = history.get(Graph), defaultdict[int, list[int]](list), set[int]()
    for backward in history.backwards if calls else ():
        through = [at for at in graph.behind(backward) & calls if at < backward and at not in freed]
        for at in through:
            found[at].append(backward)
        if not history.events[backward].flags & (RETAIN_GRAPH | CREATE_GRAPH):
            freed.update(through)
    return found


def _reaches(history: History, operand: Operand, write: _Write) -> bool:
    """Whether a write reached a saved value and moved no counter that it is checked against."""
    if write.operand is None:
        return True
    found = history.get(Sharing)
    own_counter = operation(write.how).own_counter
    if own_counter and found.counter(operand.tensor) == found.counter(write.operand.tensor):
        return False
    written = write.operand._replace(storage=operand.storage)
    part = operation(history.events[write.before].operation).part
    if part and not _covers(operand, written):
        return False  # which elements it wrote is not recorded: perhaps the others
    return operand.dtype != written.dtype or may_overlap(operand, written)


def _covers(operand: Operand, written: Operand) -> bool:
    """Whether an operand has every element of the tensor that was written."""
    (first, last), (other_first, other_last) = extent(operand), extent(written)
    inside = first <= other_first and other_last <= last
    return inside and math.prod(operand.shape) >= math.prod(written.shape)


def _differs(history: History, at: int, write: _Write) -> bool | None:
    """Whether the node of a call gave other gradients after a write; None where nobody asked.

    A line that writes again and again was asked at some of its writes: they speak for the rest.
    """
    if write.operand is None:
        return None
    answers = history.get(_Asked).answers.get((write.site, history.events[at].site))
    return any(answers) if answers else None


class _Asked:
    """What nodes gave back before and after unseen writes, by the lines of write and call."""

    def __init__(self, history: History) -> None:
        graph = history.get(Graph)
        self.answers: dict[tuple[int, int], list[bool]] = defaultdict(list)
        for fact in history.trace.altered:
            at, saver = history.position(fact.event), graph.call_of(fact.thread, fact.node)
            if at >= 0 and saver >= 0:
                lines = history.events[at].site, history.events[saver].site
                self.answers[lines].append(fact.differs)


def _claim(history: History, value: _Saved, write: _Write, backward: int, *, wrong: bool) -> Claim:
    name, saver = Tensor(value.operand.tensor), history.events[value.at]
    steps = [Step("saved", saver.site, say("{call} saves {x} for backward", call=CallOf(value.at),
                  x=name))]  # fmt: skip
    how = shown(write.how)
    through = f"through {how}" if operation(write.how).writes != "values" else f"by {how}"
    if write.export >= 0 and history.events[write.export].site != write.site:
        site = history.events[write.export].site
        steps.append(Step("shared", site, say("{how} shares its memory", how=how)))
    steps.append(Step("written", write.site, say("written {how}: no version counter moves",
                      how=through)))  # fmt: skip
    used = history.events[backward].site
    steps.append(Step("used", used, say("backward uses the written values")))
    verb = "is wrong" if wrong else "was computed with overwritten values"
    return Claim(
        tensors=(value.operand.tensor,),
        cause=(write.site, saver.site),
        site=write.site,
        operation=write.how.removesuffix(".__get__"),
        message=say(
            "The gradient through {x} {verb}: {saver} at {saved} saved it for backward, and it was"
            " written {how} at {written}, which autograd does not see.",
            x=name, verb=verb, saver=CallOf(value.at), saved=At(saver.site), how=through,
            written=At(write.site),
        ),
        story=tuple(steps),
        repair=Repair(
            say("Write into a copy (`{x!s}.detach().clone()`), or use a call that makes a new"
                " tensor.", x=name)
        ),
    )  # fmt: skip


def _on_ctx(history: History, found: KeptOnCtx) -> Claim:
    called, write = history.events[found.at].site, history.events[found.write].site
    x = Tensor(found.operand.tensor)
    return Claim(
        tensors=(found.operand.tensor,),
        cause=("ctx", called, write),
        site=write,
        operation=history.events[found.write].operation,
        severity="warning",
        message=say(
            "The backward of the Function called at {called} was computed with overwritten values:"
            " it keeps {x} as an attribute of ctx, where PyTorch does not check it, and {call} at"
            " {write} wrote it in between.",
            called=At(called), x=x, call=CallOf(found.write), write=At(write),
        ),
        story=(
            Step("saved", called, say("the Function keeps {x} on its ctx", x=x)),
            Step("written", write, say("written by {call}", call=CallOf(found.write))),
            Step("read", history.events[found.read].site,
                 say("its backward reads what was written")),
        ),
        repair=Repair(
            say("Keep it with ctx.save_for_backward, so that PyTorch checks it, and write into a"
                " new tensor at {write}.", write=At(write))
        ),
        calls=(found.write,),
    )  # fmt: skip


def _of_another(history: History, found: OfAnotherCall) -> Claim:
    events = history.events
    read, kept = events[found.read].site, events[found.kept].site
    parts = {"x": Tensor(found.tensor), "kept": At(kept), "read": At(read)}
    one_memory = found.written != UNKNOWN
    return Claim(
        tensors=(found.tensor,),
        cause=("another", found.name if one_memory else read),
        site=events[found.written].site if one_memory else read,
        operation="apply",
        severity="warning",
        message=say(
            f"The backward of `{found.name}` was computed with what another call had kept: {{read}}"
            " reads {x}, of the call at {kept}, for each of {n} calls that the pass goes through.",
            n=len(found.others) + 1, **parts,
        ),
        story=(
            *(_overwriting if one_memory else _replacing)(history, found),
            Step("read", read, say("it is read for all of them")),
            Step("loss", events[found.backward].site, say("this pass goes through them all")),
        ),
        repair=Repair(
            say("Give each call memory of its own for {x}, and keep it with"
                " ctx.save_for_backward(...), where PyTorch notices a write.", **parts)
            if one_memory
            else say("Keep it on the ctx of the call: ctx.save_for_backward(...), or an attribute"
                     " of ctx for what is no tensor. The class is one for all calls.")
        ),
        count=0,
    )  # fmt: skip


def _replacing(history: History, found: OfAnotherCall) -> Iterator[Step]:
    other, kept = (history.events[at].site for at in (found.others[0], found.kept))
    yield Step("saved", other, say("this call's own was replaced by that of a later call"))
    yield Step("saved", kept, say("{x} belongs to this call", x=Tensor(found.tensor)))
    yield from _makers(history, found.tensor)


def _overwriting(history: History, found: OfAnotherCall) -> Iterator[Step]:
    write, x = history.events[found.written].site, Tensor(found.tensor)
    yield Step("written", write, say("each call writes its own values into {x}, over those of the"
                                     " call before", x=x))  # fmt: skip
    yield from _makers(history, found.tensor)
    for at in (found.others[0], found.kept):
        yield Step("saved", history.events[at].site, say("a call that keeps {x}", x=x))


def _set_anew(history: History, found: SetAnew) -> Claim:
    kept, later = (history.events[at].site for at in (found.kept, found.later))
    verb = "goes by" if found.decides else "reads"
    unknown = "" if found.decides else " Nothing shows that the gradient depends on it."
    return Claim(
        tensors=(),
        subject=f"{found.name}.{found.attribute}",
        cause=("anew", found.name, found.attribute),
        site=later,
        operation="apply",
        severity="warning" if found.decides else "note",
        message=say(
            f"The backward of the call of `{found.name}` at {{kept}} {verb} the"
            f" `{found.attribute}` of a later call, {found.other} and not {found.value}: its"
            " forward sets it where it is one for all calls, and that at {later} came last."
            f"{unknown}",
            kept=At(kept), later=At(later),
        ),
        story=(
            Step("saved", kept, say(f"this call sets it to {found.value}")),
            Step("written", later, say(f"this call sets it to {found.other}")),
            Step("loss", history.events[found.backward].site,
                 say("this pass goes through the first")),
        ),
        repair=Repair(say(f"Keep it on the ctx of the call: ctx.{found.attribute} = ...")),
        count=0,
        calls=(found.later,),
    )  # fmt: skip


def _makers(history: History, tensor: int) -> Iterator[Step]:
    made = history.made_at(tensor)
    if made >= 0:
        yield Step("made", history.events[made].site, say("it is made here"))


VERDICT = Verdict(
    slug="untracked-write",
    severity="error",
    summary="a write that autograd cannot see changed a saved value before backward used it",
    page=PAGE,
    check=check,
    past="some",
    damage="wrong result",
    examples=(
        Example(
            "An attribute of the class, which each call replaces",
            """import torch

class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        Square.x = x
        return x * x

    @staticmethod
    def backward(ctx, gradient):
        return 2 * Square.x * gradient

w = torch.ones(3, requires_grad=True)
(Square.apply(w * 2) + Square.apply(w * 3)).sum().backward()
""",
            (Expected("untracked-write", "Square.x", 11),),
        ),
        Example(
            "Attributes of ctx, and what one call makes for all",
            """import torch

class Square(torch.autograd.Function):
    two = None

    @staticmethod
    def forward(ctx, x):
        if Square.two is None:
            Square.two = torch.full((3,), 2.0)
        ctx.x = x
        return x * x

    @staticmethod
    def backward(ctx, gradient):
        return Square.two * ctx.x * gradient

w = torch.ones(3, requires_grad=True)
(Square.apply(w * 2) + Square.apply(w * 3)).sum().backward()
""",
        ),
    ),
)
