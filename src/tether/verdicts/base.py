"""What a verdict is: one file with its page, its examples and its check."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tether.facts import Event, Site
from tether.finding import Evidence, Finding, Severity
from tether.history import History


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
    severity: Severity  # the gravest it gives
    summary: str  # what it says, in one line
    page: str  # Markdown with fixed headings
    check: Callable[[History], Iterator[Finding]]
    examples: tuple[Example, ...] = ()


def site_of_node(file: str, node: ast.expr, lines: Sequence[str]) -> Site:
    """Return where an expression stands in a file of these lines, columns in characters."""

    def column(line: int, offset: int) -> int:
        raw = lines[line - 1].encode("utf-8", "replace") if line <= len(lines) else b""
        return len(raw[:offset].decode("utf-8", "replace")) + 1

    end_line = node.end_lineno or node.lineno
    return Site(
        file,
        node.lineno,
        column(node.lineno, node.col_offset),
        end_line,
        column(end_line, node.end_col_offset or 0),
        expression=ast.unparse(node),
    )


def place(site: Site) -> str:
    """Return a site as a reader names it in a sentence."""
    return f"line {site.line}" if site.line else "an unknown line"


def evidence(history: History, role: str, event: Event, text: str) -> Evidence:
    """Return an event as evidence, at the user's line."""
    return Evidence(role, history.site_of(event), text)


def and_more(names: list[str]) -> str:
    """Return the first of several names, and how many more there are: `a` and 4 more."""
    return f"`{names[0]}`" if len(names) == 1 else f"`{names[0]}` and {len(names) - 1} more"


def listed(names: list[str], most: int = 3) -> str:
    """Return names as prose: a, b and 4 more."""
    if len(names) > most + 1:
        return f"{', '.join(names[:most])} and {len(names) - most} more"
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
