"""Iterators that had been gone through when they were read again: part of `gradient-discarded`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tether.analysis.history import History
from tether.analysis.surroundings import Surroundings, at_line
from tether.analysis.training.kept_frozen import kept_frozen
from tether.finding import At, Claim, Code, Repair, Sentence, Step, say
from tether.source.reading import looped_over
from tether.verdicts.gradient_discarded.gone_through import GoneThrough, gone_through
from tether.verdicts.gradient_discarded.gone_twice import GoneTwice, gone_twice
from tether.verdicts.gradient_discarded.vain_clips import vain_clips

Rows = set[tuple[str, int]]
"""Lines, each with its file."""

_LIST = say("Make a list of it, which can be gone through again: list(...).")


def claims(history: History) -> Iterator[Claim]:
    """Yield the lines that find no parameters, or no batches, in an iterator."""
    clips = {history.site_of(history.events[one.first]).row for one in vain_clips(history)}
    taken = {history.site(one.site).row for one in history.trace.iterators_taken}
    frozen = set(_stays_frozen(history))
    twice = [one for one in gone_twice(history) if not _is_known(one, clips, taken, frozen)]
    twice = [_after_the_optimizer(history, one) for one in twice]
    yield from map(_twice, twice)
    said = {one.first.row for one in twice}
    for gone in gone_through(history):
        site = history.site(gone.fact.site)
        if site.row not in said and clips.isdisjoint((site.file, line) for line in gone.lines):
            yield _gone_through(history, gone)


def _after_the_optimizer(history: History, found: GoneTwice) -> GoneTwice:
    """Return what was found; where an optimizer was given the iterator before, that comes first."""
    made = found.made
    if made is None:
        return found
    for fact in history.trace.iterators_taken:
        taken = history.site(fact.site)
        same = (taken.file, fact.name) == (made.file, found.name)
        if same and taken.first_line <= made.line < taken.line < found.first.line:
            return found._replace(first=taken, again=(found.first, *found.again))
    return found


def _is_known(found: GoneTwice, clips: Rows, taken: Rows, frozen: Rows) -> bool:
    """Whether other words speak of it: of a clipping, an optimizer, or of what so stays frozen."""
    if not found.certain and found.first.row in taken:
        return True
    again = {one.row for one in found.again}
    return not (clips.isdisjoint(again) and frozen.isdisjoint({found.first.row, *again}))


def _stays_frozen(history: History) -> Iterator[tuple[str, int]]:
    """Yield the lines that froze, and were to let go, what an iterator gave; and their loops."""
    for one in kept_frozen(history):
        frozen = history.site_of(history.events[one.frozen])
        for site in () if one.undoing is None else (frozen, one.undoing):
            source = history.get(Surroundings).source(site.file)
            yield site.row
            yield from ((site.file, line) for line in looped_over(source, site)[:1])


def _twice(found: GoneTwice) -> Claim:
    turn = () if found.turn is None else (
        Step("used", found.turn, say("it is gone through again from here on")),
    )  # fmt: skip
    made = () if found.made is None else (
        Step("made", found.made, say("an iterator gives its elements once")),
    )  # fmt: skip
    return Claim(
        tensors=found.tensors,
        subject=found.name,
        cause=("gone twice", found.again),
        site=found.again[0],
        operation="",
        severity=None if found.certain else "note",
        message=_said(found),
        story=(
            *made,
            Step("used", found.first, say("this goes through all that it gives")),
            *turn,
            *(Step("used", one, say("nothing is left for this")) for one in found.again),
        ),
        repair=Repair(
            _LIST
            if found.made is None
            else say(
                "Give a list at {made}, which can be gone through again: list(...).",
                made=At(found.made),
            )
        ),
        count=0,
    )


def _said(found: GoneTwice) -> Sentence:
    again = At(found.again[0])
    what, made = f"`{found.name}` is an iterator", dict[str, Any]()
    if found.made is not None:
        what += " ({given}, {made})"
        made = {"given": Code(found.made), "made": At(found.made)}
    if found.turn is None:
        finds = "finds" if found.known else "would find"
        return say(f"{what}: {{first}} has gone through it, and {{again}} {finds} nothing left.",
                   first=At(found.first), again=again, **made)  # fmt: skip
    if found.turn.function:
        return say(f"{what}: {{again}} goes through it once, and finds nothing left in later calls"
                   f" of `{found.turn.function}`.", again=again, **made)  # fmt: skip
    return say(f"{what}: {{again}} goes through it once, and finds nothing left in later turns of"
               " the loop at {turn}.", again=again, turn=At(found.turn), **made)  # fmt: skip


def _gone_through(history: History, gone: GoneThrough) -> Claim:
    fact, first = gone.fact, at_line(history.site(gone.fact.site), gone.lines[0])
    parts = {"kind": fact.kind, "made": At(fact.site)}
    return Claim(
        tensors=(),
        subject=fact.name,
        cause=("gone through", fact.site),
        site=first,
        operation="",
        severity="note",
        message=say(
            f"`{fact.name}` is an iterator, and {{kind}} at {{made}} has gone through it: whoever"
            " goes through it again, as {again} may, finds no parameters.",
            again=At(first), **parts,
        ),
        story=(
            Step("held", fact.site, say("{kind} takes all that the iterator gives", **parts)),
            *(
                Step("used", at_line(first, line), say(f"`{fact.name}` is read again here"))
                for line in gone.lines
            ),
        ),
        repair=Repair(_LIST),
        count=0,
    )  # fmt: skip
