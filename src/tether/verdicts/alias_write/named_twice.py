"""One tensor as a module's buffer and as another attribute of it: part of `alias-write`.

``self.default = t; self.register_buffer("centers", t)``: what `load_state_dict` writes into the
buffer is the default from then on. Where the program goes on to give the buffer another tensor and
not the other attribute, the two were to be two; else it is a note, since one may be a short name.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations
from typing import NamedTuple

from tether.analysis.history import History
from tether.analysis.sharing.holding import HeldAct, Holding, written_text
from tether.analysis.sharing.shared_memory import fills_anew
from tether.analysis.surroundings import Surroundings
from tether.facts import UNKNOWN, Holder, Reassigned, Site, SiteId
from tether.finding import At, CallOf, Claim, Repair, Step, Tensor, named, say
from tether.source.filling import mentions
from tether.source.handing import registered_at
from tether.verdicts.alias_write.telling import written


class _Twice(NamedTuple):
    """A write to a tensor that is a buffer and another attribute of one module, read by that."""

    act: HeldAct
    buffer: str
    other: Holder
    read: int
    given: Reassigned | None  # where the buffer was given another tensor


def named_twice(history: History) -> Iterator[Claim]:
    """Yield one claim for each attribute that is a buffer as well, and was written as that."""
    told = set[tuple[str, SiteId]]()
    for act in history.get(Holding).all:
        found = _found(history, act)
        if found is not None:
            key = found.other.name, history.events[act.write].site
            if key not in told:
                told.add(key)
                yield _claim(history, found)


def _found(history: History, act: HeldAct) -> _Twice | None:
    if history.events[act.write].operation == "step" or act.tensor in history.held:
        return None
    for buffer, other in permutations(_attributes(act), 2):
        (owner, _, name), (also, _, _) = buffer.name.rpartition("."), other.name.rpartition(".")
        if owner != also or _names(history, act.write, other):
            continue
        given = _given_another(history, act.tensor, name)
        if given is not None or _is_registered(history, act.tensor, name):
            read = _read_by(history, act, other)
            if read != UNKNOWN:
                return _Twice(act, buffer.name, other, read, given)
    return None


def _attributes(act: HeldAct) -> list[Holder]:
    """Return the attributes that showed a tensor as it was written."""
    holders = (*act.others, *((act.by,) if act.by else ()))
    return [one for one in holders if one.kind == "attribute" and one.tensor == act.tensor]


def _given_another(history: History, tensor: int, name: str) -> Reassigned | None:
    """Return where a place of a module that showed a tensor was given another one."""
    facts = history.trace.reassigned
    return next((one for one in facts if one.old == tensor and one.name == name), None)


def _is_registered(history: History, tensor: int, name: str) -> bool:
    return any(
        one.holder != UNKNOWN and one.name.rpartition(".")[2] == name
        for one in history.trace.names
        if one.tensor == tensor
    )


def _names(history: History, write: int, other: Holder) -> bool:
    """Whether the program's own line writes a tensor by a name, or by a plain variable."""
    event = history.events[write]
    if event.inner != event.site:
        return False
    target = written_text(history.site_of(event), event)
    return "." not in target or target.endswith("." + other.name.rpartition(".")[2])


def _read_by(history: History, act: HeldAct, other: Holder) -> int:
    """Return the first read of a tensor by an attribute's name, before it is filled anew; or -1."""
    attribute = other.name.rpartition(".")[2]
    for at, made in sorted(history.get(Holding).reads_of(act.tensor)):
        event = history.events[at]
        if min(at, made) <= act.write:
            continue
        if event.writes and fills_anew(event):
            return UNKNOWN
        text = history.site_of(event).expression
        if mentions(text.replace(".", " "), attribute):
            return at
    return UNKNOWN


def _claim(history: History, found: _Twice) -> Claim:
    act, read = found.act, history.events[found.read]
    event = history.events[act.write]
    since = _since(history, found) or event.site
    parts = {
        "x": Tensor(act.tensor), "other": named(found.other.name), "buffer": named(found.buffer),
        "since": At(since), "write": At(event.site), "read": At(read.site),
        "call": CallOf(act.write),
    }  # fmt: skip
    given = () if found.given is None else (
        Step("replaced", found.given.site, say("{buffer} is given another tensor here, {other} is"
             " not", **parts)),
    )  # fmt: skip
    return Claim(
        tensors=(act.tensor,),
        cause=("named twice", since),
        site=since,
        operation=event.operation,
        severity="note" if found.given is None else None,
        subject=found.other.name,
        also=(found.buffer,),
        message=say(
            "{other} and {buffer} are one tensor ({since}): {call} at {write} writes both, and"
            " {read} reads {other} with what was written.",
            **parts,
        ),
        story=(
            *([Step("shared", since, say("the buffer is the tensor itself, and no copy"))]
              if since != event.site else []),
            written(history, act.write),
            Step("read", read.site, say("{other} is read, as it is now", **parts)),
            *given,
        ),
        repair=Repair(say("If {other} is to keep its values, let the buffer be a copy: .clone() at"
                          " {since}.", **parts)),
    )  # fmt: skip


def _since(history: History, found: _Twice) -> Site | None:
    """Return the line that registers the buffer; or else the first that fills the attribute."""
    name = found.buffer.rpartition(".")[2]
    filled = history.get(Holding).filled(found.other)
    for one in filled:
        source = history.get(Surroundings).source(one.site.file)
        at = registered_at(source, one.site.file, name)
        if at is not None:
            return at
    return filled[0].site if filled else None
