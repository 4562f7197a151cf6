"""The command ``tether memory``: which lines hold tensor memory, and what the peak consists of."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from tether.cli.exits import check_outputs, fail
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
@click.option("--html", "html_file", metavar="FILE", help="Write one HTML page.")
@click.option(
    "--map",
    "moment",
    metavar="MOMENT",
    help="Also every block and the tensors on it: at the peak, the end, or after FILE:LINE.",
)
@click.option("--plot", metavar="FILE", help="Draw it: .png or .svg (extra 'plot').")
def memory_command(
    module: str | None, code: str | None, arguments: tuple[str, ...], **options: Any
) -> None:
    """Run SCRIPT and report which lines allocate and hold the memory of its tensors.

    Counted are births and deaths of tensor memory, 4 bytes as well as 4 GB, on every device. The
    report goes to stderr; everything after SCRIPT belongs to the program.
    """
    from tether.report import plots

    check_outputs((options["json_file"], options["html_file"]), options["plot"])
    program = program_of(module, code, arguments)
    from tether.record import running
    from tether.record.session import Session

    folder, stdout, stderr = os.getcwd(), sys.stdout, sys.stderr

    def finish(ending: Ending) -> int:
        try:
            text = report(ending.trace, options, folder, stderr)
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


def report(trace: Trace, options: Mapping[str, Any], folder: str, stream: TextIO) -> str:
    """Write everything asked for; return what belongs on stdout, if anything."""
    from tether.analysis.history import History
    from tether.report.document import text
    from tether.report.recording import prepare
    from tether.report.tables import memory

    prepare(trace)
    history, rows, moment = History(trace), options["rows"], options["moment"] or ""
    text.write(memory.document(history, rows), stream)
    if moment:
        text.write(memory.map_document(history, moment, rows), stream)
    if options["plot"]:
        memory.write_plot(history, os.path.join(folder, options["plot"]))
    out = ""
    for kind, make in (
        ("json_file", partial(memory.to_json, history, moment)),
        ("html_file", partial(memory.page, history, rows)),
    ):
        if options[kind] == "-":
            out += make()
        elif options[kind]:
            Path(folder, options[kind]).write_text(make(), encoding="utf-8")
    return out
