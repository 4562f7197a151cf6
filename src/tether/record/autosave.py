"""Saves a recording while it grows, about once a second, so that a kill leaves all but the last.

The file is opened for each batch and closed again: a program that closes every file descriptor, or
is handed ours for a file of its own, meets none of it. A file that cannot be written (a full disk,
a folder that went away) is given up with a gap, and the program goes on.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterable
from itertools import compress, islice
from operator import is_not
from typing import Any

from tether.facts import EventId, Moment, Site, Trace
from tether.record.tape import Tape
from tether.source.syntax import read
from tether.store import frames
from tether.store.columns import STORAGE, TENSOR
from tether.store.layout import MAX_SOURCE, Rows
from tether.store.numbers import Numbers

EVERY = 1.0
"""Seconds between two batches. A look at the clock comes with every 256th event, every backward
pass and every optimizer step, so a kill costs the calls of a second and at most 256 more."""

AT_MOST = 1 << 15  # events in a batch: the clock may be a fake one, that stands still
_SLACK = 64  # serial numbers that another thread may have taken and not used yet

# As they are now: the program may replace any of them.
_open, _write, _close, _stat = os.open, os.write, os.close, os.fstat
_cut_to, _replace, _unlink = os.ftruncate, os.replace, os.unlink
_clock, _process = time.monotonic, os.getpid


class Autosave:
    """The file of one recording, at an absolute path; begun by its first batch.

    `tables` returns the facts so far; `trace` has what the file says of the program.
    """

    def __init__(
        self, tape: Tape, tables: Callable[[], dict[str, list[object]]], path: str, trace: Trace
    ) -> None:
        self._tape = tape
        self._tables = tables
        self.path = path
        self._trace = trace
        self._lock = threading.Lock()
        self._pid = _process()
        self._next = _clock() + EVERY
        self._given_up = False
        self._reset()

    def _reset(self) -> None:
        """Forget what was written: the next batch has all of it."""
        self.size = 0  # of the file; 0: not there yet
        self._inode = 0
        self._rewritten = self._starts()
        self._facts: dict[str, list[object]] = {}  # of each table, the rows that the file has
        self._sent: dict[str, int] = {}  # of sites, and of what are numbers: how many it has
        self._files: set[str] = set()
        self._rows = Rows()
        self._events = 0

    def _starts(self) -> tuple[int, int]:
        return self._tape.log.rewritten, self._tape.who.rewritten

    def beat(self) -> None:
        """Write a batch if it is time."""
        if _clock() >= self._next or self._tape.log.count - self._events >= AT_MOST:
            self.flush()

    def flush(self) -> None:
        """Write what is new. Never raises an `Exception`."""
        if self._given_up or _process() != self._pid or not self._lock.acquire(blocking=False):
            return  # a forked child leaves it to its parent; another thread is at it
        try:
            self._flush()
        except Exception as error:  # noqa: BLE001 -- it must not reach the program
            self._given_up = True
            self._tape.gap("autosave", _words(error))
        except BaseException:  # the program's Ctrl-C, say: what was written is not known
            self._reset()
            raise
        finally:
            self._next = _clock() + EVERY
            self._lock.release()

    def _flush(self) -> None:
        if self._rewritten != self._starts():
            self._reset()  # events were forgotten: what is left is written anew
        count, first = self._tape.log.count, not self.size
        data = self._batch(first=first)
        if first:
            self._begin(frames.first_line() + data)
        else:
            self._append(data)
        self._events = count

    # -- what is new -----------------------------------------------------------------------------

    def _batch(self, *, first: bool) -> bytes:
        """Return all that is not written yet as one frame, and take it for written.

        Events come first and what they point at after them, so that with other threads at work
        nothing they point at is missing.
        """
        tape = self._tape
        tape.who.bury()
        small: dict[str, Any] = {}
        if first:
            self._trace.process = tape.process
            self._trace.dropped = Moment(tape.log.dropped)
            self._trace.kept = [EventId(number) for number in tape.log.kept]
            small = frames.header(self._trace)
        elif self._trace.process != tape.process:  # its rank is known now
            self._trace.process = tape.process
            small = {"trace": {"process": tape.process}}
        blocks = self._blocks()
        small |= {"whole": {}, "new": {}, "changed": {}}
        for name, facts in self._tables().items():
            self._compare(name, facts, small)
        sites = tape.places.resolve(self._sent.get("sites", 0))
        self._sent["sites"] = self._sent.get("sites", 0) + len(sites)
        if sites:
            small["new"]["sites"] = [self._rows.row(site) for site in sites]
        small["sources"] = self._sources(sites)
        small["dictionaries"] = self._rows.take_new()
        small["strings"] = self._pairs("strings", tape.log.strings)
        small["words"] = self._pairs("words", tape.who.names, texts=True)
        small["tuples"] = self._pairs("tuples", tape.who.tuples)
        return frames.frame(small, blocks)

    def _blocks(self) -> dict[str, list[Numbers]]:
        log, who, sent = self._tape.log, self._tape.who, self._sent
        heads, rows = log.columns(sent.get("events", 0), sent.get("rows", 0))
        sent["events"] = sent.get("events", 0) + len(heads)
        sent["rows"] = sent.get("rows", 0) + len(rows)
        size = len(who.rows)
        operands = who.operand_table(sent.get("operands", 0))
        sent["operands"] = size
        blocks = {"events": [*heads.T], "rows": [rows], "operands": [*operands.T]}
        for name, table, width, dead in (
            ("tensors", who.tensor_table, len(TENSOR), who.dead_tensors),
            ("storages", who.storage_table, len(STORAGE), who.dead_storages),
        ):
            ended = len(dead) // (width * 8) * width * 8
            found = table(sent.get(f"dead {name}", 0), sent.get(name, 0))
            sent[f"dead {name}"] = ended
            latest = int(found[:, 0].max()) if len(found) else 0
            sent[name] = max(sent.get(name, 0), latest - _SLACK)
            blocks[name] = [*found.T]
        return blocks

    def _compare(self, name: str, facts: list[object], small: dict[str, Any]) -> None:
        """Add what a table has that the file has not: rows behind those, and in their places.

        Of any table rows may change, go and come in between. Facts themselves never change, so most
        are the objects that they were, and no Python runs to compare those. A table that has become
        shorter is written anew.
        """
        row, sent = self._rows.row, self._facts.setdefault(name, [])
        if len(facts) < len(sent):
            small["whole"][name] = [row(fact) for fact in facts]
            sent[:] = facts
            return
        others = compress(range(len(sent)), map(is_not, sent, facts))
        changed = [at for at in others if sent[at] != facts[at]]
        if changed:
            small["changed"][name] = [[at, row(facts[at])] for at in changed]
        for at in changed:
            sent[at] = facts[at]
        if new := facts[len(sent) :]:
            small["new"][name] = [row(fact) for fact in new]
            sent += new

    def _pairs(self, name: str, numbered: dict[Any, int], *, texts: bool = False) -> list[Any]:
        """Return the new pairs of a number and what it stands for; `texts`: those of texts."""
        new = list(islice(numbered.items(), self._sent.get(name, 0), None))
        self._sent[name] = self._sent.get(name, 0) + len(new)
        return [(number, key) for key, number in new if not texts or isinstance(key, str)]

    def _sources(self, sites: Iterable[Site]) -> list[tuple[str, str]]:
        """Return the text of the user's files that were not met before."""
        new = {site.file for site in sites if site.user} - self._files
        self._files |= new
        found = ((file, read(file)) for file in sorted(new))
        return [(file, text) for file, text in found if text and len(text) <= MAX_SOURCE]

    # -- the file --------------------------------------------------------------------------------

    def _begin(self, data: bytes) -> None:
        """Put a new file in the place of what was there, whole."""
        name = f"{self.path}.{self._pid}.tmp"
        if os.path.exists(self.path) and not os.path.isfile(self.path):
            raise OSError("it is not a file")
        try:
            handle = _open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FLAGS, 0o666)
            try:
                self._inode = _stat(handle).st_ino
                _write_all(handle, data)
            finally:
                _close(handle)
            _replace(name, self.path)
        except BaseException:
            with contextlib.suppress(OSError):
                _unlink(name)
            raise
        self.size = len(data)

    def _append(self, data: bytes) -> None:
        handle = _open(self.path, os.O_WRONLY | os.O_APPEND | _FLAGS)
        try:
            found = _stat(handle)
            if (found.st_ino, found.st_size) != (self._inode, self.size):
                raise OSError("the file was changed by somebody else")
            try:
                _write_all(handle, data)
            except BaseException:
                with contextlib.suppress(OSError):
                    _cut_to(handle, self.size)
                raise
        finally:
            _close(handle)
        self.size += len(data)


_FLAGS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)


def _write_all(handle: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[_write(handle, left) :]


def _words(error: Exception) -> str:
    strerror = getattr(error, "strerror", None)
    return str(strerror or f"{type(error).__name__}: {error}")
