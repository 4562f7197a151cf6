"""What copies cost, as a table, as JSON and in words."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from tether.measure.cost import Bench, Cost, from_dict
from tether.report.document.blocks import (
    Block,
    Column,
    Document,
    Heading,
    Kind,
    Paragraph,
    Phrase,
    Table,
)
from tether.report.document.text import render
from tether.report.page.cost_drawing import amount, drawing, duration
from tether.report.page.shell import document_page

CLOSE = 1.05
"""Medians within a twentieth of each other are called equal: repeated runs differ by as much."""

MANY_REASONS = 3  # that the machine was not quiet, which are told

MATTERS = 1.25
"""The choice of a way matters from here on: the slowest takes so many times the fastest."""


class Size(NamedTuple):
    """The ways of one family at one size, fastest first."""

    nbytes: int
    fastest: tuple[str, ...]  # those that no spread or closeness tells apart
    best: Cost
    worst: Cost


def to_json(bench: Bench) -> str:
    """Return the run as JSON; `tether.measure.cost.from_dict` reads it back."""
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
    return render(document(bench, old, narrow=width < NARROW), width, colour=color)


def to_html(bench: Bench, old: Bench | None = None) -> str:
    """Return the same as one page, with the times drawn over the sizes."""
    drawn = ""
    for family in families(bench):
        costs = [one for one in bench.costs if one.family == family]
        drawn += drawing(_TITLES.get(family, _TITLE), costs, bench.floor)
    return document_page(document(bench, old), drawn)


def document(bench: Bench, old: Bench | None = None, *, narrow: bool = False) -> Document:
    """Return the report; it ends with what follows from it, in two lines."""
    made = Document("What a copy costs", [Heading("What a copy costs", 1)])
    about = ", ".join(f"{key} {value}" for key, value in bench.machine.items())
    made.blocks += [_said(about, "dim")] if about else []
    for family in families(bench):
        made.blocks += _family(bench, family, old, narrow=narrow)
    made.blocks += _limits(bench) if bench.limits else []
    lines = words(bench, old)
    made.blocks += [Heading("conclusion"), *(_said(line) for line in lines)] if lines else []
    return made


def _said(text: str, kind: Kind = "plain") -> Paragraph:
    return Paragraph((Phrase(text, kind),))


def families(bench: Bench) -> list[str]:
    """Return the families, in the order in which they were asked for."""
    return list(dict.fromkeys(cost.family for cost in bench.costs))


NARROW = 92
"""Columns of text below which what can be worked out or seldom differs is left out."""

_FIGURES = ("time", "spread", "speed", "of limit", "faults", "new", "peak")
_LEFT_OUT = ("speed", "faults", "peak")
_TIES = {"waits": "waits for the device", "memory": "memory shared with x", "grad": "gradient"}
"""Columns that mostly say the same in every row, and are then said once, below the table."""


def _family(bench: Bench, family: str, old: Bench | None, *, narrow: bool) -> Iterator[Block]:
    """Yield the table of one family, and what belongs below it."""
    costs = sorted((c for c in bench.costs if c.family == family), key=lambda c: c.nbytes)
    measured = [cost for cost in costs if cost.seconds is not None]
    varying, said = _ties_of(measured)
    shown = [name for name in _FIGURES if not (narrow and name in _LEFT_OUT)]
    names = [*shown, *varying, *(["against old"] if old else [])]
    columns = (
        Column("bytes", "right"),
        Column("way", give=True, wrap=True),
        *(Column(name, "left" if name in _TIES else "right") for name in names),
    )
    yield Heading(_TITLES.get(family, _TITLE))
    yield Table(columns, tuple(_row(cost, names, bench, old) for cost in measured))
    if said:
        yield _said(f"In every row: {said}.", "dim")
    if narrow:
        text = f"Left out for want of room: {', '.join(_LEFT_OUT)}; --json has them."
        yield _said(text, "dim")
    yield from map(_said, _refused(costs))


def _ties_of(costs: Sequence[Cost]) -> tuple[list[str], str]:
    """Return the ties that differ among ways, and what is the same of all, in words."""
    ties = {name: list(dict.fromkeys(_ties(cost)[name] for cost in costs)) for name in _TIES}
    same = (f"{_TIES[name]}: {found[0]}" for name, found in ties.items() if len(found) == 1)
    return [name for name, found in ties.items() if len(found) > 1], ", ".join(same)


def _row(cost: Cost, names: Sequence[str], bench: Bench, old: Bench | None) -> tuple[Phrase, ...]:
    figures = dict(zip(_FIGURES, _figures(bench, cost), strict=True)) | _ties(cost)
    if old:
        figures["against old"] = against(cost, old)
    cells = (Phrase(figures[name], "strong" if name == "time" else "plain") for name in names)
    return Phrase(amount(cost.nbytes)), Phrase(cost.way, "code"), *cells


_TITLE = "Cost of one call"
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


def _limits(bench: Bench) -> list[Block]:
    columns = (
        Column("copy of bytes"),
        *(Column(name, "right") for name in ("bytes", "time", "spread", "speed", "faults")),
    )
    rows = (
        (
            limit.name,
            amount(limit.nbytes),
            duration(limit.seconds),
            f"{duration(limit.low)}..{duration(limit.high)}",
            f"{amount(limit.speed)}/s",
            f"{limit.faults:,.0f}",
        )
        for limit in bench.limits
    )
    cells = tuple(tuple(map(Phrase, row)) for row in rows)
    return [Heading("What the machine itself can do"), Table(columns, cells)]


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
    """Return the answers: the fastest way at each size, what disturbed, and two lines of advice."""
    lines: list[str] = []
    advice: list[tuple[str, str, str]] = []
    for family in families(bench):
        sizes, title = ranked(bench, family), _TITLES.get(family, _TITLE)
        if not sizes:
            lines.append("No way could be measured; the reasons are above.")
        elif len({cost.way for cost in bench.costs if cost.family == family}) > 1:
            lines += [f"{title}, fastest:", *_fastest(sizes)]
            advice.append((title, _best(sizes), _when(sizes)))
    if old:
        lines.append(_changed(bench, old))
    if bench.noise:
        more = f"; and {len(bench.noise) - MANY_REASONS} more" if bench.noise[MANY_REASONS:] else ""
        reasons = "; ".join(bench.noise[:MANY_REASONS]) + more
        lines.append(f"Not quiet: {reasons}. Repeat the run before relying on small differences.")
    if len(advice) == 1:
        return [*lines, *advice[0][1:]]
    return [*lines, *(f"{title}: {best} {when}" for title, best, when in advice)]


def _best(sizes: Sequence[Size]) -> str:
    """Return the way that is fastest most often, and those to take where it is not."""
    ways = Counter(way for size in sizes for way in size.fastest)
    best, times = ways.most_common(1)[0]
    if times == len(sizes):
        return f"Take {best}: no way is faster at any size."
    other: dict[str, list[str]] = {}
    for size in sizes:
        if best not in size.fastest:
            other.setdefault(size.best.way, []).append(amount(size.nbytes))
    rest = "; ".join(f"{way} is faster at {', '.join(found)}" for way, found in other.items())
    return f"Take {best}: no way is faster at {times} of {len(sizes)} sizes; {rest}."


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
    """Return whether the choice matters, and where it does most."""
    telling = [
        one
        for one in sizes
        if one.worst.way not in one.fastest
        and (one.worst.seconds or 0) > MATTERS * (one.best.seconds or 0)
    ]
    if not telling:
        return (
            "It does not matter at any size measured: the ways lie within a quarter of each other."
        )
    most = max(telling, key=_loss)
    part = (most.worst.seconds or 0) / (most.best.seconds or 1)
    return (
        f"It matters from {amount(telling[0].nbytes)} on, most at {amount(most.nbytes)}: "
        f"{most.worst.way} takes {part:.1f} times as long as {most.best.way}, "
        f"{duration(_loss(most))} more in every call."
    )


def _loss(size: Size) -> float:
    return (size.worst.seconds or 0) - (size.best.seconds or 0)


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
