"""The command ``tether memory``: which lines hold tensor memory, and what the peak consists of."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TextIO

import click

if TYPE_CHECKING:
    from tether.facts import Trace
    from tether.record.running import Ending


def _fail(message: str) -> NoReturn:
    click.echo(f"tether: {message}", err=True)
    raise SystemExit(2)


@click.command(
    "memory",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.option("-m", "module", metavar="MODULE", help="Run a module, as python -m does.")
@click.option("-c", "code", metavar="CODE", help="Run a string of code, as python -c does.")
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
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="SCRIPT [ARGS]...")
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
        _fail(f"cannot write {json_file}: there is no such folder")
    if plot:
        try:
            plots.check(plot)
        except plots.CannotPlot as error:
            _fail(str(error))
    try:
        from tether.record import running
        from tether.record.session import Session
    except ImportError as error:
        _fail(f"PyTorch cannot be imported: {error}. Install it: pip install torch")
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
        program = running.Program.of(module, code, arguments)
        status = running.run(program, Session(memory=True), finish)
    except running.CannotRunError as error:
        _fail(str(error))
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
