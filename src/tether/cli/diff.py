"""The command ``tether diff``: what changed between two recordings."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from tether.cli.exits import fail

EXIT_GAINED = 1


@click.command("diff", short_help="Say what changed between two recordings.")
@click.option("--json", "json_file", metavar="FILE", help="Write JSON; - is stdout.")
@click.option("--html", "html_file", metavar="FILE", help="Write one HTML page.")
@click.option("--quiet", "-q", is_flag=True, help="No text report.")
@click.option("--include", multiple=True, metavar="GLOB", help="Compare these files.")
@click.option("--omit", multiple=True, metavar="GLOB", help="Do not compare these.")
@click.option("--exit-zero", is_flag=True, help="Findings do not change the exit code.")
@click.argument("before", metavar="A")
@click.argument("after", metavar="B")
def diff_command(before: str, after: str, **options: Any) -> None:
    """Say what changed from recording A to recording B: findings, ties, gradients, copies, bytes.

    A and B are files saved by `tether run -o`. A place is known by its file, its function and its
    expression: a line that only moved is not a change. Exits 1 when B has a finding that A has
    not, 0 when it has none, 2 when a file is no recording.
    """
    from tether.report import progress
    from tether.report.comparison import compare_report
    from tether.report.comparison.compare import Differences
    from tether.report.document import text
    from tether.report.page.shell import document_page
    from tether.report.recording import load
    from tether.store.file import RecordingError

    chosen = {name: options[name] for name in ("include", "omit")}
    with progress.shown(sys.stderr):
        try:
            first, second = (load(one, **chosen).about for one in (before, after))
        except RecordingError as error:
            fail(str(error))
        found = Differences(first, second)
        document = compare_report.build(found, before, after)
    json_file, html_file = options["json_file"], options["html_file"]
    if json_file == "-":
        click.echo(compare_report.dumps(found))
    elif json_file is not None:
        _write(json_file, compare_report.dumps(found) + "\n")
    if html_file is not None:
        _write(html_file, document_page(document))
    if not options["quiet"] and json_file != "-":
        text.write(document, sys.stdout)
    sys.exit(EXIT_GAINED if found.gained and not options["exit_zero"] else 0)


def _write(file: str, text: str) -> None:
    try:
        Path(file).write_text(text, encoding="utf-8")
    except OSError as error:
        fail(f"cannot write {file}: {error.strerror}")
