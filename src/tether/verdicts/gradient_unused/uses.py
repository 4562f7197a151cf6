"""Which lines use the values of the tensors that are trained."""

from __future__ import annotations

from tether.analysis.history import History
from tether.facts import UNKNOWN, Event, Site, SiteId
from tether.operations.table import operation

MOST_LINES = 2
"""Lines that are kept of one tensor."""


class Uses:
    """The first lines at which values went into something else, once an optimizer held some.

    To be initialised, or sent to the other ranks as it is, is no use.
    """

    def __init__(self, history: History) -> None:
        first = min((history.position(one.at) for one in history.trace.optimizers), default=0)
        sites: dict[int, list[SiteId]] = {}
        self.first: dict[int, int] = {}  # tensor -> the first of those calls
        for at in range(max(first, 0), len(history.events)):
            event = history.events[at]
            if history.flow.carries[at] and (event.results or operation(event.operation).leaves):
                for tensor in _used(event):
                    self.first.setdefault(tensor, at)
                    known = sites.setdefault(tensor, [])
                    if event.site not in known and len(known) < MOST_LINES:
                        known.append(event.site)
        self.lines: dict[int, list[Site]] = {
            tensor: [history.site(one) for one in some] for tensor, some in sites.items()
        }


def last_use(history: History, tensor: int) -> int:
    """Return the last call, before the next pass, that its values came to; -1 for none.

    What nothing reads is where the values end: in an argument that a call does not look for, say.
    """
    if tensor not in history.get(Uses).first:
        return UNKNOWN
    first = history.get(Uses).first[tensor]
    reached, last = {tensor}, UNKNOWN
    for at in range(first, history.next_pass(first)):
        event = history.events[at]
        if history.flow.carries[at] and reached.intersection(int(o.tensor) for o in event.reads):
            reached |= {int(one.tensor) for one in event.results}
            last = at
    return last


def _used(event: Event) -> set[int]:
    """Return the tensors whose values went into something else."""
    made = {one.tensor for one in event.writes}
    if len(event.results) == 1:
        made.add(event.results[0].tensor)
    return {int(one.tensor) for one in event.reads} - made
