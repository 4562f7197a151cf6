"""What the numbers in a fact's fields are, read off its annotations.

Checking a recording and merging several ask the same question of every field: is this the number
of an event, of a site, of a tensor? `Mover` answers it once for each class of fact, so that a new
fact is checked and merged without a line of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, NewType, get_args, get_origin, get_type_hints

Number = NewType
Change = Callable[[int], int]
"""What becomes of a number of one kind."""


class Field(NamedTuple):
    """A field of a fact that holds numbers of one kind, or facts that do."""

    name: str
    number: Any  # one of the types in `tether.facts`: EventId, SiteId ...; None: facts
    many: bool  # a tuple, or the keys of a dictionary
    keys: bool  # the keys of a dictionary
    fact: Any = None  # the class of the facts in a tuple of facts


def numbered_fields(kind: Any) -> tuple[Field, ...]:
    """Return the fields of a class of facts that hold numbers of some kind."""
    known = _fields.get(kind)
    if known is None:
        known = _fields[kind] = tuple(_numbered(kind))
    return known


_fields: dict[Any, tuple[Field, ...]] = {}


def _numbered(kind: Any) -> Iterator[Field]:
    for name, hint in get_type_hints(kind).items():
        origin, arguments = get_origin(hint), get_args(hint)
        if isinstance(hint, NewType):
            yield Field(name, hint, many=False, keys=False)
        elif origin is tuple and isinstance(arguments[0], NewType):
            yield Field(name, arguments[0], many=True, keys=False)
        elif origin is dict and isinstance(arguments[0], NewType):
            yield Field(name, arguments[0], many=True, keys=True)
        elif origin is tuple and hasattr(arguments[0], "_fields"):
            yield Field(name, None, many=True, keys=False, fact=arguments[0])


def moved(fact: Any, changes: Mapping[Any, Change]) -> Any:
    """Return a fact with every number changed by what `changes` says for its kind."""
    new: dict[str, Any] = {}
    for one in numbered_fields(type(fact)):
        value = getattr(fact, one.name)
        if one.fact is not None:
            new[one.name] = tuple([moved(inner, changes) for inner in value])
        elif one.number in changes:
            change = changes[one.number]
            if one.keys:
                new[one.name] = {change(key): item for key, item in value.items()}
            elif one.many:
                new[one.name] = tuple([change(number) for number in value])
            else:
                new[one.name] = change(value)
    return fact._replace(**new) if new else fact


def numbers_in(fact: Any, kind: Any) -> Sequence[int]:
    """Return the numbers of one kind that a fact holds."""
    found: list[int] = []
    for one in numbered_fields(type(fact)):
        if one.number is kind:
            value = getattr(fact, one.name)
            found += list(value) if one.many else [value]
    return found
