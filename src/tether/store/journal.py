"""A recording that grows while its program runs, so that a kill leaves all but the last second.

The file is one line of text and then frames, each a length, a check sum and a batch of facts that
fits what came before. A batch is a line of JSON (what is new in the small tables) and the record's
own numbers (events, snapshots, lives) as the recorder holds them: appending them takes a hundredth
of what encoding them would, and turning them into facts waits for the reader.

A frame that the kill cut off is left out, and everything in the others points only backwards or
into its own frame. As with any recording nothing in a file is believed: every number is checked.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, BinaryIO, get_type_hints

from tether.facts import (
    Event,
    Gap,
    Gradients,
    Operand,
    Span,
    StorageFact,
    TensorFact,
    Trace,
)
from tether.store.layout import (
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

MAGIC = b"tether journal "
VERSION = 1
MAX_BYTES = 2 << 30
"""Bytes of a journal that are read: some ten million events."""

PARTIAL = (
    "this recording ends before its program did, which was killed or is still running: the last "
    "second of calls is missing"
)

HEAD = 10
"""Numbers of an event before its rows: operation, site, mode, span, inner, thread, note, and how
many rows it read, returned and wrote."""

ADDED = ("sites", "names", "optimizers", "bridges", "unseen", "raised", "attached")
"""Tables whose rows are only ever added."""

HEADER = ("program", "folder", "torch", "python", "dropped")
"""What the first frame says of the recording, beside the fields of each table."""

NUMBERS = {"events": ("i", 1), "rows": ("q", 8), "tensors": ("q", 4), "dead_tensors": ("q", 4),
           "storages": ("q", 7), "dead_storages": ("q", 7)}  # fmt: skip
"""The blocks of numbers in a frame, in this order: the type of a number, numbers in a row.

``rows``: row, tensor, storage, version, offset, shape, strides, dtype and flags. ``tensors``:
serial, kind, born, died. ``storages``: serial, bytes, device, born, freed, memory, start.
"""

_FRAME = struct.Struct("<II")  # length, CRC-32
_MAX_FRAME = 1 << 30
_ENCODE = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def first_line() -> bytes:
    """Return how a journal begins."""
    return MAGIC + b"%d\n" % VERSION


def frame(small: dict[str, Any], blocks: Sequence[bytes]) -> bytes:
    """Return one batch as bytes: the small tables, and the blocks of `NUMBERS` in their order."""
    small["lengths"] = [len(block) for block in blocks]
    line = _ENCODE(small).encode("utf-8", "surrogatepass") + b"\n"
    payload = b"".join((line, *blocks))
    return _FRAME.pack(len(payload), zlib.crc32(payload)) + payload


# ------------------------------------------------------------------------------------------ reading


def read(stream: BinaryIO, path: str | os.PathLike[str]) -> Trace:
    """Read what a journal holds; `stream` stands at its beginning.

    Raises `Damage` or `ValueError` for one that is damaged other than by being cut off, and
    `RecordingError` for one of a newer tether or one that is too large.
    """
    version = stream.readline(64).removeprefix(MAGIC).rstrip(b"\n")
    if not version.isdigit() or int(version) < 1:
        raise Damage("its first line is wrong")
    if int(version) > VERSION:
        raise RecordingError(
            f"{path} was written by a newer tether; upgrade with `pip install --upgrade tether`"
        )
    if os.fstat(stream.fileno()).st_size > MAX_BYTES:
        raise RecordingError(f"{path} is larger than {MAX_BYTES >> 30} GiB: record with --limit")
    found = _Reader(path)
    for payload in _frames(stream):
        found.add(payload)
    return found.trace()


def _frames(stream: BinaryIO) -> Iterator[bytes]:
    while len(head := stream.read(_FRAME.size)) == _FRAME.size:
        length, check = _FRAME.unpack(head)
        if length > _MAX_FRAME:
            raise Damage("a part of it is too long")
        payload = stream.read(length)
        if len(payload) < length:
            return  # the kill came while it was written
        if zlib.crc32(payload) != check:
            raise Damage("a check sum does not fit")
        yield payload


class _Reader:
    """Puts the frames of one journal together."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = path
        self._trace = Trace(outcome="unfinished")
        self._layouts: dict[str, Layout] = {}
        self._strings = {0: ""}
        self._tuples: dict[int, tuple[int, ...]] = {}
        self._names: dict[int, str] = {}
        self._statuses: list[dict[int, Any]] = []
        self._spans: dict[int, Span] = {}
        self._gaps: list[Gap] = []
        self._numbers: dict[str, array[int]] = {
            name: array(kind) for name, (kind, _) in NUMBERS.items()
        }

    # -- one frame at a time ---------------------------------------------------------------------

    def add(self, payload: bytes) -> None:
        """Take over one frame."""
        end = payload.find(b"\n")
        small = parse(payload[: max(end, 0)])
        if type(small) is not dict:
            raise Damage("a part of it has no tables")
        at = end + 1
        lengths = list_of(small.get("lengths"))
        if len(lengths) != len(NUMBERS):
            raise Damage("a part of it has the wrong blocks")
        for (name, (kind, width)), length in zip(NUMBERS.items(), lengths, strict=True):
            size = (4 if kind == "i" else 8) * width
            if not 0 <= integer(length) <= len(payload) - at or length % size:
                raise Damage(f"its {name} have the wrong length")
            self._numbers[name].frombytes(payload[at : at + length])
            at += length
        if at != len(payload):
            raise Damage("something follows its numbers")
        self._add_small(small)

    def _add_small(self, small: dict[str, Any]) -> None:
        if "fields" in small:
            self._begin(small)
        if not self._layouts:
            raise Damage("its beginning is missing")
        for number, text in map(pair_of, list_of(small.get("strings", []))):
            self._strings[integer(number)] = string(text)
        for number, text in map(pair_of, list_of(small.get("kinds", []))):
            self._names[integer(number)] = string(text)
        for number, values in map(pair_of, list_of(small.get("tuples", []))):
            self._tuples[integer(number)] = tuple(map(integer, list_of(values)))
        for file, text in map(pair_of, list_of(small.get("sources", []))):
            self._trace.sources[string(file)] = string(text)
        for name in ADDED:
            rows = list_of(small.get(name, []))
            getattr(self._trace, name).extend(
                [fact_of(row, self._layouts[name], name) for row in rows]
            )
        for number, row in map(pair_of, list_of(small.get("spans", []))):
            self._spans[integer(number)] = fact_of(row, self._layouts["spans"], "spans")
        if "gaps" in small:  # all of them each time: they are counted
            self._gaps = [
                fact_of(row, self._layouts["gaps"], "gaps") for row in list_of(small["gaps"])
            ]
        self._add_gradients(small)

    def _begin(self, small: dict[str, Any]) -> None:
        """Read what the first frame says of the program and of the tables."""
        trace, hints = self._trace, get_type_hints(Trace)
        for name in HEADER:
            setattr(trace, name, decoder(hints[name])(small.get(name)))
        if type(small["fields"]) is not dict or small["fields"].keys() - TABLES.keys():
            raise Damage("it has a table that is not known")
        self._layouts = {
            name: layout_of(name, small["fields"].get(name), self._path)
            for name in (*ADDED, "spans", "gaps", "gradients")
        }

    def _add_gradients(self, small: dict[str, Any]) -> None:
        """Add gradients; equal tables of them, one a step, stand in the file once."""
        layout = self._layouts["gradients"]
        read = decoder(get_type_hints(Gradients)["status"])
        self._statuses += [read(table) for table in list_of(small.get("statuses", []))]
        for row in list_of(small.get("gradients", [])):
            number = integer(list_of(row)[-1] if row else None)
            if not 0 <= number < len(self._statuses):
                raise Damage("a gradient names a table that is not there")
            fact = fact_of([*row[:-1], [[], []]], layout, "gradients")
            self._trace.gradients.append(fact._replace(status=self._statuses[number]))

    # -- all of it -------------------------------------------------------------------------------

    def trace(self) -> Trace:
        """Return the facts. Raises `Damage` or `ValueError` where they do not fit together."""
        trace = self._trace
        if not self._layouts:
            raise Damage("it ends before anything was written to it")
        try:
            trace.events = self._events(self._operands())
            self._lives()
        except (KeyError, IndexError):
            raise Damage("a number in it means nothing") from None
        if list(self._spans) != list(range(len(self._spans))):
            raise Damage("a span of it is missing")
        trace.spans = list(self._spans.values())
        trace.gaps = [Gap(PARTIAL), *self._gaps]
        trace.check()
        return trace

    def _operands(self) -> dict[int, Operand]:
        tuples, names = self._tuples, self._names
        return {
            row: operand(values, tuples, names)
            for row, *values in _rows(self._numbers["rows"], NUMBERS["rows"][1])
        }

    def _events(self, operands: dict[int, Operand]) -> list[Event]:
        return list(events(memoryview(self._numbers["events"]), operands, self._strings))

    def _lives(self) -> None:
        """Fill in the lives of tensors and storages, those that ended over those that had not."""
        trace, names, numbers = self._trace, self._names, self._numbers
        for name in ("tensors", "dead_tensors"):
            for serial, kind, born, died in _rows(numbers[name], NUMBERS[name][1]):
                trace.tensors[serial] = TensorFact(names[kind], born, died)
        for name in ("storages", "dead_storages"):
            for serial, size, device, *rest in _rows(numbers[name], NUMBERS[name][1]):
                trace.storages[serial] = StorageFact(size, names[device], *rest)


def _rows(numbers: array[int], width: int) -> Iterator[tuple[int, ...]]:
    return zip(*[iter(numbers)] * width, strict=True)


# -- the recorder's own numbers, as facts ----------------------------------------------------------


def operand(
    row: Sequence[int], tuples: Mapping[int, tuple[int, ...]], names: Mapping[int, str]
) -> Operand:
    """Return a snapshot: the seven numbers of its row after the first, as a fact."""
    tensor, storage, version, offset, shape, strides, rest = row
    return Operand(
        tensor, storage, version, offset, tuples[shape], tuples[strides], names[rest >> 2],
        bool(rest & 2), bool(rest & 1),
    )  # fmt: skip


def events(
    numbers: memoryview[int], operands: Mapping[int, Operand], strings: Mapping[int, str]
) -> Iterator[Event]:
    """Return the events in the recorder's numbers, 32 bits each.

    Raises `Damage` where they do not add up, `KeyError` for a row or a string that is not there.
    """
    at, end = 0, len(numbers)
    while at < end:
        if end - at < HEAD:
            raise Damage("an event is cut off")
        operation, site, mode, span, inner, thread, note, a, b, c = numbers[at : at + HEAD]
        first = at + HEAD
        at = first + a + b + c
        if min(a, b, c) < 0 or at > end:
            raise Damage("an event is cut off")
        rows = [operands[row] for row in numbers[first:at]]
        yield Event(
            strings[operation], site, tuple(rows[:a]), tuple(rows[a : a + b]),
            tuple(rows[a + b :]), mode, span, inner, thread, strings[note],
        )  # fmt: skip
