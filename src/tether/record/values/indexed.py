"""Which elements of a tensor an index of whole numbers and slices names."""

from __future__ import annotations

from typing import Any

import torch

Ints = tuple[int, ...]

View = tuple[int, Ints, Ints]
"""Offset, shape and strides in a storage, in elements."""

_KINDS = frozenset({int, slice, type(None), type(...)})
_ALL = slice(None)


def without_ellipsis(key: tuple[Any, ...], dimensions: int) -> tuple[Any, ...]:
    """Return an index with whole dimensions in the place of its ellipsis, if it has one.

    Each thing beside it that is not None takes one dimension: no mask of several is among them.
    """
    places = [n for n, one in enumerate(key) if one is ...]
    if len(places) != 1:
        return key
    at, named = places[0], sum(one is not None for one in key) - 1
    return (*key[:at], *[_ALL] * (dimensions - named), *key[at + 1 :])


def region_of(tensor: torch.Tensor, key: Any) -> View | None:
    """Return the elements that an index names; None where it is of another kind."""
    parts = key if type(key) is tuple else (key,)
    if not _KINDS.issuperset(map(type, parts)):
        return None
    parts = without_ellipsis(parts if ... in parts else (*parts, ...), tensor.dim())
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
