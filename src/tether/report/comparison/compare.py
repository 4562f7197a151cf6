"""What changed between two recordings, place by place.

A place is known by its file, its function and its expression (`stable_places`), so that a line
which moved is the same place. What is written twice in one function is one place, and counted.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from tether.analysis.memory import Memory
from tether.facts import UNKNOWN, Event, Site
from tether.finding import Finding
from tether.operations.table import operation
from tether.report.comparison.stable_places import Key, key, plain
from tether.report.document.findings import Findings
from tether.report.filters import Selection
from tether.report.tables.gradients import Status

MANY_NAMES = 12
"""Names of one memory that are compared pair by pair; a memory with more is a loop's."""

Place = tuple[Key, str]  # where, and the operation


@dataclass
class PlaceEffect:
    """What one operation did at one place, over all its runs."""

    site: Site
    operation: str
    memory: set[str] = field(default_factory=set)  # owns, shares, varies
    gradient: set[str] = field(default_factory=set)  # keeps, cuts
    count: int = 0
    bytes: int = 0

    @property
    def ties(self) -> tuple[str, str]:
        """Return what became of the memory and of the gradient, in a word each."""
        return _word(self.memory), _word(self.gradient)


def _word(seen: set[str]) -> str:
    return next(iter(seen)) if len(seen) == 1 else "varies" if seen else ""


class Changed(NamedTuple):
    """What a finding is about that it was not about, or the other way round."""

    finding: Finding
    names: tuple[str, ...]  # those of its subjects that are new, or gone


class Pair(NamedTuple):
    """One place before and after; None where it was not met."""

    before: PlaceEffect | None
    after: PlaceEffect | None

    @property
    def one(self) -> PlaceEffect:
        """The later of the two that there is."""
        found = self.after or self.before
        assert found is not None
        return found


class Totals(NamedTuple):
    """A recording in a few numbers."""

    calls: int
    copies: int
    copied: int  # bytes
    peak: int  # bytes


class Differences:
    """Everything that is not the same in two recordings: `before` and `after`."""

    def __init__(self, before: Findings, after: Findings) -> None:
        self.before, self.after = before, after

    # -- findings ----------------------------------------------------------------------------

    @cached_property
    def gained(self) -> list[Changed]:
        """Findings of the second recording that the first has not, or not for all their names."""
        return list(_beyond(self.after, self.before))

    @cached_property
    def lost(self) -> list[Changed]:
        """Findings of the first recording that the second has not, or not for all their names."""
        return list(_beyond(self.before, self.after))

    # -- copies and ties ---------------------------------------------------------------------

    @cached_property
    def copies(self) -> list[Pair]:
        """Copies and conversions that are new, gone, or made another number of times."""
        return [
            pair
            for pair in _pairs(_copies(self.before), _copies(self.after))
            if _size(pair.before) != _size(pair.after)
        ]

    @cached_property
    def ties(self) -> list[Pair]:
        """Calls made in both whose result now owns, shares, keeps or cuts otherwise."""
        return [
            pair
            for pair in _pairs(_effects(self.before), _effects(self.after))
            if pair.before and pair.after and pair.before.ties != pair.after.ties
        ]

    @cached_property
    def tied(self) -> list[tuple[str, str]]:
        """Pairs of names that share memory at the end of the second recording only."""
        return sorted(_sharing(self.after) - _sharing(self.before))

    @cached_property
    def parted(self) -> list[tuple[str, str]]:
        """Pairs of names that share memory at the end of the first recording only."""
        return sorted(_sharing(self.before) - _sharing(self.after))

    # -- gradients and sizes -----------------------------------------------------------------

    @cached_property
    def gradients(self) -> list[tuple[str, Status | None, Status | None]]:
        """Name, before and after of each parameter whose gradient is another."""
        before = {row.name: row.status for row in self.before.gradients}
        after = {row.name: row.status for row in self.after.gradients}
        return [
            (name, before.get(name), after.get(name))
            for name in dict.fromkeys((*before, *after))
            if before.get(name) != after.get(name)
        ]

    @cached_property
    def totals(self) -> tuple[Totals, Totals]:
        """Both recordings in a few numbers."""
        return _totals(self.before), _totals(self.after)

    @property
    def empty(self) -> bool:
        """Whether nothing changed that is compared place by place or name by name."""
        parts = (self.gained, self.lost, self.copies, self.ties, self.tied, self.parted)
        return not any(parts) and not self.gradients


def _beyond(about: Findings, other: Findings) -> Iterator[Changed]:
    """Yield the findings with the names that `other` does not have at that place.

    Names are counted: the same finding at two lines with the same text is there twice.
    """
    known = Counter[tuple[Key, str, str]]()
    for finding in other.findings:
        known.update(_subjects(finding, other))
    for finding in about.findings:
        new = []
        for one in _subjects(finding, about):
            if known[one] > 0:
                known[one] -= 1
            else:
                new.append(one[-1])
        if new:
            yield Changed(finding, tuple(new))


def _subjects(finding: Finding, about: Findings) -> list[tuple[Key, str, str]]:
    place = key(finding.site, finding.operation, about.trace.folder)
    return [(place, finding.slug, plain(name)) for name in (finding.subject, *finding.also)]


def _copies(about: Findings) -> dict[Place, PlaceEffect]:
    found: dict[Place, PlaceEffect] = {}
    for row in about.copies:
        place = key(row.site, row.operation, about.trace.folder), row.operation
        effect = found.setdefault(place, PlaceEffect(row.site, row.operation))
        effect.memory.add(row.memory)
        if row.gradient != "none":
            effect.gradient.add(row.gradient)
        effect.count += row.count
        effect.bytes += row.bytes
    return found


def _effects(about: Findings) -> dict[Place, PlaceEffect]:
    """Return what every call did to both ties: views and arithmetic, beside the copies."""
    trace, history = about.trace, about.history
    selection = about.selection or Selection(trace.folder)
    found = _copies(about)
    for event in trace.events:
        if (
            event.site < 0
            or operation(event.operation).converts
            or not event.reads
            or not event.results
        ):
            continue
        if event.inner not in (UNKNOWN, event.site) or history.inside(event, "backward") >= 0:
            continue  # what a library does between is its own affair
        site = trace.sites[event.site]
        if not selection.wants(site):
            continue
        place = key(site, event.operation, trace.folder), event.operation
        effect = found.setdefault(place, PlaceEffect(site, event.operation))
        effect.count += 1
        _add_ties(effect, event)
    return found


def _add_ties(effect: PlaceEffect, event: Event) -> None:
    before = {one.storage for one in event.reads} - {UNKNOWN}
    shared = {one.storage in before for one in event.results}
    effect.memory |= {"shares" if one else "owns" for one in shared}
    if any(one.requires_grad for one in event.reads):
        kept = any(one.requires_grad for one in event.results)
        effect.gradient.add("keeps" if kept else "cuts")


def _pairs(before: dict[Place, PlaceEffect], after: dict[Place, PlaceEffect]) -> list[Pair]:
    places = dict.fromkeys((*before, *after))
    pairs = [Pair(before.get(place), after.get(place)) for place in places]
    return sorted(pairs, key=lambda pair: (pair.one.site.file, pair.one.site.line))


def _size(effect: PlaceEffect | None) -> tuple[int, int] | None:
    return (effect.count, effect.bytes) if effect else None


def _sharing(about: Findings) -> set[tuple[str, str]]:
    """Return the pairs of names whose memory is one when the recording ends."""
    trace, history = about.trace, about.history
    latest = {fact.name: fact.tensor for fact in sorted(trace.names, key=lambda one: one.at)}
    groups: dict[int, list[str]] = defaultdict(list)
    for name, tensor in latest.items():
        life = trace.tensors.get(tensor)
        seen = history.operand_of(tensor)
        if (life is None or life.died == UNKNOWN) and seen is not None and seen.storage >= 0:
            groups[seen.storage].append(name)
    return {
        pair
        for names in groups.values()
        if len(names) <= MANY_NAMES
        for pair in itertools.combinations(sorted(names), 2)
    }


def _totals(about: Findings) -> Totals:
    trace = about.trace
    return Totals(
        trace.ended,
        sum(row.count for row in about.copies),
        sum(row.bytes for row in about.copies),
        Memory.of(about.history).peak,
    )
