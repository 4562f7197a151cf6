"""Where the memory went, as a report (by line, at the peak, over time, per step) and a picture."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tether.analysis.history import History, shortened
from tether.analysis.memory import KINDS, Block, Line, Memory, Plot
from tether.analysis.speaking import bytes_text
from tether.facts import Site
from tether.report.document.blocks import Block as Part
from tether.report.document.blocks import Column, Document, Heading, Paragraph, Phrase, Table
from tether.report.filters import shown_line
from tether.report.formats.json import memory_lines
from tether.report.page.memory_drawing import drawings
from tether.report.page.shell import document_page, macros
from tether.report.plots import COLORS, CannotPlot, _figure_class, _metadata, check

ROWS = 20
"""Rows of each table in the text; JSON has all."""

BARS = "▁▂▃▄▅▆▇█"
WIDTH = 60  # columns of the timeline in the text

WORDS = {
    "activation": "activation, kept for backward only",
    "other": "result, held to the end",
    "temporary": "result, freed later",
    "input": "input (made from no tensor)",
}


def document(history: History, rows: int = ROWS, *, drawn: bool = False) -> Document:
    """Return the report on memory alone; `drawn` leaves out what a page draws."""
    made = Document(f"Memory of tensors: {' '.join(history.trace.program) or 'recording'}")
    made.blocks += blocks(history, rows, drawn=drawn)
    return made


def page(history: History, rows: int = ROWS) -> str:
    """Return the report as one page, with the memory drawn over time and the peak by line."""
    made = document(history, rows, drawn=True)
    folder = history.trace.folder
    drawn = "".join(
        macros().drawing(one, True, lambda site: _place(site, folder), lambda _: "")
        for one in drawings(history)
    )
    return document_page(made, drawn)


def map_document(history: History, moment: str, rows: int = ROWS) -> Document:
    """Return the map of memory at a moment: ``peak``, ``end`` or ``FILE:LINE``.

    Raises `LookupError` where no call was recorded at that line.
    """
    memory, folder = Memory.of(history), history.trace.folder
    at = moment_of(memory, history, moment)
    plots = memory.map(at)
    total = sum(plot.block.nbytes for plot in plots)
    when = moment if moment in ("peak", "end") else f"after {moment}"
    made = Document("Memory of tensors")
    made.blocks.append(Heading(f"Map of tensor memory, {when}"))
    made.blocks.append(_say(f"{bytes_text(total)} in {len(plots):,} blocks."))
    columns = (
        Column("bytes", "right"),
        Column("what"),
        Column("made at"),
        Column("tensors on it, and their bytes", give=True),
    )
    cells = [
        (
            Phrase(bytes_text(plot.block.nbytes), "strong"),
            Phrase(plot.kind),
            Phrase(_place(plot.site, folder), "place"),
            Phrase(_tenants(plot), "code"),
        )
        for plot in plots[:rows]
    ]
    left = max(0, len(plots) - rows)
    made.blocks.append(Table(columns, tuple(cells), left, "more blocks; --json has all"))
    return made


def _tenants(plot: Plot) -> str:
    if not plot.tenants:
        return "no tensor; the gradient graph holds it"
    return ", ".join(f"{one.name} {one.first:,}:{one.end:,}" for one in plot.tenants)


def moment_of(memory: Memory, history: History, moment: str) -> int:
    """Return the time that a word or a place means. Raises `LookupError`."""
    if moment == "peak":
        return memory.peak_at
    if moment == "end":
        return history.trace.ended
    file, _, line = moment.rpartition(":")
    if not file or not line.isdigit():
        raise LookupError(f"--map takes peak, end or FILE:LINE, not {moment!r}")
    return memory.moment_of(file, int(line))


def map_json(history: History, moment: str) -> list[dict[str, Any]]:
    """Return the map as JSON can hold it; as `map_document`."""
    memory, folder = Memory.of(history), history.trace.folder
    return [
        {
            "bytes": plot.block.nbytes,
            "device": plot.block.device,
            "kind": plot.kind,
            "line": _place(plot.site, folder),
            "tensors": [
                {"name": one.name, "first": one.first, "end": one.end} for one in plot.tenants
            ],
        }
        for plot in memory.map(moment_of(memory, history, moment))
    ]


def blocks(history: History, rows: int = ROWS, *, drawn: bool = False) -> list[Part]:
    """Return what is said of memory, for each device; `drawn` leaves out what a page draws."""
    devices = Memory.of(history).devices
    if not devices:
        return [Heading("Memory"), _say("No tensor's memory was seen.")]
    found: list[Part] = []
    for device in devices:
        found += _of_device(Memory.of(history, device), device, history.trace.folder, rows, drawn)
    return found


def _of_device(memory: Memory, device: str, folder: str, rows: int, drawn: bool) -> Iterator[Part]:
    yield Heading(f"Memory on {device}")
    yield _say(
        f"Peak {bytes_text(memory.peak)} at {_place(memory.peak_site, folder)}; "
        f"allocated {bytes_text(memory.allocated)} in {len(memory.blocks):,} blocks, "
        f"held at the end {bytes_text(memory.held_end)}."
    )
    if not drawn:
        bars = sparkline(memory.timeline, WIDTH)
        over = f"  0 to {bytes_text(memory.peak)}, by calls"
        yield Paragraph((Phrase(bars, "good"), Phrase(over)))
    yield from _by_line(memory, folder, rows)
    yield from () if drawn else _at_peak(memory, rows, folder)
    yield from _growth(memory, folder)
    yield _say(_not_seen(memory, device), "dim")


def _by_line(memory: Memory, folder: str, rows: int) -> Iterator[Part]:
    lines = memory.lines
    names = ("line", "allocated", "freed", "at the end", "at the peak", "count", "code")
    yield Table(
        tuple(
            Column(name, "left" if name in ("line", "code") else "right", name == "code")
            for name in names
        ),
        tuple(_line(row, folder) for row in lines[:rows]),
        max(0, len(lines) - rows),
        "more lines; --json has all",
    )


def _at_peak(memory: Memory, rows: int, folder: str) -> Iterator[Part]:
    kinds = memory.by_kind()
    told = ", ".join(f"{WORDS.get(kind, kind)} {bytes_text(n)}" for kind, n in kinds.items())
    yield _say(f"At the peak: {told}.")
    parts = memory.composition
    yield Table(
        (
            Column("at the peak", "right"),
            Column("what"),
            Column("variable", give=True),
            Column("made at"),
        ),
        tuple(
            (
                Phrase(bytes_text(part.nbytes), "strong"),
                Phrase(part.kind if part.count == 1 else f"{part.count} x {part.kind}"),
                Phrase(shortened(part.variable, 40), "code"),
                Phrase(_place(part.site, folder), "place"),
            )
            for part in parts[:rows]
        ),
        max(0, len(parts) - rows),
        "more blocks; --json has all",
    )


def _line(row: Line, folder: str) -> tuple[Phrase, ...]:
    return (
        Phrase(_place(row.site, folder), "place"),
        Phrase(bytes_text(row.allocated)),
        Phrase(bytes_text(row.freed)),
        Phrase(bytes_text(row.held_end)),
        Phrase(bytes_text(row.held_peak), "strong"),
        Phrase(f"{row.count:,}"),
        Phrase(shortened(row.site.expression, 40), "code"),
    )


def _growth(memory: Memory, folder: str) -> Iterator[Part]:
    growth = memory.growth
    if growth is None or len(growth.held) < 3:
        return
    if growth.per_step <= 0:
        last = len(growth.held)
        yield _say(f"From optimizer step 2 to {last} the memory held did not grow.")
        return
    where = ", ".join(
        f"{_place(site, folder)} ({bytes_text(size)} more)" for site, size in growth.lines[:3]
    )
    yield _say(f"{growth}: {where}.")


def _not_seen(memory: Memory, device: str) -> str:
    what = (
        "what an operation takes and gives back inside itself, gradients on their way through a "
        "backward pass, and an optimizer's own temporaries"
    )
    if device in memory.unseen:
        size = memory.unseen[device]
        return f"Not seen above: {what}; the allocator's own peak is {bytes_text(size)} higher."
    if device.startswith("cuda"):
        return f"Not seen above: {what}. The recording holds no figure of the allocator's."
    return f"Not seen above: {what}. On {device} no allocator tells how much that is."


def _place(site: Site, folder: str) -> str:
    return shown_line(site.file, site.line, folder) if site.line else "not recorded"


def _say(text: str, kind: Any = "plain") -> Paragraph:
    return Paragraph((Phrase(text, kind),))


# -- over time ---------------------------------------------------------------------------------


def sparkline(timeline: Sequence[tuple[int, int]], width: int) -> str:
    """Return the timeline in one line of at most `width` bars: the most held in each stretch."""
    if not timeline:
        return ""
    first, last = timeline[0][0], timeline[-1][0]
    top = max(held for _, held in timeline) or 1
    length = last - first + 1
    width = min(width, length)
    most = [0] * width
    before, filled = 0, -1
    for at, held in timeline:
        column = (at - first) * width // length
        begins = -(-column * length // width)  # the first moment of that column
        for between in range(filled + 1, column + (at - first > begins)):
            most[between] = before
        most[column] = max(most[column], held)
        before, filled = held, column
    return "".join(" " if held == 0 else BARS[(held * 8 - 1) // top] for held in most)


def write_plot(history: History, file: str) -> None:
    """Draw what is held over time to `file`, stacked by kind. Raises `CannotPlot`."""
    check(file)
    path = Path(file)
    figure = draw(history)
    figure.savefig(path, dpi=90, metadata=_metadata(path.suffix.lower()))


def draw(history: History) -> Any:
    """Return the figure: one panel for each device, bytes held over calls, stacked by kind."""
    devices = Memory.of(history).devices
    if not devices:
        raise CannotPlot("there is nothing to plot: no tensor's memory was seen")
    figure = _figure_class()(figsize=(11, 4.5 * len(devices)), layout="constrained")
    panels = figure.subplots(len(devices), 1, squeeze=False)
    for device, (axes,) in zip(devices, panels, strict=True):
        memory = Memory.of(history, device)
        times, series = by_kind_over_time(memory)
        labels = [WORDS.get(kind, kind) for kind in series]
        colors = [_shade(KINDS.index(kind)) for kind in series]
        axes.stackplot(times, *series.values(), labels=labels, colors=colors, step="post")
        axes.axvline(memory.peak_at, color="black", linewidth=0.8, linestyle=":")
        place = _place(memory.peak_site, history.trace.folder)
        axes.set_title(f"{device}: peak {bytes_text(memory.peak)} at {place}")
        axes.set_xlabel("calls recorded")
        axes.set_ylabel("bytes held")
        axes.yaxis.set_major_formatter(lambda value, _: bytes_text(int(value)))
        axes.legend(fontsize=8, loc="upper left")
    return figure


def _shade(number: int) -> str:
    return COLORS[number] if number < len(COLORS) else "#999999"


def by_kind_over_time(memory: Memory) -> tuple[list[int], dict[str, list[int]]]:
    """Return moments, and for each kind the bytes held at them.

    A block that comes to be kept by the gradient graph alone is drawn as an activation all along.
    """
    times = [at for at, _ in memory.timeline]
    change: dict[str, dict[int, int]] = {}
    for block in memory.blocks:
        steps = change.setdefault(memory.kind(block, _last_moment(block)), {})
        steps[block.born] = steps.get(block.born, 0) + block.nbytes
        if block.freed >= 0:
            steps[block.freed] = steps.get(block.freed, 0) - block.nbytes
    series: dict[str, list[int]] = {}
    for kind in KINDS:
        if kind in change:
            held, series[kind] = 0, []
            for at in dict.fromkeys(times):
                held += change[kind].get(at, 0)
                series[kind].append(held)
    return list(dict.fromkeys(times)), series


def _last_moment(block: Block) -> int:
    return block.freed - 1 if block.freed >= 0 else 1 << 62


def to_json(history: History, moment: str = "") -> str:
    """Return the account as JSON: the report's `memory` section, and what only this command has.

    With a `moment`, the map of memory at it; as `map_document`.
    """
    memory, folder = Memory.of(history), history.trace.folder
    growth = memory.growth
    whole = {
        "peak_bytes": memory.peak,
        "lines": memory_lines(memory, folder),
        "held_end_bytes": memory.held_end,
        "peak_line": _place(memory.peak_site, folder),
        "composition": [
            {
                "kind": part.kind,
                "variable": part.variable,
                "line": _place(part.site, folder),
                "bytes": part.nbytes,
                "count": part.count,
            }
            for part in memory.composition
        ],
        "devices": {device: Memory.of(history, device).peak for device in memory.devices},
        "unseen": memory.unseen,
        "steps": list(growth.held) if growth else [],
        "timeline": [list(moment) for moment in memory.timeline],
    }
    if moment:
        whole["map"] = map_json(history, moment)
    return json.dumps({"memory": whole}, indent=1) + "\n"
