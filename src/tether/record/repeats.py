"""Large results that a line makes anew, with the same bytes each time: looked at as they are made.

The bytes of a line's first result are summed and compared with those of its 2nd, 3rd, 4th, 8th,
16th... The first that differs ends it. Only memory of the CPU that takes no part in a gradient
graph is looked at, from `COMPARED` to `MOST` bytes, for at most `SHARE` of the run's time.
"""

from __future__ import annotations

import torch

from tether.facts import EventId, Repeated
from tether.record.budget import Budget
from tether.record.contents import fingerprint

MOST = 16 << 20
SHARE = 0.005

_EACH = 4
"""Runs of a line that are each looked at; of later ones every power of two."""


class _Made:
    """What one line made, as long as it is the same."""

    __slots__ = ("event", "looked", "runs", "sum")

    def __init__(self, event: int, total: int) -> None:
        self.event = event
        self.sum = total
        self.runs = self.looked = 1


class RepeatLog:
    """Compares what lines make with what they made before."""

    def __init__(self) -> None:
        self._lines: dict[tuple[str, int, int], _Made | None] = {}  # None: it is not the same
        self._budget = Budget(SHARE, allowed=0.05)

    def look(self, name: str, place: tuple[int, int], event: int, result: torch.Tensor) -> None:
        """Look at a result in new memory."""
        key = (name, *place)
        line = self._lines.get(key)
        if line is None and key in self._lines:
            return
        runs = 1 if line is None else line.runs + 1
        if line is not None:
            line.runs = runs
        if runs > _EACH and runs & (runs - 1):
            return
        if self._budget.late():
            return
        with self._budget:
            total = fingerprint(result) if result.nbytes <= MOST else None
        if line is None:
            self._lines[key] = None if total is None else _Made(event, total)
        elif total != line.sum:
            self._lines[key] = None
        else:
            line.looked += 1

    def facts(self) -> list[object]:
        """Return the lines that made the same whenever they were looked at."""
        return [
            Repeated(EventId(one.event), one.looked)
            for one in self._lines.values()
            if one is not None and one.looked > 1
        ]
