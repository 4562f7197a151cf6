"""A report without the program's text, to be shown to others.

What stays: the names of files, functions, parameters and variables, line numbers, and what the
verdicts say in their own words. What goes: every line and every expression, wherever it is quoted.
A sentence knows which of its parts are code (`finding.Said`); what its other parts may have of the
program, as a repair that writes an expression anew, is known again by the program's own text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from tether.facts import Site
from tether.finding import Finding, Fix, Said, Segment
from tether.report.document.findings import Findings
from tether.report.tables.copies import Copy

HIDDEN = "..."

_NAME = re.compile(r"[^\W\d][\w.]*(?:\[(?:\d+|'\w*')\][\w.]*)*")
_QUOTED = re.compile(r"`[^`]*`")


def without_source(about: Findings) -> Findings:
    """Return the same report with no line of the program's text in it, and no expression."""
    trace = replace(
        about.trace,
        sources={},
        sites=[bare(site) for site in about.trace.sites],
        program=_without_code_given(about.trace.program),
    )
    text = ProgramText(about.trace.sources.values())
    return replace(
        about,
        trace=trace,
        findings=[_bare_finding(one, text) for one in about.findings],
        copies=[_bare_copy(row) for row in about.copies],
        defects=[_bare_finding(one, text) for one in about.defects],
    )


def _without_code_given(program: Sequence[str]) -> list[str]:
    """Return a command without the program that stands in it: ``-c CODE``."""
    return ["-c", HIDDEN, *program[2:]] if program[:1] == ["-c"] else list(program)


def bare(site: Site) -> Site:
    """Return a site without its expression and target."""
    return site._replace(expression="", target="")


def _bare_copy(row: Copy) -> Copy:
    return replace(row, site=bare(row.site), reason=_QUOTED.sub(_unquoted, row.reason))


class ProgramText:
    """The text of a program as runs of three tokens, to know it again however it is spaced.

    A verdict may quote a part of an expression, or write one anew: no comparison with whole
    expressions finds those.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        self._runs: set[tuple[str, ...]] = set()
        self._strings: set[str] = set()
        for text in texts:
            tokens = [_plain(one[0]) for one in _TOKEN.finditer(text)]
            self._runs.update(zip(tokens, tokens[1:], tokens[2:], strict=False))
            self._strings.update(one for one in tokens if one[0] == "'" and len(one) > 3)

    def hidden(self, text: str) -> str:
        """Return a sentence with all that stands in the program replaced, but for its names."""
        found = list(_TOKEN.finditer(text))
        shown = [one.span() for one in _QUOTED.finditer(text) if _is_name(one[0].strip("`"))]
        marked = {
            place
            for place in self._marked([_plain(one[0]) for one in found])
            if not any(first <= found[place].start() < last for first, last in shown)
        }
        for place in sorted(marked, reverse=True):
            start, end = found[place].span()
            follows = place + 1 in marked
            stop = found[place + 1].start() if follows else end
            text = text[:start] + ("" if place - 1 in marked else HIDDEN) + text[stop:]
        return text

    def _marked(self, tokens: list[str]) -> set[int]:
        """Return the places of the tokens that stand in the program like that."""
        marked = {place for place, token in enumerate(tokens) if token in self._strings}
        for place, run in enumerate(zip(tokens, tokens[1:], tokens[2:], strict=False)):
            if run in self._runs and not _SIGNS.isdisjoint(run) and any(map(_is_literal, run)):
                marked.update(range(place, place + 3))
        return marked


_TOKEN = re.compile(
    r"'(?:[^'\\\n]|\\.)*'|\"(?:[^\"\\\n]|\\.)*\"|[^\W\d]\w*|\d[\w.]*|[^\w\s]", re.UNICODE
)
_SIGNS = frozenset("()[]{}=+-*/@%<>,:")


def _plain(token: str) -> str:
    """Return a token with one kind of quotes."""
    return "'" + token[1:-1] + "'" if len(token) > 1 and token[0] in "'\"" else token


def _is_literal(token: str) -> bool:
    return token[0] == "'" or token[0].isdigit()


def _bare_finding(finding: Finding, program: ProgramText) -> Finding:
    quoted = {site.expression for site in (finding.site, *(one.site for one in finding.evidence))}
    quoted |= {edit.text for edit in finding.fix.edits} if finding.fix else set()
    quoted |= {finding.subject, *finding.also}
    code = sorted((one for one in quoted if not _is_name(one)), key=len, reverse=True)

    def clean(text: str) -> str:
        text = "".join(map(_without_code, text.segments)) if isinstance(text, Said) else text
        for one in code:
            text = text.replace(one, HIDDEN)
        return _QUOTED.sub(_unquoted, program.hidden(text))

    fix = finding.fix
    return replace(
        finding,
        subject=clean(finding.subject),
        also=tuple(map(clean, finding.also)),
        second=tuple(map(clean, finding.second)),
        site=bare(finding.site),
        message=clean(finding.message),
        evidence=tuple(
            one._replace(site=bare(one.site), text=clean(one.text)) for one in finding.evidence
        ),
        assumes=tuple(map(clean, finding.assumes)),
        fix=Fix(clean(fix.text), (), fix.safe) if fix else None,
    )


def _without_code(part: Segment) -> str:
    """Return a part of a sentence; of code only what is a name, as its other names are kept."""
    if part.kind != "code":
        return part.text
    return _QUOTED.sub(_unquoted, part.text) if "`" in part.text else _bare_code(part.text)


def _bare_code(text: str) -> str:
    return text if _is_name(text) else HIDDEN


def _unquoted(found: re.Match[str]) -> str:
    return found[0] if _is_name(found[0].strip("`")) else f"`{HIDDEN}`"


def _is_name(text: str) -> bool:
    """Whether a text is a name, as parameters and variables have them, or a sole word or sign."""
    return not text.strip() or len(text) < 2 or bool(_NAME.fullmatch(text))
