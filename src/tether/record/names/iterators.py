"""Which variables have iterators when a line is met for the first time, and which have ended.

Nothing can be heard of an iterator that is gone through: a program's loop asks it, not PyTorch. But
a generator says of itself that it has ended. So the variables of the functions that run are looked
at once for each line, when it is new; what is noted is how things were at that line, that time.
"""

from __future__ import annotations

import itertools
import sys
import types
from collections.abc import Iterable, Iterator
from typing import Any

from tether.facts import MOST_HELD, UNKNOWN, IteratorHeld, Moment, SiteId
from tether.record.objects import attributes_in, locals_of
from tether.record.sites import user_frames
from tether.record.tape import Tape

_NUMBERS: dict[int, int] = {}
_OF_CONTAINERS: tuple[Iterable[Any], ...] = (
    [],
    (),
    set(),
    _NUMBERS,
    _NUMBERS.values(),
    _NUMBERS.items(),
)
GIVEN_ONCE: frozenset[type] = frozenset(
    {filter, map, zip, enumerate, reversed, types.GeneratorType}
    | {itertools.chain, itertools.islice, itertools.starmap, itertools.zip_longest}
    | {type(iter(one)) for one in _OF_CONTAINERS}
)
"""Classes of Python's own whose objects give their elements once, and an end of them."""


class IteratorLog:
    """The variables that had iterators."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape
        self._places = tape.places
        self._seen: set[tuple[int, int]] = set()  # ids of code objects that are held, instructions
        self._noted: set[tuple[int, int, str, bool]] = set()  # code, line, name, ended
        self.facts: list[IteratorHeld] = []
        tape.places.on_new = self.look

    def look(self, frame: types.FrameType) -> None:
        """Look at the variables of a frame that is at a new line, and of those above it."""
        if len(self.facts) >= MOST_HELD or frame.f_trace is not None:
            return  # of a function that a debugger steps through nothing is asked
        try:
            frames = list(user_frames(frame))
            for one, above in itertools.zip_longest(frames, frames[1:]):
                self._look_at(one, above)
        except Exception as error:  # noqa: BLE001
            self._tape.failed("variables with iterators", error)

    def _look_at(self, frame: types.FrameType, above: types.FrameType | None) -> None:
        site = self._number(frame)
        key = (id(frame.f_code), frame.f_lasti)
        # A dictionary that the function has asked for is its own: looking would empty it.
        if key in self._seen or "locals" in frame.f_code.co_names:
            return
        self._seen.add(key)
        now = Moment(self._tape.now())
        given = UNKNOWN if above is None else self._number(above)
        for name, value in _variables(frame):
            if type(value) in GIVEN_ONCE or _is_of_loader(type(value)):
                code = value.gi_code if type(value) is types.GeneratorType else None
                kind = type(value).__name__ if code is None else code.co_qualname
                ended = code is not None and value.gi_frame is None
                self._note(
                    (id(frame.f_code), frame.f_lineno or 0, name, ended),
                    IteratorHeld(now, SiteId(site), name, kind, ended, SiteId(given)),
                )

    def _note(self, key: tuple[int, int, str, bool], fact: IteratorHeld) -> None:
        if key not in self._noted:
            self._noted.add(key)
            self.facts.append(fact)

    def _number(self, frame: types.FrameType) -> int:
        return self._places.add(self._places.of_code(frame.f_code), frame.f_lasti).number


def _variables(frame: types.FrameType) -> Iterator[tuple[str, Any]]:
    """Yield the variables of a frame, and the attributes of its `self`."""
    for name, value in locals_of(frame):
        if name == "self":
            yield from attributes_in(name, value)
        elif name.isidentifier():  # the argument of a comprehension is called ".0"
            yield name, value


def _is_of_loader(kind: type) -> bool:
    """Whether a class is that of the iterators of a DataLoader."""
    module = sys.modules.get("torch.utils.data.dataloader")
    return module is not None and issubclass(kind, module._BaseDataLoaderIter)
