"""A conversion that had nothing to do, and a write to what it gave back: part of `alias-write`.

``X = G.float(); X.div_(X.norm())`` works on a copy where `G` is half as wide, and on what the
caller handed in where it is not. Told is a function that was asked for a result and changed on the
way what an optimizer or an object keeps, by values of that alone; a note, for it may be known.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile
from typing import NamedTuple

from tether.analysis.history import History
from tether.analysis.sharing.holding import HeldAct, Holding
from tether.analysis.sharing.odd_writes import goes_on
from tether.analysis.sharing.shared_memory import fills_anew
from tether.analysis.surroundings import Surroundings
from tether.facts import UNKNOWN, Holder, SiteId
from tether.finding import At, CallOf, Claim, Code, Repair, Step, named, say
from tether.source.filling import mentions
from tether.source.handing import handed_beside
from tether.verdicts.alias_write.telling import written
from tether.verdicts.alias_write.written_below import of_itself


class _GivenBack(NamedTuple):
    """A write to what a conversion gave back."""

    act: HeldAct
    converted: int  # position of the conversion
    given: Holder  # the caller's variable, as the write was looked at
    kept: Holder  # what keeps the tensor
    read: int  # the next read of it elsewhere


def given_back(history: History) -> Iterator[Claim]:
    """Yield a note for each conversion that gave back what a later line of its function writes."""
    told = set[SiteId]()
    for act in history.get(Holding).all:
        found = _found(history, act)
        if found is not None and (site := history.events[found.converted].site) not in told:
            told.add(site)
            yield _claim(history, found)


def _found(history: History, act: HeldAct) -> _GivenBack | None:
    event = history.events[act.write]
    kept = next((one for one in act.others if one.kind in ("state", "attribute")), None)
    converted = _converted(history, act)
    if kept is None or converted == UNKNOWN or not goes_on(history, act.write, event):
        return None
    read = _next_read(history, act)
    for one in act.others if read != UNKNOWN else ():
        if _is_handed_in(history, act, one, read):
            return _GivenBack(act, converted, one, kept, read)
    return None


def _converted(history: History, act: HeldAct) -> int:
    """Return the conversion in the writing function that gave it the tensor, not the write; or -1.

    It is asked of a variable that the function was handed.
    """
    done = history.site_of(history.events[act.write])
    handed = {
        fill.target for fill in history.get(Holding).fillings.of_function(*done.scope)
        if fill.how == "parameter"
    }  # fmt: skip
    for at in reversed(history.get(Holding).came_by(act)):
        event = history.events[at]
        site = history.site_of(event)
        here = site.scope == done.scope
        if here and event.inner == event.site and any(mentions(site.expression, one)
                                                      for one in handed):  # fmt: skip
            return at
    return UNKNOWN


def _is_handed_in(history: History, act: HeldAct, held: Holder, until: int) -> bool:
    """Whether a variable of the caller's was handed in for a result that takes no place of it.

    What is written with values that are handed in beside it is meant to be written.
    """
    call, written_in = history.site(held.site), history.site_of(history.events[act.write]).function
    if held.kind != "variable" or held.depth != 1 or not call.user or written_in.endswith("_"):
        return False
    source = history.get(Surroundings).source(call.file)
    beside = handed_beside(source, call, held.name)
    if beside is None or call.target in {one.name for one in act.others}:
        return False
    operand = history.operand_of(act.tensor)
    later = () if operand is None else history.writes_to(operand, act.write)
    writes = (act.write, *takewhile(lambda at: at < until, later))
    return all(of_itself(history, at, act.tensor, alone=not beside) for at in writes)


def _next_read(history: History, act: HeldAct) -> int:
    """Return the first read of a tensor after a write, by another function; -1: filled anew."""
    operand = history.operand_of(act.tensor)
    done = history.site_of(history.events[act.write]).function
    for at in () if operand is None else history.readers(operand, act.write):
        event = history.events[at]
        if history.site_of(event).function != done:
            return UNKNOWN if event.writes and fills_anew(event) else at
    return UNKNOWN


def _claim(history: History, found: _GivenBack) -> Claim:
    event, read = (history.events[at] for at in (found.act.write, found.read))
    converted = history.events[found.converted]
    parts = {
        "code": Code(converted.site), "line": At(converted.site), "name": named(found.given.name),
        "call": CallOf(found.act.write), "write": At(event.site), "kept": named(found.kept.name),
        "handed": At(found.given.site), "read": At(read.site),
    }  # fmt: skip
    return Claim(
        tensors=(found.act.tensor,),
        cause=("given back", converted.site),
        site=converted.site,
        operation=converted.operation,
        severity="note",
        subject=found.given.name,
        also=(found.kept.name,),
        message=say(
            "{code} at {line} had nothing to convert and gave back {name} itself, which {handed}"
            " hands in: {call} at {write} changes {kept} too, and {read} reads it as it is then.",
            **parts,
        ),
        story=(
            Step("shared", converted.site, say("{code} gives back what it is given", **parts)),
            Step("shared", found.given.site, say("{name} is handed in here", **parts)),
            written(history, found.act.write),
            Step("read", read.site, say("{kept} is read, with what was written", **parts)),
        ),
        repair=Repair(say("If {kept} is to keep its values, use the call that makes a new tensor at"
                          " {write}, or convert with copy=True.", **parts)),
        count=0,
        calls=(found.converted,),
    )  # fmt: skip
