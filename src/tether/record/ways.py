"""By which ways the program's lines are reached: who called the function, this time."""

from __future__ import annotations

import types

from tether.facts import MOST_REACHED, Moment, SiteId, WayThere
from tether.record.sites import Place, Places
from tether.record.tape import Tape


class WayLog:
    """The ways by which lines in functions came to be reached.

    The first way of a line is with its place. It is looked at again as often as the place says,
    and whenever the line makes a parameter.
    """

    def __init__(self, tape: Tape) -> None:
        self._tape = tape
        self._places: Places = tape.places
        self._last: dict[int, tuple[int, ...]] = {}
        self.facts: list[WayThere] = []
        tape.places.on_way = self.look

    def look(self, place: Place, frame: types.FrameType) -> None:
        """Look at the way to a place of the user's that is about to call, in its own frame."""
        place.looks -= 1
        above = self._places.above_user(frame) if place.looks else ()
        self._take(place.number, above, self._tape.now())

    def made(self, event: int, site: int, frame: types.FrameType | None) -> None:
        """Look at the way to a line that has just made a parameter."""
        self._take(site, self._places.above_user(frame), event)

    def _take(self, site: int, above: tuple[int, ...], at: int) -> None:
        """Take note of a way, if it is another than before."""
        if self._last.get(site, self._places.callers.get(site)) != above:
            if len(self.facts) < MOST_REACHED:
                self.facts.append(WayThere(Moment(at), SiteId(site), tuple(map(SiteId, above))))
            self._last[site] = above
