"""What was a module's tensor when it was put into a place, and is so no more: part of `tie-lost`.

A module that is given a new tensor for a buffer, by an assignment or by `.double()`, tells nobody:
who took the old one keeps it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from tether.analysis.copies.other_processes import OtherProcesses
from tether.analysis.history import History
from tether.analysis.sharing.shared_memory import Sharing
from tether.facts import UNKNOWN, Name, Operand
from tether.finding import At, CallOf, Claim, Code, Repair, Step, say
from tether.operations.table import operation
from tether.source.names import root_of, steps_in
from tether.verdicts.tie_lost.parted import read_after

LEAST = 2
"""Reads of the old tensor after the place has shown others: one may compare it with the new."""


class _Outdated(NamedTuple):
    """A tensor that a place still has, or a view of it, and that another place has let go of."""

    tensor: int  # the view
    name: str  # of the place that has it
    place: str  # of the module's, that has another one
    made: int  # the call that made the new one
    used: int  # the call that goes on with the old one
    converted: bool
    view: bool = False


def outdated(history: History) -> Iterator[Claim]:
    """Yield one claim for each line that replaced what other places still have."""
    groups: dict[int, list[_Outdated]] = defaultdict(list)
    found = {one.tensor: one for one in (*_replaced(history), *_converted(history))}
    for one in found.values():
        groups[history.events[one.made].site].append(one)
    for members in groups.values():
        yield _claim(history, members)


class _Names:
    """The places of modules, and the other places by which each tensor was reached."""

    def __init__(self, history: History) -> None:
        self.places: dict[tuple[int, str], list[Name]] = defaultdict(list)
        self.others: dict[int, list[str]] = defaultdict(list)
        for fact in sorted(history.trace.names, key=lambda one: one.at):
            steps = steps_in(fact.name)
            if fact.module and fact.holder != UNKNOWN:
                self.places[fact.holder, steps[-1]].append(fact)
            elif not fact.module and len(steps) > 1:
                self.others[fact.tensor].append(fact.name)

        self.showing: dict[int, list[int]] = defaultdict(list)  # tensor -> itself, and its views
        for tensor in self.others:
            links = history.get(Sharing).chain(tensor)
            for source in dict.fromkeys((tensor, *(one.source for one in links))):
                self.showing[source].append(tensor)


def _replaced(history: History) -> Iterator[_Outdated]:
    """Find an old tensor that another object goes on reading while new ones are made of it."""
    names = history.get(_Names)
    for facts in names.places.values():
        first, *later = dict.fromkeys(int(fact.tensor) for fact in facts)
        holder = facts[0].name.rpartition(".")[0]
        apart = [one for one in names.others.get(first, ()) if not one.startswith(f"{holder}.")]
        made = _first_made(history, first, later[-1]) if later and apart else UNKNOWN
        if made == UNKNOWN:
            continue
        reads = [at for at in _reads(history, first) if at > made]
        if len(reads) >= LEAST and not _beside(history, reads, later):
            yield _Outdated(first, apart[0], facts[0].name, made, reads[0], converted=False)


def _first_made(history: History, old: int, new: int) -> int:
    """Return the first of the calls of a line that make new tensors, of an old one that stays; -1.

    The line makes them again and again, each of the one before: the first of the old one.
    """
    last, operand = history.made_at(new), history.operand_of(old)
    if last < 0 or operand is None or history.times(last) < LEAST:
        return UNKNOWN
    site, memory = history.events[last].site, history.flow.memory(operand)
    made = (at for at in history.on_storage(operand) if history.events[at].site == site)
    for at in made:
        event = history.events[at]
        apart = all(history.flow.memory(one) != memory for one in event.results)
        if event.results and apart:
            written = history.get(OtherProcesses).written(operand, at)
            return UNKNOWN if written else at
    return UNKNOWN


def _reads(history: History, tensor: int) -> list[int]:
    """Return the program's own calls that read the values of a tensor, or of a view of it."""
    operand, found = history.operand_of(tensor), history.get(Sharing)
    touches = [] if operand is None else found.reads_of(history.flow.memory(operand))
    events = history.events
    return [one.at for one in touches if events[one.at].inner == events[one.at].site]


def _beside(history: History, reads: list[int], later: list[int]) -> bool:
    """Whether a call reads the old tensor together with a new one: to see what changed."""
    operands = (history.operand_of(one) for one in later)
    new = {history.flow.memory(one) for one in operands if one is not None}
    return any(
        history.flow.memory(one) in new for at in reads for one in history.events[at].reads
    )  # fmt: skip


def _converted(history: History) -> Iterator[_Outdated]:
    """Find a tensor that the program goes on writing, where its module reads a conversion of it."""
    names = history.get(_Names)
    for facts in names.places.values():
        new = history.operand_of(facts[0].tensor)
        made = _conversion(history, facts[0].tensor)
        old = UNKNOWN if made == UNKNOWN else int(history.events[made].reads[0].tensor)
        if new is None or old == UNKNOWN or _is_placed(names, old):
            continue
        for tensor in names.showing.get(old, ()):
            write = _written_alone(history, tensor, new, made)
            if write != UNKNOWN and read_after(history, new, write):
                name, view = names.others[tensor][0], tensor != old
                yield _Outdated(tensor, name, facts[0].name, made, write, converted=True, view=view)


def _conversion(history: History, tensor: int) -> int:
    """Return the library's call that made a tensor as a copy of another; or -1."""
    made = history.made_at(tensor)
    event = history.events[made] if made >= 0 else None
    if event is None or event.inner == event.site or not event.reads:
        return UNKNOWN
    return made if operation(event.operation).copies else UNKNOWN


def _written_alone(history: History, old: int, new: Operand, since: int) -> int:
    """Return the first write to an old tensor that takes nothing of the new one, never written."""
    operand = history.operand_of(old)
    if operand is None or history.get(OtherProcesses).written(new, since):
        return UNKNOWN
    writes = history.writes_to(operand, since)
    return next((at for at in writes if not _reads_of(history, at, new.tensor)), UNKNOWN)


def _is_placed(names: _Names, tensor: int) -> bool:
    return any(fact.tensor == tensor for facts in names.places.values() for fact in facts)


def _reads_of(history: History, at: int, tensor: int) -> bool:
    return any(one.tensor == tensor for one in history.events[at].reads)


def _claim(history: History, members: list[_Outdated]) -> Claim:
    first = members[0]
    made, used = history.events[first.made], history.events[first.used]
    names = {"name": first.name, "place": first.place}
    message = say(
        "`{name}` is {a_view}what `{place}` was: since {since} the module has a new tensor there,"
        " and {call} at {used} goes on {with_what} the old one.",
        since=At(made.site), call=CallOf(first.used), used=At(used.site),
        a_view="a view of " if first.view else "",
        with_what="writing" if first.converted else "reading", **names,
    )  # fmt: skip
    same = root_of(first.name) == root_of(first.place)
    return Claim(
        tensors=tuple(one.tensor for one in members),
        cause=("outdated", made.site),
        site=made.site,
        operation=made.operation,
        severity=None if first.converted and same else "note",
        subject=first.name,
        also=(first.place,),
        message=message,
        story=(
            Step("parted", made.site, say("{code} makes a tensor of its own for `{place}`",
                 code=Code(made.site), place=first.place)),
            Step("written" if first.converted else "read", used.site,
                 say("the old one is used here, which `{name}` still has", name=first.name)),
        ),
        repair=Repair(
            say("Write the new values into the tensor that is there (`{place}.copy_(...)`), or look"
                " `{place}` up wherever it is used.", place=first.place)
            if not first.converted
            else say("Keep no second place for a module's tensor: look `{place}` up wherever it is"
                     " used.", place=first.place)
        ),
        count=0,
        calls=(first.made,),
    )  # fmt: skip
