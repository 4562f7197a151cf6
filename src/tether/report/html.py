"""A document as HTML: no scripts, nothing fetched, every word from a program escaped."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from html import escape

from tether.facts import Site
from tether.report.document import (
    Chain,
    Document,
    Excerpt,
    FindingBlock,
    Heading,
    Paragraph,
    Phrase,
    Table,
)
from tether.report.text import visible


def safe(text: str) -> str:
    """Return text that is only ever text in a page, with controls and direction marks spelt out."""
    return escape(visible(text))


def _nowhere(_: Site | int) -> str:
    return ""


Link = Callable[[Site | int], str]
"""Gives the id of a line, or of a finding by its number; "" where there is none."""


def _phrase(one: Phrase, link: Link = _nowhere) -> str:
    target = link(one.to) if one.to is not None else ""
    if target:
        return f'<a class="{one.kind}" href="#{target}">{safe(one.text)}</a>'
    return f'<span class="{one.kind}">{safe(one.text)}</span>'


def blocks(document: Document, link: Link = _nowhere) -> Iterator[str]:
    """Yield each block of a document as HTML."""
    for block in document.blocks:
        match block:
            case Heading(text=text, level=level):
                yield f"<h{level}>{safe(text)}</h{level}>"
            case Paragraph(phrases=phrases):
                yield f"<p>{''.join(map(_phrase, phrases))}</p>"
            case FindingBlock():
                yield _finding(block)
            case Table():
                yield from _table(block, link)
            case Chain(links=links):
                items = "".join(f"<li>{_excerpt(link)}</li>" for link in links)
                yield f"<ol>{items}</ol>"


def _finding(block: FindingBlock) -> str:
    facts = f' <span class="dim">({safe(block.facts)})</span>' if block.facts else ""
    head = (
        f'<article id="finding-{block.number}"><h3>#{block.number} '
        f'<span class="{block.severity}">{block.severity} {safe(block.slug)}</span> '
        f"{safe(block.subject)}{facts}</h3><p>{safe(block.message)}</p>"
    )
    parts = [
        head,
        *map(_excerpt, block.ends),
        "<dl>",
        *(_item("also", f"{one.role} ({one.place})") for one in block.evidence),
        *(_item("same", name) for name in block.also),
        *(_item("assumes", text) for text in block.assumes),
        *(_item("fix", text) for text in (block.fix,) if text),
        *(_item("edit", text) for text in block.edits),
        "</dl></article>",
    ]
    return "".join(parts)


def _item(label: str, text: str) -> str:
    return f"<dt>{label}</dt><dd>{safe(text)}</dd>"


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


def _table(table: Table, link: Link = _nowhere) -> Iterator[str]:
    classes = [f' class="{one.align}"' if one.align == "right" else "" for one in table.columns]
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
        lines.append(_row(row, classes, link))
    rows = "\n".join(lines)
    yield f'<div class="t"><table><thead><tr>{titles}</tr></thead>'
    yield f"<tbody>\n{rows}\n</tbody></table></div>"
    if table.omitted:
        yield f'<p class="dim">... and {table.omitted:,} {safe(table.rest)}</p>'


def _row(cells: tuple[Phrase, ...], classes: list[str], link: Link) -> str:
    pairs = zip(classes, cells, strict=True)
    return f"<tr>{''.join(f'<td{kind}>{_phrase(cell, link)}</td>' for kind, cell in pairs)}</tr>"
