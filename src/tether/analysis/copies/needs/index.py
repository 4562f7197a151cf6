"""What is known of all copies of a history: their runs, lives, and the calls that read them."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np

from tether.analysis.copies.already_there import Copied
from tether.analysis.copies.layouts import remapped
from tether.analysis.copies.memory_lives import MemoryLives
from tether.analysis.gradients.graph import Graph
from tether.analysis.history import History
from tether.facts import SCRIPTED_MODULE, UNKNOWN, Event, Gap, Operand, Site, SiteId

_BLIND = frozenset({"killed", "failed", "pytorch", "thread", "compiled", "traced", "memory"})
"""Gaps beside which memory may have been read unseen."""

FAR = 1_000  # events behind an index that are looked through


def read_unseen(history: History) -> bool:
    """Whether this process may have read memory of which no read is recorded.

    Of other processes `OtherProcesses` is asked, for each memory.
    """
    unseen = Gap("scripted", SCRIPTED_MODULE).reason  # a function keeps nothing
    blind = any(one.code in _BLIND or one.reason == unseen for one in history.trace.gaps)
    return blind or not (history.trace.program and history.whole)


class CopyIndex:
    """The copies that were made, by line, memory and event; and which count as their sources."""

    def __init__(self, history: History, made: Sequence[Copied]) -> None:
        self.history = history
        self.trace = history.trace
        self.flow = history.flow
        self.whole = bool(self.trace.program) and history.whole
        self.held = history.held
        self.blind = read_unseen(history)
        self.library = False  # the copy in question is made by a library's line
        self.often = False  # its line ran often, and gave what was there each time
        self.left_out: dict[int, Copied] = {}  # storage of a copy that is its source
        self.stand_in: set[int] = set()  # memories that count for copies that were left out
        pairs = [(one.source, one.copy) for one in made]
        self.lives = MemoryLives(history, {self.flow.memory(one) for pair in pairs for one in pair})
        self.reads: dict[int, list[int]] = defaultdict(list)  # tensor -> events that read it
        self._index_reads({operand.tensor for pair in pairs for operand in pair})
        self.parts: dict[int, list[Copied]] = defaultdict(list)  # event -> what it made
        self.runs: dict[SiteId, list[Copied]] = defaultdict(list)  # line -> the first part of each
        self.of_one: dict[tuple[SiteId, int], list[Copied]] = defaultdict(list)  # line, memory
        self.of_memory: dict[int, list[Copied]] = defaultdict(list)
        for one in made:
            if one.position not in self.parts:
                self.runs[self.event(one).site].append(one)
            self.parts[one.position].append(one)
            self.of_one[self.event(one).site, one.source.storage].append(one)
            self.of_memory[one.source.storage].append(one)

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
        self.stand_in.add(self.lives.memory(copied.source))
        if not copied.part:
            self.left_out[copied.copy.storage] = copied

    def resolved(self, source: Operand) -> tuple[Operand, list[int]]:
        """Return a source as it would be without the copies left out before, and where they are."""
        without: list[int] = []
        while (made := self.left_out.get(source.storage)) and made.position not in without:
            found = remapped(source, made.copy, made.source)
            if found is None:
                break
            source = found
            without.append(made.position)
        return source, without

    def event(self, copied: Copied) -> Event:
        """Return the call that made a copy."""
        return self.history.events[copied.position]

    def afterwards(self, copied: Copied) -> Iterator[Event]:
        """Yield the calls on a copy's memory that came after it."""
        for at in self.history.on_storage(copied.copy):
            if at > copied.position:
                yield self.history.events[at]

    def never_written(self, copied: Copied) -> bool:
        """Whether nothing wrote the memory of a copy, or of its source, from then on."""
        return not any(
            True
            for one in (copied.source, copied.copy)
            for _ in self.lives.written(one, copied.position, math.inf)
        )

    def own_step(self, copied: Copied) -> int:
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

    def line_of(self, copied: Copied) -> Site:
        """Return the line that made a copy; for a library's copy the library's own."""
        event = self.event(copied)
        return self.history.site(event.inner) if self.library else self.history.site_of(event)

    def kind(self, operand: Operand) -> str:
        """Return the class of a tensor."""
        fact = self.trace.tensors.get(operand.tensor)
        return fact.kind if fact is not None else "Tensor"

    def function_of(self, at: int) -> tuple[str, int]:
        """Return the function of the line that made a call: its file and first line."""
        site = self.history.site_of(self.history.events[at])
        return site.file, site.first_line

    def saves(self, copy: Operand, after: int, before: int) -> bool:
        """Whether a call saved the copy for backward, which a moved version would refuse."""
        graph = self.history.get(Graph)
        return any(
            after < at < before and any(one.storage == copy.storage for one in graph.saved(at))
            for at in self.history.on_storage(copy)
        )
