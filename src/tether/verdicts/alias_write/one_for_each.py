"""One tensor that was written for each time that it is joined with itself: part of `alias-write`.

``torch.stack(list(frames(signal)))``, where the generator yields the one buffer that it fills: a
line wrote it as often as it is joined, and every one of them shows what came last.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator

from tether.analysis.history import History
from tether.analysis.sharing.shared_memory import Sharing
from tether.facts import UNKNOWN, Site, SiteId
from tether.finding import At, CallOf, Claim, Repair, Step, Tensor, say
from tether.source.syntax import expression
from tether.verdicts.alias_write.taken_for_several import (
    Comprehension,
    joins_of_one,
    over_several,
    put_at,
)
from tether.verdicts.alias_write.telling import written

_LEAST = 3
"""Times that a tensor is joined with itself from which its writes are counted: two may be meant."""


def one_for_each(history: History) -> Iterator[Claim]:
    """Yield one claim for each line that joins such a tensor with itself."""
    told: set[SiteId] = set()
    for at, event in history.events.at(joins_of_one(history)):
        writes = [] if event.site in told or event.raised else _written_for_each(history, at)
        if writes:
            told.add(event.site)
            yield _claim(history, at, writes)


def _written_for_each(history: History, at: int) -> list[int]:
    """Return the writes of a line that are as many as the operands which a join was given; or none.

    Those after the join before. Not where the join itself says that it takes the one several times.
    """
    event = history.events[at]
    tensor, number, own = event.reads[0].tensor, len(event.reads), event.inner == event.site
    if number < _LEAST or not own or _says_so(history.site_of(event)):
        return []
    if {one.tensor for one in event.reads} != {tensor}:
        return []
    lines: dict[SiteId, list[int]] = defaultdict(list)
    since = _joined_before(history, at)
    for write in history.get(Sharing).writes.get(history.flow.memory(event.reads[0])):
        if since < write.at < at and history.events[write.at].operation != "step":
            lines[history.events[write.at].site].append(write.at)
    most = max(lines.values(), key=len, default=[])
    return most if len(most) >= number else []


def _joined_before(history: History, at: int) -> int:
    """Return the call before one by which its line joined the same tensor; -1: there was none."""
    event, calls = history.events[at], history.reads_of(history.events[at].reads[0].tensor)
    before = (one for one in calls if one < at and history.events[one].site == event.site)
    return max(before, default=UNKNOWN)


def _says_so(site: Site) -> bool:
    """Whether a call is given a list that repeats what it has: ``[x] * 3``, ``[x, x, x]``."""
    call = expression(site.expression)
    for given in call.args[:1] if isinstance(call, ast.Call) else []:
        if isinstance(given, Comprehension):
            return not over_several(site)
        return isinstance(given, (ast.BinOp, ast.List, ast.Tuple))
    return True


def _claim(history: History, at: int, writes: list[int]) -> Claim:
    event, done = history.events[at], history.events[writes[-1]]
    tensor = event.reads[0].tensor
    parts = {"call": CallOf(at), "line": At(event.site), "n": len(event.reads),
             "x": Tensor(tensor), "write": At(done.site), "times": len(writes)}  # fmt: skip
    return Claim(
        tensors=(tensor,),
        cause=("one for each", event.site),
        site=event.site,
        operation=event.operation,
        message=say(
            "{call} at {line} joins {n} tensors that are all {x}: {write} wrote it {times} times"
            " before, and each of them shows what was written last.",
            **parts,
        ),
        story=(
            *put_at(history, tensor),
            written(history, writes[-1]),
            Step("read", event.site, say("{x} is read {n} times", **parts)),
        ),
        repair=Repair(say("Keep a copy each time that it was written: `{x!s}.clone()`.", **parts)),
        count=1,
        calls=(at,),
    )  # fmt: skip
