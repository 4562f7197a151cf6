"""The command line: options in, one call, text out.

Everything after the program belongs to the program, and its stdout is its own: reports go to
stderr or to the files asked for. Bad input gives one line that says what and what to do, exit 2.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

import click

import tether

if TYPE_CHECKING:
    from tether.record.running import Ending, Program
    from tether.report.recording import Recording

EXIT_FINDINGS = 3  # --fail-on
EXIT_USAGE = 2
EXIT_NOTHING = 4  # --fail-on, and the work was done where it was not recorded

_LAZY = {
    "rulebook": ("tether.cli.rulebook", "rulebook_command"),
    "bench": ("tether.cli.bench", "bench_command"),
    "memory": ("tether.cli.memory", "memory_command"),
    "diff": ("tether.cli.diff", "diff_command"),
}


class _Commands(click.Group):
    """Loads a command's module when the command is used: starting up stays quick."""

    def list_commands(self, context: click.Context) -> list[str]:
        return sorted({*super().list_commands(context), *_LAZY})

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name in _LAZY:
            import importlib

            module, attribute = _LAZY[name]
            command: click.Command = getattr(importlib.import_module(module), attribute)
            return command
        return super().get_command(context, name)

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run a command; a wrong option or argument is one line and exit 2."""
        standalone = kwargs.pop("standalone_mode", True)
        kwargs["standalone_mode"] = False
        if not standalone:
            return super().main(*args, **kwargs)
        try:
            status = super().main(*args, **kwargs)
        except click.ClickException as error:
            if type(error).__name__ == "NoArgsIsHelpError":  # from click 8.2 on
                click.echo(error.format_message())
                sys.exit(EXIT_USAGE)
            context = getattr(error, "ctx", None)
            command = context.command_path if context is not None else "tether"
            message = " ".join(error.format_message().split()).removesuffix(".")
            click.echo(f"tether: {message} ({command} --help tells more)", err=True)
            sys.exit(error.exit_code)
        except click.Abort:
            sys.exit(130)
        sys.exit(status if isinstance(status, int) else 0)


def _fail(message: str) -> NoReturn:
    click.echo(f"tether: {message}", err=True)
    raise SystemExit(EXIT_USAGE)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(tether.__version__, prog_name="tether")
@click.pass_context
def main(context: click.Context) -> None:
    """Find lost gradients, unexpected shared memory and needless copies in PyTorch programs."""
    if context.invoked_subcommand in ("run", "report"):
        context.default_map = {context.invoked_subcommand: _configured(context.invoked_subcommand)}


_CONFIGURABLE = {
    "include": (list, "a list of globs"),
    "omit": (list, "a list of globs"),
    "fail-on": (str, "one of error, warning, note"),
    "limit": (int, "a number of calls"),
    "quiet": (bool, "true or false"),
}


def _configured(command: str) -> dict[str, Any]:
    """Return a command's defaults from [tool.tether] in the nearest pyproject.toml."""
    import tomllib

    for folder in (Path.cwd(), *Path.cwd().parents):
        file = folder / "pyproject.toml"
        if file.is_file():
            break
    else:
        return {}
    try:
        table = tomllib.loads(file.read_text("utf-8")).get("tool", {}).get("tether", {})
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        _fail(f"cannot read {file}: {error}")
    defaults = {}
    for key, value in table.items():
        if key not in _CONFIGURABLE:
            known = ", ".join(_CONFIGURABLE)
            _fail(f"{file}: [tool.tether] has no setting {key!r}; there are {known}")
        kind, wanted = _CONFIGURABLE[key]
        if not isinstance(value, kind):
            _fail(f"{file}: [tool.tether] {key} must be {wanted}")
        if key != "limit" or command == "run":
            defaults[key.replace("-", "_")] = value
    return defaults


def _report_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that `run` and `report` have in common."""
    for option in reversed(
        (
            click.option("--json", "json_file", metavar="FILE", help="Write JSON; - is stdout."),
            click.option("--html", "html_file", metavar="FILE", help="Write one HTML page."),
            click.option(
                "--no-source", is_flag=True, help="Leave source text out of HTML, JSON and SARIF."
            ),
            click.option("--sarif", "sarif_file", metavar="FILE", help="Write SARIF; - is stdout."),
            click.option(
                "--github", is_flag=True, help="Print the findings as GitHub Actions annotations."
            ),
            click.option("--quiet", "-q", is_flag=True, help="No text report."),
            click.option(
                "--fail-on",
                type=click.Choice(["error", "warning", "note"]),
                help=f"Exit {EXIT_FINDINGS} when there is such a finding, or a graver one;"
                f" {EXIT_NOTHING} when there is none and the work was done in processes that were"
                " not recorded, or without PyTorch.",
            ),
            click.option("--include", multiple=True, metavar="GLOB", help="Report these files."),
            click.option("--omit", multiple=True, metavar="GLOB", help="Do not report these."),
        )
    ):
        command = option(command)
    return command


@main.command(
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    short_help="Run a program and report what ties its tensors.",
)
@click.option("-m", "module", metavar="MODULE", help="Run a module, as python -m does.")
@click.option("-c", "code", metavar="CODE", help="Run a string of code, as python -c does.")
@click.option("-o", "output", metavar="FILE", help="Save the recording.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=500_000,
    show_default=True,
    help="Keep the last N calls.",
)
@click.option("--steps", metavar="A:B", help="Record only these optimizer steps, as a slice.")
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
@_report_options
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="SCRIPT [ARGS]...")
def run(
    module: str | None,
    code: str | None,
    output: str | None,
    limit: int,
    steps: str | None,
    arguments: tuple[str, ...],
    *,
    eager: bool,
    memory: bool,
    prove: bool,
    fix: bool,
    unsafe_fixes: bool,
    write: bool,
    **report: Any,
) -> None:
    """Run SCRIPT unmodified under the recorder and report when it ends.

    Everything after SCRIPT, MODULE or CODE belongs to the program. --prove runs it at least three
    times more, each in a separate process with its standard input closed; what it writes to files
    it writes again.
    """
    if (write or unsafe_fixes) and not fix:
        _fail("--write and --unsafe-fixes need --fix")
    program = _program(module, code, arguments)
    _check_writable(output, *(report[kind] for kind in ("json_file", "html_file", "sarif_file")))
    try:
        from tether.record import running
        from tether.record.session import Session
    except ImportError as error:
        _fail(f"PyTorch cannot be imported: {error}. Install it: pip install torch")
    stderr, stdout = sys.stderr, sys.stdout
    folder = os.getcwd()

    def finish(ending: Ending) -> int:
        # The program may have gone elsewhere; the files asked for are relative to the start.
        options = {**report, "memory": memory, "prove": program if prove or fix else None}
        options |= {"fix": fix, "unsafe": unsafe_fixes, "write": write}
        return _finish(ending, output, options, stderr, stdout, folder)

    try:
        session = Session(limit, steps=_slice(steps), eager=eager, memory=memory)
        status = running.run(program, session, finish, journal=output)
    except running.CannotRunError as error:
        _fail(str(error))
    sys.exit(status)


def _program(module: str | None, code: str | None, arguments: tuple[str, ...]) -> Program:
    from tether.record.running import CannotRunError, Program

    try:
        return Program.of(module, code, arguments)
    except CannotRunError as error:
        _fail(str(error))


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
        _fail(f"--steps takes A:B, two whole numbers, not {text!r}")
    if bounds[0] < 0 or (bounds[1] is not None and bounds[1] <= bounds[0]):
        _fail(f"--steps {text} holds no step: A must be at least 0 and less than B")
    return bounds


def _check_writable(output: str | None, *files: str | None) -> None:
    """Refuse an impossible output before the program has run for hours."""
    for file in (output, *files):
        if file is None or file == "-":
            continue
        folder = Path(file).absolute().parent
        if not folder.is_dir():
            _fail(f"cannot write {file}: there is no folder {folder}")
        if Path(file).is_dir():
            _fail(f"cannot write {file}: it is a folder")
        if file == output and Path(file).exists() and not Path(file).is_file():
            _fail(f"cannot write {file}: a recording needs a separate file")
        if not os.access(folder, os.W_OK):
            _fail(f"cannot write {file}: the folder {folder} may not be written to")


def _finish(
    ending: Ending,
    output: str | None,
    options: dict[str, Any],
    stderr: TextIO,
    stdout: TextIO,
    folder: str,
) -> int:
    """Save and report an ended run; return the exit code."""
    from tether.report import progress
    from tether.report.recording import Recording
    from tether.store.file import RecordingError

    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:  # noqa: BLE001, S112 -- the program may have closed it
            continue
    with progress.shown(stderr):
        recording = Recording(ending.trace, include=options["include"], omit=options["omit"])
        recording.with_memory |= options.get("memory", False)
        recording.analyse()
    _measure(recording)
    if options["prove"] is not None:
        _prove(recording, options["prove"], folder, stderr)
    status = ending.exit_code
    if output is not None:
        try:
            recording.save(os.path.join(folder, output))
        except (RecordingError, OSError) as error:
            click.echo(f"tether: the recording was not saved: {error}", file=stderr)
            status = status or EXIT_USAGE
    failed = _write_reports(recording, options, stderr, stdout, folder)
    if options["fix"]:
        failed = _fix(recording, options, folder, stderr) or failed
    return status or failed or _verdict(recording, options["fail_on"])


def _measure(recording: Recording) -> None:
    """Time the slow copies against their cheaper ways, at the program's sizes."""
    if any(one.slug == "slow-copy" for one in recording.findings):
        from tether.measure.speedups import measured

        recording.judged(measured(recording.findings, recording.history), recording.defects)


def _prove(recording: Recording, program: Program, folder: str, stderr: TextIO) -> None:
    """Run the program again to prove what can be proven; say so when it cannot be run."""
    from tether.measure.proving import CannotProveError, prove, runner

    try:
        kept, refuted = prove(
            recording.findings,
            recording.history,
            runner(program, folder),
            lambda line: click.echo(f"tether: {line}", file=stderr),
        )
    except CannotProveError as error:
        click.echo(f"tether: nothing was proven: {error}", file=stderr)
    else:
        recording.judged(kept, refuted)


def _fix(recording: Recording, options: dict[str, Any], folder: str, stderr: TextIO) -> int:
    """Show the edits, make them where that was asked for; return 2 when that failed."""
    from tether.cli.fixing import confirm, repairs
    from tether.measure.proving import CannotProveError, runner

    def tell(line: str) -> None:
        click.echo(f"tether: {line}", file=stderr)

    found = repairs(recording, unsafe=options["unsafe"])
    for line in found.refused:
        tell(line)
    if not found.changes:
        more = f"; {found.unsafe} unsafe, see --unsafe-fixes" if found.unsafe else ""
        tell(f"there is nothing to edit{more}")
        return 0
    click.echo(found.diff, file=stderr, nl=False)
    if not options["write"]:
        many = "1 finding" if found.findings == 1 else f"{found.findings} findings"
        tell(f"{many} can be repaired so; --write makes these edits")
        return 0
    try:
        changed = confirm(found, runner(options["prove"], folder), tell, unsafe=options["unsafe"])
    except CannotProveError as error:
        tell(f"nothing was written: {error}")
        return EXIT_USAGE
    if not changed:
        tell("the edits were made; a run with them gave the same results, bit for bit")
    elif options["unsafe"]:
        tell(f"the edits were made; with them: {'; '.join(changed[:5])}")
    else:
        tell(f"the files are as they were: with the edits {'; '.join(changed[:5])}")
        return EXIT_USAGE
    return 0


def _write_reports(
    recording: Recording, options: dict[str, Any], stderr: TextIO, stdout: TextIO, folder: str
) -> int:
    """Write every report asked for; return 2 when one could not be written."""
    from tether.report import progress

    failed = 0
    writers: dict[str, Callable[..., str]] = {
        "json_file": recording.json,
        "html_file": recording.html,
        "sarif_file": recording.sarif,
    }
    for option, make in writers.items():
        file = options[option]
        if file is None:
            continue
        with progress.shown(stderr):
            progress.stage(f"making {file}")
            text = make(source=not options["no_source"]) + "\n"
        try:
            if file == "-":
                stdout.write(text)
                stdout.flush()
            else:
                Path(folder, file).write_text(text, encoding="utf-8")
        except OSError as error:
            click.echo(f"tether: {file} was not written: {error.strerror}", file=stderr)
            failed = EXIT_USAGE
    if not options["quiet"] and stderr is not None:
        # Where a report can be told to nobody, the program's exit code is still its own.
        with contextlib.suppress(OSError, ValueError):
            recording.print(stderr)
    if options["github"]:
        stderr.write(recording.github(os.environ.get("GITHUB_WORKSPACE") or folder))
    return failed


def _verdict(recording: Recording, fail_on: str | None) -> int:
    from tether.finding import SEVERITIES

    if fail_on is None:
        return 0
    grave = SEVERITIES[: SEVERITIES.index(fail_on) + 1]
    if any(f.severity in grave for f in recording.findings):
        return EXIT_FINDINGS
    return EXIT_NOTHING if recording.trace.elsewhere else 0


def _load(files: tuple[str, ...], **options: Any) -> Recording:
    from tether.report.recording import load
    from tether.store.file import RecordingError

    try:
        return load(*files, **options)
    except RecordingError as error:
        _fail(str(error))


@main.command(short_help="The report of a saved recording, again.")
@_report_options
@click.argument("recordings", nargs=-1, required=True, metavar="RECORDING...")
def report(recordings: tuple[str, ...], **options: Any) -> None:
    """Report a saved RECORDING again; several (one per rank) are merged."""
    from tether.report import progress

    with progress.shown(sys.stderr):
        recording = _load(recordings, include=options["include"], omit=options["omit"])
        recording.analyse()
    failed = _write_reports(recording, options, sys.stdout, sys.stdout, os.getcwd())
    sys.exit(failed or _verdict(recording, options["fail_on"]))


@main.command(short_help="One question about one tensor, and the chain that answers it.")
@click.argument("name")
@click.argument("recording", required=False)
def why(name: str, recording: str | None) -> None:
    """Say why the parameter NAME has no gradient, or what a tensor shares and who wrote it.

    RECORDING is a file saved by `tether run -o`; without it, the newest *.tether file here.
    """
    if recording is None:
        found = sorted(Path().glob("*.tether"), key=lambda file: file.stat().st_mtime)
        if not found:
            _fail("no recording: make one with  tether run -o run.tether SCRIPT")
        recording = str(found[-1])
    try:
        answer = _load((recording,)).why(name)
    except LookupError as error:
        _fail(str(error.args[0]) if error.args else f"no tensor is called {name!r}")
    click.echo(str(answer))


@main.command(short_help="The page of one verdict, or of one way of copying.")
@click.argument("slug", required=False)
def explain(slug: str | None) -> None:
    """Print the page of the verdict SLUG; without it, the list of verdicts.

    The name of a call (detach, numpy, expand) gives what the rulebook says of it.
    """
    from tether.operations import rule_for
    from tether.verdicts import VERDICTS

    pages = {verdict.slug: verdict for verdict in VERDICTS}
    if slug is None:
        for known, verdict in pages.items():
            click.echo(f"{known:22s} {verdict.summary}")
        return
    rule = rule_for(slug)
    if slug in pages:
        click.echo(pages[slug].page.strip())
    elif rule is not None:
        from tether.operations import words

        click.echo(f"{rule.call}\n\n{rule.sentence}\n")
        click.echo(f"memory    {words.memory(rule)}\ngradient  {words.gradient(rule)}")
        for label, text in (("raises", words.raised(rule)), ("better", rule.better)):
            if text:
                click.echo(f"{label:9s} {text}")
    else:
        import difflib

        close = difflib.get_close_matches(slug, pages, n=1)
        hint = f"did you mean {close[0]}?" if close else "tether explain lists them"
        _fail(f"there is no verdict and no known call {slug!r}: {hint}")
