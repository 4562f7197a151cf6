"""Ties that a line lost for a while: part of `tie-lost`.

`named_parameters()` lists a tied parameter once. A loop that gives each name of that list another
tensor (an average, a perturbed copy) and later puts the old ones back leaves the other place of the
tied one as it was: what runs in between reads new values here and old ones there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from tether.analysis.history import History
from tether.facts import UNKNOWN, Event, Name, Reassigned
from tether.finding import At, CallOf, Claim, Code, Repair, Step, say
from tether.operations.table import operation
from tether.source.names import root_of, steps_in

Place = tuple[int | str, str]
"""The module's number, or its name where that is not known, and the attribute."""


class _Parting(NamedTuple):
    """A place that was given another tensor, while a tied place kept the old one."""

    fact: Reassigned
    place: str
    other: str
    tied: int  # site by which the other place got the tensor; UNKNOWN: none was recorded
    read: int  # the call that read the new tensor
    read_old: int  # the call that read the old one meanwhile


def parted_for_a_while(history: History) -> Iterator[Claim]:
    """Yield one claim for each line that replaced one place of a tied parameter, then put it back.

    That no one asked for it is certain where the line replaces other parameters as well: it goes
    by a list. Else it is a note.
    """
    lines: dict[int, list[_Parting]] = defaultdict(list)
    for one in _partings(history):
        lines[one.fact.site].append(one)
    for site, found in lines.items():
        others = {
            (one.holder, one.name) for one in history.trace.reassigned if one.site == site
        } - {(one.fact.holder, one.fact.name) for one in found}
        yield _claim(history, found, by_a_list=bool(others))


def put_back(history: History, place: Place, old: int, new: int) -> bool:
    """Whether a place that was given a new tensor was given the old one again."""
    given = history.get(_ModulePlaces).given
    return any((one.old, one.new) == (new, old) for one in given.get(place, ()))


class _ModulePlaces:
    """Which places of modules showed a tensor, and what they were given, in order."""

    def __init__(self, history: History) -> None:
        self.by_tensor: dict[int, dict[Place, list[Name]]] = defaultdict(dict)
        self.given: dict[Place, list[Reassigned]] = defaultdict(list)
        for name in sorted(history.trace.names, key=lambda one: one.at):
            if name.module and name.holder != UNKNOWN:
                place = name.holder, steps_in(name.name)[-1].removeprefix(".")
                self.by_tensor[name.tensor].setdefault(place, []).append(name)
        for fact in history.trace.reassigned:
            self.given[fact.holder, fact.name].append(fact)

    def next_given(self, place: Place, after: int) -> int | None:
        """Return when a place was given another tensor, after a moment; None: it was not."""
        return next((one.at for one in self.given[place] if one.at > after), None)

    def given_back(self, fact: Reassigned) -> int | None:
        """Return when a place was given the tensor again that it gave up; None: it was not."""
        given = self.given[fact.holder, fact.name]
        return next((one.at for one in given if one.at > fact.at and one.new == fact.old), None)

    def beside(self, fact: Reassigned) -> Iterator[Place]:
        """Yield the other places that show a tensor as it gives up one of them."""
        for place, names in self.by_tensor[fact.old].items():
            before = [one.new for one in self.given[place] if one.at <= fact.at]
            shows = names[0].at <= fact.at and before[-1:] in ([], [fact.old])
            if shows and place != (fact.holder, fact.name):
                yield place


def _partings(history: History) -> Iterator[_Parting]:
    places = history.get(_ModulePlaces)
    for fact in history.trace.reassigned:
        own = places.by_tensor[fact.old].get((fact.holder, fact.name))
        back = places.given_back(fact)
        if own is not None and back is not None:  # else for good: told of by what it is at the end
            for other in places.beside(fact):
                yield from _parting(history, fact, own, other, back)


def _parting(
    history: History, fact: Reassigned, own: list[Name], other: Place, back: int
) -> Iterator[_Parting]:
    places = history.get(_ModulePlaces)
    pair = _of_one_model(history, own, places.by_tensor[fact.old][other])
    reads = _both_read(history, fact, min(back, places.next_given(other, fact.at) or back))
    if pair and reads:
        tied = [one.site for one in places.given[other] if one.new == fact.old]
        yield _Parting(fact, *pair, tied[-1] if tied else UNKNOWN, *reads)


def _of_one_model(
    history: History, own: list[Name], others: list[Name]
) -> tuple[str, str] | tuple[()]:
    """Return the best names of two places that begin with one variable; none: ()."""
    ranked = history.names_of(own[0].tensor)
    for one in sorted(own, key=lambda fact: ranked.index(fact.name)):
        for other in others:
            if root_of(one.name) == root_of(other.name):
                return one.name, other.name
    return ()


def _both_read(history: History, fact: Reassigned, end: int) -> tuple[int, int] | None:
    """Return the calls that compute with the new tensor, and with the old one, before an end."""
    first, last = (max(0, history.position(one)) for one in (fact.at, end))
    found: dict[int, int] = {}
    for at in range(first, min(last, len(history.events))):
        event = history.events[at]
        read = {one.tensor for one in event.reads} & {fact.old, fact.new}
        if len(read) == 1 and _computes(event):  # one that reads both compares them
            found.setdefault(int(*read), at)
    return (found[fact.new], found[fact.old]) if len(found) > 1 else None


def _computes(event: Event) -> bool:
    """Whether a call makes something else of what it reads: no copy of the program's own."""
    copies = event.inner == event.site and operation(event.operation).records
    return bool(event.results) and not event.writes and not copies


def _claim(history: History, found: list[_Parting], *, by_a_list: bool) -> Claim:
    first = found[0]
    fact, names = first.fact, {"place": first.place, "other": first.other}
    new, old = (history.events[at].site for at in (first.read, first.read_old))
    story = [
        Step("parted", fact.site, say("`{place}` is given another tensor, `{other}` keeps the old"
                                      " one", **names)),
        Step("read", new, say("{code} reads the new one", code=Code(new))),
        Step("read", old, say("{code} reads the old one", code=Code(old))),
    ]  # fmt: skip
    if first.tied != UNKNOWN:
        story.insert(0, Step("shared", first.tied, say("tied here")))
    return Claim(
        tensors=tuple(dict.fromkeys(one.fact.old for one in found)),
        cause=("for a while", fact.site),
        site=fact.site,
        operation="",
        severity=None if by_a_list else "note",
        subject=first.other,
        also=(first.place,),
        message=say(
            "`{place}` and `{other}` are one Parameter: {line} gives `{place}` another tensor for a"
            " while and leaves `{other}` as it was, so {reader} at {new} reads the new values and"
            " {older} at {old} the old ones.",
            line=At(fact.site), new=At(new), old=At(old), reader=CallOf(first.read),
            older=CallOf(first.read_old), **names,
        ),
        story=tuple(story),
        repair=Repair(
            say("Write the values into the Parameter, which all its places show ({place}.data ="
                " ..., or copy_ under torch.no_grad()); or give every place the new one:"
                " named_parameters(remove_duplicate=False).", **names)
        ),
        count=len(found),
    )  # fmt: skip
