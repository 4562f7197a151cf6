"""A Trace as one file, so that any report can be made again later.

The file is one line of text that says what it is, a zlib stream, and the SHA-256 of that stream.
Unpacked, the stream is lines of JSON: first a header (the scalars of the trace, and the fields of
each table), then chunks ``["table", [row, ...]]`` in the order of `tables.TABLES`. Operands repeat
a lot (what one call returns the next one reads), so each distinct one is stored once and events
name it by number. A file that begins as a `journal` is read as that: its program was killed.

Nothing in a file is executed and nothing is believed: a recording may come from a stranger. Every
value is checked for its type, unpacking stops at a bound, and `Trace.check` has the last word.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import itertools
import json
import os
import stat
import sys
import tempfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, get_type_hints

import tether
from tether.facts import Event, Operand, Trace
from tether.store import journal
from tether.store.layout import (
    KEYED,
    LONG_ROWS,
    MAX_SOURCE,
    SCALARS,
    TABLES,
    Damage,
    Layout,
    RecordingError,
    decoder,
    fact_of,
    integer,
    layout_of,
    list_of,
    pair_of,
    parse,
    string,
)
from tether.store.merge import merge

__all__ = ["MAX_TEXT", "VERSION", "RecordingError", "load", "merge", "save"]

VERSION = 1
"""Of the format. Added fields do not raise it; a changed meaning does."""

MAX_TEXT = 512 << 20
"""Bytes of JSON that `load` unpacks before it gives up: about five million events.

A million events of a training loop take some 100 MB of JSON and 10 MB on disk.
"""

MAX_LINE = 64 << 20  # bytes in one line of JSON; `save` starts a new chunk after 1 MiB

_MAGIC = b"tether recording "
_DIGEST = hashlib.sha256().digest_size
_BLOCK = 1 << 16
_CHUNK = 1 << 20
_ENCODE = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


# ------------------------------------------------------------------------------------------ save


def save(trace: Trace, path: str | os.PathLike[str]) -> None:
    """Write `trace` to `path`: the whole file or, whatever happens, what was there before.

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
            _write(trace, stream)
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


def _write(trace: Trace, stream: BinaryIO) -> None:
    packer, digest = zlib.compressobj(6), hashlib.sha256()

    def put(data: bytes) -> None:
        digest.update(data)
        stream.write(data)

    stream.write(_MAGIC + b"%d\n" % VERSION)
    for line in _lines(trace):
        put(packer.compress(line.encode("utf-8", "surrogatepass") + b"\n"))
    put(packer.flush())
    stream.write(digest.digest())


def _lines(trace: Trace) -> Iterator[str]:
    header = {
        "tether": tether.__version__,
        "fields": {name: list(kind._fields) for name, kind in TABLES.items()},  # type: ignore[attr-defined]
        "trace": {name: getattr(trace, name) for name in SCALARS},
    }
    yield _ENCODE(header)
    numbers: dict[Operand, int] = {}
    events = [_event_row(event, numbers) for event in trace.events]
    for name in TABLES:
        if name == "operands":
            rows: Iterable[Any] = numbers
        elif name == "events":
            rows = events
        elif name in KEYED:
            rows = ((serial, *fact) for serial, fact in getattr(trace, name).items())
        elif name == "gradients":
            rows = (
                (*fact[:-1], [list(fact.status), list(fact.status.values())])
                for fact in trace.gradients
            )
        else:
            rows = getattr(trace, name)
        yield from _chunks(name, rows)
    sources = (item for item in trace.sources.items() if len(item[1]) <= MAX_SOURCE)
    yield from _chunks("sources", sources)


def _event_row(event: Event, numbers: dict[Operand, int]) -> list[Any]:
    """Return the fields of an event with each operand replaced by its number."""
    row: list[Any] = list(event)
    for place in _OPERAND_PLACES:
        row[place] = [numbers.setdefault(operand, len(numbers)) for operand in row[place]]
    return row


_OPERAND_PLACES = tuple(Event._fields.index(name) for name in ("reads", "results", "writes"))


def _chunks(name: str, rows: Iterable[Any]) -> Iterator[str]:
    """Yield lines of JSON, each with so many rows that it is about `_CHUNK` long.

    Rows are encoded a few at a time: a call of the encoder costs as much as a short row. Those of
    tables with long rows go one by one, so that a line stays far below `MAX_LINE`.
    """
    at_once = 1 if name in LONG_ROWS else 16
    waiting: list[str] = []
    size = 0
    left = iter(rows)
    while some := list(itertools.islice(left, at_once)):
        text = _ENCODE(some)[1:-1]
        waiting.append(text)
        size += len(text)
        if size >= _CHUNK:
            yield f'["{name}",[{",".join(waiting)}]]'
            waiting, size = [], 0
    if waiting:
        yield f'["{name}",[{",".join(waiting)}]]'


# ------------------------------------------------------------------------------------------ load


def load(path: str | os.PathLike[str], max_text: int = MAX_TEXT) -> Trace:
    """Read the recording at `path`.

    Raises `RecordingError`, in one line, when it cannot be read, is no recording, was made by a
    newer tether, is damaged, or unpacks to more than `max_text` bytes.
    """
    try:
        with Path(path).open("rb") as stream:
            if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                raise RecordingError(f"{path} is not a file; give a recording of `tether run -o`")
            if stream.read(len(journal.MAGIC)) == journal.MAGIC:
                stream.seek(0)
                with _without_collector():
                    return journal.read(stream, path)
            stream.seek(0)
            _check_magic(stream, path)
            _check_digest(stream, path)
            with _without_collector():
                return _read(_unpacked_lines(stream, path, max_text), path)
    except OSError as error:
        raise RecordingError(
            f"cannot open {path}: {error.strerror or error}; "
            "make a recording with `tether run -o FILE SCRIPT`"
        ) from None
    except (Damage, ValueError, zlib.error, RecursionError) as error:
        text = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        text = " ".join(text.split())[:200]
        raise RecordingError(f"{path} is damaged ({text}); record it again") from None


@contextlib.contextmanager
def _without_collector() -> Iterator[None]:
    """Keep the garbage collector from looking through millions of new facts again and again."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _check_magic(stream: BinaryIO, path: str | os.PathLike[str]) -> None:
    start = stream.readline(64)
    number = start[len(_MAGIC) : -1]
    if not start.startswith(_MAGIC):
        if start and _MAGIC.startswith(start):
            raise Damage("it is cut off")
        raise RecordingError(
            f"{path} is not a tether recording; make one with `tether run -o FILE SCRIPT`"
        )
    if not start.endswith(b"\n") or not number.isdigit():
        raise Damage("its first line is cut off")
    if int(number) > VERSION:
        raise RecordingError(
            f"{path} was written by a newer tether (format {int(number)}, this one reads up to "
            f"{VERSION}); upgrade with `pip install --upgrade tether`"
        )
    if int(number) < 1:
        raise Damage("there is no such format")


def _check_digest(stream: BinaryIO, path: str | os.PathLike[str]) -> None:
    """Compare the check sum at the end with the stream before it; leave `stream` at its start."""
    start = stream.tell()
    left = os.fstat(stream.fileno()).st_size - start - _DIGEST
    if left < 0:
        raise Damage("it is cut off")
    digest = hashlib.sha256()
    while left > 0 and (block := stream.read(min(left, _BLOCK))):
        digest.update(block)
        left -= len(block)
    if stream.read() != digest.digest():
        raise RecordingError(
            f"{path} is damaged or cut off (its check sum does not fit); record or copy it again"
        )
    stream.seek(start)


def _unpacked_lines(
    stream: BinaryIO, path: str | os.PathLike[str], max_text: int
) -> Iterator[bytes]:
    """Yield the lines of JSON one by one, at most `max_text` bytes of them in all."""
    unpacker = zlib.decompressobj()
    total, parts, length = 0, list[bytes](), 0
    packed = b""
    while not unpacker.eof:
        packed = unpacker.unconsumed_tail or stream.read(_BLOCK)
        block = unpacker.decompress(packed, _CHUNK)
        if not packed and not block:
            raise Damage("its data ends too early")
        total += len(block)
        if total > max_text:
            raise RecordingError(
                f"{path} unpacks to more than {max_text >> 20} MiB; if you trust it, open it with "
                "tether.store.file.load(path, max_text=...), or record fewer events with --limit"
            )
        *ended, rest = block.split(b"\n")
        for end in ended:
            yield b"".join((*parts, end))
            parts, length = [], 0
        parts.append(rest)
        length += len(rest)
        if length > MAX_LINE:
            raise Damage("a line of it is too long")
    if any(parts):
        raise Damage("its last line has no end")
    if len(unpacker.unused_data) + len(stream.read(_DIGEST + 1)) != _DIGEST:
        raise Damage("something follows its data")


def _read(lines: Iterator[bytes], path: str | os.PathLike[str]) -> Trace:
    header = parse(next(lines, b"null"))
    if type(header) is not dict or not {"fields", "trace"} <= header.keys():
        raise Damage("its header is missing")
    fields, scalars = header["fields"], header["trace"]
    if type(fields) is not dict or type(scalars) is not dict:
        raise Damage("its header is wrong")
    if newer := fields.keys() - TABLES.keys():
        raise RecordingError(
            f"{path} was written by a newer tether (it has a table {min(newer)[:40]}); "
            "upgrade with `pip install --upgrade tether`"
        )
    layouts = {name: layout_of(name, row, path) for name, row in fields.items()}
    trace = _start(scalars)
    operands: list[Operand] = []
    for line in lines:
        name, rows = pair_of(parse(line))
        if name == "sources":
            for row in list_of(rows):
                file, text = pair_of(row)
                trace.sources[string(file)] = string(text)
        elif type(name) is str and name in layouts:
            _add(trace, name, list_of(rows), layouts[name], operands)
        else:
            raise Damage("it has a table that its header does not name")
    trace.check()
    return trace


def _start(scalars: dict[str, object]) -> Trace:
    hints = get_type_hints(Trace)
    return Trace(**{name: decoder(hints[name])(scalars.get(name)) for name in SCALARS})


def _add(trace: Trace, name: str, rows: list[Any], layout: Layout, operands: list[Operand]) -> None:
    """Append the rows of one chunk to their table."""
    for row in rows:
        key = integer(row.pop(0)) if name in KEYED and type(row) is list and row else 0
        fact = fact_of(row, layout, name)
        if name == "operands":
            operands.append(fact)
        elif name == "events":
            trace.events.append(_with_operands(fact, operands))
        elif name in KEYED:
            getattr(trace, name)[key] = fact
        else:
            getattr(trace, name).append(fact)


def _with_operands(event: Any, operands: list[Operand]) -> Event:
    """Return the event with operand numbers replaced by the operands."""
    values = list(event)
    values[0] = sys.intern(values[0])  # a few dozen operations, a million events
    for place in _OPERAND_PLACES:
        numbers = values[place]
        if numbers and not 0 <= min(numbers) <= max(numbers) < len(operands):
            raise Damage("an event names an operand that is not there")
        values[place] = tuple([operands[number] for number in numbers])
    return Event._make(values)
