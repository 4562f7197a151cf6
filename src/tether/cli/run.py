"""The command ``tether run``: a program as it is, and what ties its tensors."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tether.cli.exits import EXIT_USAGE, fail
from tether.cli.program import ProgramCommand, passed_on, program_of, program_options
from tether.cli.reporting import (
    FILES,
    Options,
    Start,
    chosen,
    exit_code,
    report_options,
    to_stdout,
    write_reports,
)

if TYPE_CHECKING:
    from tether.record.running import Ending, Program
    from tether.report.recording import Recording


@click.command("run", cls=ProgramCommand, short_help="Run a program and report its findings.")
@program_options()
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    help="Save the recording; {rank} or {pid} in the name gives each process a file of its own.",
)
@click.option(
    "--children/--no-children",
    default=None,
    help="Also record the processes that the program starts. Without either option, only those that"
    " a launcher (torchrun, accelerate) starts as ranks.",
)
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=500_000,
    show_default=True,
    help="Keep the last N calls.",
)
@click.option("--steps", metavar="A:B", help="Record only these optimizer steps, as a slice.")
@click.option(
    "--sample",
    is_flag=True,
    help="Record the first optimizer steps, then ever rarer ones: for runs of hours.",
)
@click.option("--eager", is_flag=True, help="Run torch.compile eagerly, to record its operations.")
@click.option("--memory", is_flag=True, help="Also say which line holds the memory.")
@click.option(
    "--prove",
    is_flag=True,
    help="Run the program again without the needless copies, and compare every result.",
)
@click.option("--fix", is_flag=True, help="Show the edits that are proven safe, as a diff.")
@click.option("--unsafe-fixes", is_flag=True, help="With --fix: the other edits as well.")
@click.option("--write", is_flag=True, help="With --fix: apply the edits, re-run to verify.")
@report_options
def run_command(
    module: str | None,
    code: str | None,
    arguments: tuple[str, ...],
    output: str | None,
    limit: int,
    **options: Any,
) -> None:
    """Run SCRIPT unmodified under the recorder and report when it ends.

    Everything after SCRIPT, MODULE or CODE belongs to the program. --prove runs it at least three
    times more, each in a separate process with its standard input closed; what it writes to files
    it writes again.
    """
    if (options["write"] or options["unsafe_fixes"]) and not options["fix"]:
        fail("--write and --unsafe-fixes need --fix")
    if options["sample"] and options["steps"] is not None:
        fail("--sample and --steps exclude each other")
    program = program_of(module, code, arguments)
    to_stdout(options)
    _check_writable(output, *(options[kind] for kind in FILES))
    from tether.cli import processes
    from tether.record import running
    from tether.record.session import Session

    # The program may go elsewhere; the files asked for are relative to the start.
    start = Start(os.getcwd(), sys.stdout, sys.stderr, time.perf_counter())

    try:
        with processes.recorded(options, limit, output) as children:
            session = Session(
                limit,
                steps=_slice(options["steps"]),
                sample=options["sample"],
                eager=options["eager"],
                memory=options["memory"],
                children=children,
            )

            def finish(ending: Ending) -> int:
                file = processes.file_of(output, ending.trace.process)
                try:
                    return _finish(ending, program, file, {**options, "children": children}, start)
                finally:  # what follows may be an `os._exit`
                    if children is not None:
                        children.remove()

            journal = processes.file_of(output, session.recorder.tape.process)
            status = running.run(program, session, finish, journal)
    except running.CannotRunError as error:
        fail(str(error))
    sys.exit(status)


def _slice(text: str | None) -> tuple[int, int | None] | None:
    """Read A:B, both counted from 0, either left out."""
    if text is None:
        return None
    first, colon, last = text.partition(":")
    try:
        if not colon:
            raise ValueError
        bounds = (int(first or 0), int(last) if last else None)
    except ValueError:
        fail(f"--steps takes A:B, two whole numbers, not {text!r}")
    if bounds[0] < 0 or (bounds[1] is not None and bounds[1] <= bounds[0]):
        fail(f"--steps {text} holds no step: A must be at least 0 and less than B")
    return bounds


def _check_writable(output: str | None, *files: str | None) -> None:
    """Refuse an impossible output before the program has run for hours."""
    for file in (output, *files):
        if file is None or file == "-":
            continue
        folder = Path(file).absolute().parent
        if not folder.is_dir():
            fail(f"cannot write {file}: there is no folder {folder}")
        if Path(file).is_dir():
            fail(f"cannot write {file}: it is a folder")
        if file == output and Path(file).exists() and not Path(file).is_file():
            fail(f"cannot write {file}: a recording needs a separate file")
        if not os.access(folder, os.W_OK):
            fail(f"cannot write {file}: the folder {folder} may not be written to")


def _finish(
    ending: Ending, program: Program, output: str | None, options: Options, start: Start
) -> int:
    """Save and report an ended run; return the exit code."""
    ran = time.perf_counter() - start.began
    from tether.cli import fixing, processes
    from tether.report import progress
    from tether.report.filters import Selection
    from tether.report.recording import Recording

    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:  # noqa: BLE001, S112 -- the program may have closed it
            continue
    with progress.shown(start.stderr):
        recording = Recording(ending.trace, selection=Selection(**chosen(options)))
        recording.with_memory |= options["memory"]
        recording.analyse()
    _measure(recording, ran)
    if options["prove"] or options["fix"]:
        fixing.prove(recording, program, start)
    own, recording = recording, processes.with_children(recording, options, start)
    failed = _save(processes.kept(own, recording, options["children"]), output, start)
    failed = write_reports(recording, options, start, start.stderr) or failed
    hint = passed_on(program, run_command, ending.trace.sources)
    if hint and not options["quiet"]:
        start.tell(hint)
    if options["fix"]:
        failed = fixing.fix(recording, program, options, start) or failed
    return ending.exit_code or failed or exit_code(recording, options)


def _save(recording: Recording | None, output: str | None, start: Start) -> int:
    from tether.store.file import RecordingError

    if output is None:
        return 0
    if recording is None:
        Path(start.folder, output).unlink(missing_ok=True)
        return 0
    try:
        recording.save(os.path.join(start.folder, output))
    except (RecordingError, OSError) as error:
        start.tell(f"the recording was not saved: {error}")
        return EXIT_USAGE
    return 0


def _measure(recording: Recording, ran: float) -> None:
    """Time the slow copies against their cheaper ways, at the program's sizes."""
    if any(one.slug == "slow-copy" for one in recording.findings):
        from tether.measure.speedups import measured

        found = measured(recording.findings, recording.history, ran)
        recording.judged(found, recording.defects)
