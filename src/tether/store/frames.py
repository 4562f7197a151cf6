"""The file of a recording: a line that says what it is, then frames, each whole or not there.

A frame is a length, a check sum and a packed batch of facts that fits what came before: a line of
JSON (what is new in the small tables) and blocks of numbers (events, operands, lives), as columns
of differences, which pack well. A program that is being recorded adds a frame about once a second,
so a kill leaves all but the last; a recording that has ended has all its facts in a few. The last
frame says how the program ended; without it the recording says that it is partial.

Nothing in a file is executed and nothing is believed: a recording may come from a stranger. Every
value is checked for its type, unpacking stops at a bound, and `store.check` has the last word.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO

import numpy as np

import tether
from tether.facts import Gap, Trace
from tether.store.columns import HEAD, OPERAND, PLACES, STORAGE, TENSOR, Events, Names, Operands
from tether.store.fields import check
from tether.store.layout import (
    FORMER_SCALARS,
    SCALARS,
    TABLES,
    Damage,
    Layout,
    RecordingError,
    decoder,
    fact_of,
    fields_of,
    hints_of,
    integer,
    layout_of,
    list_of,
    newer,
    pair_of,
    parse,
    string,
    table_of,
)
from tether.store.lives import StorageLives, TensorLives
from tether.store.numbers import Numbers, in_order, narrowest

MAGIC = b"tether recording "
VERSION = 2
"""Of the format. Added fields and tables do not raise it; a changed meaning does."""

MAX_BYTES = 4 << 30
"""Bytes that a recording may unpack to: some thirty million events."""

BLOCKS: dict[str, tuple[int, np.dtype[Any]]] = {
    "events": (len(HEAD), np.dtype("<i4")),
    "rows": (1, np.dtype("<i4")),
    "operands": (len(OPERAND), np.dtype("<i8")),
    "tensors": (len(TENSOR), np.dtype("<i8")),
    "storages": (len(STORAGE), np.dtype("<i8")),
}
"""The blocks of numbers: how many make a line, and their type. Of lives the last line counts."""

_FRAME = struct.Struct("<II")  # length, CRC-32
_MAX_FRAME = 1 << 30
_PIECE = 1 << 20
_ENCODE = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


# -- writing ---------------------------------------------------------------------------------------


def first_line() -> bytes:
    """Return how a recording begins."""
    return MAGIC + b"%d\n" % VERSION


def header(trace: Trace) -> dict[str, Any]:
    """Return what the first frame says of the program and of the tables."""
    return {
        "tether": tether.__version__,
        "fields": {name: fields_of(name) for name in TABLES},
        "trace": {name: getattr(trace, name) for name in SCALARS},
    }


def frame(
    small: Mapping[str, Any], blocks: Mapping[str, Sequence[Numbers]], level: int = 1
) -> bytes:
    """Return one batch as bytes: the small tables, and the blocks (columns) that are not empty."""
    packer = zlib.compressobj(level)
    present = {name: columns for name, columns in blocks.items() if len(columns[0])}
    lines = {name: len(columns[0]) for name, columns in present.items()}
    text = _ENCODE({**small, "lines": lines}).encode("utf-8", "surrogatepass")
    parts = [packer.compress(text + b"\n")]
    for name, columns in present.items():
        parts += _packed(columns, name, packer)
    payload = b"".join([*parts, packer.flush()])
    return _FRAME.pack(len(payload), zlib.crc32(payload)) + payload


def _packed(columns: Sequence[Numbers], name: str, packer: Any) -> Iterator[bytes]:
    """Pack a block column by column, each number as the difference to the one above it."""
    _, kind = BLOCKS[name]
    with np.errstate(over="ignore"):
        for column in columns:
            yield packer.compress(np.diff(column.astype(kind), prepend=kind.type(0)).tobytes())


# -- reading ---------------------------------------------------------------------------------------


def read(stream: BinaryIO, path: str | os.PathLike[str], most: int = MAX_BYTES) -> list[Trace]:
    """Read the recordings of a file, one for each process; `most` bounds what they unpack to.

    One follows the other: a file of several is their files put end to end. What is written while
    it is read is the rest of a batch, not the beginning of another recording.

    Raises `RecordingError` for one of another format or too large, `Damage`, `ValueError` or
    `zlib.error` for one that is damaged other than by being cut off.
    """
    traces: list[Trace] = []
    end = stream.seek(0, os.SEEK_END)
    stream.seek(0)
    while True:
        _check_first_line(stream.readline(64), path)
        found = _Reader(path)
        for payload in _frames(stream):
            found.add(_Unpacker(payload, path, most - found.bytes))
        most -= found.bytes
        traces.append(found.trace())
        if stream.tell() >= end:
            return traces


def _check_first_line(line: bytes, path: str | os.PathLike[str]) -> None:
    if line and MAGIC.startswith(line):
        raise Damage("it is cut off")
    if not line.startswith(MAGIC):
        raise RecordingError(
            f"{path} is not a tether recording; make one with `tether run -o FILE SCRIPT`"
        )
    number = line[len(MAGIC) : -1]
    if not line.endswith(b"\n") or not number.isdigit():
        raise Damage("its first line is cut off")
    if int(number) > VERSION:
        raise newer(path, f"format {int(number)}, this one reads up to {VERSION}")
    if int(number) < VERSION:
        raise RecordingError(f"{path} was written by an older tether; record the program again")


def _frames(stream: BinaryIO) -> Iterator[bytes]:
    while len(head := stream.read(_FRAME.size)) == _FRAME.size:
        if MAGIC.startswith(head):  # as the length of a frame it would be too long
            stream.seek(-_FRAME.size, os.SEEK_CUR)
            return
        length, total = _FRAME.unpack(head)
        if length > _MAX_FRAME:
            raise Damage("a part of it is too long")
        payload = stream.read(length)
        if len(payload) < length:
            return  # the kill came while it was written
        if zlib.crc32(payload) != total:
            raise Damage("a check sum does not fit")
        yield payload


class _Unpacker:
    """Unpacks one frame, up to a bound."""

    def __init__(self, payload: bytes, path: str | os.PathLike[str], most: int) -> None:
        self._packed = payload
        self._unpacker = zlib.decompressobj()
        self._path = path
        self._left = most
        self._waiting = bytearray()
        self.bytes = 0

    def line(self) -> bytes:
        """Return the line of JSON with which the frame begins."""
        at = 0
        while (end := self._waiting.find(b"\n", at)) < 0:
            at = len(self._waiting)
            if not self._more():
                raise Damage("a part of it has no tables")
        found = bytes(self._waiting[:end])
        del self._waiting[: end + 1]
        return found

    def take(self, size: int) -> bytes:
        """Return so many bytes."""
        while len(self._waiting) < size:
            if not self._more():
                raise Damage("a block of it is cut off")
        found = bytes(self._waiting[:size])
        del self._waiting[:size]
        return found

    def end(self) -> None:
        """Make sure that nothing is left."""
        if self._waiting or self._more() or not self._unpacker.eof or self._unpacker.unused_data:
            raise Damage("something follows its numbers")

    def _more(self) -> bool:
        if self._unpacker.eof:
            return False
        block = self._unpacker.decompress(self._packed, _PIECE)
        self._packed = self._unpacker.unconsumed_tail
        self.bytes += len(block)
        if self.bytes > self._left:
            raise RecordingError(
                f"{self._path} unpacks to more than this tether reads at once;"
                " record fewer calls with --limit or --steps"
            )
        self._waiting += block
        return bool(block)


class _Reader:
    """Puts the frames of one recording together."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = path
        self._trace = Trace(outcome="unfinished")
        self._layouts: dict[str, Layout] = {}
        self._names = Names()
        self._dictionaries: list[Any] = []
        self._blocks = {
            name: [_Column() for _ in range(width)] for name, (width, _) in BLOCKS.items()
        }
        self.bytes = 0

    def add(self, unpacker: _Unpacker) -> None:
        """Take over one frame."""
        small = table_of(parse(unpacker.line()))
        lines = table_of(small.get("lines"))
        if lines.keys() - BLOCKS.keys():
            raise newer(self._path, "it has numbers that this one does not know")
        for name, count in lines.items():
            for column, some in zip(
                self._blocks[name], _columns(unpacker, name, integer(count)), strict=True
            ):
                column.add(some)
        unpacker.end()
        self.bytes += unpacker.bytes
        if "fields" in small:
            self._begin(table_of(small["fields"]))
        if not self._layouts:
            raise Damage("its beginning is missing")
        self._add_names(small)
        self._add_tables(small)

    def _begin(self, fields: dict[str, Any]) -> None:
        if unknown := fields.keys() - TABLES.keys():
            raise newer(self._path, f"it has a table {min(unknown)[:40]}")
        self._layouts = {name: layout_of(name, row, self._path) for name, row in fields.items()}

    def _add_names(self, small: dict[str, Any]) -> None:
        names = self._names
        for number, text in map(pair_of, list_of(small.get("strings", []))):
            names.strings[integer(number)] = string(text)
        for number, text in map(pair_of, list_of(small.get("words", []))):
            names.words[integer(number)] = string(text)
        for number, values in map(pair_of, list_of(small.get("tuples", []))):
            names.tuples[integer(number)] = tuple(map(integer, list_of(values)))
        for file, text in map(pair_of, list_of(small.get("sources", []))):
            self._trace.sources[string(file)] = string(text)
        hints = hints_of(Trace)
        for name, value in table_of(small.get("trace", {})).items():
            if name in SCALARS:
                setattr(self._trace, name, decoder(hints[name])(value))
            elif name not in FORMER_SCALARS:
                raise Damage("its header is wrong")

    def _add_tables(self, small: dict[str, Any]) -> None:
        """Add the new rows of each table, put changed ones in their places, replace whole ones."""
        self._dictionaries += list_of(small.get("dictionaries", []))
        for name, rows in table_of(small.get("whole", {})).items():
            table = self._table(name)
            table[:] = self._facts(name, list_of(rows))
        for name, rows in table_of(small.get("new", {})).items():
            self._table(name).extend(self._facts(name, list_of(rows)))
        for name, rows in table_of(small.get("changed", {})).items():
            table = self._table(name)
            pairs = [pair_of(row) for row in list_of(rows)]
            facts = self._facts(name, [row for _, row in pairs])
            for (number, _), fact in zip(pairs, facts, strict=True):
                if not 0 <= integer(number) < len(table):
                    raise Damage(f"a row of {name} is missing")
                table[number] = fact

    def _table(self, name: str) -> list[Any]:
        """Return the rows of a table so far: a file may name anything else that a trace has."""
        if name not in self._layouts:
            raise Damage("it has a table that its header does not name")
        table: list[Any] = getattr(self._trace, name)
        return table

    def _facts(self, name: str, rows: list[Any]) -> list[Any]:
        layout = self._layouts[name]
        return [fact_of(row, layout, name, self._dictionaries) for row in rows]

    def trace(self) -> Trace:
        """Return the facts. Raises `Damage` or `ValueError` where they do not fit together."""
        if not self._layouts:
            raise Damage("it ends before anything was written to it")
        trace, names = self._trace, self._names
        blocks = {name: [one.whole() for one in block] for name, block in self._blocks.items()}
        self._blocks.clear()
        _check_names(blocks, names)
        operands = Operands(blocks.pop("operands"), names)
        try:
            rows = operands.positions(*blocks["rows"])
        except KeyError:
            raise Damage("an event names an operand that is not there") from None
        trace.events = events = Events(blocks.pop("events"), rows, operands, names)
        cut = any((events.column(place) < 0).any() for place in PLACES)
        if events.starts[-1] != len(rows) or cut:
            raise Damage("an event is cut off")
        trace.tensors = TensorLives(_last(_table(blocks["tensors"])), names)
        trace.storages = StorageLives(_last(_table(blocks["storages"])), names)
        if trace.outcome == "unfinished" and Gap("killed") not in trace.gaps:
            trace.gaps.insert(0, Gap("killed"))
        check(trace)
        return trace


class _Column:
    """A column that grows where it is: pieces beside it would take its memory once more."""

    def __init__(self) -> None:
        self._numbers: Numbers = np.empty(0, np.int8)
        self._count = 0

    def add(self, some: Numbers) -> None:
        """Append numbers, in as many bits as they or those before need."""
        begin, self._count = self._count, self._count + len(some)
        kind = np.promote_types(self._numbers.dtype, some.dtype)
        self._numbers = self._numbers.astype(kind, copy=False)
        if self._count > len(self._numbers):
            self._numbers.resize(self._count + (self._count >> 3), refcheck=False)
        self._numbers[begin : self._count] = some

    def whole(self) -> Numbers:
        """Return all of it."""
        self._numbers.resize(self._count, refcheck=False)
        return self._numbers


def _columns(unpacker: _Unpacker, name: str, count: int) -> Iterator[Numbers]:
    """Yield the columns of so many lines of a block, in few bits."""
    width, kind = BLOCKS[name]
    if not 0 <= count <= _MAX_FRAME:
        raise Damage(f"its {name} have the wrong length")
    with np.errstate(over="ignore"):
        for _ in range(width):
            steps = np.frombuffer(unpacker.take(count * kind.itemsize), kind)
            yield narrowest(np.cumsum(steps, dtype=kind))


def _table(columns: list[Numbers]) -> Numbers:
    """Return columns as a table; each is let go as it is copied."""
    table = np.empty((len(columns[0]), len(columns)), np.result_type(np.int32, *columns))
    for place in range(len(columns)):
        table[:, place] = columns.pop(0)
    return table


def _last(table: Numbers) -> Numbers:
    """Return the last line of each serial number: a life is written anew when it has ended."""
    ordered = in_order(table)
    last = np.ones(len(ordered), bool)
    last[:-1] = ordered[1:, 0] != ordered[:-1, 0]
    return ordered if last.all() else ordered[last]


def _check_names(blocks: Mapping[str, list[Numbers]], names: Names) -> None:
    """Make sure that every number that stands for something does."""
    events, operands = blocks["events"], blocks["operands"]
    strings = [events[HEAD.index(name)] for name in ("operation", "detail")]
    words = [operands[7] >> 2, blocks["tensors"][1], blocks["storages"][2]]
    for columns, known in (
        (strings, names.strings),
        (operands[5:7], names.tuples),
        (words, names.words),
    ):
        for column in columns:
            if not set(np.unique(column).tolist()) <= known.keys():
                raise Damage("a number in it means nothing")


def pairs(named: Mapping[int, Any]) -> Iterable[tuple[int, Any]]:
    """Return what numbers stand for as a frame writes it."""
    return [(number, value) for number, value in named.items()]
