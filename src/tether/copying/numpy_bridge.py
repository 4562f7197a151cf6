"""Tensors on NumPy's memory and arrays on PyTorch's."""

from __future__ import annotations

import warnings
from typing import Any

import torch

from tether.copying.intent import Refused

_BITS = {1: torch.uint8, 2: torch.uint16}
"""Bytes of an element -> the dtype under which both sides know its bits."""


def extension_array(x: torch.Tensor, name: str) -> Any:
    """Return an array on the bytes of `x`, of the type that ml_dtypes calls `name`.

    Raises `ImportError` when ml_dtypes is not there.
    """
    import ml_dtypes

    return x.view(_BITS[x.element_size()]).numpy().view(getattr(ml_dtypes, name))


def is_plain_array(x: Any) -> bool:
    """Whether `x` is an array of NumPy's own classes, without importing NumPy for it.

    One of a class of the program's is not copied as an array. The recorder follows those too:
    `record.arrays.memory.is_array`.
    """
    return type(x).__module__ == "numpy" and type(x).__name__ in {"ndarray", "memmap"}


def is_readonly(x: Any) -> bool:
    """Whether `x` is an array that refuses writes."""
    return is_plain_array(x) and not x.flags.writeable


def _why_not(x: Any) -> str:
    """Return why torch cannot lie on the memory of this array; "" where it can."""
    if any(stride < 0 for stride in x.strides):
        return "torch has no negative strides"
    return "" if x.dtype.isnative else "torch knows the machine's own byte order only"


def copyable(x: Any, memory: str) -> Any:
    """Return `x`, or a copy of an array that torch could not read where it is to be copied.

    Raises `Refused` where its memory is to be shared.
    """
    if not is_plain_array(x) or not _why_not(x):
        return x
    if memory == "share":
        raise Refused(_why_not(x), 'use memory="own"')
    return x.astype(x.dtype.newbyteorder("="), order="C")


def bytes_of(x: Any) -> torch.Tensor:
    """Return a tensor, or one on the bytes of an array, in whichever order they are met there."""
    if not is_plain_array(x) or not _why_not(x):
        return tensor_on(x)
    forward = tuple(slice(None, None, -1 if stride < 0 else 1) for stride in x.strides)
    return tensor_on(x[forward].view(x.dtype.newbyteorder("=")))


def tensor_on(x: Any) -> torch.Tensor:
    """Return `x` if it is a tensor, else a tensor on the memory of this array.

    Raises `TypeError` for other objects and for arrays of a type that torch lacks, and `Refused`
    for arrays that lie as no tensor can.
    """
    if isinstance(x, torch.Tensor):
        return x
    if not is_plain_array(x):
        raise TypeError(f"a tensor or a NumPy array is expected, not {type(x).__name__}")
    if _why_not(x):
        raise Refused(_why_not(x), "give a copy of the array")
    if x.dtype.name in {"bfloat16"} or x.dtype.name.startswith("float8_"):
        bits = x.view({1: "uint8", 2: "uint16"}[x.dtype.itemsize])
        return torch.from_numpy(bits).view(getattr(torch, x.dtype.name))
    with warnings.catch_warnings():
        # The one warning here is that the array is read-only: nothing is written to a mere look.
        warnings.simplefilter("ignore", UserWarning)
        return torch.from_numpy(x)
