"""Whether a call gives the same bits when it is given a copy's source, which lies in another way.

A sum or a product of matrices may round in another order under other strides; whether it does is
asked of PyTorch. The call is made once more with the source, or where that is gone with the same
elements laid out as it was, and its result compared and thrown away: of operations that do nothing
but add up (`Operation.rounds`), without a graph, on the CPU, up to `LIMIT` bytes, for at most 2 %
of the run's time, and only where nobody would hear it. A call that was not made again has no fact.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch

from tether.facts import EventId, Tried
from tether.record.altered import alone
from tether.record.budget import Budget
from tether.record.contents import words_of
from tether.record.equals import Ints, View
from tether.record.identity import Snapshot
from tether.record.tape import Tape

# What a tensor says of itself, whatever a program has put in the place of its methods.
_base = torch._C.TensorBase
_stride, _offset, _is_inference = _base.stride, _base.storage_offset, _base.is_inference
_is_cpu, _nbytes = vars(_base)["is_cpu"].__get__, vars(_base)["nbytes"].__get__

LIMIT = 16 << 20
_Call = tuple[tuple[Any, ...], dict[str, Any]]
_Other = tuple[int, torch.Tensor, torch.Tensor]  # a place among what a call reads, and what for it
_ALIGNED = 64  # elements: where a memory begins, a kernel may begin in another way
_LAST = 64  # copies that are known at a time


class _Laid(NamedTuple):
    """A copy that lies in another way than its source."""

    source: Callable[[], torch.UntypedStorage | None]  # the memory of the source, while it lives
    view: View  # of it, that has the copy's elements in their order
    geometry: View  # of the copy
    version: int  # of the copy, -1 where it has none


class LaidOutLog:
    """Makes calls again with the sources of what they were given."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape
        self.facts: list[Tried] = []
        self.copies: OrderedDict[int, _Laid] = OrderedDict()  # by the storage of each
        self._budget = Budget(0.02, allowed=0.2)

    def made(self, result: torch.Tensor, source: torch.Tensor) -> None:
        """Remember a copy of a tensor, if it lies in another way."""
        alike = source.shape == result.shape and source.dtype == result.dtype
        if alike and _fit(result):
            self.remember(result, source, geometry_of(source))

    def remember(self, result: torch.Tensor, source: torch.Tensor, view: View) -> None:
        """Remember that a result has the elements that a view of a source's memory shows."""
        geometry = geometry_of(result)
        if result.requires_grad or _steps(view) == _steps(geometry):
            return
        who = self._tape.who
        made, memory = who.snapshot(result)[1], who.storage_of(source)
        if made < 0 or memory is None or made == memory.serial:
            return
        version = version_of(result)
        laid, behind = _Laid(memory, view, geometry, version), self.copies.get(memory.serial)
        first = None if behind is None else carried(view, behind.geometry, behind.view)
        if behind is not None and first is not None:
            laid = _Laid(behind.source, first, geometry, version)  # a copy of a copy
        self.copies[made] = laid
        while len(self.copies) > _LAST:
            self.copies.popitem(last=False)

    def alike(self, tensor: torch.Tensor) -> Ints:
        """Return the strides of a tensor, 0 where all places along a dimension have one value.

        As in a copy of what was expanded, that nobody has written.
        """
        laid = self.copies.get(self._tape.who.snapshot(tensor)[1])
        if laid is None or laid.version != version_of(tensor) or laid.version < 0:
            return _stride(tensor)
        view = carried(geometry_of(tensor), laid.geometry, laid.view)
        if view is None:
            return _stride(tensor)
        pairs = zip(_stride(tensor), view[2], strict=True)
        return tuple(0 if other == 0 else stride for stride, other in pairs)

    def read(
        self, func: Callable[..., Any], call: tuple[tuple[Any, ...], dict[str, Any]],
        given: tuple[Sequence[torch.Tensor], Sequence[Snapshot]], result: torch.Tensor, event: int,
    ) -> None:  # fmt: skip
        """Make a call again for each argument that is such a copy, and compare the results."""
        laid = [
            (at, tensor, copy)
            for at, (tensor, seen) in enumerate(zip(*given, strict=False))
            if (copy := self.copies.get(seen[1])) is not None
        ]
        if not laid or not (_fit(result) and alone()) or self._budget.late():
            return
        with self._budget:
            others = [(at, one, _source_of(one, copy)) for at, one, copy in laid]
            known = [(at, one, other) for at, one, other in others if other is not None]
            for at, strides in _compared(func, call, known, result).items():
                same, lies = strides is not None, strides != result.stride()
                self.facts.append(Tried(EventId(event), at, same, (strides or ()) if lies else ()))


def _compared(
    func: Callable[..., Any], call: _Call, others: Sequence[_Other], result: torch.Tensor
) -> dict[int, Ints | None]:
    """Return by which strides the same result lies if one argument, or any, is another.

    None where it is not the same, or lies in a way of its own where all are others.
    """
    alone = {at: _gives(func, _with(call, one, other), result) for at, one, other in others}
    if len(others) < 2 or None in alone.values():
        return alone
    for _, one, other in others:
        call = _with(call, one, other)
    together = _gives(func, call, result)
    return alone if together in alone.values() else dict.fromkeys(alone)


def _gives(func: Callable[..., Any], call: _Call, result: torch.Tensor) -> Ints | None:
    """Return the strides of what a call gives, where it has the bits of a result; else None."""
    try:
        with torch.no_grad():
            again = func(*call[0], **call[1])
        if type(again) is not type(result) or again.shape != result.shape:
            return None
        one, other = words_of(again), words_of(result)
        same = one is not None and other is not None and bool(np.array_equal(one, other))
        return _stride(again) if same else None
    except Exception:  # noqa: BLE001 -- a call may refuse other strides: then the copy is needed
        return None


@contextmanager
def drawing_unheard() -> Iterator[None]:
    """Let what is called draw random numbers that the program draws again."""
    before = torch.default_generator.get_state()
    try:
        yield
    finally:
        torch.default_generator.set_state(before)


def _with(call: _Call, tensor: torch.Tensor, other: torch.Tensor) -> _Call:
    """Return the arguments of a call with one tensor in the place of another."""
    args, kwargs = call
    return (
        tuple(_in_place_of(one, tensor, other) for one in args),
        {key: _in_place_of(one, tensor, other) for key, one in kwargs.items()},
    )


def _in_place_of(value: Any, tensor: torch.Tensor, other: torch.Tensor) -> Any:
    """Return an argument, also a list of tensors, with one tensor in the place of another."""
    if value is tensor:
        return other
    if type(value) in (list, tuple):
        return type(value)([_in_place_of(one, tensor, other) for one in value])
    return value


def _source_of(tensor: torch.Tensor, laid: _Laid) -> torch.Tensor | None:
    """Return what a tensor on a copy would be on its source; None where no strides say it.

    Of a source that is gone its layout is kept: the copy's elements are laid out so again.
    """
    memory = laid.source()
    view = carried(geometry_of(tensor), laid.geometry, laid.view)
    if view is None:
        return None
    if memory is None:
        return _laid_as(tensor, view)
    return torch.empty(0, dtype=tensor.dtype).set_(memory, *view)


def _laid_as(tensor: torch.Tensor, view: View) -> torch.Tensor | None:
    """Return a tensor's elements as they lie in a view; None where several would be one, or far."""
    offset, shape, strides = view[0] % _ALIGNED, view[1], view[2]
    reach = offset + 1 + sum((n - 1) * step for n, step in zip(shape, strides, strict=True))
    spread = 0 in strides or reach < tensor.numel() or reach * tensor.element_size() > LIMIT
    if spread:
        return None
    laid = torch.empty(reach, dtype=tensor.dtype).as_strided(shape, strides, offset)
    return laid.copy_(tensor)


def carried(view: View, copy: View, onto: View) -> View | None:
    """Return the view of one memory that a view of a copy of it is.

    Each dimension of the view has to step along one of the copy, as after a permutation, a slice
    or an expansion.
    """
    steps = [one for one in zip(copy[2], copy[1], onto[2], strict=True) if one[1] > 1]
    strides = {0: 0} | {step: other for step, _, other in steps}
    if len(strides) <= len(steps) or min(strides) < 0 or 0 in view[1]:
        return None  # the copy's own elements lie one on the other, or backwards
    pairs = zip(view[1], view[2], strict=True)
    along = [strides.get(step if size > 1 else 0) for size, step in pairs]
    first = _moved(view[0] - copy[0], steps)
    if first is None or None in along:
        return None
    return onto[0] + first, view[1], tuple(one or 0 for one in along)


def _moved(left: int, steps: list[tuple[int, int, int]]) -> int | None:
    """Return how far from its first element a memory has one that is so far from a copy's."""
    moved = 0
    for step, size, other in sorted(steps, reverse=True):
        index = min(left // step, size - 1)
        left, moved = left - index * step, moved + index * other
    return moved if left == 0 else None


def geometry_of(tensor: torch.Tensor) -> View:
    """Return offset, shape and strides of a tensor."""
    return int(_offset(tensor)), tuple(tensor.shape), _stride(tensor)


def version_of(tensor: torch.Tensor) -> int:
    """Return how often a tensor was written, -1 where that is not counted."""
    return -1 if _is_inference(tensor) else int(tensor._version)


def _steps(view: View) -> list[tuple[int, int]]:
    """Return how each dimension of several elements goes."""
    return [one for one in zip(view[1], view[2], strict=True) if one[0] > 1]


def _fit(tensor: torch.Tensor) -> bool:
    plain = type(tensor) is torch.Tensor and _is_cpu(tensor) and tensor.layout is torch.strided
    return plain and 1 < _nbytes(tensor) <= LIMIT
