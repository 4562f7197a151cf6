"""From what is known of a recording to the report's document."""

from __future__ import annotations

import difflib
import io
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache

from tether.analysis.speaking import bytes_text
from tether.analysis.wording import named
from tether.facts import LOADER, Site, Trace
from tether.finding import SEVERITIES, Edit, Evidence, Finding
from tether.report.document.blocks import (
    Block,
    Document,
    Excerpt,
    FindingBlock,
    Heading,
    Paragraph,
    Phrase,
)
from tether.report.document.copy_tables import copy_blocks
from tether.report.document.findings import ALL, Findings, counted
from tether.report.document.gradient_tables import gradient_blocks
from tether.report.document.grouping import (
    Alike,
    ends,
    grouped,
    in_full,
    runs,
)
from tether.report.filters import link_to, shown_line, shown_path
from tether.report.tables import cuts
from tether.report.tables.gaps import gap_rows
from tether.report.tables.ties import MANY_TIES, block
from tether.source.edits import apply
from tether.source.syntax import source_of

MANY_FINDINGS = 20  # causes that are told in full
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


def build(about: Findings) -> Document:
    """Return the whole report."""
    name = " ".join(about.trace.program) or "recording"
    process = about.trace.process
    if process.rank >= 0 and not about.processes:
        name += f" ({process.label} of {process.ranks})"
    document = Document(f"tether: {name}", [Heading(f"tether: {name}", 1)])
    told, counted_alone = _apart(about)
    document.blocks += summary(about, hidden=sum(len(some) for _, some in counted_alone))
    document.blocks += (group_block(one, about) for one in told)
    document.blocks += (_left_out(text, some) for text, some in counted_alone)
    document.blocks += details(about)
    return document


def details(about: Findings) -> list[Block]:
    """Return what the report says beside its findings."""
    return [
        block
        for part in (_ties, gradient_blocks, _cuts, copy_blocks, _gaps)
        for block in part(about)
    ]


# --------------------------------------------------------------------------------------- summary


_ENDED = {
    "finished": "",
    "raised": "; the program raised",
    "interrupted": "; interrupted",
    "unfinished": "; partial: the program was killed, or is still running",
}


def summary(about: Findings, hidden: int = 0) -> list[Block]:
    """Say how many findings of each severity there are, how many are hidden, in how many calls."""
    trace = about.trace
    blocks: list[Block] = [Paragraph(tuple(_in_a_line(about, hidden)))]
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


def _in_a_line(about: Findings, hidden: int) -> list[Phrase]:
    trace = about.trace
    counts = Counter(one.severity for one in about.findings)
    phrases: list[Phrase] = []
    for severity in SEVERITIES:
        if counts[severity]:
            phrases += [Phrase(counted(counts[severity], severity), severity), Phrase(", ")]
    if phrases:
        phrases[-1] = Phrase(f" ({hidden} not shown)" if hidden else "", "dim")
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


def _apart(about: Findings) -> tuple[list[Alike], list[tuple[str, Sequence[Finding]]]]:
    """Return the causes that are told, and the findings that are only counted, with the words."""
    numbered = list(enumerate(about.findings, start=1))
    if about.show_all:
        return [Alike((number,)) for number, _ in numbered], []
    own, slight = in_full(numbered, len(about.trace.events))
    groups = grouped(own)
    left = [about.findings[n - 1] for one in groups[MANY_FINDINGS:] for n in one.numbers]
    some: list[tuple[str, Sequence[Finding]]] = []
    if left:
        some.append((f"... and {counted(len(left), 'more finding')}", left))
    some += ((f"{counted(len(one.findings), 'note')} {one.text}", one.findings) for one in slight)
    libraries = [one for one in about.findings if one.library]
    if libraries:
        packages = ", ".join(dict.fromkeys(one.library for one in libraries))
        some.append((f"{counted(len(libraries), 'note')} on the code of {packages}", libraries))
    return groups[:MANY_FINDINGS], some


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

        text = about.trace.sources.get(file, "")
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
    text = about.trace.sources.get(file, "")
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
