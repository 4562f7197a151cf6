"""The reports of several processes as one: what they share is told once, and where they differ.

Each process was judged by itself: no fact of one speaks of another's tensors. What two of them say
of the same line and the same names is one row, with the processes that say it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

from tether.analysis.wording import named
from tether.finding import Finding
from tether.report.document.findings import Findings
from tether.report.document.grouping import in_order
from tether.report.tables.copies import Copy, Needed
from tether.report.tables.cuts import CutRow
from tether.report.tables.gradients import Gradient
from tether.report.tables.ties import TieRow


class OneProcess(NamedTuple):
    """What is known of one process, and how its numbers are found in the whole."""

    label: str  # "rank 1"
    about: Findings
    tensors: int  # added to its tensors
    events: int  # events before its own


_Row = TypeVar("_Row")


def _grouped(
    parts: Sequence[OneProcess],
    rows: Callable[[Findings], Sequence[_Row]],
    key: Callable[[_Row], Hashable],
) -> list[list[tuple[OneProcess, _Row]]]:
    """Return the rows of all parts, those with one key together, in the order first met."""
    groups: dict[Hashable, list[tuple[OneProcess, _Row]]] = {}
    for part in parts:
        for row in rows(part.about):
            groups.setdefault(key(row), []).append((part, row))
    return list(groups.values())


def join(parts: Sequence[OneProcess], whole: Findings) -> Findings:
    """Return the report `whole` with what the reports of its processes say."""
    found = in_order(_findings(parts), len(whole.trace.events))
    places = {_of_finding(one): number for number, one in enumerate(found)}
    defects = [one for part in parts for one in part.about.defects]

    def place(part: OneProcess, number: int | None) -> int | None:
        return None if number is None else places.get(_of_finding(part.about.findings[number]))

    return replace(
        whole,
        findings=found,
        gradients=[
            _gradient(group, place) for group in _grouped(parts, _gradients, lambda row: row.name)
        ],
        copies=[_copy(group, parts) for group in _grouped(parts, _copies, _of_copy)],
        tied=[_tie(group, place) for group in _grouped(parts, lambda one: one.ties, _of_tie)],
        cut=[_cut(group, place) for group in _grouped(parts, lambda one: one.cuts, _of_cut)],
        processes=tuple(part.label for part in parts),
        defects=defects,
    )


# -- findings --------------------------------------------------------------------------------


def _of_finding(one: Finding) -> Hashable:
    return one.slug, one.severity, one.subject, frozenset(one.also), one.site, one.operation


def _findings(parts: Sequence[OneProcess]) -> list[Finding]:
    made = []
    for group in _grouped(parts, lambda about: about.findings, _of_finding):
        first, count = group[0][1], len({part.label for part, _ in group})
        if first.slug == "unused-ignore" and count < len(parts):
            continue  # it silences a finding of another process
        sizes = [one.bytes for _, one in group if one.bytes is not None]
        made.append(
            replace(
                first,
                count=sum(one.count for _, one in group),
                bytes=sum(sizes) if sizes else None,
                tensors=tuple(part.tensors + n for part, one in group for n in one.tensors),
                ranks=tuple(part.label for part, _ in group),
            )
        )
    return made


# -- gradients -------------------------------------------------------------------------------


def _gradients(about: Findings) -> Sequence[Gradient]:
    return about.gradients


_Place = Callable[[OneProcess, int | None], int | None]


def _gradient(group: Sequence[tuple[OneProcess, Gradient]], place: _Place) -> Gradient:
    """Return one row for a parameter: the least that it got, and what which rank saw."""
    seen = {row.status for _, row in group}
    worst = next(one for one in ("none", "zero", "reached") if one in seen)
    row = next(row for _, row in group if row.status == worst)
    why = [place(part, one.finding) for part, one in group if one.status == worst]
    changed = {one.changed for _, one in group}
    by_status: dict[str, list[str]] = {}
    for part, one in group:
        by_status.setdefault(one.status, []).append(part.label)
    told = [f"{status} in {named(labels)}" for status, labels in by_status.items()]
    return row._replace(
        finding=next((one for one in why if one is not None), None),
        changed=changed.pop() if len(changed) == 1 else None,
        ranks=", ".join(told) if len(told) > 1 else "",
    )


# -- copies, cuts and ties -------------------------------------------------------------------------


def _copies(about: Findings) -> Sequence[Copy]:
    return about.copies


def _of_copy(row: Copy) -> Hashable:
    return row.site, row.operation, row.gradient, row.library


def _copy(group: Sequence[tuple[OneProcess, Copy]], parts: Sequence[OneProcess]) -> Copy:
    """Return one row for a call that copies: needed if it was so in one process."""
    rows = [row for _, row in group]
    needed: tuple[Needed, ...] = ("yes", "unknown", "no")
    row = next(row for one in needed for row in rows if row.needed == one)
    memories = {one.memory for one in rows}
    labels = [part.label for part, _ in group]
    return replace(
        row,
        memory=row.memory if len(memories) == 1 else "varies",
        count=sum(one.count for one in rows),
        bytes=sum(one.bytes for one in rows),
        ranks=_some(labels, len(parts)),
    )


def _some(labels: Sequence[str], all_of_them: int) -> str:
    """Return which processes did something, as far as a cell of a table takes it."""
    if len(labels) == all_of_them:
        return ""
    if all(one.startswith("rank ") for one in labels):
        return named(labels)
    return f"{len(labels)} of {all_of_them} processes"


def _of_cut(row: CutRow) -> Hashable:
    return row.cut.site, row.cut.what, row.cut.names


def _cut(group: Sequence[tuple[OneProcess, CutRow]], place: _Place) -> CutRow:
    numbers: list[Any] = [place(one, row.finding) for one, row in group]
    return CutRow(group[0][1].cut, next((one for one in numbers if one is not None), None))


def _of_tie(row: TieRow) -> Hashable:
    tie = row.tie
    return tie.kind, tie.shows, tie.through, tie.operation, tie.sites


def _tie(group: Sequence[tuple[OneProcess, TieRow]], place: _Place) -> TieRow:
    part, first = group[0]
    numbers: list[Any] = [place(one, row.finding) for one, row in group]
    tie = first.tie._replace(
        tensors=tuple(one.tensors + n for one, row in group for n in row.tie.tensors),
        write=first.tie.write + part.events,
        times=sum(row.tie.times for _, row in group),
    )
    return TieRow(tie, next((one for one in numbers if one is not None), None))
