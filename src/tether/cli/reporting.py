"""What `run` and `report` have in common: the reports asked for, and the exit code."""

from __future__ import annotations

import contextlib
import difflib
import fnmatch
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

import click

from tether.cli.exits import EXIT_FINDINGS, EXIT_NOTHING, EXIT_USAGE, fail
from tether.report.forms import FORMS, PRINTED

if TYPE_CHECKING:
    from tether.report.recording import Recording


Options = dict[str, Any]
"""The options of `run` or `report`, by their names in Python."""

FILES = tuple(one.option for one in FORMS)
"""The options that name a file to write a report to."""


class Start(NamedTuple):
    """Where a command was started, whatever the program makes of its process."""

    folder: str
    stdout: TextIO
    stderr: TextIO
    began: float = 0.0  # by `time.perf_counter`

    def tell(self, line: str) -> None:
        """Write a line about the run to stderr."""
        click.echo(f"tether: {line}", file=self.stderr)


class VerdictType(click.ParamType[str]):
    """The slug of a verdict, a glob of slugs, or several with commas between."""

    name = "slug"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the value; a slug that there is not is a wrong option."""
        for word in value.split(","):
            if not fnmatch.filter(_slugs(), word.strip()):
                near = difflib.get_close_matches(word, _slugs(), n=1)
                hint = f"did you mean {near[0]}?" if near else "`tether explain` lists them"
                self.fail(f"there is no verdict {word.strip()!r}: {hint}", param, ctx)
        return value


def complete_slug(
    _context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[str]:
    """Return the slugs that begin as what was typed, for a shell."""
    return [slug for slug in _slugs() if slug.startswith(incomplete)]


def _slugs() -> list[str]:
    from tether.report.filters import UNUSED_IGNORE
    from tether.verdicts import VERDICTS

    return [*(one.slug for one in VERDICTS), UNUSED_IGNORE]


def _of_verdicts(name: str, text: str) -> Callable[..., Any]:
    kind, complete = VerdictType(), complete_slug
    return click.option(
        name, multiple=True, type=kind, metavar="SLUG", help=text, shell_complete=complete
    )


_SELECTION = (
    _of_verdicts("--select", "Only these verdicts."),
    _of_verdicts("--ignore", "Not these verdicts."),
    click.option("--include", multiple=True, metavar="GLOB", help="Report these files."),
    click.option("--omit", multiple=True, metavar="GLOB", help="Do not report these."),
)
_OPTIONS = (
    click.option(
        "--output-format",
        type=click.Choice(["full", "concise", "grouped", *PRINTED, "github"]),
        default="full",
        show_default=True,
        help="Form of the report; concise is a line for each finding.",
    ),
    click.option("--show-all", is_flag=True, help="Show every finding, row and reason."),
    click.option("--quiet", "-q", is_flag=True, help="No report but in files."),
    *(click.option(f"--{one.name}", one.option, metavar="FILE", help=one.says) for one in FORMS),
    click.option("--github", is_flag=True, help="Add annotations of GitHub Actions."),
    click.option(
        "--no-source",
        is_flag=True,
        help=f"Leave source text out of {', '.join(one.name.upper() for one in FORMS)}.",
    ),
    *_SELECTION,
    click.option(
        "--fail-on",
        type=click.Choice(["error", "warning", "note"]),
        help=f"Exit {EXIT_FINDINGS} if there is a finding of this severity or higher;"
        f" {EXIT_NOTHING} if nothing of the work was recorded.",
    ),
    click.option("--exit-zero", is_flag=True, help="Findings do not change the exit code."),
)


def report_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that `run` and `report` have in common."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def selection_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say which files and verdicts are reported."""
    for option in reversed(_SELECTION):
        command = option(command)
    return command


def chosen(options: Options) -> dict[str, Any]:
    """Return which files and verdicts the options ask for, as `tether.load` takes them."""
    words = {
        name: tuple(word.strip() for value in options[name] for word in value.split(","))
        for name in ("select", "ignore")
    }
    return {"include": options["include"], "omit": options["omit"], **words}


def write_reports(recording: Recording, options: Options, start: Start, stream: TextIO) -> int:
    """Write every report asked for, one of them to `stream`; return 2 when one was not written."""
    failed = 0
    for one in FORMS:
        file = options[one.option]
        if file is not None:
            made = partial(getattr(recording, one.name), source=not options["no_source"])
            failed = _write(file, made, start) or failed
    form = options["output_format"]
    whole = to_stdout(options) and stream is start.stdout
    if stream is not None:
        # Where a report can be told to nobody, the program's exit code is still its own.
        with contextlib.suppress(OSError, ValueError):
            if not options["quiet"] and not whole:
                _print(recording, form, options, start, stream)
            if options["github"] and form != "github":
                other = start.stderr if whole or form in PRINTED else stream
                _print(recording, "github", options, start, other)
    return failed


def to_stdout(options: Options) -> str:
    """Return the option that writes to stdout, which it then has for itself; or "".

    Two of them are refused: what reads one form cannot read another behind it.
    """
    found = [f"--{one.name}" for one in FORMS if options[one.option] == "-"]
    if len(found) > 1:
        fail(f"only one form can be written to stdout, not {' and '.join(found)}")
    return "".join(found)


def _print(recording: Recording, form: str, options: Options, start: Start, stream: TextIO) -> None:
    """Write the report to a stream in one of the forms."""
    from tether.report.document.text import write_plain

    if form == "full":
        recording.print(stream, show_all=options["show_all"])
    elif form in ("concise", "grouped"):
        recording.lines(stream, start.folder, by_file=form == "grouped")
    elif form == "github":
        root = os.environ.get("GITHUB_WORKSPACE") or start.folder
        write_plain(recording.github(root), stream)
    else:
        made = getattr(recording, form)(source=not options["no_source"])
        write_plain(made + "\n", stream)


def _write(file: str, make: Callable[[], str], start: Start) -> int:
    from tether.report import progress

    with progress.shown(start.stderr):
        progress.stage(f"making {file}")
        text = make() + "\n"
    try:
        if file == "-":
            start.stdout.write(text)
            start.stdout.flush()
        else:
            Path(start.folder, file).write_text(text, encoding="utf-8")
    except OSError as error:
        start.tell(f"{file} was not written: {error.strerror}")
        return EXIT_USAGE
    return 0


def exit_code(recording: Recording, options: Options) -> int:
    """Return the exit code that --fail-on asks for."""
    from tether.finding import SEVERITIES

    fail_on = options["fail_on"]
    if fail_on is None or options["exit_zero"]:
        return 0
    grave = SEVERITIES[: SEVERITIES.index(fail_on) + 1]
    if any(one.severity in grave for one in recording.findings):
        return EXIT_FINDINGS
    return EXIT_NOTHING if recording.trace.elsewhere else 0


def load_recording(files: tuple[str, ...], **selection: Any) -> Recording:
    """Open a recording, or end with one line that says why it cannot be."""
    from tether.report.recording import load
    from tether.store.file import RecordingError

    try:
        return load(*files, **selection)
    except RecordingError as error:
        fail(str(error))
