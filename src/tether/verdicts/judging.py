"""From claims to findings: joined by their cause, named, put into words and ordered by damage."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from tether.analysis.degrading import attempt
from tether.analysis.gradients.graph import Graph
from tether.analysis.history import History
from tether.analysis.libraries import Libraries
from tether.analysis.speaking import Speaker
from tether.analysis.surroundings import CALLED, WaysThere
from tether.facts import UNKNOWN, Site
from tether.finding import (
    SEVERITIES,
    SUBJECT,
    Claim,
    Evidence,
    Finding,
    Fix,
    Severity,
    Tensors,
    Where,
)
from tether.verdicts.base import DAMAGES, Verdict

Turns = Callable[[Sequence[Verdict]], Iterable[Verdict]]
"""Gives verdicts one after the other, and may say at which one the work is."""


def judged(history: History, verdicts: Iterable[Verdict], turns: Turns = iter) -> list[Finding]:
    """Return all findings: the gravest first, by damage within a severity, then by line."""
    known = {one.slug: one for one in verdicts}
    told: dict[str, set[int]] = {}
    findings: list[Finding] = []
    nothing: list[Finding] = []
    ordered = in_turn(known)
    costs = next((one for one in ordered if one.damage == "cost"), None)
    for verdict in turns(ordered):
        if verdict is costs:  # of gradients these ask little, and of memory much
            history.flow.free_indexes()
            history.get(Graph).free_indexes()
        judge = partial(_of_verdict, history, verdict, told)
        some = attempt(history.trace, f"the verdict {verdict.slug}", judge, nothing)
        found = [_of_library(history, verdict, one) for one in some]
        told[verdict.slug] = {tensor for one in found for tensor in one.tensors}
        findings += found
    return sorted(findings, key=lambda one: _rank(one, known[one.slug]))


def _of_library(history: History, verdict: Verdict, finding: Finding) -> Finding:
    """Return a finding as a note on a library, where that library's own lines do what it tells.

    What costs time or memory there is not the program's to change. What loses a gradient or makes
    a result wrong is told of the program's line all the same.
    """
    if verdict.damage not in ("cost", "leak"):
        return finding
    packages = history.get(Libraries).at(finding.site, finding.operation)
    if len(packages) != 1 or not packages[0]:
        return finding
    return replace(finding, severity="note", library=packages[0])


def in_turn(verdicts: dict[str, Verdict]) -> list[Verdict]:
    """Return verdicts so that each comes after those that it gives way to."""
    ordered: dict[str, Verdict] = {}

    def add(slug: str) -> None:
        if slug in ordered or slug not in verdicts:
            return
        for before in verdicts[slug].after:
            add(before)
        ordered[slug] = verdicts[slug]

    for slug in verdicts:
        add(slug)
    return list(ordered.values())


def _rank(finding: Finding, verdict: Verdict) -> tuple[int, int, str, int]:
    site = finding.site
    return (
        SEVERITIES.index(finding.severity), DAMAGES.index(verdict.damage), site.file, site.line
    )  # fmt: skip


def _of_verdict(history: History, verdict: Verdict, told: dict[str, set[int]]) -> list[Finding]:
    """Return the findings of one verdict, without tensors that graver ones speak of."""
    taken = {tensor for slug in verdict.after for tensor in told.get(slug, ())}
    groups: dict[Hashable, list[Claim]] = {}
    for one in verdict.check(history):
        tensors = tuple(tensor for tensor in one.tensors if tensor not in taken)
        if tensors or not one.tensors:
            groups.setdefault(one.cause, []).append(replace(one, tensors=tensors))
    return [_joined(history, verdict, some) for some in groups.values()]


def _joined(history: History, verdict: Verdict, claims: Sequence[Claim]) -> Finding:
    """Return claims of one cause as one finding."""
    first = claims[0]
    site = history.site(first.site)
    speaker = Speaker(history, site)
    tensors = tuple(dict.fromkeys(tensor for one in claims for tensor in one.tensors))
    parts = {SUBJECT: Tensors(tensors)}
    names, story = _called(history, claims, tensors), _story(history, speaker, claims)
    also = names[1:]
    others = {history.name_of(tensor) for tensor in tensors}.union(*(one.also for one in claims))
    return Finding(
        slug=verdict.slug,
        severity=_gravest(verdict, claims),
        subject=names[0],
        site=site,
        operation=first.operation,
        message=speaker.message(first.message, parts),
        also=also,
        second=tuple(one for one in also if one not in others),
        evidence=(*story, *_called_from(history, verdict, claims, story)),
        assumes=tuple(dict.fromkeys(speaker.said(text) for one in claims for text in one.assumes)),
        fix=_fix(history, speaker, first, parts),
        count=_times(claims),
        bytes=_total([one.bytes for one in claims]),
        tensors=tensors,
    )


def _times(claims: Sequence[Claim]) -> int:
    """Return how often it happened: a run of a line is one time, of however many tensors."""
    at_each: dict[Where, int] = {}
    for one in claims:
        at_each[one.site] = max(at_each.get(one.site, 0), one.count)
    return max(1, sum(at_each.values()))


def _called(history: History, claims: Sequence[Claim], tensors: tuple[int, ...]) -> tuple[str, ...]:
    """Return what the subject is called, and then all other names of it and of its kin."""
    names = [history.name_of(tensor) for tensor in tensors]
    subject = claims[0].subject or (names[0] if names else "")
    given = [name for one in claims for name in one.also]
    aliases = [name for tensor in tensors for name in history.names_of(tensor)]
    others = dict.fromkeys([*names, *given, *aliases])
    return subject, *(one for one in others if one.strip("`") != subject.strip("`"))


def _fix(history: History, speaker: Speaker, claim: Claim, parts: dict[str, Tensors]) -> Fix | None:
    repair = claim.repair
    if repair is None:
        return None
    site = history.site(repair.site) if repair.site != UNKNOWN else None
    return Fix(speaker.message(repair.said, parts), action=repair.action, site=site)


MOST = 12
"""Steps of a story that a finding keeps: those of many claims repeat themselves."""


def _story(history: History, speaker: Speaker, claims: Sequence[Claim]) -> tuple[Evidence, ...]:
    steps = [step for one in claims for step in one.story]
    found = dict.fromkeys(
        Evidence(step.role, history.site(step.site), speaker.said(step.said)) for step in steps
    )
    first = len(claims[0].story)
    return tuple(found)[: max(first, MOST)]


def _called_from(
    history: History, verdict: Verdict, claims: Sequence[Claim], story: Sequence[Evidence]
) -> Iterator[Evidence]:
    """Yield from where the line was reached, in the calls that it is about: often the cause."""
    site = claims[0].site
    if verdict.damage == "cost" or history.site(site).function in ("", "<module>"):
        return
    told = {(one.site.file, one.site.line) for one in story}
    for one in _callers(history, site, [one for one in claims if one.site == site]):
        if (one.file, one.line) not in told:
            yield Evidence("called", one, CALLED.template)


def _callers(history: History, site: Where, claims: Sequence[Claim]) -> list[Site]:
    if not isinstance(site, int):
        return []
    ways, calls = history.get(WaysThere), [at for one in claims for at in one.calls]
    tensors = {tensor for one in claims for tensor in one.tensors}
    return ways.callers(site, calls or ways.calls(site, tensors))


def _gravest(verdict: Verdict, claims: Sequence[Claim]) -> Severity:
    return min((one.severity or verdict.severity for one in claims), key=SEVERITIES.index)


def _total(numbers: Sequence[int | None]) -> int | None:
    known = [number for number in numbers if number is not None]
    return sum(known) if known else None
