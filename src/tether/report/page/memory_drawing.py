"""Memory over time as a drawing, and what its peak is made of.

All positions are percents of the width, so that the page can make the drawing wider without
stretching its words. It is SVG, made here; the page adds nothing to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tether.analysis.history import History
from tether.analysis.memory import Kind, Memory
from tether.facts import Site
from tether.report.document.grouping import folded

MANY_ROWS = 30
"""Lines that the peak is told by; what further lines hold is added up in one row."""

MANY_POINTS = 600
"""Points of the curve; the highest of its neighbours stands for those left out."""

MANY_TICKS = 8
"""Steps that are named under the curve."""


class PeakRow(NamedTuple):
    """What one line of the program made of what is held at the peak."""

    kind: Kind | str
    names: str
    pieces: int
    nbytes: int
    share: float  # percent of the peak
    site: Site | None


class Tick(NamedTuple):
    """A step of the optimizer, on the axis of the curve."""

    left: float
    step: int


class Drawing(NamedTuple):
    """The memory of one device."""

    device: str
    peak: int
    peak_left: float
    peak_site: Site
    peak_step: int  # 0: before the first step, or nothing steps
    points: str  # of a polygon in a box of 1000 by 100, as SVG writes them
    ticks: list[Tick]
    rows: list[PeakRow]
    growth: (
        tuple[str, Site] | None
    )  # what is held more after each step, and the line that made most


def drawings(history: History) -> list[Drawing]:
    """Return a drawing for each device that held memory."""
    return [_drawing(Memory.of(history, one), one, history) for one in Memory.of(history).devices]


def _drawing(memory: Memory, device: str, history: History) -> Drawing:
    first = history.trace.event_id(0) if history.events else 0
    span = max(1, history.trace.ended - first)

    def percent(at: int) -> float:
        return round(min(100.0, max(0.0, 100 * (at - first) / span)), 2)

    steps = memory.steps
    every = max(1, -(-len(steps) // MANY_TICKS))
    ticks = [Tick(percent(at), n) for n, at in enumerate(steps, 1) if n % every == 0]
    return Drawing(
        device,
        memory.peak,
        percent(memory.peak_at),
        memory.peak_site,
        sum(at <= memory.peak_at for at in steps),
        _polygon([(percent(at), held) for at, held in memory.timeline], memory.peak),
        ticks,
        _rows(memory),
        _growth(memory),
    )


def _growth(memory: Memory) -> tuple[str, Site] | None:
    """Say by how much the memory held grew a step, where it did and a line is known for it."""
    growth = memory.growing
    return (f"{growth}, most of it at", growth.lines[0].site) if growth else None


def _rows(memory: Memory) -> list[PeakRow]:
    """Return what the peak is made of by kind and line, the largest share first."""
    groups: dict[tuple[Kind, str, int], list[int]] = {}
    names: dict[tuple[Kind, str, int], list[str]] = {}
    sites: dict[tuple[Kind, str, int], Site] = {}
    for part in memory.composition:
        key = part.kind, part.site.file, part.site.line
        total = groups.setdefault(key, [0, 0])
        total[0] += part.nbytes
        total[1] += part.count
        names.setdefault(key, []).append(part.variable.replace("`", ""))
        sites[key] = part.site
    order = sorted(groups, key=lambda key: -groups[key][0])
    rows = [
        PeakRow(
            key[0],
            _some(folded(filter(None, names[key]))),
            groups[key][1],
            groups[key][0],
            _share(groups[key][0], memory.peak),
            sites[key] if sites[key].line else None,
        )
        for key in order[:MANY_ROWS]
    ]
    left = [groups[key] for key in order[MANY_ROWS:]]
    if left:
        size, count = sum(one[0] for one in left), sum(one[1] for one in left)
        text = f"{len(left)} further lines"
        rows.append(PeakRow("other lines", text, count, size, _share(size, memory.peak), None))
    return rows


def _share(size: int, peak: int) -> float:
    return round(100 * size / peak, 1) if peak else 0.0


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:3])
    return shown + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _polygon(timeline: list[tuple[float, int]], peak: int) -> str:
    if not timeline or not peak:
        return ""
    heights: dict[float, int] = {}  # the highest of what falls on one place of the drawing
    last: dict[float, int] = {}
    for left, held in timeline:
        place = round(left * MANY_POINTS / 100) * 100 / MANY_POINTS
        heights[place] = max(held, heights.get(place, 0))
        last[place] = held
    points, before = ["0,100"], 0
    for place, held in heights.items():
        points += [f"{place * 10:g},{100 - 100 * before / peak:.1f}"]
        points += [f"{place * 10:g},{100 - 100 * held / peak:.1f}"]
        before = last[place]
    points += [f"1000,{100 - 100 * before / peak:.1f}", "1000,100"]
    return " ".join(points)
