"""Which elements of a tensor an index of whole numbers and slices names."""

from __future__ import annotations

from typing import Any

import torch

Region = tuple[int, tuple[int, ...], tuple[int, ...]]
"""Offset, shape and strides in a storage, in elements."""

_KINDS = frozenset({int, slice, type(...)})
_ALL = slice(None)


def region_of(tensor: torch.Tensor, key: Any) -> Region | None:
    """Return the elements that an index names; None where it is of another kind."""
    parts = key if type(key) is tuple else (key,)
    if not _KINDS.issuperset(map(type, parts)):
        return None
    left_out = tensor.dim() - len(parts)
    if ... in parts:
        at = parts.index(...)
        parts = (*parts[:at], *[_ALL] * (left_out + 1), *parts[at + 1 :])
    else:
        parts = (*parts, *[_ALL] * left_out)
    offset, shape, strides = int(tensor.storage_offset()), list[int](), list[int]()
    for part, size, stride in zip(parts, tensor.shape, tensor.stride(), strict=True):
        if type(part) is int:
            offset += stride * (part % size)
        else:
            first, last, step = part.indices(size)
            offset += stride * first
            shape.append(len(range(first, last, step)))
            strides.append(stride * step)
    return offset, tuple(shape), tuple(strides)
