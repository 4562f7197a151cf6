"""A recording as its readers meet it: findings, gradients, copies, and the report of them."""

from __future__ import annotations

import contextlib
import os
import sys
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TextIO

from tether.facts import Trace
from tether.finding import Finding
from tether.merging import merge
from tether.recording import load as load_trace
from tether.recording import save as save_trace
from tether.report import json as as_json
from tether.report import text as as_text
from tether.report.build import Findings, build, in_order
from tether.report.copies import Copy
from tether.report.copies import copies as copies_of
from tether.report.document import Document
from tether.report.filters import Selection, silence
from tether.report.gradients import Gradient
from tether.report.gradients import gradients as gradients_of
from tether.source.annotate import annotate
from tether.source.bridges import follow

Paths = str | os.PathLike[str]


def load(path: Paths, *more: Paths) -> Recording:
    """Open a recording; several are merged (one per rank of a distributed run, in rank order).

    Raises `tether.recording.RecordingError`, in one line, for a file that is none or is damaged.
    """
    return Recording(merge([load_trace(one) for one in (path, *more)]))


def prepare(trace: Trace) -> None:
    """Add to a trace that was just recorded what the source text tells.

    To be called once, where the program ran: a recording that is opened later, perhaps from a
    stranger, holds the text it speaks of and no other file is read for it.
    """
    annotate(trace)
    trace.bridges += follow(trace)


class Recording:
    """What happened in one program, and what follows from it. Made by `load` or `record`."""

    def __init__(self, trace: Trace, selection: Selection | None = None) -> None:
        self.trace = trace
        self.selection = selection or Selection(trace.folder)

    def _become(self, trace: Trace) -> None:
        """Take the place of a recording that has just ended."""
        prepare(trace)
        self.trace = trace
        self.selection = Selection(trace.folder, self.selection.include, self.selection.omit)
        for name in ("findings", "gradients", "copies", "about"):
            with contextlib.suppress(AttributeError):
                delattr(self, name)

    @cached_property
    def findings(self) -> list[Finding]:
        """The verdicts, gravest first, without those that the source silences."""
        history = import_module("tether.history").History(self.trace)
        judged = import_module("tether.verdicts").judge(history)
        wanted = [one for one in judged if self.selection.wants(one.site) or one.site.line < 1]
        return in_order(silence(wanted, self.trace.sources))

    @cached_property
    def gradients(self) -> list[Gradient]:
        """For each parameter an optimizer holds: reached, zero or none, and the finding for it."""
        return gradients_of(self.trace, self.findings)

    @cached_property
    def copies(self) -> list[Copy]:
        """Every copy and conversion met, by line."""
        return [row for row in copies_of(self.trace) if self.selection.wants(row.site)]

    @cached_property
    def about(self) -> Findings:
        """All of it, as the reports take it."""
        return Findings(self.trace, self.findings, self.gradients, self.copies)

    def document(self) -> Document:
        """Return the report before it is given a form."""
        return build(self.about)

    def why(self, name: str) -> Document:
        """Return the chain of events that answers why `name` has no gradient or who wrote it.

        Raises `LookupError` in one line when nothing of that name was recorded.
        """
        answer: Document = import_module("tether.report.chains").why(self, name)
        return answer

    def report(
        self,
        stream: TextIO | None = None,
        *,
        width: int | None = None,
        html: Paths | None = None,
        json: Paths | None = None,
    ) -> None:
        """Write the report: as files where asked for, else as text to `stream` (standard error)."""
        if html is not None:
            page: str = import_module("tether.report.html").render(self)
            Path(html).write_text(page, "utf-8")
        if json is not None:
            Path(json).write_text(as_json.dumps(self.about), "utf-8")
        if html is None and json is None:
            as_text.write(self.document(), stream or sys.stderr, width)

    def save(self, path: Paths) -> None:
        """Write the recording to a file that `tether.load` opens."""
        save_trace(self.trace, path)

    def __repr__(self) -> str:
        events = self.trace.dropped + len(self.trace.events)
        return f"<tether recording of {events:,} calls>"
