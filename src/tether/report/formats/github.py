"""The findings as annotations of GitHub Actions: workflow commands, one line each.

The syntax and what has to be escaped: GitHub's documentation, "Workflow commands for GitHub
Actions", and the toolkit that writes them (actions/toolkit, packages/core/src/command.ts).
GitHub shows at most ten of each kind for a step, so the gravest come first.
"""

from __future__ import annotations

from collections.abc import Iterator

from tether.analysis.speaking import bytes_text
from tether.facts import Site
from tether.finding import Finding
from tether.report.document.compose import finding_block
from tether.report.document.findings import Findings
from tether.report.document.text import visible
from tether.report.filters import shown_path

_COMMANDS = {"error": "error", "warning": "warning", "note": "notice"}


def dumps(about: Findings, root: str) -> str:
    """Return a line for each finding; files are named relative to `root`, the checkout."""
    return "".join(f"{_command(n, one, about, root)}\n" for n, one in enumerate(about.findings, 1))


def _command(number: int, finding: Finding, about: Findings, root: str) -> str:
    title = f"{finding.slug}: {finding.subject}" if finding.subject else finding.slug
    properties = {**_place(finding.site, root), "title": visible(title)}
    listed = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
    message = "\n".join(visible(line) for line in _message(number, finding, about))
    return f"::{_COMMANDS[finding.severity]} {listed}::{_data(message)}"


def _place(site: Site, root: str) -> dict[str, str]:
    """Return where it is, as far as that is known; columns only where they lie on one line."""
    if not site.file:
        return {}
    place = {"file": visible(shown_path(site.file, root))}
    if site.line > 0:
        place["line"] = str(site.line)
        if site.end_line > site.line:
            place["endLine"] = str(site.end_line)
        elif site.column > 0:
            place["col"] = str(site.column)
    return place


def _message(number: int, finding: Finding, about: Findings) -> Iterator[str]:
    """Yield what the text report says of it, without the source that GitHub shows beside it."""
    block = finding_block(number, finding, about)
    yield finding.message or finding.slug
    for end in (*block.ends, *block.evidence):
        yield f"- {end.place}: {end.role}" if end.role else f"- {end.place}"
    if finding.also:
        yield f"the same holds for {', '.join(finding.also)}"
    if finding.count > 1 or finding.bytes:
        size = f", {bytes_text(finding.bytes)}" if finding.bytes else ""
        yield f"{finding.count:,} times{size}" if finding.count > 1 else size[2:]
    for text in finding.assumes:
        yield f"assumes: {text}"
    if block.fix:
        yield f"fix: {block.fix}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
