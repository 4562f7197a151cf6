"""Which optimizer steps are running in a thread: as long as PyTorch's wrapper is on the stack."""

from __future__ import annotations

import sys
import types
from typing import Protocol

from torch.optim import Optimizer

from tether.record.tape import Tape

_wrapper = next(
    (
        one
        for one in Optimizer.profile_hook_step.__code__.co_consts
        if isinstance(one, types.CodeType)
    ),
    None,
)


class Stepping(Protocol):
    """A listener that may be inside of optimizer steps."""

    tape: Tape
    span: int
    steps: list[int]  # the spans of the steps that run, the innermost last


def leave_stale_steps(listener: Stepping, frame: types.FrameType | None) -> None:
    """Close the steps that raised, as seen from `frame`: PyTorch calls no hook for them."""
    if _wrapper is None or not listener.steps:
        return  # a torch that does without it: the next step closes them
    running = 0
    while frame is not None:
        running += frame.f_code is _wrapper
        frame = frame.f_back
    spans = listener.tape.spans
    while len(listener.steps) > running:
        stale = listener.steps.pop()
        listener.tape.close_span(stale)
        listener.span = spans[stale].parent


def stepping() -> bool:
    """Whether PyTorch may be running the hooks around a step just now, in this thread."""
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code is _wrapper:
            return True
        frame = frame.f_back
    return False
