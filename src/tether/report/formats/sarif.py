"""The findings as SARIF 2.1.0, for code hosts and editors.

Each verdict is a rule with its page as help; the ends of a finding are a code flow; an edit is a
fix. What could not be seen is a notification of the run.
"""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.parse import quote

import tether
from tether.facts import Site
from tether.finding import Edit, Evidence, Finding
from tether.operations.table import shown
from tether.report.comparison.stable_places import fingerprint, key
from tether.report.document.findings import Findings
from tether.report.filters import UNUSED_IGNORE, shown_path
from tether.report.formats.addresses import page_of
from tether.report.tables.gaps import gap_rows
from tether.source.syntax import source_of
from tether.verdicts import VERDICTS

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_LONGEST = 2_000  # characters of one line that are quoted
_MOST_LINES = 20  # of one expression that is quoted
_DRIVE = re.compile(r"[A-Za-z]:/")
_IDLE_PAGE = """\
# unused-ignore

## What it says
The comment on this line silences a verdict, and no such finding was made on it in this run. Remove
the comment, or correct the name in it."""
_IDLE = (UNUSED_IGNORE, "note", "a comment silences a verdict where there is none", _IDLE_PAGE)


def dumps(about: Findings) -> str:
    """Return the findings as the text of a SARIF file."""
    return json.dumps(to_sarif(about), indent=1)


def to_sarif(about: Findings) -> dict[str, Any]:
    """Return the findings as a SARIF log with one run.

    Columns count characters of the text (`unicodeCodePoints`), paths are relative to the folder
    of the program where they lie under it.
    """
    slugs = list(dict.fromkeys(finding.slug for finding in about.findings))
    results = _Results(about, {slug: number for number, slug in enumerate(slugs)})
    invocation: dict[str, Any] = {"executionSuccessful": True}
    notes = [_notification(reason, count) for _, reason, count in gap_rows(about.trace)]
    if notes:
        invocation["toolExecutionNotifications"] = notes
    run = {
        "tool": {
            "driver": {
                "name": "tether",
                "version": tether.__version__,
                "semanticVersion": tether.__version__,
                "rules": [_rule(slug) for slug in slugs],
            }
        },
        "columnKind": "unicodeCodePoints",
        "invocations": [invocation],
        "results": [results.result(one) for one in about.findings],
    }
    return {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}


# ----------------------------------------------------------------------------------------- rules


def _rule(slug: str) -> dict[str, Any]:
    """Return a verdict as a rule: its summary, what it says, and its page as help."""
    known = {one.slug: (one.slug, one.severity, one.summary, one.page.strip()) for one in VERDICTS}
    if slug not in (*known, _IDLE[0]):
        return {"id": slug, "name": _title(slug)}
    _, severity, summary, page = known.get(slug, _IDLE)
    address = page_of(slug)
    return {
        "id": slug,
        "name": _title(slug),
        **({"helpUri": address} if address else {}),
        "shortDescription": {"text": _sentence(summary)},
        "fullDescription": {"text": _says(page)},
        "help": {"text": page, "markdown": page},
        "defaultConfiguration": {"level": severity},  # SARIF's words are ours
        "properties": {"tags": ["pytorch"], "precision": "high"},
    }


def _title(slug: str) -> str:
    return "".join(word.capitalize() for word in slug.split("-"))


def _sentence(text: str) -> str:
    text = text.strip()
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")


def _says(page: str) -> str:
    """Return the first paragraph under "What it says" of a verdict's page, or the whole page."""
    found = re.search(r"^## What it says\n+(.+?)(?:\n\n|\n#|\Z)", page, re.DOTALL | re.MULTILINE)
    return " ".join((found[1] if found else page).split())


def _notification(reason: str, count: int) -> dict[str, Any]:
    times = f" ({count:,} times)" if count > 1 else ""
    return {"level": "note", "message": {"text": reason + times}}


# --------------------------------------------------------------------------------------- results


class _Results:
    def __init__(self, about: Findings, rules: dict[str, int]) -> None:
        self.about, self.rules = about, rules
        self.folder = about.trace.folder

    def result(self, finding: Finding) -> dict[str, Any]:
        made: dict[str, Any] = {
            "ruleId": finding.slug,
            "ruleIndex": self.rules[finding.slug],
            "level": finding.severity,
            "message": {"text": finding.message or finding.slug},
            "locations": [self._location(finding.site)],
            "occurrenceCount": max(1, finding.count),
            "partialFingerprints": {"site/v1": self._fingerprint(finding)},
        }
        made |= self._flow(finding)
        fix = finding.fix
        edited = fix is not None and bool(fix.edits)
        if fix is not None and edited:
            made["fixes"] = [self._fix(fix.text, fix.edits)]
        bag = {
            "subject": finding.subject,
            "also": list(finding.also),
            "assumes": list(finding.assumes),
            "bytes": finding.bytes,
            "fix": fix.text if fix is not None else None,
            "safe": fix.safe if fix is not None and edited else None,
            "proven": finding.proven,
        }
        made["properties"] = {name: value for name, value in bag.items() if value not in (None, [])}
        return made

    def _flow(self, finding: Finding) -> dict[str, Any]:
        """Return the ends of a finding as a flow, and those elsewhere as related places."""
        ends = self._ends(finding)
        if len(ends) < 2:
            return {}
        places = [self._location(end.site, end.text or end.role) for end in ends]
        flow = [
            {"location": place, "executionOrder": number, "importance": "essential"}
            for number, place in enumerate(places, 1)
        ]
        related = [
            {"id": number, **place}
            for number, (end, place) in enumerate(zip(ends, places, strict=True), 1)
            if end.site[:5] != finding.site[:5]
        ]
        made: dict[str, Any] = {"codeFlows": [{"threadFlows": [{"locations": flow}]}]}
        return made | {"relatedLocations": related} if related else made

    def _ends(self, finding: Finding) -> list[Evidence]:
        """Return the places of the story; the finding's own is always one of them."""
        ends = list(finding.evidence)
        if not any(one.site[:5] == finding.site[:5] for one in ends):
            called = shown(finding.operation)
            ends.insert(0, Evidence("", finding.site, f"{called} here" if called else finding.slug))
        return ends

    def _fingerprint(self, finding: Finding) -> str:
        place = key(finding.site, finding.operation, self.folder)
        return fingerprint(place, finding.slug, finding.subject)

    def _uri(self, file: str) -> str:
        """Return a path as a URI; one that is not under the folder stays absolute."""
        shown = shown_path(file, self.folder)
        drive = bool(_DRIVE.match(shown))
        path = quote(shown, safe="/:" if drive else "/", errors="surrogateescape")
        return f"file:///{path}" if drive else f"file://{path}" if path.startswith("/") else path

    def _location(self, site: Site, text: str = "") -> dict[str, Any]:
        place: dict[str, Any] = {"artifactLocation": {"uri": self._uri(site.file)}}
        if site.line > 0 and site.file:
            place["region"] = _region(site)
            last = max(site.line, site.end_line)
            lines = self._lines(site.file, site.line, last)
            if lines.strip():
                place["contextRegion"] = {
                    "startLine": site.line,
                    "endLine": last,
                    "snippet": {"text": lines},
                }
        made: dict[str, Any] = {"physicalLocation": place} if site.file else {}
        if site.function:
            made["logicalLocations"] = [{"fullyQualifiedName": site.function, "kind": "function"}]
        if text:
            made["message"] = {"text": text}
        return made

    def _lines(self, file: str, first: int, last: int) -> str:
        """Return whole lines of source, or "" where they are not known or too many to quote."""
        text = self.about.trace.sources.get(file, "")
        if not text or last - first >= _MOST_LINES:
            return ""
        source = source_of(file, text)
        return "\n".join(source.line(at)[:_LONGEST] for at in range(first, last + 1))

    def _fix(self, text: str, edits: tuple[Edit, ...]) -> dict[str, Any]:
        by_file: dict[str, list[Edit]] = {}
        for edit in edits:
            by_file.setdefault(edit.file, []).append(edit)
        return {
            "description": {"text": text},
            "artifactChanges": [
                {
                    "artifactLocation": {"uri": self._uri(file)},
                    "replacements": [
                        {"deletedRegion": _region(edit), "insertedContent": {"text": edit.text}}
                        for edit in group
                    ],
                }
                for file, group in by_file.items()
            ],
        }


def _region(place: Site | Edit) -> dict[str, int]:
    region = {"startLine": place.line}
    if place.column > 0:
        region["startColumn"] = place.column
    if place.end_line >= place.line:
        region["endLine"] = place.end_line
        if place.end_column > 0:
            region["endColumn"] = place.end_column
    return region
