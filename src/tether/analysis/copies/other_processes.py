"""Which memory other processes show as well, and what those that were forked off did with theirs.

A forked process has every memory as it was then, and as its own: nothing that it does reaches what
was made later, or changes what was made before. It matters for a copy only if it uses the copy that
it was given. Memory that was sent, received or mapped is one for several: others may write it.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING

from tether.analysis.history import History
from tether.facts import UNKNOWN, Operand, SharedBy
from tether.operations.table import operation

if TYPE_CHECKING:  # both ask here whether another process may have written
    from tether.analysis.copies.already_there import Copied
    from tether.analysis.copies.memory_lives import MemoryLives


class OtherProcesses:
    """The other processes of one recording, as far as they have to do with its memory."""

    def __init__(self, history: History) -> None:
        self._history, trace = history, history.trace
        self._memory, number = history.flow.memory, history.flow.memory_of
        self._ways: dict[int, set[str]] = defaultdict(set)
        for fact in trace.shared:
            self._ways[number(fact.storage)].add(fact.way)
        self._forks = sorted(history.position(fork.at) for fork in trace.forks)
        self._heard = all(fork.heard for fork in trace.forks)
        self._used = {number(fact.storage) for fact in trace.inherited}
        self._changed = {number(fact.storage) for fact in trace.inherited if fact.changed}
        self._harmless = set(self._without_harm(history))

    def _without_harm(self, history: History) -> Iterator[SharedBy]:
        """Yield the ways to show a memory by which nobody else writes it here."""
        trace = history.trace
        children = sum(gap.times for gap in trace.gaps if gap.code == "child")
        if not (children or trace.forks or trace.process.started):
            yield "mapped"
        # What was received may be what this process has sent, or its parent; or it is a child's.
        back = trace.process.started or any(fact.way == "sent" for fact in trace.shared)
        known = self._heard and 0 < len(trace.forks) >= children
        if known and not (back or any(fork.rewrites for fork in trace.forks)):
            yield "received"

    def write(self, operand: Operand) -> bool:
        """Whether another process may write the memory behind an operand, at any time.

        The one place that answers this: `written` and `MemoryLives.written` ask it, so who says
        that nothing wrote a memory asks one of them. `History.writes_to` has the writes of this
        process alone.
        """
        return self.write_memory(self._memory(operand))

    def write_memory(self, memory: int) -> bool:
        """Whether another process may write a memory, at any time."""
        return bool(self._ways.get(memory, set()) - self._harmless)

    def written(self, operand: Operand, after: int, until: float = math.inf) -> bool:
        """Whether a call here wrote bytes between two events, or another process may have."""
        first = next(self._history.writes_to(operand, after), UNKNOWN)
        return UNKNOWN < first <= until or self.write(operand)

    def sent(self, operand: Operand) -> bool:
        """Whether the memory behind an operand was received from another process."""
        return "received" in self._ways.get(self._memory(operand), ())

    def read(self, operand: Operand, since: int, until: float) -> bool:
        """Whether another process may read what a memory holds between two events."""
        memory = self._memory(operand)
        if self._ways.get(memory):
            return True
        next_one = bisect_right(self._forks, since)
        forked = next_one < len(self._forks) and self._forks[next_one] <= until
        return forked and (not self._heard or memory in self._used or memory in self._lent)

    @cached_property
    def _lent(self) -> set[int]:
        """The memories that something else than a tensor shows: how that is used is not heard."""
        history, number = self._history, self._history.flow.memory_of
        lends = history.events.where(lambda name: bool(operation(name).lends))
        entered = (one for one, fact in history.trace.storages.items() if fact.memory != UNKNOWN)
        given = {self._memory(one) for _, event in lends for one in event.reads}
        return given | {number(one) for one in entered}

    def use(self, copied: Copied, lives: MemoryLives) -> str:
        """Say what a process that was forked off while a copy lived may have done with it."""
        next_one = bisect_right(self._forks, copied.position)
        if next_one == len(self._forks) or self._forks[next_one] > lives.until(copied.copy):
            return ""
        if not self._heard:
            return "not all that a forked process does with it is heard"
        copy, source = self._memory(copied.copy), self._memory(copied.source)
        if copy in lives.exported:
            return "a forked process may use an array on its memory"
        if copy not in self._used:
            return ""
        apart = copied.taken is not None or source in lives.exported
        if apart or {copy, source} & self._changed:
            return "a forked process uses it, and may write one of the two"
        alike = copied.source.strides == copied.copy.strides
        return "" if alike else "a forked process uses it, and may rely on its layout"
