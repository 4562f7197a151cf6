"""IPython's ``%load_ext tether`` and ``%%tether``: a cell recorded, and its report below it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from tether.api import record
from tether.record.notebook_cells import called
from tether.record.sites import here


def load(shell: Any) -> None:
    """Add the cell magic ``%%tether`` to an IPython shell."""
    arguments: Any = import_module("IPython.core.magic_arguments")
    display: Any = import_module("IPython.display").display

    @arguments.magic_arguments()  # type: ignore[untyped-decorator]
    @arguments.argument("name", nargs="?", help="Variable that the recording is kept in.")  # type: ignore[untyped-decorator]
    @arguments.argument("--limit", type=int, help="Keep the last LIMIT calls.")  # type: ignore[untyped-decorator]
    def tether(line: str, cell: str) -> None:
        """Run and record the cell, and report what ties its tensors."""
        options = arguments.parse_argstring(tether, line)
        recording = run_cell(shell, cell, options.limit)
        if options.name:
            shell.user_ns[options.name] = recording
        display(recording)
        recording.reraise()

    shell.register_magic_function(tether, "cell", "tether")


class CellRecording(record):
    """The recording of one cell, and the exception that ended it."""

    error: BaseException | None = None

    def reraise(self) -> None:
        """Raise what the cell raised, after the report was shown."""
        error, self.error = self.error, None  # it holds the frames, and those the tensors
        if error is not None:
            raise error


def run_cell(shell: Any, cell: str, limit: int | None = None) -> CellRecording:
    """Run a cell's text under a recorder and return the recording.

    The line of the magic counts as the first of the cell, as a reader counts.
    """
    recording = CellRecording(limit)
    text = f"# %%tether\n{cell}"
    compiled = shell.compile.get_code_name(text, shell.transform_cell(text), shell.execution_count)
    recording.cells[compiled] = _cell_around()
    with _quiet(shell):
        recording.__enter__()
        try:
            result = shell.run_cell(text, store_history=False)
        except BaseException:
            recording.finish(shell.user_ns.items(), sys.exception())
            raise
        recording.error = result.error_before_exec or result.error_in_exec
        recording.finish(shell.user_ns.items(), recording.error)
    return recording


def _cell_around() -> str:
    """Return what the cell is called that asked for the magic; its text was compiled, too."""
    frame = here()
    while frame is not None:
        name = called(frame.f_code.co_filename)
        if name:
            return name
        frame = frame.f_back
    return ""


@contextmanager
def _quiet(shell: Any) -> Iterator[None]:
    """Keep IPython from printing an exception that is raised again when the report is there."""
    names = ("showtraceback", "showsyntaxerror", "showindentationerror")
    for name in names:
        setattr(shell, name, lambda *_args, **_options: None)
    try:
        yield
    finally:
        for name in names:
            delattr(shell, name)
