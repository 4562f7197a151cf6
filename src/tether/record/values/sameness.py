"""What a call gave that was there already: looked at when it returns, where its name does not say.

A choice by an index may take everything in order, and a tensor made of an array or a list may be
one that left for it. Indices are read and elements compared by their bits, on the CPU, for at most
1 % of the run's time and up to `LIMIT` bytes; what was not looked at has no fact.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.lib.stride_tricks import as_strided

from tether.facts import LEAST_OF_A_LIST, EventId, Same, StorageId, TensorId
from tether.operations.table import operation
from tether.record.arrays.contents import Array, fingerprint, sum_of, words_of
from tether.record.arrays.drawn import DrawnLog
from tether.record.arrays.entered import EnteredLog
from tether.record.arrays.listed import ListedLog
from tether.record.arrays.memory import address_of, is_array
from tether.record.arrays.taken import TakenLog
from tether.record.budget import Budget
from tether.record.identity import Snapshot
from tether.record.tape import Tape
from tether.record.values.equals import EqualLog, by_value
from tether.record.values.indexed import Ints, View, without_ellipsis
from tether.record.values.laid_out import LaidOutLog, geometry_of
from tether.record.values.whole_numbers import WholeNumbersLog

LIMIT = 16 << 20
_LEAST = 3  # elements of a dimension that are in order by no chance, where they are not all
_SHORT = 4096  # numbers of an index that is read at a few microseconds
_LEFT = 64  # tensors that left for an array or a list and may come back
_LISTS = 1024  # and lists that may be parts of one

_PLAIN_ROWS = ((), (None, None, 2.0, False, False))  # of a table, without padding or bounds

Shown = tuple[torch.Tensor, View]
"""A tensor, and a view of its memory."""


class _Seen(NamedTuple):
    """The elements of a tensor when it became a list."""

    view: View
    sum: int


class _Gone(NamedTuple):
    """A tensor that became an array or a list."""

    tensor: weakref.ref[torch.Tensor]
    snapshot: Snapshot
    dtype: torch.dtype
    event: int
    marks: tuple[Any, ...]  # numbers that it became, which no other list has
    seen: _Seen | None  # as it was, where the list may outlive it


class SameLog:
    """Finds what calls gave that was there already."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape
        self.facts: list[Same] = []
        self._left: deque[_Gone] = deque(maxlen=_LEFT)
        self._lists: dict[int, _Gone] = {}  # by the identity of the first number that is kept
        self._budget = Budget(0.01, allowed=0.05)
        self.taken = TakenLog(tape, self._budget)
        self.listed = ListedLog(tape)
        self.entered = EnteredLog(self.listed)
        self.drawn = DrawnLog(tape.arrays)
        self.laid_out = LaidOutLog(tape)
        self._whole_numbers = WholeNumbersLog(tape)
        self._equals = EqualLog()
        self._whole: dict[tuple[str, int], bool] = {}  # lines whose choices took everything

    # -- a choice --------------------------------------------------------------------------------

    def picked(self, line: tuple[str, int], args: tuple[Any, ...], result: Any, event: int) -> None:
        """Look at a call that chose elements of its arguments, into memory of its own.

        A few numbers that choose are read each time, for as long as the line takes everything.
        """
        if not _fit(result):
            return
        name, *_ = line
        key = _key(name, args)
        numbers = 0 if key is None else _numbers_of(key)
        found = None if key is None else self._of_one(key, args[0], result)
        any_choice = found is not None
        found = found or _padded_by_nothing(name, args)
        equal = False
        if found is None and self._is_due(line, key, numbers):
            with self._budget:
                found, equal = _compared(key, args, result)
            self._whole[line] = found is not None
        if found is not None:
            few = 0 < numbers < _LEAST and result.numel() < found[0].numel()
            self._found(
                event, result, found, event, any_choice=any_choice, few=few, equal=equal
            )  # fmt: skip
            if not result.requires_grad:  # what its gradient adds up is another question
                self.laid_out.remember(result, *found)

    def _is_due(self, line: tuple[str, int], key: tuple[Any, ...] | None, numbers: int) -> bool:
        """Whether to look at a choice: its line took everything, and there is time for it."""
        if key is None and operation(line[0]).rows:
            return False  # rows that are no more than equal, or get other gradients
        return self._whole.get(line, True) and (0 < numbers <= _SHORT or not self._budget.late())

    def _of_one(self, key: tuple[Any, ...], source: Any, result: torch.Tensor) -> Shown | None:
        """Look at a choice among places that have one value: by strides, or as copies of one."""
        if not isinstance(source, torch.Tensor) or source.dtype != result.dtype:
            return None
        strides, dimension = self.laid_out.alike(source), _dimension(key)
        if not 0 <= dimension < len(strides) or strides[dimension]:
            return None
        view = _by_key(source, key, strides)
        return (source, view) if view is not None and view[1] == tuple(result.shape) else None

    # -- any call ---------------------------------------------------------------------------------

    def made(
        self, name: str, place: tuple[int, int], event: int, result: torch.Tensor,
        given: Sequence[torch.Tensor],
    ) -> None:  # fmt: skip
        """Look at a large result in new memory; calls only lead back where there is no graph."""
        line, found = (name, *place), None
        chosen = operation(name).rows  # of a table: looked at as any choice
        if not chosen and self._equals.open(line) and self._wanted(result):
            with self._budget:
                found = self._equals.look(line, result, given)
                if found is not None and not (self.facts and self.facts[-1].event == event):
                    equal = operation(name).picks and found[0] is given[0]
                    self._found(event, result, found, event, equal=equal)
        if not result.requires_grad:
            self._equals.remember(result if found is None else found[0])

    # -- a conversion ----------------------------------------------------------------------------

    def converted(self, result: torch.Tensor, source: torch.Tensor, event: int) -> None:
        """Look at a call that gave the elements it was given in another format."""
        self._whole_numbers.converted(result, source, event)
        if not (self._whole_numbers.leads_back(result, source) and self._wanted(result)):
            return
        with self._budget:
            found = self._whole_numbers.came_back(result, source)
        if found is not None:
            self._note(event, result, (found.source, found.view), found.since)

    # -- out and in again ------------------------------------------------------------------------

    def left(self, tensor: torch.Tensor, event: int, data: Any = None) -> None:
        """Remember a tensor that became an array or a list."""
        marks, seen = _marks(data), None
        if marks and tensor.nbytes >= LEAST_OF_A_LIST and self._wanted(tensor):
            with self._budget:
                seen = self._seen(tensor)
        snapshot = self._tape.who.snapshot(tensor)
        gone = _Gone(weakref.ref(tensor), snapshot, tensor.dtype, event, marks, seen)
        self._left.append(gone)
        if seen is not None:
            self._lists[id(marks[0])] = gone
            if len(self._lists) > _LISTS:
                del self._lists[next(iter(self._lists))]

    def _seen(self, tensor: torch.Tensor) -> _Seen | None:
        total = fingerprint(tensor)
        if total is None:
            return None
        view = int(tensor.storage_offset()), tuple(tensor.shape), tensor.stride()
        return _Seen(view, total)

    def came(
        self, event: int, site: int, data: Any, result: Any, root: torch.Tensor | None
    ) -> None:
        """Look at a tensor made of data; `root` is the one on whose memory the data lies."""
        if isinstance(data, torch.Tensor) or not _fit(result):
            return
        if root is None:
            self.drawn.look(event, data, result)  # its facts are of all calls of a line, or none
        if root is None:
            self.taken.taken(event, site, data, result)
        late = self._budget.late()
        if late and self.entered.late():
            return
        self.entered.look(event, data, result, 0 if late else self._lists_in(data, result))
        if not late:
            with self._budget:
                self._look_back(event, data, result, root)

    def _look_back(
        self, event: int, data: Any, result: torch.Tensor, root: torch.Tensor | None
    ) -> None:
        """Look for the tensor that became what was made into a tensor."""
        if root is not None:
            if not _shares(data, result):
                self._copied_from(root, event, data, result)
        elif (found := self.origin(data, result)) is not None:
            gone, shown = found
            self._found(event, result, shown, gone.event, sure=_met(gone.marks, data))
        elif isinstance(data, (list, tuple)):
            self._outlived(event, data, result)

    def _copied_from(self, root: torch.Tensor, event: int, data: Any, result: torch.Tensor) -> None:
        """Look which tensor an array came from, of those on its memory: it may have gone since."""
        lying = self._tape.who.storage_of(root)
        for gone in reversed(self._left):
            if lying is None or gone.snapshot[1] != lying.serial or gone.dtype != result.dtype:
                continue
            view = in_memory(root, data, result)
            if view is not None:
                self._note(event, result, (gone.snapshot, view), gone.event)
            return

    def origin(self, data: Any, result: torch.Tensor) -> tuple[_Gone, Shown] | None:
        """Return which tensor left for an array or a list that data has the elements of.

        A list of other numbers than those that left is another's, though all are equal: a file's.
        """
        for gone in reversed(self._left):
            source, marks = gone.tensor(), gone.marks
            if source is None or source.dtype != result.dtype or source is result:
                continue
            other = isinstance(data, (list, tuple)) and marks and not _met(marks, data)
            view = None if other else by_value(source, result)
            if view is not None:
                return gone, (source, view)
        return None

    def _outlived(self, event: int, data: Any, result: torch.Tensor) -> None:
        """Look whether a list is what a tensor became that has gone since."""
        for gone in reversed(self._left):
            seen = gone.seen
            if seen is None or gone.tensor() is not None or not _met(gone.marks, data):
                continue
            alike = seen.view[1] == tuple(result.shape) and gone.dtype == result.dtype
            if alike and fingerprint(result) == seen.sum:
                self._note(event, result, (gone.snapshot, seen.view), gone.event)
                return

    def _lists_in(self, data: Any, result: torch.Tensor) -> int:
        """Return how many lists that tensors became some data is, one after the other; or 0."""
        if not self._lists or type(data) is not list:
            return 0
        with self._budget:
            return self._parts(data, result)

    def _parts(self, data: list[Any], result: torch.Tensor) -> int:
        """Count the lists, of which each stands in data as one element, or with all of its own."""
        at = count = 0
        words, whole = words_of(result), tuple(result.shape)
        while words is not None and at < len(data):
            gone = self._lists.get(id(_end(data[at : at + 1], 0)))
            seen = gone.seen if gone is not None else None
            if gone is None or seen is None:
                return 0
            shape = seen.view[1]
            step = 1 if whole[1:] == shape else shape[0]
            alike = whole[1:] in (shape, shape[1:]) and gone.dtype == result.dtype
            if not (alike and _met(gone.marks, data[at : at + step])):
                return 0
            if sum_of(words[at : at + step]) != seen.sum:
                return 0
            at, count = at + step, count + 1
        return count if count > 1 else 0

    def _wanted(self, result: Any) -> bool:
        """Whether a result can be looked at, and there is time left for it."""
        return _fit(result) and not self._budget.late()

    def _found(
        self, event: int, result: torch.Tensor, found: Shown, since: int, **kind: bool,
    ) -> None:  # fmt: skip
        source, view = found
        self._note(event, result, (self._tape.who.snapshot(source), view), since, **kind)

    def _note(
        self, event: int, result: torch.Tensor, found: tuple[Snapshot, View], since: int,
        **kind: bool,
    ) -> None:  # fmt: skip
        made, (shown, view) = self._tape.who.snapshot(result), found
        if made[1] == shown[1] or shown[1] < 0:
            return
        self.facts.append(
            Same(
                EventId(event), TensorId(made[0]), TensorId(shown[0]), StorageId(shown[1]),
                view[0], view[2], EventId(since), **kind,
            )
        )  # fmt: skip


def _fit(result: Any) -> bool:
    """Whether a result is of a kind and a size to be looked at."""
    if not isinstance(result, torch.Tensor) or not result.is_cpu or result.numel() < 2:
        return False
    if result.layout is not torch.strided:
        return False  # no place of its memory is one of its elements
    return result.numel() * result.element_size() <= LIMIT


def _marks(data: Any) -> tuple[Any, ...]:
    """Return the first and the last number of a list, unless Python has one object for all alike.

    As long as they are kept, no other number has their identity.
    """
    if not isinstance(data, (list, tuple)):
        return ()
    ends = [_end(data, at) for at in (0, -1)]
    return tuple(one for one in ends if type(one) is float or (type(one) is int and one >> 9))


def _end(data: Any, at: int) -> Any:
    while isinstance(data, (list, tuple)) and data:
        data = data[at]
    return data


def _met(marks: tuple[Any, ...], data: Any) -> bool:
    """Whether some numbers are themselves the first and the last of a list."""
    found = {id(one) for one in _marks(data)}
    return bool(marks) and all(id(one) in found for one in marks)


def chosen(name: str, args: tuple[Any, ...], result: torch.Tensor) -> Shown | None:
    """Return the view of an argument that a call which chose elements could have given."""
    return _chosen(_key(name, args), args, result)


def _chosen(
    key: tuple[Any, ...] | None, args: tuple[Any, ...], result: torch.Tensor
) -> Shown | None:
    for source in args:
        if not isinstance(source, torch.Tensor) or source.dtype != result.dtype:
            continue
        view = _by_key(source, key) if key is not None else by_value(source, result)
        if view is not None and view[1] == tuple(result.shape):
            return source, view
    return None


def _compared(
    key: tuple[Any, ...] | None, args: tuple[Any, ...], result: torch.Tensor
) -> tuple[Shown | None, bool]:
    """Return what a choice could have given, and whether others in its places were only equal.

    Where these get a gradient, that of each goes elsewhere.
    """
    found = _chosen(key, args, result)
    if found is not None:
        return found, key is None and not _in_order(args)
    source = args[0]
    if key is None or result.requires_grad or not isinstance(source, torch.Tensor):
        return None, False
    if (source.dtype, source.shape) != (result.dtype, result.shape):
        return None, False
    view = by_value(source, result)
    return (None if view is None else (source, view)), True


def _padded_by_nothing(name: str, args: tuple[Any, ...]) -> Shown | None:
    """Return what `pad` was given, whole, where all its widths are zero."""
    source, widths, *_ = args if name == "pad" and len(args) > 1 else (None, ())
    plain = isinstance(source, torch.Tensor) and isinstance(widths, (list, tuple))
    if not plain or not all(type(one) is int and one == 0 for one in widths):
        return None
    return source, geometry_of(source)


def _in_order(args: tuple[Any, ...]) -> bool:
    """Whether places along a dimension, as `gather` is given them, are all of them in order.

    Also of a call that is given none.
    """
    source, *rest = args
    places = next((one for one in rest if isinstance(one, torch.Tensor)), None)
    along = next((one for one in rest if type(one) is int), None)
    numbers = None if places is None else _numbers(places)
    if numbers is None or along is None or numbers.shape != tuple(source.shape):
        return True
    order = np.arange(numbers.shape[along]).reshape(-1, *[1] * (-along % numbers.ndim - 1))
    return bool((numbers == order).all())


def _numbers_of(key: tuple[Any, ...]) -> int:
    """Return how many numbers an index has that choose; 0 where there are none."""
    return sum(
        one.numel() if isinstance(one, torch.Tensor) else len(one)
        for one in key
        if isinstance(one, (torch.Tensor, list, tuple, np.ndarray))
    )


# -- by index --------------------------------------------------------------------------------------


def _key(name: str, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """Return what stands between the brackets, for a call that can be written so."""
    if name == "__getitem__":
        key = args[1] if type(args[1]) is tuple else (args[1],)
        masked = any(isinstance(one, torch.Tensor) and one.dtype == torch.bool for one in key)
        return key if masked else without_ellipsis(key, args[0].dim())
    if name == "index_select" and len(args) > 2 and type(args[1]) is int:
        ahead = args[1] % max(args[0].dim(), 1)
        return (*[slice(None)] * ahead, args[2])
    if operation(name).rows and args[2:] in _PLAIN_ROWS and args[0].numel() <= len(args[1]):
        return _rows(args[0])
    return None


def _rows(index: torch.Tensor) -> tuple[Any, ...] | None:
    """Return what stands between the brackets for rows of a table; none where it is a grid."""
    ahead = index.dim() - 1
    if ahead < 1:
        return (index,)
    numbers = _numbers(index) if index.numel() == index.shape[-1] else None
    return None if numbers is None else (*[None] * ahead, numbers.reshape(-1))


def _dimension(key: tuple[Any, ...]) -> int:
    """Return the dimension that the one choice in an index is along; -1 where there are others."""
    places = [n for n, one in enumerate(key) if not _is_basic(one)]
    ahead = key[: places[0]] if len(places) == 1 else (Ellipsis,)
    return -1 if any(one is Ellipsis for one in ahead) else sum(one is not None for one in ahead)


def _by_key(source: torch.Tensor, key: tuple[Any, ...], strides: Ints | None = None) -> View | None:
    """Return the view that an index would be, were it made of slices; None where it is none."""
    places = [n for n, one in enumerate(key) if not _is_basic(one)]
    if len(places) != 1 or any(type(one) is int for one in key):
        return None
    at = places[0]
    chosen = _numbers(key[at])
    if chosen is None or any(one is Ellipsis for one in key[:at]):
        return None
    shape, first = tuple(source.shape), int(source.storage_offset())
    strides = source.stride() if strides is None else strides
    if chosen.dtype == np.bool_ and chosen.ndim > 1:
        return _whole(first, shape, strides, chosen) if len(key) == 1 else None
    return _sliced(first, shape, strides, key, at, chosen)


def _whole(first: int, shape: Ints, strides: Ints, mask: Array) -> View | None:
    """Return the view that a mask of several dimensions is, where it takes everything."""
    every = bool(mask.all()) and mask.shape == shape[: mask.ndim]
    joined = _flattened(shape, strides, mask.ndim) if every else None
    return None if joined is None else (first, *joined)


def _sliced(
    first: int, shape: Ints, strides: Ints, key: tuple[Any, ...], at: int, chosen: Array
) -> View | None:
    """Return the view that an index is with a slice in the place of one choice."""
    dimension = _dimension(key)
    if dimension >= len(shape):
        return None
    taken = _slice(chosen, shape[dimension])
    if not strides[dimension] and chosen.ndim == 1 and chosen.dtype != np.bool_:
        # All places along it are one element, whichever are chosen.
        shape, taken = (*shape[:dimension], len(chosen), *shape[dimension + 1 :]), slice(None)
    if taken is None:
        return None
    # Strides of one byte an element, on memory that is never looked at.
    plain = as_strided(np.zeros(1, np.uint8), shape, strides)
    view = plain[(*key[:at], taken, *key[at + 1 :])]
    distance = view.__array_interface__["data"][0] - plain.__array_interface__["data"][0]
    return first + distance, view.shape, view.strides


def _is_basic(one: Any) -> bool:
    return one is None or one is Ellipsis or type(one) in (slice, int)


def _numbers(one: Any) -> Array | None:
    """Return an index as an array of numbers or of truths."""
    if isinstance(one, torch.Tensor):
        words = words_of(one)
        if words is None or one.dtype.is_floating_point or 0 in one.stride():
            return None
        return words.astype(np.bool_) if one.dtype is torch.bool else words.astype(np.int64)
    if isinstance(one, (list, range, np.ndarray)):
        found = np.asarray(one)
        return found if found.dtype.kind in "bi" else None
    return None


def _slice(chosen: Array, size: int) -> slice | None:
    """Return the slice that takes what an index of one dimension takes, in its order."""
    if chosen.ndim != 1 or not chosen.size:
        return None
    if chosen.dtype == np.bool_:
        return slice(None) if chosen.size == size and chosen.all() else None
    first = int(chosen[0]) % size
    step = int(chosen[1]) - int(chosen[0]) if chosen.size > 1 else 1
    last = first + step * (chosen.size - 1)
    if step < 1 or last >= size or not bool((np.diff(chosen) == step).all()):
        return None
    return slice(first, last + 1, step)


def _flattened(shape: Ints, strides: Ints, count: int) -> tuple[Ints, Ints] | None:
    """Return shape and strides with the first dimensions made one, None where they cannot be."""
    if count > len(shape):
        return None
    size = shape[count - 1]
    for n in reversed(range(count - 1)):
        if strides[n] != shape[n + 1] * strides[n + 1]:
            return None
        size *= shape[n]
    return (size, *shape[count:]), (strides[count - 1], *strides[count:])


def _shares(data: Any, result: torch.Tensor) -> bool:
    """Whether a tensor shows the very memory of an array."""
    words = words_of(result)
    if words is None or not is_array(data):
        return words is None
    return address_of(words) == address_of(data)


def in_memory(root: torch.Tensor, data: Any, result: torch.Tensor) -> View | None:
    """Return the view that an array on a tensor's memory is."""
    if not isinstance(data, np.ndarray) or data.dtype.itemsize != root.element_size():
        return None
    words, width = words_of(result), data.dtype.itemsize
    start = address_of(data) - root.untyped_storage().data_ptr()
    places = (start, *data.strides)
    if words is None or any(one % width or one < 0 for one in places):
        return None
    if data.shape != tuple(result.shape) or data.dtype.kind not in "fiub":
        return None
    if not np.array_equal(data.view(words.dtype), words):
        return None
    return start // width, data.shape, tuple(one // width for one in data.strides)
