"""Ties that go with a module that is replaced by another one: part of `tie-lost`.

``model.embed = larger`` gives the place `model.embed.weight` another Parameter; a second place that
was tied to the old one keeps it. Where the new one was given the values of the old one, it was to
take its place: a head for another task is not.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from tether.analysis.history import History
from tether.facts import UNKNOWN, Name, Reassigned
from tether.finding import At, Claim, Code, Repair, Step, say
from tether.source.names import root_of
from tether.verdicts.tie_lost.parted import read_after

MOST_FOLLOWED = 4
"""Replacements of one place that the recording notes: after so many it may show anything."""


class _ReplacedTie(NamedTuple):
    """Two places that were one Parameter, and are two since a module was replaced."""

    fact: Reassigned
    place: str  # whose module was replaced
    other: str
    new: int  # what the first place shows at last
    kept: int  # what the other one does
    carried: bool  # the new one was given values of the old one


def replaced_apart(history: History) -> Iterator[Claim]:
    """Yield one claim for each line that replaced a module with a tied parameter in it."""
    lines: dict[int, list[_ReplacedTie]] = defaultdict(list)
    told: set[frozenset[int]] = set()
    for fact in history.trace.reassigned:
        found = _replaced(history, fact) if "." in fact.name else None
        if found is not None and (pair := frozenset((found.new, found.kept))) not in told:
            told.add(pair)
            lines[fact.site].append(found)
    for members in lines.values():
        yield _claim(history, members)


def _replaced(history: History, fact: Reassigned) -> _ReplacedTie | None:
    pair = _tied(history, fact)
    if pair is None:
        return None
    new, kept = _at_last(history, fact, fact.name), _at_last_beside(history, fact, pair[1])
    if UNKNOWN in (new, kept) or new == kept or not _both_used(history, fact, new, kept):
        return None
    carried = _has_values_of(history, fact.new, fact.old)
    alike = carried or _alike(history, fact.new, fact.old)
    return _ReplacedTie(fact, *pair, new, kept, carried) if alike else None


def _tied(history: History, fact: Reassigned) -> tuple[str, str] | None:
    """Return the names of the place that is replaced, and of one that is tied to it and stays."""
    names = [one for one in history.trace.names if one.tensor == fact.old and one.module]
    # What is there now has the name that the old one had, if nobody looked while it was there.
    now = [one.name for one in history.facts_of_names(fact.new) if one.module]
    mine = [*(one.name for one in names), *now]
    mine = [one for one in dict.fromkeys(mine) if one.endswith(f".{fact.name}")]
    gone = tuple(
        f".{one.name}"
        for one in history.trace.reassigned
        if (one.at, one.site, one.holder) == (fact.at, fact.site, fact.holder)
    )
    others = [one for one in names if one.at <= fact.at and not one.name.endswith(gone)]
    return _of_one_root(history, mine, others)


def _of_one_root(history: History, mine: list[str], others: list[Name]) -> tuple[str, str] | None:
    """Return the best names of the two places that begin with one variable."""
    theirs = {one.name for one in others}
    ranked = history.names_of(others[0].tensor) if others else []
    for one in [*(name for name in ranked if name in mine), *mine]:
        for other in ranked:
            if other in theirs and root_of(one) == root_of(other):
                return one, other
    return None


def _at_last(history: History, fact: Reassigned, name: str) -> int:
    """Return what the place of a replaced module shows at last; -1: that is not known."""
    shown: int = fact.new
    last = name.rpartition(".")[2]
    later = [one for one in history.trace.reassigned if one.at >= fact.at and one != fact]
    for count, one in enumerate(one for one in later if one.name in (name, last)):
        if one.old == shown:
            shown = one.new
        if count + 2 >= MOST_FOLLOWED:
            return UNKNOWN
    return shown


def _at_last_beside(history: History, fact: Reassigned, place: str) -> int:
    """Return what the other place shows at last; -1: that is not known."""
    shown: int = fact.old
    later = [one for one in history.trace.reassigned if one.at >= fact.at and one != fact]
    for count, one in enumerate(one for one in later if place.endswith(f".{one.name}")):
        if one.old == shown:
            shown = one.new
        if count + 1 >= MOST_FOLLOWED:
            return UNKNOWN
    return shown


def _both_used(history: History, fact: Reassigned, *tensors: int) -> bool:
    """Whether calls go on to use each of two tensors, on two memories, while the model lives.

    They are there at the end, or go together, with the function that has the model.
    """
    found = [history.operand_of(one) for one in tensors]
    if any(one is None for one in found) or len({one.storage for one in found if one}) < 2:
        return False
    since = max(history.position(fact.at), *(history.made_at(one) for one in tensors))
    ends = {history.position(history.trace.tensors[one].died) for one in tensors}
    return len(ends) == 1 and all(
        one is not None and read_after(history, one, since) for one in found
    )


def _has_values_of(history: History, new: int, old: int) -> bool:
    """Whether values of an old tensor went into a new one, other than by training."""
    operand, source = history.operand_of(new), history.operand_of(old)
    if operand is None or source is None:
        return False
    memory, events = history.flow.memory(source), history.events
    first = min(history.steps_of(new), default=len(events))
    ways = [history.made_at(new), *history.writes_to(operand)]
    return any(
        history.flow.memory(one) == memory
        for at in ways if 0 <= at < first
        for step in (at, *history.flow.behind(at))
        for one in events[step].reads
    )  # fmt: skip


def _alike(history: History, new: int, old: int) -> bool:
    shapes = {one.shape for one in map(history.operand_of, (new, old)) if one is not None}
    return len(shapes) == 1


def _claim(history: History, found: list[_ReplacedTie]) -> Claim:
    first = found[0]
    names = {"place": first.place, "other": first.other}
    since = At(first.fact.site)
    return Claim(
        tensors=tuple(dict.fromkeys(one.new for one in found)),
        cause=("replaced", first.fact.site),
        site=first.fact.site,
        operation="",
        severity=None if any(one.carried for one in found) else "note",
        subject=first.place,
        also=(first.other,),
        message=say(
            "`{place}` and `{other}` were one Parameter until {line} replaced the module of"
            " `{place}`: they are two since then, and both go on being used.",
            line=since, **names,
        ),
        story=(
            Step("parted", first.fact.site, say("{code} takes the place of the old module",
                 code=Code(first.fact.site)) if history.site(first.fact.site).expression
                 else say("another module takes the place of the old one")),
        ),
        repair=Repair(say("Tie them again after {line}: {other} = {place}.", line=since, **names)),
        count=len(found),
    )  # fmt: skip
