"""The report as JSON, schema version 1. `schema.json` beside this file is its JSON Schema."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib import resources
from typing import Any

import tether
from tether.facts import Site
from tether.finding import Finding
from tether.report.build import Findings, gap_counts
from tether.report.filters import shown_path

SCHEMA = 1


def schema() -> dict[str, Any]:
    """Return the JSON Schema that every report conforms to."""
    text = resources.files("tether.report").joinpath("schema.json").read_text("utf-8")
    whole: dict[str, Any] = json.loads(text)
    return whole


def to_json(about: Findings) -> dict[str, Any]:
    """Return the report as values that `json.dumps` takes."""
    trace, folder = about.trace, about.trace.folder
    return {
        "schema": SCHEMA,
        "tether": tether.__version__,
        "torch": trace.torch,
        "program": list(trace.program),
        "outcome": trace.outcome,
        "findings": [_finding(one, folder) for one in about.findings],
        "gradients": [
            {"name": row.name, "status": row.status, "finding": row.finding}
            for row in about.gradients
        ],
        "copies": [
            {
                "site": _site(row.site, folder),
                "operation": row.operation,
                "memory": row.memory,
                "gradient": row.gradient,
                "count": row.count,
                "bytes": row.bytes,
                "needed": row.needed,
            }
            for row in about.copies
        ],
        "memory": {"peak_bytes": peak_bytes(about), "lines": _memory_lines(about.memory, folder)},
        "gaps": [{"reason": reason, "count": count} for reason, count in gap_counts(trace)],
    }


def dumps(about: Findings) -> str:
    """Return the report as the text of a JSON file."""
    return json.dumps(to_json(about), indent=1) + "\n"


def peak_bytes(about: Findings) -> int:
    """Return the most bytes of storages that were alive at once, of those that were seen."""
    changes: list[tuple[int, int]] = []
    for storage in about.trace.storages.values():
        changes.append((storage.born, storage.nbytes))
        if storage.freed >= 0:
            changes.append((storage.freed, -storage.nbytes))
    held = peak = 0
    for _, change in sorted(changes):  # at one position what was freed goes first
        held += change
        peak = max(peak, held)
    return peak


def _memory_lines(lines: Sequence[tuple[Site, int]], folder: str) -> list[dict[str, Any]]:
    return [{"site": _site(site, folder), "bytes": size} for site, size in lines]


def _finding(finding: Finding, folder: str) -> dict[str, Any]:
    fix = finding.fix
    return {
        "slug": finding.slug,
        "severity": finding.severity,
        "subject": finding.subject,
        "also": list(finding.also),
        "site": _site(finding.site, folder),
        "operation": finding.operation,
        "message": finding.message,
        "evidence": [
            {"role": one.role, "site": _site(one.site, folder), "text": one.text}
            for one in finding.evidence
        ],
        "assumes": list(finding.assumes),
        "fix": fix
        and {
            "text": fix.text,
            "edits": [{**one._asdict(), "file": shown_path(one.file, folder)} for one in fix.edits],
        },
        "count": finding.count,
        "bytes": finding.bytes,
    }


def _site(site: Site, folder: str) -> dict[str, Any]:
    return {
        "file": shown_path(site.file, folder),
        "line": site.line,
        "column": site.column,
        "end_line": site.end_line,
        "end_column": site.end_column,
        "expression": site.expression,
        "function": site.function,
    }
