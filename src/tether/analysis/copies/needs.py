"""Whether a copy was needed: what would have gone otherwise had it been its source.

Asked of every call that made what was there already (`already_there`). Each condition that fails is
a reason, with the event it rests on; what the recording cannot tell makes the answer "unknown". A
copy that nothing in the whole program read, and of which nothing took a view, was not needed,
whatever was written, if none of its line was read. Of any other is asked, in this order:

- the source was written while the copy lived, or the copy while the source did. Lived, not read:
  memory lives as long as anything holds it, the gradient graph and exported arrays included;
- the copy as an object had something of its own: a hook, a retained gradient, a place in an
  optimizer, a ``requires_grad_``, a name inside a module;
- another layout was relied upon (`relied_layout`);
- the copy let a much larger memory go;
- the gradient graph would add up a gradient in another order.

A site's answer is the gravest of its executions': one that needed the copy is enough.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from tether.analysis.copies.already_there import (
    AlreadyThere,
    Copied,
    by_values,
    copied_on,
    may_differ,
    nbytes,
    within_one,
)
from tether.analysis.copies.gives_back import computes, doubt, pays
from tether.analysis.copies.layouts import contiguous, remapped, same_layout
from tether.analysis.copies.lingering import Lingering
from tether.analysis.copies.memory_lives import MAY, MemoryLives, MemoryWrite
from tether.analysis.copies.other_processes import OtherProcesses
from tether.analysis.copies.relied_layout import ReliedLayout
from tether.analysis.copies.sparse_changes import SparseChanges
from tether.analysis.gradients.graph import Graph
from tether.analysis.history import History, following
from tether.analysis.sharing.odd_writes import OddWrite, OddWrites
from tether.analysis.surroundings import Surroundings
from tether.analysis.training.rates import LOADS
from tether.facts import LEAST_OF_A_LIST, UNKNOWN, Event, Operand, SiteId, Span, Taken
from tether.operations.table import ALL, operation
from tether.regions import may_overlap
from tether.source.calls import called_by, copied_text, lists_parts
from tether.source.written_out import joins_as_many, joins_each, takes_the_same

Needed = Literal["yes", "no", "unknown"]

_CLOSED = {
    "function": "inside an autograd.Function",
    "hook": "inside a hook",
    "backward": "inside a backward pass",
    "step": "inside an optimizer's step",
    "compiled": "inside a compiled region",
    "transform": "inside a torch.func transform",
    "checkpoint": "inside a checkpointed block, which runs twice",
}
"""Spans in which a copy plays a part that the facts do not tell."""

_BLIND = frozenset({"killed", "failed", "pytorch", "thread", "compiled", "traced", "memory"})
"""Gaps beside which memory may have been read unseen."""

_FAR = 1_000  # events behind an index that are looked through

FLOOR = 64 << 10  # bytes: how much more memory a copy must let go to be worth having

LOOKED = 32
"""Arrays of a line that were looked at, and not written, by which the others of it are judged."""

MOST_PARTS = 16
"""Parts of one memory whose copies are counted together."""

OFTEN = 8
"""Runs of a line that each took everything in order, by numbers made of the values: fewer may be
an order that came about by chance."""

Key = tuple[int, int, str]
"""A copying line: the user's site, the library's site (or -1) and the operation."""


class WhyNeeded(NamedTuple):
    """Why a copy was needed, or why that is not known."""

    needed: Needed
    text: str  # a clause: "line 31 writes `x` while `identity` lives"
    at: int = UNKNOWN  # the event it rests on
    rounds: bool = False  # no more than rounding could differ: the source lies as is computed


@dataclass
class Need:
    """The answer for one site."""

    operation: str
    needed: Needed = "no"
    reason: str = ""  # the first that weighs most; "" when it was not needed
    at: int = UNKNOWN  # the event that the reason rests on
    count: int = 0
    bytes: int = 0  # copied, in all its executions
    executions: list[Copied] = field(default_factory=list)
    relaid: bool = False  # its copies have another layout than their sources
    unread: int = 0  # executions whose copies nothing read
    bound: bool = False  # more than calls that copy would have to go
    chosen: bool = False  # the values of the source decided what was taken of it: everything
    rounds: bool = True  # if it was needed, then for the rounding of what is computed of it
    rests_on: set[Key] = field(default_factory=set)  # the lines that would have to go as well
    looked: int = 0  # executions of which the array was looked at, where others' were not
    passed_over: int = 0  # other runs, whose results were too small to be looked at
    single: bool = False  # joins that were given one tensor each, where the text lists none
    replaces: bool = False  # a copy was written, of a source that nothing used again
    lingers: bool = False  # a source was written as no line could read its copy any more

    def add(self, reason: WhyNeeded | None) -> None:
        """Join the answer for one more execution: one that needed the copy decides."""
        rank = {"no": 0, "unknown": 1, "yes": 2}
        self.rounds &= reason is None or reason.rounds
        if reason is not None and rank[reason.needed] > rank[self.needed]:
            self.needed, self.reason, self.at = reason.needed, reason.text, reason.at


def needs(history: History) -> dict[Key, Need]:
    """Return for every line that copies whether its copies were needed."""
    return history.get(CopyNeeds).found


def read_unseen(history: History) -> bool:
    """Whether this process may have read memory of which no read is recorded.

    Of other processes `OtherProcesses` is asked, for each memory.
    """
    blind = any(one.code in _BLIND for one in history.trace.gaps)
    return blind or not (history.trace.program and history.whole)


def left_out_with(history: History, key: Key) -> list[Key]:
    """Return the lines that are left out together, so that a line's copies are not made.

    Their sources stand for what they made. Empty where the copies are needed, or where more than
    these calls would have to go.
    """
    found = needs(history)
    keys = [key, *sorted(found[key].rests_on)]
    return keys if all(found[one].needed == "no" and not found[one].bound for one in keys) else []


def needed_by_site(history: History) -> dict[tuple[int, str], tuple[Needed, str]]:
    """Return the answers by (site, operation), lines of libraries joined with what led there."""
    joined: dict[tuple[int, str], Need] = {}
    for (site, _, _), need in needs(history).items():
        for name in {history.events[one.position].operation for one in need.executions}:
            total = joined.setdefault((site, name), Need(name))
            total.add(WhyNeeded(need.needed, need.reason, need.at))
    return {key: (need.needed, need.reason) for key, need in joined.items()}


class CopyNeeds:
    """The answers for one history, by copying line.

    A copy that was not needed counts as its source from then on: of a copy of a copy one may go
    where both may not.
    """

    def __init__(self, history: History) -> None:
        there = history.get(AlreadyThere)
        self.found: dict[Key, Need] = {}
        made: list[Copied] = []
        for position, copies in there.by_position.items():
            need = self._need(history, position)
            need.executions += copies
            need.count += 1
            made += copies
        for position in there.unseen:
            known = self.found.get(_key(history, history.events[position]))
            if known is None:
                continue
            of_lists = all(one.taken is None for one in known.executions)
            if of_lists and _was_passed_over(history.events[position]):
                known.passed_over += 1
            else:
                text = "not all of its runs were seen to give what was there already"
                known.add(WhyNeeded("unknown", text, position))
        judge = Judge(history, made)
        for key, need in self.found.items():
            judge.library = key[1] != UNKNOWN
            judge.often = need.count >= OFTEN
            self._answer(judge, need)
        self._give_up()

    def _give_up(self) -> None:
        """Take back what rests on lines whose copies stay, and what rests on that."""
        waiting = [need for need in self.found.values() if need.needed == "no" and need.rests_on]
        while left := [one for one in waiting if any(map(self._stays, one.rests_on))]:
            for need in left:
                text = "it lets memory go, where copies of other parts of that stay"
                need.add(WhyNeeded("unknown", text))
            waiting = [one for one in waiting if one.needed == "no"]

    def _stays(self, key: Key) -> bool:
        return self.found[key].needed != "no"

    def _need(self, history: History, position: int) -> Need:
        key = _key(history, history.events[position])
        return self.found.setdefault(key, Need(key[2]))

    def _answer(self, judge: Judge, need: Need) -> None:
        read: list[Copied] = []
        unread: list[Copied] = []
        need.looked = judge.look_at_arrays(need.executions)
        for one in need.executions:
            need.bytes += nbytes(one.copy)
            need.relaid |= not same_layout(one.source, one.copy)
            if need.needed == "yes":
                continue
            answer = judge.unread(one)
            need.bound |= bool(answer) or judge.bound(one)
            (read if answer is None else unread).append(one)
            if answer is None:
                need.add(judge.reason(one))
                need.replaces |= judge.is_written(one)
                # Of a line that ran less often nothing is said where values choose.
                need.chosen = need.chosen or (
                    judge.often and judge.chosen_by(one, judge.event(one)) != UNKNOWN
                )
        need.unread = len(unread)
        self._conclude(judge, need, read, unread)

    def _conclude(self, judge: Judge, need: Need, read: list[Copied], unread: list[Copied]) -> None:
        """Ask of copies that nothing read as well, where others of the line were read.

        One that another took the place of would have been read in its stead.
        """
        for one in unread if read else ():
            need.add(judge.reason(one))
        if need.needed == "no" and read:
            need.add(judge.coincidence(read[0]) if need.count == 1 else judge.of_one(read[0]))
            need.single = judge.is_single(read[0])
            need.lingers = any(map(judge.lingers, read))
        if need.needed == "no":
            for one in read:
                need.rests_on |= judge.rests_on(one)
            for one in read:
                judge.leave_out(one)


def _repeats(event: Event) -> bool:
    """Whether a call says elements several times over, or is given an expanded tensor to copy."""
    row = operation(event.operation)
    spread = (
        any(size > 1 and not stride for size, stride in zip(one.shape, one.strides, strict=True))
        for one in event.reads
    )
    return bool(row.repeats) or (bool(row.copies or row.regroups) and any(spread))


def _apart(parts: Sequence[Copied]) -> bool:
    """Whether copies are of other elements of one memory each, as far as their places say."""
    places = {(one.source.offset, one.source.shape, one.source.strides) for one in parts}
    pairs = combinations((one.source for one in parts), 2)
    return len(places) == len(parts) and not any(may_overlap(*pair) for pair in pairs)


def _was_passed_over(event: Event) -> bool:
    """Whether a call made of a list what is too small to be compared with what became one."""
    small = all(nbytes(one) < LEAST_OF_A_LIST for one in event.results)
    return small and not event.reads and operation(event.operation).enters


def _key(history: History, event: Event) -> Key:
    if not _own_line(history, event):
        return (event.site, event.inner, event.operation)
    whole = "__deepcopy__" if _deep(history, event) else event.operation
    return (event.site, UNKNOWN, whole)


def _own_line(history: History, event: Event) -> bool:
    """Whether the user's line makes the copy itself; ``copy.deepcopy`` is no library here."""
    if event.inner in (UNKNOWN, event.site):
        return True
    if operation(event.operation).rows:
        return _is_layer(history, event)
    deep = "__deepcopy__"
    return _deep(history, event) and operation(deep).typed in history.site_of(event).expression


def _is_layer(history: History, event: Event) -> bool:
    """Whether a line calls the layer that holds a table, by the table's own name."""
    layer = called_by(history.site_of(event).expression)
    own = (one.removesuffix(".weight") for one in history.names_of(event.reads[1].tensor))
    return bool(layer) and layer in {one.rpartition(".")[2] for one in own}


def _deep(history: History, event: Event) -> bool:
    """Whether an event is one tensor's part of a deep copy, perhaps of a whole model."""
    within = history.site(event.inner).function.rpartition(".")[2]
    return "__deepcopy__" in (event.operation, within)


class Judge:
    """The judgement of one execution, with the indexes that it needs."""

    def __init__(self, history: History, made: Sequence[Copied]) -> None:
        self.history = history
        self.trace = history.trace
        self.flow = history.flow
        self.whole = bool(self.trace.program) and history.whole
        self.held = history.held
        self._blind = read_unseen(history)
        self.library = False  # the copy in question is made by a library's line
        self.often = False  # its line ran often, and gave what was there each time
        self.left_out: dict[int, Copied] = {}  # storage of a copy that is its source
        self._stand_in: set[int] = set()  # memories that count for copies that were left out
        pairs = [(one.source, one.copy) for one in made]
        self.lives = MemoryLives(history, {self.flow.memory(one) for pair in pairs for one in pair})
        self.reads: dict[int, list[int]] = defaultdict(list)  # tensor -> events that read it
        self._known_readers: dict[int, tuple[dict[int, list[int]], list[int]]] = {}
        self._nodes_of: dict[int, list[int]] = {}
        self._index_reads({operand.tensor for pair in pairs for operand in pair})
        self._parts: dict[int, list[Copied]] = defaultdict(list)
        for copied in made:
            self._parts[copied.position].append(copied)
        self._runs: dict[SiteId, list[Copied]] = defaultdict(list)  # line -> the first part of each
        for position, parts in self._parts.items():
            self._runs[history.events[position].site].append(parts[0])
        self._of_one: dict[tuple[SiteId, int], list[Copied]] = defaultdict(list)  # line, memory
        self._of_memory: dict[int, list[Copied]] = defaultdict(list)
        for one in made:
            self._of_one[self.event(one).site, one.source.storage].append(one)
            self._of_memory[one.source.storage].append(one)
        self._known_heard: dict[SiteId, bool] = {}
        self._asked: set[int] = set()
        self._usual = -1.0  # calls that the arrays of a line lived for that were not written

    def _index_reads(self, tensors: set[int]) -> None:
        events = self.history.events
        at, rows = events.touched("reads")
        saves = events.called("save".__eq__)
        chosen = saves.copy()
        chosen[at[np.isin(events.operands.column("tensor"), list(tensors))[rows]]] = True
        for position, event in events.at(np.flatnonzero(chosen)):
            reads = self.history.saved(position) if saves[position] else event.reads
            for one in {one.tensor for one in reads} & tensors:
                self.reads[one].append(position)

    def leave_out(self, copied: Copied) -> None:
        """Let a copy count as its source from now on."""
        if copied.taken is not None:
            return
        self.lives.join(copied.source, copied.copy)
        self._stand_in.add(self.lives.memory(copied.source))
        if not copied.part:
            self.left_out[copied.copy.storage] = copied

    def _resolved(self, source: Operand) -> tuple[Operand, list[int]]:
        """Return a source as it would be without the copies left out before, and where they are."""
        without: list[int] = []
        while (made := self.left_out.get(source.storage)) and made.position not in without:
            found = remapped(source, made.copy, made.source)
            if found is None:
                break
            source = found
            without.append(made.position)
        return source, without

    def rests_on(self, copied: Copied) -> set[Key]:
        """Return the lines that have to go as well: while they copy, this copy is needed."""
        source, without = self._resolved(copied.source)
        found = set[Key]()
        if without and (self.layout(copied) or self._size(copied)):
            found = {_key(self.history, self.history.events[at]) for at in without}
        if self._let_go(copied._replace(source=source), by_line=True):
            beside = self._beside(copied._replace(source=source))
            found |= {_key(self.history, self.event(one)) for one in beside}
        return found - {_key(self.history, self.event(copied))}

    def look_at_arrays(self, executions: Sequence[Copied]) -> int:
        """Learn how long a line's arrays lived that were looked at; count them if not all were.

        There is not time to look at all, where many are made: those that live no longer go the
        same way.
        """
        arrays = [(one, one.taken) for one in executions if one.taken is not None]
        lives = [self._array_lives(*one) for one in arrays if one[1].changed == "no"]
        enough = len(lives) >= LOOKED
        self._usual = max(lives) if enough else -1.0
        return len(lives) if enough and any(fact.changed == "unknown" for _, fact in arrays) else 0

    def _array_lives(self, copied: Copied, taken: Taken) -> float:
        """Return for how many calls the array lived that a tensor was made of."""
        gone = taken.released != UNKNOWN
        return self.history.position(taken.released) - copied.position if gone else math.inf

    # -- one execution ---------------------------------------------------------------------------

    def event(self, copied: Copied) -> Event:
        """Return the call that made a copy."""
        return self.history.events[copied.position]

    def reason(self, copied: Copied) -> WhyNeeded | None:
        """Return why the copy was needed or why that is unknown; None when it was not needed."""
        event = self.event(copied)
        if copied.taken is not None:
            return self.unseen(copied, event) or self.of_array(copied, copied.taken)
        copied = copied._replace(source=self._resolved(copied.source)[0])
        return (
            self.unseen(copied, event)
            or self._guards(copied, event)
            or self._computed(copied, event)
            or self._writes_of_source(copied)
            or self._writes_of_copy(copied)
            or self._object(copied)
            or self._size(copied)
            or self._kept(copied)
            or self._order(copied)
            or self.layout(copied)
        )

    def unread(self, copied: Copied) -> bool | None:
        """Say of a copy that nothing in the whole program read whether it was written.

        None for any other. A call that writes nothing but it has read nothing for anybody else. One
        that gives a view of it, or the copy itself, makes use of it: who was handed that may have
        it still, and may be no code that is heard. All the more a view that its source could not
        give.
        """
        memory = self.flow.memory(copied.copy)
        event = self.history.events[copied.position]
        if self.history.inside(event, *_CLOSED) >= 0:
            return None  # the engine reads what a backward or a hook returns
        if self.library or self._blind or memory in self.lives.exported:
            return None
        if self._of_others(copied) or self._was_read(copied) or self._was_handed_on(copied):
            return None
        layout = self.layout(copied._replace(source=self._resolved(copied.source)[0]))
        if layout is not None and layout.needed == "yes":
            return None
        later = self._afterwards(copied)
        return any(self.flow.memory(one) == memory for event in later for one in event.writes)

    def _heard(self, copied: Copied) -> bool:
        """Whether a call is heard that reads what the line made once, or a part of it.

        What no run of the line hands to a call that is heard is read in a way that is not.
        """
        site = self.history.events[copied.position].site
        if site not in self._known_heard:
            self._known_heard[site] = any(map(self._was_read, self._runs[site]))
        return self._known_heard[site]

    def _was_read(self, copied: Copied) -> bool:
        memory = self.flow.memory(copied.copy)
        return not all(self._reads_nothing(one, memory) for one in self._afterwards(copied))

    def _was_handed_on(self, copied: Copied) -> bool:
        """Whether a call gave a view of a copy, or the copy itself, and did not write it.

        Not what the copying itself goes on to make of it: a deep copy makes it a Parameter.
        """
        memory, own = self.flow.memory(copied.copy), self.event(copied).site
        return any(
            self.flow.memory(one) == memory
            for event in self._afterwards(copied)
            if event.site != own
            for one in event.results
            if all(one.tensor != written.tensor for written in event.writes)
        )

    def _afterwards(self, copied: Copied) -> Iterator[Event]:
        """Yield the calls on a copy's memory that came after it."""
        for at in self.history.on_storage(copied.copy):
            if at > copied.position:
                yield self.history.events[at]

    def _reads_nothing(self, event: Event, memory: int) -> bool:
        """Whether an event gives or writes nothing but a memory, if it was given that at all.

        What an optimizer loads its steps read.
        """
        row = operation(event.operation)
        if event.operation == LOADS and event.results:
            return False
        given = any(self.flow.memory(one) == memory for one in event.reads)
        out = {self.flow.memory(one) for one in (*event.results, *event.writes)}
        changes = row.own or (row.replaces and not row.makes)  # the object, which would be another
        if (given and changes) or self._trains(event, memory):
            return False
        return not given or out == {memory}

    def _trains(self, event: Event, memory: int) -> bool:
        """Whether an optimizer holds what an event was given or gave of a memory."""
        operands = (*event.reads, *event.results)
        return any(one.tensor in self.held and self.flow.memory(one) == memory for one in operands)

    def bound(self, copied: Copied) -> bool:
        """Whether more than the call itself would have to go, were the copy left out."""
        event = self.history.events[copied.position]
        row = operation(event.operation)
        filled = bool(row.writes) and not within_one(self.history, copied.position)
        module = _deep(self.history, event) and event.operation != "__deepcopy__"
        outside = not event.reads and not row.copies  # no function mode hears `from_numpy`
        more = filled or module or outside or computes(event)
        return copied.part or copied.taken is not None or more

    # -- what the recording cannot tell ----------------------------------------------------------

    def unseen(self, copied: Copied, event: Event) -> WhyNeeded | None:
        """Give what the recording cannot tell of this execution."""
        if self.history.in_part:
            return WhyNeeded("unknown", "not all of the run is in the recording")
        if copied.part and not self._heard(copied):
            return WhyNeeded("unknown", "nothing was heard to read it, in one piece or in parts")
        return (
            self._of_others(copied)
            or self._lost(copied)
            or self._inside(copied, event)
            or self._opaque(copied)
            or self._elsewhere(copied, event.thread)
        )

    def _of_others(self, copied: Copied) -> WhyNeeded | None:
        """Ask for other processes: those that show the same memory, and those forked off."""
        others, doubt = self.history.get(OtherProcesses), ""
        if others.write(copied.source) or others.write(copied.copy):
            doubt = "another process shows its memory, and may write it"
        elif others.sent(copied.source) and not self._never_written(copied):
            doubt = "who sent its source may see what is written to it"
        elif others.sent(copied.source) and self._kept_for_long(copied):
            doubt = "it lets memory go that another process shows"
        doubt = doubt or others.use(copied, self.lives)
        return WhyNeeded("unknown", doubt) if doubt else None

    def _lost(self, copied: Copied) -> WhyNeeded | None:
        """Ask for writes that went into another copy: put right, they write one of the two."""
        memories = {self.lives.memory(one) for one in (copied.source, copied.copy)}
        for one in self._lost_writes:
            meant = self.history.operand_of(one.tensor)
            if meant is not None and self.lives.memory(meant) in memories:
                text = f"what {self._line(one.write)} writes was meant for it, or for its source"
                return WhyNeeded("unknown", text, one.write)
        return None

    @cached_property
    def _lost_writes(self) -> list[OddWrite]:
        return [one for one in self.history.get(OddWrites).all if one.kind == "lost"]

    def _kept_for_long(self, copied: Copied) -> bool:
        """Whether a copy lived on when its line made the one after the next."""
        runs = [one.position for one in self._runs[self.history.events[copied.position].site]]
        after = bisect_right(runs, copied.position) + 1
        return after < len(runs) and self.lives.until(copied.copy) > runs[after]

    def _inside(self, copied: Copied, event: Event) -> WhyNeeded | None:
        """Ask for spans in which a copy plays a part that the facts do not tell."""
        number = event.span
        while number != UNKNOWN:
            span = self.trace.spans[number]
            open_ = self._stepped_apart(span, copied) or self._kept_by_function(span, copied)
            if span.kind in _CLOSED and not open_:
                return WhyNeeded("unknown", _CLOSED[span.kind])
            number = span.parent
        return None

    def _opaque(self, copied: Copied) -> WhyNeeded | None:
        """Ask for memory that others may write unheard, and tensors that are more than elements."""
        at_once = self._copied_on_at_once(copied)
        for one in (copied.source, copied.copy):
            kind = self._kind(one)
            if kind not in ("Tensor", "Parameter", "Buffer"):
                return WhyNeeded("unknown", f"a {kind} may be more than its elements")
            if at_once:
                continue
            if self.lives.memory(one) in self.lives.exported and self._unwatched(one):
                return WhyNeeded("unknown", "an array on its memory may have been written unheard")
            if self.lives.memory(one) in self.lives.addressed:
                return WhyNeeded("unknown", "what is done with its address is not heard")
        if not at_once and self._outlived_by_array(copied):
            return WhyNeeded(
                "unknown", "the array behind its source may have been written later on"
            )
        if copied.copy.dtype.startswith("complex"):
            return WhyNeeded("unknown", "a complex tensor may be conjugated in name only")
        if copied.source.version == UNKNOWN != copied.copy.version:
            return WhyNeeded("yes", "its source is an inference tensor, and it is none")
        return None

    def _elsewhere(self, copied: Copied, thread: int) -> WhyNeeded | None:
        """Ask for other threads, and for transfers that nobody waited for."""
        for tensor in (copied.source.tensor, copied.copy.tensor):
            threads, transfers = self._readers(tensor)
            others = [found for one, found in threads.items() if one != thread]
            later = [following(found, copied.position) for found in others]
            if any(at != UNKNOWN for at in later) and not self._never_written(copied):
                first = min(at for at in later if at != UNKNOWN)
                return WhyNeeded("unknown", "another thread reads it", first)
            at = following(transfers, copied.position)
            if at != UNKNOWN:
                text = f"the transfer of {self._line(at)} may read it for longer"
                return WhyNeeded("unknown", text, at)
        return None

    def _readers(self, tensor: int) -> tuple[dict[int, list[int]], list[int]]:
        """Return the reads of a tensor by thread, and those that a transfer goes on with."""
        known = self._known_readers.get(tensor)
        if known is None:
            threads: dict[int, list[int]] = defaultdict(list)
            for at in self.reads[tensor]:
                threads[self.history.events[at].thread].append(at)
            transfers = [at for at in self.reads[tensor] if self.history.events[at].non_blocking]
            known = self._known_readers[tensor] = (threads, transfers)
        return known

    def _never_written(self, copied: Copied) -> bool:
        """Whether nothing wrote the memory of a copy, or of its source, from then on."""
        return not any(
            True
            for one in (copied.source, copied.copy)
            for _ in self.lives.written(one, copied.position, math.inf)
        )

    def _stepped_apart(self, span: Span, copied: Copied) -> bool:
        """Whether a span is a step that writes neither: a closure's copies, as of any other code.

        What a step writes is known when it has ended; when in the step that was is not.
        """
        if span.kind != "step" or span.event == UNKNOWN:
            return False
        ended, own = self.history.position(span.event), self._own_step(copied)
        return not any(
            write.at == ended and not (own == ended and write.verb == MAY)
            for one in (copied.source, copied.copy)
            for write in self.lives.unheard.get(self.lives.memory(one), [])
        )

    def _own_step(self, copied: Copied) -> int:
        """Return the step of the program's own in which a copy came and went; -1 for none.

        A step of PyTorch's may write gradients unheard. What the program's code writes in the step
        of its own optimizer is heard as anywhere else, unless it has another step or pass made.
        """
        event, until = self.event(copied), self.lives.until(copied.copy)
        if event.span == UNKNOWN or event.inner not in (UNKNOWN, event.site):
            return UNKNOWN
        span = self.trace.spans[event.span]
        ended = UNKNOWN if span.event == UNKNOWN else self.history.position(span.event)
        if span.kind != "step" or ended < until:
            return UNKNOWN
        within = self.history.events.column("span")[copied.position : int(until)]
        return ended if (within == event.span).all() else UNKNOWN

    def _kept_by_function(self, span: Span, copied: Copied) -> bool:
        """Whether a custom Function made a copy for itself: it gives none of its memory.

        A graph of gradients would lead back to a saved argument, and not to a saved copy of it.
        """
        if span.kind != "function" or span.event == UNKNOWN:
            return False
        given = self.history.events[self.history.position(span.event)].results
        if any(one.storage in (copied.copy.storage, copied.source.storage) for one in given):
            return False
        return not any(event.create_graph for event in self._backwards())

    def _backwards(self) -> list[Event]:
        return [self.history.events[at] for at in self.history.backwards]

    def _unwatched(self, operand: Operand) -> bool:
        """Whether writes through an array on this memory could have gone unnoticed."""
        fact = self.trace.storages[operand.storage]
        return fact.device != "cpu" or fact.nbytes > 16 << 20 or self.history.arrays_unchecked

    def _copied_on_at_once(self, copied: Copied) -> bool:
        """Whether a copy was copied again by its own line or the next one, and that was all.

        No other line ran in between: nothing wrote its source unheard, whoever shows that memory.
        """
        then = copied_on(self.history, copied.position, copied.copy)
        if then < 0 or self.lives.until(copied.copy) == math.inf:
            return False
        made, read = (
            self.history.site_of(self.history.events[at]) for at in (copied.position, then)
        )
        near = made.function == read.function and 0 <= read.line - made.end_line <= 1
        if made.row != read.row and not near:
            return False
        sites = self.history.events.column("site")[copied.position : then + 1]
        lines = {self.history.site(one).row for one in np.unique(sites).tolist()}
        return lines <= {made.row, read.row}

    def _outlived_by_array(self, copied: Copied) -> bool:
        """Whether the source was made of an array, and gone before the copy was.

        Its memory is the array's, which may live on: bytes are compared only while a tensor shows
        them.
        """
        fact = self.trace.storages[copied.source.storage]
        if fact.memory == UNKNOWN or fact.freed == UNKNOWN:
            return False
        return self.history.position(fact.freed) < self.lives.until(copied.copy)

    def _kind(self, operand: Operand) -> str:
        fact = self.trace.tensors.get(operand.tensor)
        return fact.kind if fact is not None else "Tensor"

    def _guards(self, copied: Copied, event: Event) -> WhyNeeded | None:
        """Ask of a call whether the very values decide it: a guard that met nothing this time."""
        if copied.equal and not (self.often and self._is_repeated(copied)):
            text = "what it takes is equal to what was there in the runs that were seen"
            return WhyNeeded("unknown", text, copied.position)
        made = max(self.chosen_by(copied, event), self._by_data(copied, event))
        # A mask that took everything may well be such a guard; numbers say an order.
        masked = any(one.dtype == "bool" for one in event.reads)
        if operation(event.operation).rows and not self._are_rows_set(event):
            return WhyNeeded(
                "unknown", "the numbers that it is given may be others", copied.position
            )
        if made < 0 or (self.often and operation(event.operation).chooses and not masked):
            return None
        return WhyNeeded("unknown", "what it takes hangs on the values", made)

    def _by_data(self, copied: Copied, event: Event) -> int:
        """Return a call by which data decide what is taken; -1 where a size alone does.

        Data are drawn, come in from elsewhere, or stand in a list that is not written out.
        """
        row = operation(event.operation)
        if copied.any_choice or copied.since != copied.position or row.rows or not row.chooses:
            return UNKNOWN
        places = [one for one in event.reads if one.whole and one.tensor != copied.source.tensor]
        if places:
            return next(filter(self._is_of_data, self._makers(places)), UNKNOWN)
        text = self.history.site_of(event).expression
        listed = text.endswith("]") and not takes_the_same(text)
        return copied.position if listed else UNKNOWN

    def _makers(self, places: Sequence[Operand]) -> list[int]:
        """Return the calls that made numbers which choose; a mask says none."""
        made = [self.history.made_at(one.tensor) for one in places if one.dtype != "bool"]
        return [at for at in made if at >= 0]

    def _is_of_data(self, made: int) -> bool:
        """Whether data come into what a call made, as far as it is looked back."""
        behind = (made, *self.flow.behind(made, _FAR))
        return any(self._brings_data(self.history.events[at]) for at in behind)

    def _brings_data(self, event: Event) -> bool:
        """Whether a call makes numbers of something else than tensors, sizes and the text."""
        row = operation(event.operation)
        if event.reads or row.random:
            return row.random
        return not (row.fresh or takes_the_same(self.history.site_of(event).expression))

    def _is_repeated(self, copied: Copied) -> bool:
        """Whether elements were made several times over on the way to what was chosen of.

        Then places are alike by how they were made, and not by values alone.
        """
        source, there = copied.source, self.history.get(AlreadyThere).by_position
        at = self.history.made_at(source.tensor)
        while at in there:
            source = there[at][0].source
            at = self.history.made_at(source.tensor)
        behind = (at, *self.flow.behind(at, _FAR)) if at >= 0 else ()
        return any(_repeats(self.history.events[one]) for one in behind)

    def _are_rows_set(self, event: Event) -> bool:
        """Whether a line asked a table for rows several times, by numbers that are no data.

        By some that it keeps, or that are counted off.
        """
        runs = [self.event(one) for one in self._runs[event.site]]
        kept = len({one.reads[0].tensor for one in runs}) == 1
        return len(runs) > 1 and (kept or all(self._are_counted(one.reads[0]) for one in runs))

    def _are_counted(self, numbers: Operand) -> bool:
        """Whether numbers were made of nothing but a count, moved along or shown otherwise."""
        made = self.history.made_at(numbers.tensor)
        behind = (made, *self.flow.behind(made, _FAR)) if made >= 0 else ()
        return bool(behind) and all(self._counts(self.history.events[at]) for at in behind)

    def _counts(self, event: Event) -> bool:
        """Whether a call counts, or gives a count's numbers in their order, of each its own."""
        row = operation(event.operation)
        if row.random or event.writes:
            return False
        if not event.reads:
            return row.fresh and not row.blank
        moved = bool(row.linear) and row.exact  # no bound, and no remainder: that depends on size
        return len(event.reads) == 1 and bool(row.view or row.copies or moved)

    def chosen_by(self, copied: Copied, event: Event) -> int:
        """Return the call by which the source's values decide what is taken of it; -1 for none."""
        if copied.any_choice or not (operation(event.operation).chooses or computes(event)):
            return UNKNOWN
        memory = self.flow.memory(copied.source)
        # What a round trip leads through is made of the source's values as a matter of course.
        for one in event.reads[copied.since != copied.position :]:
            made = self.history.made_at(one.tensor)
            if self.flow.memory(one) == memory or made < 0:
                continue
            if one.dtype == "bool" and self._is_measured(made):
                return made  # a guard; lengths that are all full are counts
            if any(self._uses(at, memory) for at in (made, *self.flow.behind(made, _FAR))):
                return made
        return UNKNOWN

    def _is_measured(self, at: int) -> bool:
        """Whether a call made a mask of values that are no whole numbers."""
        event = self.history.events[at]
        values = operation(event.operation).template != ALL
        return values and any(not one.whole for one in event.reads)

    def _computed(self, copied: Copied, event: Event) -> WhyNeeded | None:
        """Ask of a call that computes whether it gives what was there for any values."""
        more, text = pays(event, copied.source), doubt(self.history, event, copied.source)
        if more:
            return WhyNeeded("yes", more, copied.position)
        if not text and computes(event) and self._of_parameters(copied, event):
            text = "what else it is made of is computed of parameters, which may train"
        return WhyNeeded("unknown", text, copied.position) if text else None

    def _of_parameters(self, copied: Copied, event: Event) -> bool:
        """Whether another operand of a call comes from parameters: zero now, and not when trained.

        As what an adapter adds to its layer does, which begins with a factor of zero.
        """
        others = [one for one in event.reads if one.tensor != copied.source.tensor]
        if len(others) == len(event.reads):
            return False
        makers = [at for one in others if (at := self.history.made_at(one.tensor)) >= 0]
        read = [*others, *(
            one
            for at in makers
            for behind in (at, *self.flow.behind(at, _FAR))
            for one in self.history.events[behind].reads
        )]  # fmt: skip
        return any(one.requires_grad and one.leaf for one in read)

    def coincidence(self, copied: Copied) -> WhyNeeded | None:
        """Ask of the only run of a join, or a computation: it may be given something else.

        The text says which they are where it lists them; so does a function that made them all.
        """
        event = self.history.events[copied.position]
        site = self.history.site_of(event)
        if may_differ(self.history, copied):
            return WhyNeeded("unknown", "it ran once, and may give other values", copied.position)
        if not operation(event.operation).joins or lists_parts(site.expression):
            return None
        makers = [self.history.made_at(one.tensor) for one in event.reads]
        here = self._function_of(copied.position)
        if len(makers) > 1 and all(at >= 0 and self._function_of(at) == here for at in makers):
            return None
        return WhyNeeded(
            "unknown", "it ran once, and its list may hold other parts", copied.position
        )

    def of_one(self, copied: Copied) -> WhyNeeded | None:
        """Ask of a join that was given one tensor in each run whether its list may have others."""
        event, around = self.event(copied), self.history.get(Surroundings)
        site = self.history.site(event.inner) if self.library else self.history.site_of(event)
        if not self.is_single(copied):
            return None
        source = around.source(site.file)
        if joins_as_many(source, site) or (self.often and joins_each(source, site)):
            return None
        text = "its list had one tensor in the runs that were seen, and may have others"
        return WhyNeeded("unknown", text, copied.position)

    def is_single(self, copied: Copied) -> bool:
        """Whether a join was given one tensor, in a list that its own text does not write out."""
        event = self.event(copied)
        joins = operation(event.operation).joins and not copied.part and len(event.reads) == 1
        return bool(joins) and not lists_parts(self.history.site_of(event).expression)

    def _function_of(self, at: int) -> tuple[str, int]:
        site = self.history.site_of(self.history.events[at])
        return site.file, site.first_line

    def _uses(self, position: int, memory: int) -> bool:
        """Whether an event was given the values in a memory."""
        event = self.history.events[position]
        if operation(event.operation).template == ALL:
            return False
        return any(self.flow.memory(one) == memory for one in event.reads)

    # -- writes ----------------------------------------------------------------------------------

    def _writes_of_source(self, copied: Copied) -> WhyNeeded | None:
        """Find a write to the source while the copy lived."""
        source, copy, own = copied.source, copied.copy, self._own_step(copied)
        for write in self.lives.written(source, copied.since, self.lives.until(copy)):
            written, line = write.written, self._line(write.at)
            if write.at == copied.position or self._put_back(copied, write.at):
                continue
            if (write.at == own and write.verb == MAY) or self._is_past(copied, write):
                continue
            if written is None or written.storage != source.storage or may_overlap(written, source):
                text = f"{line} {write.verb} {self._written(copied, written)}"
                return WhyNeeded("yes", f"{text} while {self._name(copy)} lives", write.at)
            if self._saves(copy, copied.position, write.at):
                text = f"{line} writes beside {self._source(copied)}"
                return WhyNeeded("yes", f"{text}, which the backward pass would refuse", write.at)
        return None

    def _is_past(self, copied: Copied, write: MemoryWrite) -> bool:
        """Whether a variable still has a copy as its source is written, which no line can read."""
        if self.library:
            return False
        return self.history.get(Lingering).is_past(copied, write, self.lives.until(copied.copy))

    def lingers(self, copied: Copied) -> bool:
        """Whether the source of a copy is written while it lives, when no line can read it."""
        until = self.lives.until(copied.copy)
        return any(
            write.at != copied.position and self._is_past(copied, write)
            for write in self.lives.written(copied.source, copied.since, until)
        )

    def _put_back(self, copied: Copied, at: int) -> bool:
        """Whether a write gave the source what the copy held, and so what was there already.

        Neither was written before: a backup of what nobody changed is restored. The call itself
        still moves the version, so nothing may have saved the copy for backward.
        """
        event = self.history.events[at] if at < len(self.history.events) else None
        if event is None or event.operation != "copy_" or len(event.reads) != 2:
            return False
        target, given = event.reads
        if given.storage != copied.copy.storage or target.storage != copied.source.storage:
            return False
        shown = remapped(given, copied.copy, copied.source)
        if shown is None or shown[3:7] != target[3:7]:
            return False
        written = any(True for _ in self.lives.written(copied.copy, copied.position, at))
        return not written and not self._saves(copied.copy, copied.position, at)

    def _saves(self, copy: Operand, after: int, before: int) -> bool:
        """Whether a call saved the copy for backward, which a moved version would refuse."""
        graph = self.history.get(Graph)
        return any(
            after < at < before and any(one.storage == copy.storage for one in graph.saved(at))
            for at in self.history.on_storage(copy)
        )

    def _writes_of_copy(self, copied: Copied) -> WhyNeeded | None:
        """Find a write to the copy while the source lived, or to what cannot be written at all."""
        if (changed := self._changed(copied)) is not None:
            return changed
        source, copy = copied.source, copied.copy
        doubled = any(
            size > 1 and not stride
            for size, stride in zip(source.shape, source.strides, strict=True)
        )
        until = math.inf if doubled else self.lives.until(source)
        if not doubled and self.replaces_source(copied):
            return None
        for write in self.lives.written(copy, copied.position, until):
            text = f"{self._line(write.at)} {write.verb} {self._name(copy)}"
            why = "of which several elements would be one" if doubled else ""
            return WhyNeeded(
                "yes", f"{text} {why or f'while {self._source(copied)} lives'}", write.at
            )
        return None

    def is_written(self, copied: Copied) -> bool:
        """Whether a copy is written while its source lives."""
        until = self.lives.until(copied.source)
        return any(True for _ in self.lives.written(copied.copy, copied.position, until))

    def replaces_source(self, copied: Copied) -> bool:
        """Whether nothing used the source's memory again, and it did not outlive the copy's.

        A write to the copy could then have been one to the source: nobody would have seen it.
        """
        source, lives = copied.source, self.lives
        memory, gone = lives.memory(source), lives.until(source)
        if self._blind or gone == math.inf or gone > lives.until(copied.copy):
            return False
        if source.requires_grad or memory in lives.exported | lives.addressed | self._stand_in:
            return False
        used = self.history.on_storage(source)
        again = bool(used) and used[-1] > copied.position
        return not again and not self._saves(source, UNKNOWN, copied.position)

    def of_array(self, copied: Copied, taken: Taken) -> WhyNeeded | None:
        """Say why a tensor could not have shown the memory of the array that it was made of."""
        copy, name = copied.copy, self._name(copied.copy)
        released = copied.position + self._array_lives(copied, taken)
        for write in self.lives.written(copy, copied.position, released):
            text = f"{self._line(write.at)} {write.verb} {name} while its array lives"
            return WhyNeeded("yes", text, write.at)
        if taken.changed == "yes":
            text = f"the array that it was made of was written while {name} lives"
            return WhyNeeded("yes", text)
        if taken.changed == "unknown" and not released - copied.position <= self._usual < math.inf:
            doubt = "what became of the array that it was made of was not seen"
            return WhyNeeded("unknown", doubt)
        if taken.beside > min(FLOOR, nbytes(copy)) and released < self.lives.until(copy):
            return WhyNeeded("yes", f"it lets {taken.beside:,} bytes beside it be freed")
        for at in self.reads[copy.tensor]:
            row = operation(self.history.events[at].operation)
            if row.replaces and not row.makes:
                return WhyNeeded("yes", f"at {self._line(at)} it {row.replaces}", at)
        if max(released, self.lives.until(copy)) == math.inf and not self.whole:
            return WhyNeeded("unknown", "both are alive where the recording ends")
        return None

    def _compared(self, copied: Copied) -> WhyNeeded | None:
        """Find a call that says how the copy differs from its source: a guard, or a distance."""
        source, copy = copied.source, copied.copy
        for at in self.reads[copy.tensor]:
            event = self.history.events[at]
            row = operation(event.operation)
            if at > copied.position and (row.compares or row.selects == "comparison"):
                beside = [one for one in event.reads if one.tensor != copy.tensor]
                if any(one.storage == source.storage for one in beside):
                    text = f"{self._line(at)} compares it with {self._source(copied)}"
                    return WhyNeeded("yes", text, at)
        return None

    # -- the object ------------------------------------------------------------------------------

    def _object(self, copied: Copied) -> WhyNeeded | None:
        """Find something of its own that the copy has as an object."""
        source, copy = copied.source, copied.copy
        if self._kind(copy) != "Tensor":
            return WhyNeeded("yes", f"it is a {self._kind(copy)} of its own")
        if self._is_held(copied):
            return WhyNeeded("yes", "an optimizer holds it")
        if self._is_module(copied):
            return None
        alone = self._alone(copied.position, source)
        for at in self.reads[copy.tensor]:
            row = operation(self.history.events[at].operation)
            own = self._replaced(at, copy) or ("" if alone else row.own)
            if at > copied.position and own:
                return WhyNeeded("yes", f"at {self._line(at)} it {own}", at)
            if at > copied.position and row.name == "save" and self._saved_apart(at, source, copy):
                return WhyNeeded("yes", f"{self._line(at)} saves it as memory of its own", at)
        return self._named(copied)

    def _changed(self, copied: Copied) -> WhyNeeded | None:
        """Find a change of a copy or its source that the memory of their values does not show."""
        changes = self.history.get(SparseChanges)
        for one, name in (copied.copy, "it"), (copied.source, self._source(copied)):
            found = changes.after(one.tensor, copied.position)
            if found is not None:
                text = f"{self._line(found.at)} {found.what.format(name=name)}"
                return WhyNeeded("yes", text, found.at)
        return None

    def _is_held(self, copied: Copied) -> bool:
        """Whether an optimizer has a copy, or loaded it into its state: its steps write it.

        A load takes over the very tensors that it is given, where they have the format of their
        parameters. It could have taken over the source where nothing else has that any more.
        """
        later = self._afterwards(copied)
        loaded = any(one.operation == LOADS and one.results for one in later)
        return (loaded and not self._is_given_up(copied)) or copied.copy.tensor in self.held

    def _is_given_up(self, copied: Copied) -> bool:
        """Whether nothing used a source again, and it was gone before anything wrote the copy."""
        return self.replaces_source(copied) and not self.is_written(copied)

    def _replaced(self, at: int, copy: Operand) -> str:
        """Say what becomes of the memory behind a copy; nothing of one that is handed on."""
        event = self.history.events[at]
        row = operation(event.operation)
        handed = row.rebinds and event.reads[0].tensor != copy.tensor
        return "" if handed else row.replaces

    def _is_module(self, copied: Copied) -> bool:
        """Whether a copied model could have been the other: none of its tensors was asked for."""
        deep = _deep(self.history, self.history.events[copied.position])
        return deep and (
            self._of_module(copied) or self._only_saved(copied) or self._only_read(copied)
        )

    def _only_read(self, copied: Copied) -> bool:
        """Whether a copied model was only computed with, for no gradient, until it was written.

        In the mode that the other one is in.
        """
        if not self.lingers(copied) or self.history.get(Lingering).is_switched(copied):
            return False
        here, memory = self.event(copied).site, self.flow.memory(copied.copy)
        later = [one for one in self._afterwards(copied) if one.site != here]
        return all(self._only_computes(one, memory) for one in later)

    def _only_computes(self, event: Event, memory: int) -> bool:
        """Whether an event does nothing to the memory of a model, or its tensors as such."""
        row = operation(event.operation)
        changes = bool(row.own) or (bool(row.replaces) and not row.makes)
        return not (changes or event.kind >= 0 or self._trains(event, memory))

    def _of_module(self, copied: Copied) -> bool:
        """Whether a copied model only took the place of another, which is not used any more.

        No gradient is computed for the copy: it would be added to that of the other.
        """
        here = self.history.events[copied.position].site
        copy = self.flow.memory(copied.copy)
        for operand in (copied.source, copied.copy):
            memory = self.flow.memory(operand)
            for at in self.history.on_storage(operand):
                event = self.history.events[at]
                if at <= copied.position or event.site == here:
                    continue
                if memory != copy or not self._only_computes(event, copy):
                    return False
        return True

    def _only_saved(self, copied: Copied) -> bool:
        """Whether a copied model was there for its state to be saved, and for nothing else.

        A state has tensors only, where a model that is saved has its modes and attributes as well.
        """
        memory, saves = self.flow.memory(copied.copy), 0
        for at in self.history.on_storage(copied.copy):
            event = self.history.events[at]
            if at <= copied.position or operation(event.operation).template == ALL:
                continue
            if event.operation == "save":
                given = (one for one in self.history.saved(at) if self.flow.memory(one) == memory)
                apart = self._saved_apart(at, copied.source, copied.copy)
                if apart or any(self._kind(one) != "Tensor" for one in given):
                    return False
                saves += 1
            elif not self._reads_nothing(event, memory):
                return False
        return saves > 0

    def _named(self, copied: Copied) -> WhyNeeded | None:
        """Ask for modules that hold the copy: they may write it, and register a Parameter."""
        source, copy = copied.source, copied.copy
        name = self.history.facts_of_name(copy.tensor)
        if name is not None and name.module:
            return WhyNeeded("unknown", f"as `{name.name}` a module holds it, and may write it")
        if self._kind(source) == "Parameter":
            for held in self.history.names_of(copy.tensor):
                if "." in held or "[" in held:
                    return WhyNeeded("unknown", f"as `{held}` a Parameter would be registered")
        return self._compared(copied)

    def _alone(self, position: int, source: Operand) -> bool:
        """Whether the source object was there for this copy only, and is as good an object."""
        fact = self.trace.tensors.get(source.tensor)
        return (
            fact is not None
            and not (source.leaf and source.requires_grad)
            and fact.died != UNKNOWN
            and self.history.position(fact.died) <= position + 1
            and all(at >= position for at in self.reads[source.tensor])
        )

    def _saved_apart(self, at: int, source: Operand, copy: Operand) -> bool:
        """Whether one file would hold the source's whole memory, or both as one."""
        fact = self.trace.storages[source.storage]
        beside = any(one.storage == source.storage for one in self.history.events[at].reads)
        return beside or fact.nbytes > nbytes(copy)

    # -- layout, size, order ---------------------------------------------------------------------

    def layout(self, copied: Copied) -> WhyNeeded | None:
        """Find a call for which it may matter how the elements lie."""
        parts = self._parts[copied.position] if copied.part else [copied]
        if parts[0].copy is not copied.copy and copied.part:
            return None  # asked with the first of them
        if not copied.part and copied.source.strides == copied.copy.strides:
            return None
        relied = ReliedLayout(self.history, parts, self._must_stay)
        at, text = relied.run()
        if text:
            return self._relied(parts, at, text, rounds=relied.rounding != UNKNOWN)
        if not (relied.used or copied.part or same_layout(copied.source, copied.copy)):
            return WhyNeeded("unknown", "its layout is another, and nothing was seen to read it")
        return None

    def _relied(self, parts: Sequence[Copied], at: int, text: str, *, rounds: bool) -> WhyNeeded:
        """Say which call relies on how the elements lie, or may."""
        certain = text.startswith(("would copy", "would answer", "could not", "needs"))
        whole = all(one.source.strides == contiguous(one.source.shape) for one in parts)
        text = f"{self._line(at)}, {self.history.events[at].operation}, {text}"
        needed: Needed = "yes" if certain else "unknown"
        return WhyNeeded(needed, text, at, rounds=rounds or (whole and not certain))

    def _must_stay(self, copied: Copied) -> str:
        """Say why a later copy would have to stay, which would be made no more."""
        if copied.position in self._asked:
            return "it is asked already"
        self._asked.add(copied.position)
        found = self.reason(copied)
        self._asked.discard(copied.position)
        return found.text if found is not None else ""

    def _size(self, copied: Copied) -> WhyNeeded | None:
        """Say whether the copy let a much larger memory go."""
        more = self._let_go(copied)
        if more:
            return WhyNeeded("yes", f"it lets {more:,} bytes beside it be freed")
        return self._stored(copied)

    def _let_go(self, copied: Copied, *, by_line: bool = False) -> int:
        """Return how many bytes go by a copy, that it and others do not have; 0 for a few.

        With `by_line` the others are those of its own line alone.
        """
        source, copy = copied.source, copied.copy
        fact = self.trace.storages[source.storage]
        kept = sum(nbytes(one.copy) for one in self._beside(copied, by_line=by_line))
        more = fact.nbytes - max(nbytes(copy), kept)
        less = more <= min(FLOOR, fact.nbytes / 2)
        return 0 if less or self.lives.until(source) >= self.lives.until(copy) else more

    def _beside(self, copied: Copied, *, by_line: bool = False) -> list[Copied]:
        """Return the copies of parts of one memory that live as long as one of them.

        Without all these it would stay, and they would not be there: those of one line go
        together, and those of other lines where they are not needed either (`rests_on`).
        """
        memory, until = copied.source.storage, self.lives.until(copied.copy)
        every, own = self._of_memory[memory], self._of_one[self.event(copied).site, memory]
        for parts in (own,) if by_line else (every, own):
            if 1 < len(parts) <= MOST_PARTS and _apart(parts):
                return [one for one in parts if self.lives.until(one.copy) >= until]
        return []

    def _stored(self, copied: Copied) -> WhyNeeded | None:
        """Say whether elements were converted to be kept in fewer bytes, and are read again.

        A name of an attribute or of an element keeps them, and so does a line that converts others
        before they come back.
        """
        if not by_values(self.history, copied) or not self._is_narrowed(copied):
            return None
        way = self.history.events[copied.since].results[0]
        line = self.history.events[copied.since].site
        for one in (*self.history.names_of(way.tensor), self.history.target_of(way.tensor)):
            if "." in one or "[" in one:
                return WhyNeeded("yes", f"as `{one}` it is kept in fewer bytes", copied.since)
        between = self.history.events[copied.since + 1 : copied.position]
        if any(one.site == line and operation(one.operation).copies for one in between):
            text = "several are kept in fewer bytes before one of them comes back"
            return WhyNeeded("unknown", text, copied.since)
        return None

    def _is_narrowed(self, copied: Copied) -> bool:
        """Whether elements came back from fewer bytes than those they came from, gone by then."""
        way = self.history.events[copied.since].results[0]
        gone = self.lives.until(copied.source) <= copied.position
        return gone and nbytes(way) < nbytes(copied.copy)

    def _kept(self, copied: Copied) -> WhyNeeded | None:
        """Ask what comes after, and what others do between a library's calls: neither was seen."""
        source, copy = copied.source, copied.copy
        kept = min(self.lives.until(copy), self.lives.until(source)) == math.inf
        if not kept and not self.library:
            return None
        if kept and not self.whole:
            return WhyNeeded("unknown", "both are alive where the recording ends")
        if kept and self.library:
            # The program has ended, but the library serves others as well.
            text = "both are kept: what a library's other callers write was not seen"
            return WhyNeeded("unknown", text)
        # A program has its own order; a library's copy guards against that of other callers.
        for write in self.lives.written(source, UNKNOWN, math.inf):
            if write.at != copied.position and self._used_before(source, write.at):
                text = f"{self._line(write.at)} writes {self._source(copied)}"
                return WhyNeeded("unknown", f"{text} at other times", write.at)
        return None

    def _used_before(self, source: Operand, at: int) -> bool:
        """Whether a memory was read before an event: what was written until then filled it."""
        for position in self.history.on_storage(source):
            if position >= at:
                return False
            event = self.history.events[position]
            if event.reads and not event.writes and not operation(event.operation).makes:
                return True
        return False

    def _order(self, copied: Copied) -> WhyNeeded | None:
        """Ask for sums of gradients: three parts or more, added in another order, round anew."""
        if not copied.copy.requires_grad:
            return None
        parts = [
            self._in_graph(one.tensor, copied.position) for one in (copied.source, copied.copy)
        ]
        if min(parts) and sum(parts) > 2:
            text = f"without it the gradient of {self._source(copied)}"
            return WhyNeeded("unknown", f"{text} is added up in another order")
        return None

    def _in_graph(self, tensor: int, but: int) -> int:
        """Count the reads of a tensor that made nodes, without those of one event.

        Nor those by which the same line reads it for other passes, or that no pass came after.
        """
        found = self._nodes_of.get(tensor)
        if found is None:
            events = self.history.events
            found = [at for at in self.reads[tensor] if events[at].kind >= 0]
            self._nodes_of[tensor] = found
        others = len(found) - (bisect_right(found, but) - bisect_left(found, but))
        return sum(self._may_join(at, but) for at in found) if 0 < others <= _FAR else others

    def _may_join(self, at: int, position: int) -> bool:
        """Whether the gradient by another call may be added to that by one."""
        events, history = self.history.events, self.history
        alike = (events[at].site, events[at].inner) == (
            events[position].site, events[position].inner,
        )  # fmt: skip
        passed = history.next_pass(at)
        apart = passed == len(events) or (alike and passed != history.next_pass(position))
        return at != position and not apart

    # -- words -----------------------------------------------------------------------------------

    def _line(self, position: int) -> str:
        """Return the line of an event; for a library's copy the library's own."""
        if not 0 <= position < len(self.history.events):
            return "the end of the recording"
        event = self.history.events[position]
        site = self.history.site_of(event)
        if self.library and event.inner not in (UNKNOWN, event.site):
            inner = self.history.site(event.inner)
            return f"{Path(inner.file).name}:{inner.line}"
        return f"line {site.line}" if site.line else "an unknown line"

    def _source(self, copied: Copied) -> str:
        """Return what the copying line calls its source, else its name."""
        event = self.history.events[copied.position]
        site = self.history.site(event.inner) if self.library else self.history.site_of(event)
        named = self.library or _own_line(self.history, event)
        text = copied_text(event.operation, site.expression) if named else ""
        return f"`{text}`" if text else self._name(copied.source, "its source")

    def _written(self, copied: Copied, written: Operand | None) -> str:
        """Return the name of the source, or that by which it was written: a state dict has many."""
        called = self.history.names_of
        if written is not None and not called(copied.source.tensor) and called(written.tensor):
            return self._name(written)
        return self._source(copied)

    def _name(self, operand: Operand, otherwise: str = "the copy") -> str:
        """Return a tensor's name; a library's line that gives it none has no other to show."""
        name = self.history.name_of(operand.tensor)
        if self.library and not self.history.names_of(operand.tensor):
            return otherwise
        return name if name.startswith("`") else f"`{name}`"
