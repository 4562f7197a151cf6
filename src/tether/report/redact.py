"""A report without the program's text, to be shown to others.

What stays: the names of files, functions, parameters and variables, line numbers, and what the
verdicts say in their own words. What goes: every line and every expression, wherever it is quoted.
"""

from __future__ import annotations

import re
from dataclasses import replace

from tether.facts import Site
from tether.finding import Finding, Fix
from tether.report.compose import Findings
from tether.report.copies import Copy

HIDDEN = "..."

_NAME = re.compile(r"[^\W\d][\w.]*(?:\[(?:\d+|'\w*')\][\w.]*)*")
_QUOTED = re.compile(r"`[^`]*`")


def without_source(about: Findings) -> Findings:
    """Return the same report with no line of the program's text in it, and no expression."""
    trace = replace(about.trace, sources={}, sites=[bare(site) for site in about.trace.sites])
    return Findings(
        trace,
        [_bare_finding(one) for one in about.findings],
        about.gradients,
        [_bare_copy(row) for row in about.copies],
        {},
        about.selection,
        [_bare_finding(one) for one in about.defects],
    )


def bare(site: Site) -> Site:
    """Return a site without its expression and target."""
    return site._replace(expression="", target="")


def _bare_copy(row: Copy) -> Copy:
    return replace(row, site=bare(row.site), reason=_QUOTED.sub(_unquoted, row.reason))


def _bare_finding(finding: Finding) -> Finding:
    quoted = {site.expression for site in (finding.site, *(one.site for one in finding.evidence))}
    quoted |= {edit.text for edit in finding.fix.edits} if finding.fix else set()
    quoted |= {finding.subject, *finding.also}
    code = sorted((one for one in quoted if not _is_name(one)), key=len, reverse=True)

    def clean(text: str) -> str:
        for one in code:
            text = text.replace(one, HIDDEN)
        return _QUOTED.sub(_unquoted, text)

    fix = finding.fix
    return replace(
        finding,
        subject=clean(finding.subject),
        also=tuple(map(clean, finding.also)),
        site=bare(finding.site),
        message=clean(finding.message),
        evidence=tuple(
            one._replace(site=bare(one.site), text=clean(one.text)) for one in finding.evidence
        ),
        assumes=tuple(map(clean, finding.assumes)),
        fix=Fix(clean(fix.text), (), fix.safe) if fix else None,
    )


def _unquoted(found: re.Match[str]) -> str:
    return found[0] if _is_name(found[0].strip("`")) else f"`{HIDDEN}`"


def _is_name(text: str) -> bool:
    """Whether a text is a name, as parameters and variables have them, or a sole word or sign."""
    return not text.strip() or len(text) < 2 or bool(_NAME.fullmatch(text))
