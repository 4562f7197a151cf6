"""What a report says, before anyone decides how it looks: blocks of plain data.

One `Document` is built for a recording and lowered to text (`document.text`) or to other forms. It
holds no markup and no colour; a `Phrase` may say what kind of thing its words are.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from tether.facts import Site
from tether.finding import Severity

Kind = Literal["plain", "strong", "dim", "code", "place", "good", "bad", "error", "warning", "note"]


class Phrase(NamedTuple):
    """Some words, and what they are."""

    text: str
    kind: Kind = "plain"
    link: str = ""  # an address that a terminal opens
    to: Site | int | None = None  # the line, or the finding by its number, that it is about


@dataclass(frozen=True)
class Heading:
    """The title of a part. Level 1 is the report's own."""

    text: str
    level: int = 2


@dataclass(frozen=True)
class Paragraph:
    """Running text; `whole` is one line, however wide."""

    phrases: tuple[Phrase, ...]
    whole: bool = False


@dataclass(frozen=True)
class Excerpt:
    """One place in the source: where, the line as written, and what on it is meant."""

    place: str  # "train.py:14 in TestModel.forward"
    role: str  # what happened here: "cut here"
    line: int = 0
    source: str = ""  # the line without its end; "" when it is not known
    start: int = 0  # characters of `source` before what is meant
    end: int = 0  # characters up to its end; equal to `start` when that is not known
    link: str = ""  # an address that a terminal opens


@dataclass(frozen=True)
class FindingBlock:
    """A verdict with its two ends."""

    number: int  # from 1, as the gradient table refers to it
    slug: str
    severity: Severity
    subject: str
    also: tuple[str, ...]
    message: str
    ends: tuple[Excerpt, ...]
    evidence: tuple[Excerpt, ...] = ()  # further places, told in a line each
    fix: str = ""
    edits: tuple[str, ...] = ()  # "train.py:14  self.layer3(out2)"
    assumes: tuple[str, ...] = ()
    facts: str = ""  # "50 times, 4.0 KiB"
    second: tuple[str, ...] = ()  # those of `also` that are further names of the same tensors
    alike: str = ""  # further findings of the same cause, in a sentence


@dataclass(frozen=True)
class Column:
    """A column of a table. `give` columns shorten when the table is too wide; the others stay."""

    title: str
    align: Literal["left", "right"] = "left"
    give: bool = False
    wrap: bool = False  # it is prose: a long cell takes several lines and loses no word
    whole: bool = False  # it holds names: a long one is neither cut nor broken


@dataclass(frozen=True)
class Table:
    """Rows of cells. `omitted` says how many more there are, and `rest` where to see them.

    `groups` are headings of the rows: (number of the first row under it, its words). `anchors` are
    the addresses of the rows on a page.
    """

    columns: tuple[Column, ...]
    rows: tuple[tuple[Phrase, ...], ...]
    omitted: int = 0
    rest: str = ""
    groups: tuple[tuple[int, str], ...] = ()
    anchors: tuple[str, ...] = ()


@dataclass(frozen=True)
class Chain:
    """Events in order, each at its place: the answer to one question about one tensor."""

    links: tuple[Excerpt, ...]


Block = Heading | Paragraph | FindingBlock | Table | Chain


@dataclass
class Document:
    """A report."""

    title: str
    blocks: list[Block] = field(default_factory=list)
