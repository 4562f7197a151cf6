"""The report as JSON, schema version 1. `schema.json` beside this file is its JSON Schema."""

from __future__ import annotations

import json
from dataclasses import asdict
from functools import partial
from importlib import resources
from typing import Any

import tether
from tether.analysis.memory import Growth, Memory
from tether.facts import Site
from tether.finding import Finding
from tether.report.document.findings import Findings
from tether.report.filters import shown_path
from tether.report.tables import cuts
from tether.report.tables.gaps import gap_rows
from tether.report.tables.ties import values

SCHEMA = 1


def schema() -> dict[str, Any]:
    """Return the JSON Schema that every report conforms to."""
    text = resources.files("tether.report.formats").joinpath("schema.json").read_text("utf-8")
    whole: dict[str, Any] = json.loads(text)
    return whole


def to_json(about: Findings) -> dict[str, Any]:
    """Return the report as values that `json.dumps` takes."""
    trace, folder = about.trace, about.trace.folder
    memory = Memory.of(about.history)
    return {
        "schema": SCHEMA,
        "tether": tether.__version__,
        "torch": trace.torch,
        "program": list(trace.program),
        "outcome": trace.outcome,
        "processes": list(about.processes),
        "findings": [finding_values(one, folder) for one in about.findings],
        "defects": [finding_values(one, folder) for one in about.defects],
        "gradients": [
            {
                "name": row.name,
                "status": row.status,
                "changed": row.changed,
                "unlooked": row.unlooked,
                "finding": row.finding,
                "ranks": row.ranks,
            }
            for row in about.gradients
        ],
        "copies": [
            {
                "site": site_values(row.site, folder),
                "operation": row.operation,
                "memory": row.memory,
                "gradient": row.gradient,
                "count": row.count,
                "bytes": row.bytes,
                "needed": row.needed,
                "reason": row.reason,
                "ranks": row.ranks,
            }
            for row in about.copies
        ],
        "memory": _memory(memory, about.grown, folder),
        "cuts": [cuts.values(row, partial(site_values, folder=folder)) for row in about.cuts],
        "ties": [values(row, partial(site_values, folder=folder)) for row in about.ties],
        "gaps": [
            {"code": row.code, "reason": row.reason, "count": row.times} for row in gap_rows(trace)
        ],
    }


def dumps(about: Findings) -> str:
    """Return the report as the text of a JSON file."""
    return json.dumps(to_json(about), indent=1) + "\n"


def _memory(memory: Memory, growth: Growth | None, folder: str) -> dict[str, Any]:
    return {
        "peak_bytes": memory.peak if memory.whole else None,
        "returned_peak_bytes": None if memory.whole else memory.peak,
        "growth_per_step_bytes": growth.per_step if growth else None,
        "growth_lines": [
            {"site": site_values(one.site, folder), "bytes": one.nbytes}
            for one in (growth.lines if growth else ())
        ],
        "lines": memory_lines(memory, folder),
    }


def memory_lines(memory: Memory, folder: str) -> list[dict[str, Any]]:
    """Return what each line did to memory, as the report's JSON has it."""
    return [{**asdict(row), "site": site_values(row.site, folder)} for row in memory.lines]


def finding_values(finding: Finding, folder: str) -> dict[str, Any]:
    """Return a finding, as the report's JSON has it."""
    fix = finding.fix
    return {
        "slug": finding.slug,
        "severity": finding.severity,
        "subject": finding.subject,
        "also": list(finding.also),
        "site": site_values(finding.site, folder),
        "operation": finding.operation,
        "message": finding.message,
        "evidence": [
            {"role": one.role, "site": site_values(one.site, folder), "text": one.text}
            for one in finding.evidence
        ],
        "assumes": list(finding.assumes),
        "fix": fix
        and {
            "text": fix.text,
            "edits": [{**one._asdict(), "file": shown_path(one.file, folder)} for one in fix.edits],
            "safe": fix.safe,
        },
        "count": finding.count,
        "bytes": finding.bytes,
        "proven": finding.proven,
        "library": finding.library,
        "ranks": list(finding.ranks),
    }


def site_values(site: Site, folder: str) -> dict[str, Any]:
    """Return a place, as the report's JSON has it."""
    return {
        "file": shown_path(site.file, folder),
        "line": site.line,
        "column": site.column,
        "end_line": site.end_line,
        "end_column": site.end_column,
        "expression": site.expression,
        "function": site.function,
    }
