"""Views that are given other memory, by ``.data = ...``, and not looked at again.

The values were to be written into what the view shows, which keeps its own. Told is a line of which
every run is so, where the memory that was left is read afterwards.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from tether.analysis.history import History
from tether.analysis.sharing.shared_memory import Sharing
from tether.facts import UNKNOWN, Event, Operand, SiteId
from tether.finding import At, CallOf, Claim, Repair, Step, Tensor, say
from tether.operations.table import operation


class GivenInVain(NamedTuple):
    """A line that gives views memory which nobody sees."""

    at: int  # its first call
    owner: int  # the tensor whose memory the view showed
    taken: int  # the call that made the view
    read: int  # the first call that reads the old memory afterwards
    runs: int


def given_in_vain(history: History) -> Iterator[GivenInVain]:
    """Yield the lines."""
    at_of, operands = history.events.touched("reads")
    tensors = history.events.operands.column("tensor")
    last = np.full(int(tensors.max(initial=0)) + 2, UNKNOWN, np.int32)
    last[tensors[operands] + 1] = at_of  # in order: the last one counts
    lines: dict[SiteId, list[GivenInVain | None]] = defaultdict(list)
    for at, event in history.events.where(lambda name: operation(name).rebinds):
        unseen = bool(event.reads) and last[event.reads[0].tensor + 1] == at
        lines[event.site].append(_given(history, at, event) if unseen else None)
    for runs in lines.values():
        found = [one for one in runs if one is not None]
        read = next((one for one in found if one.read >= 0), None)
        if read is not None and len(found) == len(runs):
            yield read._replace(runs=len(runs))


def _given(history: History, at: int, event: Event) -> GivenInVain | None:
    """Return what a call gives to a view that goes without being read again."""
    view, *values = event.reads
    chain, life = history.get(Sharing).chain(view.tensor), history.trace.tensors.get(view.tensor)
    gone = life is not None and life.died != UNKNOWN
    if not chain or not gone or [one.shape for one in values] != [view.shape]:
        return None
    if values[0].storage == view.storage or history.made_at(values[0].tensor) < chain[0].at:
        return None
    owner, read = _read_later(history, at, view, [int(link.source) for link in chain])
    return GivenInVain(at, owner, chain[0].at, read, 1)


def _read_later(history: History, at: int, view: Operand, behind: list[int]) -> tuple[int, int]:
    """Return which tensor behind a view is read later on, and the first call to read it; or -1."""
    for later in history.on_storage(view):
        given = {one.tensor for one in history.events[later].reads} if later > at else set()
        owner = next((one for one in behind if one in given), UNKNOWN)
        if owner != UNKNOWN:
            return owner, later
    return behind[-1], UNKNOWN


def claims(history: History) -> Iterator[Claim]:
    """Give one claim for each such line."""
    for found in given_in_vain(history):
        yield _claim(history, found)


def _claim(history: History, found: GivenInVain) -> Claim:
    event, taken, read = (history.events[one] for one in (found.at, found.taken, found.read))
    parts = {"x": Tensor(found.owner), "line": At(event.site)}
    return Claim(
        tensors=(found.owner,),
        cause=("given", event.site),
        site=event.site,
        operation=event.operation,
        message=say(
            "What {line} gives to a view of {x} is nowhere: {call} puts the view on other memory,"
            " nothing reads the view after that, and {x} keeps its values.",
            call=CallOf(found.at), **parts,
        ),
        story=(
            Step("shared", taken.site, say("{call} makes a view of {x}", call=CallOf(found.taken),
                 **parts)),
            Step("written", event.site, say("the view is given other memory, and {x} is not"
                 " written", **parts)),
            Step("read", read.site, say("{x} is read, as it was", **parts)),
        ),
        repair=Repair(say("Write into the memory that the view shows: .copy_(...) instead of an"
                          " assignment to .data.")),
        count=found.runs,
        calls=(found.at,),
    )  # fmt: skip
