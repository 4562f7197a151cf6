"""Elements that living memory keeps several times over: looked for while the program runs.

Frames stacked whole into a replay buffer, overlapping windows of a series, heads that are repeated
before they are cached: no call tells of it. So at the 64th, 128th, 256th... event, and at the end,
what the variables lead to is gone through: the tensors and arrays of a container, and the slices of
each large one along each of its dimensions. A sample of neighbours is compared: whether one has all
the elements of another, or goes on from it as a window that moves. What is the same for want of
anything in it (zeros, labels, masks of one row) does not count.

What was so at two looks, and is so still, is told; of tensors one look is enough. For at most
1 % of the run's time.
"""

from __future__ import annotations

import collections
import itertools
import sys
import weakref
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from tether.facts import UNKNOWN, KeptAgain, Moment, TensorId
from tether.record.arrays.contents import Array, shared_until_written, words_of
from tether.record.arrays.memory import holds_objects, size_of, stretch_of
from tether.record.budget import Budget
from tether.record.objects import (
    LEAVES,
    ObjectWalk,
    is_kept_inside,
    is_tethers,
    parts_of,
    variables_of_frames,
)
from tether.record.tape import Tape
from tether.record.values.refilled import MetArrays, RefilledArrays

LEAST = 1 << 20
"""Bytes kept beside those that are distinct, from which they are told."""

BITS = 256
"""Information in what is the same, from which it is not so by chance: that of 32 random bytes."""

FIRST = 64
"""Events before the first look."""

VISITS = 20_000
"""Objects that one look goes through."""

DEPTH = 8

_RUN, _RUNS = 8, 8  # neighbours of a stretch that are compared, and stretches of a container
_SLICES = 512  # of one tensor that are compared with each other
_PROBES = 16  # elements that are compared before all are
_COUNTED = 1024  # elements by which an item is judged
_TRIED = 8  # pairs that have all their elements compared; ways in which one may go on
_LARGEST = 16 << 20  # bytes of a slice that is compared
_LOOKS = 2  # at the same, after which nothing is expected of a third
_SHOWN = 8  # tensors that a fact names
_DIMENSIONS = 5


class _Share(NamedTuple):
    """What one look found: what there is of something, and how much of that is distinct."""

    kept: float  # the share of it that tells anything
    distinct: float  # of that
    moves: bool  # each goes on from the one before
    axis: int


class _LookedAt:
    """What the looks have found of one name."""

    def __init__(self, fact: KeptAgain, items: Sequence[Any]) -> None:
        self.fact = fact
        self.items = [weakref.ref(one) for one in {id(one): one for one in items}.values()]

    def lives(self) -> bool:
        """Whether any of what was there is still alive."""
        return any(one() is not None for one in self.items)


class KeptAgainLog:
    """Looks for what is kept several times over, at every doubling of the events."""

    def __init__(self, tape: Tape, refilled: RefilledArrays) -> None:
        self._tape = tape
        self._refilled = refilled
        self._known: dict[tuple[Any, ...], _LookedAt] = {}
        self._in_vain: collections.Counter[tuple[Any, ...]] = collections.Counter()
        self._budget = Budget(0.01, allowed=0.2)
        tape.log.look(FIRST, self._due)

    def _due(self) -> None:
        if not self._budget.late():
            self.look(variables_of_frames(sys._getframe(1)))

    def look(self, roots: Iterable[tuple[str, Any]]) -> None:
        """Look at what some variables lead to."""
        try:
            with torch._C.DisableTorchFunction():
                with self._budget:
                    met = MetArrays()
                    groups = _groups(roots, met)
                    self._refilled.look(met.several())
                for name, items in groups:
                    if self._budget.late():
                        return
                    with self._budget:
                        self._compare(name, items)
        except Exception as error:  # noqa: BLE001 -- the program's objects may do anything
            self._tape.failed("looking for what is kept twice", error)

    def _compare(self, name: str, items: list[Any]) -> None:
        """Look at the items of one shape in a container, or at one tensor alone."""
        single = len(items) == 1
        key = (id(items[0]) if single else name, str(items[0].dtype), tuple(items[0].shape))
        if self._in_vain[key] >= _LOOKS:
            return
        share = _of_one(items[0]) if single else _of_many(_Items(items, along=False))
        before = self._known.pop(key, None)
        if share is None:
            return
        if 2 * share.distinct > 1:
            self._in_vain[key] += 1
            return
        self._in_vain[key] = 0
        if single and share.kept < 1:
            share = share._replace(kept=_filled(items[0], share.axis))
        kept = int(sum(map(_size, items)) * share.kept)
        if kept * (1 - share.distinct) >= LEAST:
            again = before is not None and before.lives()
            since = before.fact.at if again and before is not None else Moment(UNKNOWN)
            self._known[key] = self._looked_at(name, items, share, kept, since)

    def _looked_at(
        self, name: str, items: list[Any], share: _Share, kept: int, since: Moment
    ) -> _LookedAt:
        chosen, single = _spread(items), len(items) == 1
        refs = [self._tape.who.find(one) for one in chosen if type(one) is torch.Tensor]
        slices = items[0].shape[share.axis] if single else 0
        fact = KeptAgain(
            Moment(self._tape.now()), since, name,
            tuple(TensorId(one.serial) for one in refs if one is not None),
            round(slices * share.kept) if single else len(items),
            kept, int(kept * share.distinct), share.axis, share.moves, single, slices,
        )  # fmt: skip
        return _LookedAt(fact, chosen)

    def facts(self) -> list[object]:
        """Return what was seen at two looks, or is of tensors: calls tell how old those are."""
        found = [one.fact for one in self._known.values()]
        return [one for one in found if one.since != UNKNOWN or one.tensors]


def _spread(items: Sequence[Any]) -> list[Any]:
    return [items[int(n)] for n in np.linspace(0, len(items) - 1, min(_SHOWN, len(items)))]


# -- what the variables lead to ---------------------------------------------------------------


def _groups(roots: Iterable[tuple[str, Any]], met: MetArrays) -> list[tuple[str, list[Any]]]:
    """Return what is large enough: by container and shape, and each large one by itself."""
    found: dict[tuple[Any, ...], dict[tuple[int, int], Any]] = collections.defaultdict(dict)
    singles: dict[tuple[int, int], tuple[str, list[Any]]] = {}
    for path, value in _memories(roots, met):
        name, inside, _ = path.partition("[")
        described = _described(value)
        if described is None:
            continue
        where, size, kind = described
        if inside:
            found[name, *kind].setdefault(where, value)
        if size > LEAST:
            singles.setdefault(where, (path, [value]))
    groups = [(key[0], list(some.values())) for key, some in found.items() if len(some) > 1]
    large = [one for one in groups if sum(map(_size, one[1])) > LEAST]
    return [*large, *singles.values()]


def _memories(roots: Iterable[tuple[str, Any]], met: MetArrays) -> Iterator[tuple[str, Any]]:
    """Yield the tensors without a gradient, and the arrays, by the first name of each."""
    walk = ObjectWalk(((name, value, 0) for name, value in roots), VISITS)
    for path, value, depth in walk:
        kind = type(value)
        if kind is np.ndarray:
            met.met(value)
        if kind in LEAVES or walk.times(value) > 1:
            continue
        if issubclass(kind, (torch.Tensor, np.ndarray)) and not _has_objects(value):
            yield path, value
        elif depth < DEPTH and not is_kept_inside(kind) and not is_tethers(kind):
            walk.add((name, part, depth + 1) for name, part in parts_of(path, value))


def _has_objects(value: Any) -> bool:
    return issubclass(type(value), np.ndarray) and holds_objects(value)


def _described(value: Any) -> tuple[tuple[int, int], int, tuple[Any, ...]] | None:
    """Return where the elements lie, their bytes, and the type and shape that alike ones share.

    Of plain arrays, and of tensors on the host that have no gradient and memory of their own.
    """
    if type(value) is np.ndarray:
        return stretch_of(value), size_of(value), (str(value.dtype), value.shape)
    if type(value) is not torch.Tensor:
        return None
    try:
        if value.requires_grad or not value.is_cpu or value.layout is not torch.strided:
            return None
        if shared_until_written(value):
            return None
        size = value.nbytes
        return (value.data_ptr(), size), size, (str(value.dtype), tuple(value.shape))
    except Exception:  # noqa: BLE001 -- one that functorch wraps has no memory; a method is replaced
        return None


def _size(value: Any) -> int:
    return size_of(value) if type(value) is np.ndarray else value.nbytes


def _array_of(value: Any) -> Array | None:
    """Return the elements as words, where each of them has a place of its own."""
    words = words_of(value) if type(value) is torch.Tensor else value
    if words is None or words.nbytes != _size(value):
        return None
    begin, end = stretch_of(words)
    if end - begin < words.nbytes or words.dtype.kind not in "iufb":
        return None
    return words if words.dtype.kind != "f" else words.view(f"u{words.itemsize}")


# -- how much of it is distinct ---------------------------------------------------------------


class _Items:
    """The items of a container, or the slices of one tensor, as arrays of one shape."""

    def __init__(self, items: Any, *, along: bool) -> None:
        self._items, self.along = items, along
        self.count = len(items)

    def at(self, numbers: Iterable[int]) -> list[Array]:
        """Return some of them, where each can be read."""
        some = [self._items[number] for number in numbers]
        found = some if self.along else map(_array_of, some)
        return [one for one in found if one is not None and one.size]

    def alike(self) -> list[list[int]]:
        """Return the numbers of the first items, those together that may be equal."""
        groups: dict[bytes, list[int]] = collections.defaultdict(list)
        if self.along:
            some = self._items[:_SLICES]
            probes = some[(slice(None), *_places(some.shape[1:]))]
        else:
            found = self.at(range(min(self.count, _RUN * _RUNS)))
            probes = [one[_places(one.shape)] for one in found]
        for number, one in enumerate(probes):
            groups[one.tobytes()].append(number)
        return list(groups.values())

    def apart(self, one: Array, other: Array) -> bool:
        """Whether two items lie in memory apart; slices of one tensor do."""
        if self.along:
            return True
        (begin, end), (first, last) = stretch_of(one), stretch_of(other)
        return end <= first or last <= begin

    def same(self, numbers: list[int]) -> bool:
        """Whether the first, the second and the last of some items are equal, and lie apart."""
        first, *others = self.at(dict.fromkeys((*numbers[:2], numbers[-1])))
        return all(self.apart(first, one) and np.array_equal(first, one) for one in others)


def _of_one(value: Any) -> _Share | None:
    """Look along each dimension of one tensor; return what the best of them shows."""
    words = _array_of(value)
    if words is None or tuple(words.shape) != tuple(value.shape) or not _tells(words):
        return None
    found = []
    for axis in range(min(words.ndim, _DIMENSIONS) if words.ndim > 1 else 0):
        part = _of_many(_Items(np.moveaxis(words, axis, 0), along=True))
        if part is not None:
            found.append(part._replace(axis=axis))
    return min(found, key=lambda one: round(one.distinct, 4), default=None)


def _of_many(items: _Items) -> _Share | None:
    """Look at items of one shape; None where there is nothing to tell."""
    first = items.at(range(min(items.count, 2)))
    if len(first) < 2 or first[0].nbytes > _LARGEST:
        return None
    return _equal(items) or _moving(items)


def _equal(items: _Items) -> _Share | None:
    """Look whether some items have the same elements as others."""
    groups = items.alike()
    count = sum(map(len, groups))
    if 2 * len(groups) > count:
        return None
    several = sorted((some for some in groups if len(some) > 1), key=len, reverse=True)
    told = [some for some in several[:_TRIED] if _tells(items.at(some[:1])[0])]
    if not told or not all(map(items.same, told)):
        return None
    dull = sum(map(len, several[:_TRIED])) - sum(map(len, told))
    again = sum(len(some) - 1 for some in (*told, *several[_TRIED:]))
    left = count - dull
    return _Share(left / count, (left - again) / left, moves=False, axis=UNKNOWN)


def _filled(value: Any, axis: int) -> float:
    """Return the share of a tensor's slices that hold more than one value throughout."""
    words = _array_of(value)
    if words is None:
        return 0.0
    slices = np.moveaxis(words, axis, 0)
    chosen = np.unique(np.linspace(0, len(slices) - 1, min(len(slices), _SLICES)).astype(np.int64))
    places = np.broadcast_arrays(*(one[None] for one in _places(slices.shape[1:], _COUNTED)))
    probes = slices[(chosen[:, None], *places)]
    return float((probes != probes[:, :1]).any(axis=1).mean())


def _moving(items: _Items) -> _Share | None:
    """Look whether each item goes on from the one before, as a window that moves does."""
    pairs, share, dull = 0, 0.0, 0
    for n in range(_RUNS):
        first = (items.count - _RUN) * n // (_RUNS - 1) if items.count > _RUN else 0
        run = items.at(range(first, min(first + _RUN, items.count)))
        for one, other in itertools.pairwise(run):
            same = _goes_on(one, other) if items.apart(one, other) else 0.0
            if not _tells(other):
                dull += 1
                continue
            pairs, share = pairs + 1, share + same
        if (n and not share and pairs) or items.count <= _RUN:
            break
    if not pairs:
        return None
    distinct = (1 + (items.count - 1) * (1 - share / pairs)) / items.count
    return _Share(pairs / (pairs + dull), distinct, moves=True, axis=UNKNOWN)


def _goes_on(one: Array, other: Array) -> float:
    """Return which share of its elements one item has of the one before, moved along."""
    for axis, size in enumerate(other.shape):
        before, after = np.moveaxis(one, axis, 0), np.moveaxis(other, axis, 0)
        places = _places(before.shape[1:])
        hits = before[: min(size // 2 + 1, _SLICES)][(slice(None), *places)] == after[0][places]
        starts = np.flatnonzero(hits.reshape(len(hits), -1).all(axis=1))
        for start in starts[starts > 0][:_TRIED].tolist():
            if np.array_equal(before[start:], after[: size - start]):
                return float((size - start) / size)
    return 0.0


def _places(shape: tuple[int, ...], most: int = _PROBES) -> tuple[Any, ...]:
    """Return the indices of some elements, spread over all of them."""
    total = int(np.prod(shape))
    spread = np.linspace(0, total - 1, min(total, most)).astype(np.int64)
    return tuple(np.unravel_index(spread, shape)) if shape else ()


def _tells(one: Array) -> bool:
    """Whether an item holds enough that another is the same by no chance."""
    counts = np.unique(one[_places(one.shape, _COUNTED)], return_counts=True)[1]
    shares = counts / counts.sum()
    return bool(-(shares * np.log2(shares)).sum() * one.size >= BITS)
