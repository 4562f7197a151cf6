"""Which bytes of its memory a tensor shows, and whether two tensors show any of the same."""

from __future__ import annotations

import functools
import math
import re

from tether.facts import UNKNOWN, Operand


def extent(operand: Operand) -> tuple[int, int]:
    """First element that an operand can touch in its storage, and the one after its last."""
    if any(size == 0 for size in operand.shape):
        return operand.offset, operand.offset
    reach = sum((n - 1) * abs(s) for n, s in zip(operand.shape, operand.strides, strict=False))
    return operand.offset, operand.offset + reach + 1


_ELEMENT = {"bool": 1, "complex32": 4, "complex64": 8, "complex128": 16}


@functools.cache
def element_size(dtype: str) -> int:
    """Return the bytes of one element: the first number in a type's name is its bits.

    What is smaller than a byte is packed: an element of PyTorch's is a byte of several.
    """
    bits = re.search(r"\d+", dtype)
    return _ELEMENT.get(dtype) or (max(1, int(bits[0]) // 8) if bits else 4)


def may_overlap(a: Operand, b: Operand) -> bool:
    """Whether two operands on one memory can have elements in common.

    They have none if their extents are apart, or if the remainders of their positions are: two
    columns of one matrix, or a column and the columns beside it. Views of another storage or
    element size, and those too intricate to tell, count as overlapping.
    """
    if a.storage != b.storage or a.dtype != b.dtype:
        return True
    if a.offset == b.offset:  # the first element of both, unless one has none
        return 0 not in a.shape and 0 not in b.shape
    (first, last), (other_first, other_last) = extent(a), extent(b)
    if first >= other_last or other_first >= last:
        return False
    return not _interleaved(b.offset - a.offset, _steps(a), _steps(b))


_Steps = tuple[tuple[int, int], ...]
_Runs = tuple[tuple[int, int], ...]
"""Of remainders without a gap: the first, and the one after the last."""
_MOST = 4096  # runs that are looked at


def _steps(operand: Operand) -> _Steps:
    """Size and stride of each dimension in which an operand moves at all."""
    pairs = zip(operand.shape, operand.strides, strict=False)
    return tuple([(size, stride) for size, stride in pairs if size > 1 and stride])


@functools.lru_cache(maxsize=1 << 14)
def _interleaved(distance: int, a: _Steps, b: _Steps) -> bool:
    """Whether remainders prove that two strided sets, `distance` apart, have nothing in common."""
    for modulus in sorted({stride for _, stride in (*a, *b)}, reverse=True):
        one, other = _remainders(0, a, modulus), _remainders(distance, b, modulus)
        if modulus > 1 and one and other and _apart(one, other):
            return True
    return False


def _remainders(start: int, steps: _Steps, modulus: int) -> _Runs:
    """Return the remainders of all positions; none where they are too many to look at."""
    width, others = _side_by_side(steps, modulus)
    if width >= modulus or math.prod(size for size, _ in others) > _MOST:
        return ()
    firsts = {start % modulus}
    for size, stride in others:
        firsts = {(at + n * stride) % modulus for at in firsts for n in range(size)}
    over = [(0, at + width - modulus) for at in firsts if at + width > modulus]
    return (*over, *((at, min(at + width, modulus)) for at in firsts))


def _side_by_side(steps: _Steps, modulus: int) -> tuple[int, list[tuple[int, int]]]:
    """Return how many positions lie side by side, and the dimensions that say where they do.

    Without those that move by multiples of a number.
    """
    width, others = 1, list[tuple[int, int]]()
    for size, stride in sorted(steps, key=lambda step: step[1]):
        if stride == width and stride < modulus:
            width *= size
        elif stride % modulus:
            others.append((size, stride))
    return width, others


def _apart(a: _Runs, b: _Runs) -> bool:
    """Whether no run of one set meets one of the other."""
    until = [-1, -1]
    for first, last, whose in sorted([(*run, 0) for run in a] + [(*run, 1) for run in b]):
        if first < until[1 - whose]:
            return False
        until[whose] = max(until[whose], last)
    return True


def overlaps(a: Operand, b: Operand) -> bool:
    """Whether two operands of one known storage span common elements, by their extents."""
    return a.storage == b.storage != UNKNOWN and may_overlap(a, b)
