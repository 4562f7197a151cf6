"""The stack of function modes of this thread, and the listener's place in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch._C import (
    _get_function_stack_at,
    _len_torch_function_stack,
    _pop_torch_function_stack,
    _push_on_torch_function_stack,
)

if TYPE_CHECKING:
    from tether.record.listener import Listener
    from tether.record.tape import Tape

_is_enabled = torch._C._is_torch_function_mode_enabled
_mute = torch._C.DisableTorchFunction


def push(listener: Listener) -> None:
    """Let the listener hear this thread, from under the modes that the program has put on.

    The program takes its own off from the top.
    """
    above = [_pop_torch_function_stack() for _ in range(_len_torch_function_stack())]
    for mode in (listener, *reversed(above)):
        _push_on_torch_function_stack(mode)


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


def listener_here(tape: Tape) -> Listener | None:
    """Return the listener that hears this thread now; None where no mode is on.

    Inside a function that PyTorch hands to a mode, the mode is off the stack: what happens there
    belongs to that one call.
    """
    if not tape.active or not _is_enabled():
        return None
    position = _len_torch_function_stack()
    while position:
        position -= 1
        mode = _get_function_stack_at(position)
        if getattr(mode, "tape", None) is tape:
            return mode  # type: ignore[no-any-return]
    return None


class muted:  # noqa: N801 -- reads as a statement
    """Hear nothing in this block, where the recorder itself is at work.

    An error in it is the recorder's own: it is noted and does not reach the program. What the
    block would have set must have a value before it.
    """

    __slots__ = ("_listener", "_off")

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._off = _mute()

    def __enter__(self) -> None:
        self._off.__enter__()

    def __exit__(self, _: object, error: BaseException | None, traceback: object) -> bool:
        self._off.__exit__(None, None, None)
        if isinstance(error, Exception):
            self._listener.tape.failed("a replaced function", error)
            return True
        return False


class off_the_stack:  # noqa: N801 -- reads as a statement; as a generator it would cost twice
    """Run a block as if this listener, and it alone, were not there."""

    __slots__ = ("_below", "_listener")

    def __init__(self, listener: Listener) -> None:
        self._listener = listener

    def __enter__(self) -> None:
        above = []
        while (mode := _pop_torch_function_stack()) is not self._listener:
            above.append(mode)
        self._below = _len_torch_function_stack()
        for mode in reversed(above):
            _push_on_torch_function_stack(mode)

    def __exit__(self, *_: object) -> None:
        above = []
        while _len_torch_function_stack() > self._below:
            above.append(_pop_torch_function_stack())
        _push_on_torch_function_stack(self._listener)
        for mode in reversed(above):
            _push_on_torch_function_stack(mode)
