"""Arrays that were copied on their way into PyTorch, by calls of NumPy's that nobody hears.

When an array becomes a tensor at a line of the user's, the text of the call, and what its variables
were last given, lead to the array that it was made of. That one is read where it lies
(`plain_values`), and compared with what came in: the same elements, bit for bit, in memory of their
own. The calls between the two are tried once on an array of other values, so that a call which only
found nothing to change this time is told from one that never does. A line whose first run has no
such array is not looked at again. Both arrays are followed as long as both live.
"""

from __future__ import annotations

import ast
import functools
import itertools
import sys
import types
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch

from tether.facts import ArrayCopied, EventId, Moment, SiteId
from tether.record.arrays.contents import Array
from tether.record.arrays.memory import StretchSeen, address_of, base_of, owner_of
from tether.record.arrays.pairs import ArrayPair, is_looked_at
from tether.record.budget import Budget
from tether.record.objects import locals_of
from tether.record.plain_values import CallChain, ChainOnOthers, Variables, arrays_in
from tether.record.sites import behind_us, is_user_file, site_at
from tether.record.tape import Tape
from tether.source.entering import given_to, last_given, named_in, place_of
from tether.source.syntax import QuietSource, read

LEAST = 4 << 10
LARGEST = 16 << 20
MOST = 256
"""Arrays that are followed at a time."""
_FACTS = 4096
"""Arrays of which is told."""
_STEPS = 4
"""Assignments that a variable is followed through."""
_AXES = 5
"""Dimensions of an array whose axes are tried in another order."""
_WORDS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
_BLOCK = 16_381  # elements of other values that are put one after the other: no power of two

Ints = tuple[int, ...]


class _WayShown(NamedTuple):
    """How an array shows the elements of another."""

    axes: Ints | None  # their order; None: all elements in order, in another shape
    whole: bool  # the array's memory has them, of which it may show a part


class _ShownElements(NamedTuple):
    """The elements of the other array, as a tensor on it would show them, and whose memory it is.

    What is made of strides does not say from which array it has them.
    """

    view: Array
    root: Array


class _EntryLine:
    """A line at which arrays become tensors, and what its text leads to."""

    __slots__ = ("begins", "chain", "place", "runs", "text", "way")

    def __init__(self, chain: CallChain, begins: ast.expr, place: int, way: _WayShown) -> None:
        self.chain, self.begins, self.place, self.way = chain, begins, place, way
        self.text = ast.unparse(begins)
        self.runs = 1

    def is_next(self) -> bool:
        """Count one more run, and say whether it is looked at."""
        self.runs += 1
        return is_looked_at(self.runs)


class _EntryPair(ArrayPair):
    """An array that became a tensor, and the one that has the same elements."""

    __slots__ = ("beside", "decided", "event", "line", "shared", "strides", "type")

    def __init__(
        self, event: int, line: _EntryLine, shown: _ShownElements, *, shared: bool
    ) -> None:
        super().__init__()
        view, root = shown
        self.event, self.line, self.shared = event, line, shared
        self.strides = tuple(step // view.itemsize for step in view.strides)
        self.type, self.beside = view.dtype.name, int(root.nbytes - view.nbytes)
        self.decided = False


class ArrayCopyLog:
    """Looks for what an array is a copy of that becomes a tensor, and follows both."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape
        self._lines: dict[int, _EntryLine | None] = {}  # by site; None: nothing was found there
        self._pairs: list[_EntryPair] = []
        self._open = 0
        self._budget = Budget(0.01, allowed=0.1)
        self._texts: tuple[str, QuietSource] = ("", QuietSource(""))

    def look(self, event: int, site: int, data: Any, result: Any) -> None:
        """Look at an array that became a tensor."""
        if type(data) is not np.ndarray or not LEAST <= data.nbytes <= LARGEST:
            return
        line = self._lines.get(site)
        if (line is None and site in self._lines) or self._is_full():
            return
        if type(result) is not torch.Tensor or not result.is_cpu:
            return
        with self._budget:
            self._look(event, site, line, data, result)

    def _is_full(self) -> bool:
        return self._open >= MOST or len(self._pairs) >= _FACTS or self._budget.late()

    def _look(
        self, event: int, site: int, line: _EntryLine | None, data: Array, result: torch.Tensor
    ) -> None:
        if line is not None and not line.is_next():
            return
        frame, variables = _entering_frame(), Variables({}, {})
        if frame is not None:
            variables = Variables(dict(locals_of(frame)), frame.f_globals)
        if line is None:
            line = self._lines[site] = self._learn(frame, data, variables)
            if line is None:
                return
        shared = address_of(data) == result.data_ptr()
        shown = _met(line, variables, data, shared=shared) if _is_plain(data) else None
        pair = _EntryPair(event, line, shown or _ShownElements(data, data), shared=shared)
        self._pairs.append(pair)
        if shown is None:
            self._lines[site] = None
            pair.changed, pair.decided = "none", True
            return
        self._follow(pair, data, shown)

    def _follow(self, pair: _EntryPair, data: Array, shown: _ShownElements) -> None:
        self._open += 1
        both = [StretchSeen(data), StretchSeen(shown.view)]
        gone = functools.partial(self._gone, pair)
        pair.follow(both, self._tape.arrays, shown.root, owner_of(data), gone)

    def _gone(self, pair: _EntryPair, which: str) -> None:
        """Look when the first of two goes."""
        pair.went(which, self._tape.now())
        if pair.decided:
            return
        pair.decided = True
        self._open -= 1
        if not self._budget.late():
            with self._budget:
                pair.look()
        pair.both = []

    def at_end(self) -> None:
        """Look at the arrays that live, as do what they are copies of, as the recording ends."""
        for pair in self._pairs:
            if not pair.decided and not self._budget.late():
                with self._budget:
                    pair.look()

    def facts(self) -> list[ArrayCopied]:
        """Return what is known of each array that was looked at."""
        return [_fact(pair) for pair in self._pairs]

    # -- the text --------------------------------------------------------------------------------

    def _learn(
        self, frame: types.FrameType | None, data: Array, variables: Variables
    ) -> _EntryLine | None:
        """Look for the array that the text of a call leads to."""
        if frame is None or not _is_plain(data):
            return None
        known = self._tape.places.of_code(frame.f_code)
        source = self._source(known.file)
        given = given_to(source, site_at(known, frame.f_lasti))
        for chain, made in _chains(source, given, data, variables) if given is not None else ():
            begins = arrays_in(chain, variables)
            if len(begins) != 1 or _is_resized(source, begins[0][0]):
                continue
            way = _tried(chain, *begins[0], data, variables)
            if way is not None:
                code = frame.f_code
                site = place_of(known.file, made, source, code.co_qualname, code.co_firstlineno)
                return _EntryLine(chain, begins[0][0], self._tape.places.add_site(site), way)
        return None

    def _source(self, file: str) -> QuietSource:
        if self._texts[0] != file:
            self._texts = file, QuietSource(read(file))
        return self._texts[1]


def _is_resized(source: QuietSource, begins: ast.expr) -> bool:
    """Whether the text resizes an array in place: NumPy refuses while anything refers to it."""
    return any(f"{ast.unparse(one)}.resize(" in source.text for one in named_in(begins))


def _fact(pair: _EntryPair) -> ArrayCopied:
    line, none = pair.line, pair.changed == "none"
    changed: Any = "unknown" if none else pair.changed
    return ArrayCopied(
        EventId(pair.event), SiteId(line.place), "" if none else line.text, pair.type, pair.strides,
        pair.shared, pair.beside, changed, Moment(pair.released), Moment(pair.gone),
    )  # fmt: skip


def _entering_frame() -> types.FrameType | None:
    """Return the frame that makes the tensor, where it is the user's own."""
    frame = behind_us(sys._getframe(1))
    return frame if is_user_file(frame.f_code.co_filename) else None


def _chains(
    source: QuietSource, given: ast.expr, data: Array, variables: Variables
) -> Iterator[tuple[CallChain, ast.expr]]:
    """Yield what a call is given, and the same with its variable as it was assigned: step by step.

    With it comes the expression that was put in last.
    """
    chain, made = CallChain(given, {}), given
    yield chain, made
    for _ in range(_STEPS):
        same = [
            node for node, array in arrays_in(chain, variables) if owner_of(array) is owner_of(data)
        ]
        if len(same) != 1:
            return
        for node in named_in(same[0]):
            value = last_given(source, node)
            if value is not None:
                chain, made = CallChain(given, {**chain.instead, node: value}), value
                yield chain, made
                break
        else:
            return


# -- the elements ----------------------------------------------------------------------------------


def _is_plain(array: Array) -> bool:
    """Whether an array holds numbers as PyTorch does, in memory that is NumPy's own."""
    root = owner_of(array)
    fit = type(root) is np.ndarray and base_of(root) is None and root.flags.owndata
    return bool(fit and array.dtype.kind in "fiub" and array.dtype.isnative) and (
        array.itemsize in _WORDS and array.size > 1
    )


def _tried(
    chain: CallChain, begins: ast.expr, source: Array, data: Array, variables: Variables
) -> _WayShown | None:
    """Return how the calls of a chain show the elements of what they begin with: of any values.

    None where they compute, choose or order, or where the elements at hand are others.
    """
    if not _is_plain(source) or owner_of(source) is owner_of(data):
        return None
    if source.size not in (data.size, owner_of(data).size) or source.nbytes > LARGEST:
        return None
    ways = [way for way in _ways(data, source) if _shown_by(way, data, source) is not None]
    if not ways:
        return None
    other = _of_other_values(source)
    try:
        with np.errstate(all="ignore"):
            found = ChainOnOthers(chain, begins, other, variables).value(chain.node)
    except Exception:  # noqa: BLE001 -- NumPy refuses what the program does not give it
        return None
    if type(found) is not np.ndarray or found.dtype != data.dtype or found.shape != data.shape:
        return None
    return next((way for way in ways if _shown_by(way, found, other) is not None), None)


def _of_other_values(array: Array) -> Array:
    """Return an array that lies as another, of all kinds of values in no order."""
    made = np.empty_like(array, subok=False)
    draw = np.random.Generator(np.random.PCG64(7))
    block: Any
    if array.dtype.kind == "f":
        block = draw.normal(size=_BLOCK) * 2.0 ** draw.integers(-9, 10, _BLOCK)
        block[:4] = np.nan, -np.inf, np.inf, -0.0
    elif array.dtype.kind == "b":
        block = draw.integers(0, 2, _BLOCK)
    else:
        ends = np.iinfo(array.dtype)
        block = draw.integers(ends.min, ends.max, _BLOCK, array.dtype, endpoint=True)
    np.copyto(made, np.resize(block.astype(array.dtype), array.shape))
    return made


def _met(
    line: _EntryLine, variables: Variables, data: Array, *, shared: bool
) -> _ShownElements | None:
    """Return the elements of the array that a line leads to, as its tensor would show them.

    None where it has others this time, or could not take the place of what came in.
    """
    begins = arrays_in(line.chain, variables)
    if len(begins) != 1 or begins[0][0] is not line.begins or not _is_plain(begins[0][1]):
        return None
    source = begins[0][1]
    if owner_of(source) is owner_of(data) or (shared and not source.flags.writeable):
        return None
    shown = _shown_by(line.way, data, source)
    if shown is None:
        return None
    steps = zip(shown.strides, shown.shape, strict=True)
    fit = all(size == 1 or (step > 0 and not step % shown.itemsize) for step, size in steps)
    return _ShownElements(shown, owner_of(source)) if fit else None


def _ways(array: Array, source: Array) -> Iterator[_WayShown]:
    for whole in (False, True):
        held = owner_of(array) if whole else array
        if held.ndim == source.ndim <= _AXES:
            for axes in itertools.permutations(range(source.ndim)):
                if tuple(source.shape[one] for one in axes) == held.shape:
                    yield _WayShown(axes, whole)
        if held.size == source.size and held.shape != source.shape:
            yield _WayShown(None, whole)


def _shown_by(way: _WayShown, array: Array, source: Array) -> Array | None:
    """Return the view of `source` that has the elements of an array; None where there is none."""
    held = owner_of(array) if way.whole else array
    if way.axes is not None:
        if len(way.axes) != source.ndim:
            return None
        shown = source.transpose(way.axes)
    else:
        if not (held.flags.c_contiguous and source.flags.c_contiguous) or held.size != source.size:
            return None
        shown = source.reshape(held.shape)
    if shown.shape != held.shape or not _alike(held, shown):
        return None
    return _part(array, held, shown) if way.whole else shown


def _alike(wide: Array, source: Array) -> bool:
    """Whether an array has the elements of another, as they are or in a wider format."""
    some = tuple(slice(None, None, max(1, size // 8)) for size in wide.shape)
    if wide.dtype == source.dtype:
        words = _WORDS[wide.itemsize]
        here, there = wide.view(words), source.view(words)
        return np.array_equal(here[some], there[some]) and np.array_equal(here, there)
    if not wide.dtype.kind == source.dtype.kind == "f" or wide.itemsize <= source.itemsize:
        return False
    with np.errstate(all="ignore"):
        if not np.array_equal(wide[some], source[some].astype(wide.dtype), equal_nan=True):
            return False
        narrow = wide.astype(source.dtype)
        return _alike(narrow, source) and np.array_equal(narrow, wide, equal_nan=True)


def _part(array: Array, held: Array, shown: Array) -> Array | None:
    """Return the part of a view that an array is of what the view shows: its slices."""
    if not held.flags.c_contiguous:
        return None
    at, width = address_of(array) - address_of(held), held.itemsize
    first = np.unravel_index(at // width, held.shape)
    strides = [_stride(step, size, held, shown)
               for step, size in zip(array.strides, array.shape, strict=True)]  # fmt: skip
    if at % width or None in strides:
        return None
    begin = shown[tuple(slice(int(one), None) for one in first)]
    return np.lib.stride_tricks.as_strided(begin, array.shape, [one or 0 for one in strides])


def _stride(step: int, size: int, held: Array, shown: Array) -> int | None:
    """Return what a step through an array in order is in the view of another."""
    if size == 1:
        return shown.itemsize
    for own, length, there in zip(held.strides, held.shape, shown.strides, strict=True):
        if step >= own > 0:
            times = step // own
            return None if step % own or times * (size - 1) >= length else there * times
    return None
