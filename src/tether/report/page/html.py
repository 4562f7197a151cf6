"""A document as HTML: no scripts, nothing fetched, every word from a program escaped."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from html import escape

from tether.facts import Site
from tether.report.document.blocks import (
    Chain,
    Column,
    Document,
    Excerpt,
    Heading,
    Paragraph,
    Phrase,
    Table,
)
from tether.report.document.text import visible


def safe(text: str) -> str:
    """Return text that is only ever text in a page, with controls and direction marks spelt out."""
    return escape(visible(text))


def part_id(title: str) -> str:
    """Return the id of a part by its title."""
    return "part-" + re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")


def nowhere(_: Site | int) -> str:
    """Return the id of a line on a page that has none."""
    return ""


Link = Callable[[Site | int], str]
"""Gives the id of a line, or of a finding by its number; "" where there is none."""


def _phrase(one: Phrase, link: Link = nowhere) -> str:
    if not one.text:
        return ""
    target = link(one.to) if one.to is not None else ""
    if target:
        return f'<a class="{one.kind}" href="#{target}">{safe(one.text)}</a>'
    text = safe(one.text)
    if one.kind == "code":  # a long call breaks where it may, and no name is broken
        text = text.replace("(", "(<wbr>")
    return f'<span class="{one.kind}">{text}</span>'


def blocks(document: Document, link: Link = nowhere) -> Iterator[str]:
    """Yield each block of a document as HTML; findings are drawn by the page (`shell`)."""
    for block in document.blocks:
        match block:
            case Heading(text=text, level=level):
                yield f'<h{level} id="{part_id(text)}">{safe(text)}</h{level}>'
            case Paragraph(phrases=phrases):
                yield f"<p>{''.join(map(_phrase, phrases))}</p>"
            case Table():
                yield from _table(block, link)
            case Chain(links=links):
                items = "".join(f"<li>{_excerpt(link)}</li>" for link in links)
                yield f"<ol>{items}</ol>"


def _excerpt(one: Excerpt) -> str:
    role = f" <strong>{safe(one.role)}</strong>" if one.role else ""
    head = f'<p><span class="place">{safe(one.place)}</span>{role}</p>'
    if not one.source.strip():
        return head
    before, meant, after = (
        safe(part)
        for part in (
            one.source[: one.start],
            one.source[one.start : one.end],
            one.source[one.end : one.end + 500],
        )
    )
    marked = f"<mark>{meant}</mark>" if meant else ""
    return f"{head}<pre>{one.line:>5} | {before}{marked}{after}</pre>"


def _table(table: Table, link: Link = nowhere) -> Iterator[str]:
    wordy = any(one.wrap for one in table.columns)
    classes = [_attributes(one, named=wordy) for one in table.columns]
    titles = "".join(
        f'<th scope="col"{kind}>{safe(one.title)}</th>'
        for kind, one in zip(classes, table.columns, strict=True)
    )
    groups = dict(table.groups)
    lines = []
    for number, row in enumerate(table.rows):
        if number in groups:
            head = f'<th colspan="{len(classes)}" scope="rowgroup" class="place">'
            lines.append(f"<tr>{head}{safe(groups[number])}</th></tr>")
        lines.append(_row(row, classes, link, table.anchors[number] if table.anchors else ""))
    rows = "\n".join(lines)
    prose = ' class="prose"' if wordy else ""
    yield f'<div class="t"><table{prose}><thead><tr>{titles}</tr></thead>'
    yield f"<tbody>\n{rows}\n</tbody></table></div>"
    if table.omitted:
        yield f'<p class="dim">... and {table.omitted:,} {safe(table.rest)}</p>'


def _attributes(column: Column, *, named: bool) -> str:
    """Return the attributes of a column's cells; `named`: a narrow screen says what each is."""
    kind = "right" if column.align == "right" else "wide" if column.wrap else ""
    return (f' class="{kind}"' if kind else "") + (
        f' data-h="{safe(column.title)}"' if named and column.title else ""
    )


def _row(cells: tuple[Phrase, ...], classes: list[str], link: Link, anchor: str) -> str:
    name = f' id="{safe(anchor)}"' if anchor else ""
    pairs = zip(classes, cells, strict=True)
    return (
        f"<tr{name}>{''.join(f'<td{kind}>{_phrase(cell, link)}</td>' for kind, cell in pairs)}</tr>"
    )
