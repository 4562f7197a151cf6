"""The tables of gradients: by parameter, or by module where there are many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tether.report.document.blocks import Block, Column, Heading, Kind, Paragraph, Phrase, Table
from tether.report.document.findings import Findings, counted, cut_table
from tether.report.document.grouping import folded
from tether.report.filters import shown_line
from tether.report.tables.gradients import Gradient

MANY_PARAMETERS = 24  # above this the gradient table has a row for each module


def gradient_blocks(about: Findings) -> list[Block]:
    """Return what a report says of gradients: how many got one, and which did not."""
    rows = about.gradients
    if not rows:
        return []
    counts = Counter(row.status for row in rows)
    text = f"{counts['reached']} of {counted(len(rows), 'parameter')} got a gradient"
    partly = sum(bool(row.unlooked) for row in rows)
    if counts["zero"] > partly:
        text += f", {counts['zero'] - partly} only zeros"
    if partly:
        text += f", {partly} zeros whenever it was looked at"
    if counts["none"]:
        text += f", {counts['none']} none"
    blocks: list[Block] = [Heading("gradients"), Paragraph((Phrase(text),))]
    table = _gradient_table(rows, about)
    return [*blocks, table] if table.rows else blocks


def _gradient_table(rows: Sequence[Gradient], about: Findings) -> Table:
    """Return the parameters that fared otherwise than they should, or all; many by module."""
    optimized = bool(about.trace.optimizers)
    told = [row for row in rows if about.show_all or _noteworthy(row, optimized)]
    if len(rows) <= MANY_PARAMETERS:
        return _by_parameter(told, about)
    inside = {row.module or row.name for row in told}
    return _by_module([row for row in rows if (row.module or row.name) in inside], about)


def _noteworthy(row: Gradient, optimized: bool) -> bool:
    """Whether a parameter fared otherwise than a parameter should."""
    unchanged = optimized and row.changed is False
    return row.status != "reached" or unchanged or bool(row.ranks) or row.finding is not None


def _gradient_of(row: Gradient, optimized: bool) -> Phrase:
    text, kind = _STATUS[row.status]
    if row.ranks:
        return Phrase(row.ranks, kind)
    if optimized and row.status == "reached" and row.changed is False:
        return Phrase("reached, unchanged", "warning")
    if row.unlooked:
        text += f" ({row.looked:,} of {row.looked + row.unlooked:,} looked at)"
        text += ", changed" if row.changed else ""
    return Phrase(text, kind)


def _by_parameter(rows: Sequence[Gradient], about: Findings) -> Table:
    """Give a row to each parameter, or to those that fared alike and differ in one number."""
    optimized, each = bool(about.trace.optimizers), about.show_all
    left = _left_at(about)
    columns = (Column("parameter", whole=True), Column("gradient"), Column("why"))
    alike: dict[tuple[Phrase, Phrase], list[str]] = {}
    cells = []
    for row in rows:
        why = left.get(row.name) if row.finding is None and row.status == "none" else None
        fared = _gradient_of(row, optimized), why or _why({row.finding} - {None})
        alike.setdefault(fared, []).append(row.name)
        cells.append((Phrase(row.name, "code"), *fared))
    if not each:
        cells = [
            (Phrase(name, "code"), *fared) for fared, some in alike.items() for name in folded(some)
        ]
    return Table(columns, tuple(cells))


def _left_at(about: Findings) -> dict[str, Phrase]:
    """Return where the values of each parameter left the graph, on their way to a loss."""
    found = [(row.cut.site, row.cut.names) for row in reversed(about.cuts)]
    folder = about.trace.folder
    return {
        name: Phrase(f"cut at {shown_line(site.file, site.line, folder)}", "place", to=site)
        for site, names in found
        for name in names
    }


def _by_module(rows: Sequence[Gradient], about: Findings) -> Table:
    """Fold the parameters of a module into a row, and modules that differ in one number."""
    modules: dict[str, list[Gradient]] = {}
    for row in rows:
        modules.setdefault(row.module or row.name, []).append(row)
    # Modules without a missing gradient come last.
    order = sorted(modules, key=lambda name: all(row.status == "reached" for row in modules[name]))
    alike: dict[tuple[str, Phrase, Phrase], list[str]] = {}
    for name in order:
        alike.setdefault(_module_cells(modules[name]), []).append(name)
    cells = [
        (Phrase(name, "code"), Phrase(number if name in names else f"{number} each"), status, why)
        for (number, status, why), names in alike.items()
        for name in folded(names)
    ]
    columns = (
        Column("module", whole=True),
        Column("parameters", "right"),
        Column("gradient"),
        Column("why"),
    )
    return cut_table(columns, cells, "modules", about)


def _module_cells(inside: Sequence[Gradient]) -> tuple[str, Phrase, Phrase]:
    """Return how many parameters of a module fared worst, how that was, and why."""
    statuses = Counter[str](row.status for row in inside)
    worst = next(status for status in ("none", "zero", "reached") if statuses[status])
    most = str(len(inside))
    number = most if statuses[worst] == len(inside) else f"{statuses[worst]} of {most}"
    text, kind = _STATUS[worst]
    if worst == "zero" and any(row.unlooked for row in inside):
        text += " where looked at"
    return number, Phrase(text, kind), _why({row.finding for row in inside} - {None})


def _why(numbers: set[int | None]) -> Phrase:
    found = sorted(n + 1 for n in numbers if n is not None)
    return Phrase(", ".join(f"#{n}" for n in found), to=found[0] if found else None)


_STATUS: dict[str, tuple[str, Kind]] = {
    "reached": ("reached", "good"),
    "zero": ("zero", "warning"),
    "none": ("none", "bad"),
}
