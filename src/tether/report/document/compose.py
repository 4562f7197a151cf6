"""From what is known of a recording to the report's document."""

from __future__ import annotations

import difflib
import io
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial

from tether.analysis.degrading import attempt
from tether.analysis.history import History
from tether.analysis.memory import Growing, Growth
from tether.analysis.speaking import bytes_text
from tether.analysis.wording import named
from tether.facts import LOADER, Site, Trace
from tether.finding import SEVERITIES, Edit, Evidence, Finding
from tether.operations.table import shown
from tether.report.document.blocks import (
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
from tether.report.document.grouping import (
    SLIGHT,
    Alike,
    ends,
    folded,
    grouped,
    runs,
    without_slight,
)
from tether.report.filters import Selection, link_to, shown_line, shown_path
from tether.report.tables import cuts
from tether.report.tables.copies import Copy
from tether.report.tables.gaps import gap_rows
from tether.report.tables.gradients import Gradient
from tether.report.tables.ties import MANY_TIES, TieRow, block, rows
from tether.source.edits import apply
from tether.source.syntax import source_of

MANY_PARAMETERS = 24  # above this the gradient table has a row for each module
MANY_ROWS = 40
MANY_FINDINGS = 20  # causes that are told in full
MANY_NAMES = 4  # of one finding's other names
MANY_GAPS = 12
ALL = "--show-all lists them"

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


def build(about: Findings) -> Document:
    """Return the whole report."""
    name = " ".join(about.trace.program) or "recording"
    process = about.trace.process
    if process.rank >= 0 and not about.processes:
        name += f" ({process.label} of {process.ranks})"
    document = Document(f"tether: {name}", [Heading(f"tether: {name}", 1)])
    document.blocks += [*summary(about), *_verdicts(about), *details(about)]
    return document


def details(about: Findings) -> list[Block]:
    """Return what the report says beside its findings."""
    return [block for part in (_ties, _gradients, _cuts, _copies, _gaps) for block in part(about)]


# --------------------------------------------------------------------------------------- summary


_ENDED = {
    "finished": "",
    "raised": "; the program raised",
    "interrupted": "; interrupted",
    "unfinished": "; partial: the program was killed, or is still running",
}


def summary(about: Findings) -> list[Block]:
    """Say how many findings of each severity there are, and in how many calls."""
    trace = about.trace
    blocks: list[Block] = [Paragraph(tuple(_in_a_line(about)))]
    if trace.dropped:
        text = f"Only the last {counted(len(trace.events), 'call')} were kept (--limit)."
        blocks.append(Paragraph((Phrase(text, "dim"),)))
    fatal = [one for one in trace.raised if one.fatal]
    grown = about.grown
    if grown:
        lines = [one.site for one in grown.lines[:3]]
        blocks.append(_growth(f"{grown}, most of it at ", lines, about.trace.folder))
    for one in fatal[-1:]:
        where = " in another process" if one.elsewhere else ""
        text = " ".join((one.elsewhere or one.message).split())
        said = Phrase(f"{one.type}{where}: {text[:400]}")
        blocks.append(Paragraph((Phrase("raised  ", "bad"), said)))
    return blocks


def _growth(text: str, lines: Sequence[Site], folder: str) -> Paragraph:
    places = [Phrase(shown_line(one.file, one.line, folder), "place", to=one) for one in lines]
    between = [Phrase(", ")] * len(places)
    apart = [phrase for pair in zip(places, between, strict=True) for phrase in pair][:-1]
    return Paragraph((Phrase(text), *apart, Phrase(".")))


def _in_a_line(about: Findings) -> list[Phrase]:
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
        where = f" in {named(about.processes)}" if about.processes else ""
        phrases.append(Phrase(f" in {counted(trace.ended, 'call')} recorded{where}", "dim"))
    phrases.append(Phrase(_ENDED[trace.outcome], "dim"))
    return [*phrases, *_unrecorded(trace)]


def _unrecorded(trace: Trace) -> Iterator[Phrase]:
    """Yield how many processes were not recorded, and how they would be."""
    gaps = [gap for gap in trace.gaps if gap.code == "child"]
    children = sum(gap.times for gap in gaps)
    if children:
        were = "was" if children == 1 else "were"
        number = counted(children, "child process", "child processes")
        yield Phrase(f"; {number} ran and {were} not recorded", "warning")
    if any(gap.detail != LOADER for gap in gaps):
        does = "it does" if children == 1 else "they do"
        yield Phrase(f" (`tether run --children` records what {does} with PyTorch)", "dim")


# -------------------------------------------------------------------------------------- verdicts


def _verdicts(about: Findings) -> list[Block]:
    numbered = list(enumerate(about.findings, start=1))
    if about.show_all:
        return [group_block(Alike((number,)), about) for number, _ in numbered]
    own, few = without_slight([(number, one) for number, one in numbered if not one.library])
    groups = grouped(own)
    blocks: list[Block] = [group_block(one, about) for one in groups[:MANY_FINDINGS]]
    left = [about.findings[n - 1] for one in groups[MANY_FINDINGS:] for n in one.numbers]
    if left:
        blocks.append(_left_out(f"... and {counted(len(left), 'more finding')}", left))
    if few:
        limit = bytes_text(SLIGHT)
        text = f"{counted(len(few), 'note')} on copies of {limit} or less in the whole run"
        blocks.append(_left_out(text, few))
    libraries = [one for one in about.findings if one.library]
    if libraries:
        packages = ", ".join(dict.fromkeys(one.library for one in libraries))
        text = f"{counted(len(libraries), 'note')} on the code of {packages}"
        blocks.append(_left_out(text, libraries))
    return blocks


def _left_out(text: str, findings: Sequence[Finding]) -> Paragraph:
    kinds = Counter(one.slug for one in findings).most_common()
    kinds_text = ", ".join(f"{count} {slug}" for slug, count in kinds)
    return Paragraph((Phrase(f"{text} ({kinds_text}); {ALL}", "dim"),))


def group_block(group: Alike, about: Findings) -> FindingBlock:
    """Return the first finding of a cause, with the others that have the same."""
    first, *others = group.numbers
    block = finding_block(first, about.findings[first - 1], about)
    if not others:
        return block
    alike = [about.findings[number - 1] for number in others]
    lines = runs(one.site.line for one in alike)
    site = about.findings[first - 1].site
    where = shown_path(site.file, about.trace.folder)
    inside = f" in {site.function}" if site.function not in ("", "<module>") else ""
    text = f"{counted(len(others), 'more finding')} like this one{inside}, {where} lines {lines}"
    return replace(block, alike=f"{text} (#{others[0]} to #{others[-1]})")


def finding_block(number: int, finding: Finding, about: Findings) -> FindingBlock:
    """Return a verdict: its own site and the places that tell its story as the ends."""
    story, rest = ends(finding)

    def placed(places: Sequence[Evidence]) -> tuple[Excerpt, ...]:
        return tuple(excerpt(one.site, _role(one.role, one.text), about) for one in places)

    fix = finding.fix
    return FindingBlock(
        number=number,
        slug=finding.slug,
        severity=finding.severity,
        subject=finding.subject,
        also=finding.also,
        second=finding.second,
        message=finding.message,
        ends=placed(story),
        evidence=placed(rest),
        fix=fix.text if fix else "",
        edits=tuple(_edited(fix.edits, about)) if fix else (),
        assumes=finding.assumes,
        facts=", ".join(_facts(finding)),
    )


def _facts(finding: Finding) -> Iterator[str]:
    if finding.count > 1:
        yield f"{finding.count:,} times"
    if finding.bytes:
        yield bytes_text(finding.bytes)
    if finding.proven:
        yield "proven"
    if finding.ranks:
        yield f"in {named(finding.ranks)}"


def _ties(about: Findings) -> list[Block]:
    return block(about.ties, about.trace.folder, about.most(MANY_TIES))


def _cuts(about: Findings) -> list[Block]:
    return cuts.block(about.cuts, about.trace.folder, about.most(cuts.MANY_CUTS))


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
            yield skip + first + 1, "(delete the line)"
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
    return Excerpt(
        place(site, about.trace.folder), role, site.line, line, start, end, link_to(site)
    )


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


_STATUS: dict[str, tuple[str, Kind]] = {
    "reached": ("reached", "good"),
    "zero": ("zero", "warning"),
    "none": ("none", "bad"),
}


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
    return _cut_table(columns, cells, "modules", about)


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
    pretended = any(gap.code == "pretended" for gap in about.trace.gaps)
    text = f"{made}, {bytes_text(total)} copied{', as pretended' if pretended else ''}"
    blocks: list[Block] = [Heading("copies and conversions"), Paragraph((Phrase(text),))]
    if own:
        blocks.append(by_line(columns, cells, about))
        blocks += _needs(own, about)
    if inside:
        blocks += _inside_libraries(inside, about)
    return blocks


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
        Phrase(row.gradient, "warning" if row.gradient == "cuts" else "plain"),
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
    table = _cut_table((Column("line", "right"), *columns), cells, "lines", about)
    return replace(table, groups=tuple(groups))


def _cut_table(
    columns: tuple[Column, ...], cells: Sequence[tuple[Phrase, ...]], what: str, about: Findings
) -> Table:
    shown = tuple(cells[: about.most(MANY_ROWS)])
    left = len(cells) - len(shown)
    return Table(columns, shown, left, f"more {what}; {ALL}" if left else "")


# ------------------------------------------------------------------------------------------ gaps


def _gaps(about: Findings) -> list[Block]:
    gaps = gap_rows(about.trace)
    if not gaps:
        return []
    blocks: list[Block] = [Heading("what could not be seen")]
    shown = gaps[: about.most(MANY_GAPS)]
    for _, reason, count in shown:
        times = f" ({count:,} times)" if count > 1 else ""
        blocks.append(Paragraph((Phrase("- "), Phrase(reason), Phrase(times, "dim"))))
    if gaps[len(shown) :]:
        text = f"... and {counted(len(gaps) - len(shown), 'more reason')}; {ALL}"
        blocks.append(Paragraph((Phrase(text, "dim"),)))
    return blocks


def counted(number: int, one: str, many: str = "") -> str:
    """Return ``1 finding``, ``2,000 findings``."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"
