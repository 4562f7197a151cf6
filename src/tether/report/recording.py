"""A recording as its readers meet it: findings, gradients, copies, and the report of them."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property, partial
from importlib import import_module
from pathlib import Path
from typing import Any, TextIO

from tether.analysis.degrading import attempt
from tether.analysis.gradients.cuts import Cuts
from tether.analysis.history import History
from tether.analysis.memory import Growing
from tether.analysis.ties import Ties
from tether.facts import Site, Trace
from tether.finding import Finding
from tether.report import kept, progress
from tether.report.document import concise as as_lines
from tether.report.document import text as as_text
from tether.report.document.blocks import Block, Document
from tether.report.document.compose import build
from tether.report.document.findings import Findings, distinct
from tether.report.document.grouping import in_order
from tether.report.filters import UNUSED_IGNORE, Selection, silence
from tether.report.formats import github as as_github
from tether.report.formats import json as as_json
from tether.report.formats import sarif as as_sarif
from tether.report.forms import FORMS
from tether.report.kept import Conclusions, NeededAt
from tether.report.page import notebook as as_inline
from tether.report.page import page as as_page
from tether.report.page.shown_cards import FindingList
from tether.report.ranks import OneProcess, join
from tether.report.redact import without_source
from tether.report.tables.copies import Copy, Needed
from tether.report.tables.copies import copies as copies_of
from tether.report.tables.gradients import Gradient
from tether.report.tables.gradients import gradients as gradients_of
from tether.report.why import Answer, why
from tether.source.annotate import annotate
from tether.source.bridges import follow
from tether.source.edits import mended
from tether.source.syntax import source_of
from tether.store.file import load_all, without_collector
from tether.store.file import save as save_trace
from tether.store.merge import laid_out

Paths = str | os.PathLike[str]


def load(
    path: Paths,
    *more: Paths,
    include: Sequence[str] = (),
    omit: Sequence[str] = (),
    select: Sequence[str] = (),
    ignore: Sequence[str] = (),
) -> Recording:
    """Open a recording; several (one for each process of a run) are reported as one.

    `include` and `omit` are globs of the files whose lines are reported (the user's own by
    default), `select` and `ignore` slugs of verdicts, or globs of them.
    Raises `tether.store.file.RecordingError`, in one line, for a file that is none or is damaged.
    """
    chosen = Selection("", tuple(include), tuple(omit), tuple(select), tuple(ignore))
    traces = [trace for one in (path, *more) for trace in load_all(one)]
    return together([Recording(_described(one), selection=chosen, prepared=True) for one in traces])


def together(recordings: Sequence[Recording]) -> Recording:
    """Return the recordings of several processes as one; of those without a call only the first.

    A launcher that starts the others hears nothing of its own, and is no part of what is told.
    """
    heard = [one for one in recordings if one.trace.ended]
    if len(heard) < 2 and recordings[0] in heard:
        return recordings[0]
    return Processes(recordings[0], heard) if heard else recordings[0]


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

    `prepared` says that `prepare` has been done.
    """

    def __init__(
        self, trace: Trace, *, selection: Selection | None = None, prepared: bool = False
    ) -> None:
        self._selection = selection or Selection()
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
        made = (
            "findings",
            "_kept",
            "_judged",
            "_needed",
            "gradients",
            "copies",
            "about",
            "history",
        )
        for name in made:
            with contextlib.suppress(AttributeError):
                delattr(self, name)

    @cached_property
    def history(self) -> History:
        """The trace, indexed."""
        history = History(self.trace)
        if self._kept is not None:
            history.know(Ties, Ties(history, self._kept.ties))
            history.know(Cuts, Cuts(history, self._kept.cuts))
            history.know(Growing, Growing(history, (self._kept.growth,)))
        return history

    @cached_property
    def _kept(self) -> Conclusions | None:
        """What the file has that takes long to work out."""
        return kept.read(self.trace)

    @cached_property
    def _judged(self) -> tuple[Finding, ...]:
        """The findings of all files and verdicts."""
        if self._kept is not None:
            return self._kept.findings
        verdicts = import_module("tether.verdicts")
        with without_collector():
            judged = verdicts.judge(
                self.history,
                turns=lambda some: progress.each((f"judging: {one.slug}", one) for one in some),
            )
        return tuple(map(self._mended, judged))

    @cached_property
    def _needed(self) -> tuple[NeededAt, ...]:
        """Which copies were needed, and why."""
        if self._kept is not None:
            return self._kept.needed
        progress.stage("looking at the copies")
        needs = import_module("tether.analysis.copies.needs")
        ask = partial(needs.needed_by_site, self.history)
        nothing: dict[Any, Any] = {}
        with without_collector():
            needed = attempt(self.trace, "the needs of copies", ask, nothing)
        return tuple(NeededAt(*at, *said) for at, said in needed.items())

    @property
    def selection(self) -> Selection:
        """Which findings are reported."""
        return replace(self._selection, folder=self.trace.folder)

    @cached_property
    def findings(self) -> list[Finding]:
        """The verdicts, gravest first, without those that the source silences."""
        selection = self.selection
        wanted = [one for one in self._judged if one.site.line < 1 or selection.wants(one.site)]
        spoken = silence(distinct(wanted), self.trace.sources)
        told = [one for one in spoken if selection.wants_verdict(one.slug)]
        return FindingList(in_order(told, len(self.trace.events)))

    def _mended(self, finding: Finding) -> Finding:
        """Return a finding with the edits that would carry out its repair."""
        text = self.trace.sources.get(finding.site.file)
        return finding if text is None else mended(finding, source_of(finding.site.file, text))

    @cached_property
    def gradients(self) -> list[Gradient]:
        """For each parameter an optimizer holds: reached, zero or none, and the finding for it."""
        ask = partial(gradients_of, self.history, self.findings)
        return attempt(self.trace, "the table of gradients", ask, [])

    @cached_property
    def copies(self) -> list[Copy]:
        """Every copy and conversion met, by line."""
        selection = self.selection
        rows = copies_of(self.trace, self._answers())
        return [row for row in rows if selection.wants(row.site)]

    def _answers(self) -> dict[tuple[int, str], tuple[Needed, str]]:
        """Return which copies were needed, and why, as far as no run without them refuted it."""
        needed = {(one.site, one.operation): (one.needed, one.reason) for one in self._needed}
        return {**needed, **self._refuted()}

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
            index=self.history,
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
        asked = {_key(one) for one in self.findings}
        rest = [one for one in self._judged if _key(one) not in asked]
        told = [one for one in findings if one.slug != UNUSED_IGNORE]
        self._judged = (*told, *rest)  # so that the file says what the run says
        self.defects = list(defects)
        self.findings = FindingList(in_order(findings, len(self.trace.events)))

    def document(self, *, show_all: bool = False) -> Document:
        """Return the report before it is given a form; `show_all` leaves nothing out of it."""
        self.about.show_all = show_all
        document = build(self.about)
        document.blocks += self._memory()
        return document

    def _memory(self, about: Findings | None = None, *, drawn: bool = False) -> list[Block]:
        """Return what the report says of memory, where that was asked for."""
        if not self.with_memory:
            return []
        found: list[Block] = import_module("tether.report.tables.memory").blocks(
            (about or self.about).history, drawn=drawn
        )
        return found

    def why(self, name: str) -> Answer:
        """Return why a parameter has no gradient, or what a tensor shares and who wrote it.

        Printed it is text. Raises `LookupError`, in one line, when nothing of that name is known.
        """
        return why(name, self.about)

    def print(
        self, stream: TextIO | None = None, width: int | None = None, *, show_all: bool = False
    ) -> None:
        """Write the report as text (to standard error unless told otherwise).

        `show_all` leaves nothing out, however much it is.
        """
        stream = stream or sys.stderr
        with progress.shown(stream):
            document = self.document(show_all=show_all)
        as_text.write(document, stream, width)

    def lines(self, stream: TextIO, root: Paths = "", *, by_file: bool = False) -> None:
        """Write a line for each finding, with its file relative to `root`; or below its file."""
        made = as_lines.grouped if by_file else as_lines.concise
        as_text.write(made(self.about, str(root)), stream)

    def json(self, *, source: bool = True) -> str:
        """Return the report as JSON, schema version 1."""
        return as_json.dumps(self._shared(source=source)).rstrip("\n")

    def html(self, *, source: bool = True, version: int | None = None) -> str:
        """Return the report as one HTML page; one that is served has a `version`."""
        about = self._shared(source=source)
        return as_page.render(
            about, self._memory(about, drawn=True), source=source, version=version
        )

    def sarif(self, *, source: bool = True) -> str:
        """Return the findings as SARIF 2.1.0."""
        return as_sarif.dumps(self._shared(source=source))

    def _shared(self, *, source: bool) -> Findings:
        """Return what a report for others is made of: `source` off leaves out the text.

        Every form begins here, so each hides the text in the same way (`report.redact`).
        """
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
        asked = {"html": html, "json": json, "sarif": sarif}
        for one in FORMS:
            path = asked[one.name]
            if path is not None:
                text = getattr(self, one.name)(source=source)
                Path(path).write_text(text + "\n", "utf-8", "backslashreplace")

    def save(self, path: Paths) -> None:
        """Write the recording to a file that `tether.load` opens, with what was made of it."""
        text = ""
        if "findings" in self.__dict__:  # who only records has no need of them
            progress.stage("looking at the ties")
            ties = tuple(self.history.get(Ties).found)
            cuts = tuple(self.history.get(Cuts).found)
            growth = self.history.get(Growing).found
            needed = tuple(NeededAt(*at, *said) for at, said in self._answers().items())
            text = kept.written(Conclusions(self._judged, needed, ties, cuts, growth))
        save_trace(replace(self.trace, concluded=text), path)

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


def _key(finding: Finding) -> tuple[str, str, Site]:
    """Return what is the same in findings that a report makes one."""
    return finding.slug, finding.subject, finding.site


class Processes(Recording):
    """What happened in several processes of one program, each judged by itself.

    `asked` is the one that was to be recorded, `heard` are those that called PyTorch.
    """

    def __init__(self, asked: Recording, heard: Sequence[Recording]) -> None:
        parts = sorted(heard, key=lambda one: one.trace.process.rank)
        trace, added = laid_out([one.trace for one in parts])
        first = asked.trace
        trace.program, trace.folder, trace.process = first.program, first.folder, first.process
        if asked not in parts:
            trace.gaps += first.gaps
        super().__init__(trace, selection=asked._selection, prepared=True)
        self.parts, self._added = parts, added
        self.with_memory = any(one.with_memory for one in parts)

    @cached_property
    def about(self) -> Findings:
        """All of it, as the reports take it."""
        return self._joined([one.about for one in self.parts], self._nothing)

    @property
    def _nothing(self) -> Findings:
        return Findings(self.trace, (), selection=self.selection)

    def _joined(self, reports: Sequence[Findings], whole: Findings) -> Findings:
        events, joined = 0, []
        for part, about, added in zip(self.parts, reports, self._added, strict=True):
            joined.append(OneProcess(part.trace.process.label, about, added, events))
            events += len(part.trace.events)
        return join(joined, whole)

    def _shared(self, *, source: bool) -> Findings:
        # The rows of ties and cuts are worked out for each process: of one that holds no text.
        if source:
            return self.about
        reports = [without_source(one.about) for one in self.parts]
        return self._joined(reports, without_source(self._nothing))

    @property
    def findings(self) -> list[Finding]:
        """The findings of all processes, each once."""
        return list(self.about.findings)

    @property
    def gradients(self) -> list[Gradient]:
        """Every parameter once, and in which process its gradient differs."""
        return list(self.about.gradients)

    @property
    def copies(self) -> list[Copy]:
        """Every copy and conversion met, by line."""
        return list(self.about.copies)

    def save(self, path: Paths) -> None:
        """Write the recordings of all processes to one file that `tether.load` opens."""
        save_trace([one.trace for one in self.parts], path)
