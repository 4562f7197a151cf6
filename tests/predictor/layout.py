"""Shapes and strides: where a view's elements lie in its storage.

Everything is counted in elements. The functions raise `LayoutError` where PyTorch refuses.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

from tether.analysis.copies import layouts

Ints = tuple[int, ...]


class LayoutError(ValueError):
    """The view asked for does not exist."""


class Layout(NamedTuple):
    """How a tensor lies in its storage."""

    shape: Ints
    strides: Ints
    offset: int = 0

    @property
    def numel(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def contiguous(self) -> bool:
        """Whether the elements lie one after the other, in order of the indices."""
        expected = 1
        for size, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if size != 1 and stride != expected:
                return self.numel == 0
            expected *= size
        return True

    @property
    def dense(self) -> bool:
        """Whether the elements fill a stretch of memory, each once, in whatever order."""
        expected = 1
        for stride, size in sorted(zip(self.strides, self.shape, strict=True)):
            if size == 1:
                continue
            if stride != expected:
                return False
            expected *= size
        return True


def fresh(shape: Ints) -> Layout:
    """Return the contiguous layout of a shape in memory of its own."""
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return Layout(shape, tuple(reversed(strides)))


def preserved(layout: Layout) -> Layout:
    """Return the layout of a copy that keeps strides, as `clone` does.

    The strides of a dense tensor stay; of any other the order of its dimensions does.
    """
    if layout.dense:
        return Layout(layout.shape, layout.strides)
    return elementwise((layout,))


def elementwise(operands: Sequence[Layout]) -> Layout:
    """Return the layout of what a call computes element by element, as `TensorIterator` decides.

    Operands that are all contiguous, or all dense in one and the same way, give their own layout;
    otherwise the dimensions are ordered by the operands' strides, the first operand first.
    Raises `LayoutError` when the shapes do not fit together.
    """
    shape = broadcast(*(one.shape for one in operands))
    strides = layouts.elementwise(
        [one.shape for one in operands], [one.strides for one in operands]
    )
    assert strides is not None
    return Layout(shape, strides)


def overlaps_itself(layout: Layout) -> bool:
    """Whether several elements are plainly one, as in an expanded tensor."""
    return any(
        size > 1 and stride == 0 for size, stride in zip(layout.shape, layout.strides, strict=True)
    )


def overlaps_partly(one: Layout, other: Layout) -> bool:
    """Whether two dense tensors in one storage share some elements but not all in order."""
    if not (one.numel and other.numel and one.dense and other.dense):
        return False
    if one.offset == other.offset and one.numel == other.numel:
        return one.strides != other.strides
    return one.offset < other.offset + other.numel and other.offset < one.offset + one.numel


def reshaped(layout: Layout, shape: Ints) -> Layout | None:
    """Return the layout under another shape on the same memory; None when the strides forbid it.

    Raises `LayoutError` when the number of elements differs.
    """
    if prod(shape) != layout.numel:
        raise LayoutError(f"shape '{list(shape)}' is invalid for input of size {layout.numel}")
    if layout.numel == 0:
        return Layout(shape, fresh(shape).strides, layout.offset)
    strides: list[int] = []
    wanted = list(shape)
    base = layout.strides[-1] if layout.strides else 1
    chunk, view = 1, 1
    for d in reversed(range(len(layout.shape))):
        chunk *= layout.shape[d]
        ends = d == 0 or (layout.shape[d - 1] != 1 and layout.strides[d - 1] != chunk * base)
        if not ends:
            continue
        while wanted and (view < chunk or wanted[-1] == 1):
            strides.append(view * base)
            view *= wanted.pop()
        if view != chunk:
            return None
        if d > 0:
            base, chunk, view = layout.strides[d - 1], 1, 1
    strides += [base if not strides else strides[-1]] * len(wanted)
    return Layout(shape, tuple(reversed(strides)), layout.offset)


def permuted(layout: Layout, order: Ints) -> Layout:
    """Return the layout with its dimensions in another order."""
    if sorted(d % len(layout.shape) for d in order) != list(range(len(layout.shape))):
        raise LayoutError(f"{order} is no order of the dimensions")
    return Layout(
        tuple(layout.shape[d] for d in order),
        tuple(layout.strides[d] for d in order),
        layout.offset,
    )


def narrowed(layout: Layout, dimension: int, start: int, length: int, step: int = 1) -> Layout:
    """Return a window of one dimension."""
    dimension = _dimension(layout, dimension)
    shape, strides = list(layout.shape), list(layout.strides)
    offset = layout.offset + start * strides[dimension]
    shape[dimension], strides[dimension] = length, strides[dimension] * step
    return Layout(tuple(shape), tuple(strides), offset)


def sliced(layout: Layout, dimension: int, chosen: slice) -> Layout:
    """Return what a Python slice leaves of one dimension; the step must be positive."""
    start, stop, step = chosen.indices(layout.shape[dimension])
    if step < 1:
        raise LayoutError("step must be greater than zero")
    return narrowed(layout, dimension, start, len(range(start, stop, step)), step)


def selected(layout: Layout, dimension: int, index: int) -> Layout:
    """Return one place of a dimension, which goes away."""
    dimension = _dimension(layout, dimension)
    size = layout.shape[dimension]
    if not -size <= index < size:
        raise LayoutError(f"index {index} is out of bounds for dimension 0 with size {size}")
    window = narrowed(layout, dimension, index % size, 1)
    return _without(window, dimension)


def unsqueezed(layout: Layout, dimension: int) -> Layout:
    """Return the layout with a dimension of size one more."""
    dimension %= len(layout.shape) + 1
    inner = layout.shape[dimension:], layout.strides[dimension:]
    stride = inner[0][0] * inner[1][0] if inner[0] else 1
    return Layout(
        (*layout.shape[:dimension], 1, *inner[0]),
        (*layout.strides[:dimension], stride, *inner[1]),
        layout.offset,
    )


def squeezed(layout: Layout) -> Layout:
    """Return the layout without its dimensions of size one."""
    kept = [d for d, size in enumerate(layout.shape) if size != 1]
    return Layout(
        tuple(layout.shape[d] for d in kept),
        tuple(layout.strides[d] for d in kept),
        layout.offset,
    )


def expanded(layout: Layout, shape: Ints) -> Layout:
    """Return the layout seen several times over; -1 keeps a size."""
    ahead = len(shape) - len(layout.shape)
    if ahead < 0:
        raise LayoutError("fewer dimensions than the tensor has")
    sizes: list[int] = []
    strides: list[int] = []
    for d, size in enumerate(shape):
        own = layout.shape[d - ahead] if d >= ahead else 1
        stride = layout.strides[d - ahead] if d >= ahead else 0
        wanted = own if size == -1 else size
        if own not in (wanted, 1):
            raise LayoutError(f"size {wanted} must match the existing size {own}")
        if d < ahead:
            inner = layout.shape[0] * layout.strides[0] if layout.shape else 1
            stride = inner if wanted == 1 and d == ahead - 1 else 0
        sizes.append(wanted)
        strides.append(stride if wanted == own else 0)
    return Layout(tuple(sizes), tuple(strides), layout.offset)


def diagonal(layout: Layout) -> Layout:
    """Return the diagonal of the first two dimensions, as the last one."""
    if len(layout.shape) < 2:
        raise LayoutError("diagonal dimensions cannot be identical 0, 0")
    size = min(layout.shape[:2])
    return Layout(
        (*layout.shape[2:], size),
        (*layout.strides[2:], layout.strides[0] + layout.strides[1]),
        layout.offset,
    )


def broadcast(*shapes: Ints) -> Ints:
    """Return the shape that operands of these shapes give together."""
    result: list[int] = []
    for d in range(1, max(map(len, shapes)) + 1):
        sizes = {shape[-d] for shape in shapes if len(shape) >= d} - {1}
        if len(sizes) > 1:
            raise LayoutError(f"sizes {sorted(sizes)} do not fit together")
        result.append(sizes.pop() if sizes else 1)
    return tuple(reversed(result))


def _dimension(layout: Layout, dimension: int) -> int:
    count = len(layout.shape)
    if not -count <= dimension < max(count, 1) or not count:
        raise LayoutError(f"dimension {dimension} is out of range for {count} dimensions")
    return dimension % count


def _without(layout: Layout, dimension: int) -> Layout:
    keep = [d for d in range(len(layout.shape)) if d != dimension]
    return Layout(
        tuple(layout.shape[d] for d in keep),
        tuple(layout.strides[d] for d in keep),
        layout.offset,
    )
