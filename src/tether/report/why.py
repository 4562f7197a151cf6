"""One question about one tensor, answered by the chain of what happened to it."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import partial

from tether.facts import Event, Operand, Site, Trace
from tether.operations import rule_for, say
from tether.operations.table import shown
from tether.report.compose import Findings, counted, excerpt, finding_block
from tether.report.document import Block, Chain, Document, Excerpt, Heading, Paragraph, Phrase
from tether.report.gradients import shortest_names
from tether.report.text import render
from tether.report.ties import of_name
from tether.report.why_shared import downward, upward

MANY_LINKS = 12


@dataclass(frozen=True)
class Answer:
    """The answer to one question; printed it is text of 80 columns."""

    document: Document

    def __str__(self) -> str:
        return render(self.document).rstrip("\n")


def why(name: str, about: Findings) -> Answer:
    """Return the findings about a tensor and the events that made it, share it and wrote it.

    A name is as the report writes it, or what several begin with (``best`` of ``best['w']``), or
    the end of one (``layer1.weight``) if only one fits, or what a line assigns a tensor to. Raises
    `LookupError` with names that are close.
    """
    full, tensors = _named(name, about)
    document = Document(f"tether why {full}", [Heading(full, 1)])
    numbers = [
        number
        for number, one in enumerate(about.findings)
        if tensors & set(one.tensors) or full in (one.subject, *one.also)
    ]
    document.blocks += (finding_block(n + 1, about.findings[n], about) for n in numbers)
    document.blocks += of_name(full, tensors, about.ties, partial(_at, about))
    document.blocks += _gradient(full, about)
    document.blocks += upward(tensors, about)
    document.blocks += downward(tensors, about)
    document.blocks += _history(tensors, about)
    if len(document.blocks) == 1:
        text = "Its name was seen, and no call of the recording touched it."
        document.blocks.append(Paragraph((Phrase(text),)))
    return Answer(document)


def _at(about: Findings, site: Site, role: str) -> Excerpt:
    return excerpt(site, role, about)


def _named(name: str, about: Findings) -> tuple[str, set[int]]:
    """Return the full name and the serial numbers of the tensors that bore it."""
    trace = about.trace
    by_name: dict[str, set[int]] = {}
    for fact in trace.names:
        by_name.setdefault(fact.name, set()).add(fact.tensor)
    if name in by_name:
        return name, by_name[name]
    inside = [known for known in by_name if known.startswith((f"{name}.", f"{name}["))]
    if inside:
        return name, set().union(*(by_name[known] for known in inside))
    return _by_its_end(name, by_name) or _by_target(name, by_name, trace)


def _by_its_end(name: str, by_name: Mapping[str, set[int]]) -> tuple[str, set[int]] | None:
    """Return the tensors whose name ends so, where all that do are the same ones."""
    fitting = [known for known in by_name if known.endswith("." + name)]
    if not fitting:
        return None
    if len({frozenset(by_name[known]) for known in fitting}) == 1:
        full = min(fitting, key=len)
        return full, by_name[full]
    some = ", ".join(sorted(fitting)[:5])
    raise LookupError(f"{name!r} fits {len(fitting)} names; give more of one: {some}")


def _by_target(name: str, by_name: Mapping[str, set[int]], trace: Trace) -> tuple[str, set[int]]:
    """Return the tensors that were assigned to a variable, or say that none was."""
    sites = {number for number, site in enumerate(trace.sites) if site.target == name}
    made = {
        operand.tensor for event in trace.events if event.site in sites for operand in event.results
    }
    if made:
        return name, {int(one) for one in made} - {-1}
    targets = {site.target for site in trace.sites if site.user and site.target.isprintable()}
    close = difflib.get_close_matches(name, [*by_name, *targets], n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(close)}?" if close else "the report lists the names"
    raise LookupError(f"no tensor is called {name!r} in this recording: {hint}")


def _gradient(name: str, about: Findings) -> Iterator[Block]:
    for row in about.gradients:
        if row.name == name:
            words = {
                "reached": "The gradient reached it.",
                "zero": "Its gradient was there and was exactly zero each time it was looked at.",
                "none": "It had no gradient whenever one was asked for.",
            }
            yield Paragraph((Phrase(words[row.status]),))


def _history(tensors: set[int], about: Findings) -> Iterator[Block]:
    trace = about.trace
    operands = [one for event in trace.events for one in (*event.reads, *event.results)]
    storages = {one.storage for one in operands if one.tensor in tensors} - {-1}
    times = _times(trace, tensors, storages)
    if not times:
        return
    first = list(times)[:MANY_LINKS]
    yield Heading("what happened to it")
    yield Chain(tuple(_link(site, role, times[site, role], about) for site, role in first))
    if len(times) > len(first):
        text = f"... and at {counted(len(times) - len(first), 'more place')}"
        yield Paragraph((Phrase(text, "dim"),))
    sharers = {one.tensor for one in operands if one.storage in storages} - tensors
    yield from _sharers(sharers, shortest_names(trace))


def _times(
    trace: Trace, tensors: AbstractSet[int], storages: AbstractSet[int]
) -> Counter[tuple[int, str]]:
    """Count what was done to the tensors, by site and words, in the order in which it began."""
    times: Counter[tuple[int, str]] = Counter()
    met = False  # what was written before there was such a tensor is another's history
    for event in trace.events:
        met = met or _any((*event.reads, *event.results, *event.writes), tensors)
        if met:
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
