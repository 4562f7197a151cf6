"""Why a tie that acted is looked at, and whether that is what programs do all the time."""

from __future__ import annotations

import enum
from typing import NamedTuple


class TieReason(enum.IntEnum):
    """What a tie is told for, the most harmful first: what is least likely to have been meant."""

    LOST = enum.auto()  # what was written is gone, and nothing read it
    OPERAND = enum.auto()  # a call read what its own line had changed before
    OVERLAP = enum.auto()  # a copy read elements that it had written already
    RESULT = enum.auto()  # a call has still to read what was written
    GRADIENT = enum.auto()  # one gradient of several parameters: each change is one of all
    KEPT = enum.auto()  # a record is read, and is not what was kept
    ELEMENTS = enum.auto()  # one element lies in several places of the tensor that was written
    SLOTS = enum.auto()  # several places of one container are one object, though written as several
    CACHE = enum.auto()  # each later call is given what was written
    DEFAULT = enum.auto()  # each later call begins with what was written
    HANDED = enum.auto()  # a gradient that backward was handed is the caller's
    ALTERNATING = enum.auto()  # two lines read one array in turn, and found it changed
    VARIABLE = enum.auto()  # a second variable of the same function
    ARRAY = enum.auto()  # an array is another library's, and nobody there hears of a write
    COPY = enum.auto()  # the call by which they share reads as if it copied, or does so at times
    CLOSURE = enum.auto()  # a function has it, and is called later
    CALLER = enum.auto()  # a variable of who called the function that wrote
    ATTRIBUTES = enum.auto()  # two objects have it as an attribute
    TWICE = enum.auto()  # a call wrote one tensor that it was given twice
    PARAMETER = enum.auto()  # two places of one module are trained as one
    # From here on it is what most programs do: worth a look where it was read with other values.
    SLOT = enum.auto()
    AGAIN = enum.auto()  # an array that a line reads anew each time is mostly a buffer
    STATE = enum.auto()
    ATTRIBUTE = enum.auto()
    GIVEN = enum.auto()  # a caller's variable, to which the function's result goes as well
    VIEW = enum.auto()  # a view, or another name, of what was written
    TWO_NAMES = enum.auto()  # two variables lead to one place
    OWN = enum.auto()  # a parameter in its module and its optimizer


ALWAYS = TieReason.CACHE
"""Up to this reason a tie is worth a look whatever says that the write was meant."""

UNUSUAL = TieReason.PARAMETER
"""Up to this reason a tie is worth a look though nobody was seen to read it."""


class Standing(NamedTuple):
    """How a tie stands among others: why it is told, who read it, and whether it was meant."""

    reason: TieReason
    read: bool  # another than who wrote it read it later
    meant: bool = False  # facts say so: nobody had seen what was replaced, a name ends in "_"

    @property
    def plain(self) -> bool:
        """Whether it is what programs do all the time, which a report leaves out at first."""
        if self.reason <= ALWAYS:
            return False
        unusual = self.reason <= UNUSUAL and (self.read or not self.meant)
        return not (unusual or (self.read and not self.meant and self.reason < TieReason.TWO_NAMES))

    @property
    def nothing(self) -> bool:
        """Whether it is no tie that acted on anybody: how all programs are built."""
        usual = not self.read and self.reason > UNUSUAL
        return self.reason is TieReason.OWN or (
            usual and (self.meant or self.reason is TieReason.TWO_NAMES)
        )

    @property
    def rank(self) -> tuple[bool, TieReason, bool]:
        """Return what orders ties: what is worth a look, by its reason, what was read first."""
        return self.plain, self.reason, not self.read
