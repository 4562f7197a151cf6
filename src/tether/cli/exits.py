"""What a command ends in: its exit codes, and bad input as one line."""

from __future__ import annotations

from typing import NoReturn

import click

EXIT_USAGE = 2
EXIT_FINDINGS = 3  # --fail-on
EXIT_NOTHING = 4  # --fail-on, and the work was done where it was not recorded


def fail(message: str) -> NoReturn:
    """End with one line on stderr that says what is wrong and what to do."""
    click.echo(f"tether: {message}", err=True)
    raise SystemExit(EXIT_USAGE)
