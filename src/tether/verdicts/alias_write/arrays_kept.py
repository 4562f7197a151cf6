"""One NumPy array in many places of a container, which NumPy code goes on to write.

An environment that fills its observation in place hands out one array again and again; who keeps
what it was given keeps that array many times. What NumPy writes is seen as PyTorch is given the
array with other bytes, or as the variables are looked through and it is met in several places; by
which names the program reaches it then is looked up.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tether.analysis.history import History
from tether.analysis.sharing.holding import Holding
from tether.analysis.sharing.rewritten import RewrittenArrays
from tether.facts import UNKNOWN, Event, Holder, Operand, Site, SiteId
from tether.finding import At, Claim, Code, Repair, Step, named, say
from tether.operations.table import operation
from tether.regions import element_size, extent
from tether.source.names import common_place, steps_in

_DIGITS = re.compile(r"\d+")

GROWN = 2
"""Looks that find more places than the one before. Between two looks the array was written, but the
new places may be older than the write; with a third look some place was filled before a write, and
another one after it."""


class _ArrayLook(NamedTuple):
    """The places of arrays as one was met with other bytes."""

    at: int
    holders: tuple[Holder, ...]
    seen: bool  # by the call, which was given it; else as the variables were looked through

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
                claim = _claim(history, found, container)
                yield from () if claim is None else (claim,)


def _works_with(history: History, holder: Holder) -> bool:
    """Whether methods use an attribute of that name: the objects may share the array to read it."""
    own = re.compile(rf"\bself{re.escape(steps_in(holder.name)[-1])}\b(?!\s*(:|=[^=]))")
    texts = history.trace.sources.values() if holder.kind == "attribute" else ()
    return any(own.search(text) for text in texts)


def _by_line(history: History) -> dict[int, list[_ArrayLook]]:
    """Return the looks for arrays with other bytes, by the line that was given them.

    All looks through the variables are together.
    """
    found: dict[tuple[int, bool], list[Holder]] = defaultdict(list)
    for one in history.trace.holders:
        if one.sought != "written" and _shows_array(history, one):
            found[history.position(one.event), one.sought == "given"].append(one)
    lines: dict[int, list[_ArrayLook]] = defaultdict(list)
    for (at, seen), holders in found.items():
        event = history.events[at] if 0 <= at < len(history.events) else None
        if event is not None and not (seen and event.writes):
            line = event.site if seen else UNKNOWN
            lines[line].append(_ArrayLook(at, tuple(holders), seen))
    return lines


def _shows_array(history: History, holder: Holder) -> bool:
    """Whether a place that lasts has an array that was looked for, or a tensor on all of it."""
    if holder.kind not in ("slot", "attribute") or holder.part:
        return False
    at, shown = history.position(holder.event), history.operand_of(holder.tensor)
    if holder.tensor == UNKNOWN or shown is None:
        return holder.tensor == UNKNOWN
    event = history.events[at] if 0 <= at < len(history.events) else None
    if event is None or not operation(event.operation).enters or not event.results:
        return False
    return _bytes_of(history, shown) == _bytes_of(history, event.results[0])


def _bytes_of(history: History, shown: Operand) -> tuple[int, int, int, str]:
    """Return the memory that a tensor shows, the bytes in it, and as what."""
    first, end = extent(shown)
    start = history.trace.storages[shown.storage].start if shown.storage != UNKNOWN else 0
    size = element_size(shown.dtype)
    return history.flow.memory(shown), start + first * size, start + end * size, shown.dtype


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


def _claim(history: History, found: _KeptArray, container: str) -> Claim | None:
    event, seen = history.events[found.look.at], found.look.seen
    filled = [one.site for one in history.get(Holding).filled(found.holder) if one.how == "stored"]
    if not (seen or filled):
        return None
    what = _ARRAY if found.holder.tensor == UNKNOWN else _TENSORS
    deep = len(steps_in(found.holder.name)) - len(steps_in(container))
    writes = _written(history, found)
    return Claim(
        tensors=_tensors(history, event, what) if seen else (),
        cause=("array kept", container),
        site=filled[-1] if filled else event.site,
        operation=what.operation if deep == 1 else "",  # of what lies deeper no edit makes a copy
        severity=None if seen or writes else "note",
        subject=container,
        message=say(
            "{name} holds " + what.held + " ({count} were seen), and NumPy code writes that array"
            " between two of them: every one shows what was written last" + _SEEN[seen],
            name=named(container), count=len(found.names), read=At(event.site),
        ),
        story=tuple(_story(filled, writes, what, event.site if seen else UNKNOWN)),
        repair=Repair(say(what.repair)),
        count=0,
    )  # fmt: skip


_SEEN = {True: ", as {read} sees it.", False: "."}


def _story(
    filled: Sequence[Site], writes: Sequence[Site], what: _What, read: SiteId | int
) -> Iterator[Step]:
    for one in filled[-1:]:
        yield Step("shared", one, say(what.put))
    for one in writes[:2]:
        yield Step("written", one, say("NumPy code may write it here"))
    if read != UNKNOWN:
        site = SiteId(read)
        said = say("{code} is given the array, with other bytes than before", code=Code(site))
        yield Step("read", site, said)


class _What(NamedTuple):
    """What the places of a container hold, in words."""

    operation: str
    held: str
    put: str
    repair: str


_ARRAY = _What(
    "numpy",
    "one NumPy array in several places",
    "the array itself is put into each place",
    "Put a copy there: .copy() of the array, of each one in a dictionary or a tuple.",
)
_TENSORS = _What(
    "",
    "tensors that show one NumPy array",
    "a tensor on the array is put into each place",
    "Put a copy there: torch.tensor(...) of the array, or .clone() of the tensor.",
)


def _tensors(history: History, event: Event, what: _What) -> tuple[int, ...]:
    """Return the tensor of an array that a call read or made; all that its line made of arrays."""
    if what is _ARRAY:
        return tuple(one.tensor for one in (*event.reads, *event.results)[:1])
    made = history.events.where(lambda name: operation(name).enters)
    same = (one for _, one in made if one.site == event.site)
    return tuple(dict.fromkeys(each.tensor for one in same for each in one.results))


def _written(history: History, found: _KeptArray) -> tuple[Site, ...]:
    """Return the statements that may write the array, where its names say so."""
    if not found.look.seen:
        return history.get(RewrittenArrays).perhaps(found.look.holders)
    names = found.look.names()
    for one in history.get(RewrittenArrays).all:
        if names & set(one.names):
            return one.perhaps
    return ()
