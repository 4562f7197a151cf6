"""Memory that showed the gradient of a parameter, and is read on though `.grad` let go of it.

A program ties `.grad` to memory of its own by an assignment. What sets `.grad` to None, or puts
something else there, drops the tie: later backward passes make new gradients elsewhere, and who
reads the memory reads values that no pass writes any more.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator
from functools import cached_property
from itertools import islice, pairwise
from typing import NamedTuple

import numpy as np

from tether.analysis.copies.other_processes import OtherProcesses
from tether.analysis.history import History, latest
from tether.analysis.sharing.shared_memory import Sharing, Touch
from tether.facts import OUT, UNKNOWN, Event, Operand
from tether.operations.table import operation
from tether.regions import extent, may_overlap, overlaps
from tether.store.numbers import Numbers

LEAST = 2
"""Passes that went elsewhere, each with a read after it, from which on it is certain."""


class PartedGradient(NamedTuple):
    """A parameter whose gradient was kept in memory that is read on without it."""

    tensor: int
    kept: int  # the tensor by which the memory is read on
    tied: int
    dropped: int
    passed: int  # the first pass that made a gradient elsewhere
    read: int  # the first read after it
    blank: bool  # nothing but one value was ever in the memory
    certain: bool


class _Tie(NamedTuple):
    """A parameter, the memory that it was given for its gradient, and from when until when."""

    tensor: int
    gradient: Operand
    since: int
    until: int
    instead: Operand | None = None  # what `.grad` was given in its place; None: nothing
    again: int = UNKNOWN  # when the same parameter is tied to the same memory again; or the end


def parted_gradients(history: History) -> Iterator[PartedGradient]:
    """Yield the parameters whose memory for gradients is read on after `.grad` let go of it."""
    if history.in_part:
        return  # what is not in the recording may have written the memory
    found = history.get(_Ties)
    told: set[int] = set()
    for tie in found.dropped():
        parted = None if tie.tensor in told else found.judge(tie)
        if parted is not None:
            told.add(tie.tensor)
            yield parted


class _Ties:
    """The ties of a trace between `.grad` and memory, and what became of that memory."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._others = history.get(OtherProcesses)
        self._open: dict[int, _Tie] = {}
        self._closed: list[_Tie] = []
        self._owners: dict[int, int] = {}  # what a tensor was given as its gradient -> the tensor
        self._passes: dict[int, list[int]] = defaultdict(list)  # tensor -> what gave it a gradient
        self._given: dict[int, set[int]] = defaultdict(set)  # tensor -> what was assigned to it
        self._pass_through()
        for at, event in history.events.at(_moving(history)):
            self._follow(at, event)
        self._reads = self._reads_of(history.get(Sharing))
        owners = (history.operand_of(tie.tensor) for tie in self._closed)
        self._parameters = {history.flow.memory(one) for one in owners if one is not None}

    def _pass_through(self) -> None:
        history = self._history
        passes = [at for at in history.backwards if history.events[at].operation == "backward"]
        for fact in history.after_backward:
            at = latest(passes, history.position(fact.at))
            for tensor, status in fact.status.items() if at >= 0 else ():
                if status != "none":
                    self._passes[tensor].append(at)

    # -- ties, and what drops them ---------------------------------------------------------------

    def _follow(self, at: int, event: Event) -> None:
        """Note what one call does to the ties."""
        if event.raised or not event.reads:
            return
        if event.operation == "zero_grad":
            for one in event.reads if event.none else ():
                self._drop(one.tensor, at)
        elif event.operation == "backward":
            self._made_anew(at, event)
        elif event.operation == "grad.__set__":
            self._assigned(at, event)
        elif len(event.reads) > 1:  # other memory under the gradient itself
            owner = self._owners.get(event.reads[0].tensor, UNKNOWN)
            if owner in self._open and self._open[owner].gradient.tensor == event.reads[0].tensor:
                self._drop(owner, at)

    def _assigned(self, at: int, event: Event) -> None:
        tensor, given = event.reads[0].tensor, event.reads[1] if len(event.reads) > 1 else None
        if given is not None:
            self._given[tensor].add(given.tensor)
        tie = self._open.get(tensor)
        if tie is not None and given is not None and _same(tie.gradient, given):
            return  # `x.grad /= n` ends by assigning the gradient that is there
        self._drop(tensor, at, given)
        if given is not None and given.storage != UNKNOWN and event.inner == event.site:
            self._owners[given.tensor] = tensor
            self._open[tensor] = _Tie(tensor, given, at, len(self._history.events))

    def _made_anew(self, at: int, event: Event) -> None:
        """Drop what a pass replaced: one that makes a graph of the gradients adds out of place."""
        for tie in list(self._open.values()) if event.create_graph else ():
            written = any(overlaps(tie.gradient, one) for one in event.writes)
            if at in self._passes[tie.tensor] and not written:
                self._drop(tie.tensor, at)

    def _drop(self, tensor: int, at: int, instead: Operand | None = None) -> None:
        tie = self._open.pop(tensor, None)
        if tie is not None:
            self._closed.append(tie._replace(until=at, instead=instead))

    def dropped(self) -> Iterator[_Tie]:
        """Yield the ties that were dropped, each until the same one was made again."""
        groups: dict[tuple[int, int], list[_Tie]] = defaultdict(list)
        for tie in (*self._closed, *self._open.values()):
            groups[tie.tensor, tie.gradient.storage].append(tie)
        for group in groups.values():
            for place, tie in enumerate(group, 1):
                later = islice(group, place, None)
                again = (one.since for one in later if overlaps(one.gradient, tie.gradient))
                if self._open.get(tie.tensor) is not tie:
                    yield tie._replace(again=next(again, len(self._history.events)))

    # -- reads -----------------------------------------------------------------------------------

    def _reads_of(self, sharing: Sharing) -> dict[int, list[Touch]]:
        """Return the reads of the memories of ties, in order, steps of optimizers among them."""
        history, reads = self._history, dict[int, list[Touch]]()
        ties = (*self._closed, *self._open.values())
        for memory in {history.flow.memory(tie.gradient) for tie in self._closed}:
            found = sharing.reads_of(memory)
            reads[memory] = [one for one in found if _goes_on(history.events[one.at])]
        for tie in ties:
            memory = history.flow.memory(tie.gradient)
            steps = (history.position(at) for at in self._steps(tie) if memory in reads)
            reads.get(memory, []).extend(Touch(at, tie.gradient) for at in steps)
        for touches in reads.values():
            touches.sort(key=lambda one: one.at)
        return reads

    def _steps(self, tie: _Tie) -> Iterator[int]:
        """Yield the steps of optimizers that used a gradient while it was the tied memory."""
        steps = self._history.steps_of(tie.tensor)
        yield from steps[bisect_right(steps, tie.since) : bisect_right(steps, tie.until)]

    def _of(self, tie: _Tie, since: int, until: int) -> list[Touch]:
        """Return the reads of what a tie showed, between two calls."""
        touches = self._reads[self._history.flow.memory(tie.gradient)]
        first = bisect_right(touches, since, key=lambda one: one.at)
        last = bisect_left(touches, until, key=lambda one: one.at)
        return [one for one in touches[first:last] if may_overlap(one.operand, tie.gradient)]

    # -- judging ---------------------------------------------------------------------------------

    def judge(self, tie: _Tie) -> PartedGradient | None:
        """Return what was read of a dropped tie, where nothing wrote that any more."""
        reads = self._of(tie, tie.until, tie.again)
        passes = self._elsewhere(tie) if reads else []
        if not passes or self._others.write(tie.gradient) or self._is_written(tie, tie.until):
            return None
        blank, reads = self._meant(tie, reads)
        rounds = _rounds(passes, reads)
        certain = self._is_certain(tie, blank, rounds) if rounds else None
        if certain is None or self._unheard(tie, reads):
            return None
        passed, read = rounds[0]
        return PartedGradient(
            tie.tensor,
            self._kept(read.operand.tensor),
            tie.since,
            tie.until,
            passed,
            read.at,
            blank,
            certain,
        )

    def _kept(self, read: int) -> int:
        """Return the tensor to name memory by: the one that was read, or whose window it is."""
        owner = self._history.get(Sharing).owner(read)
        return read if self._history.names_of(read) else owner

    def _meant(self, tie: _Tie, reads: list[Touch]) -> tuple[bool, list[Touch]]:
        """Return whether memory never held a gradient, and the reads that are meant for a new one.

        What holds one value throughout is no gradient: all reads of it are. An old gradient may be
        kept on purpose, but for a line that read the memory while passes filled it.
        """
        before = self._of(tie, tie.since, tie.until)
        if self._is_blank(tie, before):
            return True, reads
        passes, emptied = self._passes[tie.tensor], self._emptied(tie)
        lines = {self._line(one) for one in before if latest(passes, one.at) >= 0}
        return False, [one for one in reads if one.at > emptied >= 0 or self._line(one) in lines]

    def _emptied(self, tie: _Tie) -> int:
        """Return the first call that wrote one value over a memory since its tie was dropped; -1.

        Nothing else was written there: `_is_written` has seen to that.
        """
        history = self._history
        for at, written in history.get(Sharing).writes.get(history.flow.memory(tie.gradient)):
            overwrites = operation(history.events[at].operation).overwrites
            if tie.until < at < tie.again and overwrites and _covers(written, tie.gradient):
                return at
        return UNKNOWN

    def _is_certain(self, tie: _Tie, blank: bool, rounds: list[tuple[int, Touch]]) -> bool | None:
        """Whether nobody can mean it; None: it may well be meant.

        Who uses the new gradients and still reads memory that once held others may compare them;
        who ties the memory again later knows that it was let go of.
        """
        own, others = self._users(tie, rounds[0][0])
        several, for_good = len(rounds) >= LEAST, tie.again == len(self._history.events)
        if own and not (blank and several):
            return None
        return several and for_good and not own and (blank or not others)

    def _elsewhere(self, tie: _Tie) -> list[int]:
        """Return the passes that made a gradient in other memory since a tie was dropped."""
        passes, events = self._passes[tie.tensor], self._history.events
        found = passes[bisect_right(passes, tie.until) : bisect_left(passes, tie.again)]
        if tie.instead is None:
            return found
        given = self._given[tie.tensor] - {tie.gradient.tensor}
        return [at for at in found if any(one.tensor in given for one in events[at].writes)]

    def _is_written(self, tie: _Tie, since: int) -> bool:
        """Whether values came into what a tie showed, after a call and before it is tied again."""
        history, memory = self._history, self._history.flow.memory(tie.gradient)
        for at, written in history.get(Sharing).writes.get(memory):
            touched = since < at < tie.again and may_overlap(written, tie.gradient)
            if touched and self._brings(history.events[at], memory):
                return True
        return any(
            history.flow.memory_of(one.storage) == memory
            for one in history.trace.unseen
            if since < history.position(one.before)
        )

    def _brings(self, event: Event, memory: int) -> bool:
        """Whether a write puts more into a memory than what was there: zeros, factors do not."""
        row = operation(event.operation)
        if event.operation == "zero_grad" or row.reduces:
            return False
        if row.random or event.flags & OUT or not (row.pointwise or row.overwrites):
            return True
        # What decays the weights adds them to the gradient; what overwrites it has another use.
        known = {memory} if row.overwrites else {memory} | self._parameters
        return self._takes_more(event, known)

    def _takes_more(self, event: Event, known: set[int]) -> bool:
        """Whether a write takes more than one number from memory other than some."""
        memory, written = self._history.flow.memory, {one.tensor for one in event.writes}
        given = (one for one in event.reads if one.tensor not in written)
        single = all(_is_single(one) for one in event.writes)
        return any(memory(one) not in known and (single or not _is_single(one)) for one in given)

    def _is_blank(self, tie: _Tie, before: list[Touch]) -> bool:
        """Whether memory was made for gradients and nothing but one value was ever in it."""
        history = self._history
        made = history.made_at(history.get(Sharing).owner(tie.gradient.tensor))
        if made >= 0 and operation(history.events[made].operation).copies == "move":
            made = history.made_at(history.events[made].reads[0].tensor)
        blank = made >= 0 and operation(history.events[made].operation).blank
        return blank and not before and not self._is_written(tie, UNKNOWN)

    def _users(self, tie: _Tie, since: int) -> tuple[bool, bool]:
        """Return whether the program's own calls, and others, use the gradients made elsewhere."""
        events, own, others = self._history.events, False, self._is_stepped(tie, since)
        for at in self._reads_elsewhere(tie, since):
            event = events[at]
            made = {one.tensor for one in event.results}
            if made and made <= self._given[tie.tensor]:
                continue  # `x.grad = x.grad / n`: it stays the gradient
            own, others = own or event.inner == event.site, True
        return own, others

    def _reads_elsewhere(self, tie: _Tie, since: int) -> Iterator[int]:
        """Yield the calls that read the new gradients, which were asked for or assigned."""
        history, memory = self._history, self._history.flow.memory
        found = set() if tie.instead is None else {memory(tie.instead)}
        found |= {one for at, one in self._looked[tie.tensor] if since < at < tie.again}
        for one in found - {memory(tie.gradient)}:
            touches = history.get(Sharing).reads_of(one)
            yield from (touch.at for touch in touches if since < touch.at < tie.again)

    @cached_property
    def _looked(self) -> dict[int, list[tuple[int, int]]]:
        """Tensor -> when its gradient was asked for, and the memory of that."""
        found = defaultdict[int, list[tuple[int, int]]](list)
        for at, event in self._history.events.where("grad.__get__".__eq__):
            memories = (self._history.flow.memory(one) for one in event.results)
            found[event.reads[0].tensor].extend((at, one) for one in memories)
        return found

    def _is_stepped(self, tie: _Tie, since: int) -> bool:
        """Whether an optimizer uses the gradients made elsewhere; one that reads the memory: no."""
        steps, history = self._history.steps_of(tie.tensor), self._history
        reads = self._of(tie, since, tie.again)
        inside = any(history.inside(history.events[one.at], "step") >= 0 for one in reads)
        return not inside and bisect_right(steps, since) < bisect_right(steps, tie.again)

    def _unheard(self, tie: _Tie, reads: list[Touch]) -> bool:
        """Whether a version moved between two reads though no write was recorded."""
        writes = self._all_writes(tie)
        seen: dict[int, list[Touch]] = defaultdict(list)
        for one in (*self._of(tie, tie.since, tie.until), *reads):
            seen[one.operand.tensor].append(one)
        return any(
            one.operand.version != then.operand.version
            and bisect_left(writes, one.at) == bisect_left(writes, then.at)
            for touches in seen.values()
            for one, then in pairwise(touches)
        )

    def _all_writes(self, tie: _Tie) -> list[int]:
        """Return the writes to a memory, in order, and to what left it and counts with it."""
        history = self._history
        memory = history.flow.memory(tie.gradient)
        found = {one.at for one in history.get(Sharing).writes.get(memory)}
        for one in self._beside[memory]:
            last = history.operand_of(one)
            if last is not None and history.flow.memory(last) != memory:
                found.update(history.writes_to(last))
        return sorted(found)

    @cached_property
    def _beside(self) -> dict[int, set[int]]:
        """Memory -> the tensors on it that were given to parameters as their gradients."""
        found = defaultdict[int, set[int]](set)
        for tie in self._closed:
            found[self._history.flow.memory(tie.gradient)].add(tie.gradient.tensor)
        return found

    def _line(self, read: Touch) -> tuple[int, str]:
        event = self._history.events[read.at]
        return event.site, event.operation


def _moving(history: History) -> Numbers:
    """Return the calls that may tie a gradient to memory, from the first that does so on."""
    assigns = history.events.called("grad.__set__".__eq__)
    tied = np.logical_or.accumulate(assigns)
    return np.flatnonzero(tied & history.events.called(_moves))


def _moves(name: str) -> bool:
    """Whether a call may tie a gradient to memory, or drop a tie."""
    row = operation(name)
    return name in ("zero_grad", "backward") or row.notes == "gradient assigned" or row.rebinds


def _same(a: Operand, b: Operand) -> bool:
    """Whether two operands show the same elements in the same order."""
    return a.storage == b.storage and a[3:7] == b[3:7]


def _covers(whole: Operand, part: Operand) -> bool:
    """Whether all elements of an operand are among those of another one, which has no gaps."""
    (first, last), (start, end) = extent(whole), extent(part)
    same = whole.storage == part.storage and whole.dtype == part.dtype
    return same and first <= start and end <= last and math.prod(whole.shape) == last - first


def _goes_on(event: Event) -> bool:
    """Whether what a call read goes on: into tensors, into numbers, to other processes."""
    row = operation(event.operation)
    if not row.carries or event.operation == "save" or row.leaves in ("answer", "text", "pickle"):
        return False
    return bool(event.results or event.writes or row.leaves)


def _is_single(operand: Operand) -> bool:
    return all(size == 1 for size in operand.shape)


def _rounds(passes: list[int], reads: list[Touch]) -> list[tuple[int, Touch]]:
    """Return the passes after which there was a read before the next one, each with the read."""
    found = []
    for passed, then in pairwise([*passes, 1 << 62]):
        at = bisect_right(reads, passed, key=lambda one: one.at)
        if at < len(reads) and reads[at].at < then:
            found.append((passed, reads[at]))
    return found
