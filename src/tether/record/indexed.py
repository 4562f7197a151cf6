"""Which elements of a tensor an index of whole numbers and slices names."""

from __future__ import annotations

from typing import Any

import torch

Region = tuple[int, tuple[int, ...], tuple[int, ...]]
"""Offset, shape and strides in a storage, in elements."""

_KINDS = frozenset({int, slice, type(None), type(...)})
_ALL = slice(None)


def region_of(tensor: torch.Tensor, key: Any) -> Region | None:
    """Return the elements that an index names; None where it is of another kind."""
    parts = key if type(key) is tuple else (key,)
    if not _KINDS.issuperset(map(type, parts)):
        return None
    left_out = tensor.dim() - sum(part is not None and part is not ... for part in parts)
    at = parts.index(...) if ... in parts else len(parts)
    parts = (*parts[:at], *[_ALL] * left_out, *parts[at + 1 :])
    offset, shape, strides = int(tensor.storage_offset()), list[int](), list[int]()
    left = [*zip(tensor.shape, tensor.stride(), strict=True)]
    for part in parts:
        size, stride = left[0] if left else (1, 1)
        if part is None:  # a dimension of its own, which lies around the next one
            shape.append(1)
            strides.append(size * stride)
            continue
        del left[0]
        if type(part) is int:
            offset += stride * (part % size)
        else:
            first, last, step = part.indices(size)
            offset += stride * first
            shape.append(len(range(first, last, step)))
            strides.append(stride * step)
    return offset, tuple(shape), tuple(strides)
