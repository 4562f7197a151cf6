"""Arrays that NumPy copied on their way into PyTorch: whether the copies were needed.

The recorder has looked which array each was made of, and whether either was written while both
lived (`record.arrays.copies`). What else a copy may have been made for is asked here, as of any
other (`analysis.copies.needs`). Of a copy that the tensor shows, the other array could have been
shown in its place. One that is copied on, or is only read to be brought back into the other's
format, is made beside the copy that the program has in the end.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from typing import Literal

from tether.analysis.copies.already_there import Copied, nbytes
from tether.analysis.copies.needs import FLOOR, LOOKED, Judge, WhyNeeded, needs
from tether.analysis.history import History
from tether.facts import UNKNOWN, ArrayCopied, Event, Operand, Taken
from tether.operations.table import operation

How = Literal["shown", "copied on", "narrowed"]
"""What became of a copy: a tensor shows it, a tensor was made of it, it went back as it came."""


@dataclass
class ArrayCopies:
    """The copies that one expression made for one call of PyTorch's."""

    site: int  # of the expression
    entry: int  # of the call
    how: How
    facts: list[ArrayCopied]
    executions: list[Copied]
    count: int  # runs of the call
    bytes: int
    read_at: int = UNKNOWN  # the first call that brings the elements back into the other's format


class NeedlessArrays:
    """The copies of arrays that were not needed: those of one expression and one call together."""

    def __init__(self, history: History) -> None:
        self._history = history
        self.found: list[ArrayCopies] = []
        lines: dict[tuple[int, int], list[ArrayCopied]] = defaultdict(list)
        for fact in history.trace.arrays_copied:
            at = history.position(fact.event)
            if at >= 0 and len(history.events[at].results) == 1:
                lines[fact.site, history.events[at].site].append(fact)
        if not lines:
            return
        counts = self._counts({entry for _, entry in lines})
        made = [self._copied(fact) for facts in lines.values() for fact in facts]
        self._judge = Judge(history, made)
        for (site, entry), facts in lines.items():
            self._answer(site, entry, facts, counts[entry])

    def _counts(self, entries: set[int]) -> dict[int, int]:
        counts: dict[int, int] = defaultdict(int)
        for event in self._history.events:
            if event.site in entries and operation(event.operation).enters and not event.reads:
                counts[event.site] += 1
        return counts

    def _copied(self, fact: ArrayCopied) -> Copied:
        """Return a copy as if the tensor were one of the other array: that is no tensor's."""
        position = self._history.position(fact.event)
        result = self._history.events[position].results[0]
        taken = Taken(fact.event, fact.beside, fact.changed, fact.released)
        source = result._replace(strides=fact.strides)
        return Copied(position, source, result, position, taken=taken)

    def _answer(self, site: int, entry: int, facts: list[ArrayCopied], count: int) -> None:
        """Keep a line of which no run needed the copy, so far as enough of them were looked at."""
        runs = [(fact, self._copied(fact)) for fact in facts]
        executions = [copied for _, copied in runs]
        how = self._one_way(runs, count)
        if how is None or (how == "copied on" and self._told(executions)):
            return
        self._judge.arrays.look_at(executions)
        if any(self._reason(how, *run) for run in runs):
            return
        total = sum(nbytes(one.copy) for one in executions)
        read_at = UNKNOWN
        if how == "narrowed":
            first = self._casts(executions[0], facts[0])[0]
            read_at = self._history.events[first].site
        self.found.append(
            ArrayCopies(
                site, entry, how, facts, executions, count, total * count // len(facts), read_at
            )
        )

    def _one_way(self, runs: list[tuple[ArrayCopied, Copied]], count: int) -> How | None:
        """Return what became of the copies of a line, where enough were looked at and all alike."""
        ways = {self._how(*run) for run in runs}
        there = all(fact.source for fact, _ in runs) and len(runs) >= min(count, LOOKED)
        return ways.pop() if there and len(ways) == 1 else None

    def _how(self, fact: ArrayCopied, copied: Copied) -> How:
        if not fact.shared:
            return "copied on"
        return "shown" if copied.copy.dtype == fact.dtype else "narrowed"

    def _told(self, executions: list[Copied]) -> bool:
        """Whether the call's own copy is told of as one that could go: of two one may."""
        events = [self._history.events[one.position] for one in executions]
        lines = {(one.site, one.inner, one.operation) for one in events}
        return any(
            need.needed == "no" and (key[0], key[2]) in {(line[0], line[2]) for line in lines}
            for key, need in needs(self._history).items()
        )

    # -- one execution ---------------------------------------------------------------------------

    def _reason(self, how: How, fact: ArrayCopied, copied: Copied) -> WhyNeeded | None:
        """Return why a copy was needed, or why that is not known."""
        event = self._history.events[copied.position]
        unseen = self._judge.unseen.reason(copied, event)
        if unseen is not None:
            return unseen
        if how == "shown":
            assert copied.taken is not None
            return self._judge.arrays.reason(copied, copied.taken) or self._judge.layout(copied)
        if how == "narrowed":
            return self._narrowed(fact, copied)
        return self._copied_on(fact, copied)

    def _copied_on(self, fact: ArrayCopied, copied: Copied) -> WhyNeeded | None:
        """Ask of a copy that is copied on what else it was there for."""
        history = self._history
        gone = math.inf if fact.gone == UNKNOWN else history.position(fact.gone)
        if gone <= copied.position + 1:
            return None  # in passing
        if fact.changed != "no":
            return WhyNeeded("unknown", "one of the two arrays may have been written")
        if gone == math.inf and not self._judge.index.whole:
            return WhyNeeded("unknown", "the array is alive where the recording ends")
        return self._lets_go(fact, copied, gone)

    def _narrowed(self, fact: ArrayCopied, copied: Copied) -> WhyNeeded | None:
        """Ask of a wider copy whether all that reads it brings it back into the other's format."""
        if not self._casts(copied, fact):
            return WhyNeeded("yes", "it is read in its own format")
        if fact.changed != "no":
            return WhyNeeded("unknown", "one of the two arrays may have been written")
        until = self._judge.index.lives.until(copied.copy)
        if until == math.inf and not self._judge.index.whole:
            return WhyNeeded("unknown", "the tensor is alive where the recording ends")
        return self._lets_go(fact, copied, until)

    def _lets_go(self, fact: ArrayCopied, copied: Copied, until: float) -> WhyNeeded | None:
        """Ask whether a copy that lives on lets a larger memory go."""
        released = math.inf
        if fact.released != UNKNOWN:
            released = self._history.position(fact.released)
        if released < until and fact.beside > min(FLOOR, nbytes(copied.copy)):
            return WhyNeeded("yes", f"it lets {fact.beside:,} bytes beside it be freed")
        return None

    def _casts(self, copied: Copied, fact: ArrayCopied) -> list[int]:
        """Return the calls that bring what a tensor shows into a format; [] if others read it."""
        history, copy = self._history, copied.copy
        memory, found = history.flow.memory(copy), list[int]()
        for at in history.on_storage(copy):
            event = history.events[at]
            if at <= copied.position or self._shows(event, memory):
                continue
            if not self._is_cast(event, memory, fact.dtype):
                return []
            found.append(at)
        return found

    def _shows(self, event: Event, memory: int) -> bool:
        """Whether a call gives no more than a view of a memory."""
        row = operation(event.operation)
        if row.leaves or row.lends or row.replaces or row.own or event.writes or not event.results:
            return False
        return all(
            not one.requires_grad and self._history.flow.memory(one) == memory
            for one in event.results
        )

    def _is_cast(self, event: Event, memory: int, dtype: str) -> bool:
        """Whether a call takes a memory's elements over into a format, and does nothing else."""
        row, made = operation(event.operation), event.writes or event.results
        read = [one for one in event.reads if self._history.flow.memory(one) == memory]
        return bool(
            row.copies
            and len(made) == 1
            and made[0].dtype == dtype
            and self._history.flow.memory(made[0]) != memory
            and read == list(event.reads[-1:])
            and _same_size(read[0], made[0])
        )


def _same_size(one: Operand, other: Operand) -> bool:
    return math.prod(one.shape) == math.prod(other.shape)
