"""Ties that acted, as reports list them: who changed what another name shows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import Any, NamedTuple

from tether.analysis.history import History, shortened
from tether.analysis.ties import MOST_SITES, ActedTie, Ties
from tether.facts import Site
from tether.finding import Finding
from tether.operations.table import shown
from tether.report.document.blocks import (
    Block,
    Chain,
    Column,
    Excerpt,
    Heading,
    Paragraph,
    Phrase,
    Table,
)
from tether.report.filters import Selection, shown_line
from tether.source.names import joint_name

MANY_TIES = 10
"""Rows that a report shows."""


class TieRow(NamedTuple):
    """A tie that acted, and the finding that speaks of it."""

    tie: ActedTie
    finding: int | None


def rows(history: History, selection: Selection, findings: Sequence[Finding]) -> list[TieRow]:
    """Return the ties that name a wanted line, what a person looks for first."""
    found = history.get(Ties).found
    wanted = [one for one in found if any(selection.wants(site) for site in one.sites)]
    return [TieRow(one, _finding(one, findings)) for one in wanted]


def _finding(tie: ActedTie, findings: Sequence[Finding]) -> int | None:
    lines = {(site.file, site.line) for site in tie.sites}
    for number, one in enumerate(findings):
        named = {(site.file, site.line) for site in (one.site, *(e.site for e in one.evidence))}
        speaks = set(one.tensors) & set(tie.tensors) or {one.subject, *one.also} & set(tie.shows)
        if speaks and len(named & lines) >= min(2, len(named), len(lines)):
            return number
    return None


# -- words ----------------------------------------------------------------------------------


def message(tie: ActedTie) -> str:
    """Say what happened in one sentence, with the lines."""
    home = tie.sites[0].file if tie.sites else ""
    name, through = _quoted(joint_name(tie.shows)), _quoted(tie.through)
    done = f"`{shown(tie.operation)}`"
    if tie.writes:
        text = f"{name} changed at {_line(tie.writes[0], home)} by {done}"
        text += f" through {through}" if tie.through not in tie.shows else ""
    else:
        text = f"{name} changed by a write to an array that no call of PyTorch made"
    text = f"{text}{_LAWS.get(tie.kind, '')}"
    if tie.perhaps:
        text += f", perhaps at {' or '.join(_line(one, home) for one in tie.perhaps[:MOST_SITES])}"
    if tie.kind == "again":
        first, again = _line(tie.since[0], home), _line(tie.reads[0], home)
        return f"{text}; read at {first}, and again at {again}."
    if tie.since and tie.kind == "kept":
        text += f", after {_line(tie.since[0], home)} had kept it"
    elif tie.since and tie.kind not in _LAWS:
        text += f"; they share memory since {_line(tie.since[0], home)}"
    if tie.reads:
        text += f"; read at {_line(tie.reads[0], home)}"
    return text + "."


_LAWS = {
    "lost": ", into a tensor that is gone after that line and that nothing read",
    "operand": ", before the call on that line read it",
    "result": ", which the call has still to read",
    "overlap": ", from elements of the same memory",
    "elements": ", whose elements overlap one another",
    "gradient": ", which is the gradient of several parameters",
    "handed": ", a gradient that backward was handed",
}


def _quoted(name: str) -> str:
    return f"`{shortened(name.strip('`'))}`"


def _line(site: Site, home: str) -> str:
    return f"line {site.line}" if site.file == home else f"{PurePath(site.file).name}:{site.line}"


# -- the report -----------------------------------------------------------------------------


def block(found: Sequence[TieRow], folder: str, most: int | None = MANY_TIES) -> list[Block]:
    """Return the part of a report that lists the ties that no finding speaks of.

    At most so many, those that look least meant, and of which a line is known that wrote; None:
    all.
    """
    untold = [one.tie for one in found if one.finding is None]
    own = [one for one in untold if most is None or _tells_something(one)]
    if not own:
        return []
    columns = (
        Column("shows the change", give=True), Column("written at", whole=True),
        Column("by"), Column("through", give=True), Column("since"), Column("read"),
    )  # fmt: skip
    cells = tuple(_cells(tie, folder) for tie in own[:most])
    left = len(untold) - len(cells)
    text = "A write through one name changed what another name shows; that may be intended."
    return [
        Heading("shared memory that was written"),
        Paragraph((Phrase(text, "dim"),)),
        Table(columns, cells, left, "more; --show-all lists them" if left else ""),
    ]


def _tells_something(tie: ActedTie) -> bool:
    """Whether a tie is no plain one, and the line that wrote is known, or may be."""
    return not tie.standing.plain and bool(tie.writes or tie.perhaps)


def _cells(tie: ActedTie, folder: str) -> tuple[Phrase, ...]:
    written = tie.writes or tie.perhaps
    home = written[0].file if written else ""
    before = (written or tie.since)[0].file if written or tie.since else ""
    return (
        Phrase(shortened(joint_name(tie.shows).strip("`")), "code"),
        Phrase(_written(tie, folder), "place"),
        Phrase(_SHORT.get(tie.operation, shown(tie.operation)) if tie.writes else "not PyTorch"),
        Phrase(shortened(tie.through.strip("`")), "code"),
        Phrase(_place(tie.since, home, folder), "place"),
        Phrase(_place(tie.reads, before, folder), "place"),
    )


def _written(tie: ActedTie, folder: str) -> str:
    """Return where it was written; with a question mark, where only the text says so."""
    perhaps = _place(tie.perhaps, "", folder)
    return _place(tie.writes, "", folder) or (f"{perhaps}?" if perhaps else "unseen")


_SHORT = {"__setitem__": "[...] ="}


def _place(sites: Sequence[Site], home: str, folder: str) -> str:
    """Return the first of some lines; without its file where that is the one before."""
    if not sites:
        return ""
    if sites[0].file == home:
        return f":{sites[0].line}"
    return shown_line(sites[0].file, sites[0].line, folder)


def of_name(name: str, tensors: set[int], found: Sequence[TieRow], excerpt: Any) -> Iterator[Block]:
    """Tell of the ties of one name, for ``tether why``."""
    mine = [one.tie for one in found if tensors & set(one.tie.tensors) or name in one.tie.shows]
    if not mine:
        return
    yield Heading("written through another name")
    for tie in mine[:MANY_TIES]:
        links: list[Excerpt] = []
        since = "kept" if tie.kind == "kept" else "shared"
        for sites, role in ((tie.since, since), (tie.writes, "written"), (tie.reads, "read")):
            links += [excerpt(site, f"{role} here") for site in sites[:1]]
        yield Paragraph((Phrase(message(tie)),))
        if links:
            yield Chain(tuple(links))


# -- JSON -----------------------------------------------------------------------------------


def values(row: TieRow, site_values: Any) -> dict[str, Any]:
    """Return a tie as the report's JSON has it."""
    tie = row.tie

    def first(sites: Sequence[Site]) -> dict[str, Any] | None:
        return site_values(sites[0]) if sites else None

    return {
        "shows": joint_name(tie.shows).strip("`"),
        "names": [one.strip("`") for one in tie.shows[:20]],
        "since": first(tie.since),
        "through": tie.through.strip("`"),
        "written": first(tie.writes),
        "operation": tie.operation,
        "read": first(tie.reads),
        "sites": [site_values(site) for site in dict.fromkeys(tie.sites)],
        "kind": tie.kind,
        "message": message(tie),
        "count": tie.times,
        "finding": row.finding,
    }
