"""A recording as its readers meet it: findings, gradients, copies, and the report of them."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, TextIO

from tether.analysis.history import History
from tether.facts import Trace
from tether.finding import Finding
from tether.report import github as as_github
from tether.report import json as as_json
from tether.report import notebook as as_inline
from tether.report import page as as_page
from tether.report import progress
from tether.report import sarif as as_sarif
from tether.report import text as as_text
from tether.report.compose import Findings, build, distinct, in_order
from tether.report.copies import Copy, Needed
from tether.report.copies import copies as copies_of
from tether.report.document import Block, Document
from tether.report.filters import Selection, silence
from tether.report.gradients import Gradient
from tether.report.gradients import gradients as gradients_of
from tether.report.redact import without_source
from tether.report.why import Answer, why
from tether.source.annotate import annotate
from tether.source.bridges import follow
from tether.source.edits import mended
from tether.source.syntax import source_of
from tether.store.file import load as load_trace
from tether.store.file import save as save_trace
from tether.store.merge import merge

Paths = str | os.PathLike[str]


def load(
    path: Paths, *more: Paths, include: Sequence[str] = (), omit: Sequence[str] = ()
) -> Recording:
    """Open a recording; several are merged (one per rank of a distributed run, in rank order).

    Raises `tether.store.file.RecordingError`, in one line, for a file that is none or is damaged.
    """
    trace = merge([_described(load_trace(one)) for one in (path, *more)])
    return Recording(trace, include=include, omit=omit, prepared=True)


def _described(trace: Trace) -> Trace:
    """Add what the source tells to a trace whose program was killed before that could be done.

    Only from the text that the recording holds.
    """
    if trace.outcome == "unfinished":
        annotate(trace, elsewhere=False)
        trace.bridges += follow(trace, elsewhere=False)
    return trace


def prepare(trace: Trace) -> None:
    """Add to a trace that was just recorded what the source text tells.

    To be done once, where the program ran: a recording that is opened later, perhaps from a
    stranger, holds the text it speaks of, and no other file is read for it.
    """
    annotate(trace)
    trace.bridges += follow(trace)


class Recording:
    """What happened in one program, and what follows from it. Made by `load` or `record`.

    `include` and `omit` are globs of the files whose lines are reported (the user's own by
    default). `prepared` says that `prepare` has been done.
    """

    def __init__(
        self,
        trace: Trace,
        *,
        include: Sequence[str] = (),
        omit: Sequence[str] = (),
        prepared: bool = False,
    ) -> None:
        self._include, self._omit = tuple(include), tuple(omit)
        if not prepared:
            prepare(trace)
        self.trace = trace
        self.ended = True  # False while it is being made
        self.defects: list[Finding] = []  # refuted by running the program again
        self.with_memory = bool(trace.attached)  # the report says which line holds the memory

    def _become(self, trace: Trace) -> None:
        """Take the place of a recording that has just ended."""
        prepare(trace)
        self.trace = trace
        for name in ("findings", "gradients", "copies", "about", "history"):
            with contextlib.suppress(AttributeError):
                delattr(self, name)

    @cached_property
    def history(self) -> History:
        """The trace, indexed."""
        return History(self.trace)

    @property
    def selection(self) -> Selection:
        """Whose lines are reported."""
        return Selection(self.trace.folder, self._include, self._omit)

    @cached_property
    def findings(self) -> list[Finding]:
        """The verdicts, gravest first, without those that the source silences."""
        verdicts = import_module("tether.verdicts")
        with_slugs = ((f"judging: {one.slug}", one) for one in verdicts.VERDICTS)
        judged = verdicts.judge(self.history, progress.each(with_slugs))
        selection = self.selection
        wanted = [
            self._mended(one) for one in judged if one.site.line < 1 or selection.wants(one.site)
        ]
        return in_order(silence(distinct(wanted), self.trace.sources))

    def _mended(self, finding: Finding) -> Finding:
        """Return a finding with the edits that would carry out its repair."""
        text = self.trace.sources.get(finding.site.file)
        return finding if text is None else mended(finding, source_of(finding.site.file, text))

    @cached_property
    def gradients(self) -> list[Gradient]:
        """For each parameter an optimizer holds: reached, zero or none, and the finding for it."""
        return gradients_of(self.trace, self.findings)

    @cached_property
    def copies(self) -> list[Copy]:
        """Every copy and conversion met, by line."""
        progress.stage("looking at the copies")
        selection = self.selection
        needed = import_module("tether.analysis.copy_needs").needed_by_site(self.history)
        needed = {**needed, **self._refuted()}
        return [row for row in copies_of(self.trace, needed) if selection.wants(row.site)]

    def _refuted(self) -> dict[tuple[int, str], tuple[Needed, str]]:
        """Return what is known of the copies that a run without them refuted."""
        where = {(one.site[:5], one.operation): one.assumes[-1] for one in self.defects}
        return {
            (number, operation): ("unknown", why)
            for (at, operation), why in where.items()
            for number, site in enumerate(self.trace.sites)
            if site[:5] == at
        }

    @cached_property
    def about(self) -> Findings:
        """All of it, as the reports take it."""
        return Findings(
            self.trace,
            self.findings,
            self.gradients,
            self.copies,
            selection=self.selection,
            defects=self.defects,
        )

    def analyse(self) -> None:
        """Work out now what the reports need, which is otherwise done when one asks."""
        self.findings  # noqa: B018
        self.copies  # noqa: B018

    def judged(self, findings: Sequence[Finding], defects: Sequence[Finding]) -> None:
        """Take what running the program again made of the findings.

        `defects` are those that it refuted: they are withdrawn, and reported as what they are.
        """
        for name in ("gradients", "copies", "about"):
            with contextlib.suppress(AttributeError):
                delattr(self, name)
        self.defects = list(defects)
        self.findings = in_order(list(findings))

    def document(self) -> Document:
        """Return the report before it is given a form."""
        document = build(self.about)
        document.blocks += self._memory()
        return document

    def _memory(self, about: Findings | None = None) -> list[Block]:
        """Return what the report says of memory, where that was asked for."""
        if not self.with_memory:
            return []
        found: list[Block] = import_module("tether.report.memory").blocks(
            (about or self.about).history
        )
        return found

    def why(self, name: str) -> Answer:
        """Return why a parameter has no gradient, or what a tensor shares and who wrote it.

        Printed it is text. Raises `LookupError`, in one line, when nothing of that name is known.
        """
        return why(name, self.about)

    def print(self, stream: TextIO | None = None, width: int | None = None) -> None:
        """Write the report as text (to standard error unless told otherwise)."""
        stream = stream or sys.stderr
        with progress.shown(stream):
            document = self.document()
        as_text.write(document, stream, width)

    def json(self, *, source: bool = True) -> str:
        """Return the report as JSON, schema version 1."""
        return as_json.dumps(self._shared(source=source)).rstrip("\n")

    def html(self, *, source: bool = True) -> str:
        """Return the report as one HTML page."""
        about = self._shared(source=source)
        return as_page.render(about, self._memory(about), source=source)

    def sarif(self, *, source: bool = True) -> str:
        """Return the findings as SARIF 2.1.0."""
        return as_sarif.dumps(self._shared(source=source))

    def _shared(self, *, source: bool) -> Findings:
        """Return what a report for others is made of: `source` off leaves out the text."""
        return self.about if source else without_source(self.about)

    def github(self, root: Paths = "") -> str:
        """Return the findings as annotations of GitHub Actions; `root` is the checkout."""
        return as_github.dumps(self.about, str(root))

    def report(
        self,
        *,
        html: Paths | None = None,
        json: Paths | None = None,
        sarif: Paths | None = None,
        source: bool = True,
    ) -> None:
        """Write the report to the files asked for, or as text to standard error.

        With `source` off the files hold no line and no expression of the program.
        """
        if not (html or json or sarif):
            self.print()
        for path, make in ((html, self.html), (json, self.json), (sarif, self.sarif)):
            if path is not None:
                Path(path).write_text(make(source=source) + "\n", "utf-8", "backslashreplace")

    def save(self, path: Paths) -> None:
        """Write the recording to a file that `tether.load` opens."""
        save_trace(self.trace, path)

    def _repr_mimebundle_(self, **_options: Any) -> dict[str, str]:
        """Return what a notebook shows for it: the page, or the text where no page is shown."""
        if not self.ended:
            return {"text/plain": "<tether recording, not ended yet>"}
        document = self.document()
        return {
            "text/plain": as_text.render(document),
            "text/html": as_inline.html(document, self.html()),
        }

    def _repr_html_(self) -> str:
        return self._repr_mimebundle_().get("text/html", "")

    def __repr__(self) -> str:
        events = self.trace.ended
        return f"<tether recording of {events:,} calls>"
