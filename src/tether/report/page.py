"""The report as one HTML page with the source beside what happened on it.

Everything is computed here or before; the page's script folds, filters and highlights. Every word
from a program is escaped by the template or by `_safe`, with controls and direction marks spelt
out, and the page forbids itself to fetch anything or to run any script but its own.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib import resources
from typing import TYPE_CHECKING, Any

import tether
from tether.analysis.speaking import bytes_text
from tether.facts import Site
from tether.finding import Finding
from tether.report import html
from tether.report.annotated import KINDS, File, LineMarks, Mark, NameSpan, annotated, mark_text
from tether.report.compose import Findings, build, finding_block
from tether.report.document import Block, Document, Excerpt, FindingBlock, Heading
from tether.report.filters import shown_line, shown_path
from tether.report.gradient_routes import Route, RouteCall, routes
from tether.report.memory_drawing import drawings
from tether.report.redact import without_source
from tether.report.text import visible
from tether.source.syntax import source_of

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

LONGEST_LINE = 2_000
"""Characters of one source line that the page shows; coloured only when it is shorter."""

LINES_TOGETHER = 60
"""Lines that a browser lays out together, when they come into view."""

OPEN_FINDINGS = 20
OPEN_FILES = 3
OPEN_LINES = 2_000  # a longer file starts folded unless it has findings


def render(about: Findings, more: Iterable[Block] = (), *, source: bool = True) -> str:
    """Return the page. `more` are further blocks of the report; `source` off leaves out its text.

    Without the text a verdict still says in its own words what it is about, and so may quote a
    name or a call.
    """
    if not source:
        about = without_source(about)
    return _Page(about, more, source=source).render()


@lru_cache(maxsize=1)
def _environment() -> Environment:
    from jinja2 import Environment

    made = Environment(autoescape=True, trim_blocks=False)
    made.filters["v"] = visible_text
    made.filters["prose"] = _prose
    return made


def _asset(name: str) -> str:
    return resources.files("tether.report").joinpath(name).read_text("utf-8")


def _hash(text: str) -> str:
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"


def visible_text(value: object) -> str:
    """Return a value as text in which nothing acts on a reader."""
    return visible(str(value))


def _safe(text: str) -> str:
    return html.safe(text)


def _prose(text: object) -> Markup:
    """Return a sentence with what stands between backticks set as code."""
    return _markup(re.sub(r"`([^`]{1,500})`", r"<code>\1</code>", _safe(str(text))))


def _markup(text: str) -> Markup:
    from markupsafe import Markup

    return Markup(text)  # noqa: S704 -- every word in it went through `_safe`


@dataclass
class _Verdict:
    """One finding as the template takes it."""

    block: FindingBlock
    mark: str  # its class: e, w or o
    files: str  # numbers of the files it speaks of
    ends: str  # ids of the lines of its ends
    text: str  # what the search looks in
    places: list[tuple[Excerpt, str]]
    evidence: list[tuple[Excerpt, str]]
    open: bool


class _Page:
    def __init__(self, about: Findings, more: Iterable[Block], *, source: bool) -> None:
        self.about, self.more = about, list(more)
        self.files: list[File] = annotated(about) if source else []
        self.numbers = {one.path: number for number, one in enumerate(self.files)}
        for finding in about.findings:
            for site in (finding.site, *(one.site for one in finding.evidence)):
                self.numbers.setdefault(site.file, len(self.numbers))
        self.lengths = {
            one.path: len(source_of(one.path, one.text).lines) for one in self.files
        }  # fmt: skip

    def render(self) -> str:
        about, environment = self.about, _environment()
        style, script = _asset("page.css"), _asset("page.js")
        policy = (
            f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; "
            "base-uri 'none'; form-action 'none'"
        )
        document = build(replace(about, findings=()))
        ways = routes(about)
        macros: Any = environment.from_string(_MACROS).make_module({})
        return environment.from_string(_asset("page.html")).render(
            title=document.title,
            policy=policy,
            style=_markup(style),
            script=_markup(script),
            summary=_markup("".join(html.blocks(Document("", self._summary())))),
            tables=_markup("".join(html.blocks(Document("", self._tables(document))))),
            findings=[self._verdict(n, one) for n, one in enumerate(about.findings, 1)],
            slugs=sorted({one.slug for one in about.findings}),
            places=[(n, shown_path(file, about.trace.folder)) for file, n in self.numbers.items()],
            files=list(self._sources()),
            routes=[self._route(one) for one in ways],
            drawings=drawings(about.history),
            excerpt=macros.excerpt,
            at=macros.at,
            where=self._target,
            short=self._short,
            bytes=bytes_text,
            version=tether.__version__,
            torch=about.trace.torch,
        )

    def _summary(self) -> list[Block]:
        """Return what the report says before its first verdict or part."""
        whole = build(replace(self.about, gradients=(), copies=())).blocks[1:]
        found: list[Block] = []
        for block in whole:
            if isinstance(block, Heading | FindingBlock):
                break
            found.append(block)
        return found

    def _tables(self, document: Document) -> list[Block]:
        """All parts of the report but its head and its verdicts."""
        blocks = document.blocks[1:]
        first = next(
            (n for n, block in enumerate(blocks) if isinstance(block, Heading)), len(blocks)
        )
        return [*blocks[first:], *self.more]

    # -- places ------------------------------------------------------------------------------

    def _target(self, site: Site) -> str:
        """Return the id of a line on the page, or "" when it is not there."""
        if 1 <= site.line <= self.lengths.get(site.file, 0):
            return f"s{self.numbers[site.file]}-{site.line}"
        return ""

    def _short(self, site: Site) -> str:
        return shown_line(site.file, site.line, self.about.trace.folder)

    def _verdict(self, number: int, finding: Finding) -> _Verdict:
        block = finding_block(number, finding, self.about)
        sites = [finding.site]
        sites += [one.site for one in finding.evidence if one.site[:5] != finding.site[:5]]
        sites += [finding.site] * len(block.evidence)  # what was tried stands at its own line
        targets = [self._target(site) for site in sites]
        files = dict.fromkeys(str(self.numbers[site.file]) for site in sites)
        ends = dict.fromkeys(target for target in targets[: len(block.ends)] if target)
        words = (finding.slug, finding.severity, finding.subject, *finding.also, finding.message)
        return _Verdict(
            block,
            {"error": "e", "warning": "w"}.get(finding.severity, "o"),
            " ".join(files),
            " ".join(ends),
            " ".join((*words, *dict.fromkeys(self._short(site) for site in sites))).lower(),
            list(zip(block.ends, targets, strict=False)),
            list(zip(block.evidence, targets[len(block.ends) :], strict=False)),
            number <= OPEN_FINDINGS,
        )

    def _route(self, route: Route) -> dict[str, Any]:
        kinds = {"none": "bad", "zero": "warning", "reached": "good"}
        counts = Counter[str](row.status for row in route.rows)

        def placed(stops: Sequence[RouteCall]) -> list[tuple[RouteCall, str]]:
            return [(stop, self._target(stop.site)) for stop in stops]

        return {
            "route": route,
            "counts": [(word, kind, counts[word]) for word, kind in kinds.items() if counts[word]],
            "rows": [(row, kinds[row.status]) for row in route.rows],
            "stops": placed(route.stops),
            "text": " ".join([route.module, *(row.name for row in route.rows)]).lower(),
            "open": any(stop.cut for stop in route.stops),
        }

    # -- source ------------------------------------------------------------------------------

    def _sources(self) -> Iterator[dict[str, Any]]:
        for number, file in enumerate(self.files):
            found = any(line.findings for line in file.lines.values())
            few = number < OPEN_FILES and self.lengths[file.path] <= OPEN_LINES
            body = _markup("".join(self._body(number, file)))
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
        if line is not None and line.findings:
            kind = " x"
        margin = self._marks(line, file) if line is not None and line.marks else "<b></b>"
        return (
            f'<div class="l{kind}" id="{name}"{groups}><a href="#{name}">{at}</a>'
            f"{margin}<code>{code}</code></div>\n"
        )

    def _marks(self, line: LineMarks, file: File) -> str:
        marks = [line.marks[kind] for kind in KINDS if kind in line.marks]
        shown = "".join(map(_mark, marks))
        title = "; ".join(mark_text(mark) for mark in marks)
        steps = "".join(
            f"<li>{_safe(step.role)}, "
            f"{'this line' if step.here else self._link(step.site, file.path)}</li>"
            for step in line.steps
        )
        more = f"<li>and {line.more} more</li>" if line.more else ""
        found = "".join(f' <a href="#finding-{n}">verdict #{n}</a>' for n in line.findings)
        return (
            f'<details class="m"><summary title="{_safe(title)}">{shown}</summary>'
            f"<ol>{steps}{more}</ol>{found}</details>"
        )

    def _link(self, site: Site, inside: str) -> str:
        """Return a link to a line; within the file `inside` it needs no file name."""
        shown = f"line {site.line}" if site.file == inside else self._short(site)
        target, text = self._target(site), _safe(shown)
        return f'<a href="#{target}">{text}</a>' if target else text


def _mark(mark: Mark) -> str:
    times = f"\u00d7{mark.count:,}" if mark.count > 1 else ""
    size = f" {bytes_text(mark.bytes)}" if mark.bytes else ""
    return f'<span class="g {mark.kind}">{mark.kind}{times}{size}</span>'


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
    bounds = [*(one[:2] for one in tokens), *(one[:2] for one in names), *meant]
    edges = {min(max(one, 0), len(shown)) for one in itertools.chain.from_iterable(bounds)}
    if bounds:
        for start, end in itertools.pairwise(sorted({0, len(shown), *edges})):
            yield _piece(shown, start, end, tokens, names, meant)
    else:
        yield _safe(shown)
    if len(text) > LONGEST_LINE:
        yield f'<i class="c"> ... {len(text) - LONGEST_LINE:,} more characters</i>'


def _piece(
    text: str,
    start: int,
    end: int,
    tokens: Sequence[Token],
    names: Sequence[NameSpan],
    meant: Sequence[tuple[int, int]],
) -> str:
    kinds = [kind for a, b, kind in tokens if a <= start and end <= b][:1]
    if any(a <= start and end <= b for a, b in meant):
        kinds.append("u")
    name = next((one for one in names if one.start <= start and end <= one.end), None)
    inner = _safe(text[start:end])
    attributes = f' class="{" ".join(kinds)}"' if kinds else ""
    if name is not None:
        attributes += f' data-g="{" ".join(map(str, name.groups))}"'
    return f"<i{attributes}>{inner}</i>" if attributes else inner


_MACROS = """\
{% macro at(text, target) %}{% if target %}<a href="#{{ target }}">{{ text|v }}</a>{% else %}\
{{ text|v }}{% endif %}{% endmacro %}
{% macro excerpt(one, target) %}<p><span class="place">{{ at(one.place, target) }}</span> \
<strong>{{ one.role|v }}</strong></p>{% if one.source.strip() %}<pre>{{ one.line }} | \
{{ one.source[:one.start][-1000:]|v }}{% if one.end > one.start %}\
<mark>{{ one.source[one.start:one.end][:1000]|v }}</mark>{% endif %}\
{{ one.source[one.end:one.end + 500]|v }}</pre>{% endif %}{% endmacro %}
"""
