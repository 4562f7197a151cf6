"""The tables of copies: what copied, and whether it was needed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tether.analysis.speaking import bytes_text
from tether.facts import Site
from tether.operations.table import shown
from tether.report.document.blocks import Block, Column, Heading, Paragraph, Phrase
from tether.report.document.findings import Findings, by_line, counted
from tether.report.filters import Selection
from tether.report.tables.copies import Copy, nbytes

_COPY_COLUMNS = (
    Column("expression", give=True),
    Column("operation"),
    Column("memory"),
    Column("gradient"),
    Column("times", "right"),
    Column("copied", "right"),
)


def copy_blocks(about: Findings) -> list[Block]:
    """Return what a report says of copies: those of the user's lines, and those of libraries."""
    own = [row for row in about.copies if not row.library]
    inside = [row for row in about.copies if row.library]
    if not own and not inside:
        return []
    blocks: list[Block] = [
        Heading("copies and conversions"),
        Paragraph((Phrase(_in_all(about)),)),
    ]
    if own:
        cells = [(row.site, _copy_cells(row)) for row in own]
        blocks += [by_line(_COPY_COLUMNS, cells, about), *_needs(own, about)]
    if inside:
        blocks += _inside_libraries(inside, about)
    return blocks


def _in_all(about: Findings) -> str:
    """Say how many copies the tables have, and how much was copied."""
    total = sum(row.bytes for row in about.copies)
    count = sum(row.count for row in about.copies)
    made = counted(count, "copy or conversion", "copies and conversions")
    pretended = any(gap.code == "pretended" for gap in about.trace.gaps)
    text = f"{made}, {bytes_text(total)} copied{', as pretended' if pretended else ''}"
    by_numpy = _copied_by_numpy(about)
    return text + (f"; beside these NumPy copied {bytes_text(by_numpy)}" if by_numpy else "")


def _copied_by_numpy(about: Findings) -> int:
    """Return the bytes that NumPy was seen to copy by the lines of which a report speaks.

    Some lines are heard as they copy, of others the copies are known that became tensors, and of
    some both.
    """
    trace, selection = about.trace, about.selection or Selection(about.trace.folder)
    given: Counter[tuple[str, int, int, int, int]] = Counter()
    for one in trace.arrays_copied:
        at = trace.position(one.event)
        if 0 <= at < len(trace.events) and selection.wants(trace.sites[one.site]):
            made = trace.events[at].results
            given[trace.sites[one.site].position] += sum(map(nbytes, made))
    for line in trace.array_lines:
        if selection.wants(trace.sites[line.site]):
            place = trace.sites[line.site].position
            given[place] = max(given[place], line.bytes)
    return given.total()


def _needs(rows: Sequence[Copy], about: Findings) -> list[Block]:
    """Say of each line that copies whether the copy was needed, and why.

    Once, where several calls of a line, or one with and without a gradient, have the same answer.
    """
    told = {one.site for one in about.findings if one.slug == "needless-copy"}
    columns = (Column("needed"), Column("because", give=True, wrap=True))
    cells = [
        (
            row.site,
            (
                Phrase(row.needed, "warning" if row.needed == "no" else "plain"),
                Phrase(row.reason or "nothing was written while both lived"),
            ),
        )
        for row in rows
        if (row.reason or row.needed == "no") and (about.show_all or row.site not in told)
    ]
    once = {(site.file, site.line, *said): (site, said) for site, said in reversed(cells)}
    return [by_line(columns, [*reversed(once.values())], about)] if cells else []


def _copy_cells(row: Copy) -> tuple[Phrase, ...]:
    return (
        Phrase(row.site.expression or row.site.target, "code"),
        Phrase(shown(row.operation)),
        Phrase(row.memory, "strong" if row.memory == "shares" else "plain"),
        Phrase(
            "-" if row.gradient == "none" else row.gradient,
            "warning" if row.gradient == "cuts" else "plain",
        ),
        Phrase(f"{row.count:,}{f' in {row.ranks}' if row.ranks else ''}"),
        Phrase(bytes_text(row.bytes) if row.memory != "shares" else "-"),
    )


def _inside_libraries(rows: Sequence[Copy], about: Findings) -> list[Block]:
    """One row for each line of the user's that led into a library which copied."""
    by_site: dict[Site, list[Copy]] = {}
    for row in rows:
        by_site.setdefault(row.site, []).append(row)
    if not about.show_all:
        by_site = {site: made for site, made in by_site.items() if any(one.bytes for one in made)}
    cells = []
    for site, made in by_site.items():
        names = Counter[str]()
        for row in made:
            names[shown(row.operation)] += row.count
        said = (
            Phrase(site.expression, "code"),
            Phrase(", ".join(f"{count:,} {name}" for name, count in names.most_common(4))),
            Phrase(bytes_text(sum(row.bytes for row in made))),
        )
        cells.append((site, said))
    columns = (
        Column("expression", give=True),
        Column("copies made inside libraries", give=True, wrap=True),
        Column("copied", "right"),
    )
    return [by_line(columns, cells, about)] if cells else []
