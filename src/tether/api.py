"""The Python edge: `tether.record`."""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType
from typing import Any, Self

from tether.facts import Trace
from tether.record.ending import ended_with, strip
from tether.record.naming import variables_of_frames
from tether.record.notebook_cells import name_cells, of_the_user
from tether.record.session import Session
from tether.record.sites import here
from tether.report.recording import Recording


class record(Recording):  # noqa: N801 -- used as `with tether.record() as recording`
    """Record a block of a running program.

    ``with tether.record() as recording: ...``; afterwards `recording.findings`,
    `recording.why(name)`, `recording.copies`, `recording.report()`. An exception in the block
    passes through unchanged; what was recorded by then is there. `limit` keeps only the last so
    many calls.
    """

    def __init__(self, limit: int | None = None) -> None:
        super().__init__(Trace())
        self.ended = False
        self.cells: dict[str, str] = {}  # what a notebook's files are called, beside its own names
        self._session = Session(limit)

    def __enter__(self) -> Self:
        self._session.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
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
        trace = self._session.stop()
        if error is not None:
            ended_with(trace, self._session.recorder.tape, error)
            strip(error)
        self._become(trace)
        name_cells(self.trace, self.cells)
        self.ended = True
