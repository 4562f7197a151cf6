"""The command ``tether why``: one question about one tensor."""

from __future__ import annotations

from pathlib import Path

import click

from tether.cli.exits import fail
from tether.cli.reporting import load_recording


@click.command("why", short_help="Explain one tensor: its gradient, its memory, its writers.")
@click.argument("name")
@click.argument("recording", required=False)
def why_command(name: str, recording: str | None) -> None:
    """Say why the parameter NAME has no gradient, or what a tensor shares and who wrote it.

    NAME is a name of the report, its end if only one has it, or a line: model.py:28.
    RECORDING is a file saved by `tether run -o`; without it, the newest *.tether file here.
    """
    if recording is not None and Path(name).is_file() and not Path(recording).is_file():
        name, recording = recording, name  # the other way round
    if recording is None:
        found = sorted(Path().glob("*.tether"), key=lambda file: file.stat().st_mtime)
        if not found:
            fail("no recording: make one with  tether run -o run.tether SCRIPT")
        recording = str(found[-1])
        click.echo(f"tether: from {recording}, the newest recording here", err=True)
    try:
        answer = load_recording((recording,)).why(name)
    except LookupError as error:
        fail(str(error.args[0]) if error.args else f"no tensor is called {name!r}")
    click.echo(str(answer))
