"""What `tether run` does where the program is more than one process."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from tether.cli.reporting import Options, Start, chosen

if TYPE_CHECKING:
    from tether.facts import Process
    from tether.record.processes.children import Children
    from tether.report.recording import Recording


def recorded(
    options: Options, limit: int, output: str | None
) -> contextlib.AbstractContextManager[Children | None]:
    """Return a block in which the processes that the program starts are recorded as asked.

    A launcher's ranks are unless --no-children says otherwise, all are with --children.
    """
    from tether.record.processes.children import Children

    if options["children"] is False:
        return contextlib.nullcontext()
    return Children.asked(
        "all" if options["children"] else "ranks",
        output=os.path.abspath(output) if output and _each(output) else "",
        limit=limit,
        eager=options["eager"],
        memory=options["memory"],
        sample=options["sample"],
    )


def _each(output: str) -> bool:
    """Whether the name of a file says that each process has its own."""
    return "{rank}" in output or "{pid}" in output


def file_of(output: str | None, process: Process) -> str | None:
    """Return the file for the recording of this process.

    Ranks that are each run under tether get one each, whether or not the name says so.
    """
    from tether.record.processes.children import expanded

    if output is not None and process.ranks > 1 and not _each(output):
        path = Path(output)
        output = str(path.with_name(f"{path.stem}-{{rank}}{path.suffix}"))
    return expanded(output, process, "main") if output else output


def with_children(recording: Recording, options: Options, start: Start) -> Recording:
    """Return a recording together with those of the processes that the program started."""
    from tether.report.recording import load, together
    from tether.store.file import RecordingError

    found = [recording]
    children: Children | None = options["children"]
    for note in children.notes() if children is not None else ():
        if note.file:
            try:
                found.append(load(note.file, **chosen(options)))
            except RecordingError as error:
                start.tell(f"the recording of process {note.number} cannot be used: {error}")
    return together(found)


def kept(own: Recording, whole: Recording, children: Children | None) -> Recording | None:
    """Return what this process is to save: all, or its own calls where each saves its own."""
    if children is None or not children.output:
        return whole
    return own if own.trace.ended or own is whole else None
