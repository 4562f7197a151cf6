"""What copies cost, as a picture: time over size, on logarithmic and on linear axes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tether.measure.cost import Bench, Cost
from tether.report.bench import families
from tether.report.page.cost_drawing import amount, duration

COLORS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#8C6D00")
"""Okabe and Ito's colours, told apart with every common colour blindness; the yellow is darkened
to be read on white. Markers and dashes tell the ways apart without any colour."""

MARKERS = "osD^vPX*"
DASHES = ("-", "--", "-.", ":")
KINDS = (".png", ".svg")


class CannotPlot(Exception):  # noqa: N818 -- it is a refusal, as Refused is
    """Why there is no picture, in one line."""


def check(file: str) -> None:
    """Raise `CannotPlot` when no picture can be written to `file`: before anything is measured."""
    if Path(file).suffix.lower() not in KINDS:
        raise CannotPlot(f"{file}: a plot is written as {', '.join(KINDS)}; --html writes a page")
    if not Path(file).absolute().parent.is_dir():
        raise CannotPlot(f"cannot write {file}: there is no such folder")
    _figure_class()


def _figure_class() -> Any:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise CannotPlot(
            "plots need matplotlib, the extra 'plot': pip install 'tether[plot]'"
        ) from None
    return Figure


def write(bench: Bench, file: str) -> None:
    """Write the picture of `bench` to `file`, as its ending says. Raises `CannotPlot`."""
    check(file)
    path = Path(file)
    draw(bench).savefig(path, dpi=90, metadata=_metadata(path.suffix.lower()))


def _metadata(kind: str) -> dict[str, Any]:
    """Leave out the date: the same figures give the same file."""
    return {"Date": None} if kind == ".svg" else {}


def draw(bench: Bench) -> Any:
    """Return the figure: one row for each family, logarithmic axes left, linear ones right."""
    groups = families(bench)
    if not groups:
        raise CannotPlot("there is nothing to plot: no way of copying was measured")
    figure = _figure_class()(figsize=(13, 5.2 * len(groups)), layout="constrained")
    rows = figure.subplots(len(groups), 2, squeeze=False)
    titles = {"tensor": "Copies of a tensor", "numpy": "A tensor to an independent array"}
    for family, (log, linear) in zip(groups, rows, strict=True):
        costs = [cost for cost in bench.costs if cost.family == family and cost.seconds]
        for axes in (log, linear):
            _lines(axes, costs, bench)
            axes.set_title(titles.get(family, "Cost of one call"))
            axes.set_xlabel("bytes of x")
            axes.set_ylabel("time of one call")
            axes.grid(visible=True, color="#dddddd", linewidth=0.6)
        log.set_xscale("log", base=2)
        log.set_yscale("log")
        linear.set_xlim(left=0)
        linear.set_ylim(bottom=0)
        largest = max((cost.nbytes for cost in costs), default=1)
        linear.set_xticks([largest * part / 4 for part in range(5)])
        for axes in (log, linear):  # after the scales, which bring formatters of their own
            axes.xaxis.set_major_formatter(lambda value, _: amount(value))
            axes.yaxis.set_major_formatter(lambda value, _: duration(value) if value else "0")
        log.legend(fontsize=8, loc="upper left")
    about = ", ".join(f"{key} {value}" for key, value in bench.machine.items())
    figure.suptitle(about, fontsize=8, color="#444444", wrap=True)
    return figure


def _lines(axes: Any, costs: list[Cost], bench: Bench) -> None:
    for number, way in enumerate(dict.fromkeys(cost.way for cost in costs)):
        points = sorted((cost for cost in costs if cost.way == way), key=lambda cost: cost.nbytes)
        color = COLORS[number % len(COLORS)]
        sizes = [cost.nbytes for cost in points]
        axes.plot(
            sizes,
            [cost.seconds for cost in points],
            label=way,
            color=color,
            marker=MARKERS[number % len(MARKERS)],
            linestyle=DASHES[number % len(DASHES)],
            markersize=5,
            linewidth=1.4,
        )
        low, high = [cost.low for cost in points], [cost.high for cost in points]
        axes.fill_between(sizes, low, high, color=color, alpha=0.12, linewidth=0)
    floor = sorted(bench.floor.items())
    label = "limit: copy into mapped memory"
    axes.plot(*zip(*floor, strict=True), label=label, color="black", linewidth=2.2, zorder=1)
