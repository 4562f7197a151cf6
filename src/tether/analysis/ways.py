"""By which way a call was reached: the lines of the functions that were running, and which asked.

A value that one call of a function hands on and another one takes is told by the lines of the
function that saw both: the program's own loop, and not a layer's forward.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict

from tether.analysis.history import History
from tether.facts import MOST_REACHED, SiteId


class WaysThere:
    """The lines above each call."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._first = {one.site: one.above for one in history.trace.callers}
        self._later: dict[int, list[tuple[int, tuple[SiteId, ...]]]] = defaultdict(list)
        reached = history.trace.reached
        for fact in reached:
            self._later[fact.site].append((fact.at, fact.above))
        self._known = reached[-1].at if len(reached) >= MOST_REACHED else history.trace.ended

    def above(self, at: int) -> tuple[SiteId, ...]:
        """Return the user's lines from which a call was reached, the nearest first, if known."""
        site, moment = self._history.events[at].site, self._history.trace.event_id(at)
        later = self._later.get(site, ())
        number = bisect_right(later, moment, key=lambda one: one[0])
        if moment > self._known:
            return ()
        return later[number - 1][1] if number else self._first.get(site, ())

    def seen_by(self, at: int, *others: int) -> SiteId:
        """Return the line of a call in the nearest function that ran for other calls as well.

        Its own line where there is none.
        """
        ways = [self._lines(one) for one in (at, *others)]
        common = set(ways[0]).intersection(*ways[1:])
        own = self._history.events[at].site
        # In the last of the others: the pass runs in the function that all of it is for.
        return next((ways[0][one] for one in ways[-1] if one in common), own)

    def _lines(self, at: int) -> dict[tuple[str, str, int], SiteId]:
        """Return a call's line in each function that was running, the nearest first."""
        lines: dict[tuple[str, str, int], SiteId] = {}
        for number in (self._history.events[at].site, *self.above(at)):
            place = self._history.site(number)
            lines.setdefault((place.file, place.function, place.first_line), number)
        return lines
