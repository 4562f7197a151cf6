"""Writes what a recording gathers to its journal, about once a second, while the program runs.

The file is opened for each batch and closed again: a program that closes every file descriptor, or
is handed ours for a file of its own, meets none of it. A journal that cannot be written (a full
disk, a folder that went away) is given up with a gap, and the program goes on.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

import torch

from tether.facts import UNKNOWN
from tether.record.identity import pack_storage, pack_tensor
from tether.source.syntax import read
from tether.store import journal
from tether.store.layout import MAX_SOURCE, TABLES

if TYPE_CHECKING:
    from tether.record.recorder import Recorder

EVERY = 1.0
"""Seconds between two batches. A look at the clock comes with every 256th event, every backward
pass and every optimizer step, so a kill costs the calls of a second and at most 256 more."""

AT_MOST = 1 << 15  # events in a batch: the clock may be a fake one, that stands still
_COMPACT = 64 << 20  # bytes of a journal before it is written anew without what was forgotten

# As they are now: the program may replace any of them.
_open, _write, _close, _stat = os.open, os.write, os.close, os.fstat
_cut_to, _replace, _unlink = os.ftruncate, os.replace, os.unlink
_clock, _process = time.monotonic, os.getpid


class Journal:
    """The journal of one recording, at an absolute path; begun by its first batch."""

    def __init__(self, recorder: Recorder, path: str, program: list[str], folder: str) -> None:
        self._recorder = recorder
        self._path = path
        self._header = {"program": program, "folder": folder, "torch": torch.__version__,
                        "python": sys.version.split()[0], "dropped": 0}  # fmt: skip
        self._lock = threading.Lock()
        self._pid = _process()
        self._next = _clock() + EVERY
        self._given_up = False
        self._reset()

    def _reset(self) -> None:
        """Forget what was written: the next batch has all of it."""
        self._size = 0  # of the file; 0: not there yet
        self._inode = 0
        self._dropped = 0
        self._sent = dict.fromkeys((*journal.ADDED, *_COUNTED), 0)
        self._bytes = dict.fromkeys(("events", "rows", "dead_tensors", "dead_storages"), 0)
        self._open_spans: set[int] = set()
        self._files: set[str] = set()
        self._statuses: dict[int, tuple[Any, int]] = {}  # id -> the table, so held, its number
        self._gaps: dict[Any, int] = {}
        self._events = 0

    def beat(self) -> None:
        """Write a batch if it is time."""
        if _clock() >= self._next or self._recorder.log.count - self._events >= AT_MOST:
            self.flush()

    def flush(self) -> None:
        """Write what is new. Never raises an `Exception`."""
        if self._given_up or _process() != self._pid or not self._lock.acquire(blocking=False):
            return  # a forked child leaves it to its parent; another thread is at it
        try:
            self._flush()
        except Exception as error:  # noqa: BLE001 -- it must not reach the program
            self._given_up = True
            self._recorder.gap(
                f"from here on nothing was saved while the program ran: {_words(error)}"
            )
        except BaseException:  # the program's Ctrl-C, say: what was written is not known
            self._reset()
            raise
        finally:
            self._next = _clock() + EVERY
            self._lock.release()

    def _flush(self) -> None:
        log = self._recorder.log
        if self._size > _COMPACT and log.dropped > self._dropped:
            kept = len(log.numbers) + len(self._recorder.who.rows)
            if self._size > 3 * kept:
                self._reset()
        count, first = log.count, not self._size
        data = self._batch(first=first)
        if first:
            self._begin(journal.first_line() + data)
        else:
            self._append(data)
        self._events = count

    # -- what is new -----------------------------------------------------------------------------

    def _batch(self, *, first: bool) -> bytes:
        """Return all that is not written yet as one frame, and take it for written.

        Events come first and what they point at after them, so that with other threads at work
        nothing they point at is missing.
        """
        recorder, who = self._recorder, self._recorder.who
        who.bury()
        small: dict[str, Any] = {}
        if first:
            self._dropped = recorder.log.dropped
            small |= self._header | {"dropped": self._dropped}
            small["fields"] = {name: list(kind._fields) for name, kind in TABLES.items()}  # type: ignore[attr-defined]
        blocks = {"events": self._new("events", recorder.log.numbers, recorder.log.cut)}
        blocks["rows"] = self._new("rows", who.rows, who.cut["rows"])
        for name in ("tensors", "storages"):
            dead = getattr(who, f"dead_{name}")
            blocks[f"dead_{name}"] = self._new(f"dead_{name}", dead, who.cut[f"dead_{name}"])
        blocks |= self._living()
        small["spans"] = list(self._spans())
        small["gradients"], small["statuses"] = self._gradients()
        for name, rows in (
            ("names", recorder.naming.facts.values()),
            ("optimizers", recorder.optimizers),
            ("unseen", recorder.contents.facts),
            ("raised", recorder.raised),
            ("attached", recorder.holdings.facts if recorder.holdings is not None else ()),
        ):
            small[name] = self._added(name, rows)
        small["bridges"] = self._added("bridges", recorder.bridges, recorder.bridges_cut)
        small["strings"] = self._pairs("strings", recorder.log.strings)
        small["kinds"] = self._pairs("kinds", who.names, texts=True)
        small["tuples"] = self._pairs("tuples", who.tuples)
        if first or recorder.gaps != self._gaps:
            self._gaps = dict(recorder.gaps)
            small["gaps"] = recorder.gap_facts(self._dropped)
        small["sites"] = sites = recorder.places.resolve(self._sent["sites"])
        self._sent["sites"] += len(sites)
        small["sources"] = self._sources(sites)
        small = {name: value for name, value in small.items() if value or name in self._header}
        return journal.frame(small, [blocks[name] for name in journal.NUMBERS])

    def _new(self, name: str, numbers: bytearray, cut: int) -> bytes:
        """Return the bytes of an array that only grows, but for `cut` bytes lost at its start."""
        data = bytes(numbers[max(0, self._bytes[name] - cut) :])
        self._bytes[name] = max(self._bytes[name], cut) + len(data)
        return data

    def _added(self, name: str, rows: Iterable[Any], cut: int = 0) -> list[Any]:
        """Return the new rows of a table that only grows, but for `cut` rows lost at its start."""
        found = list(islice(rows, max(0, self._sent[name] - cut), None))
        self._sent[name] = max(self._sent[name], cut) + len(found)
        return found

    def _pairs(self, name: str, numbered: dict[Any, int], *, texts: bool = False) -> list[Any]:
        """Return the new pairs of a number and what it stands for; `texts`: those of texts."""
        new = list(islice(numbered.items(), self._sent[name], None))
        self._sent[name] += len(new)
        return [(number, key) for key, number in new if not texts or isinstance(key, str)]

    def _living(self) -> dict[str, bytes]:
        """Return the lives that began since the last batch and have not ended.

        Some of those before as well: another thread may have had a number and no entry yet.
        """
        who, sent = self._recorder.who, self._sent
        tensors, storages = who.living_tensors(), who.living_storages()
        blocks = {
            "tensors": b"".join(
                pack_tensor(*one, UNKNOWN) for one in tensors if one[0] >= sent["tensors"]
            ),
            "storages": b"".join(
                pack_storage(*one[:4], UNKNOWN, *one[4:])
                for one in storages
                if one[0] >= sent["storages"] or one[4] != UNKNOWN or who.sizes
            ),
        }
        for name, living in (("tensors", tensors), ("storages", storages)):
            latest = max((one[0] for one in living), default=0)
            sent[name] = max(sent[name], latest - 64)
        return blocks

    def _spans(self) -> Iterator[tuple[int, list[Any]]]:
        """Return the spans that are new or have ended since."""
        spans = self._recorder.spans
        count = len(spans)
        for number in (*sorted(self._open_spans), *range(self._sent["spans"], count)):
            span = list(spans[number])
            if span[4] == UNKNOWN:
                new = number >= self._sent["spans"]
                self._open_spans.add(number)
                if not new:
                    continue
            else:
                self._open_spans.discard(number)
            yield number, span
        self._sent["spans"] = count

    def _gradients(self) -> tuple[list[Any], list[Any]]:
        """Return the new gradients, each with the number of its table, and the new tables."""
        rows, tables = [], []
        for fact in self._added("gradients", self._recorder.gradients.facts):
            known = self._statuses.get(id(fact.status))
            if known is None:
                known = self._statuses[id(fact.status)] = (fact.status, len(self._statuses))
                tables.append([list(fact.status), list(fact.status.values())])
            rows.append([*fact[:-1], known[1]])
        return rows, tables

    def _sources(self, sites: Iterable[Any]) -> list[tuple[str, str]]:
        """Return the text of the user's files that were not met before."""
        new = {site.file for site in sites if site.user} - self._files
        self._files |= new
        found = ((file, read(file)) for file in sorted(new))
        return [(file, text) for file, text in found if text and len(text) <= MAX_SOURCE]

    # -- the file --------------------------------------------------------------------------------

    def _begin(self, data: bytes) -> None:
        """Put a new file in the place of what was there, whole."""
        name = f"{self._path}.{self._pid}.tmp"
        if os.path.exists(self._path) and not os.path.isfile(self._path):
            raise OSError("it is not a file")
        try:
            handle = _open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FLAGS, 0o666)
            try:
                self._inode = _stat(handle).st_ino
                _write_all(handle, data)
            finally:
                _close(handle)
            _replace(name, self._path)
        except BaseException:
            with contextlib.suppress(OSError):
                _unlink(name)
            raise
        self._size = len(data)

    def _append(self, data: bytes) -> None:
        handle = _open(self._path, os.O_WRONLY | os.O_APPEND | _FLAGS)
        try:
            found = _stat(handle)
            if (found.st_ino, found.st_size) != (self._inode, self._size):
                raise OSError("the file was changed by somebody else")
            try:
                _write_all(handle, data)
            except BaseException:
                with contextlib.suppress(OSError):
                    _cut_to(handle, self._size)
                raise
        finally:
            _close(handle)
        self._size += len(data)


_COUNTED = ("spans", "gradients", "strings", "kinds", "tuples", "tensors", "storages")
_FLAGS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)


def _write_all(handle: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[_write(handle, left) :]


def _words(error: Exception) -> str:
    strerror = getattr(error, "strerror", None)
    return str(strerror or f"{type(error).__name__}: {error}")
