"""Run a program given as a string under the recorder, and say what was found, in one line each.

The expectation stands in the program itself: a comment ``#! slug subject`` on the line that the
finding must point at, ``#! slug subject (note)`` when its severity must be a note. A program
without such comments must give no finding of severity warning or error.
"""

from __future__ import annotations

import contextlib
import io
import re
import sys
import textwrap
from pathlib import Path

from tether.finding import Finding
from tether.record.session import Session
from tether.report.recording import Recording

_MARK = re.compile(r"#!\s*([\w-]+)\s+(\S+)(?:\s+\((note)\))?\s*$")


def record_program(text: str, folder: Path, name: str = "program.py") -> Recording:
    """Run `text` as a script in `folder` under the recorder; the exception it ends with is kept."""
    from tether.record.running import Program, run

    path = folder / name
    path.write_text(textwrap.dedent(text), encoding="utf-8")
    endings = []

    def finish(ending):
        endings.append(ending)
        return ending.exit_code

    saved = sys.argv, sys.path[:], sys.modules["__main__"], set(sys.modules)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            run(Program("script", str(path)), Session(), finish)
    finally:
        sys.argv, sys.path[:], sys.modules["__main__"] = saved[:3]
        for module in set(sys.modules) - saved[3]:
            file = getattr(sys.modules[module], "__file__", None) or ""
            if file.startswith(str(folder)):
                del sys.modules[module]
    recording = Recording(endings[0].trace)
    recording.error = endings[0].error
    return recording


def expected_in(text: str) -> list[str]:
    """Return what the program's own comments expect, as ``line slug subject severity``."""
    found = []
    for number, line in enumerate(textwrap.dedent(text).splitlines(), 1):
        match = _MARK.search(line)
        if match:
            found.append(f"{number} {match[1]} {match[2]} {match[3] or 'grave'}")
    return sorted(found)


def grave_or(finding: Finding) -> str:
    return "note" if finding.severity == "note" else "grave"


def found_in(recording: Recording, expected: list[str]) -> list[str]:
    """Return the findings in the same notation; notes count only where one is expected."""
    wanted_notes = {line for line in expected if line.endswith(" note")}
    found = []
    for finding in recording.findings:
        line = f"{finding.site.line} {finding.slug} {finding.subject} {grave_or(finding)}"
        if finding.severity != "note" or line in wanted_notes:
            found.append(line)
    return sorted(found)


def check_program(text: str, folder: Path) -> Recording:
    """Assert that a program gives exactly the findings that its comments expect."""
    expected = expected_in(text)
    recording = record_program(text, folder)
    assert found_in(recording, expected) == expected, "\n".join(
        f"{one.site.line} {one.slug} {one.subject}: {one.message}" for one in recording.findings
    )
    for one in recording.findings:
        _reads_well(one)
    return recording


def _reads_well(finding: Finding) -> None:
    """Assert that no name of a finding is quoted twice, or cut off, or missing."""
    steps = [str(step.text) for step in finding.evidence]
    fix = [str(finding.fix.text)] if finding.fix else []
    for text in (str(finding.message), *steps, *fix):
        assert "``" not in text, text
        assert text.count("`") % 2 == 0, text
        assert not re.search(r"`(line \d+|tensor \d+)`|  ", text), text


def says(recording: Recording, words: str) -> bool:
    """Return whether a finding's message has some words."""
    return any(words in str(one.message) for one in recording.findings)
