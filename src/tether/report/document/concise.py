"""The findings a line each, as linters print them: for editors, logs and `grep`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from tether.finding import Finding
from tether.report.document.blocks import Block, Document, Heading, Paragraph, Phrase
from tether.report.document.compose import summary
from tether.report.document.findings import Findings
from tether.report.filters import link_to, shown_path
from tether.report.formats.addresses import page_of


def concise(about: Findings, root: str) -> Document:
    """Return ``file:line:column: slug message`` for each finding; files relative to `root`."""
    lines = [_line((*_place(one, root), *_said(one, ": "))) for one in about.findings]
    return _document(about, lines)


def grouped(about: Findings, root: str) -> Document:
    """Return the findings of each file below its name: ``line:column slug message``."""
    blocks: list[Block] = []
    for file, findings in groupby(by_place(about.findings), lambda one: one.site.file):
        blocks.append(Heading(f"{shown_path(file, root)}:" if file else "at no known line:"))
        for one in findings:
            place = (Phrase("  "), Phrase(_position(one), "place", link_to(one.site)))
            blocks.append(_line((*place, *_said(one, " "))))
    return _document(about, blocks)


def by_place(findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings in the order in which the files are read."""
    return sorted(findings, key=lambda one: (one.site.file, one.site.line, one.site.column))


def _document(about: Findings, blocks: Sequence[Block]) -> Document:
    return Document("tether", [*blocks, *summary(about)])


def _line(phrases: tuple[Phrase, ...]) -> Paragraph:
    return Paragraph(phrases, whole=True)


def _place(finding: Finding, root: str) -> tuple[Phrase, ...]:
    file = shown_path(finding.site.file, root)
    text = ":".join(part for part in (file, _position(finding)) if part)
    return (Phrase(text, "place", link_to(finding.site)),) if text else ()


def _position(finding: Finding) -> str:
    site = finding.site
    return ":".join(str(number) for number in (site.line, site.column) if number > 0)


def _said(finding: Finding, after_place: str) -> tuple[Phrase, ...]:
    message = " ".join(finding.message.split())
    start = after_place if finding.site.file or finding.site.line > 0 else ""
    return (
        Phrase(start),
        Phrase(finding.slug, finding.severity, page_of(finding.slug)),
        Phrase(f" {message}"),
    )
