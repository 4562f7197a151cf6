"""A line that writes memory of its own in some runs, and what is kept in the others.

``update = mean / scale`` or ``update = mean``, and below both ``update.mul_(lr)``: part of
`alias-write`. In some runs the line works on a tensor that its function has just computed and that
is gone soon after; in the others on what an attribute, a container or an optimizer's state keeps,
which is taken again as the write has left it. A note, for a state may be meant to move.

Nothing is said where the computed tensors come to be kept as well (``self.state = h``), where they
begin as a copy or a blank (``mean = self.mean if learns else self.mean.clone()``: who writes that
knows the difference), of what a caller hands in, and of what is filled anew before it is read.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

import numpy as np

from tether.analysis.history import History
from tether.analysis.sharing.acts import Acts
from tether.analysis.sharing.holding import HeldAct, Holding
from tether.analysis.sharing.odd_writes import goes_on
from tether.analysis.sharing.shared_memory import Sharing, fills_anew
from tether.analysis.surroundings import WaysThere
from tether.facts import UNKNOWN, Event, Holder, Site
from tether.finding import At, CallOf, Claim, Code, Repair, Step, named, say
from tether.operations.table import operation
from tether.source.filling import Fill, mentions
from tether.source.names import last_word
from tether.source.syntax import expression
from tether.verdicts.alias_write.telling import written

_KEEPS = ("attribute", "slot", "state", "cache", "closure")

_MOST_RUNS = 256
"""Runs of a line that are asked what they wrote: a loop takes both ways long before."""

_SOON = 2
"""Runs of the line until what is not kept is gone: a variable goes as it gets the next value."""

_MOST_BETWEEN = 256
"""Calls between two writes that are asked whether the variable was given its value again."""


class _InSomeRuns(NamedTuple):
    """A write to what is kept, by a line that writes tensors of its own in other runs."""

    act: HeldAct
    by: Holder  # the variable that it was written by
    kept: Holder
    taken: Fill  # the line that gives the variable what is kept
    made: int  # the call that made a tensor for another run
    read: int


def kept_in_some_runs(history: History) -> Iterator[Claim]:
    """Yield a note for each line that takes what is kept for lines that may write their own."""
    told = set[Site]()
    for act in history.get(Holding).all:
        found = _found(history, act)
        if found is not None and found.taken.site not in told:
            told.add(found.taken.site)
            yield _claim(history, found)


def _found(history: History, act: HeldAct) -> _InSomeRuns | None:
    event, by = history.events[act.write], _variable(history, act)
    kept = next((one for one in act.others if one.kind in _KEEPS), None)
    if kept is None or by is None:
        return None
    fills = _fills(history, event, by.name)
    for made, fill in _made_for_other_runs(history, act, fills):
        taken = next((one for one in fills if _takes(history, act, one, fill)), None)
        if taken is None or _comes_to_be_kept(history, act, by, made):
            continue
        read = _taken_again(history, act, by, taken)
        if read != UNKNOWN:
            return _InSomeRuns(act, by, kept, taken, made, read)
    return None


def _variable(history: History, act: HeldAct) -> Holder | None:
    """Return the variable of its own function by which a line wrote one tensor in place."""
    event, by = history.events[act.write], act.by
    if by is None or by.kind != "variable" or by.depth or len(event.writes) != 1:
        return None
    return by if goes_on(history, act.write, event) else None


def _fills(history: History, event: Event, name: str) -> list[Fill]:
    """Return what gives a variable its values; nothing where a caller does."""
    site = history.site_of(event)
    fillings = history.get(Holding).fillings.of_function(*site.scope)
    found = [one for one in fillings if one.target == name and one.how != "closure"]
    return [] if any(one.how == "parameter" for one in found) else found


# -- the runs that write what is kept nowhere ------------------------------------------------------


def _made_for_other_runs(
    history: History, act: HeldAct, fills: list[Fill]
) -> Iterator[tuple[int, Fill]]:
    """Yield the calls that computed what a line wrote in other runs, with the line of each.

    It was gone before the line had run a few times more, and was seen in no place.
    """
    runs = _runs(history, act.write) if fills else []
    kept, died = history.get(_KeptTensors).tensors, history.get(Acts).died
    for number, (at, tensor) in enumerate(runs):
        soon = runs[number + _SOON][0] if number + _SOON < len(runs) else len(history.events)
        if tensor == act.tensor or tensor in kept or died(tensor) > soon:
            continue
        made = history.made_at(tensor)
        fill = _computed_by(history, made, fills) if 0 <= made < at else None
        if fill is not None and not history.get(Sharing).chain(tensor):
            yield made, fill


class _KeptTensors:
    """The tensors that were seen in a place that lives on."""

    def __init__(self, history: History) -> None:
        self.tensors = {one.tensor for one in history.trace.holders if one.kind in _KEEPS}


def _runs(history: History, write: int) -> list[tuple[int, int]]:
    """Return the runs of the line of a write, each with the tensor that it wrote."""
    column, event = history.events.column, history.events[write]
    same = (column("site") == event.site) & (column("writes") == 1)
    some = islice(history.events.at(np.flatnonzero(same)), _MOST_RUNS)
    return [(at, one.writes[0].tensor) for at, one in some if one.operation == event.operation]


def _computed_by(history: History, made: int, fills: list[Fill]) -> Fill | None:
    """Return the line that gave the variable what a call had computed of values, if one did."""
    row = operation(history.events[made].operation)
    if row.copies or row.constant:
        return None
    ways = history.get(WaysThere)
    lines = [history.site(one) for one in (history.events[made].site, *ways.above(made))]
    return next((fill for fill in fills for one in lines if _is_within(one, fill.site)), None)


def _is_within(site: Site, around: Site) -> bool:
    last = around.end_line or around.line
    return site.file == around.file and around.line <= site.line <= last


# -- what is kept ----------------------------------------------------------------------------------


def _takes(history: History, act: HeldAct, fill: Fill, computed: Fill) -> bool:
    """Whether a line gives the variable what a place holds: by its name alone, or as one of two.

    Or as a loop goes through what holds it.
    """
    if fill.how == "loop":
        return any(_speaks_of(history, act, fill.site.expression, one) for one in act.others)
    value = expression(fill.site.expression)
    if isinstance(value, (ast.IfExp, ast.BoolOp)):
        either = value.values if isinstance(value, ast.BoolOp) else [value.body, value.orelse]
        parts = [ast.unparse(one) for one in either]
    else:
        parts = [] if fill == computed else [fill.site.expression]
    return any(_names(history, act, one) for one in parts)


_ASKED = re.compile(r"(?:[\w.]|\[[^\[\]]*\])+(?:\.(?:get|setdefault)\(.*\))?", re.DOTALL)
"""A variable, an attribute, a place in a container, or what a dictionary is asked for."""


def _names(history: History, act: HeldAct, text: str) -> bool:
    """Whether a text is the name of a place, or of a container that it is in."""
    whole = _ASKED.fullmatch(text) is not None
    return whole and any(_speaks_of(history, act, text, one) for one in act.others)


def _speaks_of(history: History, act: HeldAct, text: str, place: Holder) -> bool:
    """Whether a text that stands in the function of a write speaks of a place."""
    if place.kind == "variable":
        function = history.site_of(history.events[act.write]).function
        return place.function == function and mentions(text, place.name)
    return re.search(rf"(?<!\w){re.escape(last_word(place.name))}(?!\w)", text) is not None


def _comes_to_be_kept(history: History, act: HeldAct, by: Holder, made: int) -> bool:
    """Whether what is computed becomes what is kept: it was made by that line, or is put there."""
    origin = history.made_at(act.tensor)
    if origin >= 0 and history.events[origin].site == history.events[made].site:
        return True
    site = history.site_of(history.events[act.write])
    puts = history.get(Holding).fillings.of_function(*site.scope)
    return any(
        mentions(one.site.expression, by.name)
        and any(last_word(one.target) in _words(place) for place in act.others)
        for one in puts
        if one.how == "stored" or "." in one.target
    )


def _words(place: Holder) -> set[str]:
    return set(re.findall(r"\w+", place.name))


# -- who reads it ----------------------------------------------------------------------------------


def _taken_again(history: History, act: HeldAct, by: Holder, taken: Fill) -> int:
    """Return the first call that was given what is kept by another name, or as it is taken again.

    -1: none was, before all of it was filled anew.
    """
    operand = history.operand_of(act.tensor)
    for at in () if operand is None else history.on_storage(operand):
        event = history.events[at]
        if at <= act.write:
            continue
        if event.writes and fills_anew(event):
            return UNKNOWN
        if any(one.tensor == act.tensor for one in event.reads) and (
            _is_taken(history, act, taken, at) or _is_by_its_name(history, act, by, event)
        ):
            return at
    return UNKNOWN


def _is_by_its_name(history: History, act: HeldAct, by: Holder, event: Event) -> bool:
    """Whether a line reads a tensor by the name of a place, and not by the variable."""
    site, done = history.site_of(event), history.site_of(history.events[act.write])
    here = site.scope == done.scope
    places = act.others if here else [one for one in act.others if one.kind != "variable"]
    own = here and mentions(site.expression, by.name)
    return not own and any(_speaks_of(history, act, site.expression, one) for one in places)


def _is_taken(history: History, act: HeldAct, taken: Fill, at: int) -> bool:
    """Whether the line that wrote runs again, after its variable was given its value again.

    The function had gone back above the line that does so, or had been left.
    """
    events = history.events
    if events[at].site != events[act.write].site:
        return False
    done, ways = history.site_of(events[act.write]), history.get(WaysThere)
    for other in range(act.write + 1, min(at, act.write + _MOST_BETWEEN)):
        lines = [history.site(one) for one in (events[other].site, *ways.above(other))]
        here = [one for one in lines if one.scope == done.scope]
        if not here or here[0].line <= taken.site.line:
            return True
    return False


# -- what is said ----------------------------------------------------------------------------------


def _claim(history: History, found: _InSomeRuns) -> Claim:
    write, made, read = (history.events[at] for at in (found.act.write, found.made, found.read))
    parts = {
        "name": named(found.by.name), "kept": named(found.kept.name), "taken": At(found.taken.site),
        "made": At(made.site), "call": CallOf(found.act.write), "write": At(write.site),
        "maker": CallOf(found.made), "code": Code(found.taken.site), "read": At(read.site),
    }  # fmt: skip
    return Claim(
        tensors=(found.act.tensor,),
        cause=("in some runs", found.taken.site),
        site=write.site,
        operation=write.operation,
        severity="note",
        subject=found.by.name,
        also=(found.kept.name,),
        message=say(
            "{call} at {write} writes a tensor of its own in some runs ({maker}, {made}), and"
            " {kept} itself in others: {taken} gives {name} that very tensor. {read} reads it with"
            " what was written.",
            **parts,
        ),
        story=(
            Step("shared", found.taken.site, say("{name} is {kept} itself from here on", **parts)),
            Step("made", made.site, say("in other runs {maker} makes a new tensor for {name}",
                 **parts)),
            written(history, found.act.write),
            Step("read", read.site, say("read again, with what was written")),
        ),
        repair=Repair(say("If {kept} is to keep its values, use the call that makes a new tensor at"
                          " {write}, or take a copy at {taken}: .clone().", **parts)),
        count=0,
        calls=(found.act.write,),
    )  # fmt: skip
