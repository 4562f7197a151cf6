"""The Python edge: `tether.record`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import Any, Self

from tether.facts import Trace
from tether.record.ending import ended_with, strip
from tether.record.notebook_cells import name_cells, of_the_user
from tether.record.objects import variables_of_frames
from tether.record.processes.children import expanded
from tether.record.session import Session
from tether.record.sites import here
from tether.report.recording import Recording
from tether.store.file import RecordingError
from tether.store.file import save as save_trace


class record(Recording):  # noqa: N801 -- used as `with tether.record() as recording`
    """Record a block of a running program.

    ``with tether.record() as recording: ...``; afterwards `recording.findings`,
    `recording.why(name)`, `recording.copies`, `recording.report()`. An exception in the block
    passes through unchanged; what was recorded by then is there. `limit` keeps only the last so
    many calls.

    ``tether.record(last=20_000)`` is a flight recorder: it keeps that many calls, and when an
    exception leaves the block it saves them to `file`, of which ``{pid}`` and ``{rank}`` are filled
    in, and says so in one line on the error stream. A block that ends well leaves no file.

    Raises `ValueError` where `last` or `limit` is less than 1, or both are given.
    """

    def __init__(
        self,
        limit: int | None = None,
        *,
        last: int | None = None,
        file: str | os.PathLike[str] = "failed-{pid}.tether",
    ) -> None:
        if last is not None and limit is not None:
            raise ValueError("limit and last both say how many calls to keep: give one of them")
        kept = limit if last is None else last
        if kept is not None and kept < 1:
            raise ValueError(f"a recording keeps at least 1 call, not {kept}")
        super().__init__(Trace())
        self.ended = False
        self.cells: dict[str, str] = {}  # what a notebook's files are called, beside its own names
        self._session = Session(kept)
        self._file = os.path.abspath(file) if last is not None else ""  # the program may go on

    def __enter__(self) -> Self:
        self._session.start()
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if not self.ended:
            self.finish(variables_of_frames(here(2)), error)

    def stop(self, error: BaseException | None = None) -> None:
        """End the recording before its block ends, to ask it; a second time it does nothing.

        `error` is what ended the block.
        """
        if not self.ended:
            self.finish(variables_of_frames(here(2)), error)

    def finish(
        self, variables: Iterable[tuple[str, Any]], error: BaseException | None = None
    ) -> None:
        """Stop recording. Tensors are named by `variables`; `error` is what ended the block."""
        self._session.mute()
        self._session.recorder.naming.search(of_the_user(variables))
        trace = self._session.stop(error=error)
        if error is not None:
            ended_with(trace, self._session.recorder.tape, error)
            strip(error)
        self._become(trace)
        name_cells(self.trace, self.cells)
        self.ended = True
        if error is not None and self._file:
            self._save_failed(expanded(self._file, trace.process, "main"))

    def _save_failed(self, path: str) -> None:
        """Save what led to an exception, which goes on whether or not that succeeds."""
        try:
            save_trace(self.trace, path)
        except (RecordingError, OSError) as error:
            said = f"the recording of what failed was not saved: {error}"
        else:
            shown = os.path.relpath(path)
            said = f"the last calls before the exception are in {shown}: tether report {shown}"
        print(f"tether: {said}", file=sys.stderr)  # noqa: T201 -- where the traceback goes
