"""States that were saved to a stream in memory and read back from there: known by their bytes.

What `torch.save` has put into an `io.BytesIO` is summed up, and so is what `torch.load` is given:
the stream, or another one with the same bytes. Nothing is kept of either. Up to `MOST` bytes, for
at most 1 % of the run's time.
"""

from __future__ import annotations

import io
import zlib
from typing import Any

from tether.facts import UNKNOWN, EventId, ReadBack
from tether.record.budget import Budget

MOST = 16 << 20
_KNOWN = 64  # states that may be read back


class ReadBackLog:
    """Finds what is read back from memory after it was saved there."""

    def __init__(self) -> None:
        self.facts: list[ReadBack] = []
        self._known: dict[tuple[int, int], int] = {}  # length and sum of the bytes -> event
        self._budget = Budget(0.01, allowed=0.05)

    def saved(self, stream: Any, event: int) -> None:
        """Remember what a stream holds."""
        total = self._sum(stream)
        if total is None:
            return
        self._known.pop(total, None)
        self._known[total] = event
        if len(self._known) > _KNOWN:
            del self._known[next(iter(self._known))]

    def saved_by(self, stream: Any) -> int:
        """Return the call that saved the bytes that a stream holds, which is about to be read."""
        total = self._sum(stream) if self._known else None
        return UNKNOWN if total is None else self._known.get(total, UNKNOWN)

    def read(self, event: int, since: int) -> None:
        """Note that a state was read back."""
        self.facts.append(ReadBack(EventId(event), EventId(since)))

    def _sum(self, stream: Any) -> tuple[int, int] | None:
        """Return the length and the sum of a stream's bytes, without moving in it."""
        if type(stream) is not io.BytesIO or stream.closed or self._budget.late():
            return None
        with self._budget, stream.getbuffer() as data:
            return (len(data), zlib.crc32(data)) if len(data) <= MOST else None
