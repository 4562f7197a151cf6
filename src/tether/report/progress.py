"""A line that says what is being worked on, where somebody waits: on a terminal, after a second."""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
import time
from collections.abc import Iterable, Iterator
from typing import TextIO, TypeVar

from tether.report.document.text import shortened

AFTER = 1.0
"""Seconds of work before anything is shown."""

EVERY = 0.2  # seconds between two looks

_T = TypeVar("_T")
_CLEAR = "\r\x1b[K"


class _Line:
    """What is being done now, written over itself by a thread of its own."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self.text = "reading the recording"
        self.done = threading.Event()
        self.shown = False
        self.began = time.monotonic()
        self.thread = threading.Thread(target=self._run, name="tether progress", daemon=True)

    def _run(self) -> None:
        wait = AFTER
        while not self.done.wait(wait):
            wait = EVERY
            seconds = time.monotonic() - self.began
            self._write(f"tether: {self.text} ({seconds:.0f} s)")

    def _write(self, text: str) -> None:
        width = shutil.get_terminal_size((80, 24)).columns - 1
        with contextlib.suppress(Exception):  # a terminal that went away stops no report
            self.stream.write(_CLEAR + shortened(text, width))
            self.stream.flush()
            self.shown = True

    def end(self) -> None:
        self.done.set()
        self.thread.join()
        if self.shown:
            with contextlib.suppress(Exception):
                self.stream.write(_CLEAR)
                self.stream.flush()


_lines: list[_Line] = []  # the one that is shown, if any; never more than one


@contextlib.contextmanager
def shown(stream: TextIO | None) -> Iterator[None]:
    """Say on a terminal what `stage` and `each` are told within; elsewhere nothing is written."""
    if stream is None or _lines or not _is_terminal(stream):
        yield
        return
    line = _Line(stream)
    try:
        line.thread.start()
    except RuntimeError:  # no thread can start any more: the interpreter is ending
        yield
        return
    _lines.append(line)
    try:
        yield
    finally:
        _lines.remove(line)
        line.end()


def _is_terminal(stream: TextIO) -> bool:
    try:
        return stream.isatty() and os.environ.get("TERM") != "dumb"
    except (ValueError, AttributeError):  # the program may have closed it
        return False


def stage(text: str) -> None:
    """Say what is done from here on."""
    for line in _lines:
        line.text = text


def each(items: Iterable[tuple[str, _T]]) -> Iterator[_T]:
    """Yield the items, and say by its name and number at which one the work is."""
    listed = list(items)
    for number, (name, item) in enumerate(listed, 1):
        stage(f"{name}, {number} of {len(listed)}")
        yield item
