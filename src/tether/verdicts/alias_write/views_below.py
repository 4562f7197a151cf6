"""What a function writes into a view that it takes of what it is handed: of `alias-write`.

``real = spectrum.real; real.pow_(2)``: no variable of the caller's shows the view, so that the
names which were found at the write do not tell whose memory it is. That the caller reads the tensor
behind it afterwards, in the line that the text says, is in the calls.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tether.analysis.history import History
from tether.analysis.sharing.holding import Holding
from tether.analysis.sharing.shared_memory import Sharing
from tether.analysis.surroundings import WaysThere
from tether.facts import Event, Holder, Site, SiteId, TensorId


def views_below(history: History) -> Iterator[Holder]:
    """Yield the variable of a caller's whose tensor was written below it, by a view of it.

    Of each way by which a line that writes was reached the first write, and the nearest caller that
    reads the tensor later.
    """
    column, ways = history.events.column, history.get(WaysThere)
    own = (column("writes") > 0) & (column("inner") == column("site"))
    seen = set[tuple[SiteId, tuple[SiteId, ...]]]()
    for at, event in history.events.at(np.flatnonzero(own)):
        way = event.site, ways.above(at)
        if way in seen or not way[1] or len(event.writes) != 1:
            continue
        seen.add(way)
        handed = _handed_in(history, at, event)
        held = None if handed is None else _held(history, at, handed, way[1])
        if held is not None:
            yield held


def _handed_in(history: History, at: int, event: Event) -> TensorId | None:
    """Return the tensor that a function took a view of to write it, and was given by a caller."""
    function = history.site_of(event).function
    for link in history.get(Sharing).chain(event.writes[0].tensor):
        taken = history.site_of(history.events[link.at])
        if taken.function != function or link.at > at:
            return None
        made = history.made_at(link.source)
        if made < 0 or history.site_of(history.events[made]).function != function:
            return TensorId(link.source)
    return None


def _held(history: History, at: int, tensor: TensorId, above: tuple[SiteId, ...]) -> Holder | None:
    """Return the variable of a caller by which it reads a tensor after the call that wrote it."""
    operand, event = history.operand_of(tensor), history.trace.event_id(at)
    if operand is None:
        return None
    reads = sorted(read for read, _ in history.get(Holding).reads_of(tensor) if read > at)
    for depth, number in enumerate(above, 1):
        call = history.site(number)
        sites = (history.site_of(history.events[read]) for read in reads)
        site = next((one for one in sites if _goes_on(one, call)), None)
        name = history.read_as(operand, at, site) if site is not None else ""
        if name:
            return Holder(event, tensor, name, "variable", call.function, number, depth)
    return None


def _goes_on(site: Site, call: Site) -> bool:
    """Whether a line stands after a call, in its function."""
    return site.scope == call.scope and site.line > call.line
