"""What changed between two recordings, as a report and as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tether
from tether.analysis.speaking import bytes_text
from tether.facts import Site
from tether.operations.table import shown
from tether.report.comparison.compare import Changed, Differences, Pair, PlaceEffect, Totals
from tether.report.document.blocks import (
    Block,
    Column,
    Document,
    Heading,
    Kind,
    Paragraph,
    Phrase,
    Table,
)
from tether.report.document.compose import finding_block, place
from tether.report.document.findings import Findings, by_line, counted
from tether.report.filters import shown_path
from tether.report.formats.json import finding_values, site_values

SCHEMA = 1
MANY_ROWS = 40
MANY_FINDINGS = 20


def build(found: Differences, before: str, after: str) -> Document:
    """Return the report; `before` and `after` are what the recordings are called."""
    title = f"tether: {before} -> {after}"
    document = Document(title, [Heading(title, 1), Paragraph(tuple(_summary(found)))])
    parts = (
        _findings("findings gained", found.gained, found.after),
        _lost(found),
        _ties(found),
        _gradients(found),
        _copies(found),
        _totals(*found.totals),
    )
    for part in parts:
        document.blocks += part
    return document


def _summary(found: Differences) -> Iterator[Phrase]:
    if found.empty:
        yield Phrase("nothing changed", "good")
        return
    gained, lost = len(found.gained), len(found.lost)
    yield Phrase(f"{counted(gained, 'finding')} gained", "bad" if gained else "plain")
    yield Phrase(", ")
    yield Phrase(f"{lost:,} lost", "good" if lost else "plain")
    ties = len(found.ties) + len(found.tied) + len(found.parted)
    for count, one in ((ties, "tie"), (len(found.gradients), "gradient")):
        yield Phrase(f"; {counted(count, one)} changed" if count else "")
    if found.copies:
        number = counted(len(found.copies), "copy or conversion", "copies and conversions")
        yield Phrase(f"; {number} changed")


# -------------------------------------------------------------------------------------- findings


def _findings(title: str, changed: Sequence[Changed], about: Findings) -> list[Block]:
    if not changed:
        return []
    blocks: list[Block] = [Heading(title)]
    for number, (finding, names) in enumerate(changed[:MANY_FINDINGS], 1):
        blocks.append(finding_block(number, finding, about))
        if len(names) <= len(finding.also):
            text = f"It was there before, but not for {', '.join(names)}."
            blocks.append(Paragraph((Phrase(text, "dim"),)))
    left = len(changed) - MANY_FINDINGS
    if left > 0:
        text = f"... and {counted(left, 'more finding')}; --json has all"
        blocks.append(Paragraph((Phrase(text, "dim"),)))
    return blocks


def _lost(found: Differences) -> list[Block]:
    folder = found.before.trace.folder
    rows = [
        (
            Phrase(one.severity, one.severity),
            Phrase(one.slug),
            Phrase(", ".join(names), "code"),
            Phrase(place(one.site, folder), "place"),
        )
        for one, names in found.lost
    ]
    columns = (
        Column("severity"),
        Column("verdict"),
        Column("of", give=True),
        Column("was at", give=True),
    )
    return _table("findings lost", columns, rows)


# ------------------------------------------------------------------------------------------ ties


def _ties(found: Differences) -> list[Block]:
    rows = []
    for pair in found.ties:
        site, what = _where(pair, found)
        rows.append((site, (*what, _tie_phrase(pair.before), _tie_phrase(pair.after))))
    columns = (*_WHAT, Column("was"), Column("is"))
    blocks = _lines("ties", columns, rows, found)
    pairs: list[tuple[str, list[tuple[str, str]], Kind]] = [
        ("share memory now", found.tied, "plain"),
        ("share memory no more", found.parted, "warning"),
    ]
    for words, names, kind in pairs:
        for one, other in names[:MANY_ROWS]:
            if not blocks:
                blocks.append(Heading("ties"))
            phrases = (Phrase(f"{one} and {other} ", "code"), Phrase(words, kind))
            blocks.append(Paragraph(phrases))
        if names[MANY_ROWS:]:
            left = f"... and {len(names) - MANY_ROWS:,} more pairs; --json has all"
            blocks.append(Paragraph((Phrase(left, "dim"),)))
    return blocks


def _tie_phrase(effect: PlaceEffect | None) -> Phrase:
    words = [word for word in effect.ties if word] if effect else []
    return Phrase(", ".join(words), "strong" if "shares" in words or "cuts" in words else "plain")


# ------------------------------------------------------------------------- gradients and copies


def _gradients(found: Differences) -> list[Block]:
    kinds: dict[str, Kind] = {"reached": "good", "zero": "warning", "none": "bad"}
    rows = [
        (
            Phrase(name, "code"),
            *(
                Phrase(status or "(not there)", kinds.get(status or "", "dim"))
                for status in (was, now)
            ),
        )
        for name, was, now in found.gradients
    ]
    columns = (Column("parameter", give=True), Column("was"), Column("is"))
    return _table("gradients", columns, rows)


_WHAT = (Column("expression", give=True), Column("operation"))


def _where(pair: Pair, found: Differences) -> tuple[Site, tuple[Phrase, Phrase]]:
    """Return the line, its file as shown (each recording has its own folder), and what it says."""
    about = found.after if pair.after else found.before
    site = pair.one.site
    expression = Phrase(site.expression or site.target, "code")
    operation = Phrase(shown(pair.one.operation))
    path = shown_path(site.file, about.trace.folder)
    return site._replace(file=path), (expression, operation)


def _copies(found: Differences) -> list[Block]:
    rows = []
    for pair in found.copies:
        was, now = pair.before or pair.one, pair.after or pair.one
        mark: tuple[str, Kind] = ("new", "warning") if pair.after else ("gone", "good")
        site, what = _where(pair, found)
        said = (
            *what,
            Phrase("") if pair.before and pair.after else Phrase(*mark),
            Phrase(_change(was.count, now.count, "{:,}".format)),
            Phrase(_change(was.bytes, now.bytes, bytes_text)),
        )
        rows.append((site, said))
    columns = (*_WHAT, Column(""), Column("times", "right"), Column("copied", "right"))
    return _lines("copies and conversions", columns, rows, found)


def _change(was: int, now: int, text: Callable[[int], str]) -> str:
    return text(now) if was == now else f"{text(was)} -> {text(now)}"


def _totals(before: Totals, after: Totals) -> list[Block]:
    rows = []
    for name, text in (
        ("calls", "{:,}".format),
        ("copies", "{:,}".format),
        ("copied", bytes_text),
        ("peak", bytes_text),
    ):
        was, now = getattr(before, name), getattr(after, name)
        percent = f"{100 * (now - was) / was:+.0f} %" if was else ""
        rows.append(
            (
                Phrase(_TOTALS[name]),
                Phrase(text(was)),
                Phrase(text(now)),
                Phrase(percent if was != now else "", "dim"),
            )
        )
    columns = (
        Column("in all"),
        Column("was", "right"),
        Column("is", "right"),
        Column("", "right"),
    )
    return [Table(columns, tuple(rows))]


_TOTALS = {
    "calls": "calls recorded",
    "copies": "copies and conversions",
    "copied": "bytes copied",
    "peak": "most tensor memory held",
}


def _lines(
    title: str,
    columns: tuple[Column, ...],
    rows: Sequence[tuple[Site, tuple[Phrase, ...]]],
    found: Differences,
) -> list[Block]:
    return [Heading(title), by_line(columns, rows, found.after)] if rows else []


def _table(
    title: str, columns: tuple[Column, ...], rows: Sequence[tuple[Phrase, ...]]
) -> list[Block]:
    if not rows:
        return []
    left = max(0, len(rows) - MANY_ROWS)
    return [
        Heading(title),
        Table(columns, tuple(rows[:MANY_ROWS]), left, "more; --json has all" if left else ""),
    ]


# ------------------------------------------------------------------------------------------ JSON


def to_json(found: Differences) -> dict[str, Any]:
    """Return all differences as values that `json.dumps` takes."""
    before, after = found.before.trace.folder, found.after.trace.folder

    def findings(changed: Sequence[Changed], folder: str) -> list[dict[str, Any]]:
        return [{**finding_values(one, folder), "names": list(names)} for one, names in changed]

    def pairs(of: Sequence[Pair]) -> list[dict[str, Any]]:
        return [
            {
                "operation": pair.one.operation,
                "before": pair.before and _effect(pair.before, before),
                "after": pair.after and _effect(pair.after, after),
            }
            for pair in of
        ]

    return {
        "schema": SCHEMA,
        "tether": tether.__version__,
        "before": {"program": list(found.before.trace.program), **found.totals[0]._asdict()},
        "after": {"program": list(found.after.trace.program), **found.totals[1]._asdict()},
        "findings": {
            "gained": findings(found.gained, after),
            "lost": findings(found.lost, before),
        },
        "ties": {
            "changed": pairs(found.ties),
            "gained": [list(pair) for pair in found.tied],
            "lost": [list(pair) for pair in found.parted],
        },
        "gradients": [
            {"name": name, "before": was, "after": now} for name, was, now in found.gradients
        ],
        "copies": pairs(found.copies),
    }


def _effect(effect: PlaceEffect, folder: str) -> dict[str, Any]:
    memory, gradient = effect.ties
    return {
        "site": site_values(effect.site, folder),
        "memory": memory,
        "gradient": gradient,
        "count": effect.count,
        "bytes": effect.bytes,
    }


def dumps(found: Differences) -> str:
    """Return the differences as the text of a JSON file."""
    return json.dumps(to_json(found), indent=1)
