"""How long NumPy's arrays live, with a last look at their memory as they go.

Up to NumPy 2.4 an array calls its weak references back before it gives its memory up. From 2.5 on
(numpy/numpy#30414) it calls them when the memory is gone, which must not be read then. There the
array is held, and before each call that is heard it is asked whether anybody else holds it.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable

import numpy as np

from tether.record.contents import Array

CALLED_BACK_IN_TIME = bool(np.lib.NumpyVersion(np.__version__) < "2.5.0.dev0")
"""Whether weak references are called back while the memory of their array can still be read."""

_MOST_ASKED = 32
"""Arrays that are asked before a call; where more are held, they take turns."""


class _ReferredLife:
    """An array that has a weak reference."""

    def __init__(self, array: Array, goes: Callable[[], None]) -> None:
        self._ref: weakref.ref[Array] | None = weakref.ref(array, lambda _: goes())

    def __call__(self) -> Array | None:
        """Return the array; None when it has gone."""
        return None if self._ref is None else self._ref()

    def leave(self) -> None:
        """Follow the array no longer."""
        self._ref = None


class _HeldArray:
    """An array that is held, and what is called when nobody else holds it."""

    __slots__ = ("array", "lives")

    def __init__(self, array: Array) -> None:
        self.array = array
        self.lives: list[_HeldLife] = []

    def references(self) -> int:
        """Return how many hold the array."""
        return sys.getrefcount(self.array)


_OURS = _HeldArray(np.empty(1)).references()
"""References to an array that nothing but `_HeldArray` holds."""


class _HeldLife:
    """One who follows an array that is held."""

    def __init__(self, held: _HeldArray, among: ArrayLives, goes: Callable[[], None]) -> None:
        self._held, self._among, self.goes = held, among, goes

    def __call__(self) -> Array | None:
        """Return the array; None when it has gone."""
        self._among.ask(self._held)
        return self._held.array if self in self._held.lives else None

    def leave(self) -> None:
        """Follow the array no longer."""
        if self in self._held.lives:
            self._held.lives.remove(self)
            if not self._held.lives:
                self._among.drop(self._held)


ArrayLife = _ReferredLife | _HeldLife
"""Called, it returns the array while that lives; `leave` ends it."""


class ArrayLives:
    """The arrays of one recording that are followed until they go."""

    def __init__(self) -> None:
        self.held: dict[int, _HeldArray] = {}  # by `id`, which no other array has while it is held
        self._turn = 0

    def follow(self, array: Array, goes: Callable[[], None]) -> ArrayLife:
        """Call `goes` when an array goes, while its memory can still be read."""
        if CALLED_BACK_IN_TIME:
            return _ReferredLife(array, goes)
        held = self.held.setdefault(id(array), _HeldArray(array))
        held.lives.append(life := _HeldLife(held, self, goes))
        return life

    def look(self) -> None:
        """Ask some of the arrays that are held; the others have their turn at later calls."""
        held = list(self.held.values())
        if len(held) > _MOST_ASKED:
            first = self._turn % len(held)
            self._turn = first + _MOST_ASKED
            held = (held + held)[first : self._turn]
        for one in held:
            self.ask(one)

    def look_at_all(self) -> None:
        """Ask every array that is held."""
        for one in list(self.held.values()):
            self.ask(one)

    def ask(self, held: _HeldArray) -> None:
        """Let an array go that nobody else holds, once those who follow it have been called."""
        if held.lives and held.references() <= _OURS:
            lives, held.lives = held.lives, []
            try:
                for one in lives:
                    one.goes()
            finally:
                self.drop(held)

    def drop(self, held: _HeldArray) -> None:
        """Hold an array no longer."""
        del self.held[id(held.array)]
        del held.array

    def end(self) -> None:
        """Hold none any more: the recording has ended."""
        for one in list(self.held.values()):
            one.lives = []
            self.drop(one)
