"""Copies that a variable has for longer than any line can read them.

A variable keeps what it was given until it is given the next, or its function ends. Where the text
reads it in the statements behind the first alone, what is written after these no line can see in
it. That nothing else held the copy is seen in memory: each went as the next one was made.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tether.analysis.copies.already_there import Copied
from tether.analysis.copies.memory_lives import MemoryWrite
from tether.analysis.gradients.graph import Graph
from tether.analysis.history import History
from tether.analysis.surroundings import Surroundings, WaysThere
from tether.facts import UNKNOWN, SiteId
from tether.source.last_reads import Readable, readable


class Lingering:
    """Tells what is done while a variable has a copy from what is done while it can be read."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._known: dict[SiteId, Readable | None] = {}
        self._begun: dict[SiteId, list[int]] = {}

    def is_past(self, copied: Copied, write: MemoryWrite, until: float) -> bool:
        """Whether no line can read a copy as its source is written, though it lives until later."""
        history, event = self._history, self._history.events[copied.position]
        lines = self._lines(event.site)
        if lines is None or write.at >= len(history.events):
            return False
        own = history.site_of(event)
        later = history.on_storage(copied.copy)
        since = write.at if write.since == UNKNOWN else write.since
        if any(at > since for at in later) or self._is_saved(copied, later):
            return False
        if not self._goes_in_turn(copied, event.site, until):
            return False
        ways = (history.events[write.at].site, *history.get(WaysThere).above(write.at))
        here = [site.line for site in map(history.site, ways) if site.definition == own.definition]
        return bool(here) and not lines.first <= here[0] <= lines.last

    def _lines(self, number: SiteId) -> Readable | None:
        if number not in self._known:
            site = self._history.site(number)
            source = self._history.get(Surroundings).source(site.file)
            self._known[number] = readable(source, site)
        return self._known[number]

    def _goes_in_turn(self, copied: Copied, site: SiteId, until: float) -> bool:
        """Whether a copy was gone as soon as its line had made the next; of the last is not asked.

        Then the variable alone had it.
        """
        sites = self._history.events.column("site")
        if until < len(sites):
            return bool(sites[int(until) - 1] == site)
        runs = self._runs(site)
        return len(runs) > 1 and copied.position >= runs[-1]

    def _runs(self, site: SiteId) -> list[int]:
        """Return where the runs of a line begin, as far as calls of other lines part them."""
        if site not in self._begun:
            here = np.flatnonzero(self._history.events.column("site") == site)
            begins = np.diff(here, prepend=UNKNOWN - 1) > 1
            self._begun[site] = here[begins].tolist()
        return self._begun[site]

    def _is_saved(self, copied: Copied, later: Sequence[int]) -> bool:
        """Whether a call saved a copy for backward: the graph has it for longer."""
        graph, copy = self._history.get(Graph), copied.copy.storage
        return any(one.storage == copy for at in later for one in graph.saved(at))

    def is_switched(self, copied: Copied) -> bool:
        """Whether a copied model was put into a mode: the other one stayed as it was."""
        history = self._history
        later = (history.events[at] for at in history.on_storage(copied.copy))
        own = {one.tensor for event in later for one in (*event.reads, *event.results)}
        return any(not own.isdisjoint(one.tensors) for one in history.trace.mode_switches)
