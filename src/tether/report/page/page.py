"""The report as one HTML page with the source beside what happened on it.

Everything is computed here or before; the page's script folds, filters and highlights. What it has
in common with other pages, its safety among it, is `shell`.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tether.analysis.memory import Memory
from tether.facts import Site
from tether.finding import SEVERITIES, Severity
from tether.report.document.blocks import Block
from tether.report.document.compose import details, group_block, summary
from tether.report.document.findings import Findings, counted
from tether.report.document.grouping import Alike, ends, folded, grouped
from tether.report.document.text import visible
from tether.report.filters import shown_line, shown_path
from tether.report.formats.addresses import page_of
from tether.report.page.html import safe
from tether.report.page.memory_drawing import drawings
from tether.report.page.moments import moments
from tether.report.page.shell import (
    TONES,
    FindingView,
    Page,
    asset,
    environment,
    lowered,
    macros,
    markup,
    prose,
    whole,
)
from tether.report.page.tie_drawing import tie_picture
from tether.report.page.tie_graph import tie_graph
from tether.report.redact import without_source
from tether.report.tables.annotated import (
    KINDS,
    File,
    LineMarks,
    Mark,
    NameSpan,
    annotated,
    mark_label,
    mark_text,
)
from tether.source.syntax import source_of
from tether.verdicts import VERDICTS

if TYPE_CHECKING:
    from markupsafe import Markup

LONGEST_LINE = 2_000
"""Characters of one source line that the page shows; coloured only when it is shorter."""

LINES_TOGETHER = 60
"""Lines that a browser lays out together, when they come into view."""

OPEN_FINDINGS = 5
"""Causes that are open at first."""

OPEN_FILES = 3
OPEN_LINES = 2_000  # a longer file starts folded unless it has findings


_PAGES = {one.slug: one.page for one in VERDICTS}


_PARTS = (
    ("findings", "verdicts", "findings"),
    ("picture", "ties", "ties"),
    ("files", "source", "source"),
    ("drawings", "memory", "memory"),
    ("tables", "tables", "tables"),
)
"""What is on the page, the id of its heading and its name."""


def render(
    about: Findings,
    more: Iterable[Block] = (),
    *,
    source: bool = True,
    version: int | None = None,
) -> str:
    """Return the page. `more` are further blocks of the report; `source` off leaves out its text.

    `version` is the page's number where it is served and there may be a later one.

    Without the text a verdict still says in its own words what it is about, and so may quote a
    name or a call.
    """
    if not source:
        about = without_source(about)
    return _Page(about, more, source=source).render(version)


class _Page:
    def __init__(self, about: Findings, more: Iterable[Block], *, source: bool) -> None:
        self.about, self.more = about, list(more)
        self.groups = grouped(list(enumerate(about.findings, 1)))
        self.files: list[File] = annotated(about) if source else []
        self.numbers = {one.path: number for number, one in enumerate(self.files)}
        for finding in about.findings:
            for site in (finding.site, *(one.site for one in finding.evidence)):
                self.numbers.setdefault(site.file, len(self.numbers))
        self.lengths = {
            one.path: len(source_of(one.path, one.text).lines) for one in self.files
        }  # fmt: skip

    def render(self, version: int | None = None) -> str:
        about = self.about
        shown = replace(about, show_all=True, index=about.history)
        name = " ".join(about.trace.program) or "recording"
        parts = {
            "findings": [self._finding(n, one) for n, one in enumerate(self.groups)],
            "picture": self._picture(),
            "files": list(self._sources()),
            "drawings": drawings(about.history),
            "tables": lowered([*details(shown), *self.more], self._leads),
        }
        body = environment().from_string(asset("page.html")).render(
            **parts,
            explained=list(_explained({one.slug for one in about.findings})),
            moments=self._moments(),
            macros=macros(),
            where=self._target,
            short=self._short,
            whole=Memory.of(about.history).whole,
        )  # fmt: skip
        places = [(n, shown_path(file, about.trace.folder)) for file, n in self.numbers.items()]
        return whole(
            Page(
                f"tether: {name}",
                lowered(summary(about)),
                markup(body),
                [(where, word) for key, where, word in _PARTS if key == "findings" or parts[key]],
                "findings, source and tables",
                macros().filters(sorted({one.slug for one in about.findings}), places),
                macros().keys(),
                about.trace.torch,
            ),
            version,
        )

    # -- places ------------------------------------------------------------------------------

    def _target(self, site: Site) -> str:
        """Return the id of a line on the page, or "" when it is not there."""
        if 1 <= site.line <= self.lengths.get(site.file, 0):
            return f"s{self.numbers[site.file]}-{site.line}"
        return ""

    def _short(self, site: Site) -> str:
        return shown_line(site.file, site.line, self.about.trace.folder)

    def _leads(self, to: Site | int) -> str:
        return f"finding-{to}" if isinstance(to, int) else self._target(to)

    def _picture(self) -> dict[str, Any] | None:
        picture = tie_picture(tie_graph(self.about), self._target)
        return None if picture is None else {**picture._asdict(), "svg": markup(picture.svg)}

    def _moments(self) -> tuple[int, Markup] | None:
        """Return how many moments the slider has, and all of them as JSON."""
        found = moments(self.about, self._target) if self.files else None
        if found is None:
            return None
        count = sum(len(found["patterns"][pattern]) for _, pattern in found["steps"])
        text = json.dumps(found, separators=(",", ":"))
        return count, markup(visible(text).replace("<", "\\u003c"))

    def _finding(self, place: int, group: Alike) -> FindingView:
        number, *others = group.numbers
        finding = self.about.findings[number - 1]
        block = group_block(group, self.about)
        story, rest = ends(finding)
        targets = [self._target(one.site) for one in story]
        alike = [self.about.findings[one - 1] for one in others]
        sites = [*(one.site for one in (*story, *rest)), *(one.site for one in alike)]
        words = [finding.slug, finding.severity, finding.subject, *finding.also, finding.message]
        words += [one.subject for one in alike]
        return FindingView(
            block,
            list(zip(block.ends, targets, strict=True)),
            list(zip(block.evidence, [self._target(one.site) for one in rest], strict=True)),
            " ".join((*words, *dict.fromkeys(map(self._short, sites)))).lower(),
            open=place < OPEN_FINDINGS,
            names=folded(finding.also),
            also=counted(len(finding.also), "other name"),
            files=" ".join(dict.fromkeys(str(self.numbers[site.file]) for site in sites)),
            ends=" ".join(dict.fromkeys(filter(None, targets))),
            alike=[
                (n, self._short(one.site), self._target(one.site), one.subject)
                for n, one in zip(others, alike, strict=True)
            ],
            explained=finding.slug if finding.slug in _PAGES else "",
        )

    # -- source ------------------------------------------------------------------------------

    def _sources(self) -> Iterator[dict[str, Any]]:
        for number, file in enumerate(self.files):
            found = any(line.findings for line in file.lines.values())
            few = number < OPEN_FILES and self.lengths[file.path] <= OPEN_LINES
            body = markup("".join(self._body(number, file)))
            yield {"shown": file.shown, "body": body, "open": found or few}

    def _body(self, number: int, file: File) -> Iterator[str]:
        lines = source_of(file.path, file.text).lines
        if lines and not lines[-1]:
            lines = lines[:-1]
        coloured = _coloured(lines)
        for first in range(0, len(lines), LINES_TOGETHER):
            yield '<div class="b">'
            for index in range(first, min(first + LINES_TOGETHER, len(lines))):
                at = index + 1
                line = file.lines.get(at)
                pieces = _pieces(lines[index], coloured.get(at, ()), line, file, at)
                yield self._line(file, f"s{number}-{at}", at, line, "".join(pieces))
            yield "</div>"

    def _line(self, file: File, name: str, at: int, line: LineMarks | None, code: str) -> str:
        groups = kind = ""
        if line is not None and line.groups:
            groups = f' data-g="{" ".join(map(str, line.groups))}"'
        if line is not None and line.severity:
            kind = f" x {TONES[line.severity]}"
        marks = self._marks(line, file) if line is not None and line.marks else ""
        return (
            f'<div class="l{kind}" id="{name}"{groups}><a href="#{name}">{at}</a>'
            f"<code>{code}</code>{marks}</div>\n"
        )

    def _marks(self, line: LineMarks, file: File) -> str:
        marks = [line.marks[kind] for kind in KINDS if kind in line.marks]
        shown = "".join(_mark(mark, line.told.get(mark.kind)) for mark in marks)
        title = "; ".join(mark_text(mark) for mark in marks)
        steps = "".join(
            f"<li>{safe(step.role)}, "
            f"{'this line' if step.here else self._link(step.site, file.path)}</li>"
            for step in line.steps
        )
        more = f"<li>and {line.more} more</li>" if line.more else ""
        found = "".join(f' <a href="#finding-{n}">finding #{n}</a>' for n in line.findings)
        return (
            f'<details class="m"><summary title="{safe(title)}">{shown}</summary>'
            f"<ol>{steps}{more}</ol>{found}</details>"
        )

    def _link(self, site: Site, inside: str) -> str:
        """Return a link to a line; within the file `inside` it needs no file name."""
        shown = f"line {site.line}" if site.file == inside else self._short(site)
        target, text = self._target(site), safe(shown)
        return f'<a href="#{target}">{text}</a>' if target else text


def _mark(mark: Mark, told: Severity | None) -> str:
    tone = f" {TONES[told]}" if told else ""
    return f'<span class="g{tone}">{mark_label(mark)}</span>'


def _explained(slugs: Iterable[str]) -> Iterator[tuple[str, Markup]]:
    """Yield the page of each verdict, its headings and examples set as such."""
    for slug in sorted(slugs):
        if slug in _PAGES:
            address = safe(page_of(slug))
            link = f'<p><a href="{address}">{address}</a></p>' if address else ""
            yield slug, markup("".join(_parts(_PAGES[slug])) + link)


def _parts(page: str) -> Iterator[str]:
    for part in re.split(r"\n\n+|(?=```)|\n(?=#)|(?<=\w)\n(?=```)", page.strip()):
        text = part.strip()
        if text.startswith("```"):
            yield f"<pre>{safe(text.strip('`').removeprefix('python').strip())}</pre>"
        elif text.startswith("## "):
            head, _, rest = text[3:].partition("\n")
            yield f"<h4>{safe(head)}</h4>" + (f"<p>{prose(rest)}</p>" if rest else "")
        elif text and not text.startswith("# "):
            yield f"<p>{prose(text)}</p>"


Token = tuple[int, int, str]  # first and last character of a stretch, and its class


def _coloured(lines: Sequence[str]) -> dict[int, list[Token]]:
    """Return the coloured stretches of each line: keyword, string, comment, number.

    A line that is too long to show is left out, and so is what follows from it.
    """
    from pygments.lexers import PythonLexer
    from pygments.token import Token as Kinds

    classes = (
        (Kinds.Keyword, "k"),
        (Kinds.Operator.Word, "k"),
        (Kinds.Literal.String, "s"),
        (Kinds.Comment, "c"),
        (Kinds.Literal.Number, "n"),
    )
    known: dict[Any, str] = {}
    found: dict[int, list[Token]] = {}
    # The lexer ends a line at "\n" alone; it must be given nothing else that it could drop.
    text = "\n".join(line if len(line) <= LONGEST_LINE else "" for line in lines)
    at, column = 1, 0
    for _, kind, value in PythonLexer(stripnl=False, ensurenl=False).get_tokens_unprocessed(text):
        if kind not in known:
            known[kind] = next((name for one, name in classes if kind in one), "")
        name = known[kind]
        for n, part in enumerate(value.split("\n")):
            if n:
                at, column = at + 1, 0
            if name and part:
                found.setdefault(at, []).append((column, column + len(part), name))
            column += len(part)
    return found


def _pieces(
    text: str, tokens: Sequence[Token], line: LineMarks | None, file: File, at: int
) -> Iterator[str]:
    """Yield a line's stretches, each with what it is: a colour, part of a verdict, a name."""
    shown = text[:LONGEST_LINE]
    quoted = [(a, b) for a, b, kind in tokens if kind in "sc"]
    names = [
        span for span in file.names.get(at, ()) if not any(a <= span.start < b for a, b in quoted)
    ]
    meant = line.meant if line is not None else []
    bounds = [one[:2] for one in (*tokens, *names, *meant)]
    edges = {min(max(one, 0), len(shown)) for one in itertools.chain.from_iterable(bounds)}
    if bounds:
        for start, end in itertools.pairwise(sorted({0, len(shown), *edges})):
            yield _piece(shown, start, end, tokens, names, meant)
    else:
        yield safe(shown)
    if len(text) > LONGEST_LINE:
        yield f'<i class="c"> ... {len(text) - LONGEST_LINE:,} more characters</i>'


def _piece(
    text: str,
    start: int,
    end: int,
    tokens: Sequence[Token],
    names: Sequence[NameSpan],
    meant: Sequence[tuple[int, int, Severity]],
) -> str:
    kinds = [kind for a, b, kind in tokens if a <= start and end <= b][:1]
    told = [severity for a, b, severity in meant if a <= start and end <= b]
    if told:
        kinds += ["u", TONES[min(told, key=SEVERITIES.index)]]
    name = next((one for one in names if one.start <= start and end <= one.end), None)
    inner = safe(text[start:end])
    attributes = f' class="{" ".join(kinds)}"' if kinds else ""
    if name is not None:
        attributes += f' data-g="{" ".join(map(str, name.groups))}"'
    return f"<i{attributes}>{inner}</i>" if attributes else inner
