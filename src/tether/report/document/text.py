"""A document as text for a terminal or a pipe."""

from __future__ import annotations

import io
import itertools
import os
import re
import shutil
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from typing import TextIO

from rich.cells import cell_len
from rich.console import Console
from rich.style import Style
from rich.text import Text

from tether.report.document.blocks import (
    Block,
    Chain,
    Column,
    Document,
    Excerpt,
    FindingBlock,
    Heading,
    Paragraph,
    Phrase,
    Table,
)
from tether.report.document.grouping import folded
from tether.report.formats.addresses import page_of

NARROW, WIDE = 60, 200
"""Columns between which the report fits itself."""

_STYLES = {
    "plain": "",
    "strong": "bold",
    "dim": "dim",
    "code": "cyan",
    "place": "blue",
    "good": "green",
    "bad": "red",
    "error": "bold red",
    "warning": "bold yellow",
    "note": "bold cyan",
}
SEVERITY_STYLES = {one: _STYLES[one] for one in ("error", "warning", "note")}
_LABEL = 9  # columns of the words before the lines of a finding: "assumes  "
_GAP = 2  # columns between the columns of a table; 1 below _TIGHT columns in all
_TIGHT = 72


def write(document: Document, stream: TextIO, width: int | None = None) -> None:
    """Write a document to a stream: coloured and as wide as the terminal if it is one.

    Elsewhere 80 columns without colour codes, unless COLUMNS says otherwise.
    """
    if width is None:
        fallback = int(os.environ.get("COLUMNS", "")) if _whole(os.environ.get("COLUMNS")) else 80
        width = shutil.get_terminal_size((80, 24)).columns if stream.isatty() else fallback
    write_plain(render(document, width, colour=coloured(stream)), stream)


def write_plain(text: str, stream: TextIO) -> None:
    """Write text to a stream, with escapes for what its encoding does not have."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    stream.write(text.encode(encoding, "backslashreplace").decode(encoding))


def coloured(stream: TextIO) -> bool:
    """Say whether a stream takes colours: a terminal does, unless NO_COLOR or FORCE_COLOR says."""
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or stream.isatty()


def _whole(value: str | None) -> bool:
    return bool(value) and value.isdecimal()  # type: ignore[union-attr]


def render(document: Document, width: int = 80, *, colour: bool = False) -> str:
    """Return a document as text of at most `width` columns (within `NARROW` and `WIDE`)."""
    width = max(NARROW, min(WIDE, width))
    out = io.StringIO()
    console = Console(
        file=out,
        width=width,
        force_terminal=colour,
        force_jupyter=False,  # or it displays each line in the notebook by itself
        color_system="standard" if colour else None,
        no_color=not colour,
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
        _environ={},
    )
    for line in lines(document, width):
        line.rstrip()
        console.print(line, soft_wrap=True)
    return out.getvalue()


def lines(document: Document, width: int) -> Iterator[Text]:
    """Yield the lines of a document, of at most `width` columns where no word is longer."""
    before: Block | None = None
    for block in document.blocks:
        if before is not None and not _together(before, block):
            yield Text()
        yield from _block(block, width)
        before = block


def _together(before: Block, block: Block) -> bool:
    """Whether no empty line parts two blocks."""
    if isinstance(before, Paragraph):
        return isinstance(block, Paragraph)
    return isinstance(before, Heading)


def _block(block: Block, width: int) -> Iterator[Text]:
    match block:
        case Heading():
            style = "bold underline" if block.level > 1 else "bold"
            yield Text(visible(block.text)[:width], style)
        case Paragraph():
            text = _text(block.phrases)
            yield from [text] if block.whole else _wrapped(text, width)
        case FindingBlock():
            yield from _finding(block, width)
        case Table():
            yield from _table(block, width)
        case Chain():
            for link in block.links:
                yield from _excerpt(link, width)


# ---------------------------------------------------------------------------------------- words


def visible(text: str) -> str:
    """Return text in which nothing acts on a terminal: controls and direction marks spelt out."""
    if text.isprintable():
        return text
    return "".join(
        one
        if one.isprintable()
        else "    "
        if one == "\t"
        else one.encode("unicode_escape", "surrogatepass").decode("ascii")
        if unicodedata.category(one)[0] in "CZ"
        else one
        for one in text
    )


def _text(phrases: Sequence[Phrase]) -> Text:
    made = Text()
    for phrase in phrases:
        made.append(visible(phrase.text), _style(_STYLES[phrase.kind], phrase.link))
    return made


def _style(style: str, link: str) -> Style:
    return Style.parse(style) + Style(link=link or None)


def _wrapped(text: Text, width: int, first: str = "", rest: str = "") -> Iterator[Text]:
    """Yield the lines of a text, the first after `first`, the others after `rest`.

    A word that is wider than a line, such as a long name, is not broken: it can be copied.
    """
    for number, line in enumerate(_broken(text, max(20, width - len(rest or first)))):
        line.rstrip()
        yield Text(first if number == 0 else rest).append_text(line)


def _broken(text: Text, width: int) -> Iterable[Text]:
    """Break a text between words."""
    breaks, column = [], 0
    for word in re.finditer(r"\S+\s*", text.plain):
        if column and column + cell_len(word[0].rstrip()) > width:
            breaks.append(word.start())
            column = 0
        column += cell_len(word[0])
    return text.divide(breaks)


def _labelled(label: str, text: Text, width: int) -> Iterator[Text]:
    yield from _wrapped(text, width, f"  {label:<{_LABEL}}", " " * (_LABEL + 2))


def shortened(text: str, width: int) -> str:
    """Return text of at most so many columns, its end replaced by dots where it is longer."""
    if cell_len(text) <= width:
        return text
    while text and cell_len(text) > width - 3:
        text = text[: min(len(text) - 1, width - 3)]
    return text + "..."


# ------------------------------------------------------------------------------------- findings


def _finding(block: FindingBlock, width: int) -> Iterator[Text]:
    style = _STYLES[block.severity]
    title = Text(f"#{block.number} ", "bold").append(block.severity, style)
    title.append("  ").append(block.slug, _style(style, page_of(block.slug)))
    title.append("  ").append(visible(block.subject), "bold")
    if block.facts:
        title.append(f"  ({block.facts})", "dim")
    yield from _wrapped(title, width, "", "   ")
    yield from _wrapped(Text(visible(block.message)), width, "  ", "  ")
    for end in block.ends:
        yield Text()
        yield from _excerpt(end, width)
    details = list(_details(block, width))
    if block.ends and details:
        yield Text()
    yield from details


def _details(block: FindingBlock, width: int) -> Iterator[Text]:
    """Yield what follows the excerpts, each with its label."""
    others = [one for one in block.also if one not in block.second]
    plain = [("also", f"{one.role}  ({one.place})") for one in block.evidence]
    plain += [("same", _few(others))] if others else []
    plain += [("named", _few(block.second))] if block.second else []
    plain += [("alike", block.alike)] if block.alike else []
    plain += [("assumes", text) for text in block.assumes]
    for label, text in plain:
        yield from _labelled(label, Text(visible(text)), width)
    if block.fix:
        yield from _labelled("fix", Text(visible(block.fix), "green"), width)
    for edit in block.edits:
        yield from _labelled("", Text(visible(edit), "cyan"), width)


def _few(names: Sequence[str]) -> str:
    """Return the first of some names, those alike as one, and how many more there are."""
    found = folded(names)
    return ", ".join(found[:4]) + (f" and {len(found) - 4} more" if found[4:] else "")


def _excerpt(one: Excerpt, width: int) -> Iterator[Text]:
    """Yield a place, its line of source and the caret under what is meant."""
    head = Text().append(visible(one.place), _style("blue", one.link))
    role = Text(visible(one.role), "bold")
    if head.cell_len + role.cell_len + 4 <= width:
        head.append("  ").append_text(role)
        role = Text()
    yield from _wrapped(head, width, "  ", "  ")
    if role:
        yield from _wrapped(role, width, "    ", "    ")
    if not one.source.strip():
        return
    number = f"  {one.line:>5} | "
    before, meant, after = _window(one, width - len(number))
    yield Text().append(number, "dim").append(before).append(meant, "bold").append(after)
    if meant:
        caret = Text().append(" " * 8 + "| ", "dim")
        yield caret.append(" " * cell_len(before)).append("^" * cell_len(meant), "bold red")


def _window(one: Excerpt, width: int) -> tuple[str, str, str]:
    """Return what stands before, on and after the meant columns, cut so that those can be seen."""
    indent = len(one.source) - len(one.source.lstrip())
    skip = max(0, min(indent, one.start) - 4)  # deep code moves to the left
    before = visible(one.source[skip : one.start])
    meant = visible(one.source[one.start : one.end])
    after = visible(one.source[one.end : one.end + width].rstrip())
    meant = shortened(meant, width)
    room = width - cell_len(meant)
    spare = min(cell_len(after), 12, max(0, room - 12))  # some of what follows is shown as well
    if cell_len(before) > room - spare:
        keep = max(0, room - spare - 3)
        while before and cell_len(before) > keep:
            before = before[max(1, len(before) - keep) :]
        before = "..." + before if room >= 3 else ""
    room -= cell_len(before)
    return before, meant, shortened(after, room) if room >= 4 else ""


# --------------------------------------------------------------------------------------- tables


def _table(table: Table, width: int) -> Iterator[Text]:
    cells = [[visible(one.text).replace("\n", " ") for one in row] for row in table.rows]
    gap = _GAP if width >= _TIGHT else 1
    widths = _widths(table, cells, width - gap * (len(table.columns) - 1))
    yield _row([one.title for one in table.columns], ["dim"] * len(widths), table, widths, gap)
    groups = dict(table.groups)
    for number, (row, texts) in enumerate(zip(table.rows, cells, strict=True)):
        if number in groups:
            yield Text(_from_right(visible(groups[number]), width), "blue")
        styles = [_STYLES[one.kind] for one in row]
        for line in _split(texts, table, widths):
            yield _row(line, styles, table, widths, gap)
    if table.omitted:
        yield Text(f"... and {table.omitted:,} {table.rest}", "dim")


def _split(texts: Sequence[str], table: Table, widths: Sequence[int]) -> Iterator[Sequence[str]]:
    """Yield the lines of a row: one, or more where prose is wider than its column."""
    columns = [
        _folded(text, wide) if column.wrap else [text]
        for text, column, wide in zip(texts, table.columns, widths, strict=True)
    ]
    yield from itertools.zip_longest(*columns, fillvalue="")


def _folded(text: str, width: int) -> list[str]:
    if cell_len(text) <= width:
        return [text]
    lines = Text(text).wrap(Console(width=width), width, overflow="fold")
    return [line.plain.rstrip() for line in lines]


def _widths(table: Table, cells: Sequence[Sequence[str]], width: int) -> list[int]:
    """Return the width of each column; where all is too wide the ones that give do, then any."""
    titles = [one.title for one in table.columns]
    widths = [max(map(cell_len, column)) for column in zip(titles, *cells, strict=True)]
    least = [
        _least(wide, column, [row[place] for row in cells])
        for place, (wide, column) in enumerate(zip(widths, table.columns, strict=True))
    ]
    for give in (True, False):
        while sum(widths) > width:
            able = [
                place
                for place, column in enumerate(table.columns)
                if column.give == give and widths[place] > least[place]
            ]
            if not able:
                break
            widths[max(able, key=lambda place: widths[place])] -= 1
    return widths


def _least(wide: int, column: Column, texts: Sequence[str]) -> int:
    """Return the width below which a column is not made narrower, of one that is `wide`.

    Prose is not broken within its words, but for those that would take half of a page.
    """
    if column.whole:
        return wide
    if column.wrap:
        words = (cell_len(word) for text in (column.title, *texts) for word in text.split())
        return min(wide, max(12, min(max(words, default=0), _LONGEST_WORD)))
    return min(wide, 12 if column.give else 8)


_LONGEST_WORD = 24
"""Columns of a word that a column of prose has room for; of a longer one the rest goes below."""


def _row(
    texts: Sequence[str], styles: Sequence[str], table: Table, widths: Sequence[int], gap: int
) -> Text:
    line = Text()
    for text, style, column, wide in zip(texts, styles, table.columns, widths, strict=True):
        shown = _from_right(text, wide) if column.title == "line" else shortened(text, wide)
        pad = " " * (wide - cell_len(shown))
        if line:
            line.append(" " * gap)
        if column.align == "right":
            line.append(pad).append(shown, style)
        else:
            line.append(shown, style).append(pad)
    return line


def _from_right(text: str, width: int) -> str:
    """Return the end of a path, which says more than its start."""
    if cell_len(text) <= width:
        return text
    while text and cell_len(text) > width - 3:
        text = text[1:]
    return "..." + text
