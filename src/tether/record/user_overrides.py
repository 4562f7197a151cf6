"""Methods of tensors that the program has replaced: which function a call really means.

PyTorch tells a mode which function it is about to run by looking its name up, and finds the
program's own where that has been put in the place of a method: `torch.Tensor.clone = louder`. But
it is the method itself that asks, called by `louder`, and that must run: `louder` runs already.
"""

from __future__ import annotations

import gc
import os
import types
from typing import Any

import torch
import torch.overrides

_TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
_TETHER = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_KNOWN_TYPES = ("builtins", "torch")  # modules of the types that PyTorch's own functions have
_handle = torch.overrides.handle_torch_function.__code__
_METHOD_WRAPPER = type(property().__get__)


def is_foreign(func: Any) -> bool:
    """Whether a function that PyTorch hands to a mode is none of PyTorch's, nor of ours."""
    if isinstance(func, types.FunctionType):
        return not func.__code__.co_filename.startswith((_TORCH, _TETHER))
    if isinstance(func, _METHOD_WRAPPER):
        owner = func.__self__  # type: ignore[attr-defined]
        if type(owner) is not property:
            return False
        return any(
            is_foreign(one) for one in (owner.fget, owner.fset, owner.fdel) if one is not None
        )
    return type(func).__module__.split(".", 1)[0] not in _KNOWN_TYPES


def original(func: Any, frame: types.FrameType) -> Any:
    """Return what a call of the foreign `func` means, asked for from `frame`.

    That is `func` itself where it takes part in PyTorch's protocol of its own accord, as libraries
    may, and PyTorch's own function where that has been replaced.
    """
    if frame.f_code is _handle:
        return _of_python(func, frame.f_back)
    attribute, part = func, ""
    if isinstance(func, _METHOD_WRAPPER):
        attribute, part = func.__self__, func.__name__  # type: ignore[attr-defined]
    for name, value in vars(torch.Tensor).items():
        if value is attribute:
            found = getattr(torch._C.TensorBase, name, None)
            return (getattr(found, part, None) if part else found) or func
    return func


def _of_python(func: Any, caller: types.FrameType | None) -> Any:
    """Return the function written in Python that runs in `caller`, and handed over `func`."""
    if caller is None:
        return func
    code = caller.f_code
    own = getattr(func, "__code__", None)
    if own is code or not code.co_filename.startswith(_TORCH):
        return func
    running = [
        one
        for one in gc.get_referrers(code)
        if isinstance(one, types.FunctionType) and one.__code__ is code
    ]
    return running[0] if len(running) == 1 else func
