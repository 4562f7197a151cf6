"""The rulebook as a table: text, Markdown, JSON, HTML.

A `Row` is a rule and what became of it on one build of PyTorch; the generated page is made of the
rules alone and so is the same on every build.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import NamedTuple

from tether.operations import Rule, words
from tether.report.document.blocks import Column, Document, Heading, Kind, Paragraph, Phrase, Table
from tether.report.page.shell import document_page

_COLUMNS = ("call", "memory", "gradient", "version", "cost", "also", "what to know")
_MARK = {"verified": "✓", "different": "✗", "not tried": "-"}
_STYLE = {"verified": "green", "different": "bold red", "not tried": "dim"}


class Row(NamedTuple):
    """One rule, and its verdict where it was tried."""

    rule: Rule
    status: str = ""  # "verified", "different", "not tried"; "" when nobody asked
    tried: int = 0  # kinds of source it was tried on
    seen: tuple[str, ...] = ()  # differences, or why it was not tried


def cells(rule: Rule) -> tuple[str, ...]:
    """Say a rule in the words of the table, one cell for each column."""
    raised = words.raised(rule)
    also = (*words.extras(rule), f"raises {raised}") if raised else words.extras(rule)
    sentence = f"{rule.sentence} Better: {rule.better}." if rule.better else rule.sentence
    return (
        rule.call,
        words.memory(rule),
        words.gradient(rule),
        words.version(rule),
        words.cost(rule),
        "; ".join(also),
        sentence,
    )


def to_text(rows: Sequence[Row], *, width: int = 120, color: bool = False) -> str:
    """Lower the table to text. `width` in characters."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    out = io.StringIO()
    console = Console(file=out, width=width, force_terminal=color, no_color=not color)
    for name, group in groupby(rows, key=lambda row: row.rule.family):
        table = Table(title=name, title_justify="left", box=box.SIMPLE, pad_edge=False)
        for column, share in zip(
            ("", "call", "memory", "gradient", "what to know"), (0, 3, 2, 2, 5), strict=True
        ):
            table.add_column(column, ratio=share or None, overflow="fold")
        for row in group:
            call, memory, gradient, *_, sentence = cells(row.rule)
            mark = Text(_MARK.get(row.status, " "), style=_STYLE.get(row.status, ""))
            table.add_row(mark, Text(call), memory, gradient, Text(sentence))
        console.print(table)
    for row in rows:
        for line in row.seen[:_SHOWN] if row.status == "different" else ():
            console.print(Text(f"{row.rule.slug}: {line}", style=_STYLE["different"]))
        if row.status == "different" and len(row.seen) > _SHOWN:
            console.print(f"{row.rule.slug}: and {len(row.seen) - _SHOWN} more")
        if row.status == "not tried":
            console.print(Text(f"{row.rule.slug}: not tried: {'; '.join(row.seen)}", style="dim"))
    console.print(summary(rows))
    return out.getvalue()


def to_markdown(rows: Iterable[Row]) -> str:
    """Lower the table to Markdown; with a column of verdicts when there are any."""
    rows = list(rows)
    tried = any(row.status for row in rows)
    lines = [_TITLE]
    if tried:
        lines += [summary(rows), ""]
    columns = (*_COLUMNS, "here") if tried else _COLUMNS
    for name, group in groupby(rows, key=lambda row: row.rule.family):
        lines += [f"## {name}", "", _line(columns), _line("---" for _ in columns)]
        for row in group:
            call, *rest = cells(row.rule)
            said = [f'<a id="{row.rule.slug}"></a>' + _code(call), *map(_escape, rest)]
            lines.append(_line([*said, _escape(_here(row))] if tried else said))
        lines.append("")
    return "\n".join(lines)


def to_json(rows: Iterable[Row], *, torch: str = "", device: str = "") -> str:
    """Lower the table to JSON: every field of every case, and the verdicts."""
    listed = [
        {
            "slug": row.rule.slug,
            "operation": row.rule.operation,
            "also": list(row.rule.names),
            "family": row.rule.family,
            "call": row.rule.call,
            "setup": row.rule.setup,
            "sentence": row.rule.sentence,
            "better": row.rule.better,
            "only": row.rule.only.words(),
            "cases": [
                {"when": case.when.words(), **_plain(case.effect)} for case in row.rule.cases
            ],
            "status": row.status,
            "tried": row.tried,
            "seen": list(row.seen),
        }
        for row in rows
    ]
    document = {"schema": 1, "torch": torch, "device": device, "rules": listed}
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def to_html(rows: Sequence[Row]) -> str:
    """Lower the table to one page that needs nothing else; the address of a rule is its slug."""
    made = Document("The rulebook", [Paragraph((Phrase(summary(rows)),))])
    columns = (Column(""), *(Column(one, wrap=one == _COLUMNS[-1]) for one in _COLUMNS))
    for name, group in groupby(rows, key=lambda row: row.rule.family):
        listed = list(group)
        anchors = tuple(row.rule.slug for row in listed)
        table = Table(columns, tuple(map(_cells, listed)), anchors=anchors)
        made.blocks += [Heading(name), table]
    return document_page(made)


def _cells(row: Row) -> tuple[Phrase, ...]:
    call, *others, sentence = cells(row.rule)
    seen = f" {_here(row)}." if row.status not in ("", "verified") else ""
    kinds: dict[str, Kind] = {"verified": "good", "different": "bad"}
    mark = Phrase(_MARK.get(row.status, ""), kinds.get(row.status, "dim"))
    return mark, Phrase(call, "code"), *map(Phrase, others), Phrase(sentence + seen)


def summary(rows: Iterable[Row]) -> str:
    """Count the rows by verdict, in one line."""
    rows = list(rows)
    counts = [
        f"{sum(row.status == status for row in rows)} {words_}"
        for status, words_ in (
            ("verified", "verified"),
            ("different", "different on this build"),
            ("not tried", "not tried"),
        )
    ]
    sources = sum(row.tried for row in rows)
    of_all = "1 rule" if len(rows) == 1 else f"{len(rows)} rules"
    return f"{of_all}: {', '.join(counts)} ({sources} experiments)"


_SHOWN = 4  # differences of one rule that the text shows


def _here(row: Row) -> str:
    if row.status in ("", "verified"):
        return row.status
    return f"{row.status}: {'; '.join(row.seen[:_SHOWN])}"


def _plain(effect: object) -> dict[str, object]:
    return {name: getattr(effect, name) for name in effect.__dataclass_fields__}  # type: ignore[attr-defined]


def _line(cells_: Iterable[str]) -> str:
    return "| " + " | ".join(cells_) + " |"


def _code(text: str) -> str:
    return "<br>".join(f"`{_bars(line)}`" for line in text.splitlines())


def _bars(text: str) -> str:
    return text.replace("|", "\\|")


def _escape(text: str) -> str:
    return _bars(text).replace("<", "&lt;").replace("_", "\\_").replace("*", "\\*")


_TITLE = """\
<!-- Generated by `python -m tether.report.rulebook`; a test keeps it fresh. Do not edit. -->

# The rulebook

What every way of copying, converting, viewing, wrapping or writing a tensor `x` does to both ties,
memory and gradient. `tether rulebook` tries every row on the PyTorch that is installed.

- **memory**: *own* memory, *shares* the source's, *the same tensor* comes back.
- **gradient**, when the source requires grad: *keeps*, *cuts*, *zeros* (a way back that carries
  only zeros).
- **version**: whether a write through the result is counted by the source's version counter
  (*shared*), only by the result's (*own*), or by none. Backward checks versions to refuse values
  that were overwritten.
- **cost**: blocks of the source's size that torch allocates; *waits* when a GPU source makes the
  program wait.
"""


def page() -> str:
    """Make the page ``docs/rulebook.md``."""
    from tether.operations import RULES

    return to_markdown(Row(rule) for rule in RULES)


if __name__ == "__main__":
    import sys

    sys.stdout.write(page())
