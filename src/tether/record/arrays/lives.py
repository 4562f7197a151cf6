"""How long NumPy's arrays live, with a last look at their memory as they go.

Up to NumPy 2.4 an array calls its weak references back before it gives its memory up. From 2.5 on
(numpy/numpy#30414) it calls them when the memory is gone, which must not be read then. There the
array is held, and before each call that is heard it is asked whether anybody else holds it.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable
from sys import getrefcount

import numpy as np

from tether.record.arrays.contents import Array

CALLED_BACK_IN_TIME = bool(np.lib.NumpyVersion(np.__version__) < "2.5.0.dev0")
"""Whether weak references are called back while the memory of their array can still be read."""

_MOST_ASKED = 8
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
        return getrefcount(self.array)


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
        self._among.left(self._held, self)


ArrayLife = _ReferredLife | _HeldLife
"""Called, it returns the array while that lives; `leave` ends it."""


class ArrayLives:
    """The arrays of one recording that are followed until they go."""

    def __init__(self) -> None:
        self.held: dict[int, _HeldArray] = {}  # by `id`, which no other array has while it is held
        self._turns: deque[_HeldArray] = deque()
        self._lock = threading.RLock()  # who follows one array may ask for another as it goes

    def follow(self, array: Array, goes: Callable[[], None]) -> ArrayLife:
        """Call `goes` when an array goes, while its memory can still be read."""
        if CALLED_BACK_IN_TIME:
            return _ReferredLife(array, goes)
        with self._lock:
            held = self.held.get(id(array))
            if held is None:
                held = self.held[id(array)] = _HeldArray(array)
                self._turns.append(held)
            held.lives.append(life := _HeldLife(held, self, goes))
        return life

    def in_child(self) -> None:
        """Go on in a forked process: another thread may have held the lock."""
        self._lock = threading.RLock()

    def look(self) -> None:
        """Ask some of the arrays that are held; the others have their turn at later calls."""
        turns = self._turns
        with self._lock:
            for _ in range(min(_MOST_ASKED, len(turns))):
                one = turns[0]
                turns.rotate(-1)
                if getrefcount(one.array) <= _OURS:
                    self.ask(one)
                if not turns:
                    break

    def look_at_all(self) -> None:
        """Ask every array that is held."""
        with self._lock:
            for one in list(self.held.values()):
                self.ask(one)

    def ask(self, held: _HeldArray) -> None:
        """Let an array go that nobody else holds, once those who follow it have been called."""
        with self._lock:
            if held.lives and held.references() <= _OURS:
                lives, held.lives = held.lives, []
                try:
                    for one in lives:
                        one.goes()
                finally:
                    self._drop(held)

    def left(self, held: _HeldArray, life: _HeldLife) -> None:
        """Let an array go that was held for one only, who has left."""
        with self._lock:
            if life in held.lives:
                held.lives.remove(life)
                if not held.lives:
                    self._drop(held)

    def _drop(self, held: _HeldArray) -> None:
        """Hold an array no longer."""
        del self.held[id(held.array)]
        self._turns.remove(held)
        del held.array

    def end(self) -> None:
        """Hold none any more: the recording has ended."""
        with self._lock:
            for one in list(self.held.values()):
                one.lives = []
                self._drop(one)
