"""Whether a tensor could have shown the memory of the array that it was made of."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tether.analysis.copies.already_there import Copied, nbytes
from tether.analysis.copies.needs.answers import FLOOR, WhyNeeded
from tether.analysis.copies.needs.index import CopyIndex
from tether.analysis.copies.needs.words import CopyQuestion
from tether.facts import UNKNOWN, Taken
from tether.operations.table import operation

LOOKED = 32
"""Arrays of a line that were looked at, and not written, by which the others of it are judged."""


class MadeOfArray(CopyQuestion):
    """The arrays that tensors were made of: how long they lived, and what was written."""

    def __init__(self, index: CopyIndex) -> None:
        super().__init__(index)
        self._usual = -1.0  # calls that the arrays of a line lived for that were not written

    def look_at(self, executions: Sequence[Copied]) -> int:
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
        return self._history.position(taken.released) - copied.position if gone else math.inf

    def reason(self, copied: Copied, taken: Taken) -> WhyNeeded | None:
        """Say why a tensor could not have shown the memory of the array that it was made of."""
        copy, name = copied.copy, self._words.name(copied.copy)
        released = copied.position + self._array_lives(copied, taken)
        for write in self._lives.written(copy, copied.position, released):
            text = f"{self._words.line(write.at, copied)} {write.verb} {name} while its array lives"
            return WhyNeeded("yes", text, write.at)
        if taken.changed == "yes":
            text = f"the array that it was made of was written while {name} lives"
            return WhyNeeded("yes", text)
        if taken.changed == "unknown" and not released - copied.position <= self._usual < math.inf:
            doubt = "what became of the array that it was made of was not seen"
            return WhyNeeded("unknown", doubt)
        if taken.beside > min(FLOOR, nbytes(copy)) and released < self._lives.until(copy):
            return WhyNeeded("yes", f"it lets {taken.beside:,} bytes beside it be freed")
        for at in self._index.reads[copy.tensor]:
            row = operation(self._history.events[at].operation)
            if row.replaces and not row.makes:
                return WhyNeeded("yes", f"at {self._words.line(at, copied)} it {row.replaces}", at)
        if max(released, self._lives.until(copy)) == math.inf and not self._index.whole:
            return WhyNeeded("unknown", "both are alive where the recording ends")
        return None
