"""The command ``tether report``: the report of a saved recording, again."""

from __future__ import annotations

import os
import sys
from typing import Any

import click

from tether.cli.reporting import (
    Start,
    chosen,
    exit_code,
    load_recording,
    report_options,
    to_stdout,
    write_reports,
)


@click.command("report", short_help="Report a saved recording again.")
@report_options
@click.argument("recordings", nargs=-1, required=True, metavar="RECORDING...")
def report_command(recordings: tuple[str, ...], **options: Any) -> None:
    """Report a saved RECORDING again; several (one per rank) are merged.

    With --json - or --sarif - nothing else is written to stdout.
    """
    from tether.report import progress

    to_stdout(options)
    with progress.shown(sys.stderr):
        recording = load_recording(recordings, **chosen(options))
        recording.analyse()
    start = Start(os.getcwd(), sys.stdout, sys.stderr)
    failed = write_reports(recording, options, start, sys.stdout)
    sys.exit(failed or exit_code(recording, options))
