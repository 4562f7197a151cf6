"""Whether a copy let a larger memory go, or keeps elements in fewer bytes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations

from tether.analysis.copies.already_there import Copied, by_values, nbytes
from tether.analysis.copies.needs.answers import FLOOR, WhyNeeded
from tether.analysis.copies.needs.words import CopyQuestion
from tether.facts import UNKNOWN, Operand
from tether.operations.table import operation
from tether.regions import may_overlap

MOST_PARTS = 16
"""Parts of one memory whose copies are counted together."""

ENDED = 2
"""Earlier runs of a line whose sources have gone, from which the last one is taken to be alike."""


class MemoryKept(CopyQuestion):
    """What would stay in memory, or be shared for good, without a copy."""

    def size(self, copied: Copied) -> WhyNeeded | None:
        """Say whether the copy let a much larger memory go."""
        more = self.released(copied)
        if more:
            return WhyNeeded("yes", f"it lets {more:,} bytes beside it be freed")
        return self._stored(copied)

    def released(self, copied: Copied, *, by_line: bool = False) -> int:
        """Return how many bytes go by a copy, that it and others do not have; 0 for a few.

        With `by_line` the others are those of its own line alone.
        """
        source, copy = copied.source, copied.copy
        fact = self._trace.storages[source.storage]
        kept = sum(nbytes(one.copy) for one in self.beside(copied, by_line=by_line))
        more = fact.nbytes - max(nbytes(copy), kept)
        less = more <= min(FLOOR, fact.nbytes / 2)
        return 0 if less or self._lives.until(source) >= self._lives.until(copy) else more

    def beside(self, copied: Copied, *, by_line: bool = False) -> list[Copied]:
        """Return the copies of parts of one memory that live as long as one of them.

        Without all these it would stay, and they would not be there: those of one line go
        together, and those of other lines where they are not needed either (`rests_on`).
        """
        memory, until = copied.source.storage, self._lives.until(copied.copy)
        line = self._index.event(copied).site
        every, own = self._index.of_memory[memory], self._index.of_one[line, memory]
        for parts in (own,) if by_line else (every, own):
            if 1 < len(parts) <= MOST_PARTS and _apart(parts):
                return [one for one in parts if self._lives.until(one.copy) >= until]
        return []

    def _stored(self, copied: Copied) -> WhyNeeded | None:
        """Say whether elements were converted to be kept in fewer bytes, and are read again.

        A name of an attribute or of an element keeps them, and so does a line that converts others
        before they come back.
        """
        if not by_values(self._history, copied) or not self._is_narrowed(copied):
            return None
        way = self._history.events[copied.since].results[0]
        line = self._history.events[copied.since].site
        for one in (*self._history.names_of(way.tensor), self._history.target_of(way.tensor)):
            if "." in one or "[" in one:
                return WhyNeeded("yes", f"as `{one}` it is kept in fewer bytes", copied.since)
        between = self._history.events[copied.since + 1 : copied.position]
        if any(one.site == line and operation(one.operation).copies for one in between):
            text = "several are kept in fewer bytes before one of them comes back"
            return WhyNeeded("unknown", text, copied.since)
        return None

    def _is_narrowed(self, copied: Copied) -> bool:
        """Whether elements came back from fewer bytes than those they came from, gone by then."""
        way = self._history.events[copied.since].results[0]
        gone = self._lives.until(copied.source) <= copied.position
        return gone and nbytes(way) < nbytes(copied.copy)

    def kept(self, copied: Copied) -> WhyNeeded | None:
        """Ask what comes after, and what others do between a library's calls: neither was seen."""
        source, kept = copied.source, self._stays(copied)
        if not kept and not self._index.library:
            return None
        if kept and not self._index.whole:
            return WhyNeeded("unknown", "both are alive where the recording ends")
        if kept and self._index.library:
            # The program has ended, but the library serves others as well.
            text = "both are kept: what a library's other callers write was not seen"
            return WhyNeeded("unknown", text)
        if kept and self._ends_as_others(copied):
            return None
        # A program has its own order; a library's copy guards against that of other callers.
        for write in self._lives.written(source, UNKNOWN, math.inf):
            if write.at != copied.position and self._used_before(source, write.at):
                text = f"{self._words.line(write.at, copied)} writes {self._words.source(copied)}"
                return WhyNeeded("unknown", f"{text} at other times", write.at)
        return None

    def _ends_as_others(self, copied: Copied) -> bool:
        """Whether a source was made anew for its copy, as those of earlier runs of its line were.

        Each of these has gone: that this one is there yet is for the end of the program alone.
        """
        runs = self._index.runs[self._index.event(copied).site]
        earlier = [one for one in runs if one.position < copied.position and not self._stays(one)]
        alike = [one for one in earlier if one.source[4:7] == copied.source[4:7]]
        if len({one.source.storage for one in alike}) < ENDED:
            return False
        return self._history.on_storage(copied.source)[0] > max(one.position for one in earlier)

    def _stays(self, copied: Copied) -> bool:
        return min(map(self._lives.until, (copied.copy, copied.source))) == math.inf

    def _used_before(self, source: Operand, at: int) -> bool:
        """Whether a memory was read before an event: what was written until then filled it."""
        for position in self._history.on_storage(source):
            if position >= at:
                return False
            event = self._history.events[position]
            if event.reads and not event.writes and not operation(event.operation).makes:
                return True
        return False


def _apart(parts: Sequence[Copied]) -> bool:
    """Whether copies are of other elements of one memory each, as far as their places say."""
    places = {(one.source.offset, one.source.shape, one.source.strides) for one in parts}
    pairs = combinations((one.source for one in parts), 2)
    return len(places) == len(parts) and not any(may_overlap(*pair) for pair in pairs)
