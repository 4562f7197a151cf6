"""The command ``tether memory``: which lines hold tensor memory, and what the peak consists of."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click

from tether.cli.exits import fail
from tether.cli.program import ProgramCommand, program_of, program_options

if TYPE_CHECKING:
    from tether.facts import Trace
    from tether.record.running import Ending


@click.command(
    "memory", cls=ProgramCommand, short_help="Run a program and report which lines hold memory."
)
@program_options()
@click.option(
    "--rows", default=20, show_default=True, type=click.IntRange(min=1), help="Per table."
)
@click.option("--json", "json_file", metavar="FILE", help="Write JSON; - is stdout.")
@click.option(
    "--map",
    "moment",
    metavar="MOMENT",
    help="Also every block and the tensors on it: at the peak, the end, or after FILE:LINE.",
)
@click.option("--plot", metavar="FILE", help="Draw it: .png, .svg or .html (extra 'plot').")
def memory_command(
    module: str | None,
    code: str | None,
    rows: int,
    json_file: str | None,
    moment: str | None,
    plot: str | None,
    arguments: tuple[str, ...],
) -> None:
    """Run SCRIPT and report which lines allocate and hold the memory of its tensors.

    Counted are births and deaths of tensor memory, 4 bytes as well as 4 GB, on every device. The
    report goes to stderr; everything after SCRIPT belongs to the program.
    """
    from tether.report import plots

    if json_file and json_file != "-" and not Path(json_file).absolute().parent.is_dir():
        fail(f"cannot write {json_file}: there is no such folder")
    if plot:
        try:
            plots.check(plot)
        except plots.CannotPlot as error:
            fail(str(error))
    program = program_of(module, code, arguments)
    from tether.record import running
    from tether.record.session import Session

    folder, stdout, stderr = os.getcwd(), sys.stdout, sys.stderr

    def finish(ending: Ending) -> int:
        try:
            text = report(ending.trace, rows, json_file, moment or "", plot, folder, stderr)
        except (OSError, LookupError, plots.CannotPlot) as error:
            click.echo(f"tether: {error}", file=stderr)
            return ending.exit_code or 2
        if text:
            stdout.write(text)
            stdout.flush()
        return ending.exit_code

    try:
        status = running.run(program, Session(memory=True), finish)
    except running.CannotRunError as error:
        fail(str(error))
    sys.exit(status)


def report(
    trace: Trace,
    rows: int,
    json_file: str | None,
    moment: str,
    plot: str | None,
    folder: str,
    stream: TextIO,
) -> str:
    """Write everything asked for; return the JSON that belongs on stdout, if any."""
    from tether.analysis.history import History
    from tether.report import memory, text
    from tether.report.recording import prepare

    prepare(trace)
    history = History(trace)
    text.write(memory.document(history, rows), stream)
    if moment:
        text.write(memory.map_document(history, moment, rows), stream)
    if plot:
        memory.write_plot(history, os.path.join(folder, plot))
    if json_file == "-":
        return memory.to_json(history, moment)
    if json_file:
        Path(folder, json_file).write_text(memory.to_json(history, moment), encoding="utf-8")
    return ""
