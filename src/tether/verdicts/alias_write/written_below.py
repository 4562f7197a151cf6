"""What a function or module writes into the tensor that it is handed: part of `alias-write`.

The one who calls for a result goes on to read what was handed in, by a name that still shows it: a
skip connection around a branch that begins with `ReLU(inplace=True)`. It is a note, for it may be
known. Nothing is said of a call whose result nobody takes, since it is made for what it writes; of
a write by what is handed in beside the tensor, as a total is; and of what is handed in many times.

What a container keeps, or what two lines hand in, is another matter: written each time it is handed
in, from what the time before had left, it drifts away from what it was. So do the slices that an
object gives of a tensor of its own, as a loader does.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import NamedTuple

from tether.analysis.history import History
from tether.analysis.sharing.holding import Holding
from tether.analysis.sharing.odd_writes import goes_on
from tether.analysis.sharing.shared_memory import fills_anew
from tether.analysis.surroundings import Surroundings, WaysThere
from tether.facts import UNKNOWN, EventId, Holder, Operand, Site, SiteId
from tether.finding import At, CallOf, Claim, Code, Repair, Step, Tensor, say
from tether.operations.table import operation
from tether.source.filling import mentions
from tether.source.handing import handed_beside, made_as, reads_beside
from tether.verdicts.alias_write.telling import module_of, written
from tether.verdicts.alias_write.views_below import views_below

_ASIDE = ("step", "backward", "hook", "function", "closure")
_MOST_CALLS = 64


class _Below(NamedTuple):
    """A write below a call that was handed the tensor, and the caller's next read of it."""

    write: int
    call: SiteId
    given: str  # the variable that was handed in
    tensor: int
    read: Site  # the caller's line that reads it, or that hands it on to who does
    name: str  # the variable that is read
    module: str  # class of the library's module that wrote; "": a function of the program's own


def written_below(history: History) -> Iterator[Claim]:
    """Yield one claim for each call that wrote a tensor which its caller still reads."""
    told = set[tuple[SiteId, str]]()
    yield from _drifting(history, told)
    for holders in chain(_by_name(history), ([one] for one in views_below(history))):
        found = _found(history, holders)
        if found is not None and (found.call, found.name) not in told:
            told.add((found.call, found.name))
            yield _claim(history, found)


def _by_name(history: History) -> Iterator[list[Holder]]:
    """Yield the variables of a frame that showed a tensor as it was written, or below it."""
    lines: dict[tuple[int, SiteId, SiteId], dict[EventId, None]] = defaultdict(dict)
    frames: dict[tuple[EventId, int, int], list[Holder]] = defaultdict(list)
    for one in history.trace.holders:
        if one.kind == "variable" and one.tensor != UNKNOWN:
            frames[one.event, one.tensor, one.depth].append(one)
            lines[one.tensor, one.site, _line(history, one)][one.event] = None
    owned = {(one.event, one.tensor) for one in history.trace.holders if one.kind != "variable"}
    for (event, tensor, depth), holders in frames.items():
        same = lines[tensor, holders[0].site, _line(history, holders[0])]
        at = history.position(event)
        again = depth > 0 and _twice_there(history, same) and not _converted(history, at, tensor)
        if not again and (event, tensor) not in owned:
            yield holders


class _Drift(NamedTuple):
    """Elements that a line wrote each time they were handed in."""

    handed: _WrittenAgain  # at the first of the writes that was looked at
    writes: list[int]


class _WrittenAgain(NamedTuple):
    """What a call was handed and wrote."""

    held: Holder  # the caller's variable
    shown: Operand  # the elements
    keeper: Holder | None  # what keeps them, beside variables


def _drifting(history: History, told: set[tuple[SiteId, str]]) -> Iterator[Claim]:
    """Yield one claim for each line that writes what is handed in again and again."""
    drifts: dict[tuple[str, str], _Drift] = {}  # by the function that writes
    calls: dict[Operand, set[SiteId]] = defaultdict(set)
    for at, holders in history.get(Holding).looks():
        found = _handed_in(history, at, holders)
        if found is not None:
            calls[found.shown].add(found.held.site)
            kept = found.keeper is not None or len(calls[found.shown]) > 1
            writes = _again(history, at, found) if kept else []
            if len(writes) > 1:
                site = history.site_of(history.events[at])
                drifts.setdefault(site.scope, _Drift(found, writes))
    for drift in drifts.values():
        told.add((drift.handed.held.site, drift.handed.held.name))
        yield _claim_on_drift(history, drift)


def _handed_in(history: History, at: int, holders: list[Holder]) -> _WrittenAgain | None:
    """Return the caller's variable that was written, and what keeps the elements."""
    event = history.events[at]
    if len(event.writes) != 1 or not goes_on(history, at, event):
        return None
    shown = event.writes[0]._replace(version=0)
    same = [one for one in holders if one.tensor == shown.tensor]
    given = next((one for one in same if _is_given(history, one)), None)
    outside = {one.kind for one in same} <= _OUTSIDE and not shown.requires_grad
    if given is None or not outside or not _is_meant_for_a_result(history, given, given.name):
        return None
    slot = next((one for one in same if one.kind == "slot"), None)
    return _WrittenAgain(given, shown, slot or _handed_out_by(history, given, holders))


def _handed_out_by(history: History, given: Holder, holders: list[Holder]) -> Holder | None:
    """Return the attribute whose memory a variable shows, where its object handed out the view.

    Not where who calls, or who writes, has it as its own: that is the state that it works on.
    """
    made = history.made_at(given.tensor)
    if made < 0 or history.site_of(history.events[made]).function == given.function:
        return None
    owned = [one for one in holders if one.kind == "attribute" and one.tensor != given.tensor]
    own = any(one.depth < given.depth or _OWN.fullmatch(one.name) for one in owned)
    return None if own else next(iter(owned), None)


_OWN = re.compile(r"self\.\w+")
"""An attribute of the object whose method runs."""

_OUTSIDE = {"variable", "slot"}  # of an object's own attribute it is the state that is written


def _is_given(history: History, held: Holder) -> bool:
    """Whether a variable of the caller's is named in the call that it was making."""
    call = history.site(held.site)
    named = held.depth and held.kind == "variable" and call.user
    return bool(named) and mentions(call.expression, held.name)


def _again(history: History, at: int, handed: _WrittenAgain) -> list[int]:
    """Return the writes to some elements by the line of one; none where they are filled anew.

    Or where another function writes them too: of a view, after it was first written so.
    """
    event, shown = history.events[at], handed.shown
    whole = handed.keeper is None or handed.keeper.tensor == shown.tensor
    since = max(history.made_at(shown.tensor), 0) if whole else at - 1
    function, found = history.site_of(event).function, []
    for one in history.writes_to(shown, since):
        other = history.events[one]
        if history.site_of(other).function != function or fills_anew(other):
            return []
        found += [one] if other.site == event.site else []
    return found


def _claim_on_drift(history: History, found: _Drift) -> Claim:
    held, write = found.handed.held, found.writes[-1]
    keeper = found.handed.keeper or held
    event = history.events[write]
    function = history.site_of(event).function
    return Claim(
        tensors=(held.tensor,),
        cause=("drifts", event.site),
        site=event.site,
        operation=event.operation,
        severity="note",
        subject=held.name,
        message=say(
            "`{function}` writes into what it is handed: {op} at {write} changes `{name}`, which"
            " {line} hands in and which "
            + ("is kept" if keeper.tensor == held.tensor else "shows the memory of {keeper}")
            + ". It was written {n} times, each time from what the time before had left.",
            function=function, op=CallOf(write), write=At(event.site), name=held.name,
            line=At(held.site), n=len(found.writes), keeper=Tensor(keeper.tensor),
        ),
        story=(
            Step("shared", held.site, say("{code} is given `{name}` itself", code=Code(held.site),
                 name=held.name)),
            written(history, write),
        ),
        repair=Repair(say("If `{name}` is to keep its values, use the call that makes a new tensor,"
                          " or hand in `{name}`.clone().", name=held.name)),
        count=len(found.writes),
        calls=(write,),
    )  # fmt: skip


def _line(history: History, held: Holder) -> SiteId:
    at = history.position(held.event)
    return history.events[at].site if at >= 0 else SiteId(UNKNOWN)


def _twice_there(history: History, numbers: Iterable[EventId]) -> bool:
    """Whether some writes of one line reached the same elements twice, and not piece by piece."""
    written = (history.events[history.position(one)].writes for one in numbers)
    pieces = [(one[0].storage, *one[0][3:6]) for one in written if one]
    return len(set(pieces)) < len(pieces)


def _converted(history: History, at: int, tensor: int) -> list[SiteId]:
    """Return the conversions in the function that wrote which gave back what they were given.

    A state that is to change from one call to the next would be lost where there is something to
    convert: the function was to work on a tensor of its own.
    """
    done = history.site_of(history.events[at])
    found = (history.events[one] for one in history.get(Holding).gave_back(tensor, at))
    own = [one.site for one in found if one.inner == one.site]
    sites = ((one, history.site(one)) for one in dict.fromkeys(own))
    return [one for one, site in sites if site.scope == done.scope]


def _found(history: History, holders: list[Holder]) -> _Below | None:
    """Return what a frame's call wrote of the variables of that frame, if one is read after it."""
    first = holders[0]
    at, call = history.position(first.event), history.site(first.site)
    if at < 0 or not call.user:
        return None
    module = module_of(history, at)
    given = next((one.name for one in holders if mentions(call.expression, one.name)), "")
    if (
        not (first.depth or module)
        or not given
        or not _is_meant_for_a_result(history, first, given)
    ):
        return None
    names = [one.name for one in holders]
    if not module and _is_result(history, first, call.target, names):
        return None  # both names are read: that has a law of its own
    read = _next_read(history, first, call, names)
    return None if read is None else _Below(at, first.site, given, first.tensor, *read, module)


def _is_meant_for_a_result(history: History, held: Holder, given: str) -> bool:
    """Whether a call that is given a variable was made for what it returns, and wrote on the way.

    It wrote other values over those of the tensor, made of nothing that it was given beside it.
    """
    at, call = history.position(held.event), history.site(held.site)
    source = history.get(Surroundings).source(call.file)
    beside = handed_beside(source, call, given)
    if beside is None or history.site_of(history.events[at]).says_it_writes:
        return False
    changes = _changes(history, at, held.tensor)
    return changes and of_itself(history, at, held.tensor, alone=not beside)


def _changes(history: History, at: int, tensor: int) -> bool:
    """Whether a write left other values in place of those of a tensor, made of these alone."""
    event, made = history.events[at], history.made_at(tensor)
    name = history.facts_of_name(tensor)
    if fills_anew(event) or history.inside(event, *_ASIDE) >= 0 or tensor in history.held:
        return False
    if made >= 0:
        maker = history.events[made].operation
        if operation(maker).constant:
            return False  # a total, or a buffer to be filled
        if maker.rstrip("_") == event.operation.rstrip("_"):
            return False  # once more is as good as once: relu of what relu has made
    return name is None or not name.module


def of_itself(history: History, at: int, tensor: int, *, alone: bool) -> bool:
    """Whether a write reads nothing that the function was handed beside the tensor.

    What was there before the tensor is a constant, where the tensor was handed in alone.
    """
    function, since = history.site_of(history.events[at]).function, history.made_at(tensor)
    waiting, seen = [at], set[int]()
    while waiting and len(seen) < _MOST_CALLS:
        call = waiting.pop()
        for one in history.events[call].reads if call not in seen else ():
            name, made = history.facts_of_name(one.tensor), history.made_at(one.tensor)
            owned = name is not None and name.module
            if one.tensor == tensor or owned or (alone and 0 <= made < since):
                continue
            if made < 0 or not _is_within(history, made, function):
                return False
            waiting.append(made)
        seen.add(call)
    return not waiting


def _is_within(history: History, made: int, function: str) -> bool:
    """Whether a function made a call, or one that it called did."""
    site = history.site_of(history.events[made])
    around = (site, *history.get(WaysThere).callers(history.events[made].site, (made,)))
    return any(one.function == function for one in around)


def _is_result(history: History, held: Holder, target: str, names: list[str]) -> bool:
    """Whether the call gave the tensor itself back, by what its target is read as."""
    if not target or target in names:
        return False
    write = history.position(held.event)
    sites = (history.site_of(history.events[at]) for at, _ in _reads(history, held.tensor, write))
    return any(
        one.function == held.function
        and mentions(one.expression, target)
        and not any(mentions(one.expression, name) for name in names)
        for one in sites
    )


def _next_read(
    history: History, held: Holder, call: Site, names: list[str]
) -> tuple[Site, str] | None:
    """Return the caller's next line that reads a variable which still shows the tensor."""
    fillings, source = history.get(Holding).fillings, history.get(Surroundings).source(call.file)
    for at, _ in _reads(history, held.tensor, history.position(held.event)):
        site = _of_caller(history, at, held, call)
        if site is None or site.line < call.line:
            continue
        for name in names:
            filled = fillings.of(call.file, held.function, name)
            lines = (one.site.end_line for one in filled if one.target == name)
            bound = any(call.line <= line < site.line for line in lines)
            if not bound and reads_beside(source, site, call, name):
                return site, name
    return None


def _of_caller(history: History, at: int, held: Holder, call: Site) -> Site | None:
    """Return the line of a variable's function that reads it, or that hands it on to a reader."""
    event = history.events[at]
    around = (history.site_of(event), *history.get(WaysThere).callers(event.site, (at,)))
    return next((one for one in around if one.scope == (call.file, held.function)), None)


def _reads(history: History, tensor: int, write: int) -> list[tuple[int, int]]:
    """Return the later reads of a tensor up to the first write to it by another function."""
    found = sorted(one for one in history.get(Holding).reads_of(tensor) if one[0] > write)
    operand = history.operand_of(tensor)
    if operand is None:
        return []
    done = history.site_of(history.events[write])
    sites = ((at, history.site_of(history.events[at])) for at in history.writes_to(operand, write))
    again = (at for at, one in sites if one.scope != done.scope)
    until = next(again, len(history.events))
    return [one for one in found if min(one) > write and one[0] <= until]


def _claim(history: History, found: _Below) -> Claim:
    event = history.events[found.write]
    call = history.site(found.call)
    parts = {
        "call": Code(found.call), "line": At(found.call), "given": found.given, "name": found.name,
        "op": CallOf(found.write), "module": found.module, "write": At(event.site),
        "read": At(found.read),
    }  # fmt: skip
    who = "its {module} works in place" if found.module else "{op} at {write} changes it"
    source = history.get(Surroundings).source(call.file)
    made = made_as(source, call, found.module) if found.module else None
    return Claim(
        tensors=(found.tensor,),
        cause=("below", found.call),
        site=found.call,
        operation=event.operation,
        severity="note",
        subject=found.name,
        message=say(
            "{call} at {line} writes into `{given}`, which it is given: "
            + who
            + ", and {read} reads `{name}` with what was written.",
            **parts,
        ),
        story=(
            *([] if made is None else
              [Step("made", made, say("a {module} of it is made here", **parts))]),
            Step("shared", found.call, say("{call} is given `{given}` itself", **parts)),
            *(Step("shared", one, say("{code} had nothing to convert and gives back what it is"
                                      " given", code=Code(one)))
              for one in _converted(history, found.write, found.tensor)[-1:]),
            written(history, found.write),
            Step("read", found.read, say("`{name}` is read, as it is now", **parts)),
        ),
        repair=Repair(
            say("If `{name}` is to keep its values, let the first {module} make a new tensor"
                " (inplace=False), or hand in `{given}`.clone().", **parts)
            if found.module
            else say("If `{name}` is to keep its values, use the call that makes a new tensor,"
                     " or hand in `{given}`.clone().", **parts)
        ),
    )  # fmt: skip
