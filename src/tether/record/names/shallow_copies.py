"""Objects that were copied without their tensors, and through which of them these are written.

``copy.copy(state)`` makes a second object that holds the tensors of the first. Whose method writes
one of them afterwards is seen from the functions that run: the nearest that has one of the objects
as a variable, or as an attribute of its own object. No code of the program's is run.
"""

from __future__ import annotations

import sys
import types
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from tether.facts import EventId, Moment, ShallowCopy, SiteId, TensorId, WrittenThrough
from tether.record.objects import ObjectWalk, attributes_of, locals_of
from tether.record.sites import here, user_frames
from tether.record.tape import Tape

__tracebackhide__ = True

MOST_COPIES = 512
"""Copies that are followed: of a line that makes more, the first ones tell enough."""

MOST_LOOKS = 64
"""Writes of one memory of which it is asked through whom, since it was last shared anew."""

_INSIDE = 256
"""Places in one object that are looked at for tensors."""

_DEPTH = 3
"""Objects and containers within each other that are looked into."""

_FRAMES = 8
"""Functions that called each other, of which it is asked whether they have one of the objects."""

_CLOSED = (torch.nn.Module, torch.Tensor, torch.optim.Optimizer, type, types.ModuleType)
"""Of a module two laws of their own speak; the others have no tensors of their own."""

_CONTAINERS = (dict, list, tuple)


class ShallowCopies:
    """The copies so far, and who wrote what they have in common."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape
        self.facts: list[ShallowCopy] = []
        self.writes: list[WrittenThrough] = []
        self._objects: dict[int, tuple[weakref.ref[Any], int]] = {}  # by id: it, and its number
        self._numbers = 0
        self._classes: set[type] = set()
        self.shared: dict[int, int] = {}  # memory -> looks that are left

    # -- copies ----------------------------------------------------------------------------------

    def copied(self, given: Any, made: Any) -> None:
        """Take note of a copy that holds tensors of what it was made of, by its maker's caller."""
        if len(self.facts) >= MOST_COPIES:
            return
        try:
            theirs = {id(tensor) for _, tensor in _tensors_in(given)}
            both = [one for one in _tensors_in(made) if id(one[1]) in theirs]
            ends = (self._number(given), self._number(made)) if both else (0, 0)
        except Exception as error:  # noqa: BLE001 -- the program's objects may do anything
            self._tape.failed("looking at a copy", error)
            return
        place = self._tape.places.user_place(here(3))
        if both and place[0] == place[1]:
            who, now = self._tape.who, Moment(self._tape.now())
            serials = tuple(TensorId(who.serial(tensor)) for _, tensor in both)
            names = tuple(name for name, _ in both)
            kind = type(made).__name__
            self.facts.append(ShallowCopy(now, SiteId(place[0]), kind, *ends, serials, names))
            self._classes.add(type(made))
            numbers = (who.memory_number(tensor) for _, tensor in both)
            self.shared |= {one: MOST_LOOKS for one in numbers if one is not None}

    def _number(self, value: Any) -> int:
        """Return the number of an object: an address alone may come back."""
        known = self._objects.get(id(value))
        if known is None or known[0]() is not value:
            known = self._objects[id(value)] = weakref.ref(value), self._numbers
            self._numbers += 1
        return known[1]

    # -- writes ----------------------------------------------------------------------------------

    def wrote(self, tensors: Sequence[Any], event: int) -> None:
        """Take note through which object `event` has just written what several have."""
        for one in tensors:
            memory = self._tape.who.memory_number(one)
            if memory is not None and self.shared.get(memory, 0) > 0:
                self.shared[memory] -= 1
                number = self._through(sys._getframe(2))
                if number is not None:
                    self.writes.append(WrittenThrough(EventId(event), number))
                return

    def _through(self, frame: types.FrameType | None) -> int | None:
        """Return the object that the nearest function has; None: none has one alone."""
        for _, one in zip(range(_FRAMES), user_frames(frame), strict=False):
            variables = locals_of(one)
            first = one.f_code.co_varnames[:1] if one.f_code.co_argcount else ()
            own = next((value for name, value in variables if (name,) == first), None)
            known = self._known(own)
            if known is not None:
                return known
            found = {self._known(value) for _, value in variables} - {None}
            found = found or {self._known(value) for _, value in attributes_of(own)} - {None}
            if found:
                return found.pop() if len(found) == 1 else None
            if type(own) in self._classes:
                return None  # one that nobody was seen to copy
        return None

    def _known(self, value: Any) -> int | None:
        known = self._objects.get(id(value))
        return known[1] if known is not None and known[0]() is value else None


def _may_hold(value: Any) -> bool:
    """Whether an object may have tensors as its attributes."""
    kind = type(value)
    return kind.__dictoffset__ != 0 and not issubclass(kind, (*_CLOSED, *_CONTAINERS))


def can_be_followed(value: Any) -> bool:
    """Whether an object may have tensors, and can be remembered without being kept."""
    return _may_hold(value) and type(value).__weakrefoffset__ != 0


def _tensors_in(value: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the tensors that an object leads to, each with the name of the attribute it is in."""
    walk = ObjectWalk(((name, part, 0) for name, part in attributes_of(value)), _INSIDE)
    for name, part, depth in walk:
        if issubclass(type(part), torch.Tensor):
            yield name, part
        elif depth < _DEPTH:
            walk.add((name, one, depth + 1) for one in _parts(part))


def _parts(value: Any) -> Iterator[Any]:
    """Yield what is inside a container, or an object that may hold tensors."""
    kind = type(value)
    if kind is dict:
        yield from list(value.values())[:_INSIDE]
    elif kind is list or kind is tuple:
        yield from value[:_INSIDE]
    elif _may_hold(value):
        yield from (part for _, part in attributes_of(value))
