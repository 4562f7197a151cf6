"""The findings as SARIF 2.1.0, for code hosts and editors."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import tether
from tether.facts import Site
from tether.finding import Edit, Finding
from tether.report.build import Findings
from tether.report.filters import shown_path


def dumps(about: Findings) -> str:
    """Return the findings as the text of a SARIF file."""
    return json.dumps(to_sarif(about), indent=1)


def to_sarif(about: Findings) -> dict[str, Any]:
    """Return the findings as a SARIF log with one run.

    Columns count characters of the text (`unicodeCodePoints`), paths are relative to the folder
    of the program where they lie under it.
    """
    slugs = sorted({finding.slug for finding in about.findings})
    folder = about.trace.folder
    run = {
        "tool": {
            "driver": {
                "name": "tether",
                "version": tether.__version__,
                "rules": [{"id": slug, "name": _title(slug)} for slug in slugs],
            }
        },
        "columnKind": "unicodeCodePoints",
        "results": [_result(one, slugs.index(one.slug), folder) for one in about.findings],
    }
    return {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [run],
    }


def _title(slug: str) -> str:
    return "".join(word.capitalize() for word in slug.split("-"))


def _result(finding: Finding, rule: int, folder: str) -> dict[str, Any]:
    places = [(one.site, one.text or one.role) for one in finding.evidence]
    made: dict[str, Any] = {
        "ruleId": finding.slug,
        "ruleIndex": rule,
        "level": finding.severity,  # SARIF's words are ours
        "message": {"text": finding.message or finding.slug},
        "locations": [_location(finding.site, folder)],
        "occurrenceCount": max(1, finding.count),
    }
    if places:
        flow = [{"location": _location(site, folder, text)} for site, text in places]
        made["codeFlows"] = [{"threadFlows": [{"locations": flow}]}]
    if finding.fix and finding.fix.edits:
        made["fixes"] = [_fix(finding.fix.text, finding.fix.edits, folder)]
    return made


def _uri(file: str, folder: str) -> str:
    """Return a path as a URI; one that is not under the folder stays absolute."""
    shown = shown_path(file, folder)
    path = quote(shown, safe="/", errors="surrogateescape")
    return f"file://{path}" if shown.startswith("/") else path


def _location(site: Site, folder: str, text: str = "") -> dict[str, Any]:
    place: dict[str, Any] = {"artifactLocation": {"uri": _uri(site.file, folder)}}
    if site.line > 0:
        place["region"] = _region(site)
    made: dict[str, Any] = {"physicalLocation": place}
    if site.function:
        made["logicalLocations"] = [{"fullyQualifiedName": site.function}]
    if text:
        made["message"] = {"text": text}
    return made


def _region(place: Site | Edit) -> dict[str, int]:
    region = {"startLine": place.line}
    if place.column > 0:
        region["startColumn"] = place.column
    if place.end_line >= place.line:
        region["endLine"] = place.end_line
        if place.end_column > 0:
            region["endColumn"] = place.end_column
    return region


def _fix(text: str, edits: tuple[Edit, ...], folder: str) -> dict[str, Any]:
    by_file: dict[str, list[Edit]] = {}
    for edit in edits:
        by_file.setdefault(edit.file, []).append(edit)
    return {
        "description": {"text": text},
        "artifactChanges": [
            {
                "artifactLocation": {"uri": _uri(file, folder)},
                "replacements": [
                    {"deletedRegion": _region(edit), "insertedContent": {"text": edit.text}}
                    for edit in group
                ],
            }
            for file, group in by_file.items()
        ],
    }
