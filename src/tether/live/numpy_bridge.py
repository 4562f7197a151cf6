"""Tensors on NumPy's memory and arrays on PyTorch's."""

from __future__ import annotations

import warnings
from typing import Any

import torch

_BITS = {1: torch.uint8, 2: torch.uint16}
"""Bytes of an element -> the dtype under which both sides know its bits."""


def extension_array(x: torch.Tensor, name: str) -> Any:
    """Return an array on the bytes of `x`, of the type that ml_dtypes calls `name`.

    Raises `ImportError` when ml_dtypes is not there.
    """
    import ml_dtypes

    return x.view(_BITS[x.element_size()]).numpy().view(getattr(ml_dtypes, name))


def is_array(x: Any) -> bool:
    """Whether `x` is a NumPy array, without importing NumPy for it."""
    return type(x).__module__ == "numpy" and type(x).__name__ in {"ndarray", "memmap"}


def tensor_on(x: Any) -> torch.Tensor:
    """Return `x` if it is a tensor, else a tensor on the memory of this array.

    Raises `TypeError` for other objects and for arrays of a type that torch lacks.
    """
    if isinstance(x, torch.Tensor):
        return x
    if not is_array(x):
        raise TypeError(f"a tensor or a NumPy array is expected, not {type(x).__name__}")
    if x.dtype.name in {"bfloat16"} or x.dtype.name.startswith("float8_"):
        bits = x.view({1: "uint8", 2: "uint16"}[x.dtype.itemsize])
        return torch.from_numpy(bits).view(getattr(torch, x.dtype.name))
    with warnings.catch_warnings():
        # The one warning here is that the array is read-only: nothing is written to a mere look.
        warnings.simplefilter("ignore", UserWarning)
        return torch.from_numpy(x)
