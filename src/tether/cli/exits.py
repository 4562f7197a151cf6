"""What a command ends in: its exit codes, and bad input as one line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import click

EXIT_USAGE = 2
EXIT_FINDINGS = 3  # --fail-on
EXIT_NOTHING = 4  # --fail-on, and the work was done where it was not recorded


def fail(message: str) -> NoReturn:
    """End with one line on stderr that says what is wrong and what to do."""
    click.echo(f"tether: {message}", err=True)
    raise SystemExit(EXIT_USAGE)


def check_outputs(files: Sequence[str | None], plot: str | None) -> None:
    """End where a file that was asked for cannot be written: before anything is measured."""
    for file in files:
        if file and file != "-" and not Path(file).absolute().parent.is_dir():
            fail(f"cannot write {file}: there is no such folder")
    if plot:
        from tether.report import plots

        try:
            plots.check(plot)
        except plots.CannotPlot as error:
            fail(str(error))
