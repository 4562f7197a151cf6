"""The command ``tether diff``: what changed between two recordings."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from tether.cli.exits import fail

EXIT_GAINED = 1


@click.command("diff", short_help="Say what changed between two recordings.")
@click.option("--json", "json_file", metavar="FILE", help="Write JSON; - is stdout.")
@click.option("--quiet", "-q", is_flag=True, help="No text report.")
@click.option("--include", multiple=True, metavar="GLOB", help="Compare these files.")
@click.option("--omit", multiple=True, metavar="GLOB", help="Do not compare these.")
@click.option("--exit-zero", is_flag=True, help="Findings do not change the exit code.")
@click.argument("before", metavar="A")
@click.argument("after", metavar="B")
def diff_command(
    before: str,
    after: str,
    json_file: str | None,
    include: tuple[str, ...],
    omit: tuple[str, ...],
    *,
    quiet: bool,
    exit_zero: bool,
) -> None:
    """Say what changed from recording A to recording B: findings, ties, gradients, copies, bytes.

    A and B are files saved by `tether run -o`. A place is known by its file, its function and its
    expression: a line that only moved is not a change. Exits 1 when B has a finding that A has
    not, 0 when it has none, 2 when a file is no recording.
    """
    from tether.report import compare_report, progress, text
    from tether.report.compare import Differences
    from tether.report.recording import load
    from tether.store.file import RecordingError

    with progress.shown(sys.stderr):
        try:
            first, second = (load(one, include=include, omit=omit).about for one in (before, after))
        except RecordingError as error:
            fail(str(error))
        found = Differences(first, second)
        document = compare_report.build(found, before, after)
    if json_file == "-":
        click.echo(compare_report.dumps(found))
    elif json_file is not None:
        try:
            Path(json_file).write_text(compare_report.dumps(found) + "\n", encoding="utf-8")
        except OSError as error:
            fail(f"cannot write {json_file}: {error.strerror}")
    if not quiet and json_file != "-":
        text.write(document, sys.stdout)
    sys.exit(EXIT_GAINED if found.gained and not exit_zero else 0)
