"""Findings and answers as the cards of a notebook."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath

from tether.cards import card, code, words
from tether.finding import Finding
from tether.report.document.blocks import (
    Chain,
    Document,
    Excerpt,
    FindingBlock,
    Heading,
    Paragraph,
    Table,
)
from tether.report.document.grouping import ends

MANY_CARDS = 5
"""Findings whose cards are open; the others are folded."""

_EDGES = {"error": "bad", "warning": "warning", "note": "note"}


class FindingList(list[Finding]):
    """Findings in order; a notebook shows them as cards."""

    def _repr_html_(self) -> str:
        if not self:
            return card("<b>nothing to report</b>", [], "good")
        shown = "".join(finding_card(one) for one in self[:MANY_CARDS])
        rest = "".join(finding_card(one) for one in self[MANY_CARDS:])
        if not rest:
            return shown
        more = f"{len(self) - MANY_CARDS} more"
        return f"{shown}<details><summary>{more}</summary>{rest}</details>"


def finding_card(finding: Finding) -> str:
    """Return a finding as a card: what, where, and the repair."""
    title = f"<b>{words(finding.slug)}</b> {code(finding.subject)}"
    rows = [("", words(finding.message))]
    for one in ends(finding)[0]:
        place = f"{PurePath(one.site.file).name}:{one.site.line}"
        text = code(one.site.expression) if one.site.expression else ""
        rows.append((place, f"{text} {words(one.text)}"))
    if finding.fix:
        rows.append(("fix", words(finding.fix.text)))
    return card(title, rows, _EDGES[finding.severity])


def as_card(document: Document) -> str:
    """Return a document as one card."""
    rows = [row for block in document.blocks[1:] for row in _rows(block)]
    return card(f"<b>{words(document.title)}</b>", rows)


def _rows(block: object) -> Iterator[tuple[str, str]]:
    match block:
        case Heading(text=text):
            yield "", f"<b>{words(text)}</b>"
        case Paragraph(phrases=phrases):
            yield "", words("".join(one.text for one in phrases))
        case FindingBlock():
            yield block.severity, f"<b>{words(block.slug)}</b> {words(block.message)}"
            yield from map(_place, block.ends)
            if block.fix:
                yield "fix", words(block.fix)
        case Chain(links=links):
            yield from map(_place, links)
        case Table(rows=rows):
            yield from (("", words("  ".join(one.text for one in row))) for row in rows)


def _place(one: Excerpt) -> tuple[str, str]:
    meant = (one.source[one.start : one.end] or one.source).strip()
    return one.place, words(one.role) + (f" {code(meant)}" if meant else "")
