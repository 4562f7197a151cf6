"""When memory was written and when it went: what a copy and its source did while both lived."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from functools import cached_property
from typing import NamedTuple

import numpy as np

from tether.analysis.copies.blocks import Blocks
from tether.analysis.copies.other_processes import OtherProcesses
from tether.analysis.history import History
from tether.facts import NONE, UNKNOWN, Operand
from tether.operations.table import Operation, operation
from tether.store.numbers import Numbers, stable_order

MAY = "may write"
"""What a step or a pass does to gradients, as far as is known of it from outside."""

ELSEWHERE = "comes after another process may have written"
"""What is known of a write to memory that others show: neither whether, nor when."""


class MemoryWrite(NamedTuple):
    """A write to a memory."""

    at: int  # the event that wrote it; of an unheard write, the one before which it was noticed
    written: Operand | None = None  # None: no telling which part of it
    verb: str = "writes"
    since: int = UNKNOWN  # the position after which a write came that was noticed later

    def is_of(self, calls: Collection[int]) -> bool:
        """Return whether one of some calls made it; of an unheard one that is not known."""
        return self.written is not None and self.at in calls


class MemoryLives:
    """The writes to some memories, and their ends; memories that were joined count as one."""

    def __init__(self, history: History, memories: set[int]) -> None:
        self._history, self._flow = history, history.flow
        self._memories = memories
        self._joined: dict[int, int] = {}
        self._heard: dict[int, list[MemoryWrite]] = defaultdict(list)
        self.unheard: dict[int, list[MemoryWrite]] = defaultdict(list)
        self._born: dict[int, int]  # memory -> position when the first of it was made
        self._freed: dict[int, float]  # memory -> position when the last of it was gone
        self.exported: set[int]  # memories that an array showed
        self.addressed: set[int] = set()  # memories whose address was asked for
        others = history.get(OtherProcesses)
        self.elsewhere = set(filter(others.write_memory, memories))  # others may write these
        self._index_ends()
        self._index_events()
        self._index_unseen()

    # -- questions -------------------------------------------------------------------------------

    def memory(self, operand: Operand) -> int:
        """Return the memory behind an operand, of a copy that counts as its source the source's."""
        memory = self._flow.memory(operand)
        while memory in self._joined:
            memory = self._joined[memory]
        return memory

    def until(self, operand: Operand) -> float:
        """Return the position when the memory behind an operand was gone."""
        return self._freed.get(self.memory(operand), math.inf)

    def written(self, operand: Operand, after: int, until: float) -> Iterator[MemoryWrite]:
        """Yield the writes to the memory behind an operand, after one event and before a time.

        What another process shows may have been written at any time: that is yielded as one write.
        """
        found = self._heard.get(self.memory(operand), [])
        for write in found[bisect_right(found, after, key=lambda one: one.at) :]:
            if write.at >= until:
                break
            yield write
        for write in self.unheard.get(self.memory(operand), []):
            if write.at > after and write.since < until:
                yield write
        if self.memory(operand) in self.elsewhere:
            last = len(self._history.events) - 1
            yield MemoryWrite(int(min(until, last)), None, ELSEWHERE, after)

    def join(self, one: Operand, other: Operand) -> None:
        """Count the memories behind two operands as one from now on."""
        kept, gone = self.memory(one), self.memory(other)
        if kept == gone:
            return
        self._joined[gone] = kept
        self._heard[kept] = sorted(
            self._heard[kept] + self._heard[gone], key=lambda write: write.at
        )
        self.unheard[kept] += self.unheard[gone]
        self._freed[kept] = max(self._freed.get(kept, math.inf), self._freed.get(gone, math.inf))
        for marked in (self.exported, self.addressed, self.elsewhere):
            if gone in marked:
                marked.add(kept)

    # -- indexes ---------------------------------------------------------------------------------

    def _index_events(self) -> None:
        facts = self._history.get(_MemoryFacts)
        self.exported |= facts.exported
        self.addressed |= facts.addressed
        for position, operand in self._writes():
            within = facts.began.get(position, UNKNOWN)
            kept = self._heard if within == UNKNOWN else self.unheard
            kept[self._flow.memory(operand)].append(MemoryWrite(position, operand, since=within))
        # A backward pass adds to gradients in place, a step writes its optimizer's state.
        for memory in self._memories & (facts.gradients | facts.not_made(self._memories)):
            end = self._freed.get(memory, math.inf)
            for at in facts.accumulating[
                bisect_left(facts.accumulating, self._born.get(memory, 0)) :
            ]:
                since = facts.began.get(at, at - 1)
                if since >= end:  # it was gone before the first event of the pass, or of the step
                    break
                self.unheard[memory].append(MemoryWrite(at, verb=MAY, since=since))
        for found in self._heard.values():
            found.sort(key=lambda one: one.at)
        self._note_moved(facts.moved)

    def _writes(self) -> Iterator[tuple[int, Operand]]:
        """Yield the writes to the memories, in order."""
        events, rows = self._history.events.touched("writes")
        chosen = np.isin(self._history.memories, list(self._memories))[rows]
        operands = self._history.events.operands
        for position, row in zip(events[chosen].tolist(), rows[chosen].tolist(), strict=True):
            yield position, operands[row]

    def _note_moved(self, moved: Numbers) -> None:
        known: dict[int, list[int]] = {}  # memory -> when it was written
        of_these = np.isin(moved[:, 0], list(self._memories))
        for memory, since, position in moved[of_these].tolist():
            times = known.get(memory)
            if times is None:
                heard = (*self._heard.get(memory, ()), *self.unheard.get(memory, ()))
                times = known[memory] = sorted(one.at for one in heard)
            first = bisect_left(times, since)
            if first == len(times) or times[first] > position:
                write = MemoryWrite(position, None, "comes after something wrote", since)
                self.unheard[memory].append(write)
                insort(times, position)

    def _index_unseen(self) -> None:
        for unseen in self._history.trace.unseen:
            memory = self._flow.memory_of(unseen.storage)
            if memory in self._memories:
                before = self._history.position(unseen.before)
                since = self._history.position(unseen.after)
                self.unheard[memory].append(
                    MemoryWrite(before, None, "comes after an array wrote", since)
                )

    def _index_ends(self) -> None:
        blocks = self._history.get(Blocks)
        chosen = np.isin(blocks.numbers, list(self._memories))
        numbers = blocks.numbers[chosen].tolist()
        self._born = dict(zip(numbers, blocks.born[chosen].tolist(), strict=True))
        ends = np.where(blocks.alive, math.inf, blocks.freed)[chosen]
        self._freed = dict(zip(numbers, ends.tolist(), strict=True))
        self.exported = set(blocks.numbers[chosen & blocks.exported].tolist())


class _MemoryFacts:
    """What is the same of all memories, whichever are asked for."""

    def __init__(self, history: History) -> None:
        self._history, self._events = history, history.events
        self.exported = self._lent(lambda row: row.lends and row.leaves != "address")
        self.addressed = self._lent(lambda row: row.lends and row.leaves == "address")
        at, rows = self._events.touched("results")
        read = self._events.called("grad.__get__".__eq__)[at]
        self.gradients = self._numbers(rows[read])  # memories that were read as gradients
        # Memories that some other call was heard to return.
        self._made = np.unique(history.memories[rows[~read]]).astype(np.int32)
        adding = self._events.called(lambda name: operation(name).accumulates)
        adding &= ~self._events.flagged(NONE)  # gradients that went were not written
        self.accumulating: list[int] = np.flatnonzero(adding).tolist()

    def not_made(self, memories: set[int]) -> set[int]:
        """Return those of some memories that no call was heard to return."""
        found = np.array(sorted(memories), np.int64)
        return set(found[~np.isin(found, self._made)].tolist())

    def _lent(self, wanted: Callable[[Operation], bool]) -> set[int]:
        """Return the memories that calls of some kind were given."""
        at, rows = self._events.touched("reads")
        lending = self._events.called(lambda name: wanted(operation(name)))
        return self._numbers(rows[lending[at]])

    def _numbers(self, rows: Numbers) -> set[int]:
        return set(np.unique(self._history.memories[rows]).tolist())

    @cached_property
    def began(self) -> dict[int, int]:
        """Where steps and backward passes began, by the event that tells of their end."""
        position = self._history.position
        return {
            position(span.event): position(span.first)
            for span in self._history.trace.spans
            if span.event != UNKNOWN and span.kind in ("step", "backward")
        }

    def _written(self, tensors: Numbers, versions: Numbers) -> Numbers:
        """Return the tensors that were seen with several versions."""
        order = stable_order(tensors)
        tensors, versions = tensors[order], versions[order]
        found: Numbers = tensors[1:][
            (tensors[1:] == tensors[:-1]) & (versions[1:] != versions[:-1])
        ]
        return found

    @cached_property
    def moved(self) -> Numbers:
        """The memories whose version had moved from one event to another, and these events."""
        events, rows = self._events.touched("reads", "results")
        tensor, version = (self._events.operands.column(one) for one in ("tensor", "version"))
        several = np.flatnonzero(np.isin(tensor, self._written(tensor, version))[rows])
        events, rows = events[several], rows[several]
        order = stable_order(tensor[rows])
        tensors, versions = tensor[rows[order]], version[rows[order]]
        again = np.flatnonzero((tensors[1:] == tensors[:-1]) & (versions[:-1] > UNKNOWN))
        again = again[versions[again + 1] > versions[again]]
        again = again[np.argsort(order[again + 1])]
        since, at = order[again], order[again + 1]
        memories = self._history.memories[rows[at]].astype(np.int32)
        return np.stack([memories, events[since], events[at]], axis=1)
