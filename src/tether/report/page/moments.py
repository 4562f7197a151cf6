"""The moments of a program, for the page's slider: steps of the optimizer, and lines within each.

A line that runs several times within a step is one moment, where it ran first. Steps that ran the
same lines and held the same memory are written once.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from tether.analysis.history import History
from tether.analysis.memory import Memory
from tether.facts import Site
from tether.operations.table import shown
from tether.report.document.findings import Findings, counted
from tether.report.tables.ties import TieRow

MANY_STEPS = 2_000
"""Steps that the slider has; of more, those at even distances and the last."""


class Moment(NamedTuple):
    """A line within a step, and the time when it was done there."""

    line: int  # number in the list of lines
    at: int


def moments(about: Findings, link: Callable[[Site], str]) -> dict[str, Any] | None:
    """Return what the slider shows, as JSON holds it; None of a program with a single moment.

    `link` gives the id of a line on the page, or "".
    """
    history = about.history
    lines: dict[str, int] = {}
    boundary = _boundary(history)
    steps = list(_steps(history, boundary, link, lines))
    if sum(map(len, steps)) < 2:
        return None
    chosen = _even(len(steps))
    held = _Held(history)
    patterns: dict[tuple[tuple[int, int], ...], int] = {}
    order = []
    for number in chosen:
        pattern = tuple((one.line, held.at(one.at) >> 10) for one in steps[number])
        order.append(patterns.setdefault(pattern, len(patterns)))
    return {
        "lines": list(lines),
        "ends": int(len(steps) > boundary.times > 0),  # whether something comes after the last step
        "steps": [[number + 1, pattern] for number, pattern in zip(chosen, order, strict=True)],
        "patterns": [[list(one) for one in pattern] for pattern in patterns],
        "ties": list(_ties(about, steps, lines, link)),
    }


def _even(count: int) -> list[int]:
    every = -(-count // MANY_STEPS)
    return sorted({*range(0, count, every), count - 1})


def _steps(
    history: History, boundary: Boundary, link: Callable[[Site], str], lines: dict[str, int]
) -> Iterator[list[Moment]]:
    """Yield the moments of each step; what comes after the last is a step of its own."""
    now: dict[int, Moment] = {}
    for position, event in enumerate(history.events):
        name = link(history.site_of(event)) if event.site >= 0 else ""
        if name:
            line = lines.setdefault(name, len(lines))
            now[line] = Moment(line, history.trace.event_id(position))
        if event.operation == boundary.operation and event.site == boundary.site:
            yield list(now.values())
            now = {}
    if now:
        yield list(now.values())


class Boundary(NamedTuple):
    """The call that ends a step, and how often it was made."""

    operation: str
    site: int
    times: int


def _boundary(history: History) -> Boundary:
    """Return what ends a step: the step of an optimizer, else a backward pass."""
    found = Counter(
        (event.operation, event.site)
        for event in history.events
        if event.operation in ("step", "backward") and event.site >= 0
    )
    stepping = [one for one in found if one[0] == "step"] or list(found)
    chosen = max(stepping, key=found.__getitem__, default=None)
    return Boundary(*chosen, found[chosen]) if chosen else Boundary("", -2, 0)


class _Held:
    """How much memory was held after a call."""

    def __init__(self, history: History) -> None:
        devices = Memory.of(history).devices
        self._line = Memory.of(history, devices[0]).timeline if devices else []
        self._times = [at for at, _ in self._line]

    def at(self, moment: int) -> int:
        place = bisect_right(self._times, moment + 1) - 1
        return self._line[place][1] if place >= 0 else 0


# -- ties ------------------------------------------------------------------------------------


def _ties(
    about: Findings,
    steps: Sequence[Sequence[Moment]],
    lines: dict[str, int],
    link: Callable[[Site], str],
) -> Iterator[dict[str, Any]]:
    """Yield since when each tie of a finding was there, and the lines that write and read it."""
    for row in about.ties:
        first = _made(about.history, row)
        if row.finding is None or first < 0:
            continue
        tie, finding = row.tie, about.findings[row.finding]
        step = next(n for n, some in enumerate(steps, 1) if not some or some[-1].at >= first)
        name = f"{finding.subject} ({counted(len(tie.tensors), 'tensor')})"
        acts = {}
        for sites, verb in (
            (tie.writes, f"{shown(tie.operation)}() writes what {name} shows"),
            (tie.reads, f"reads {name}, with what was written"),
        ):
            for site in sites:
                if link(site) in lines:
                    acts[lines[link(site)]] = verb
        yield {"n": row.finding + 1, "step": step, "acts": acts}


def _made(history: History, row: TieRow) -> int:
    """Return when the first tensor that shows a tie was made, or -1."""
    made = [history.made_at(tensor) for tensor in row.tie.tensors]
    known = [history.trace.event_id(position) for position in made if position >= 0]
    return max((at for at in known if at <= row.tie.write), default=-1)
