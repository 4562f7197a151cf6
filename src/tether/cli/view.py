"""The command ``tether view``: a recording to look around in, in the terminal or in a browser."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING, Any

import click

from tether.cli.exits import fail
from tether.cli.program import ProgramCommand, program_of, program_options
from tether.cli.reporting import chosen, load_recording, selection_options

if TYPE_CHECKING:
    from tether.record.running import Program

NEEDS_TEXTUAL = (
    "the terminal view needs textual, the extra 'view': pip install 'tether[view]'; "
    "--web shows the report in a browser"
)
NEEDS_TERMINAL = (
    "tether view needs a terminal; `tether report` prints the report, --web shows it in a browser"
)


@click.command("view", cls=ProgramCommand, short_help="Look around in a recording.")
@program_options("RECORDING | SCRIPT [ARGS]...")
@click.option("--web", is_flag=True, help="In a browser: serve the report to this machine.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    help="With --web: the port. Without it, one that is free.",
)
@click.option("-o", "--output", metavar="FILE", help="With --web SCRIPT: keep the recording.")
@selection_options
def view_command(
    module: str | None,
    code: str | None,
    arguments: tuple[str, ...],
    output: str | None,
    port: int,
    *,
    web: bool,
    **options: Any,
) -> None:
    """Look around in a RECORDING: its findings, its source with what happened there, why of a name.

    Arrows or j and k move, Enter goes from a finding to its line and from a line to the why of its
    tensors, / asks about a name, q quits. The extra 'view' has what it needs.

    --web serves the report as a page instead, on 127.0.0.1 alone. The page follows a recording that
    grows; with SCRIPT, MODULE or CODE in its place the program is run, and its findings appear
    while it runs. Everything after the program belongs to it.
    """
    if not web:
        if module is not None or code is not None or len(arguments) != 1:
            fail("tether view takes one recording; with --web it also runs a program")
        _explore(arguments[0], chosen(options))
    elif module is None and code is None and len(arguments) == 1 and _is_recording(arguments[0]):
        _follow(arguments[0], chosen(options), port)
    else:
        program = program_of(module, code, arguments)
        if program.kind == "script" and not os.path.exists(program.target):
            fail(f"there is no file {program.target!r}: give a recording, or a script to run")
        _run(program, chosen(options), port, output)


def _explore(recording: str, selection: dict[str, Any]) -> None:
    """Show a recording in the terminal."""
    try:
        from tether.cli.explorer import Explorer
    except ModuleNotFoundError:
        fail(NEEDS_TEXTUAL)
    from tether.report import progress

    with progress.shown(sys.stderr):
        found = load_recording((recording,), **selection)
        if not (sys.stdin.isatty() and sys.stdout.isatty()):
            fail(NEEDS_TERMINAL)
        found.analyse()
        app = Explorer(found)
    app.run()


def _is_recording(file: str) -> bool:
    """Whether a file begins as a recording does."""
    from tether.store.frames import MAGIC

    try:
        with open(file, "rb") as stream:
            return stream.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def _follow(file: str, selection: dict[str, Any], port: int) -> None:
    """Serve the report of a recording, and of what is added to it."""
    from tether.cli.serving import Watched, serve

    load_recording((file,), **selection)  # one that cannot be read is said to be none at once
    sys.exit(serve(Watched(file, selection), port))


def _run(program: Program, selection: dict[str, Any], port: int, output: str | None) -> None:
    """Run a program in its own process, and serve the report of what it has recorded so far."""
    from tether.cli.serving import Watched, serve

    with tempfile.TemporaryDirectory(prefix="tether-") as folder:
        file = os.path.abspath(output) if output else os.path.join(folder, "run.tether")
        flag = {"script": ["--"], "module": ["-m"], "code": ["-c"]}[program.kind]
        command = [sys.executable, "-m", "tether", "run", "--quiet", "--output", file, *flag]
        running = subprocess.Popen([*command, program.target, *program.arguments])  # noqa: S603
        if hasattr(os, "nice"):
            os.nice(10)  # the program comes first
        sys.exit(serve(Watched(file, selection, running), port))
