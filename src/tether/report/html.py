"""A document as one HTML page: no scripts, nothing fetched, every word from a program escaped."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

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

_STYLE = """
:root { color-scheme: light dark; --line: #8886; --good: #1a7f37; --bad: #c0282d; --warn: #9a6700;
  --note: #0969da; --code: #0550ae; --dim: #6e7781; }
@media (prefers-color-scheme: dark) { :root { --good: #3fb950; --bad: #ff7b72; --warn: #d29922;
  --note: #58a6ff; --code: #79c0ff; --dim: #9198a1; } }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; }
article { border: 1px solid var(--line); border-radius: .5rem; padding: .2rem 1.2rem; }
pre, code, td:first-child { font-family: ui-monospace, monospace; font-size: .9rem; }
pre { overflow-x: auto; border-left: 3px solid var(--line); padding: .3rem .8rem; }
mark { background: none; color: inherit; text-decoration: underline wavy var(--bad); }
.t { overflow-x: auto; }
table { border-collapse: collapse; }
th, td { text-align: left; padding: .15rem .8rem .15rem 0; border-bottom: 1px solid var(--line); }
.right { text-align: right; font-variant-numeric: tabular-nums; }
.good { color: var(--good); } .bad, .error { color: var(--bad); } .warning { color: var(--warn); }
.note { color: var(--note); } .code, .place { color: var(--code); } .dim, dt { color: var(--dim); }
dt { float: left; clear: left; width: 6rem; } dd { margin-left: 6rem; }
"""

_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def render(document: Document) -> str:
    """Return the page. A reader's browser runs and fetches nothing: the page forbids it."""
    head = (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{safe(document.title)}</title><style>{_STYLE}</style></head><body><main>\n"
    )
    return head + "\n".join(blocks(document)) + "\n</main></body></html>\n"


def safe(text: str) -> str:
    """Return text that is only ever text in a page, with controls and direction marks spelt out."""
    return escape(visible(text))


def _phrase(one: Phrase) -> str:
    return f'<span class="{one.kind}">{safe(one.text)}</span>'


def blocks(document: Document) -> Iterator[str]:
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
                yield from _table(block)
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


def _table(table: Table) -> Iterator[str]:
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
        lines.append(_row(row, classes))
    rows = "\n".join(lines)
    yield f'<div class="t"><table><thead><tr>{titles}</tr></thead>'
    yield f"<tbody>\n{rows}\n</tbody></table></div>"
    if table.omitted:
        yield f'<p class="dim">... and {table.omitted:,} {safe(table.rest)}</p>'


def _row(cells: tuple[Phrase, ...], classes: list[str]) -> str:
    pairs = zip(classes, cells, strict=True)
    return f"<tr>{''.join(f'<td{kind}>{_phrase(cell)}</td>' for kind, cell in pairs)}</tr>"
