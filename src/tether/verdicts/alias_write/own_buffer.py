"""A producer that hands out its own buffer and writes it the next time: part of `alias-write`.

``last = env.reset()``, ``new = env.step()``: both are the `self.obs` that each step writes. The
caller holds the one it was given before while the next is made, and then takes both for two values.
What is read by the new name alone is right, and so is a state that is looked at as it goes on.

Of an array, NumPy's writes are not heard: that PyTorch was given it with other bytes is in the
facts, and the text says which statement below the call may have written them.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from itertools import permutations
from typing import NamedTuple

from tether.analysis.history import History
from tether.analysis.sharing.holding import HeldAct, Holding
from tether.analysis.sharing.rewritten import RewrittenArrays
from tether.analysis.surroundings import WaysThere
from tether.facts import UNKNOWN, Holder, Site
from tether.finding import At, CallOf, Claim, Repair, Step, named, say
from tether.source.array_writes import called_in, written_below
from tether.source.filling import mentions
from tether.verdicts.alias_write.telling import written

_NAMES = re.compile(r"(?<![\w.])[^\W\d]\w*(?![\w(\[.])")


class _Handed(NamedTuple):
    """A write to a producer's buffer while a caller held what it had been given before."""

    act: HeldAct
    held: Holder  # the variable of the caller
    new: str  # the variable that the caller gave the result
    read: int
    line: Site  # of the caller, that reads the old one or hands it on


def own_buffer(history: History) -> Iterator[Claim]:
    """Yield one claim for each variable that held a producer's buffer as it was written."""
    told = set[tuple[str, str]]()
    for act in history.get(Holding).all:
        if act.by is None or act.by.kind != "attribute" or act.tensor in history.held:
            continue
        for one in act.others:
            key = one.function, one.name
            if one.kind == "variable" and one.depth > 0 and key not in told:
                found = _found(history, act, one)
                if found is not None:
                    told.add(key)
                    yield _claim(history, found)
    yield from _arrays_handed(history)


def _arrays_handed(history: History) -> Iterator[Claim]:
    """Yield one claim for each variable that held a producer's array as it was written.

    Two variables of a function show it as PyTorch is given it, and other bytes than before.
    """
    looks: dict[tuple[int, str, int], list[Holder]] = defaultdict(list)
    buffers: dict[int, Holder] = {}
    for one in filter(_has_given_array, history.trace.holders):
        looks[one.event, one.function, one.depth].append(one)
        if one.kind == "attribute":
            buffers.setdefault(one.event, one)
    told = set[tuple[str, str]]()
    for (event, *_), holders in looks.items():
        shown = [one for one in holders if one.kind == "variable"]
        buffer = buffers.get(event)
        for held, other in permutations(shown, 2) if buffer is not None else ():
            key = held.function, held.name
            if key not in told and buffer is not None:
                found = _array_found(history, history.position(event), held, other, buffer)
                if found is not None:
                    told.add(key)
                    yield _claim_on_array(history, found, held, other.name, buffer)


def _has_given_array(place: Holder) -> bool:
    """Whether a place has just that array which a call was given."""
    return place.tensor == UNKNOWN and place.sought == "given" and not place.part


class _HandedArray(NamedTuple):
    """An array that two variables show, as PyTorch is given it by the one that was there first."""

    event: int
    since: Site  # where the one was given its value
    call: Site  # that returned the other
    line: Site  # that reads the first one then
    writes: list[Site]


def _array_found(
    history: History, at: int, held: Holder, other: Holder, buffer: Holder
) -> _HandedArray | None:
    line = history.site(held.site)
    heard = not 0 <= at < len(history.events) or history.events[at].writes
    if heard or not mentions(line.expression, held.name):
        return None
    before = _assigned(history, held)
    calls = [
        one for one in _assigned(history, other)
        if one.line < line.line and not mentions(one.expression, held.name)
    ]  # fmt: skip
    if not calls or not before or any(calls[-1].line <= one.line < line.line for one in before):
        return None  # it is given another value by the call, or since
    names = called_in(calls[-1].expression)
    below = history.get(RewrittenArrays).perhaps([buffer])
    writes = written_below(history.trace.sources, names, below)
    return _HandedArray(at, before[0], calls[-1], line, writes) if writes else None


def _assigned(history: History, held: Holder) -> list[Site]:
    """Return what a function assigns to a variable, in the order of the text."""
    file = history.site(held.site).file
    filled = history.get(Holding).fillings.of(file, held.function, held.name)
    return [one.site for one in filled if one.how == "assigned" and one.target == held.name]


def _claim_on_array(
    history: History, found: _HandedArray, held: Holder, new: str, buffer: Holder
) -> Claim:
    event, line = history.events[found.event], found.line
    both = mentions(line.expression, new)
    parts = {
        "old": named(held.name), "new": named(new), "buffer": named(buffer.name),
        "since": At(found.since), "line": At(found.call), "write": At(found.writes[0]),
        "read": At(line),
    }  # fmt: skip
    return Claim(
        tensors=tuple(one.tensor for one in (*event.results, *event.reads)[:1]),
        cause=("own buffer", held.function, held.name),
        site=found.call,
        operation="numpy",
        severity=None if both else "note",
        subject=held.name,
        also=(new,),
        message=say(
            "{old} and {new} are one array, {buffer}, which {write} writes where {line} asks for"
            " {new}: {read} "
            + ("takes {old} and {new} for two values." if both else "reads {old} as it is then."),
            **parts,
        ),
        story=(
            Step("shared", found.since, say("{old} is given its value here", **parts)),
            Step("called", found.call, say("{new} is the same array, written anew", **parts)),
            *(Step("written", one, say("NumPy code may write it here"))
              for one in found.writes[:2]),
            Step("read", line, say("{old} is read, with the values of {new}", **parts)),
        ),
        repair=Repair(say("Return a copy where {buffer} is handed out: .copy(); or keep one in"
                          " {old}.", **parts)),
    )  # fmt: skip


def _found(history: History, act: HeldAct, held: Holder) -> _Handed | None:
    call = history.site(held.site)
    target = _NAMES.findall(call.target)
    if held.name in target or mentions(call.expression, held.name):
        return None  # bound to the result, or handed in to be written
    shown = {
        one.name
        for one in history.trace.holders
        if (one.kind, one.tensor, one.function) == ("variable", act.tensor, held.function)
    }
    new = next((one for one in target if one in shown), "")
    for at, made in sorted(history.get(Holding).reads_of(act.tensor)) if new else ():
        line = _line_of(history, at, held, call) if min(at, made) > act.write else None
        if line is not None and _still(history, held, call, line):
            itself = sum(one.tensor == act.tensor for one in history.events[at].reads) > 1
            return None if itself else _Handed(act, held, new, at, line)
    return None


def _line_of(history: History, at: int, held: Holder, call: Site) -> Site | None:
    """Return the line of a variable's function, after a call, that reads it or hands it on."""
    site = history.site_of(history.events[at])
    for one in (site, *history.get(WaysThere).callers(history.events[at].site, (at,))):
        if one.scope == (call.file, held.function):
            after = one.line > call.line and mentions(one.expression, held.name)
            return one if after else None
    return None


def _still(history: History, held: Holder, call: Site, line: Site) -> bool:
    """Whether nothing gives a variable another value between two lines of its function."""
    filled = history.get(Holding).fillings.of(call.file, held.function, held.name)
    bound = (one.site.line for one in filled if one.target == held.name)
    return not any(call.line <= one < line.line for one in bound)


def _claim(history: History, found: _Handed) -> Claim:
    act, held, new = found.act, found.held, found.new
    event, call = history.events[act.write], history.site(held.site)
    filled = [one for one in history.get(Holding).filled(held) if one.target == held.name]
    since = filled[0].site if filled else call
    both = mentions(found.line.expression, new)
    parts = {
        "old": named(held.name), "new": named(new), "buffer": named(act.by.name if act.by else ""),
        "since": At(since), "line": At(call), "write": At(event.site), "op": CallOf(act.write),
        "read": At(found.line),
    }  # fmt: skip
    return Claim(
        tensors=(act.tensor,),
        cause=("own buffer", held.function, held.name),
        site=since,
        operation=event.operation,
        severity=None if both else "note",
        subject=held.name,
        also=(new,),
        message=say(
            "{old} and {new} are one tensor, {buffer}, which {op} at {write} writes as {line} asks"
            " for {new}: {read} "
            + ("takes {old} and {new} for two values." if both else "reads {old} as it is then."),
            **parts,
        ),
        story=(
            Step("shared", since, say("from here on {old} is {buffer} itself", **parts)),
            Step("called", call, say("{new} is the same tensor, written anew", **parts)),
            written(history, act.write),
            Step("read", found.line, say("{old} is read, with the values of {new}", **parts)),
        ),
        repair=Repair(say("Return a copy where {buffer} is handed out: .clone(); or keep one in"
                          " {old}.", **parts)),
    )  # fmt: skip
