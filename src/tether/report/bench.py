"""What copies cost, as a table, as JSON and in words."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from rich import box
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from tether.measure.cost import Bench, Cost, from_dict

CLOSE = 1.05
"""Medians within a twentieth of each other are called equal: repeated runs differ by as much."""

MATTERS = 1.25
"""The choice of a way matters from here on: the slowest takes so many times the fastest."""


class Size(NamedTuple):
    """The ways of one family at one size, fastest first."""

    nbytes: int
    fastest: tuple[str, ...]  # those that no spread or closeness tells apart
    best: Cost
    worst: Cost


def to_json(bench: Bench) -> str:
    """Return the run as JSON; `tether.cost.from_dict` reads it back."""
    return json.dumps(bench.to_dict(), indent=1) + "\n"


def read(text: str) -> Bench:
    """Return the run in `text`. Raises `ValueError` that says in one line why it is none."""
    try:
        found: Any = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"it is no JSON ({error})") from None
    return from_dict(found)


def to_text(
    bench: Bench, *, width: int = 120, color: bool = False, old: Bench | None = None
) -> str:
    """Return the tables and the answers in words; beside `old` when there is one."""
    console = Console(
        width=width, color_system="auto" if color else None, force_terminal=color, highlight=False
    )
    parts: list[Any] = []
    for family in families(bench):
        table, below = _table(bench, family, old, narrow=width < NARROW)
        parts += [table, *map(Text, below), Text()]
    if bench.limits:
        parts.append(_limits(bench))
    parts += [Text(line) for line in words(bench, old)]
    with console.capture() as capture:
        console.print(Group(*parts))
    return capture.get()


def families(bench: Bench) -> list[str]:
    """Return the families, in the order in which they were asked for."""
    return list(dict.fromkeys(cost.family for cost in bench.costs))


NARROW = 92
"""Columns of text below which what can be worked out or seldom differs is left out."""

_FIGURES = ("time", "spread", "speed", "of limit", "faults", "new", "peak")
_LEFT_OUT = ("speed", "faults", "peak")
_TIES = {"waits": "waits for the device", "memory": "memory shared with x", "grad": "gradient"}
"""Columns that mostly say the same in every row, and are then said once, below the table."""


def _table(
    bench: Bench, family: str, old: Bench | None, *, narrow: bool
) -> tuple[Table, list[str]]:
    """Return the table of one family, and the lines that belong below it."""
    costs = sorted((c for c in bench.costs if c.family == family), key=lambda c: c.nbytes)
    measured = [cost for cost in costs if cost.seconds is not None]
    ties = {name: list(dict.fromkeys(_ties(cost)[name] for cost in measured)) for name in _TIES}
    varying = [name for name, found in ties.items() if len(found) > 1]
    said = ", ".join(
        f"{_TIES[name]}: {found[0]}" for name, found in ties.items() if len(found) == 1
    )
    shown = [name for name in _FIGURES if not (narrow and name in _LEFT_OUT)]
    columns = [*shown, *varying, *(["against old"] if old else [])]
    table = _empty_table(family, columns)
    _fill(table, columns, bench, measured, old)
    below = [f"In every row: {said}."] if said else []
    if narrow:
        below.append(f"Left out for want of room: {', '.join(_LEFT_OUT)}; --json has them.")
    return table, below + _refused(costs)


def _empty_table(family: str, columns: Sequence[str]) -> Table:
    title = _TITLES.get(family, "Cost of one call")
    table = Table(title=title, box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False)
    table.title_justify = "left"
    table.add_column("bytes", justify="right", no_wrap=True)
    table.add_column("way", overflow="fold", min_width=14)
    for name in columns:
        tie = name in _TIES
        table.add_column(name, justify="left" if tie else "right", no_wrap=name in _FIGURES)
    return table


def _fill(
    table: Table, columns: Sequence[str], bench: Bench, measured: list[Cost], old: Bench | None
) -> None:
    """Add a row for each cost; those of one size are a section, which names the size once."""
    last = -1
    for cost in measured:
        if last not in {-1, cost.nbytes}:
            table.add_section()
        figures = dict(zip(_FIGURES, _figures(bench, cost), strict=True)) | _ties(cost)
        if old:
            figures["against old"] = against(cost, old)
        size = amount(cost.nbytes) if cost.nbytes != last else ""
        table.add_row(size, cost.way, *(figures[name] for name in columns))
        last = cost.nbytes


_TITLES = {"tensor": "Copies of a tensor", "numpy": "A tensor to an independent array"}


def _figures(bench: Bench, cost: Cost) -> list[str]:
    share = bench.share(cost)
    return [
        duration(cost.seconds or 0),
        _spread(cost),
        f"{amount(cost.speed or 0)}/s",
        f"{share:.0%}" if share is not None else "?",
        f"{cost.faults:,.0f}" if cost.faults >= 10 else f"{cost.faults:.2g}",
        _known(cost.allocated),
        _known(cost.peak),
    ]


def _spread(cost: Cost) -> str:
    """Return how far the quartiles lie from the median: the farther one."""
    median = cost.seconds or 1.0
    return f"\u00b1{max(cost.high - median, median - cost.low) / median:.0%}"


def _ties(cost: Cost) -> dict[str, str]:
    return {
        "waits": "?" if cost.waits is None else str(cost.waits),
        "memory": cost.memory or "-",
        "grad": cost.gradient or "-",
    }


def _refused(costs: Sequence[Cost]) -> list[str]:
    """Return a line for each reason why something could not be measured: what, where and why."""
    reasons: dict[str, list[Cost]] = {}
    for cost in costs:
        if cost.seconds is None:
            reasons.setdefault(cost.note, []).append(cost)
    every = {cost.way for cost in costs}
    lines = []
    for note, refused in reasons.items():
        ways = list(dict.fromkeys(cost.way for cost in refused))
        sizes = list(dict.fromkeys(cost.nbytes for cost in refused))
        asked = {cost.nbytes for cost in costs if cost.way in ways}
        where = "" if set(sizes) == asked else f" at {_stretch(sizes)}"
        if len(ways) == len(every) > 1:
            lines.append(f"Nothing was measured{where}: {note}")
        else:
            lines.append(f"Not measured: {', '.join(ways)}{where}: {note}")
    return lines


def _stretch(sizes: Sequence[int]) -> str:
    """Return the first and the last of sizes in order; two or one by themselves."""
    if len(sizes) > 2:
        return f"{len(sizes)} sizes from {amount(sizes[0])} to {amount(sizes[-1])}"
    return " and ".join(map(amount, sizes))


def _known(nbytes: int | None) -> str:
    return "?" if nbytes is None else amount(nbytes)


def _limits(bench: Bench) -> Table:
    table = Table(title="What the machine itself can do", box=box.SIMPLE_HEAD)
    table.title_justify = "left"
    table.add_column("copy of bytes")
    for name in ("bytes", "time", "spread", "speed", "faults"):
        table.add_column(name, justify="right")
    for limit in bench.limits:
        table.add_row(
            limit.name,
            amount(limit.nbytes),
            duration(limit.seconds),
            f"{duration(limit.low)}..{duration(limit.high)}",
            f"{amount(limit.speed)}/s",
            f"{limit.faults:,.0f}",
        )
    return table


def amount(nbytes: float) -> str:
    """Return bytes in a unit that fits: 4 B, 1.5 KB, 256 MB; a KB has 1024 bytes."""
    units = ["B", "KB", "MB", "GB", "TB"]
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


def against(cost: Cost, old: Bench | None) -> str:
    """Return how `cost` stands to the same way and size of an old run, in a word or two."""
    key = (cost.way, cost.family, cost.nbytes)
    found = [c for c in old.costs if (c.way, c.family, c.nbytes) == key] if old else []
    if not found or not found[0].seconds or not cost.seconds:
        return "not there"
    ratio = cost.seconds / found[0].seconds
    apart = cost.low > found[0].high or cost.high < found[0].low
    if not apart or 1 / CLOSE < ratio < CLOSE:
        return "same"
    return f"{ratio:.2f}x slower" if ratio > 1 else f"{1 / ratio:.2f}x faster"


def ranked(bench: Bench, family: str) -> list[Size]:
    """Return for every size which ways are fastest, and the slowest."""
    found = []
    for nbytes in sorted({cost.nbytes for cost in bench.costs if cost.family == family}):
        here = [c for c in bench.costs if (c.family, c.nbytes) == (family, nbytes) and c.seconds]
        if not here:
            continue
        here.sort(key=lambda cost: cost.seconds or 0.0)
        best = here[0]
        equal = [c.way for c in here if _equal(c, best)]
        found.append(Size(nbytes, tuple(equal), best, here[-1]))
    return found


def _equal(cost: Cost, best: Cost) -> bool:
    """Whether the run cannot tell `cost` from the fastest: near it, or within its spread."""
    return (cost.seconds or 0) < CLOSE * (best.seconds or 0) or cost.low < (best.seconds or 0)


def words(bench: Bench, old: Bench | None = None) -> list[str]:
    """Return the answers: the fastest way at each size, when it matters, and what disturbed."""
    lines: list[str] = []
    for family in families(bench):
        sizes = ranked(bench, family)
        if not sizes:
            lines.append("No way could be measured; the reasons are above.")
            continue
        several = len({cost.way for cost in bench.costs if cost.family == family}) > 1
        if several:
            lines += ["Fastest:", *_fastest(sizes), _when(sizes)]
    if old:
        lines.append(_changed(bench, old))
    for reason in bench.noise:
        lines.append(f"Not quiet: {reason}; repeat the run before relying on small differences.")
    return lines


def _fastest(sizes: Sequence[Size]) -> list[str]:
    """Return a line for each stretch of sizes with the same fastest ways."""
    lines, start = [], 0
    for number in range(1, len(sizes) + 1):
        if number < len(sizes) and set(sizes[number].fastest) == set(sizes[start].fastest):
            continue
        first, last = sizes[start], sizes[number - 1]
        span = amount(first.nbytes)
        if last is not first:
            span += f" to {amount(last.nbytes)}"
        names = ", ".join(sorted(first.fastest))
        equal = " (not told apart)" if len(first.fastest) > 1 else ""
        lines.append(f"  {span}: {names}{equal}")
        start = number
    return lines


def _when(sizes: Sequence[Size]) -> str:
    """Return when the choice matters, by the largest loss and by the loss in one call."""

    def loss(size: Size) -> float:
        return (size.worst.seconds or 0) - (size.best.seconds or 0)

    telling = [
        s
        for s in sizes
        if s.worst.way not in s.fastest and (s.worst.seconds or 0) > MATTERS * (s.best.seconds or 0)
    ]
    if not telling:
        return "When it matters: at no size measured; the ways lie within a quarter of each other."
    first, most = telling[0], max(telling, key=loss)
    part = (most.worst.seconds or 0) / (most.best.seconds or 1)
    often = max(1, round(1e-3 / loss(first)))
    return (
        f"When it matters: at {amount(first.nbytes)} {first.worst.way} costs "
        f"{duration(loss(first))} a call more than {first.best.way}, which is a millisecond after "
        f"{often:,} calls; at {amount(most.nbytes)} {most.worst.way} takes {part:.1f} times as "
        f"long as {most.best.way}, {duration(loss(most))} more in every call."
    )


def _changed(bench: Bench, old: Bench) -> str:
    seen = [against(cost, old) for cost in bench.costs if cost.seconds]
    slower = sum(word.endswith("slower") for word in seen)
    faster = sum(word.endswith("faster") for word in seen)
    same = seen.count("same")
    text = f"Against the old run: {slower} slower, {faster} faster, {same} the same"
    differ = [
        f"{key} {old.machine.get(key, '?')} then, {value} now"
        for key, value in bench.machine.items()
        if old.machine.get(key) != value
    ]
    return text + (f"; not made alike: {', '.join(differ)}." if differ else ".")
