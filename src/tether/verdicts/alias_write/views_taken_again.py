"""Views of the same elements that one line took again and again, to be several: of `alias-write`.

``frames.append(screen.view(-1))``, ``[p.grad.view(-1) for p in params]`` called twice: the memory
is written between one time and the next, so the earlier views show what the later one shows. That
they were to be several is told by the facts: they live on beside each other, nothing read an
earlier one before the later one was taken, and then one line reads both.

A line may also fill each view that was taken, as a workspace is that a function gives back every
time: what it wrote into the earlier one is gone once it fills the later one.

Nothing is said of windows: views that are read again after each of several writes, or that were
handed out before the memory was filled by another line.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator
from itertools import islice, pairwise
from typing import NamedTuple

from tether.analysis.history import History
from tether.analysis.sharing.acts import Act, Acts, Showing, reaches
from tether.analysis.sharing.holding import Holding
from tether.analysis.sharing.shared_memory import Sharing, Touch, fills_anew
from tether.facts import UNKNOWN, Operand, SiteId, TensorId
from tether.finding import At, CallOf, Claim, Code, Repair, Step, Tensor, say
from tether.operations.table import operation
from tether.verdicts.alias_write.made_of import made_of
from tether.verdicts.alias_write.telling import written


class _TakenAgain(NamedTuple):
    """Two views that a line took of the same elements, with a write between them."""

    earlier: Showing
    later: Showing
    writes: list[int]  # between them, the last one of each line
    read: int  # by the line that reads both


_Place = tuple[SiteId, Operand]

_MOST_PAIRS = 8
"""Pairs of views of the same elements that are looked at: what a loop does it does each time."""

_MOST_USERS = 16
"""Calls of one function that are looked at for one that has two views behind it."""

_MOST_WRITES = 2
"""Writes between two views that are told of: what clears a gradient, and what gives it anew."""


def views_taken_again(history: History) -> Iterator[Claim]:
    """Yield one claim for each line that took one memory for several."""
    groups: dict[SiteId, list[_TakenAgain]] = defaultdict(list)
    acted: dict[int, list[Act]] = defaultdict(list)
    for act in history.get(Acts).all:
        acted[act.place.tensor].append(act)
    for number, places in history.get(Acts).places.items():
        follows = any(one.tensor in acted for one in places)
        for views in _of_one_line(history, places).values() if follows else ():
            pairs = (pair for pair in pairwise(views) if _is_read_after(*pair, acted))
            some = list(islice(pairs, _MOST_PAIRS))
            writes = _writes(history, number, views[0].shown) if some else []
            told = (_taken_again(history, writes, views, pair) for pair in some)
            groups[history.events[views[0].first].site] += filter(None, told)
    for members in filter(None, groups.values()):
        yield _claim(history, members)


def _writes(history: History, memory: int, shown: Operand) -> list[Touch]:
    """Return the writes to some elements of a memory."""
    writes = history.get(Sharing).writes.get(memory)
    return [one for one in writes if reaches(history, one.operand, shown)]


def _of_one_line(history: History, places: list[Showing]) -> dict[_Place, list[Showing]]:
    """Return the views of one memory that one line of the program's took, by what they show."""
    found: dict[_Place, list[Showing]] = defaultdict(list)
    for one in places:
        if one.array != UNKNOWN or history.made_at(one.tensor) != one.first:
            continue
        event = history.events[one.first]
        own = event.inner == event.site and len(event.results) == 1
        if own and event.shows(one.shown) and event.reads and _looks(event.operation):
            alike = one.shown._replace(
                tensor=TensorId(UNKNOWN), version=0, requires_grad=False, leaf=False
            )
            found[event.site, alike].append(one)
    return {key: some for key, some in found.items() if len(some) > 1}


def _is_read_after(earlier: Showing, later: Showing, acted: dict[int, list[Act]]) -> bool:
    """Whether a view was written by others, and is read once another one has been taken.

    They wrote before that one was taken, or by way of it.
    """
    return earlier.last > later.first and any(
        later.first < one.read and (one.write < later.first or one.through == later.tensor)
        for one in acted.get(earlier.tensor, ())
    )


def _looks(name: str) -> bool:
    """Whether a call takes a view, and is none that looks like a copy: those have their own law."""
    row = operation(name)
    return not (row.records or row.rebinds or row.replaces)


def _taken_again(
    history: History, writes: list[Touch], views: list[Showing], pair: tuple[Showing, Showing]
) -> _TakenAgain | None:
    earlier, later = pair
    others = [one.at for one in writes if one.at > earlier.first
              and not _goes_through(history, one, earlier.tensor)]  # fmt: skip
    between = others[: bisect_left(others, later.first)] or _filled_again(history, writes, pair)
    reads, again = (_reads(history, one.tensor) for one in pair)
    if not between:
        return None
    read = _for_one_result(history, [at for at in reads if at > later.first], again)
    if read == UNKNOWN:
        read = _by_one_line(history, reads, again)
        if read == UNKNOWN or reads[0] < later.first:
            return None
        if _is_window(history, views, others, between, reads):
            return None
    by_line = {history.events[at].site: at for at in between}
    return _TakenAgain(earlier, later, sorted(by_line.values())[-_MOST_WRITES:], read)


def _filled_again(
    history: History, writes: list[Touch], pair: tuple[Showing, Showing]
) -> list[int]:
    """Return what filled the later one of two views by a line that had filled the earlier one."""
    fills = [one for one in writes if fills_anew(history.events[one.at])]
    own, again = ([one.at for one in fills if _goes_through(history, one, view.tensor)]
                  for view in pair)  # fmt: skip
    lines = {history.events[at].site for at in own if at < pair[1].first}
    return [at for at in again if history.events[at].site in lines]


def _goes_through(history: History, write: Touch, view: int) -> bool:
    """Whether a view made a write itself, or one that was made of it."""
    tensor = write.operand.tensor
    return tensor == view or any(one.source == view for one in history.get(Sharing).chain(tensor))


def _reads(history: History, tensor: int) -> list[int]:
    return sorted({at for at, _ in history.get(Holding).reads_of(tensor)})


def _for_one_result(history: History, reads: list[int], again: list[int]) -> int:
    """Return the first of some reads that goes, with one of others, into one of the results there.

    Those of the reading function: a loss is a result of all that there is.
    """
    joined = {call for at in again for call in _computed(history, at)}
    for at in reads:
        if not joined.isdisjoint(_computed(history, at)):
            return at
    return UNKNOWN


def _computed(history: History, at: int) -> list[int]:
    """Return a call, and those of its function that computed with what it made."""
    return made_of(history, at, _MOST_USERS, in_function=True)


def _by_one_line(history: History, reads: list[int], again: list[int]) -> int:
    """Return the first of some reads that is made by a line of others as well; -1: none."""
    lines = {history.events[at].site for at in again}
    return next((at for at in reads if history.events[at].site in lines), UNKNOWN)


def _is_window(
    history: History,
    views: list[Showing],
    writes: list[int],
    between: list[int],
    reads: list[int],
) -> bool:
    """Whether a view shows what is written for it to show.

    It is read, written and read again; or it was filled, after the last one was taken, by a line
    that had not written it while they were taken.
    """
    after = writes[bisect_right(writes, reads[0]) :]
    if after and after[0] < reads[-1]:
        return True
    last = max(one.first for one in views if one.first < reads[0])
    known = {history.events[at].site for at in between}
    filled = writes[bisect_left(writes, last) : bisect_left(writes, reads[0])]
    return any(history.events[at].site not in known for at in filled)


def _claim(history: History, members: list[_TakenAgain]) -> Claim:
    first = members[0]
    last = first.writes[-1]
    taken, write, read = (history.events[at] for at in (first.later.first, last, first.read))
    owner = history.get(Sharing).owner(first.later.tensor)
    tensors = dict.fromkeys(one.tensor for pair in members for one in (pair.earlier, pair.later))
    parts = {
        "code": Code(taken.site), "line": At(taken.site), "x": Tensor(owner),
        "call": CallOf(last), "write": At(write.site), "read": At(read.site),
    }  # fmt: skip
    return Claim(
        tensors=(owner, *tensors),
        cause=("taken again", taken.site),
        site=taken.site,
        operation=taken.operation,
        message=say(
            "{code} at {line} shows the same memory each time: {call} at {write} changed what had"
            " been taken before, and {read} reads what was taken at two times, both as they are"
            " now.",
            **parts,
        ),
        story=(
            Step("shared", taken.site, say("a view of {x} is taken each time, and no copy",
                 **parts)),
            *(written(history, at) for at in first.writes),
            Step("read", read.site, say("all of them show what was written last")),
        ),
        repair=Repair(say("Keep a copy at {line}: `{code!s}.clone()`.", **parts)),
        count=len(members),
        calls=(first.later.first,),
    )  # fmt: skip
