"""Changes of gradients in place that were cleared again before anything used them.

A gradient is used by the step of an optimizer that holds its tensor, and by every call that reads
its memory and does more than change it in place. What is let go of may be read by whoever still
has it; what is overwritten is gone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterator
from typing import NamedTuple

import numpy as np

from tether.analysis.history import History, following
from tether.facts import UNKNOWN, Event, Operand
from tether.finding import At, CallOf, Claim, Repair, Step, Where, say
from tether.operations.table import operation
from tether.regions import overlaps
from tether.store.numbers import Numbers


class LostChange(NamedTuple):
    """A line that changes gradients in place, each time for nothing."""

    write: int  # its first call
    cleared: int  # the call that cleared what it had changed
    step: int  # the step that came next and used another gradient
    tensors: tuple[int, ...]  # whose gradients
    times: int  # how many changes were cleared


class _Fate(NamedTuple):
    tensor: int
    write: int
    cleared: int
    step: int


def lost_changes(history: History) -> Iterator[LostChange]:
    """Yield the lines of which no change was used, and several were seen to be cleared."""
    changes = _Changes(history)
    for writes in changes.by_line():
        fates: list[_Fate] = []
        for at, gradient in writes:
            fate = changes.fate(at, gradient)
            if fate is None:
                break
            if fate.cleared != UNKNOWN:
                fates.append(fate)
        else:
            tensors = tuple(dict.fromkeys(one.tensor for one in fates))
            count = len({one.cleared for one in fates})
            if count > 1:
                first = fates[0]
                yield LostChange(first.write, first.cleared, first.step, tensors, count)


class _Changes:
    def __init__(self, history: History) -> None:
        self._history = history
        self._owners: dict[int, set[int]] = defaultdict(set)  # gradient -> tensors that had it
        self._cleared: dict[int, list[int]] = defaultdict(list)  # tensor -> positions
        self._given: dict[int, int] = {}  # what became a gradient by an assignment -> where first
        has: dict[int, int] = {}  # tensor -> the gradient that it has, as far as it was seen
        for at, event in history.events.at(_handing_over(history)):
            if event.operation == "zero_grad":
                for one in event.reads:
                    self._cleared[one.tensor].append(at)
            elif event.reads:
                owner = int(event.reads[0].tensor)
                gradients = [int(one.tensor) for one in (*event.reads[1:], *event.results)]
                for gradient in gradients:
                    if event.operation == "grad.__set__" and gradient not in self._owners:
                        self._given[gradient] = at
                    self._owners[gradient].add(owner)
                # `p.grad /= n` ends by giving the tensor the gradient that it has.
                if event.operation == "grad.__set__" and has.get(owner) not in gradients:
                    self._cleared[owner].append(at)
                has[owner] = gradients[0] if gradients else UNKNOWN

    def by_line(self) -> Iterator[list[tuple[int, int]]]:
        """Yield for each line of the program's its changes: the call, and the gradient."""
        events, found = self._history.events, defaultdict(list)
        at_of, operands = events.touched("writes")
        tensors = events.operands.column("tensor")[operands]
        owned = np.isin(tensors, list(self._owners))
        for at, tensor in zip(at_of[owned].tolist(), tensors[owned].tolist(), strict=True):
            if _changes(events[at]):
                found[events[at].site].append((at, tensor))
        yield from found.values()

    def fate(self, at: int, gradient: int) -> _Fate | None:
        """Return what cleared a changed gradient, if anything did; None: it was used."""
        history = self._history
        owners = self._owners[gradient]
        if len(owners) > 1 or history.inside(history.events[at], "step") >= 0:
            return None
        if at < self._given.get(gradient, 0):
            return None  # what is added up beside the gradients, and given to a parameter then
        (tensor,) = owners
        cleared = following(self._cleared[tensor], at)
        steps = history.steps_of(tensor)
        step = following(steps, at)
        overwritten = self._overwritten(at, gradient, cleared)
        if overwritten is None:
            return None
        end = overwritten if overwritten != UNKNOWN else cleared
        if end == UNKNOWN or step == UNKNOWN:
            return _Fate(tensor, at, UNKNOWN, step)
        return _Fate(tensor, at, end, step) if self._before(end, step, at) else None

    def _overwritten(self, at: int, gradient: int, cleared: int) -> int | None:
        """Return where a gradient was overwritten before it was let go of; None: it was read."""
        history = self._history
        operand = next(one for one in history.events[at].writes if one.tensor == gradient)
        for later in history.on_storage(operand):
            event = history.events[later]
            if later <= at or not operation(event.operation).carries:
                continue
            if cleared == UNKNOWN or later < cleared:
                whole = operation(event.operation).overwrites
                if whole and any(one.tensor == gradient for one in event.writes):
                    return later
            if any(overlaps(operand, one) for one in _used(event)):
                return None
        return UNKNOWN

    def _before(self, cleared: int, step: int, at: int) -> bool:
        """Whether a gradient was cleared before a step could use it.

        Within a step that is so in the first run of its closure, if the change was made before.
        """
        history = self._history
        if cleared > step:
            return False
        trace, span = history.trace, history.events[cleared].span
        while span != UNKNOWN and trace.spans[span].kind not in ("closure", "step"):
            span = trace.spans[span].parent
        if span == UNKNOWN:
            return True
        inner = trace.spans[span]
        if inner.kind == "step" or history.position(inner.first) <= at:
            return False
        return not any(one.kind == "closure" and one.parent == inner.parent
                       for one in trace.spans[inner.parent + 1 : span])  # fmt: skip


def _handing_over(history: History) -> Numbers:
    """Return the calls that take, give or clear gradients; none where all of them clear."""
    handed = history.events.called(_hands_over)
    clears = history.events.called("zero_grad".__eq__)
    if not (handed & ~clears).any():
        return np.empty(0, np.int64)
    return np.flatnonzero(handed)


def _hands_over(name: str) -> bool:
    """Whether a call takes, gives or clears the gradient of a tensor."""
    return name == "zero_grad" or operation(name).notes.startswith("gradient")


def _changes(event: Event) -> bool:
    """Whether a call changes what is there, and does not only set it anew."""
    row = operation(event.operation)
    return row.carries and not row.overwrites


def _used(event: Event) -> Iterator[Operand]:
    """Yield what a call reads and does not only change in place."""
    written = {one.tensor for one in event.writes}
    kept = all(one.tensor in written for one in event.results)
    yield from (one for one in event.reads if not kept or one.tensor not in written)


def claims(history: History, told: Container[Where]) -> Iterator[Claim]:
    """Give one claim for each such line that was not told of."""
    for found in lost_changes(history):
        if history.events[found.cleared].site not in told:
            yield _claim(history, found)


def _claim(history: History, change: LostChange) -> Claim:
    events = history.events
    written, cleared, step = (events[at].site for at in (change.write, change.cleared, change.step))
    return Claim(
        tensors=change.tensors,
        cause=("change", written),
        site=written,
        calls=(change.write,),
        operation=events[change.write].operation,
        message=say(
            "The gradient of {subject} was changed at {written} and cleared at {cleared} before the"
            " step at {step}, each of {n} times: no step used the change.",
            written=At(written), cleared=At(cleared), step=At(step), n=change.times,
        ),
        story=(
            Step("written", written, say("{call} changes the gradient in place",
                 call=CallOf(change.write))),
            Step("cleared", cleared, say("it is cleared here, and made anew")),
            Step("step", step, say("the optimizer steps with a gradient that was not changed")),
        ),
        repair=Repair(
            say(
                "Change the gradient between the backward pass and the step that uses it; where"
                " the step is given a closure, inside the closure, after its backward pass."
            )
        ),
        count=change.times,
    )  # fmt: skip
