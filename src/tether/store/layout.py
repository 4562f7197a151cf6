"""The tables of a recording, and the reading of their rows from a stranger's file.

Rows are lists of JSON values in the order that a file's header gives, so a file written before a
field was added still opens: the field takes its default. Every value is checked for its type.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

from tether import facts
from tether.facts import Event, Operand

MAX_SOURCE = 8 << 20  # characters of one source file; escaped at worst sixfold, it fits a line


class RecordingError(Exception):
    """A recording cannot be opened or written. The message is one line: what, and what to do."""


class Damage(Exception):  # noqa: N818 -- an error only within the package
    """Something in the file is not what the format says; the text names it."""


# ------------------------------------------------------------------------------------ the tables

TABLES: dict[str, type] = {
    "sites": facts.Site,
    "operands": Operand,
    "events": Event,
    "spans": facts.Span,
    "tensors": facts.TensorFact,
    "storages": facts.StorageFact,
    "names": facts.Name,
    "optimizers": facts.OptimizerFact,
    "gradients": facts.Gradients,
    "bridges": facts.Bridge,
    "arrays": facts.ArrayFact,
    "unseen": facts.Unseen,
    "raised": facts.Raised,
    "gaps": facts.Gap,
    "attached": facts.Attached,
    "allocators": facts.Allocator,
}
"""Every table and what one row of it is; `sources` (file, text) comes beside them."""

KEYED = ("tensors", "storages")  # dictionaries: the serial number goes before the row
LONG_ROWS = ("sources", "gradients", "optimizers")
SCALARS = ("program", "folder", "torch", "python", "outcome", "dropped")


def integer(value: object) -> int:
    """Return `value`, a whole number of 64 bits; raise `Damage` for anything else."""
    if type(value) is not int or not -(1 << 63) <= value < 1 << 63:
        raise Damage("a whole number was expected")
    return value


def _boolean(value: object) -> bool:
    if type(value) is not bool:
        raise Damage("true or false was expected")
    return value


def string(value: object) -> str:
    """Return `value`, a text; raise `Damage` for anything else."""
    if type(value) is not str:
        raise Damage("text was expected")
    return value


def list_of(value: object) -> list[Any]:
    """Return `value`, a list; raise `Damage` for anything else."""
    if type(value) is not list:
        raise Damage("a list was expected")
    return value


def _choice(options: tuple[str, ...]) -> Callable[[object], str]:
    known = {option: option for option in options}

    def decode(value: object) -> str:
        if type(value) is not str or value not in known:
            raise Damage(f"one of {', '.join(options)} was expected")
        return known[value]

    return decode


def decoder(hint: Any) -> Callable[[object], Any]:
    """Return a function from a JSON value to a value of the annotation `hint`."""
    if hint is int:
        return integer
    if hint is bool:
        return _boolean
    if hint is str:
        return string
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return _choice(arguments)
    if origin in (tuple, list):
        item, made = decoder(arguments[0]), origin
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


def pair_of(value: object) -> tuple[Any, Any]:
    """Return the two items of `value`; raise `Damage` for anything else."""
    pair = list_of(value)
    if len(pair) != 2:
        raise Damage("a pair was expected")
    return pair[0], pair[1]


def readers_of(name: str) -> dict[str, Callable[[object], Any]]:
    """Return for each field of a table's rows the function that reads it."""
    hints = get_type_hints(TABLES[name])
    operands = tuple[Operand, ...]
    return {
        field: decoder(tuple[int, ...] if hint == operands else hint)
        for field, hint in hints.items()
    }


def parse(line: bytes) -> Any:
    """Return a line of JSON as values; raises `ValueError` or `Damage`."""
    return json.loads(line.decode("utf-8", "surrogatepass"), parse_constant=_no_constant)


def _no_constant(name: str) -> None:
    raise Damage(f"{name} is no number here")


class Layout(NamedTuple):
    """How the rows of one table are written in this file."""

    decoders: tuple[Callable[[object], Any], ...]  # in the order of the row
    build: Callable[[list[Any]], Any]  # from decoded values to the fact


def layout_of(name: str, fields: object, path: str | os.PathLike[str]) -> Layout:
    """Return how the rows of table `name` are read, written with these `fields`.

    Raises `RecordingError` for a field of a newer tether, `Damage` for a list that cannot be.
    """
    kind: Any = TABLES[name]
    known = readers_of(name)
    written = [string(field) for field in list_of(fields)]
    unknown = [field for field in written if field not in known]
    if unknown:
        raise RecordingError(
            f"{path} was written by a newer tether (it has {name}.{unknown[0][:40]}, which this "
            "one does not know); upgrade with `pip install --upgrade tether`"
        )
    required = set(known) - set(kind._field_defaults)
    if len(set(written)) != len(written) or not required <= set(written):
        raise Damage(f"the fields of {name} are wrong")
    decoders = tuple(known[field] for field in written)
    if written == list(known):
        return Layout(decoders, kind._make)
    return Layout(decoders, lambda row: kind(**dict(zip(written, row, strict=True))))


def fact_of(row: Any, layout: Layout, name: str) -> Any:
    """Return the fact that one row of table `name` tells. Raises `Damage`."""
    if type(row) is not list or len(row) != len(layout.decoders):
        raise Damage(f"a row of {name} has the wrong length")
    return layout.build([decode(value) for decode, value in zip(layout.decoders, row, strict=True)])
