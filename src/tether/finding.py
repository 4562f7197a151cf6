"""What we conclude: claims and the sentences they are made in, findings, evidence, the repair.

A verdict yields `Claim`s about tensors by their numbers, in `Sentence`s: a text with places for
tensors, lines and pieces of code. The engine joins claims of one cause and puts each sentence into
words once the names are known; the result is a `Said`, a text that still knows its parts: which
are code, to be hidden from others (`report.redact`), and which are names, so that findings that
differ in nothing else are reported as one (`report.document.grouping`).
"""

from __future__ import annotations

import string
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Self

from tether.facts import Site

Severity = Literal["error", "warning", "note"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")  # gravest first


Where = int | Site
"""A line: the number of a site of the recording, or a site that only the text tells of."""


# -- sentences -------------------------------------------------------------------------------------


class Segment(NamedTuple):
    """A piece of a sentence: plain words, or something of the program's."""

    text: str
    kind: Literal["words", "name", "code"] = "words"


def named(name: str) -> Segment:
    """Put a name of the program's in quotes: a variable, an attribute, a function."""
    return Segment(f"`{name}`", "name")


def typed(text: str) -> Segment:
    """Put code of the program's in quotes, or code that people may paste."""
    return Segment(f"`{text}`", "code")


class Said(str):
    """A sentence that knows its parts; to everyone else a plain text."""

    __slots__ = ("segments",)
    segments: tuple[Segment, ...]

    def __new__(cls, segments: Iterable[Segment]) -> Self:
        """Join the pieces."""
        kept = tuple(segments)
        made = super().__new__(cls, "".join(one.text for one in kept))
        made.segments = kept
        return made

    def __reduce__(self) -> tuple[type[Self], tuple[tuple[Segment, ...]]]:
        """Say what it is made of, to who copies or pickles it."""
        return type(self), (self.segments,)


class Tensor(NamedTuple):
    """In a sentence: a tensor, by its name."""

    number: int


class Tensors(NamedTuple):
    """In a sentence: several tensors, the first by its name and how many more."""

    numbers: tuple[int, ...]


class At(NamedTuple):
    """In a sentence: a line, and its file where that is another than the finding's."""

    site: Where


class Code(NamedTuple):
    """In a sentence: the text of the program at a site."""

    site: Where


class CallOf(NamedTuple):
    """In a sentence: how a reader calls what an event did."""

    position: int


class Bytes(NamedTuple):
    """In a sentence: an amount of memory."""

    number: int


SUBJECT = "subject"
"""The place in a claim's message for all tensors of the finding."""


class Sentence(NamedTuple):
    """A sentence with places for what is named only when the finding is made."""

    template: str
    parts: dict[str, Any]

    @property
    def fields(self) -> Iterable[tuple[str, str | None, bool]]:
        """Literal text, the name of the place that follows it, and whether that is within code."""
        parsed = string.Formatter().parse(self.template)
        return ((text, name, conversion == "s") for text, name, _, conversion in parsed)


def say(template: str, **parts: Any) -> Sentence:
    """Make a sentence: ``say("{x} is read at {line}.", x=Tensor(3), line=At(7))``.

    ``{subject}`` in a claim's message stands for all tensors of the finding. In a piece of code
    that people may paste a name or an expression stands bare, whole, and in parentheses where what
    follows asks for them: ``say("Use `{x!s}.clone()`.", x=Tensor(3))``, ``x=Code(site)``.
    """
    return Sentence(template, parts)


# -- claims ----------------------------------------------------------------------------------------


class Step(NamedTuple):
    """One place in the story of a claim: its role, and what happened there."""

    role: str  # "cut", "made", "shared", "written", "read", "used", "saved", "mode", "re-entry"
    site: Where  # its number in the trace; itself, where no call was recorded at the line
    said: Sentence


Action = Literal[
    "", "leave out", "copy", "deep copy", "clone", "out of place", "detach", "wait", "by hand"
]
"""How a repair changes the text of the call at a claim's site (`source.edits`)."""


class Repair(NamedTuple):
    """How to repair it: a sentence, and what it does to the text where an edit can do it."""

    said: Sentence
    action: Action = ""
    site: Where = -1  # that the edit is made at; -1: the claim's


@dataclass(frozen=True)
class Claim:
    """One conclusion about some tensors; claims of one verdict and one cause are one finding."""

    tensors: tuple[int, ...]  # the subject first
    cause: Hashable
    site: Where  # the line to name
    operation: str
    message: Sentence  # one or two plain sentences with the subject in them
    story: tuple[Step, ...] = ()
    repair: Repair | None = None
    severity: Severity | None = None  # None: the verdict's own
    subject: str = ""  # what the subject is called, where no tensor's name is meant
    also: tuple[str, ...] = ()  # further names of it
    assumes: tuple[Sentence, ...] = ()  # what has to hold for it to be true
    count: int = 1  # how often it happened; 0: it is no matter of how often
    bytes: int | None = None
    calls: tuple[int, ...] = ()  # those it is about; none: those at its line that met its tensors


# -- findings --------------------------------------------------------------------------------------


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

    role: str
    site: Site
    text: str  # one sentence, lower case start, no full stop


@dataclass(frozen=True)
class Fix:
    """How to repair it: a sentence, and the edits where a change of text can do it."""

    text: str
    edits: tuple[Edit, ...] = ()
    safe: bool = False  # proven: no bit of any result and no edge of the graph can change
    action: Action = ""
    site: Site | None = None  # that the edit is made at; None: the finding's


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
    ranks: tuple[str, ...] = ()  # the processes that it was found in, of several: "rank 1"
    library: str = ""  # the package whose own lines do it; the program's line only led there
    second: tuple[str, ...] = ()  # those of `also` that are further names of the same tensors
