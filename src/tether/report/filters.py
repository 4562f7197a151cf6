"""What is reported: whose lines, and which findings their authors have silenced."""

from __future__ import annotations

import contextlib
import io
import os
import re
import socket
import tokenize
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import NamedTuple
from urllib.parse import quote

from tether.facts import Site
from tether.finding import Finding

UNUSED_IGNORE = "unused-ignore"
"""The slug of the note that a comment silences nothing."""

_COMMENT = re.compile(r"#\s*tether:\s*ignore(?:\[([^\]]*)\])?")


def shown_path(file: str, folder: str) -> str:
    """Return a path as reports show it: relative to the program's folder where it lies in it.

    With forward slashes, so that a report reads the same on every system.
    """
    file, folder = file.replace("\\", "/"), folder.replace("\\", "/").rstrip("/")
    if folder and file.startswith(folder + "/"):
        return file[len(folder) + 1 :]
    return file


_CELL = re.compile(r"cell \d+")


_INSTALLED = re.compile(r".*/(?:site|dist)-packages/")


def shown_line(file: str, line: int, folder: str) -> str:
    """Return a line as reports show it: ``train.py:14``, ``cell 3, line 5`` in a notebook.

    An installed package's by the path that it is imported by: ``torch/distributions/normal.py:80``.
    """
    between = ", line " if _CELL.fullmatch(file) else ":"
    return f"{_INSTALLED.sub('', shown_path(file, folder))}{between}{line}"


def link_to(site: Site) -> str:
    """Return the address of a line, by which a terminal opens its file; "" if it is in none."""
    if not os.path.isabs(site.file) or site.line < 1:
        return ""
    return f"file://{socket.gethostname()}{quote(site.file, errors='surrogateescape')}#{site.line}"


@dataclass(frozen=True)
class Selection:
    """Which findings are reported: whose lines, and of which verdicts.

    Lines are the user's, or of the files that globs choose; a verdict is a slug or a glob of
    slugs, as ``gradient-*``. A glob of files matches the path as it is shown, the whole path, or
    the end of the path from any folder on (``models/*.py`` matches ``/home/me/app/models/net.py``).
    """

    folder: str = ""
    include: tuple[str, ...] = ()
    omit: tuple[str, ...] = ()
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()

    def wants_verdict(self, slug: str) -> bool:
        """Say whether findings of a verdict are reported."""
        wanted = not self.select or any(fnmatchcase(slug, one) for one in self.select)
        return wanted and not any(fnmatchcase(slug, one) for one in self.ignore)

    def wants(self, site: Site) -> bool:
        """Say whether what happened at a site is reported."""
        wanted = self._any(self.include, site.file) if self.include else site.user
        return wanted and not self._any(self.omit, site.file)

    def _any(self, globs: Iterable[str], file: str) -> bool:
        path = file.replace("\\", "/")
        shown = shown_path(file, self.folder)
        return any(
            fnmatchcase(path, glob) or fnmatchcase(shown, glob) or fnmatchcase(path, "*/" + glob)
            for glob in (glob.replace("\\", "/").removeprefix("./") for glob in globs)
        )


class Ignore(NamedTuple):
    """One slug of one ``# tether: ignore[...]`` comment; the slug is "" where none is given."""

    file: str
    line: int
    column: int  # of the comment, from 1
    end_column: int
    slug: str


def ignores(sources: Mapping[str, str]) -> list[Ignore]:
    """Return every suppression comment of the files, in their order."""
    found: list[Ignore] = []
    for file, text in sources.items():
        if "tether:" not in text:
            continue
        for line, column, comment in _comments(text):
            for match in _COMMENT.finditer(comment):
                slugs = [slug.strip() for slug in (match[1] or "").split(",")]
                start, end = column + match.start() + 1, column + match.end() + 1
                found += (
                    Ignore(file, line, start, end, slug)
                    for slug in ([slug for slug in slugs if slug] or [""])
                )
    return found


def _comments(text: str) -> Iterator[tuple[int, int, str]]:
    """Return (line, column from 0, text) of each comment, as far as the text is Python."""
    with contextlib.suppress(tokenize.TokenError, SyntaxError):  # what came before it counts
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                yield *token.start, token.string


def silence(findings: Sequence[Finding], sources: Mapping[str, str]) -> list[Finding]:
    """Return the findings that are not silenced on their line, and a note for each idle comment."""
    comments = ignores(sources)
    if not comments:
        return list(findings)
    used: set[Ignore] = set()
    kept: list[Finding] = []
    for finding in findings:
        site = finding.site
        lines = range(site.line, max(site.line, site.end_line) + 1)
        mine = [
            one
            for one in comments
            if one.slug == finding.slug and one.file == site.file and one.line in lines
        ]
        used.update(mine)
        if not mine:
            kept.append(finding)
    return kept + [_unused(one) for one in comments if one not in used]


def _unused(comment: Ignore) -> Finding:
    site = Site(comment.file, comment.line, comment.column, comment.line, comment.end_column)
    if comment.slug:
        message = (
            f"This line silences {comment.slug}, and there is no such finding here in this run."
        )
    else:
        message = (
            "This comment silences nothing: it has to name a verdict, as ignore[gradient-cut]."
        )
    return Finding(
        slug=UNUSED_IGNORE,
        severity="note",
        subject=f"# tether: ignore[{comment.slug}]" if comment.slug else "# tether: ignore",
        site=site,
        operation="",
        message=message,
    )
