"""Where values left the graph and came into a loss, as reports list it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tether.analysis.gradients.cuts import ActedCut, Cuts
from tether.analysis.history import History, common_module
from tether.analysis.wording import listed
from tether.facts import Site
from tether.finding import Finding
from tether.report.document.blocks import Block, Column, Heading, Paragraph, Phrase, Table
from tether.report.filters import Selection, shown_line, shown_path

MANY_CUTS = 10
"""Rows that a report shows."""


class CutRow(NamedTuple):
    """A line that cuts, and the finding that speaks of it."""

    cut: ActedCut
    finding: int | None


def rows(history: History, selection: Selection, findings: Sequence[Finding]) -> list[CutRow]:
    """Return the cuts at a wanted line."""
    found = history.get(Cuts).found
    return [CutRow(one, _finding(one, findings)) for one in found if selection.wants(one.site)]


def _finding(cut: ActedCut, findings: Sequence[Finding]) -> int | None:
    for number, one in enumerate(findings):
        if cut.site in (one.site, *(each.site for each in one.evidence)):
            return number
    return None


def block(found: Sequence[CutRow], folder: str, most: int | None = MANY_CUTS) -> list[Block]:
    """Return the part of a report that lists the cuts that no finding speaks of."""
    own = [row.cut for row in found if row.finding is None]
    own = own if most is None else _by_block(own)
    if not own:
        return []
    called = any(one.callers for one in own)
    columns = (
        Column("line", "right"),
        *([Column("called from", wrap=True)] if called else []),
        Column("because", wrap=True),
        Column("computed from", wrap=True),
        Column("first used at", wrap=True),
    )
    shown, left = _by_file(own[:most]), len(own[most:] if most is not None else ())
    starts = [n for n, one in enumerate(shown) if not n or one.site.file != shown[n - 1].site.file]
    return [
        Heading("values that left the gradient graph and went into a loss"),
        Paragraph(
            (Phrase("No gradient flows back through these values; that may be intended.", "dim"),)
        ),
        Table(
            columns,
            tuple(_cells(one, folder, called=called) for one in shown),
            left,
            "more; --show-all lists them" if left else "",
            groups=tuple((n, shown_path(shown[n].site.file, folder)) for n in starts),
        ),
    ]


def _by_block(cuts: Sequence[ActedCut]) -> list[ActedCut]:
    """Return the cuts of one block, which a loss takes in at one line, as one with all names."""
    groups: dict[object, list[ActedCut]] = {}
    for one in cuts:
        groups.setdefault((one.site, one.callers, one.entered), []).append(one)
    return [_joined(some) for some in groups.values()]


def _joined(cuts: Sequence[ActedCut]) -> ActedCut:
    first, more = cuts[0], len(cuts) - 1
    if not more:
        return first
    names = dict.fromkeys(name for one in cuts for name in one.names)
    what = f"{first.what} (and {more} more call{'s' if more > 1 else ''})"
    return first._replace(what=what, names=tuple(names))


def _by_file(cuts: Sequence[ActedCut]) -> list[ActedCut]:
    """Return cuts with those of one file together, else in their order."""
    files = list(dict.fromkeys(one.site.file for one in cuts))
    return sorted(cuts, key=lambda one: files.index(one.site.file))


def _cells(cut: ActedCut, folder: str, *, called: bool) -> tuple[Phrase, ...]:
    callers = [_line(one, cut.site, folder) for one in cut.callers]
    return (
        Phrase(f"  {cut.site.line}", "place", to=cut.site),
        *([Phrase(", ".join(dict.fromkeys(callers)), "place")] if called else []),
        Phrase(cut.what),
        Phrase(_parameters(cut.names), "code"),
        Phrase(_line(cut.entered, cut.site, folder), "place"),
    )


def _line(site: Site, home: Site, folder: str) -> str:
    """Name a line, by its number alone where it is in the same file."""
    return f":{site.line}" if site.file == home.file else shown_line(site.file, site.line, folder)


def _parameters(names: Sequence[str]) -> str:
    """Name parameters by the module that all of them are in: ``net.encoder (12)``."""
    module = common_module(names) if len(names) > 1 else ""
    return f"{module} ({len(names)})" if module else listed(list(names), 1)


def values(row: CutRow, site_values: Callable[[Site], Any]) -> dict[str, Any]:
    """Return a cut as the report's JSON has it."""
    cut = row.cut
    return {
        "site": site_values(cut.site),
        "message": cut.what,
        "names": list(cut.names),
        "callers": [site_values(one) for one in cut.callers],
        "entered": site_values(cut.entered),
        "loss": site_values(cut.loss),
        "meant": cut.meant,
        "finding": row.finding,
    }
