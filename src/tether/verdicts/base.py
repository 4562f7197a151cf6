"""What a verdict is: one file with its page, its examples and its check."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from tether.analysis.history import History
from tether.finding import Claim, Severity

Damage = Literal["wrong result", "lost training", "leak", "cost"]
DAMAGES: tuple[Damage, ...] = ("wrong result", "lost training", "leak", "cost")  # worst first


HEADINGS = (
    "What it says",
    "Why it matters",
    "Known problems",
    "Example",
    "Use instead",
    "Fix safety",
)
"""The headings (``## ...``) of a page, each of which every page has."""


class Expected(NamedTuple):
    """A finding that an example must give: its slug, its subject and the line of its site."""

    slug: str
    subject: str
    line: int


@dataclass(frozen=True)
class Example:
    """A complete program, and every finding of this verdict it must give (none: silence)."""

    title: str
    program: str
    expected: tuple[Expected, ...] = ()
    needs: str = ""  # the kind of device without which it cannot run: "cuda"


@dataclass(frozen=True)
class Verdict:
    """One kind of conclusion. Its page and its tests are made from this object."""

    slug: str
    severity: Severity  # the gravest it gives; a `Claim` may have a lesser one
    summary: str  # what it says, in one line: in the list of all verdicts, for SARIF
    page: str  # Markdown: a title and the HEADINGS
    check: Callable[[History], Iterator[Claim]]
    examples: tuple[Example, ...] = ()  # a program with a finding of it, and one without
    damage: Damage = "wrong result"
    past: Literal["", "some", "all"] = ""
    """What it needs of calls that `--limit` had forgotten: without them it says what it would say
    (""), may miss some, or says nothing ("all"). The report tells so (`tables.gaps`); the check
    sees to it, and asks `History.in_part` and `History.whole`."""
    after: tuple[str, ...] = ()  # of tensors that one of these speaks of, it says nothing
