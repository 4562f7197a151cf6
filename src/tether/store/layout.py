"""The tables of a recording, and the reading of their rows from a stranger's file.

Which tables there are and what their rows hold is read off the annotations of `facts.Trace`. Rows
are lists of JSON values in the order that a file's header gives, so a file written before a field
was added still opens: the field takes its default. Every value is checked for its type.
"""

from __future__ import annotations

import enum
import functools
import json
import os
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import is_dataclass
from typing import (
    Any,
    Literal,
    NamedTuple,
    NewType,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from tether.facts import Trace

MAX_SOURCE = 8 << 20  # characters of one source file
_BITS = 1000  # of a whole number: a float holds up to 1023
Value = TypeVar("Value")


class RecordingError(Exception):
    """A recording cannot be opened or written. The message is one line: what, and what to do."""


class Damage(Exception):  # noqa: N818 -- an error only within the package
    """Something in the file is not what the format says; the text names it."""


# -- the tables ------------------------------------------------------------------------------------


def _tables() -> dict[str, type]:
    found = {}
    for name, hint in get_type_hints(Trace).items():
        arguments = get_args(hint)
        if get_origin(hint) is list and hasattr(arguments[0], "_fields"):
            found[name] = arguments[0]
    return found


TABLES: dict[str, type] = _tables()
"""Every table that is a list of facts, and their class. Beside them lie the columns of numbers
(`store.columns`): events with their operands, the lives of tensors and storages."""

SCALARS = (
    "program", "folder", "torch", "outcome", "process", "dropped", "kept", "concluded"
)  # fmt: skip

FORMER_SCALARS = ("python",)
"""What older files have as well, and nothing asks for."""


def fields_of(name: str) -> list[str]:
    """Return the fields of a table's rows, in order."""
    return list(TABLES[name]._fields)  # type: ignore[attr-defined]


# -- values from a stranger ------------------------------------------------------------------------


def integer(value: object) -> int:
    """Return `value`, a whole number of 64 bits; raise `Damage` for anything else."""
    if type(value) is not int or not -(1 << 63) <= value < 1 << 63:
        raise Damage("a whole number was expected")
    return value


def whole(value: object) -> int:
    """Return `value`, a whole number that a float can hold; raise `Damage` for anything else.

    A count comes from a program, whose numbers Python does not bound: what was saved is read.
    """
    if type(value) is not int or value.bit_length() > _BITS:
        raise Damage("a whole number was expected")
    return value


def _real(value: object) -> float:
    if type(value) not in (int, float):
        raise Damage("a number was expected")
    return float(value)  # type: ignore[arg-type]


def _exactly(kind: type[Value], what: str) -> Callable[[object], Value]:
    """Return a function that returns a value of one type, and raises `Damage` for any other."""

    def checked(value: object) -> Value:
        if type(value) is not kind:
            raise Damage(f"{what} was expected")
        return value

    return checked


_boolean = _exactly(bool, "true or false")
string = _exactly(str, "text")
list_of: Callable[[object], list[Any]] = _exactly(list, "a list")
table_of: Callable[[object], dict[str, Any]] = _exactly(dict, "a table")


def pair_of(value: object) -> tuple[Any, Any]:
    """Return the two items of `value`; raise `Damage` for anything else."""
    pair = list_of(value)
    if len(pair) != 2:
        raise Damage("a pair was expected")
    return pair[0], pair[1]


def _choice(options: tuple[str, ...]) -> Callable[[object], str]:
    known = {option: option for option in options}

    def decode(value: object) -> str:
        if type(value) is not str or value not in known:
            raise Damage(f"one of {', '.join(options)} was expected")
        return known[value]

    return decode


def _numbered(hint: Any) -> Callable[[object], enum.IntEnum] | None:
    """Return a function from a number to one of an enumeration; None for another annotation."""
    if not (isinstance(hint, type) and issubclass(hint, enum.IntEnum)):
        return None
    known = {int(one): one for one in hint}

    def decode(value: object) -> enum.IntEnum:
        if type(value) is not int or value not in known:
            raise Damage(f"one of {len(known)} numbers was expected")
        return known[value]

    return decode


_PLAIN: dict[Any, Callable[[object], Any]] = {int: whole, bool: _boolean, float: _real}


def _plain(hint: Any) -> Callable[[object], Any] | None:
    """Return how a number or a truth is read; None for an annotation of another kind."""
    return integer if isinstance(hint, NewType) else _PLAIN.get(hint) or _numbered(hint)


@functools.cache
def decoder(hint: Any, text: Callable[[object], str] = string) -> Callable[[object], Any]:
    """Return a function from a JSON value to a value of the annotation `hint`.

    `text` reads what is a text.
    """
    if hint is str:
        return text
    plain = _plain(hint)
    if plain is not None:
        return plain
    if hasattr(hint, "_fields") or is_dataclass(hint):
        return _fact_decoder(hint, text)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        inner = decoder(next(one for one in arguments if one is not type(None)), text)
        return lambda value: None if value is None else inner(value)
    if origin is Literal:
        return _choice(arguments)
    if origin in (tuple, list):
        item, made = decoder(arguments[0], text), origin
        return lambda value: made(map(item, list_of(value)))
    if origin is dict:  # as two lists, keys and values
        key, item = map(decoder, arguments)

        def decode(value: object) -> dict[Any, Any]:
            keys, values = pair_of(value)
            if len(list_of(keys)) != len(list_of(values)):
                raise Damage("two lists of one length were expected")
            return dict(zip(map(key, keys), map(item, values), strict=True))

        return decode
    raise TypeError(f"no way to store a {hint!r}")


def _fact_decoder(kind: Any, text: Callable[[object], str]) -> Callable[[object], Any]:
    """Return a function from a list of JSON values to a fact that is part of another."""
    decoders = [decoder(hint, text) for hint in hints_of(kind).values()]

    def decode(value: object) -> Any:
        row = list_of(value)
        if len(row) != len(decoders):
            raise Damage(f"{len(decoders)} values were expected")
        return kind(*[decode_one(one) for decode_one, one in zip(decoders, row, strict=True)])

    return decode


def parse(line: bytes) -> Any:
    """Return a line of JSON as values; raises `ValueError` or `Damage`."""
    return json.loads(line.decode("utf-8", "surrogatepass"), parse_constant=_no_constant)


def _no_constant(name: str) -> None:
    raise Damage(f"{name} is no number here")


hints_of = functools.cache(get_type_hints)
"""The annotations of a class, which Python works out anew on each question."""


# -- rows ------------------------------------------------------------------------------------------


class Layout(NamedTuple):
    """How the rows of one table are written in this file."""

    decoders: tuple[Callable[[object], Any], ...]  # in the order of the row
    shared: tuple[int, ...]  # places of the row that name a dictionary by its number
    build: Callable[[list[Any]], Any]  # from decoded values to the fact


def layout_of(name: str, fields: object, path: str | os.PathLike[str]) -> Layout:
    """Return how the rows of table `name` are read, written with these `fields`.

    Raises `RecordingError` for a field of a newer tether, `Damage` for a list that cannot be.
    """
    kind: Any = TABLES[name]
    hints = hints_of(kind)
    written = [string(field) for field in list_of(fields)]
    unknown = [field for field in written if field not in hints]
    if unknown:
        told = " ".join(unknown[0].split())[:40]  # a damaged name may have a line break in it
        raise newer(path, f"it has {name}.{told}, which this one does not know")
    required = set(hints) - set(kind._field_defaults)
    if len(set(written)) != len(written) or not required <= set(written):
        raise Damage(f"the fields of {name} are wrong")
    decoders = tuple(decoder(hints[field]) for field in written)
    shared = tuple(n for n, field in enumerate(written) if get_origin(hints[field]) is dict)
    if written == list(kind._fields):
        return Layout(decoders, shared, kind._make)
    return Layout(decoders, shared, lambda row: kind(**dict(zip(written, row, strict=True))))


def newer(path: str | os.PathLike[str], why: str) -> RecordingError:
    """Return the error for a file that only a later tether can read."""
    return RecordingError(
        f"{path} was written by a newer tether ({why}); upgrade with `pip install --upgrade tether`"
    )


def fact_of(row: Any, layout: Layout, name: str, dictionaries: Sequence[Any] = ()) -> Any:
    """Return the fact that one row of table `name` tells. Raises `Damage`.

    A dictionary in it is named by its place in `dictionaries`: thousands of rows share a few.
    """
    if type(row) is not list or len(row) != len(layout.decoders):
        raise Damage(f"a row of {name} has the wrong length")
    values = list(row)
    for place in layout.shared:
        number = integer(values[place])
        if not 0 <= number < len(dictionaries):
            raise Damage(f"a row of {name} names a table that is not there")
        values[place] = dictionaries[number]
    return layout.build([read(value) for read, value in zip(layout.decoders, values, strict=True)])


class Rows:
    """Turns facts into rows; dictionaries that many facts share are written once."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Any, int]] = {}  # id -> the dictionary, so held, its number
        self.new: list[list[list[Any]]] = []  # dictionaries not written yet, as keys and values

    def row(self, fact: Any) -> list[Any]:
        """Return the fields of a fact as JSON values."""
        return [self._number(value) if isinstance(value, Mapping) else value for value in fact]

    def _number(self, value: Mapping[Any, Any]) -> int:
        known = self._known.get(id(value))
        if known is None:
            known = self._known[id(value)] = (value, len(self._known))
            self.new.append([list(value), list(value.values())])
        return known[1]

    def take_new(self) -> list[list[list[Any]]]:
        """Return the dictionaries that no file has yet."""
        found, self.new = self.new, []
        return found
