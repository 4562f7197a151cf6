"""A line that takes a view in some runs and a copy in others, and what is written there.

``root = start[ids]; root += origins[ids]`` changes `start` where `ids` is a slice, and leaves it as
it is where `ids` is a tensor: part of `alias-write`. Told is a line whose copies are written by the
same later line as its views, of a tensor that nothing else writes from then on. A note, for the
tensor may have been given up in the runs that took a view.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from tether.analysis.history import History
from tether.analysis.sharing.shared_memory import Sharing, Touch
from tether.analysis.timelines import same_lines
from tether.facts import RAISED, UNKNOWN, SiteId
from tether.finding import At, CallOf, Claim, Code, Repair, Step, Tensor, say
from tether.operations.table import operation
from tether.store.numbers import Numbers
from tether.verdicts.alias_write.telling import written

_MOST_RUNS = 64


class _Runs(NamedTuple):
    """The runs of a line that took something of one tensor."""

    views: list[int]
    copies: list[int]


class _ByAView(NamedTuple):
    """A write to a view, as the copies are written, and the next read of what it is a view of."""

    runs: _Runs
    write: int
    read: int


def sometimes_shared(history: History) -> Iterator[Claim]:
    """Yield a note for each line that wrote a tensor by the view that it took in some runs."""
    told = set[SiteId]()
    for (site, tensor), runs in _runs(history).items():
        if runs.views and runs.copies and site not in told:
            found = _changed(history, tensor, runs)
            if found is not None:
                told.add(site)
                yield _claim(history, tensor, found)


def _runs(history: History) -> dict[tuple[SiteId, int], _Runs]:
    """Return the runs of each line of the program's that takes something of a tensor."""
    found: dict[tuple[SiteId, int], _Runs] = defaultdict(lambda: _Runs([], []))
    events, tensors = history.events, history.events.operands.column("tensor")
    at, read, made = _takes(history)
    shared = history.memories[made] == history.memories[read]
    sites = events.column("site")[at]
    which = same_lines(sites, tensors[read])
    views, runs = np.bincount(which, shared), np.bincount(which)
    both = ((views > 0) & (views < runs))[which]
    columns = (one[both].tolist() for one in (sites, tensors[read], shared, at))
    for site, tensor, is_view, position in zip(*columns, strict=True):
        found[site, tensor][0 if is_view else 1].append(position)
    return found


def _may_view(name: str) -> bool:
    row = operation(name)
    return bool(name == "__getitem__" or row.copies or row.regroups)


def _takes(history: History) -> tuple[Numbers, Numbers, Numbers]:
    """Return the calls by which the program's own lines take one new tensor of another one.

    With the rows of the other and of the new one.
    """
    events = history.events
    column = events.column
    takes = (column("inner") == column("site")) & ~events.flagged(RAISED)
    takes &= (column("reads") > 0) & (column("results") == 1) & (column("writes") == 0)
    at = np.flatnonzero(takes & events.called(_may_view))
    first = events.starts[at]
    read, made = events.rows[first], events.rows[first + column("reads")[at]]
    tensors = events.operands.column("tensor")
    new = tensors[made] != tensors[read]
    return at[new], read[new], made[new]


def _changed(history: History, tensor: int, runs: _Runs) -> _ByAView | None:
    """Return a write to a view by a line that writes the copies, if the source is read later."""
    lines = {history.events[one.at].site for at in runs.copies[:_MOST_RUNS]
             for one in _writes_of(history, at)}  # fmt: skip
    views = {int(history.events[at].results[0].tensor) for at in runs.views}
    first = min(runs.views[0], runs.copies[0])
    for at in runs.views[:_MOST_RUNS] if lines else ():
        write = next((one.at for one in _writes_of(history, at)
                      if history.events[one.at].site in lines), UNKNOWN)  # fmt: skip
        if write == UNKNOWN:
            continue
        if _written_otherwise(history, tensor, first, views):
            return None
        read = _next_read(history, tensor, write, views)
        if read != UNKNOWN:
            return _ByAView(runs, write, read)
    return None


def _writes_of(history: History, at: int) -> Iterator[Touch]:
    """Yield the writes to what a call took, by itself or by a view of it."""
    made = history.events[at].results[0]
    for one in history.get(Sharing).writes.get(history.flow.memory(made)):
        if one.at > at and _goes_through(history, one.operand.tensor, {int(made.tensor)}):
            yield one


def _goes_through(history: History, tensor: int, views: set[int]) -> bool:
    chain = history.get(Sharing).chain(tensor)
    return tensor in views or any(link.source in views for link in chain)


def _written_otherwise(history: History, tensor: int, since: int, views: set[int]) -> bool:
    """Whether anything else writes the memory of a tensor: then it is one that moves."""
    operand = history.operand_of(tensor)
    memory = UNKNOWN if operand is None else history.flow.memory(operand)
    return any(
        one.at > since and not _goes_through(history, one.operand.tensor, views)
        for one in history.get(Sharing).writes.get(memory)
    )


def _next_read(history: History, tensor: int, write: int, views: set[int]) -> int:
    """Return the first call after a write that reads a tensor, and not by one of its views."""
    operand = history.operand_of(tensor)
    if operand is None:
        return UNKNOWN
    for at in history.on_storage(operand):
        event = history.events[at]
        reads = [one.tensor for one in event.reads if one.storage == operand.storage]
        if at > write and any(not _goes_through(history, one, views) for one in reads):
            return at
    return UNKNOWN


def _claim(history: History, tensor: int, found: _ByAView) -> Claim:
    runs = found.runs
    taken, event, read = (history.events[at] for at in (runs.views[0], found.write, found.read))
    parts = {
        "x": Tensor(tensor), "code": Code(taken.site), "line": At(taken.site),
        "n": len(runs.views), "all": len(runs.views) + len(runs.copies),
        "call": CallOf(found.write), "write": At(event.site), "read": At(read.site),
    }  # fmt: skip
    return Claim(
        tensors=(tensor,),
        cause=("sometimes shared", taken.site),
        site=taken.site,
        operation=taken.operation,
        severity="note",
        message=say(
            "{code} at {line} is a view of {x} in {n} of {all} runs, and a copy in the others:"
            " {call} at {write} changes {x} by the view, and leaves it as it is by a copy. {x} is"
            " read again ({read}).",
            **parts,
        ),
        story=(
            Step("shared", taken.site, say("a view of {x} in some runs, by what it is asked for",
                 **parts)),
            written(history, found.write),
            Step("read", read.site, say("{x} is read, with what was written", **parts)),
        ),
        repair=Repair(say("If {x} is to keep its values, take a copy in each run,"
                          " `{code!s}.clone()`, or add without writing in place.", **parts)),
        count=len(runs.views),
        calls=(runs.views[0],),
    )  # fmt: skip
