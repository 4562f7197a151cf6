"""Time over size as a drawing: a line for each way of copying, both axes logarithmic.

Positions are percents of the width and of the height, so that words keep their size on any screen.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tether.measure.cost import Cost
from tether.report.page.html import safe

COLOURS = 7  # classes c0 to c6 of the style sheet
_FLOOR = "the memory's own copy"


def amount(nbytes: float) -> str:
    """Return bytes in a unit that fits: 4 B, 1.5 KiB, 256 MiB."""
    units = ["B", "KiB", "MiB", "GiB", "TiB"]
    while nbytes >= 1023.5 and len(units) > 1:
        nbytes /= 1024
        units.pop(0)
    return f"{nbytes:.3g} {units[0]}" if nbytes < 999.5 else f"{nbytes:.0f} {units[0]}"


def duration(seconds: float) -> str:
    """Return seconds in a unit that fits."""
    for unit, scale in (("ns", 1e-9), ("us", 1e-6), ("ms", 1e-3)):
        if seconds < 999.5 * scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds:.3g} s"


def drawing(title: str, costs: Sequence[Cost], floor: Mapping[int, float]) -> str:
    """Return the picture of one family as HTML; "" of a single size, which is no line."""
    lines: dict[str, list[tuple[int, float]]] = {}
    for cost in sorted(costs, key=lambda one: one.nbytes):
        if cost.seconds:
            lines.setdefault(cost.way, []).append((cost.nbytes, cost.seconds))
    sizes = {size for line in lines.values() for size, _ in line}
    if len(sizes) < 2:
        return ""
    lines[_FLOOR] = sorted((size, s) for size, s in floor.items() if size in sizes)
    axes = _Axes(sizes, [seconds for line in lines.values() for _, seconds in line])
    classes = {way: f"c{number % COLOURS}" for number, way in enumerate(lines)} | {_FLOOR: "floor"}
    drawn = "".join(axes.line(classes[way], line) for way, line in lines.items())
    legend = "".join(
        f'<span><svg width="26" height="10" aria-hidden="true"><path class="{classes[way]}" '
        f'd="M0 5H26"/></svg> {safe(way)}</span> '
        for way in lines
    )
    label = f"{title}: time of one call over the bytes of x; the table has the figures"
    return (
        f'<figure class="costs"><figcaption>{safe(title)}: time of one call over the bytes of x'
        f'</figcaption><div class="zoom"><svg height="320" role="img" aria-label="{safe(label)}">'
        f'<svg x="12%" y="8" width="85%" height="284" viewBox="0 0 1000 1000" '
        f'preserveAspectRatio="none">{drawn}</svg>{axes.labels()}</svg></div>'
        f'<p class="legend">{legend}</p></figure>'
    )


class _Axes:
    """Two logarithmic axes around a box of 1000 by 1000."""

    def __init__(self, sizes: set[int], times: Sequence[float]) -> None:
        self.sizes = sorted(sizes)
        self.left, self.right = math.log(self.sizes[0]), math.log(self.sizes[-1])
        self.low, self.high = math.log10(min(times)), math.log10(max(times))

    def _x(self, size: int) -> float:
        return round(1000 * (math.log(size) - self.left) / (self.right - self.left), 1)

    def _y(self, seconds: float) -> float:
        part = (math.log10(seconds) - self.low) / max(self.high - self.low, 1e-9)
        return round(1000 * (1 - part), 1)

    def line(self, kind: str, points: Sequence[tuple[int, float]]) -> str:
        """Return one way as a line."""
        path = "L".join(f"{self._x(size)} {self._y(seconds)}" for size, seconds in points)
        return f'<path class="{kind}" d="M{path}"/>' if path else ""

    def labels(self) -> str:
        """Return what stands at the axes: sizes below, powers of ten at the left."""
        every = -(-len(self.sizes) // 6)
        below = [
            f'<text x="{12 + 0.085 * self._x(size):.1f}%" y="310" text-anchor="middle">'
            f"{amount(size)}</text>"
            for size in self.sizes[::every]
        ]
        powers = range(math.ceil(self.low), math.floor(self.high) + 1)
        beside = [
            f'<text x="11%" y="{8 + 0.284 * self._y(10.0**power) + 4:.0f}" text-anchor="end">'
            f"{duration(10.0**power)}</text>"
            for power in powers
        ]
        return "".join((*below, *beside))
