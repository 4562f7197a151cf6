"""The stack of function modes of this thread, and the listener's place in it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch._C import (
    _get_function_stack_at,
    _len_torch_function_stack,
    _pop_torch_function_stack,
    _push_on_torch_function_stack,
)

if TYPE_CHECKING:
    from tether.live.recorder import Listener, Recorder

_mute = torch._C.DisableTorchFunction


def push(listener: Listener) -> None:
    """Let the listener hear this thread."""
    _push_on_torch_function_stack(listener)


def remove(listener: Listener) -> None:
    """Take the listener off this thread's stack, also from under modes put on top of it."""
    above = []
    while _len_torch_function_stack():
        mode = _pop_torch_function_stack()
        if mode is listener:
            break
        above.append(mode)
    for mode in reversed(above):
        _push_on_torch_function_stack(mode)


def listener_here(recorder: Recorder) -> Listener | None:
    """Return the listener that hears this thread now; None where no mode is on.

    Inside a function that PyTorch hands to a mode, the mode is off the stack: what happens there
    belongs to that one call.
    """
    if not recorder.active or not torch._C._is_torch_function_mode_enabled():
        return None
    for position in range(_len_torch_function_stack() - 1, -1, -1):
        mode = _get_function_stack_at(position)
        if getattr(mode, "recorder", None) is recorder:
            return mode  # type: ignore[no-any-return]
    return None


@contextmanager
def muted(listener: Listener) -> Iterator[None]:  # noqa: ARG001 -- says who is not listening
    """Hear nothing in this block: the recorder itself is at work, or one call is one event."""
    with _mute():
        yield


@contextmanager
def off_the_stack(listener: Listener) -> Iterator[None]:
    """Run a block as if this listener, and it alone, were not there."""
    remove(listener)
    try:
        yield
    finally:
        push(listener)
