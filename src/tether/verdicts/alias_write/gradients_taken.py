"""One gradient that was taken twice to be two, and written in between: part of `alias-write`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import combinations, pairwise
from typing import NamedTuple

from tether.analysis.history import History
from tether.analysis.sharing.holding import Holding
from tether.analysis.sharing.with_itself import operands_of
from tether.facts import Operand, SiteId
from tether.finding import At, CallOf, Claim, Repair, Step, Tensor, say
from tether.verdicts.alias_write.made_of import made_of
from tether.verdicts.alias_write.telling import written

_MOST_MADE = 64
"""Calls that computed with a gradient that are looked at for one that has two of them behind it."""


class _Taken(NamedTuple):
    """What was read as a gradient, written, read again, and then used by two names."""

    tensor: int
    first: int
    write: int
    used: int
    made_of: tuple[int, ...] = ()  # the reads of two lines whose results the call is given


class _Apart(NamedTuple):
    """Two times at which one gradient was taken, and the last write between them."""

    first: int
    write: int
    again: int


def gradients_taken(history: History) -> Iterator[Claim]:
    """Find a call that is given by two names a gradient which was taken twice: a note.

    Or what two lines made of it, each of one time. What was taken first was not read before it was
    written: it waited for the second. That it is the very one which the call is given is not
    recorded.
    """
    takes: dict[int, list[int]] = defaultdict(list)
    for at, event in history.events.where("grad.__get__".__eq__):
        for one in event.results:
            takes[one.tensor].append(at)
    groups: dict[int, list[_Taken]] = defaultdict(list)
    for tensor, times in takes.items():
        found = _used_as_two(history, tensor, times) if len(times) > 1 else None
        if found is not None:
            groups[history.events[found.first].site].append(found)
    for members in groups.values():
        yield _claim(history, members)


def _used_as_two(history: History, tensor: int, times: list[int]) -> _Taken | None:
    """Return the first call that is given one gradient by two names, each of another time."""
    apart = list(_taken_apart(history, tensor, times))
    operand = history.operand_of(tensor)
    for at in history.on_storage(operand) if apart and operand is not None else ():
        before = [one for one in apart if one.again < at]
        if before and _by_two_names(history, at, tensor):
            return _Taken(tensor, before[-1].first, before[-1].write, at)
    written_in = _writes_in_container(history, tensor) if apart else ()
    kept = [one for one in apart if one.write in written_in]
    used = _of_two_lines(history, tensor, kept[-1].again) if kept else None
    return None if used is None else _Taken(tensor, kept[-1].first, kept[-1].write, *used)


def _writes_in_container(history: History, tensor: int) -> set[int]:
    """Return the writes at which a gradient was seen in a container."""
    return {
        history.position(one.event)
        for one in history.trace.holders
        if one.tensor == tensor and one.kind == "slot"
    }


def _of_two_lines(history: History, tensor: int, after: int) -> tuple[int, tuple[int, int]] | None:
    """Return a call that is given what two lines made of a tensor, each by itself, and their reads.

    The first such call.
    """
    lines: dict[SiteId, list[int]] = {}
    for at, _ in sorted(history.get(Holding).reads_of(tensor)):
        event = history.events[at]
        if at > after and event.inner == event.site and event.results:
            lines.setdefault(event.site, made_of(history, at, _MOST_MADE))
    common = [
        (min({*one} & {*other}), (one[0], other[0]))
        for one, other in combinations(lines.values(), 2)
        if other[0] not in one and not {*one}.isdisjoint(other)
    ]
    return min(common, default=None)


def _taken_apart(history: History, tensor: int, times: list[int]) -> Iterator[_Apart]:
    """Yield when a gradient was taken, written, and taken again before anything had read it.

    What the line that took it computes with at once did not wait.
    """
    operand = history.operand_of(tensor)
    if operand is None:
        return
    reads = [at for at, _ in history.get(Holding).reads_of(tensor)]
    writes = list(history.writes_to(operand, times[0]))
    waiting: list[int] = []
    for first, again in pairwise(times):
        if not _computes_with(history, operand, first, again):
            waiting.append(first)
        between = [at for at in writes if first < at < again]
        if between and waiting and not any(waiting[-1] < at < again for at in reads):
            yield _Apart(waiting[-1], between[-1], again)
        waiting = [] if between else waiting


def _computes_with(history: History, operand: Operand, taken: int, until: int) -> bool:
    """Whether the line that took a gradient gives it to a call before it is taken again."""
    events, line = history.events, history.site_of(history.events[taken]).row
    calls = (events[at] for at in history.on_storage(operand) if taken < at < until)
    return any(
        history.site_of(event).row == line
        and any(one.tensor == operand.tensor for one in event.reads)
        for event in calls
    )


def _by_two_names(history: History, at: int, tensor: int) -> bool:
    """Whether a line of the program gives a call one tensor twice, and names it differently."""
    event = history.events[at]
    twice = [one.tensor for one in event.reads[:2]] == [tensor, tensor]
    if not twice or event.inner != event.site:
        return False
    names = operands_of(history.site_of(event).expression)
    return names is not None and names[0] != names[1]


def _claim(history: History, members: list[_Taken]) -> Claim:
    tensor, first, write, used, made_of = members[0]
    taken, done, call = (history.events[at] for at in (first, write, used))
    parts = {"x": Tensor(tensor), "line": At(taken.site), "call": CallOf(write),
             "written": At(done.site), "used": At(call.site)}  # fmt: skip
    uses = "is given what two lines made of it" if made_of else "is given it by two names"
    return Claim(
        tensors=tuple(one.tensor for one in members),
        cause=("taken", taken.site),
        site=taken.site,
        operation=taken.operation,
        severity="note",
        message=say(
            "{x} is one tensor whenever {line} reads it as `.grad`: {call} at {written} changed"
            " what was taken before, and {used} " + uses + ".",
            **parts,
        ),
        story=(
            Step("shared", taken.site, say("the gradient itself is taken here, and no copy")),
            written(history, write),
            *(Step("read", history.events[at].site, say("the one tensor is read, as it is now"))
              for at in made_of),
            Step("read", call.site, say("both operands are made of the same tensor" if made_of else
                                        "both operands are the same tensor")),
        ),
        repair=Repair(say("Keep a copy at {line}: p.grad.clone(), or let each backward pass make"
                          " new gradients: zero_grad(set_to_none=True).", **parts)),
        count=len({one.write for one in members}),
        calls=(first,),
    )  # fmt: skip
