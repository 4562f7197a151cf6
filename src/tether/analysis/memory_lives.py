"""When memory was written and when it went: what a copy and its source did while both lived."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import NamedTuple

from tether.analysis.history import History
from tether.facts import UNKNOWN, Event, Operand
from tether.operations.table import operation


class MemoryWrite(NamedTuple):
    """A write to a memory."""

    at: int  # the event that wrote it; of an unheard write, the one before which it was noticed
    written: Operand | None = None  # None: no telling which part of it
    verb: str = "writes"
    since: int = UNKNOWN  # the position after which a write came that was noticed later


class MemoryLives:
    """The writes to some memories, and their ends; memories that were joined count as one."""

    def __init__(self, history: History, memories: set[int]) -> None:
        self._history, self._flow = history, history.flow
        self._memories = memories
        self._joined: dict[int, int] = {}
        self._heard: dict[int, list[MemoryWrite]] = defaultdict(list)
        self.unheard: dict[int, list[MemoryWrite]] = defaultdict(list)
        self._born: dict[int, int] = {}  # memory -> position when the first of it was made
        self._freed: dict[int, float] = {}  # memory -> position when the last of it was gone
        self.exported: set[int] = set()  # memories that an array showed
        self.addressed: set[int] = set()  # memories whose address was asked for
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
        """Yield the writes to the memory behind an operand, after one event and before a time."""
        found = self._heard.get(self.memory(operand), [])
        for write in found[bisect_right(found, after, key=lambda one: one.at) :]:
            if write.at >= until:
                break
            yield write
        for write in self.unheard.get(self.memory(operand), []):
            if write.at > after and write.since < until:
                yield write

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
        for marked in (self.exported, self.addressed):
            if gone in marked:
                marked.add(kept)

    # -- indexes ---------------------------------------------------------------------------------

    def _index_events(self) -> None:
        began = self._began()
        made: set[int] = set()  # memories that some call was heard to return
        gradients: set[int] = set()
        accumulating: list[int] = []
        moved = _MovedVersions(self._flow.memory, self._memories)
        for position, event in enumerate(self._history.events):
            moved.look(position, event)
            self._note(position, event, began.get(position, UNKNOWN))
            given = {self._flow.memory(one) for one in event.results}
            if event.operation == "grad.__get__":
                gradients |= given
            else:
                made |= given
            if operation(event.operation).accumulates:
                accumulating.append(position)
        # A backward pass adds to gradients in place, a step writes its optimizer's state.
        for memory in self._memories & (gradients | (self._memories - made)):
            end = self._freed.get(memory, math.inf)
            for at in accumulating[bisect_left(accumulating, self._born.get(memory, 0)) :]:
                since = began.get(at, at - 1)
                if since > end:
                    break
                self.unheard[memory].append(MemoryWrite(at, verb="may write", since=since))
        for found in self._heard.values():
            found.sort(key=lambda one: one.at)
        self._note_moved(moved)

    def _note_moved(self, moved: _MovedVersions) -> None:
        known: dict[int, list[int]] = {}  # memory -> when it was written
        for memory, since, position in moved.found:
            times = known.get(memory)
            if times is None:
                heard = (*self._heard.get(memory, ()), *self.unheard.get(memory, ()))
                times = known[memory] = sorted(one.at for one in heard)
            first = bisect_left(times, since)
            if first == len(times) or times[first] > position:
                write = MemoryWrite(position, None, "comes after something wrote", since)
                self.unheard[memory].append(write)
                insort(times, position)

    def _began(self) -> dict[int, int]:
        """Return where steps and backward passes began, by the event that tells of their end."""
        position = self._history.position
        return {
            position(span.event): position(span.first)
            for span in self._history.trace.spans
            if span.event != UNKNOWN and span.kind in ("step", "backward")
        }

    def _note(self, position: int, event: Event, within: int) -> None:
        """Note what an event wrote, and whose memory it handed out."""
        row = operation(event.operation)
        if row.lends:
            shown = self.addressed if row.leaves == "address" else self.exported
            shown.update(self._flow.memory(one) for one in event.reads)
        for operand in event.writes:
            memory = self._flow.memory(operand)
            if memory in self._memories:
                kept = self._heard if within == UNKNOWN else self.unheard
                kept[memory].append(MemoryWrite(position, operand, since=within))

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
        for serial, fact in self._history.trace.storages.items():
            memory = self._flow.memory_of(serial)
            if memory in self._memories:
                born = self._history.position(fact.born)
                self._born[memory] = min(self._born.get(memory, born), born)
                end = math.inf if fact.freed == UNKNOWN else self._history.position(fact.freed)
                self._freed[memory] = max(self._freed.get(memory, -math.inf), end)
                if fact.memory != UNKNOWN:
                    self.exported.add(memory)


class _MovedVersions:
    """Finds memories whose version had moved from one event to another."""

    def __init__(self, memory: Callable[[Operand], int], memories: set[int]) -> None:
        self._memory, self._memories = memory, memories
        self._seen: dict[int, tuple[int, int]] = {}  # tensor -> where last met, at which version
        self.found: list[tuple[int, int, int]] = []  # memory, and the events around the write

    def look(self, position: int, event: Event) -> None:
        """Look at the operands of the next event."""
        for operand in (*event.reads, *event.results):
            since, known = self._seen.get(operand.tensor, (position, operand.version))
            if UNKNOWN < known < operand.version:
                memory = self._memory(operand)
                if memory in self._memories:
                    self.found.append((memory, since, position))
            self._seen[operand.tensor] = (position, operand.version)
