"""How the elements of tensors lie, and how they would lie if a copy were its source.

A copy that is left out hands its source's strides on to every view of it, and to what is computed
from it element by element. Both are worked out here from the strides that were seen.
"""

from __future__ import annotations

from collections.abc import Sequence

from tether.facts import Operand

Ints = tuple[int, ...]
Dimension = tuple[int, int, int]
"""Size, stride in the copy, stride in its source."""


def same_strides(shape: Ints, one: Ints, other: Ints) -> bool:
    """Whether two sets of strides lay a shape's elements out in the same way."""
    return all(size <= 1 or a == b for size, a, b in zip(shape, one, other, strict=True))


def is_expanded(operand: Operand) -> bool:
    """Whether a tensor shows one element at several places: ``expand``."""
    pairs = zip(operand.shape, operand.strides, strict=True)
    return any(size > 1 and not stride for size, stride in pairs)


def same_layout(a: Operand, b: Operand) -> bool:
    """Whether two tensors of one shape lay their elements out in the same way."""
    return same_strides(a.shape, a.strides, b.strides)


def contiguous(shape: Ints) -> Ints:
    """Return the strides of a tensor whose last dimension is the innermost."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def channels_last(operand: Operand) -> bool:
    """Whether PyTorch takes a tensor of images or of volumes for channels-last."""
    shape, strides = operand.shape, operand.strides
    if len(shape) not in (4, 5) or not strides[1]:
        return False
    least = 0
    for dimension in (1, *range(len(shape) - 1, 1, -1), 0):
        size, stride = shape[dimension], strides[dimension]
        if not size or stride < least or (not dimension and least == strides[1]):
            return False
        least = stride * max(size, 1)
    return True


def last_channels(operand: Operand) -> Operand:
    """Return a tensor of images or of volumes as it would lie with its channels last."""
    batch, channels, *places = operand.shape
    outer, *inner, step = contiguous((batch, *places, channels))
    return operand._replace(strides=(outer, step, *inner))


def remapped(view: Operand, copy: Operand, source: Operand) -> Operand | None:
    """Return a view of a copy as the same view of what it was copied from.

    `source` shows the elements of `copy`, in the same shape. None where no strides can say it: it
    reaches beyond the copy, or groups dimensions anew that do not lie together in the source.
    """
    if view.storage != copy.storage or view.dtype != copy.dtype:
        return None
    if 0 in (*view.shape, *copy.shape):
        return view._replace(storage=source.storage, offset=source.offset)
    dimensions = _joined(copy, source)
    pairs = list(zip(view.shape, view.strides, strict=True))
    moving = [pair for pair in pairs if pair[0] > 1]
    start = _coordinates(view.offset - copy.offset, dimensions)
    steps = [_coordinates(stride, dimensions) for _, stride in moving]
    if not _reaches((start, *steps), moving, dimensions):
        return None
    found = iter([_distance(step or (), dimensions) for step in steps])
    strides = tuple(next(found) if size > 1 else own for size, own in pairs)
    offset = source.offset + _distance(start or (), dimensions)
    return view._replace(storage=source.storage, offset=offset, strides=strides)


def _reaches(
    along: Sequence[Ints | None],
    moving: Sequence[tuple[int, int]],
    dimensions: Sequence[Dimension],
) -> bool:
    """Whether a view stays within each dimension of what it shows, however far it goes.

    `along` has its start and each step as coordinates, None where they have none.
    """
    known = [one for one in along if one is not None]
    if len(known) < len(along):
        return False
    reach, *steps = known
    for (size, _), step in zip(moving, steps, strict=True):
        reach = tuple(at + (size - 1) * by for at, by in zip(reach, step, strict=True))
    return all(at < size for at, (size, _, _) in zip(reach, dimensions, strict=True))


def _joined(copy: Operand, source: Operand) -> list[Dimension]:
    """Return the dimensions of a copy, the outermost first; those that lie together are one."""
    every = sorted(
        [
            (size, a, b)
            for size, a, b in zip(copy.shape, copy.strides, source.strides, strict=True)
            if size > 1
        ],
        key=lambda one: -one[1],
    )
    joined: list[Dimension] = []
    for size, a, b in every:
        if joined and joined[-1][1:] == (size * a, size * b):
            joined[-1] = (joined[-1][0] * size, a, b)
        else:
            joined.append((size, a, b))
    return joined


def _coordinates(distance: int, dimensions: Sequence[Dimension]) -> Ints | None:
    """Return how far along each dimension of a copy some elements of its memory are apart."""
    if distance < 0:
        return None
    found = []
    for size, stride, _ in dimensions:
        along, distance = divmod(distance, stride)
        if along >= size:
            return None
        found.append(along)
    return None if distance else tuple(found)


def _distance(coordinates: Sequence[int], dimensions: Sequence[Dimension]) -> int:
    return sum(at * stride for at, (_, _, stride) in zip(coordinates, dimensions, strict=True))


# -- what is computed element by element -----------------------------------------------------------


def elementwise(shapes: Sequence[Ints], strides: Sequence[Ints]) -> Ints | None:
    """Return the strides of what is computed element by element, as `TensorIterator` decides.

    Operands that are all contiguous, or all dense in one and the same way, give their own layout;
    otherwise the dimensions are ordered by the operands' strides, the first operand first. None
    where the shapes do not fit together.
    """
    shape = _broadcast(shapes)
    if shape is None:
        return None
    pairs = list(zip(shapes, strides, strict=True))
    if all(one == shape for one in shapes):
        if all(same_strides(shape, own, contiguous(shape)) for _, own in pairs):
            return contiguous(shape)
        if len(set(strides)) == 1 and dense(shape, strides[0]):
            return strides[0]
    order = _ordered(shape, [_spread(one, own, shape) for one, own in pairs])
    if order == list(reversed(range(len(shape)))):
        return contiguous(shape)
    found, step = [1] * len(shape), 1
    for dimension in order:
        found[dimension] = step
        step *= shape[dimension]
    return tuple(found)


def _broadcast(shapes: Sequence[Ints]) -> Ints | None:
    shape: list[int] = []
    for depth in range(1, max(map(len, shapes), default=0) + 1):
        sizes = {one[-depth] for one in shapes if len(one) >= depth} - {1}
        if len(sizes) > 1:
            return None
        shape.append(next(iter(sizes), 1))
    return tuple(reversed(shape))


def dense(shape: Ints, strides: Ints) -> bool:
    """Whether elements lie side by side, none twice, in whatever order of the dimensions."""
    step = 1
    for stride, size in sorted(zip(strides, shape, strict=True)):
        if size != 1 and stride != step:
            return False
        step *= size
    return True


def _ordered(shape: Ints, operands: Sequence[Ints]) -> list[int]:
    """Return the dimensions as they are walked, the innermost first."""
    order = list(reversed(range(len(shape))))
    for i in range(1, len(order)):
        here = i
        for there in reversed(range(i)):
            verdict = _compared(operands, shape, order[there], order[here])
            if verdict > 0:
                order[there], order[here] = order[here], order[there]
                here = there
            elif verdict < 0:
                break
    return order


def _spread(own: Ints, strides: Ints, shape: Ints) -> Ints:
    """Return the strides under which an operand is read in the common shape."""
    ahead = len(shape) - len(own)
    return (0,) * ahead + tuple(
        0 if mine == 1 and size != 1 else stride
        for mine, stride, size in zip(own, strides, shape[ahead:], strict=True)
    )


def _compared(operands: Sequence[Ints], shape: Ints, first: int, second: int) -> int:
    """Say which dimension is the inner one: negative the first, positive the second."""
    for strides in operands:
        one, other = strides[first], strides[second]
        if one == 0 or other == 0:
            continue
        if one != other:
            return -1 if one < other else 1
        if shape[first] > shape[second]:
            return 1
    return 0
