"""Tensors made by a type's own name, `torch.FloatTensor(x)`: calls that no function mode hears.

Only what is made of an array or a list is told of: numbers are sizes, and a tensor is shown again.

`torch.FloatTensor` is an object of C that takes no attribute; a class stands in for it, which says
of itself whatever the other does.
"""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from tether.record.listener import Listener
from tether.record.mode_stack import muted
from tether.record.patches.replacing import Original, Replacements, Tell
from tether.record.sites import here, wearing

__tracebackhide__ = True

Place = tuple[int, int]

_DATA = (np.ndarray, list, tuple)


def install(replacements: Replacements) -> None:
    """Put the replacements in place."""
    replace = replacements.replace
    replace(torch.Tensor, "__new__", functools.partial(_new, replacements, torch.Tensor))
    variable = torch.autograd.Variable
    replace(variable, "__new__", functools.partial(_new, replacements, variable))
    for owner in (torch, torch.cuda):
        for name in [name for name, one in vars(owner).items() if _is_type(one)]:
            replace(owner, name, functools.partial(_standing_in, replacements, name), _is_type)
    replace(torch._C, "_set_default_tensor_type", _with_the_original)


def _is_type(one: Any) -> bool:
    return type(one).__name__ == "tensortype"


def _telling(name: str) -> Tell:
    def tell(
        listener: Listener, place: Place, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
    ) -> None:
        if len(args) == 1 and not kwargs and type(args[0]) in _DATA:
            index = listener.note(name, place, listener.tensors_in(args[0]), [result])
            listener.made(name, place, index, result, ())
            listener.entered(index, place[0], args[0], result)

    return tell


def _tell_of_variable(
    listener: Listener, place: Place, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
) -> None:
    """Tell of `Variable(x)`, which gives a tensor on the memory of `x`, out of the graph."""
    listener.note("Variable", place, listener.tensors_in((*args, *kwargs.values())), [result])


def _new(replacements: Replacements, kind: type, original: Callable[..., Any]) -> Any:
    tell = _telling("Tensor") if kind is torch.Tensor else _tell_of_variable

    @functools.wraps(original)
    def __new__(cls: type, *args: Any, **kwargs: Any) -> Any:  # noqa: N807
        called = replacements.tape.places.called_from(here(2))  # a warning names the user's line
        result = called(original, (cls, *args), kwargs)
        listener = replacements.listener() if cls is kind else None
        if listener is not None:
            with muted(listener):
                place = replacements.tape.places.user_place(here(2))
                tell(listener, place, args, kwargs, result)
        return result

    return staticmethod(__new__)


class _StandingIn(type):
    """The type of what stands in for one of PyTorch's: asked anything, it asks that."""

    meant: Any

    @property
    def __name__(cls) -> str:  # type: ignore[override]
        return str(cls.meant.__name__)

    def __instancecheck__(cls, one: Any) -> bool:
        return isinstance(one, cls.meant)

    def __subclasscheck__(cls, one: type) -> bool:
        return issubclass(getattr(one, "meant", one), cls.meant)

    def __getattr__(cls, name: str) -> Any:
        return getattr(cls.meant, name)

    def __eq__(cls, other: object) -> bool:
        return other is cls or other is cls.meant

    def __hash__(cls) -> int:
        return hash(cls.meant)


def _standing_in(replacements: Replacements, name: str, original: Any) -> Any:
    """Return a class that makes what `original` makes, and tells of it."""
    call = staticmethod(replacements.telling(_telling(name))(original))
    kind = type("tensortype", (_StandingIn,), {"__call__": call})
    # `Tensor.type` goes by the whole name.
    whole = f"{original.__module__}.{original.__name__}"
    made = kind(whole, (), {"meant": original, "__module__": original.__module__})
    made.__qualname__ = original.__name__
    return made


def _with_the_original(original: Original) -> Original:
    """Let a function of C be given what a class of this module stands for."""

    @functools.wraps(original)
    def replaced(t: Any) -> Any:
        given = (t.meant if isinstance(t, _StandingIn) else t,)
        frame = sys._getframe(1)  # that it warns
        call = types.FunctionType(wearing(frame.f_code, frame.f_lasti), frame.f_globals)
        return call(original, given, {})

    return replaced
