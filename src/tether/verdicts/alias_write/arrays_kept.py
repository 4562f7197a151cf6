"""One NumPy array in many places of a container, which NumPy code goes on to write.

An environment that fills its observation in place hands out one array again and again; who keeps
what it was given keeps that array many times. What NumPy writes is seen as PyTorch is given the
array with other bytes; by which names the program reaches it then is looked up.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from tether.analysis.history import History
from tether.analysis.holding import Holding, common_place
from tether.analysis.rewritten import RewrittenArrays
from tether.facts import UNKNOWN, Holder, Site
from tether.finding import At, Claim, Code, Repair, Step, Where, say
from tether.source.names import steps_in

_DIGITS = re.compile(r"\d+")

GROWN = 2
"""Looks that find more places than the one before. Between two looks the array was written, but the
new places may be older than the write; with a third look some place was filled before a write, and
another one after it."""


class _ArrayLook(NamedTuple):
    """The places of arrays as a call was given one with other bytes."""

    at: int
    holders: tuple[Holder, ...]

    def names(self) -> set[str]:
        return {one.name for one in self.holders}


class _KeptArray(NamedTuple):
    """One array in many places of a container."""

    look: _ArrayLook  # the last one
    holder: Holder
    names: list[str]


def arrays_kept(history: History) -> Iterator[Claim]:
    """Yield one claim for each container of one array in places that were filled between writes."""
    told: set[str] = set()
    for looks in _by_line(history).values():
        for found in _grown(looks):
            container = common_place(found.names)
            if container and container not in told and not _works_with(history, found.holder):
                told.add(container)
                yield _claim(history, found, container)


def _works_with(history: History, holder: Holder) -> bool:
    """Whether methods use an attribute of that name: the objects may share the array to read it."""
    own = re.compile(rf"\bself{re.escape(steps_in(holder.name)[-1])}\b(?!\s*(:|=[^=]))")
    texts = history.trace.sources.values() if holder.kind == "attribute" else ()
    return any(own.search(text) for text in texts)


def _by_line(history: History) -> dict[int, list[_ArrayLook]]:
    """Return the looks for arrays with other bytes, by the line that was given them."""
    found: dict[int, list[Holder]] = defaultdict(list)
    for one in history.trace.holders:
        if one.tensor == UNKNOWN and one.kind in ("slot", "attribute") and not one.part:
            found[one.event].append(one)
    lines: dict[int, list[_ArrayLook]] = defaultdict(list)
    for number, holders in found.items():
        at = history.position(number)
        event = history.events[at] if 0 <= at < len(history.events) else None
        if event is not None and not event.writes:
            lines[event.site].append(_ArrayLook(at, tuple(holders)))
    return lines


def _grown(looks: list[_ArrayLook]) -> Iterator[_KeptArray]:
    """Yield the places that look alike, and that were more and more of one array."""
    looks.sort()
    growing: dict[tuple[str, str], tuple[set[str], int]] = {}
    for look in looks:
        series: dict[tuple[str, str], set[str]] = defaultdict(set)
        for one in look.holders:
            series[one.function, _DIGITS.sub("#", one.name)].add(one.name)
        for key, names in series.items():
            before, times = growing.get(key, (set[str](), 0))
            if not before <= names:
                times = 0
            elif before and before < names:
                times += 1
            growing[key] = names, times
            if times >= GROWN:
                holder = next(one for one in look.holders if one.name in names)
                yield _KeptArray(look, holder, sorted(names))


def _claim(history: History, found: _KeptArray, container: str) -> Claim:
    event = history.events[found.look.at]
    filled = [one for one in history.get(Holding).filled(found.holder) if one.how == "stored"]
    site: Where = filled[-1].site if filled else event.site
    story = [Step("read", event.site, say("{code} is given the array, with other bytes than before",
                                          code=Code(event.site)))]  # fmt: skip
    for one in _written(history, found)[:2]:
        story.insert(0, Step("written", one, say("NumPy code may write it here")))
    if filled:
        story.insert(0, Step("shared", site, say("the array itself is put into each place")))
    return Claim(
        tensors=tuple(one.tensor for one in (*event.reads, *event.results)[:1]),
        cause=("array kept", container),
        site=site,
        operation="numpy",
        subject=container,
        message=say(
            "{name} holds one NumPy array in several places ({count} were seen), and NumPy code"
            " writes that array between two of them: every place shows what was written last, as"
            " {read} sees it.",
            name=f"`{container}`", count=len(found.names), read=At(event.site),
        ),
        story=tuple(story),
        repair=Repair(say("Put a copy there: .copy() of the array, of each one in a dictionary or"
                          " a tuple.")),
        count=0,
    )  # fmt: skip


def _written(history: History, found: _KeptArray) -> tuple[Site, ...]:
    """Return the statements that may write the array, where its names say so."""
    names = found.look.names()
    for one in history.get(RewrittenArrays).all:
        if names & set(one.names):
            return one.perhaps
    return ()
