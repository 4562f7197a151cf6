"""What the elements of a tensor are, read where they lie: no call that anyone could hear.

Only memory of the CPU is read. On another device, or where a tensor has none of its own (a sparse
tensor, a wrapper), the answer is None: to wait for a device would slow the program.
"""

from __future__ import annotations

import ctypes
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

Array = npt.NDArray[Any]

_SIZES = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
_REALS: dict[torch.dtype, Any] = {
    torch.float16: np.float16, torch.float32: np.float32, torch.float64: np.float64,
    torch.complex64: np.float32, torch.complex128: np.float64,
}  # fmt: skip
_READ_ONLY = 0x100  # PyBUF_READ
_memory_view = ctypes.pythonapi.PyMemoryView_FromMemory
_memory_view.restype = ctypes.py_object
_memory_view.argtypes = (ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int)
_shared_until_written: Callable[[torch.Tensor], bool] = getattr(
    torch._C, "_is_cow_tensor", lambda _: False
)


def words_of(tensor: torch.Tensor) -> Array | None:
    """Return the elements of a tensor as whole numbers of their bits, on its own memory.

    A complex element is two. Dimensions of stride zero, in which all elements are one, are left
    out; not those of one element, whose stride says nothing: NumPy's `array[None]` has a zero.
    """
    try:
        if not _is_readable(tensor):
            return None
        width = tensor.element_size()
        kept = [
            (size, stride * width)
            for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
            if stride or size < 2
        ]
        address = tensor.data_ptr()
    except Exception:  # noqa: BLE001 -- a tensor may be of any type; then nothing is known
        return None
    shape, strides = tuple(size for size, _ in kept), tuple(step for _, step in kept)
    if tensor.is_complex():
        width //= 2
        shape, strides = (*shape, 2), (*strides, width)
    if 0 in shape or not address:
        return np.zeros(0, np.uint8)
    reach = width + sum((size - 1) * step for size, step in zip(shape, strides, strict=True))
    return np.ndarray(shape, _SIZES[width], memory_at(address, reach), 0, strides)


def _is_readable(tensor: torch.Tensor) -> bool:
    """Whether the elements lie on the host as an ordinary tensor's do."""
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or not tensor.is_cpu:
        return False
    return tensor.layout is torch.strided and not _shared_until_written(tensor)


def memory_at(address: int, size: int) -> memoryview:
    """Return some bytes of memory, to be read where they lie.

    An array of ctypes would do, but is of a new class each time, which only the collector frees.
    """
    view: memoryview = _memory_view(address, size, _READ_ONLY)
    return view


def is_zero(tensor: torch.Tensor) -> bool | None:
    """Whether every element is zero, of either sign; None where that cannot be read."""
    words = words_of(tensor)
    if words is None:
        return None
    if not words.size:
        return True
    if _without_sign(tensor, words.flat[0]):
        return False
    return not bool(_without_sign(tensor, words).any())


def has_zero(tensor: torch.Tensor) -> bool | None:
    """Whether any element is zero, of either sign; None where that cannot be read."""
    words = words_of(tensor)
    if words is None:
        return None
    return not bool(_without_sign(tensor, words).all())


def _without_sign(tensor: torch.Tensor, words: Any) -> Any:
    """Return words, or one of them, without the bit that tells a negative zero from a zero."""
    if not (tensor.is_floating_point() or tensor.is_complex()):
        return words
    return words & words.dtype.type((1 << (8 * words.itemsize - 1)) - 1)


def fingerprint(tensor: torch.Tensor) -> int | None:
    """Return a check sum of the elements, by their bits; None where they cannot be read."""
    words = words_of(tensor)
    return None if words is None else sum_of(words)


def sum_of(words: Array) -> int:
    """Return a check sum of some words."""
    if not words.flags.c_contiguous:
        words = np.ascontiguousarray(words)
    return zlib.crc32(words.data) if words.size else 0


def is_finite(tensor: torch.Tensor) -> bool | None:
    """Whether no element is NaN or infinite; None where that cannot be read."""
    words, kind = words_of(tensor), _REALS.get(tensor.dtype)
    if words is None or kind is None:
        return None
    return bool(np.isfinite(words.view(kind)).all())


def span_of(tensor: torch.Tensor) -> tuple[float, float] | None:
    """Return the least and the greatest element of a tensor of real numbers, where all are finite.

    None where they cannot be read.
    """
    words, kind = words_of(tensor), _REALS.get(tensor.dtype)
    if words is None or kind is None or tensor.is_complex() or not words.size:
        return None
    low, high = float(words.view(kind).min()), float(words.view(kind).max())
    return (low, high) if np.isfinite([low, high]).all() else None
