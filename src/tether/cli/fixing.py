"""Carrying repairs out: the diff of what would change, the files written, and a run that confirms.

Safe edits are those of findings that `tether.measure.proving` proved: no bit of any result changes.
The others are made only when they are asked for. A file is written with the encoding it was read
with, and only when it still is the text that ran. After writing, the program runs once more: where
only safe edits were made it must hand out what it did before, or the files are put back.
"""

from __future__ import annotations

import io
import os
import tokenize
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import click

from tether.cli.exits import EXIT_USAGE
from tether.cli.reporting import Options, Start
from tether.finding import Edit, Finding
from tether.measure import proving
from tether.measure.proving import CannotProveError, Run, differences, noise_of
from tether.record.running import Program
from tether.report.recording import Recording
from tether.source.edits import apply, by_file, diff


def prove(recording: Recording, program: Program, start: Start) -> None:
    """Run the program again to prove what can be proven; say so when it cannot be run."""
    runner = proving.runner(program, start.folder)
    try:
        kept, refuted = proving.prove(recording.findings, recording.history, runner, start.tell)
    except CannotProveError as error:
        start.tell(f"nothing was proven: {error}")
    else:
        recording.judged(kept, refuted)


def fix(recording: Recording, program: Program, options: Options, start: Start) -> int:
    """Show the edits, make them where that was asked for; return 2 when that failed."""
    unsafe = options["unsafe_fixes"]
    found = repairs(recording, unsafe=unsafe)
    for line in found.refused:
        start.tell(line)
    if not found.changes:
        more = f"; {found.unsafe} unsafe, see --unsafe-fixes" if found.unsafe else ""
        start.tell(f"there is nothing to edit{more}")
        return 0
    click.echo(found.diff, file=start.stderr, nl=False)
    if not options["write"]:
        many = "1 finding" if found.findings == 1 else f"{found.findings} findings"
        start.tell(f"{many} can be repaired so; --write makes these edits")
        return 0
    try:
        runner = proving.runner(program, start.folder)
        changed = confirm(found, runner, start.tell, unsafe=unsafe)
    except CannotProveError as error:
        start.tell(f"nothing was written: {error}")
        return EXIT_USAGE
    return _outcome(changed, start, unsafe=unsafe)


def _outcome(changed: Sequence[str], start: Start, *, unsafe: bool) -> int:
    """Say what came of the edits that were written; return 2 where they were taken back."""
    if not changed:
        start.tell("the edits were made; a run with them gave the same results, bit for bit")
    elif unsafe:
        start.tell(f"the edits were made; with them: {'; '.join(changed[:5])}")
    else:
        start.tell(f"the files are as they were: with the edits {'; '.join(changed[:5])}")
        return EXIT_USAGE
    return 0


@dataclass
class ChangedFile:
    """One file, before and after."""

    path: str
    shown: str
    before: str
    after: str
    encoding: str
    raw: bytes


@dataclass
class Repairs:
    """What can be repaired by editing the program's text."""

    changes: list[ChangedFile] = field(default_factory=list)
    findings: int = 0  # repaired by the changes
    unsafe: int = 0  # that have edits, none of them proven safe
    refused: list[str] = field(default_factory=list)  # files that cannot be edited, and why

    @property
    def diff(self) -> str:
        """The changes as ``patch`` takes them."""
        return "".join(diff(one.shown, one.before, one.after) for one in self.changes)


def repairs(recording: Recording, *, unsafe: bool) -> Repairs:
    """Return what the findings of a recording would change; nothing is written."""
    found = Repairs()
    wanted = [one for one in recording.findings if one.fix is not None and one.fix.edits]
    found.unsafe = sum(not _safe(one) for one in wanted)
    for path, edits in by_file(wanted, unsafe=unsafe).items():
        made = _changed(path, edits, recording)
        if isinstance(made, str):
            found.refused.append(made)
        else:
            found.changes.append(made)
    changed = {one.path for one in found.changes}
    found.findings = sum(
        any(edit.file in changed for edit in one.fix.edits)
        for one in wanted
        if one.fix is not None and (unsafe or _safe(one))
    )
    return found


def _changed(path: str, edits: list[Edit], recording: Recording) -> ChangedFile | str:
    """Return a file with its edits made, or why they cannot be."""
    shown = os.path.relpath(path, recording.trace.folder or ".")
    try:
        raw = Path(path).read_bytes()
        encoding, _ = tokenize.detect_encoding(io.BytesIO(raw).readline)
        text = raw.decode(encoding)
    except (OSError, SyntaxError, UnicodeDecodeError) as error:
        return f"{shown} cannot be read: {error}"
    if _plain(text) != _plain(recording.trace.sources.get(path, "")):
        return f"{shown} is not the text that ran; it was left as it is"
    return ChangedFile(path, shown, text, apply(text, edits), encoding, raw)


def write(found: Repairs) -> list[str]:
    """Write the changes; return what could not be written, and why."""
    failed = []
    for one in found.changes:
        try:
            Path(one.path).write_bytes(one.after.encode(one.encoding))
        except OSError as error:
            failed.append(f"{one.shown} was not written: {error.strerror}")
    return failed


def restore(found: Repairs) -> None:
    """Put every file back as it was, byte for byte."""
    for one in found.changes:
        Path(one.path).write_bytes(one.raw)


def confirm(
    found: Repairs, run: Run, tell: Callable[[str], None], *, unsafe: bool
) -> Sequence[str]:
    """Write the changes, run the program before and after, and return what it does differently.

    Where only safe edits were made and it does anything differently, the files are put back.
    """
    tell("running the program as it was")
    before, again = run([], 0), run([], 0)
    failed = write(found)
    try:
        tell("running it as it is now")
        after = run([], 60 + 10 * before.seconds)
        changed = differences(before, after, noise_of(before, again))
    except CannotProveError as error:
        changed = [str(error)]
    if changed and not unsafe:
        restore(found)
    return [*failed, *changed]


def _safe(finding: Finding) -> bool:
    return finding.fix is not None and finding.fix.safe


def _plain(text: str) -> str:
    return text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n").rstrip("\n")
