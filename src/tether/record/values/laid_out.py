"""Whether a call gives the same bits when it is given a copy's source, which lies in another way.

A sum or a product of matrices may round in another order under other strides; whether it does is
asked of PyTorch. The call is made once more with the source, or where that is gone with the same
elements laid out as it was, and its result compared and thrown away, as its gradients are where it
has a graph (`gradients_again`): of operations that do nothing but add up (`Operation.rounds`), on
the CPU, up to `LIMIT` bytes, for at most 2 % of the run's time either way, and only where nobody
would hear it. A call that was not made again has no fact.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any, NamedTuple

import torch

from tether.facts import EventId, Tried
from tether.record.budget import Budget
from tether.record.identity import Snapshot
from tether.record.tape import Tape
from tether.record.values.altered import alone
from tether.record.values.gradients_again import (
    Call,
    Others,
    backward_alone,
    drawing_unheard,
    exchanged,
    same_bits,
    with_gradients,
)
from tether.record.values.indexed import Ints, View

# What a tensor says of itself, whatever a program has put in the place of its methods.
_base = torch._C.TensorBase
_stride, _offset, _is_inference = _base.stride, _base.storage_offset, _base.is_inference
_is_cpu, _nbytes = vars(_base)["is_cpu"].__get__, vars(_base)["nbytes"].__get__

LIMIT = 16 << 20
_Gives = Callable[[Others], Ints | None]
_Other = tuple[int, torch.Tensor, torch.Tensor]  # a place among what a call reads, and what for it
_ALIGNED = 64  # elements: where a memory begins, a kernel may begin in another way
_LAST = 64  # copies that are known at a time
_KINDS = 1_024  # of calls that trained, of which it is known how many there were


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
        self._kinds: dict[tuple[Any, ...], int] = {}  # calls of each that trained
        self._budget = Budget(0.02, allowed=0.2)
        self._trained = Budget(0.02, allowed=0.3)  # of calls that are made with their gradients

    def made(self, result: torch.Tensor, source: torch.Tensor) -> None:
        """Remember a copy of a tensor, if it lies in another way."""
        alike = source.shape == result.shape and source.dtype == result.dtype
        if alike and _fit(result):
            self.remember(result, source, geometry_of(source))

    def remember(self, result: torch.Tensor, source: torch.Tensor, view: View) -> None:
        """Remember that a result has the elements that a view of a source's memory shows."""
        geometry = geometry_of(result)
        if _steps(view) == _steps(geometry):
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
        if tensor.requires_grad:
            laid = None  # the gradients of places that are one are added up where they became many
        if laid is None or laid.version != version_of(tensor) or laid.version < 0:
            return _stride(tensor)
        view = carried(geometry_of(tensor), laid.geometry, laid.view)
        if view is None:
            return _stride(tensor)
        pairs = zip(_stride(tensor), view[2], strict=True)
        return tuple(0 if other == 0 else stride for stride, other in pairs)

    def read(
        self, func: Callable[..., Any], call: Call,
        given: tuple[Sequence[torch.Tensor], Sequence[Snapshot]], result: torch.Tensor, event: int,
        *, draws: bool,
    ) -> None:  # fmt: skip
        """Make a call again for each argument that is such a copy, and compare the results."""
        laid = [
            (at, tensor, copy)
            for at, (tensor, seen) in enumerate(zip(*given, strict=False))
            if (copy := self.copies.get(seen[1])) is not None
        ]
        budget = self._trained if result.requires_grad else self._budget
        if not laid or budget.late() or not self._may_repeat(func, given[0], result):
            return
        with budget, drawing_unheard() if draws else nullcontext():
            others = [(at, one, _source_of(one, copy)) for at, one, copy in laid]
            known = [(at, one, other) for at, one, other in others if other is not None]
            for at, strides in _compared(func, call, result, known, draws=draws).items():
                self._found(event, at, result, strides)

    def _may_repeat(
        self, func: Callable[..., Any], given: Sequence[torch.Tensor], result: torch.Tensor
    ) -> bool:
        """Whether a call may be made again now, with its gradients where its result has a graph."""
        plain = _fit(result) and alone()
        return plain and (not result.requires_grad or self._is_due(func, given))

    def _found(self, event: int, at: int, result: torch.Tensor, strides: Ints | None) -> None:
        """Note by which strides a call would give the same, None where it would not."""
        other = strides if strides is not None and strides != result.stride() else ()
        self.facts.append(Tried(EventId(event), at, strides is not None, other))

    def _is_due(self, func: Callable[..., Any], given: Sequence[torch.Tensor]) -> bool:
        """Whether a call is to be made again with its gradients, which cost several calls.

        Of each kind the first three are, and the 4th, 8th, 16th... None is before the program's own
        first backward pass: the engine may start threads with its first, and cannot be used in a
        process that is forked from then on.
        """
        if not (self._tape.has_passed and all(map(_is_own, given)) and backward_alone()):
            return False
        if len(self._kinds) > _KINDS:
            self._kinds.clear()
        kind = func, *((one.shape, _stride(one), one.dtype, one.requires_grad) for one in given)
        count = self._kinds[kind] = self._kinds.get(kind, 0) + 1
        return count <= 3 or not count & (count - 1)


def _compared(
    func: Callable[..., Any], call: Call, result: torch.Tensor, others: Sequence[_Other],
    *, draws: bool,
) -> dict[int, Ints | None]:  # fmt: skip
    """Return by which strides the same result lies if one argument, or any, or all are others.

    None where it is not the same, or lies in a way of its own where all are others.
    """
    if not others:
        return {}
    gives: _Gives = partial(_gives, func, call, result)
    if result.requires_grad:
        gives = with_gradients(func, call, result, draws=draws)
    alone = {at: gives({id(one): other}) for at, one, other in others}
    if len(others) < 2 or None in alone.values():
        return alone
    together = gives({id(one): other for _, one, other in others})
    if together not in alone.values():
        return dict.fromkeys(alone)
    return alone | {~sum(1 << at for at in alone): together}


def _gives(
    func: Callable[..., Any], call: Call, result: torch.Tensor, others: Others
) -> Ints | None:
    """Return the strides of what a call gives with others, if it has a result's bits; else None."""
    try:
        args, kwargs = exchanged(call, lambda one: others.get(id(one), one))
        with torch.no_grad():
            again = func(*args, **kwargs)
        alike = type(again) is type(result) and again.shape == result.shape
        return _stride(again) if alike and same_bits(again, result) else None
    except Exception:  # noqa: BLE001 -- a call may refuse other strides: then the copy is needed
        return None


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


def _is_own(tensor: torch.Tensor) -> bool:
    """Whether a tensor is PyTorch's own on the CPU, that a leaf may stand for."""
    plain = type(tensor) in (torch.Tensor, torch.nn.Parameter)
    return plain and _is_cpu(tensor) and tensor.layout is torch.strided
