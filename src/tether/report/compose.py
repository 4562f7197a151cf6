"""From what is known of a recording to the report's document."""

from __future__ import annotations

import difflib
import io
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache

from tether.analysis.history import History
from tether.analysis.speaking import bytes_text
from tether.facts import Site, Trace
from tether.finding import SEVERITIES, Edit, Evidence, Finding
from tether.operations.table import shown
from tether.report.copies import Copy
from tether.report.document import (
    Block,
    Column,
    Document,
    Excerpt,
    FindingBlock,
    Heading,
    Kind,
    Paragraph,
    Phrase,
    Table,
)
from tether.report.filters import Selection, shown_line, shown_path
from tether.report.gaps import gap_rows
from tether.report.gradients import Gradient
from tether.report.ties import TieRow, block, rows
from tether.source.edits import apply
from tether.source.syntax import source_of

MANY_PARAMETERS = 24  # above this the gradient table has a row for each module
MANY_ROWS = 40
MANY_FINDINGS = 20
MANY_NAMES = 4  # of one finding's other names
MANY_GAPS = 12

_ROLES = {
    "cut": "cut here",
    "made": "made here",
    "shared": "shared here",
    "written": "written here",
    "read": "read here",
    "used": "used here",
    "saved": "saved for backward here",
    "mode": "gradients switched off here",
    "re-entry": "made a tensor again here",
    "proof": "tried",
}


@dataclass
class Findings:
    """What a report is made of, already judged, filtered and in order."""

    trace: Trace
    findings: Sequence[Finding]
    gradients: Sequence[Gradient] = ()
    copies: Sequence[Copy] = ()
    sources: Mapping[str, str] = field(default_factory=dict)  # texts that the trace does not hold
    selection: Selection | None = None  # whose lines are shown; None: the user's
    defects: Sequence[Finding] = ()  # findings that running the program again refuted

    @cached_property
    def history(self) -> History:
        """The trace, indexed: once for all parts of a report."""
        return History(self.trace)

    @cached_property
    def ties(self) -> list[TieRow]:
        """The ties that acted, what a person looks for first."""
        selection = self.selection or Selection(self.trace.folder)
        return rows(self.history, selection, self.findings)


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


def in_order(findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings gravest first, and within one severity by place."""
    return sorted(
        findings,
        key=lambda one: (SEVERITIES.index(one.severity), one.site.file, one.site.line, one.slug),
    )


def build(about: Findings) -> Document:
    """Return the whole report."""
    name = " ".join(about.trace.program) or "recording"
    document = Document(f"tether: {name}", [Heading(f"tether: {name}", 1)])
    for part in (_summary, _verdicts, _ties, _gradients, _copies, _gaps):
        document.blocks += part(about)
    return document


# --------------------------------------------------------------------------------------- summary


_ENDED = {
    "finished": "",
    "raised": "; the program raised",
    "interrupted": "; interrupted",
    "unfinished": "; partial: the program was killed, or is still running",
}


def _summary(about: Findings) -> list[Block]:
    trace = about.trace
    counts = Counter(one.severity for one in about.findings)
    phrases: list[Phrase] = []
    for severity in SEVERITIES:
        if counts[severity]:
            phrases += [Phrase(counted(counts[severity], severity), severity), Phrase(", ")]
    if phrases:
        phrases.pop()
    else:
        phrases = [Phrase("nothing to report", "good")]
    if not trace.ended:
        phrases = [Phrase("no PyTorch call was recorded", "warning")]
    else:
        phrases.append(Phrase(f" in {counted(trace.ended, 'call')} recorded", "dim"))
    phrases.append(Phrase(_ENDED[trace.outcome], "dim"))
    children = sum(gap.times for gap in trace.gaps if gap.code == "child")
    if children:
        text = f"; {counted(children, 'child process', 'child processes')} ran and "
        text += "was not recorded" if children == 1 else "were not recorded"
        phrases.append(Phrase(text, "warning"))
    blocks: list[Block] = [Paragraph(tuple(phrases))]
    if trace.dropped:
        text = f"Only the last {counted(len(trace.events), 'call')} were kept (--limit)."
        blocks.append(Paragraph((Phrase(text, "dim"),)))
    fatal = [one for one in trace.raised if one.fatal]
    for one in fatal[-1:]:
        text = " ".join(one.message.split())
        blocks.append(Paragraph((Phrase("raised  ", "bad"), Phrase(f"{one.type}: {text[:400]}"))))
    return blocks


# -------------------------------------------------------------------------------------- verdicts


def _verdicts(about: Findings) -> list[Block]:
    numbered = list(enumerate(about.findings, start=1))
    own = [(number, one) for number, one in numbered if not one.library]
    blocks: list[Block] = [finding_block(number, one, about) for number, one in own[:MANY_FINDINGS]]
    left = [one for _, one in own[MANY_FINDINGS:]]
    if left:
        kinds = Counter(one.slug for one in left)
        kinds_text = ", ".join(f"{count} {slug}" for slug, count in kinds.most_common())
        text = f"... and {counted(len(left), 'more finding')} ({kinds_text}); --json has all"
        blocks.append(Paragraph((Phrase(text, "dim"),)))
    libraries = [one for one in about.findings if one.library]
    if libraries:
        packages = ", ".join(dict.fromkeys(one.library for one in libraries))
        kinds = Counter(one.slug for one in libraries)
        kinds_text = ", ".join(f"{count} {slug}" for slug, count in kinds.most_common())
        text = f"{counted(len(libraries), 'note')} on the code of {packages} ({kinds_text});"
        blocks.append(Paragraph((Phrase(f"{text} --json has all", "dim"),)))
    return blocks


def finding_block(number: int, finding: Finding, about: Findings) -> FindingBlock:
    """Return a verdict: its own site and the first evidence elsewhere as the two ends."""
    own = [one for one in finding.evidence if one.site[:5] == finding.site[:5]]
    others = [one for one in finding.evidence if one.site[:5] != finding.site[:5]]
    at = own[0] if own else Evidence("", finding.site, "")
    tried = [one for one in own[1:] if one.role == "proof"]

    def placed(*ends: Evidence) -> tuple[Excerpt, ...]:
        return tuple(excerpt(one.site, _role(one.role, one.text), about) for one in ends)

    fix = finding.fix
    return FindingBlock(
        number=number,
        slug=finding.slug,
        severity=finding.severity,
        subject=finding.subject,
        also=finding.also,
        message=finding.message,
        ends=placed(at._replace(site=finding.site), *others[:1]),
        evidence=placed(*others[1:], *tried),
        fix=fix.text if fix else "",
        edits=tuple(_edited(fix.edits, about)) if fix else (),
        assumes=finding.assumes,
        facts=", ".join(_facts(finding)),
    )


def _facts(finding: Finding) -> Iterator[str]:
    if finding.count > 1:
        yield f"{finding.count} times"
    if finding.bytes:
        yield bytes_text(finding.bytes)
    if finding.proven:
        yield "proven"


def _ties(about: Findings) -> list[Block]:
    return block(about.ties, about.trace.folder)


def _edited(edits: Sequence[Edit], about: Findings) -> Iterator[str]:
    """Yield each line as it is after the edits: ``train.py:14: return self.layer3(out2)``."""
    for file in dict.fromkeys(edit.file for edit in edits):

        def shown(line: int, file: str = file) -> str:
            return shown_line(file, line, about.trace.folder)

        text = about.sources.get(file) or about.trace.sources.get(file, "")
        if not text:
            yield from (f"{shown(one.line)}: {one.text.strip()}" for one in edits)
            continue
        for number, line in _changed_lines(text, [one for one in edits if one.file == file]):
            yield f"{shown(number)}: {line}"


def _changed_lines(text: str, edits: Sequence[Edit]) -> Iterator[tuple[int, str]]:
    """Yield the number and the new text of each line that edits of one file change."""
    skip = min(one.line for one in edits) - 1  # lines before the first edit stay as they are
    window = "".join(_lines(text)[skip : max(one.end_line for one in edits)])
    moved = [one._replace(line=one.line - skip, end_line=one.end_line - skip) for one in edits]
    before, after = _lines(window), _lines(apply(window, moved))
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    for what, first, last, start, end in matcher.get_opcodes():
        if what == "delete":
            yield skip + first + 1, "(nothing: the line goes)"
        elif what != "equal":
            for number, line in enumerate(after[start:end]):
                yield skip + min(first + number, max(last - 1, first)) + 1, line.strip()


@lru_cache(maxsize=64)
def _lines(text: str) -> list[str]:
    """Return the lines of a text with their ends, split where edits count lines."""
    return list(io.StringIO(text, newline=""))


def _line(file: str, number: int, about: Findings) -> str:
    text = about.sources.get(file) or about.trace.sources.get(file, "")
    return source_of(file, text).line(number) if text else ""


def _role(role: str, text: str) -> str:
    return text or _ROLES.get(role, f"{role} here" if role else "")


def excerpt(site: Site, role: str, about: Findings) -> Excerpt:
    """Return a place with its source line and the columns of the expression on it."""
    line = _line(site.file, site.line, about)
    start = end = 0
    if line and site.column > 0:
        start = min(site.column - 1, len(line))
        last = site.end_column - 1 if site.end_line == site.line else len(line.rstrip())
        end = min(max(last, start), len(line))
    return Excerpt(place(site, about.trace.folder), role, site.line, line, start, end)


def place(site: Site, folder: str) -> str:
    """Return ``train.py:14 in TestModel.forward``."""
    inside = f" in {site.function}" if site.function not in ("", "<module>") else ""
    return f"{shown_line(site.file, site.line, folder)}{inside}"


# ------------------------------------------------------------------------------------- gradients


def _gradients(about: Findings) -> list[Block]:
    rows = about.gradients
    if not rows:
        return []
    counts = Counter(row.status for row in rows)
    text = f"{counts['reached']} of {counted(len(rows), 'parameter')} got a gradient"
    if counts["zero"]:
        text += f", {counts['zero']} only zeros"
    if counts["none"]:
        text += f", {counts['none']} none"
    blocks: list[Block] = [Heading("gradients"), Paragraph((Phrase(text),))]
    if counts["reached"] == len(rows) > MANY_PARAMETERS:
        return blocks
    table = (
        _by_module(rows)
        if len(rows) > MANY_PARAMETERS
        else _by_parameter(rows, bool(about.trace.optimizers))
    )
    return [*blocks, table]


_STATUS: dict[str, tuple[str, Kind]] = {
    "reached": ("reached", "good"),
    "zero": ("zero", "warning"),
    "none": ("none", "bad"),
}


def _gradient_of(row: Gradient, optimized: bool) -> Phrase:
    text, kind = _STATUS[row.status]
    if optimized and row.status == "reached" and row.changed is False:
        return Phrase("reached, unchanged", "warning")
    return Phrase(text, kind)


def _by_parameter(rows: Sequence[Gradient], optimized: bool) -> Table:
    columns = (Column("parameter", give=True), Column("gradient"), Column("why"))
    return Table(
        columns,
        tuple(
            (Phrase(row.name, "code"), _gradient_of(row, optimized), _why({row.finding} - {None}))
            for row in rows
        ),
    )


def _by_module(rows: Sequence[Gradient]) -> Table:
    """Fold the parameters of a module into a row; modules without a missing gradient come last."""
    modules: dict[str, list[Gradient]] = {}
    for row in rows:
        modules.setdefault(row.module, []).append(row)
    order = sorted(modules, key=lambda name: all(row.status == "reached" for row in modules[name]))
    cells = []
    for name in order:
        inside = modules[name]
        statuses = Counter[str](row.status for row in inside)
        worst = next(status for status in ("none", "zero", "reached") if statuses[status])
        number = (
            str(len(inside))
            if statuses[worst] == len(inside)
            else f"{statuses[worst]} of {len(inside)}"
        )
        cells.append(
            (
                Phrase(name or inside[0].name, "code"),
                Phrase(number),
                Phrase(*_STATUS[worst]),
                _why({row.finding for row in inside} - {None}),
            )
        )
    columns = (
        Column("module", give=True),
        Column("parameters", "right"),
        Column("gradient"),
        Column("why"),
    )
    return _cut_table(columns, cells, "modules")


def _why(numbers: set[int | None]) -> Phrase:
    return Phrase(", ".join(f"#{n + 1}" for n in sorted(n for n in numbers if n is not None)))


# ---------------------------------------------------------------------------------------- copies


def _copies(about: Findings) -> list[Block]:
    own = [row for row in about.copies if not row.library]
    inside = [row for row in about.copies if row.library]
    if not own and not inside:
        return []
    columns = (
        Column("expression", give=True),
        Column("operation"),
        Column("memory"),
        Column("gradient"),
        Column("times", "right"),
        Column("copied", "right"),
    )
    cells = [(row.site, _copy_cells(row)) for row in own]
    total = sum(row.bytes for row in about.copies)
    count = sum(row.count for row in about.copies)
    made = counted(count, "copy or conversion", "copies and conversions")
    text = f"{made}, {bytes_text(total)} copied"
    blocks: list[Block] = [Heading("copies and conversions"), Paragraph((Phrase(text),))]
    if own:
        blocks.append(by_line(columns, cells, about))
        blocks += _needs(own, about)
    if inside:
        blocks += _inside_libraries(inside, about)
    return blocks


def _needs(rows: Sequence[Copy], about: Findings) -> list[Block]:
    """Say of each line that copies whether the copy was needed, and why."""
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
        if row.reason or row.needed == "no"
    ]
    return [by_line(columns, cells, about)] if cells else []


def _copy_cells(row: Copy) -> tuple[Phrase, ...]:
    return (
        Phrase(row.site.expression or row.site.target, "code"),
        Phrase(shown(row.operation)),
        Phrase(row.memory, "strong" if row.memory == "shares" else "plain"),
        Phrase(row.gradient, "warning" if row.gradient == "cuts" else "plain"),
        Phrase(f"{row.count:,}"),
        Phrase(bytes_text(row.bytes) if row.memory != "shares" else "-"),
    )


def _inside_libraries(rows: Sequence[Copy], about: Findings) -> list[Block]:
    """One row for each line of the user's that led into a library which copied."""
    by_site: dict[Site, list[Copy]] = {}
    for row in rows:
        by_site.setdefault(row.site, []).append(row)
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
    return [by_line(columns, cells, about)]


def by_line(
    columns: tuple[Column, ...], rows: Sequence[tuple[Site, tuple[Phrase, ...]]], about: Findings
) -> Table:
    """Return a table of what is known of lines: grouped by file, each row with its line before."""
    rows = sorted(rows, key=lambda row: (row[0].file, row[0].line, row[0].column))
    groups = []
    for number, (site, _) in enumerate(rows[:MANY_ROWS]):
        if number == 0 or site.file != rows[number - 1][0].file:
            groups.append((number, shown_path(site.file, about.trace.folder)))
    cells = [(Phrase(f"  {site.line}", "place"), *said) for site, said in rows]
    table = _cut_table((Column("line", "right"), *columns), cells, "lines")
    return replace(table, groups=tuple(groups))


def _cut_table(
    columns: tuple[Column, ...], cells: Sequence[tuple[Phrase, ...]], what: str
) -> Table:
    left = max(0, len(cells) - MANY_ROWS)
    rest = f"more {what}; --json has all" if left else ""
    return Table(columns, tuple(cells[:MANY_ROWS]), left, rest)


# ------------------------------------------------------------------------------------------ gaps


def _gaps(about: Findings) -> list[Block]:
    gaps = gap_rows(about.trace)
    if not gaps:
        return []
    blocks: list[Block] = [Heading("what could not be seen")]
    for _, reason, count in gaps[:MANY_GAPS]:
        times = f" ({count:,} times)" if count > 1 else ""
        blocks.append(Paragraph((Phrase("- "), Phrase(reason), Phrase(times, "dim"))))
    if gaps[MANY_GAPS:]:
        text = f"... and {counted(len(gaps) - MANY_GAPS, 'more reason')}; --json has all"
        blocks.append(Paragraph((Phrase(text, "dim"),)))
    return blocks


def counted(number: int, one: str, many: str = "") -> str:
    """Return ``1 finding``, ``2,000 findings``."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"
