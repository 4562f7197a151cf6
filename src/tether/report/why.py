"""One question about one tensor, answered by the chain of what happened to it."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import partial
from typing import NoReturn

from tether.facts import UNKNOWN, Event, Operand, Site, Trace
from tether.finding import Finding
from tether.operations import rule_for, say
from tether.operations.table import shown
from tether.report.document.blocks import (
    Block,
    Chain,
    Document,
    Excerpt,
    Heading,
    Paragraph,
    Phrase,
)
from tether.report.document.compose import excerpt, finding_block
from tether.report.document.findings import Findings, counted
from tether.report.document.grouping import ends
from tether.report.document.text import render
from tether.report.filters import shown_line
from tether.report.page.shown_cards import as_card
from tether.report.tables.gradients import Status, shortest_names
from tether.report.tables.ties import of_name
from tether.report.why_shared import downward, upward

MANY_LINKS = 12
MOST_OTHERS = 4
"""Tensors of the same name that are named when another is asked for."""


@dataclass(frozen=True)
class Answer:
    """The answer to one question; printed it is text of 80 columns."""

    document: Document

    def __str__(self) -> str:
        return render(self.document).rstrip("\n")

    def _repr_html_(self) -> str:
        """Return the card that a notebook shows: what is found, and what happened, in order."""
        return as_card(self.document)


def why(name: str, about: Findings) -> Answer:
    """Return the findings about a tensor and the events that made it, share it and wrote it.

    A name is as the report writes it, or what several begin with (``best`` of ``best['w']``), or
    the end of one (``layer1.weight``) if only one fits, or what a line assigns a tensor to, or a
    line (``model.py:28``): what its calls made. Raises `LookupError` with names that are close.
    """
    full, tensors = _named(name, about)
    document = Document(f"tether why {full}", [Heading(full, 1)])
    numbers = [
        number
        for number, one in enumerate(about.findings)
        if tensors & set(one.tensors)
        or full in (one.subject, *one.also)
        or full in _lines(one, about)
    ]
    document.blocks += _others(full, tensors, about)
    document.blocks += (finding_block(n + 1, about.findings[n], about) for n in numbers)
    document.blocks += of_name(full, tensors, about.ties, partial(_at, about))
    document.blocks += _gradient(full, about)
    document.blocks += upward(tensors, about)
    document.blocks += downward(tensors, about)
    document.blocks += _history(tensors, about)
    document.blocks += _at_its_calls(tensors, about, numbers)
    if len(document.blocks) == 1:
        text = f"The name {full} was seen, and no call of the recording touched its tensor."
        document.blocks.append(Paragraph((Phrase(text),)))
    return Answer(document)


def _lines(finding: Finding, about: Findings) -> set[str]:
    """Return the lines of a finding's ends, as reports show them."""
    folder = about.trace.folder
    return {shown_line(one.site.file, one.site.line, folder) for one in ends(finding)[0]}


def _at(about: Findings, site: Site, role: str) -> Excerpt:
    return excerpt(site, role, about)


def _named(name: str, about: Findings) -> tuple[str, set[int]]:
    """Return the full name and the serial numbers of the tensors that bore it."""
    trace = about.trace
    by_name: dict[str, set[int]] = {}
    for fact in trace.names:
        by_name.setdefault(fact.name, set()).add(fact.tensor)
    if name in by_name:
        best = {one for one in by_name[name] if about.history.name_of(one) == name}
        return name, best or by_name[name]
    inside = [known for known in by_name if known.startswith((f"{name}.", f"{name}["))]
    if inside:
        return name, set().union(*(by_name[known] for known in inside))
    return (
        _by_line(name, trace)
        or _by_its_end(name, by_name)
        or _by_target(name, trace)
        or _unknown(name, by_name, trace)
    )


_LINE = re.compile(r"(?:(.+?)(?::|, line ))?(\d+)")


def _by_line(name: str, trace: Trace) -> tuple[str, set[int]] | None:
    """Return what the calls at a line made or wrote, else what they read: ``model.py:28``."""
    sites = _sites_at(name, trace)
    if sites is None:
        return None
    places = {shown_line(site.file, site.line, trace.folder) for site in sites.values()}
    if len(places) > 1:
        raise LookupError(
            f"{name!r} is a line of several files: give {' or '.join(sorted(places))}"
        )
    events = [event for event in trace.events if event.site in sites]
    made = {one.tensor for event in events for one in (*event.results, *event.writes)}
    found = made or {one.tensor for event in events for one in event.reads}
    if not found:
        raise LookupError(f"no call on a tensor was recorded at {name!r}")
    return places.pop(), {int(one) for one in found} - {UNKNOWN}


def _sites_at(name: str, trace: Trace) -> dict[int, Site] | None:
    """Return the sites on a line of the user's, by their numbers; None where no line is meant."""
    match = _LINE.fullmatch(name)
    if match is None:
        return None
    file, line = match[1] or "", int(match[2])
    return {
        number: site
        for number, site in enumerate(trace.sites)
        if site.line == line and site.user and (not file or f"/{site.file}".endswith(f"/{file}"))
    }


def _by_its_end(name: str, by_name: Mapping[str, set[int]]) -> tuple[str, set[int]] | None:
    """Return the tensors whose name ends so, where all that do are the same ones."""
    fitting = [known for known in by_name if known.endswith("." + name)]
    fitting = fitting or [known for known in by_name if known.endswith(f"['{name}']")]
    if not fitting:
        return None
    if len({frozenset(by_name[known]) for known in fitting}) == 1:
        full = min(fitting, key=len)
        return full, by_name[full]
    some = ", ".join(sorted(fitting)[:5])
    raise LookupError(f"{name!r} fits {len(fitting)} names; give more of one: {some}")


def _by_target(name: str, trace: Trace) -> tuple[str, set[int]] | None:
    """Return the tensors that were assigned to a variable."""
    sites = {number for number, site in enumerate(trace.sites) if site.target == name}
    made = {
        int(operand.tensor)
        for event in trace.events
        if event.site in sites
        for operand in event.results
    }
    return (name, made - {UNKNOWN}) if made else None


def _unknown(name: str, known: Iterable[str], trace: Trace) -> NoReturn:
    targets = {site.target for site in trace.sites if site.user and site.target.isprintable()}
    close = difflib.get_close_matches(name, dict.fromkeys([*known, *targets]), n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(close)}?" if close else "the report lists the names"
    raise LookupError(f"no tensor is called {name!r} in this recording: {hint}")


def _others(name: str, tensors: AbstractSet[int], about: Findings) -> Iterator[Block]:
    """Name the tensors that were called so for a while, and have names of their own."""
    names = shortest_names(about.history)
    called = {one.tensor for one in about.trace.names if one.name == name}
    others = list(dict.fromkeys(names[one] for one in sorted(called - tensors)))
    if others:
        text = ", ".join(others[:MOST_OTHERS])
        left = len(others) - MOST_OTHERS
        text += f" and {left} more" if left > 0 else ""
        were, these = ("were", "these") if len(others) > 1 else ("was", "it")
        text += f" {were} called {name} for a while too; this answer is not about {these}."
        yield Paragraph((Phrase(text),))


def _gradient(name: str, about: Findings) -> Iterator[Block]:
    rows = [row for row in about.gradients if row.name == name]
    for status, count in Counter(row.status for row in rows).items():
        words = _ONE[status] if len(rows) == 1 else f"Of {count} of {len(rows)} {_MANY[status]}"
        yield Paragraph((Phrase(words),))
    if any(row.status == "none" and row.finding is None for row in rows):
        yield from _cut_at(name, about)


_ONE: dict[Status, str] = {
    "reached": "The gradient reached it.",
    "zero": "Its gradient was there and was exactly zero each time it was looked at.",
    "none": "It had no gradient whenever one was asked for.",
}
_MANY: dict[Status, str] = {
    "reached": "parameters called so the gradient was there.",
    "zero": "parameters called so the gradient was exactly zero each time it was looked at.",
    "none": "parameters called so there was no gradient whenever one was asked for.",
}


def _cut_at(name: str, about: Findings) -> Iterator[Block]:
    """Tell where a parameter's values left the graph, of one that no finding speaks of."""
    cuts = [row.cut for row in about.cuts if name in row.cut.names][:MANY_LINKS]
    if not cuts:
        return
    yield Heading("where the path from the loss is cut")
    links = [excerpt(one.site, one.what, about) for one in cuts]
    yield Chain((*links, excerpt(cuts[0].loss, "backward starts from the loss here", about)))


def _history(tensors: set[int], about: Findings) -> Iterator[Block]:
    storages: set[int] = set()
    times = _times(about.trace, tensors, storages)
    if not times:
        return
    first = list(times)[:MANY_LINKS]
    yield Heading("what happened to it")
    yield Chain(tuple(_link(site, role, times[site, role], about) for site, role in first))
    if len(times) > len(first):
        text = f"... and at {counted(len(times) - len(first), 'more place')}"
        yield Paragraph((Phrase(text, "dim"),))
    names = shortest_names(about.history)
    sharers = {one for one in names if _on(about, one) in storages} - tensors
    yield from _sharers(sharers, names)


def _at_its_calls(
    tensors: AbstractSet[int], about: Findings, told: Collection[int]
) -> Iterator[Block]:
    """Name the findings about other tensors whose cause is a call that these ones went into."""
    sites = about.trace.sites
    calls = {sites[event.site] for event in about.trace.events if _any(event.reads, tensors)}
    for number, one in enumerate(about.findings):
        if number not in told and one.site in calls:
            place = shown_line(one.site.file, one.site.line, about.trace.folder)
            text = (
                f"Finding #{number + 1}, {one.slug} of {one.subject}, is about the call at {place}."
            )
            yield Paragraph((Phrase(text),))


def _on(about: Findings, tensor: int) -> int:
    operand = about.history.operand_of(tensor)
    return UNKNOWN if operand is None else operand.storage


def _times(trace: Trace, tensors: AbstractSet[int], storages: set[int]) -> Counter[tuple[int, str]]:
    """Count what was done to the tensors, by site and words, in the order in which it began.

    Gathers the storages on which the tensors were met. What was written before there was such a
    tensor is another's history.
    """
    times: Counter[tuple[int, str]] = Counter()
    for event in trace.events:
        met = [
            one for one in (*event.reads, *event.results, *event.writes) if one.tensor in tensors
        ]
        storages.update(one.storage for one in met if one.storage != UNKNOWN)
        if storages:
            times.update((event.site, role) for role in _roles(event, tensors, storages))
    return times


def _sharers(sharers: AbstractSet[int], names: Mapping[int, str]) -> Iterator[Block]:
    called = sorted({names[one] for one in sharers if one in names})
    if called:
        text = f"Its memory is also used by {', '.join(called[:6])}"
        text += f" and {len(called) - 6} more" if len(called) > 6 else ""
        yield Paragraph((Phrase(text),))


def _roles(event: Event, tensors: AbstractSet[int], storages: AbstractSet[int]) -> Iterator[str]:
    """Yield what an event did to the tensors, in words."""
    operation = shown(event.operation)
    if _any(event.writes, tensors):
        yield f"written by {operation}"
    elif any(operand.storage in storages for operand in event.writes):
        yield f"its memory written by {operation}, through another tensor"
    elif _any(event.reads, tensors):
        yield _read_role(event, operation, tensors, storages)
    elif _any(event.results, tensors):
        # The rulebook's words; "" where the call took no tensor, or nothing is known of it.
        said = say(event) if rule_for(event.operation) is not None else ""
        yield f"made by {operation}" + (f", {said}" if said else "")


def _read_role(
    event: Event, operation: str, tensors: AbstractSet[int], storages: AbstractSet[int]
) -> str:
    """Say what a call made of tensors that it read."""
    if any(operand.storage in storages for operand in event.results):
        return operation if _any(event.results, tensors) else f"shared by {operation}"
    if event.results and any(operand.requires_grad for operand in event.reads):
        kept = any(operand.requires_grad for operand in event.results)
        return f"used by {operation}, gradient {'kept' if kept else 'cut'}"
    return f"read by {operation}"


def _any(operands: tuple[Operand, ...], tensors: AbstractSet[int]) -> bool:
    return any(operand.tensor in tensors for operand in operands)


def _link(site: int, role: str, count: int, about: Findings) -> Excerpt:
    times = f", {count:,} times" if count > 1 else ""
    if site < 0:
        return Excerpt("(place not known)", role + times)
    return excerpt(about.trace.sites[site], role + times, about)
