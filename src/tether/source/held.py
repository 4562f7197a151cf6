"""What a name can hold: exits, the calls that led to each, and its place within a container.

A place is the index or key by which a literal or a store put a value into a container, `EACH` where
any element may be it, and `WITHIN` where the text does not say how what is held is made up: a
function that is not the user's made it of several things. What is then taken out by an index, a
name or an unpacking may be another field: it is `mixed`.
"""

from __future__ import annotations

import ast
import enum
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple


class Somewhere(enum.Enum):
    """Places that the text does not give."""

    EACH = "any element"
    WITHIN = "in what a function made of several things"


EACH, WITHIN = Somewhere.EACH, Somewhere.WITHIN

Place = object
"""An index, a key, or one of `Somewhere`."""

DEEP = 4
"""Containers within each other that are told apart."""

Way = tuple[ast.AST | None, ...]
"""The calls in the text that led to a function's run, the nearest first; None: by no known call."""


class Some(NamedTuple):
    """A value that can come from an exit."""

    exit: int
    way: Way
    path: tuple[Place, ...] = ()  # where it lies in what is held, from the outside
    mixed: bool = False  # it may be another field of a container instead


Held = dict[Some, str]
"""What can be held, each with the name that it was last read by."""


MOST_APART = 64
"""Ways and places that are told apart of all that one thing can hold."""


def grows(known: Held, held: Held) -> bool:
    """Add to what is known to be held, and return whether anything was new.

    Of too much it is told no more by which ways it came, nor in which places it lies.
    """
    new = {one: via for one, via in held.items() if one not in known and _wide(one) not in known}
    known.update(new)
    if len(known) > MOST_APART and new:
        wide = {_wide(one): via for one, via in known.items()}
        known.clear()
        known.update(wide)
    return bool(new)


def _wide(one: Some) -> Some:
    """Return a value of an exit by whatever way, in whatever place."""
    return Some(one.exit, (), (WITHIN,), mixed=True)


def joined(*parts: Held) -> Held:
    """Return what any of some can hold."""
    whole: Held = {}
    for part in parts:
        whole.update(part)
    return whole


def named(held: Held, name: str) -> Held:
    """Return what is held, read by a name."""
    return dict.fromkeys(held, name)


def put_at(held: Held, place: Place) -> Held:
    """Return what a container holds that has something at a place."""
    return {
        one._replace(path=(place, *one.path) if len(one.path) < DEEP else (place, WITHIN)): name
        for one, name in held.items()
    }


def within(held: Held) -> Held:
    """Return what is held by something that a function or an operator made of it.

    What lay in every element is now in all of it; fields cannot be told apart any more.
    """
    return {
        one._replace(path=() if all(part is EACH for part in one.path) else (WITHIN,)): name
        for one, name in held.items()
    }


def made_of(parts: Iterable[Held]) -> Held:
    """Return what something holds that a function made of several things."""
    made = [within(part) for part in parts]
    in_parts = Counter(one for part in made for one in {each[:2] for each in part})
    return {
        one if in_parts[one[:2]] == len(made) else one._replace(path=(WITHIN,)): name
        for one, name in joined(*made).items()
    }


def each(held: Held) -> Held:
    """Return what an element holds, as a loop takes one after the other; of a dict, its keys."""
    found: Held = {}
    for one, name in held.items():
        if one.path and isinstance(one.path[0], str):
            continue
        rest = one.path if one.path[:1] == (WITHIN,) else one.path[1:]
        found[one._replace(path=rest)] = name
    return found


def picked(held: Held, place: Place = None) -> Held:
    """Return what is held at a place; None is one that the text does not give."""
    found: Held = {}
    for one, name in held.items():
        for taken in _at(one, place):
            found[taken] = name
    return found


def _at(one: Some, place: Place) -> Iterator[Some]:
    if not one.path:
        yield one
    elif one.path[0] is WITHIN:
        yield one._replace(mixed=True)
    elif one.path[0] is EACH or one.path[0] == place:
        yield one._replace(path=one.path[1:])
    elif place is None or (isinstance(place, int) and place < 0):
        yield one._replace(path=one.path[1:], mixed=True)


def from_place(held: Held, place: int) -> Held:
    """Return what is held, but for what stands before a place."""
    return {
        one: name
        for one, name in held.items()
        if not (one.path and isinstance(one.path[0], int) and 0 <= one.path[0] < place)
    }


def unnamed(held: Held) -> Held:
    """Return what an attribute of something holds of which only the whole is known."""
    whole = within(held)
    return {one._replace(mixed=one.mixed or bool(one.path)): name for one, name in whole.items()}


def subscripted(held: Held, index: ast.expr) -> Held:
    """Return what a subscript takes out."""
    if isinstance(index, ast.Slice):
        return {
            one if one.path[:1] in ((), (EACH,)) else one._replace(path=(WITHIN,)): name
            for one, name in held.items()
        }
    if isinstance(index, ast.Tuple):
        return unnamed(held)
    return picked(held, place_of(index))


def place_of(index: ast.expr | None) -> Place:
    """Return the place that an index names; None where it is not written there."""
    try:
        found = ast.literal_eval(index) if index is not None else None
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None
    return found if isinstance(found, int | str) else None


def stored_at(index: ast.expr) -> Place:
    """Return the place into which a store by an index puts something."""
    place = place_of(index)
    return EACH if place is None or (isinstance(place, int) and place < 0) else place


def zipped(parts: list[Held]) -> Held:
    """Return what `zip` holds: elements of each part side by side."""
    return put_at(joined(*(put_at(each(one), at) for at, one in enumerate(parts))), EACH)


def transposed(held: Held) -> Held:
    """Return what `zip(*rows)` holds: the columns."""
    found: Held = {}
    for one, name in held.items():
        if WITHIN in one.path[:2]:
            path: tuple[Place, ...] = (WITHIN,)
        elif len(one.path) > 1:
            path = (one.path[1], one.path[0], *one.path[2:])
        else:
            path = ()
        found[one._replace(path=path)] = name
    return found
