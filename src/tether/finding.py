"""What we conclude: findings, the evidence they rest on, and the repair."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from tether.facts import Site

Severity = Literal["error", "warning", "note"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")  # gravest first


class Edit(NamedTuple):
    """A replacement of one stretch of one file. Lines and columns as in `Site`."""

    file: str
    line: int
    column: int
    end_line: int
    end_column: int
    text: str


class Evidence(NamedTuple):
    """One place that a finding rests on: its role in the story, and what happened there."""

    role: str  # "cut", "made", "shared", "written", "read", "used", "saved", "mode", "re-entry"
    site: Site
    text: str  # one sentence, lower case start, no full stop


@dataclass(frozen=True)
class Fix:
    """How to repair it: a sentence, and the edits where a change of text can do it."""

    text: str
    edits: tuple[Edit, ...] = ()
    safe: bool = False  # proven: no bit of any result and no edge of the graph can change


@dataclass(frozen=True)
class Finding:
    """One conclusion about one program."""

    slug: str
    severity: Severity
    subject: str  # "model.layer1.weight"
    site: Site
    operation: str
    message: str  # one or two plain sentences with the subject in them
    also: tuple[str, ...] = ()  # other names of the subject, and others it holds for as well
    evidence: tuple[Evidence, ...] = ()
    assumes: tuple[str, ...] = ()  # what has to hold for it to be true
    fix: Fix | None = None
    count: int = 1  # how often it happened
    bytes: int | None = None
    tensors: tuple[int, ...] = field(default=(), compare=False)  # serials of the subject and also
    proven: bool | None = None  # by running the program again; None: that was not tried
