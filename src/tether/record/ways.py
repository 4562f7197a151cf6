"""By which ways the program's lines are reached: who called the function, this time."""

from __future__ import annotations

import types
from typing import Any

from tether.facts import MOST_REACHED, Moment, SiteId, WayThere
from tether.record.sites import ROOT, Place, Places, Stack
from tether.record.tape import Tape


class WayLog:
    """The ways by which lines in functions came to be reached.

    The first way of a line is with its place. It is looked at again at each of its calls, and what
    is noted is that it has changed. Nearly always it has not: then the frames are those of the last
    call, one by one, and nothing else is asked.
    """

    def __init__(self, tape: Tape) -> None:
        self._tape = tape
        self._places: Places = tape.places
        self._last: dict[int, tuple[int, ...]] = {}
        self._stacks: dict[int, Stack] = {}  # line -> the frames above it at its last call
        self.facts: list[WayThere] = []
        tape.places.on_way = self.look

    def look(self, place: Place, frame: types.FrameType) -> None:
        """Look at the way to a place of the user's that is about to call, in its own frame."""
        site = place.number
        above: Any = frame
        for code, offset in self._stacks.get(site, ROOT):
            above = above.f_back
            if above is None:
                if code is None:
                    return
                break
            if above.f_code is not code or (offset >= 0 and above.f_lasti != offset):
                break
        else:
            return
        self._compare(site, frame)

    def _compare(self, site: int, frame: types.FrameType) -> None:
        """Note the way to a line if it is another than at the line's last call."""
        above, self._stacks[site] = self._places.above(frame)
        if self._last.get(site, self._places.callers.get(site)) != above:
            if len(self.facts) < MOST_REACHED:
                way = tuple(map(SiteId, above))
                self.facts.append(WayThere(Moment(self._tape.now()), SiteId(site), way))
            self._last[site] = above
