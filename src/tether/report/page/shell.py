"""What every page has in common: its head, search, theme, keys, and the parts that pages share.

Every word from a program is escaped by a template or by `safe`, with controls and direction marks
spelt out. A page forbids itself to fetch anything and to run any script but its own; only one that
is served while its program runs may ask its server whether there is more.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import resources
from typing import TYPE_CHECKING, Any

import tether
from tether.analysis.speaking import bytes_text
from tether.finding import Severity
from tether.report.document.blocks import Block, Document, Excerpt, FindingBlock, Heading, Table
from tether.report.document.findings import counted
from tether.report.document.grouping import folded
from tether.report.document.text import visible
from tether.report.page import html

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

TONES: dict[Severity, str] = {"error": "e", "warning": "w", "note": "o"}
"""The class of what a finding speaks of, by its severity."""

MANY_PARTS = 7
"""Parts that the bar names; more are a list of contents."""


@lru_cache(maxsize=1)
def environment() -> Environment:
    """Return the environment of the templates."""
    from jinja2 import Environment

    made = Environment(autoescape=True, trim_blocks=False)
    made.filters["v"] = lambda value: visible(str(value))
    made.filters["prose"] = prose
    made.filters["bytes"] = bytes_text
    return made


def asset(name: str) -> str:
    """Return a file that lies beside this one."""
    return resources.files("tether.report.page").joinpath(name).read_text("utf-8")


@lru_cache(maxsize=1)
def macros() -> Any:
    """Return what several pages draw: a finding, a place, the memory of a device."""
    return environment().from_string(asset("macros.html")).make_module({})


def markup(text: str) -> Markup:
    """Return text as markup; every word in it is escaped already."""
    from markupsafe import Markup

    return Markup(text)  # noqa: S704 -- every word in it went through `safe`


def prose(text: object) -> Markup:
    """Return a sentence with what stands between backticks set as code."""
    return markup(re.sub(r"`+([^`]{1,500})`+", r"<code>\1</code>", html.safe(str(text))))


def _hash(text: str) -> str:
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"


@dataclass
class Page:
    """What stands in the shell. `parts` are the id and the name of each part, for the bar."""

    title: str
    head: str  # below the title
    body: str
    parts: Sequence[tuple[str, str]]
    searched: str = "tables"
    filters: str = ""
    keys: str = ""
    torch: str = ""


def whole(page: Page, version: int | None = None) -> str:
    """Return a page. `version` is its number where it is served and there may be a later one."""
    live = version is not None
    style, script = asset("page.css"), asset("page.js") + (asset("live.js") if live else "")
    policy = (
        f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; "
        "base-uri 'none'; form-action 'none'"
    )
    policy += "; connect-src 'self'" if live else ""
    return environment().from_string(asset("shell.html")).render(
        page=page,
        policy=policy,
        style=markup(style),
        script=markup(script),
        version=version,
        tether=tether.__version__,
    )  # fmt: skip


# -- findings --------------------------------------------------------------------------------


@dataclass
class FindingView:
    """One finding as the template takes it; what leads to lines only where the page has them."""

    block: FindingBlock
    places: Sequence[tuple[Excerpt, str]]  # the ends, and the ids of their lines
    evidence: Sequence[tuple[Excerpt, str]]
    text: str  # what the search looks in
    open: bool
    names: Sequence[str] = ()
    also: str = ""  # how many other names it has
    files: str = ""  # numbers of the files it speaks of
    ends: str = ""  # ids of the lines of its ends
    alike: list[tuple[int, str, str, str]] = field(default_factory=list)
    """Of the same cause: number, place, id of it, subject."""
    explained: str = ""  # the slug, where the page says what it means

    @property
    def mark(self) -> str:
        """Its class."""
        return TONES[self.block.severity]


# -- documents -------------------------------------------------------------------------------


def document_page(document: Document, first: str = "", *, version: int | None = None) -> str:
    """Return a document as a page: each heading is a part, `first` comes before them all."""
    sections = _sections(document.blocks)
    (_, _, opening), *rest = sections
    parts = [(name, title) for name, title, _ in rest]
    few = parts if len(parts) <= MANY_PARTS else [("contents", "contents")]
    made = [markup(first), _contents(parts) if parts and few is not parts else ""]
    made += [_section(name, title, blocks) for name, title, blocks in rest]
    return whole(
        Page(document.title, lowered(opening), markup("".join(made)), few, _searched(document)),
        version,
    )


def _sections(blocks: Sequence[Block]) -> list[tuple[str, str, list[Block]]]:
    """Return the id, the title and the blocks of each part; what comes before has no title."""
    found: list[tuple[str, str, list[Block]]] = [("", "", [])]
    for block in blocks:
        if isinstance(block, Heading):
            if block.level > 1:
                found.append((html.part_id(block.text), block.text, []))
        else:
            found[-1][2].append(block)
    return found


def _section(name: str, title: str, blocks: Sequence[Block]) -> str:
    head = f'<h2 id="{name}">{html.safe(title)}</h2>'
    return f'<section class="part" aria-labelledby="{name}">{head}{lowered(blocks)}</section>'


def lowered(blocks: Sequence[Block], link: html.Link = html.nowhere) -> Markup:
    """Return blocks as markup; `link` gives the ids of lines and findings."""
    return markup("".join(_block(one, link) for one in blocks))


def _block(block: Block, link: html.Link) -> str:
    if not isinstance(block, FindingBlock):
        return "".join(html.blocks(Document("", [block]), link))
    words = (block.slug, block.severity, block.subject, *block.also, block.message)
    view = FindingView(
        block,
        [(one, "") for one in block.ends],
        [(one, "") for one in block.evidence],
        " ".join(words).lower(),
        open=True,
        names=folded(block.also),
        also=counted(len(block.also), "other name"),
    )
    return str(macros().verdict(view))


def _contents(parts: Sequence[tuple[str, str]]) -> str:
    items = "".join(f'<li><a href="#{name}">{html.safe(title)}</a></li>' for name, title in parts)
    return f'<section aria-label="contents" id="contents"><ul>{items}</ul></section>'


def _searched(document: Document) -> str:
    kinds = {Table: "tables", FindingBlock: "findings"}
    there = set(map(type, document.blocks))
    found = {word for kind, word in kinds.items() if kind in there}
    return " and ".join(sorted(found)) or "this page"
