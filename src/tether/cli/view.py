"""The command ``tether view``: a recording to look around in, in the terminal."""

from __future__ import annotations

import sys

import click

from tether.cli.exits import fail
from tether.cli.reporting import load_recording

NEEDS_TEXTUAL = (
    "the terminal view needs textual, the extra 'view': pip install 'tether[view]'; "
    "--web shows the page in a browser"
)
NEEDS_TERMINAL = (
    "tether view needs a terminal; `tether report` prints the report, --web shows it in a browser"
)


@click.command("view", short_help="Look around in a recording.")
@click.argument("recording")
def view_command(recording: str) -> None:
    """Look around in a RECORDING: its findings, its source with what happened there, why of a name.

    Arrows or j and k move, Enter goes from a finding to its line and from a line to the why of its
    tensors, / asks about a name, q quits. The extra 'view' has what it needs.
    """
    try:
        from tether.cli.explorer import Explorer
    except ModuleNotFoundError:
        fail(NEEDS_TEXTUAL)
    from tether.report import progress

    with progress.shown(sys.stderr):
        found = load_recording((recording,))
        if not (sys.stdin.isatty() and sys.stdout.isatty()):
            fail(NEEDS_TERMINAL)
        found.analyse()
        app = Explorer(found)
    app.run()
