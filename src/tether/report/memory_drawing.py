"""Memory over time as a drawing: the curve of what is held, and a lane for each large storage.

All positions are percents of the width, so that the page can make the drawing wider without
stretching its words. It is SVG, made here; the page adds nothing to it.
"""

from __future__ import annotations

from typing import NamedTuple

from tether.analysis.history import History, shortened
from tether.analysis.memory import Kind, Memory
from tether.facts import UNKNOWN, Site

MANY_LANES = 60
"""Storages with a lane: the largest at the peak, then the largest of the others."""

MANY_POINTS = 1_000
"""Points of the curve; the highest of its neighbours stands for those left out."""


class Lane(NamedTuple):
    """One storage and its life; `left` and `width` are percents of the recording."""

    name: str
    kind: Kind
    nbytes: int
    left: float
    width: float
    at_peak: bool
    site: Site | None  # of the line that made it


class Drawing(NamedTuple):
    """The memory of one device."""

    device: str
    peak: int
    peak_left: float
    peak_site: Site
    points: str  # of a polygon in a box of 1000 by 100, as SVG writes them
    lanes: list[Lane]
    omitted: int
    omitted_bytes: int


def drawings(history: History) -> list[Drawing]:
    """Return a drawing for each device that held memory."""
    devices = Memory(history).devices
    return [_drawing(Memory(history, device), device, history) for device in devices]


def _drawing(memory: Memory, device: str, history: History) -> Drawing:
    first = history.trace.event_id(0) if history.events else 0
    span = max(1, history.trace.ended - first)

    def percent(at: int) -> float:
        return round(min(100.0, max(0.0, 100 * (at - first) / span)), 2)

    peak_at = memory.peak_at
    blocks = sorted(memory.blocks, key=lambda one: (not one.held(peak_at), -one.nbytes))
    blocks = [one for one in blocks if one.nbytes]
    shown = sorted(blocks[:MANY_LANES], key=lambda one: (one.born, -one.nbytes))
    lanes = []
    for block in shown:
        left = percent(block.born)
        right = percent(block.freed) if block.freed >= 0 else 100.0
        lanes.append(
            Lane(
                shortened(memory.variable(block)) or "unnamed",
                memory.kind(block, max(peak_at, block.born)),
                block.nbytes,
                left,
                max(0.3, round(right - left, 2)),
                block.held(peak_at),
                history.site(block.site) if block.site != UNKNOWN else None,
            )
        )
    left_out = blocks[MANY_LANES:]
    return Drawing(
        device,
        memory.peak,
        percent(peak_at),
        memory.peak_site,
        _polygon([(percent(at), held) for at, held in memory.timeline], memory.peak),
        lanes,
        len(left_out),
        sum(one.nbytes for one in left_out),
    )


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
