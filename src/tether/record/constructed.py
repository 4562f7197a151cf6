"""By which ways the lines that make parameters are reached: who calls a constructor, this time."""

from __future__ import annotations

import types

from tether.facts import Constructed, EventId, SiteId
from tether.record.tape import Tape

MOST = 1 << 10
"""Changes of way that are noted; after the last nothing is looked at."""


class ConstructedLog:
    """The ways by which parameters came to be made."""

    def __init__(self, tape: Tape) -> None:
        self._places = tape.places
        self._last: dict[int, tuple[int, ...]] = {}
        self.facts: list[Constructed] = []

    def made(self, event: int, site: int, frame: types.FrameType | None) -> None:
        """Take note of the way to a line that has just made a parameter, if it is another."""
        if len(self.facts) < MOST:
            above = self._places.above_user(frame)
            if self._last.get(site, self._places.callers.get(site)) != above:
                self.facts.append(Constructed(EventId(event), tuple(map(SiteId, above))))
            self._last[site] = above
