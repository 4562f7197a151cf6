"""Copies that bring back what was taken from there: a swap without a third place.

After ``a.copy_(b)`` the line ``b.copy_(a)`` writes what is there. What each call took from where,
and that nothing came in between, is in the facts. Of the two writes of one assignment in the text,
as in ``x[i], x[j] = x[j], x[i]``, `alias-write` tells; of those that a library makes, as in
``random.shuffle(x)``, this does.

A backup that is put back is no swap, also where nothing had changed meanwhile: of a swap each run
of one line goes with one of the other, in one function and under the same conditions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from tether.analysis.history import History
from tether.analysis.surroundings import Surroundings
from tether.facts import UNKNOWN, Event, Operand
from tether.finding import At, CallOf, Claim, Code, Repair, Step, Tensor, say
from tether.source.reading import deciders

_COPYING = ("__setitem__", "copy_")


class WrittenBack(NamedTuple):
    """A copy that writes what is there, since the one before had just brought it from there."""

    first: int  # the copy that overwrote what the second one was to bring
    second: int
    times: int


class _Copy(NamedTuple):
    """What one call copies, as elements of memory."""

    at: int
    source: Operand
    target: Operand


def written_back(history: History) -> Iterator[WrittenBack]:
    """Yield the first such copy of each line, with how many there are."""
    found: dict[int, WrittenBack] = {}
    copies = Counter[int]()
    before = None
    for at, event in history.events.where(_COPYING.__contains__):
        copy = _copy(at, event)
        if before and copy and _brings_back(history, before, copy):
            known = found.get(event.site)
            first = known or WrittenBack(before.at, at, 0)
            found[event.site] = first._replace(times=first.times + 1)
        before = copy
        copies[event.site] += 1
    yield from (one for one in found.values() if _is_swap(history, one, copies))


def _is_swap(history: History, found: WrittenBack, copies: Counter[int]) -> bool:
    """Whether two lines of the program make their copies in pairs, whatever happens."""
    sites = [history.events[at].site for at in (found.first, found.second)]
    first, second = (history.site(one) for one in sites)
    if not second.user or sites[0] == sites[1]:
        return second.user
    source = history.get(Surroundings).source(second.file)
    return (
        copies[sites[0]] == copies[sites[1]]
        and first.scope == second.scope
        and deciders(source, first.line) == deciders(source, second.line)
    )


def _copy(at: int, event: Event) -> _Copy | None:
    """Return what a call copies; None where it converts, spreads, or numbers tell where to."""
    if event.raised or len(event.reads) != 2 or not event.writes:
        return None
    target, source = event.writes[0], event.reads[1]
    plain = event.operation == "copy_" or event.named
    if not plain or target.shape != source.shape or target.dtype != source.dtype:
        return None
    return _Copy(at, source, target)


def _brings_back(history: History, first: _Copy, second: _Copy) -> bool:
    """Whether the second of two copies takes what the first brought, to where that took it."""
    if first.target.elements != second.source.elements or first.source.storage == UNKNOWN:
        return False
    one, other = (history.site_of(history.events[copy.at]) for copy in (first, second))
    between = (history.events[at] for at in range(first.at + 1, second.at))
    return (
        first.source.elements == second.target.elements != first.target.elements
        and (one.row != other.row or one.target == other.target)
        and all(one.reads and one.shows(one.reads[0]) for one in between)
    )


def claims(history: History) -> Iterator[Claim]:
    """Give one claim for each such line."""
    for found in written_back(history):
        first, second = (history.events[at] for at in (found.first, found.second))
        inside = second.inner != second.site or not history.site_of(second).target
        one_line = first.site == second.site
        yield _of_library(history, found) if inside and one_line else _claim(history, found)


def _of_library(history: History, found: WrittenBack) -> Claim:
    """Tell of a line that lets a library swap parts of a tensor: it does so in one assignment."""
    event = history.events[found.second]
    parts = {"code": Code(event.site), "at": At(event.site), "x": Tensor(event.reads[0].tensor)}
    return Claim(
        tensors=(event.reads[0].tensor,),
        cause=("written back", event.site),
        site=event.site,
        operation=event.operation,
        message=say(
            "{code} at {at} swaps parts of {x} and loses one of each two: the part that it puts"
            " aside is a view, and shows what is written over it.",
            **parts,
        ),
        story=(Step("written", event.site, say("one part is written over the other, and then"
                                               " written back")),),
        repair=Repair(say("Take the parts in another order, which makes a new tensor:"
                          " `{x!s} = {x!s}[torch.randperm(len({x!s}))]`; or hand in a list of"
                          " copies.", **parts)),
        count=found.times,
        calls=(found.second,),
    )  # fmt: skip


def _claim(history: History, found: WrittenBack) -> Claim:
    first, second = (history.events[at] for at in (found.first, found.second))
    target = Tensor(second.reads[0].tensor)
    return Claim(
        tensors=(second.reads[0].tensor,),
        cause=("written back", second.site),
        site=second.site,
        operation=second.operation,
        message=say(
            "{call} at {at} writes into {x} what {before} has just taken from there: it changes"
            " nothing, and the two swap nothing.",
            x=target, call=CallOf(found.second), at=At(second.site), before=At(first.site),
        ),
        story=(
            Step("written", first.site, say("this writes over what was to be swapped")),
            Step("written", second.site, say("{x} gets the values that it has", x=target)),
        ),
        repair=Repair(say("Keep a copy of what is overwritten first (`.clone()`), and take the"
                          " second one from that.")),
        count=found.times,
        calls=(found.second,),
    )  # fmt: skip
