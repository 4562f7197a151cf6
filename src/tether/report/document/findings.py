"""What a report is made of, and how its tables say what is left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

from tether.analysis.degrading import attempt
from tether.analysis.history import History
from tether.analysis.memory import Growing, Growth
from tether.facts import Site, Trace
from tether.finding import Finding
from tether.report.document.blocks import Column, Phrase, Table
from tether.report.filters import Selection, shown_path
from tether.report.tables import cuts
from tether.report.tables.copies import Copy
from tether.report.tables.gradients import Gradient
from tether.report.tables.ties import TieRow, rows

MANY_ROWS = 40


ALL = "--show-all lists them"


@dataclass
class Findings:
    """What a report is made of, already judged, filtered and in order."""

    trace: Trace
    findings: Sequence[Finding]
    gradients: Sequence[Gradient] = ()
    copies: Sequence[Copy] = ()
    selection: Selection | None = None  # whose lines are shown; None: the user's
    defects: Sequence[Finding] = ()  # findings that running the program again refuted
    tied: Sequence[TieRow] | None = None  # the ties, where several processes were put together
    cut: Sequence[cuts.CutRow] | None = None  # the cuts, likewise
    processes: tuple[str, ...] = ()  # what these are called: "rank 0"
    show_all: bool = False  # the text names everything, however much it is
    index: History | None = None  # a trace indexed before; of use if it is this one

    def most(self, many: int) -> int | None:
        """Return how many of something the text shows; None: all."""
        return None if self.show_all else many

    @cached_property
    def history(self) -> History:
        """The trace, indexed: once for all parts of a report."""
        fits = self.index is not None and self.index.trace is self.trace
        return self.index if fits and self.index is not None else History(self.trace)

    @cached_property
    def ties(self) -> list[TieRow]:
        """The ties that acted, what a person looks for first."""
        if self.tied is not None:
            return list(self.tied)
        selection = self.selection or Selection(self.trace.folder)
        found = partial(rows, self.history, selection, self.findings)
        return attempt(self.trace, "the list of ties", found, [])

    @cached_property
    def grown(self) -> Growth | None:
        """By how much the memory held grows from step to step."""
        if self.processes:
            return None
        ask = partial(self.history.get, Growing)
        nothing = Growing(self.history, (None,))
        return attempt(self.trace, "the growth of memory", ask, nothing).found

    @cached_property
    def cuts(self) -> list[cuts.CutRow]:
        """Where values left the graph and went into a loss."""
        if self.cut is not None:
            return list(self.cut)
        selection = self.selection or Selection(self.trace.folder)
        found = partial(cuts.rows, self.history, selection, self.findings)
        return attempt(self.trace, "the list of cuts", found, [])


def distinct(findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings with those of several ranks that say the same made one, counts added."""
    first: dict[tuple[str, str, Site], Finding] = {}
    for one in findings:
        key = (one.slug, one.subject, one.site)
        held = first.get(key)
        if held is None:
            first[key] = one
            continue
        first[key] = replace(
            held,
            count=held.count + one.count,
            bytes=held.bytes if one.bytes is None else one.bytes + (held.bytes or 0),
            tensors=(*held.tensors, *one.tensors),
        )
    return list(first.values())


def by_line(
    columns: tuple[Column, ...], rows: Sequence[tuple[Site, tuple[Phrase, ...]]], about: Findings
) -> Table:
    """Return a table of what is known of lines: grouped by file, each row with its line before."""
    rows = sorted(rows, key=lambda row: (row[0].file, row[0].line, row[0].column))
    groups = []
    for number, (site, _) in enumerate(rows[: about.most(MANY_ROWS)]):
        if number == 0 or site.file != rows[number - 1][0].file:
            groups.append((number, shown_path(site.file, about.trace.folder)))
    cells = [(Phrase(f"  {site.line}", "place", to=site), *said) for site, said in rows]
    table = cut_table((Column("line", "right"), *columns), cells, "lines", about)
    return replace(table, groups=tuple(groups))


def cut_table(
    columns: tuple[Column, ...], cells: Sequence[tuple[Phrase, ...]], what: str, about: Findings
) -> Table:
    """Return a table of as many rows as a report shows, which says how many more there are."""
    shown = tuple(cells[: about.most(MANY_ROWS)])
    left = len(cells) - len(shown)
    return Table(columns, shown, left, f"more {what}; {ALL}" if left else "")


def counted(number: int, one: str, many: str = "") -> str:
    """Return ``1 finding``, ``2,000 findings``."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"
