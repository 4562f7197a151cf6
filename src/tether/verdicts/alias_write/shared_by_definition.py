"""What a definition made once and several objects keep as theirs: part of `alias-write`.

A model that is the default of an argument, a list that is an attribute of a class: each object that
has it reads as if it had its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tether.analysis.history import History
from tether.analysis.wording import listed
from tether.facts import UNKNOWN, MadeOnce, Site
from tether.finding import At, CallOf, Claim, Repair, Sentence, Step, Where, named, say
from tether.operations.table import operation
from tether.source.definition_values import attribute_of, default_of, is_asked_of_class, kept_as
from tether.source.names import steps_in
from tether.source.syntax import source_of
from tether.verdicts.alias_write.definition_owners import (
    is_used_by_two,
    made_at,
    made_within,
    moved_at,
    owners_of,
)
from tether.verdicts.alias_write.telling import written


def shared_by_definition(history: History) -> Iterator[Claim]:
    """Yield what was trained, written or filled for all that have it."""
    for fact in history.trace.made_once:
        place = _defined(history, fact)
        changed = None if place is None else _changed(history, fact, place)
        if place is not None and changed is not None:
            yield _for_all(history, fact, place, changed)


def _defined(history: History, fact: MadeOnce) -> Site | None:
    """Return where the object is made; None if that is not known, or if the class is asked for it.

    Who asks the class knows that it is the class's.
    """
    texts = history.trace.sources
    if fact.site != UNKNOWN:
        site = history.site(fact.site)
        place = default_of(source_of(site.file, texts.get(site.file, "")), site, fact.name)
        return place if place is not None and _is_made_by(history, fact, place) else None
    owner, _, name = fact.name.rpartition(".")
    sources = {file: source_of(file, text) for file, text in texts.items()}
    if any(is_asked_of_class(one, owner, name) for one in sources.values()):
        return None
    found = (attribute_of(one, file, owner, name) for file, one in sources.items())
    return next((one for one in found if one is not None), None)


def _is_made_by(history: History, fact: MadeOnce, place: Site) -> bool:
    """Whether a default makes what it is, and does not name what the program made elsewhere.

    A container may have been filled since.
    """
    named = all(step.lstrip(".").isidentifier() for step in steps_in(place.expression))
    inside = any(made_within(history, one, place) for one in fact.tensors)
    return not named and (fact.filled != "" or inside)


class _Changed(NamedTuple):
    """What became of an object that several have."""

    said: Sentence
    step: Step
    tensors: tuple[int, ...]
    certain: bool = False


def _changed(history: History, fact: MadeOnce, place: Site) -> _Changed | None:
    trained = tuple(one for one in fact.tensors if moved_at(history, one))
    if trained:
        at = moved_at(history, trained[0])[-1]
        site = history.events[at].site
        said = say("{call} at {line} trains it for all of them", call=CallOf(at), line=At(site))
        step = Step("written", site, say("trained for all of them"))
        return _Changed(said, step, trained, _is_certain(history, fact, place, trained))
    writes = {one: at for one in fact.tensors for at in _writes(history, one)}
    if writes:
        at = max(writes.values())
        site = history.events[at].site
        said = say("{call} at {line} writes it for all of them", call=CallOf(at), line=At(site))
        return _Changed(said, written(history, at), tuple(writes))
    return _filled(history, fact, place)


def _is_certain(history: History, fact: MadeOnce, place: Site, trained: tuple[int, ...]) -> bool:
    """Whether the definition made what was trained, and two train it as a part of their own."""
    made = tuple(one for one in trained if made_within(history, one, place))
    if not made or (fact.site == UNKNOWN and not fact.kept):
        return False
    return _of_two(history, trained) or is_used_by_two(history, made, owners_of(history, fact))


def _of_two(history: History, trained: tuple[int, ...]) -> bool:
    """Whether two optimizers step some tensors, and each of them others that the rest do not."""
    made = history.trace.optimizers
    rests = [set(made[one].tensors).difference(trained) for one in history.holders_of(trained[0])]
    return len(rests) > 1 and all(rests) and sum(map(len, rests)) == len(set().union(*rests))


def _writes(history: History, tensor: int) -> list[int]:
    """Return the writes of the program's to a tensor that has values, as it was made."""
    operand, made = history.operand_of(tensor), history.made_at(tensor)
    if operand is None or made == UNKNOWN:
        return []
    return [
        at for at in history.writes_to(operand, made)
        if history.site_of(history.events[at]).user
        and not operation(history.events[at].operation).overwrites
    ]  # fmt: skip


def _filled(history: History, fact: MadeOnce, place: Site) -> _Changed | None:
    """Return what other lines made that is in a container; a class may keep a table by key."""
    if not fact.filled or (fact.filled == "by key" and fact.site == UNKNOWN):
        return None
    lines = range(place.line, (place.end_line or place.line) + 1)
    for tensor in fact.tensors:
        made = history.made_at(tensor)
        site = history.site_of(history.events[made]) if made != UNKNOWN else None
        if site is not None and (site.file != place.file or site.line not in lines):
            said = say("what {line} makes is put into it for all of them", line=At(site))
            return _Changed(said, Step("made", site, say("made here, and put there")), fact.tensors)
    return None


def _for_all(history: History, fact: MadeOnce, place: Site, changed: _Changed) -> Claim:
    of_class = fact.site == UNKNOWN
    name, owners = fact.name, [f"`{one}`" for one in fact.owners]
    if fact.times > len(owners):
        owners.append(f"{fact.times - len(owners)} more")
    since: Where = place
    return Claim(
        tensors=changed.tensors,
        cause=("made once", fact.name, fact.site),
        site=since,
        operation="default",
        severity=None if changed.certain else "note",
        subject=name,
        message=say(
            "The {what} `{name}` is made once: {owners} have the same one, and {change}.",
            what="attribute" if of_class else "default", name=name, owners=listed(owners),
            change=changed.said,
        ),
        story=(
            Step("shared", since, say("made once, when the definition is run")),
            *_keeping(history, fact),
            *_making(history, fact),
            changed.step,
        ),
        repair=Repair(
            say("If each is to have its own, make it in __init__.") if of_class
            else say("If each is to have its own, use `{name}=None`, and make {code} inside the"
                     " function.", name=name, code=place.expression)
        ),
        count=1,
    )  # fmt: skip


def _keeping(history: History, fact: MadeOnce) -> Iterator[Step]:
    """Yield the lines that keep the value of an argument."""
    if fact.site != UNKNOWN:
        site = history.site(fact.site)
        source = source_of(site.file, history.trace.sources.get(site.file, ""))
        for line in kept_as(source, site, fact.name):
            yield Step("shared", line, say("each object keeps it here"))


def _making(history: History, fact: MadeOnce) -> Iterator[Step]:
    """Yield the lines that made the owners."""
    for owner, site in made_at(history, owners_of(history, fact)):
        yield Step("made", site, say("{owner} is made here", owner=named(owner.name)))
