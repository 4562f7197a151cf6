"""A `Trace` as one file, so that any report can be made again later."""

from __future__ import annotations

import contextlib
import gc
import os
import stat
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tether.facts import Trace
from tether.store import frames
from tether.store.columns import Events, Numbering
from tether.store.layout import MAX_SOURCE, TABLES, Damage, RecordingError, Rows
from tether.store.lives import StorageLives, TensorLives
from tether.store.merge import merge
from tether.store.numbers import Numbers

__all__ = ["RecordingError", "load", "load_all", "merge", "save"]

_LEVEL = 6  # of packing
_AT_ONCE = 1 << 18  # lines of each block in a frame


# -- save ------------------------------------------------------------------------------------------


def save(trace: Trace | Iterable[Trace], path: str | os.PathLike[str]) -> None:
    """Write `trace` to `path`: the whole file or, whatever happens, what was there before.

    Several, one for each process, go into one file.

    Raises `RecordingError` when the folder is not there or cannot be written.
    """
    target = Path(path)
    try:
        if target.is_symlink():
            target = target.resolve()
        if target.exists() and not target.is_file():
            raise RecordingError(f"cannot write the recording {target}: it is not a file")
        handle, name = tempfile.mkstemp(prefix=target.name + ".", suffix=".tmp", dir=target.parent)
    except OSError as error:
        raise RecordingError(
            f"cannot write the recording {target}: {error.strerror or error}; "
            "choose a folder that exists and that you may write to"
        ) from None
    try:
        with os.fdopen(handle, "wb") as stream:
            for one in [trace] if isinstance(trace, Trace) else trace:
                stream.write(frames.first_line())
                stream.writelines(_frames(one))
            stream.flush()
            os.fsync(stream.fileno())
        mask = os.umask(0)  # the only way to read it; mkstemp made the file private
        os.umask(mask)
        Path(name).chmod(0o666 & ~mask)
        Path(name).replace(target)
    except OSError as error:
        raise RecordingError(
            f"cannot write the recording {target}: {error.strerror or error}"
        ) from None
    finally:
        with contextlib.suppress(OSError):
            Path(name).unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # the new name itself; not every system lets one ask
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _frames(trace: Trace) -> Iterator[bytes]:
    """Yield the tables, then the numbers piece by piece; what comes last is how it ended."""
    rows = Rows()
    tables = {name: [rows.row(fact) for fact in getattr(trace, name)] for name in TABLES}
    blocks, names = _numbers(trace)
    small = frames.header(replace(trace, outcome="unfinished")) | {
        "dictionaries": rows.take_new(),
        "new": {name: some for name, some in tables.items() if some},
        "sources": [pair for pair in trace.sources.items() if len(pair[1]) <= MAX_SOURCE],
        **names,
    }
    yield frames.frame(small, {}, _LEVEL)
    most = max(len(columns[0]) for columns in blocks.values())
    for begin in range(0, most, _AT_ONCE):
        here = slice(begin, begin + _AT_ONCE)
        some = {name: [one[here] for one in columns] for name, columns in blocks.items()}
        yield frames.frame({}, some, _LEVEL)
    yield frames.frame({"trace": {"outcome": trace.outcome}}, {})


def _numbers(trace: Trace) -> tuple[Mapping[str, list[Numbers]], dict[str, Any]]:
    """Return the columns of the large tables, and what their numbers stand for."""
    events, tensors, storages = trace.events, trace.tensors, trace.storages
    if (
        isinstance(events, Events)
        and isinstance(tensors, TensorLives)
        and isinstance(storages, StorageLives)
        and events.names is tensors.names is storages.names
    ):
        heads, operands = events.heads.by_name, events.operands.columns.by_name
        rows = np.arange(len(events.operands), dtype=np.int32)
        found = {
            "events": [*heads.values()], "rows": [events.rows],
            "operands": [rows, *operands.values()],
            "tensors": [*tensors.table.T], "storages": [*storages.table.T],
        }  # fmt: skip
        names = events.names
    else:  # made by hand
        numbering = Numbering()
        table, plain = numbering.events(events)
        found = {
            "events": [*table.T], "rows": [plain], "operands": [*numbering.operands().T],
            "tensors": [*numbering.tensors(tensors).T],
            "storages": [*numbering.storages(storages).T],
        }  # fmt: skip
        names = numbering.names()
    return found, {
        "strings": frames.pairs(names.strings),
        "words": frames.pairs(names.words),
        "tuples": frames.pairs(names.tuples),
    }


# -- load ------------------------------------------------------------------------------------------


def load(path: str | os.PathLike[str], most: int = frames.MAX_BYTES) -> Trace:
    """Read the recording at `path` as `load_all` does; those of several processes are merged."""
    return merge(load_all(path, most))


def load_all(path: str | os.PathLike[str], most: int = frames.MAX_BYTES) -> list[Trace]:
    """Read the recordings at `path`, one of each process; `most` bounds what they unpack to.

    Raises `RecordingError`, in one line, when it cannot be read, is no recording, was made by a
    newer or an older tether, is damaged, or unpacks to more than that.
    """
    try:
        with Path(path).open("rb") as stream:
            if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                raise RecordingError(f"{path} is not a file; give a recording of `tether run -o`")
            with without_collector():
                return frames.read(stream, path, most)
    except OSError as error:
        raise RecordingError(
            f"cannot open {path}: {error.strerror or error}; "
            "make a recording with `tether run -o FILE SCRIPT`"
        ) from None
    except (Damage, ValueError, OverflowError, zlib.error, RecursionError) as error:
        text = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        text = " ".join(text.split())[:200]
        raise RecordingError(f"{path} is damaged ({text}); record it again") from None


@contextlib.contextmanager
def without_collector() -> Iterator[None]:
    """Keep the garbage collector from looking through millions of new facts again and again."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
