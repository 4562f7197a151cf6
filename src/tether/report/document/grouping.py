"""Findings in the order of the damage they do, those of one cause together, names made short."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import NamedTuple

from tether.analysis.speaking import bytes_text
from tether.finding import SEVERITIES, Evidence, Finding, Said
from tether.verdicts import VERDICTS
from tether.verdicts.base import DAMAGES

MANY_ALIKE = 4
"""From so many findings of one cause on, one is told in full and the others are listed."""

SLIGHT = 4 << 10
"""Bytes in a whole run up to which a copy costs no more than its call (`tether bench x.clone()`:
1.2 microseconds at 16 bytes as at 4 KiB, 1.8 at 16 KiB)."""
SHARE = 20
"""Copies of `SLIGHT` bytes that are one in so many of a training step's calls take 0.1 % of its
time, by an index 0.4 % (`benchmarks/small_copies.py`): less than two runs of one program differ."""
SELDOM = 64
"""Runs of a line from which its calls alone take a tenth of a millisecond and more."""

_DAMAGE = {one.slug: DAMAGES.index(one.damage) for one in VERDICTS}
_NUMBER = re.compile(r"\d+")
_QUOTED = re.compile(r"`[^`]*`|\d+")


class Alike(NamedTuple):
    """Findings of one cause, by their numbers from 1; the first stands for all."""

    numbers: tuple[int, ...]


def in_order(findings: Iterable[Finding], calls: int | None = None) -> list[Finding]:
    """Return what is no note first, then by damage, severity and place; one cause stays together.

    Damage runs from a wrong result over lost training and a leak to mere cost. Where the `calls` of
    the run are given, those that a report counts in one line come last: it shows the numbers of the
    others, and these are to have no gaps.
    """
    ranked = sorted(findings, key=_rank)
    first: dict[Hashable, int] = {}
    for place, one in enumerate(ranked):
        first.setdefault(_cause(one), place)
    ordered = sorted(ranked, key=lambda one: first[_cause(one)])
    if calls is None:
        return ordered
    numbered = list(enumerate(ordered))
    shown = {number for number, _ in in_full(numbered, calls)[0]}
    return [one for _, one in sorted(numbered, key=lambda each: each[0] not in shown)]


def _rank(one: Finding) -> tuple[bool, int, int, str, int, str]:
    return (
        one.severity == "note",
        _DAMAGE.get(one.slug, len(DAMAGES)),
        SEVERITIES.index(one.severity),
        one.site.file,
        one.site.line,
        one.slug,
    )


def _cause(one: Finding) -> Hashable:
    """Return what findings of one cause have in common: the same said of the same call there."""
    message = one.message
    words = (
        "".join(part.text for part in message.segments if part.kind == "words")
        if isinstance(message, Said)
        else message
    )
    said = _QUOTED.sub("", words)
    return one.slug, one.severity, one.operation, one.site.file, one.site.function, said


def grouped(findings: Sequence[tuple[int, Finding]]) -> list[Alike]:
    """Return the groups of numbered findings, in their order; few of one cause stay apart."""
    causes: dict[Hashable, list[int]] = {}
    for number, one in findings:
        causes.setdefault(_cause(one), []).append(number)
    groups: list[Alike] = []
    for numbers in causes.values():
        whole = [tuple(numbers)] if len(numbers) >= MANY_ALIKE else [(one,) for one in numbers]
        groups += map(Alike, whole)
    return groups


Numbered = list[tuple[int, Finding]]
"""Findings with their numbers from 1."""


class Slight(NamedTuple):
    """Notes that are told in one line: copies whose cost is not to be seen."""

    text: str  # what they have in common
    findings: list[Finding]


def in_full(findings: Numbered, calls: int) -> tuple[Numbered, list[Slight]]:
    """Return the findings that a report tells one by one, and those on next to nothing.

    What is told of the code of libraries is in neither.
    """
    return _without_slight([(number, one) for number, one in findings if not one.library], calls)


def _without_slight(findings: Numbered, calls: int) -> tuple[Numbered, list[Slight]]:
    """Return the findings, and apart from them the notes on next to nothing.

    A copy of little among many of a run's `calls` is; of less in the whole run, where many are.
    """
    within = [one for _, one in findings if _is_small(one) and one.count * SHARE < calls]
    few = [one for _, one in findings if one not in within and _is_slight(one)]
    few *= len(few) >= MANY_ALIKE
    limit = bytes_text(SLIGHT)
    folded = [
        Slight(f"on copies of {limit} or less each, which are fewer than one in {SHARE} of the"
               f" run's calls", within),
        Slight(f"on copies of {limit} or less in the whole run", few),
    ]  # fmt: skip
    apart = [*within, *few]
    return [each for each in findings if each[1] not in apart], [one for one in folded if one[1]]


def _is_small(one: Finding) -> bool:
    """Whether a note is on the cost of copies that are small each, whatever they are together."""
    cost = one.severity == "note" and _DAMAGE.get(one.slug) == DAMAGES.index("cost")
    return cost and one.bytes is not None and one.bytes <= SLIGHT * one.count


def _is_slight(one: Finding) -> bool:
    """Whether a note is on the cost of few bytes, and of few calls."""
    return _is_small(one) and (one.bytes or 0) <= SLIGHT and one.count < SELDOM


# -- the two ends ----------------------------------------------------------------------------


def ends(finding: Finding) -> tuple[list[Evidence], list[Evidence]]:
    """Return the places that tell the story, the finding's own first, and the others.

    A write and the read that met it are both shown: a tie has acted between them.
    """
    own = [one for one in finding.evidence if one.site[:5] == finding.site[:5]]
    others = [one for one in finding.evidence if one.site[:5] != finding.site[:5]]
    at = (own[0] if own else Evidence("", finding.site, ""))._replace(site=finding.site)
    roles = {one.role: one for one in reversed(others)}
    story = [roles[role] for role in ("written", "read") if role in roles]
    story = [one for one in others if one in story] or others[:1]
    rest = [one for one in others if one not in story]
    return [at, *story], [*rest, *(one for one in own[1:] if one.role == "proof")]


# -- names -----------------------------------------------------------------------------------


def folded(names: Iterable[str]) -> list[str]:
    """Return names with those that differ in one number written as one.

    ``layers.0.weight`` to ``layers.4.weight`` become ``layers.[0-4].weight``; ``w[0]`` and ``w[1]``
    become ``w[0-1]``.
    """
    families: dict[str, list[str]] = {}
    for name in dict.fromkeys(names):
        families.setdefault(_NUMBER.sub("#", name), []).append(name)
    return [short for family in families.values() for short in _short(family)]


def _short(family: list[str]) -> Iterator[str]:
    numbers = [_NUMBER.findall(name) for name in family]
    columns = [set(column) for column in zip(*numbers, strict=True)]
    varying = [at for at, column in enumerate(columns) if len(column) > 1]
    if not varying:
        yield from family
    elif len(varying) == 1:
        start, end = [match.span() for match in _NUMBER.finditer(family[0])][varying[0]]
        before, after = family[0][:start], family[0][end:]
        stretch = runs(row[varying[0]] for row in numbers)
        indexed = before.endswith("[") and after.startswith("]")
        yield f"{before}{stretch}{after}" if indexed else f"{before}[{stretch}]{after}"
    else:
        place = min(varying, key=lambda at: len(columns[at]))
        apart: dict[str, list[str]] = {}
        for row, name in zip(numbers, family, strict=True):
            apart.setdefault(row[place], []).append(name)
        for part in apart.values():
            yield from _short(part)


def runs(numbers: Iterable[str | int]) -> str:
    """Return numbers in order, neighbours joined: ``0-4, 7``; digits stay as they are written."""
    written = {int(one): str(one) for one in numbers}
    order = sorted(written)
    parts: list[list[int]] = []
    for one in order:
        if parts and parts[-1][-1] == one - 1:
            parts[-1].append(one)
        else:
            parts.append([one])
    return ", ".join(
        written[part[0]] if len(part) == 1 else f"{written[part[0]]}-{written[part[-1]]}"
        for part in parts
    )
