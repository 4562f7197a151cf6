"""The command ``tether bench``: what ways of copying cost here, against the memory's own speed."""

from __future__ import annotations

import contextlib
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tether.cli.exits import check_outputs, fail
from tether.measure.cost import Bench
from tether.report import bench as render
from tether.report import plots
from tether.report.document.text import coloured

if TYPE_CHECKING:
    from tether.measure.bench import Setting, Way

UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def sizes_of(text: str) -> list[int]:
    """Return the sizes in bytes of ``"1,4K,256M"`` or ``"1:256M"`` (powers of four between).

    Raises `ValueError`.
    """
    found: list[int] = []
    for part in text.split(","):
        ends = [_size(word) for word in part.split(":")]
        if len(ends) > 2 or ends[0] > ends[-1]:
            raise ValueError(f"{part!r} is no range of sizes: write FIRST:LAST, as in 1:256M")
        size = ends[0]
        while size < ends[-1]:
            found.append(size)
            size *= 4
        found.append(ends[-1])
    return sorted(set(found))


def _size(word: str) -> int:
    fits = re.fullmatch(r"(\d+)\s*([kmg]?)i?b?", word.strip().lower())
    if not fits or not int(fits[1]):
        raise ValueError(f"{word.strip()!r} is no size: write bytes, or 4K, 256M, 1G")
    return int(fits[1]) * UNITS[fits[2]]


@contextlib.contextmanager
def _progress(title: str) -> Iterator[Callable[[float], None]]:
    """Show a bar with the time left on stderr while somebody watches; yield what moves it."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=1.0)
        yield lambda part: bar.update(task, completed=part)


@click.command("bench", short_help="Measure what ways of copying cost on this machine.")
@click.argument("expressions", nargs=-1, metavar="[EXPR]...")
@click.option("--sizes", default="1:256M", show_default=True, help="Bytes of x: 1:256M or 4K,1M.")
@click.option("--dtype", default="float32", show_default=True, help="Type of x.")
@click.option("--shape", default="n", show_default=True, help="Shape of x, as n,64.")
@click.option("--grad", is_flag=True, help="x requires grad.")
@click.option("--device", default="cpu", show_default=True, help="Where x lies.")
@click.option("--seconds", default=60.0, show_default=True, help="Time for the whole run, about.")
@click.option("--limit", is_flag=True, help="Measure what the machine itself can do.")
@click.option("--save", metavar="FILE", help="Keep the figures, for --compare.")
@click.option("--compare", metavar="FILE", help="Hold the figures against a kept run.")
@click.option("--json", "json_file", metavar="FILE", help="Write JSON; - is stdout.")
@click.option("--html", "html_file", metavar="FILE", help="Write one HTML page.")
@click.option("--plot", metavar="FILE", help="Draw them: .png or .svg (extra 'plot').")
def bench_command(
    expressions: tuple[str, ...],
    sizes: str,
    dtype: str,
    shape: str,
    device: str,
    seconds: float,
    save: str | None,
    compare: str | None,
    json_file: str | None,
    html_file: str | None,
    plot: str | None,
    *,
    grad: bool,
    limit: bool,
) -> None:
    """Measure what ways of copying cost, by size, against the memory's own speed.

    Each EXPR is an expression over x, as "x.clone()"; without any, the usual ways to copy a
    tensor and to turn it into an array are measured. With --limit and neither EXPR nor --plot,
    only the machine itself is.
    """
    old = _read(compare) if compare else None
    check_outputs((save, json_file, html_file), plot)
    if seconds <= 0:
        fail("--seconds must be more than 0")
    try:
        wanted = sizes_of(sizes)
        from tether.measure import bench

        setting = bench.Setting(dtype, shape, device)
        _check(setting, expressions)
    except ValueError as error:
        fail(str(error))
    except ImportError as error:
        fail(f"PyTorch cannot be imported: {error}. Install it: pip install torch")
    only_limit = limit and not expressions and not plot
    ways = _ways(expressions, grad=grad)
    measured = _measured(ways, wanted, setting, seconds, limit=limit, only_limit=only_limit)
    wrong = _never_measured(measured, expressions)
    made = partial(render.to_json, measured)
    page = (html_file, partial(render.to_html, measured, old))
    _write(measured, [(save, made), (json_file, made), page], plot)
    if json_file != "-":
        _print(measured, old)
    if wrong:
        fail(f"not measured: {wrong}")


def _ways(expressions: tuple[str, ...], *, grad: bool) -> list[Way]:
    from tether.measure import bench

    if not expressions:
        return [way._replace(grad=way.grad or grad) for way in bench.WAYS]
    return [bench.Way(expression, "expression", grad) for expression in dict.fromkeys(expressions)]


def _print(measured: Bench, old: Bench | None) -> None:
    width = shutil.get_terminal_size((140, 24)).columns
    text = render.to_text(measured, width=width, color=coloured(sys.stdout), old=old)
    click.echo(text, nl=False)


def _never_measured(measured: Bench, expressions: Sequence[str]) -> str:
    """Return the expressions asked for that raised at every size, each with its reason.

    Where nothing was measured at all, the command ends here.
    """
    wrong = {cost.way: cost.note for cost in measured.costs if cost.way in expressions}
    done = {cost.way for cost in measured.costs if cost.seconds is not None}
    words = "; ".join(f"{way}: {note}" for way, note in wrong.items() if way not in done)
    if words and not done:
        fail(f"nothing was measured: {words}")
    return words


def _check(setting: Setting, expressions: tuple[str, ...]) -> None:
    """Raise `ValueError` in words for what cannot be measured, before anything is."""
    for expression in expressions:
        try:
            compile(expression.strip(), "<expression>", "eval")
        except SyntaxError as error:
            raise ValueError(f"{expression!r} is no expression: {error.msg}") from None
    try:
        setting.make(1, grad=False)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(f"device {setting.device!r} cannot be used: {reason}") from None


def _measured(
    ways: list[Way],
    sizes: list[int],
    setting: Setting,
    seconds: float,
    *,
    limit: bool,
    only_limit: bool,
) -> Bench:
    from tether.measure import bench
    from tether.measure import machine_limits as physical

    measured = Bench(machine=bench.machine(setting), noise=bench.loaded())
    if not only_limit:
        with _progress("Measuring copies") as moved:
            measured = bench.run(ways, sizes, setting, seconds=seconds, progress=moved)
    if limit:
        with _progress("Measuring the machine") as moved:
            found = physical.measure(seconds=min(seconds, 10.0), progress=moved)
        measured = measured._replace(limits=found)
    return measured


def _read(file: str) -> Bench:
    try:
        return render.read(Path(file).read_text(encoding="utf-8"))
    except OSError as error:
        fail(f"cannot read {file}: {error.strerror}")
    except ValueError as error:
        fail(f"cannot compare with {file}: {error}")


def _write(
    bench: Bench, wanted: Sequence[tuple[str | None, Callable[[], str]]], plot: str | None
) -> None:
    """Write each report asked for to its file."""
    try:
        for file, make in wanted:
            if file == "-":
                click.echo(make(), nl=False)
            elif file:
                Path(file).write_text(make(), encoding="utf-8")
        if plot:
            plots.write(bench, plot)
    except OSError as error:
        fail(f"cannot write {error.filename}: {error.strerror}")
    except plots.CannotPlot as error:
        fail(str(error))
