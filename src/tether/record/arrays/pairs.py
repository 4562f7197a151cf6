"""An array and what was copied from it, while both live: whether either was written meanwhile.

The bytes of both are summed at first, and again when the first of the two goes. NumPy resizes no
array in place that anything refers to.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from tether.facts import RUNS_OF_ARRAYS, UNKNOWN
from tether.record.arrays.contents import Array
from tether.record.arrays.lives import ArrayLife, ArrayLives
from tether.record.arrays.memory import StretchSeen


def is_looked_at(run: int) -> bool:
    """Whether a run of a line is looked at, by its number: the first ones, and then each 16th."""
    return run <= RUNS_OF_ARRAYS or not run % 16


class ArrayPair:
    """An array and its copy, with what is known of both."""

    __slots__ = ("both", "changed", "gone", "lives", "released")

    def __init__(self) -> None:
        self.both: list[StretchSeen] = []
        self.changed: Any = "unknown"
        self.released = self.gone = UNKNOWN  # of the array that was copied, and of the copy
        self.lives: list[ArrayLife] = []  # of the array and of its copy, while they are followed

    def follow(
        self,
        both: list[StretchSeen],
        arrays: ArrayLives,
        root: Array,
        copy: Array,
        goes: Callable[[str], None],
    ) -> None:
        """Follow both; `goes` is told which has gone: ``released`` or ``gone``."""

        def tells(which: str) -> Callable[[], None]:
            return lambda: None if sys.is_finalizing() else goes(which)

        self.both = both
        self.lives = [
            arrays.follow(root, tells("released")), arrays.follow(copy, tells("gone"))
        ]  # fmt: skip

    def went(self, which: str, now: int) -> None:
        """Note when one of the two went; once the copy has, the other one is left alone."""
        setattr(self, which, now)
        if which == "gone":
            for one in self.lives:
                one.leave()
            self.lives = []

    def look(self) -> None:
        """Say whether either was written since; both must live."""
        self.changed = "yes" if any(one.changed() for one in self.both) else "no"
