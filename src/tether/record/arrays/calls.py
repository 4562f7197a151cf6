"""Arrays that NumPy is told to copy, and what becomes of an array and its copy.

`ndarray.copy`, `astype`, `numpy.array` and the like are heard where a line of the user's calls them
(`record.patches.arrays`). A copy of the same format that lies in memory in the same way has the
same elements. The bytes of both are summed then, and again when the first of the two goes: so a
write is seen whoever made it. Bytes that `tobytes` gives are followed no further than the call
that they are handed to at once.
"""

from __future__ import annotations

import functools
import re
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from tether.facts import UNKNOWN, ArrayCall, ArrayLine, Moment, SiteId, StorageId
from tether.record.arrays.buffer_takers import taker
from tether.record.arrays.contents import Array
from tether.record.arrays.memory import StretchSeen, base_of, owner_of, size_of
from tether.record.arrays.pairs import ArrayPair, is_looked_at
from tether.record.budget import Budget
from tether.record.objects import locals_of
from tether.record.plain_values import Variables
from tether.record.sites import CodePlaces, site_at
from tether.record.tape import Tape
from tether.source.copied_arrays import handed_to
from tether.source.syntax import QuietSource, read, source_of

LEAST = 4 << 10
"""Bytes of an array that is looked at."""
LARGEST = 64 << 20
"""Bytes of the largest array whose bytes are summed."""
_MOST = 256
"""Arrays that are followed at a time."""
_FACTS = 4096
"""Runs of which is told."""
_RESIZE, _WORD = re.compile(r"(\w+)\s*\.resize\("), re.compile(r"\w+")


class _CopyingLine:
    """A line that copies arrays."""

    __slots__ = ("bytes", "closed", "hands_to", "name", "runs", "site", "within")

    def __init__(self, site: int, name: str, *, within: bool) -> None:
        self.site, self.name, self.within = site, name, within
        self.runs = self.bytes = 0
        self.closed = False  # one of its runs made something else of an array
        self.hands_to: Any = None  # the call of the text that bytes are handed to, once looked for

    def is_next(self, nbytes: int) -> bool:
        """Count one more run, and say whether it is looked at."""
        self.runs += 1
        self.bytes += nbytes
        return not self.closed and is_looked_at(self.runs)


class _CallPair(ArrayPair):
    """An array and the copy that a call made of it."""

    __slots__ = ("after", "earlier", "fact", "rewritten")

    def __init__(self, fact: ArrayCall) -> None:
        super().__init__()
        self.fact = fact
        self.after: StretchSeen | None = None  # the copy, once a tensor's array has gone
        self.rewritten = False
        self.earlier: _CallPair | None = None  # what copied the array that is copied here

    def made(self, array: Array) -> bool:
        """Whether an array shows the copy, or a part of it."""
        return self.fact.before == UNKNOWN and self.both[1].holds(array)

    def look_after(self) -> None:
        """Say whether the copy was written since the array of a tensor has gone."""
        self.rewritten = self.after is not None and self.after.changed()
        self.after = None

    def told(self) -> ArrayCall:
        """Return what is known by now."""
        return self.fact._replace(
            changed=self.changed, released=Moment(self.released), gone=Moment(self.gone),
            rewritten=self.rewritten or self.after is not None,  # no look was taken yet
        )  # fmt: skip


class ArrayCallLog:
    """Follows arrays that are copied, and their copies."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape
        self._lines: dict[int, _CopyingLine] = {}
        self._pairs: list[_CallPair] = []
        self._open: list[_CallPair] = []  # neither the array nor its copy has gone
        self._budget = Budget(0.01, allowed=0.1)
        self._resized: dict[str, frozenset[str]] = {}  # by file: names that its text resizes

    def called(
        self, name: str, frame: types.FrameType | None, array: Array, made: Any, *, within: bool
    ) -> None:
        """Look at what a call of a frame has made of an array, or of what holds it.

        Only what has `LEAST` bytes is to be looked at.
        """
        if made is array or frame is None:
            return
        site, inner = self._tape.places.user_place(frame)
        if site != inner:
            return  # a library's line
        line = self._lines.get(site)
        if line is None:
            line = self._lines[site] = _CopyingLine(site, name, within=within)
            line.closed = self._is_resized(frame)
        if not line.is_next(bytes_made(made)) or self._is_full():
            return
        with self._budget:
            self._look(line, frame, array, made)

    def _is_full(self) -> bool:
        return len(self._open) >= _MOST or len(self._pairs) >= _FACTS or self._budget.late()

    def _look(self, line: _CopyingLine, frame: types.FrameType, array: Array, made: Any) -> None:
        as_bytes, nbytes = type(made) is bytes, bytes_made(made)
        alike = _is_open(array) and (
            array.flags.c_contiguous if as_bytes else _lies_alike(array, made)
        )
        fact = ArrayCall(SiteId(line.site), Moment(self._tape.now()), bool(alike), nbytes)
        pair = _CallPair(fact)
        self._pairs.append(pair)
        line.closed = not alike
        if not alike:
            return
        if as_bytes:
            pair.fact = fact._replace(taker=self._taker(line, frame))
        elif nbytes <= LARGEST:
            self._follow(pair, array, made)

    # -- an array and its copy -------------------------------------------------------------------

    def _follow(self, pair: _CallPair, array: Array, made: Array) -> None:
        """Follow an array and its copy, and what the array itself was copied from."""
        pair.earlier = earlier = next((one for one in self._open if one.made(array)), None)
        root, storage = owner_of(array), UNKNOWN
        held = size_of(root)
        if (tensor := base_of(root)) is not None:
            known = self._tape.who.storage_of(tensor)
            if known is None or known.memory != UNKNOWN:
                return  # that memory is an array's in its turn
            storage, held = known.serial, known.nbytes
        pair.fact = pair.fact._replace(beside=held - size_of(made), storage=StorageId(storage))
        self._begin(pair, StretchSeen(array), root, made)
        while earlier is not None:  # left out, it would be what it was made of that is copied here
            source = earlier.lives[0]() if earlier.lives else None
            if source is None:
                break
            before = pair.fact._replace(storage=earlier.fact.storage, before=earlier.fact.site)
            beyond = _CallPair(before)
            self._pairs.append(beyond)
            self._begin(beyond, earlier.both[0].again(), source, made)
            earlier = earlier.earlier

    def _begin(self, pair: _CallPair, seen: StretchSeen, root: Array, made: Array) -> None:
        self._open.append(pair)
        both = [seen, StretchSeen(made)]
        arrays = self._tape.arrays
        pair.follow(both, arrays, root, made, functools.partial(self._gone, pair))

    def _gone(self, pair: _CallPair, which: str) -> None:
        """Look when the first of two goes, and of a tensor's array when the copy goes too."""
        pair.went(which, self._tape.now())
        if pair in self._open:
            self._open.remove(pair)
            self._look_at(pair.look)
            if which == "released" and pair.fact.storage != UNKNOWN:
                pair.after = pair.both[1].again()  # the tensor may live on
            pair.both = []
        elif pair.after is not None:
            pair.rewritten = True  # where there is no time to look
            self._look_at(pair.look_after)
            pair.after = None

    def _look_at(self, look: Callable[[], None]) -> None:
        if not self._budget.late():
            with self._budget:
                look()

    def _is_resized(self, frame: types.FrameType) -> bool:
        """Whether the text resizes in place what a line names.

        NumPy refuses while anything refers to an array, and a weak reference does.
        """
        file, place = frame.f_code.co_filename, site_at(*self._place(frame))
        if file not in self._resized:
            self._resized[file] = frozenset(_RESIZE.findall(read(file)))
        lines = source_of(file, read(file)).lines[place.line - 1 : place.end_line]
        return not self._resized[file].isdisjoint(_WORD.findall(" ".join(lines)))

    def _place(self, frame: types.FrameType) -> tuple[CodePlaces, int]:
        return self._tape.places.of_code(frame.f_code), frame.f_lasti

    # -- bytes -----------------------------------------------------------------------------------

    def _taker(self, line: _CopyingLine, frame: types.FrameType) -> str:
        """Return what takes the bytes that a line makes, if it takes an array's memory as well."""
        if line.hands_to is None:
            line.hands_to = self._handed_to(frame) or ""
        if not line.hands_to:
            return ""
        return taker(line.hands_to, Variables(dict(locals_of(frame)), frame.f_globals))

    def _handed_to(self, frame: types.FrameType) -> Any:
        known, offset = self._place(frame)
        return handed_to(QuietSource(read(known.file)), site_at(known, offset))

    # -- facts -----------------------------------------------------------------------------------

    def lines(self) -> list[ArrayLine]:
        """Return the lines that copy arrays."""
        return [ArrayLine(SiteId(one.site), one.name, one.within, one.runs, one.bytes)
                for one in self._lines.values()]  # fmt: skip

    def at_end(self) -> None:
        """Look at what lives as the recording ends."""
        for pair in self._open:
            self._look_at(pair.look)
        for pair in self._pairs:
            if pair.after is not None:
                self._look_at(pair.look_after)

    def facts(self) -> list[ArrayCall]:
        """Return what is known of each run that was looked at."""
        return [pair.told() for pair in self._pairs]


def bytes_made(made: Any) -> int:
    """Return how many bytes a call has made; 0 where it is neither an array nor bytes."""
    kind = type(made)
    if kind is bytes:
        return len(made)
    return size_of(made) if kind is np.ndarray else 0


def _is_open(array: Array) -> bool:
    """Whether anybody may write an array, and its memory is NumPy's own or a tensor's."""
    root = owner_of(array)
    base = base_of(root)
    own = base is None and root.flags.owndata
    return bool(
        type(root) is np.ndarray
        and array.flags.writeable
        and array.dtype.kind in "fiubc"
        and (own or (isinstance(base, torch.Tensor) and base.is_cpu))
    )


def _lies_alike(array: Array, made: Any) -> bool:
    """Whether what was made of an array has its elements, in memory of its own, in its order."""
    if type(made) is not np.ndarray or made.dtype != array.dtype or made.size != array.size:
        return False
    if owner_of(made) is not made or base_of(made) is not None:
        return False
    if made.shape != array.shape:
        return bool(made.flags.c_contiguous and array.flags.c_contiguous)
    steps = zip(made.shape, made.strides, array.strides, strict=True)
    return all(size == 1 or one == other for size, one, other in steps)
