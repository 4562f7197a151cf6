"""Hooks on modules and tensors: each registration makes a handle, which is heard."""

from __future__ import annotations

import functools
import types
from typing import Any

import torch
from torch.utils.hooks import RemovableHandle

from tether.record.patches.replacing import Original, Replacements
from tether.record.recorder import Recorder
from tether.record.sites import here, is_ours

_REGISTERING = frozenset(
    {torch._tensor.__file__, torch.overrides.__file__, torch.nn.modules.module.__file__}
)
_ON_NODE = getattr(getattr(torch.autograd.Function, "_register_hook", None), "__code__", None)


def install(replacements: Replacements, recorder: Recorder) -> None:
    """Put the replacement in place."""
    tape, log = replacements.tape, recorder.hooks

    def make(original: Original) -> Original:
        @functools.wraps(original)
        def made(handle: Any, table: Any, *args: Any, **kwargs: Any) -> None:
            original(handle, table, *args, **kwargs)
            frame = here(2)  # of the method that registers: its object gets the hook
            try:
                if frame is not None and frame.f_code is _ON_NODE:
                    log.given.on_nodes |= _is_of_others(frame.f_back)
                    return
                if tape.active and frame is not None:
                    recorder.backward_hooks.registered(frame, table, handle.id)
                if tape.active and frame is not None and _asked_for(frame):
                    owner = frame.f_locals.get(frame.f_code.co_varnames[0])
                    with torch._C.DisableTorchFunction():
                        log.registered(tape.places.user_place(frame)[0], owner, table, handle.id)
                        if isinstance(owner, torch.Tensor) and owner._backward_hooks is table:
                            log.given.is_hook(frame.f_locals.get("hook"))
            except Exception as error:  # noqa: BLE001
                tape.failed("a hook", error)
            finally:
                del frame

        return made

    replacements.replace(RemovableHandle, "__init__", make)


def _is_of_others(frame: types.FrameType | None) -> bool:
    """Whether a hook on a node is neither ours nor one of PyTorch's on a node of its own."""
    if frame is None:
        return True
    return not is_ours(frame.f_code) and frame.f_code.co_filename != torch.utils.hooks.__file__


def _asked_for(frame: types.FrameType | None) -> bool:
    """Whether a line of the program registers, and neither a library nor the recorder."""
    registers = False
    while frame is not None:
        file = frame.f_code.co_filename
        if file not in _REGISTERING and not is_ours(frame.f_code):
            return registers and "site-packages" not in file
        registers = file in _REGISTERING
        frame = frame.f_back
    return False
