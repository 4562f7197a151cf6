"""A warning that counts frames upwards finds, recorded, the line that it would have found.

``nn.Softmax()`` without a dimension warns with a stack level of 5, counted from deep inside
`torch.nn.functional`. Under a mode that function's own dispatch, the recorder and the frame that
wears the caller's line stand in between. So while recording the level is raised by as many.
The function stays the object it is, with other code: TorchScript reads its text and knows it.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable

import torch.nn.functional

from tether.record.sites import is_worn

_NAME = "_get_softmax_dim"
_OURS = "_tether_softmax_dim"
_MOST = 8  # frames between a worn one and the caller whose clothes it wears

_TEXT = f"def {_NAME}(name, ndim, stacklevel):\n    return {_OURS}(name, ndim, stacklevel)\n"


def level(stacklevel: int, depth: int) -> int:
    """Return the stack level that leads where `stacklevel` would lead without the recorder.

    Counted from the function `depth` frames above the one that asks.
    """
    frame: types.FrameType | None = sys._getframe(depth)
    shown = hidden = 0
    while frame is not None and shown < stacklevel - 1:
        frame = frame.f_back
        if frame is not None and is_worn(frame.f_code):
            skipped = _behind(frame)
            hidden += skipped
            for _ in range(skipped):
                frame = frame.f_back if frame is not None else None
        shown += 1
    return stacklevel + hidden


def _behind(worn: types.FrameType) -> int:
    """Count the frames from a worn one to the caller whose file and name it wears."""
    code, frame = worn.f_code, worn.f_back
    for count in range(1, _MOST):
        if frame is None:
            break
        found = frame.f_code
        same = (found.co_filename, found.co_qualname) == (code.co_filename, code.co_qualname)
        if same and frame.f_globals is worn.f_globals:
            return count
        frame = frame.f_back
    return 0


def replace() -> Callable[[], Callable[[], None]] | None:
    """Return what puts the new code in place and returns what takes it away again."""
    function = getattr(torch.nn.functional, _NAME, None)
    if not isinstance(function, types.FunctionType) or function.__code__.co_argcount != 3:
        return None  # another torch, that does it in another way
    code = function.__code__
    real = types.FunctionType(code, function.__globals__, _NAME)

    def leveled(name: str, ndim: int, stacklevel: int) -> int:
        # Two frames more than there were: this one, and the one that called it.
        found: int = real(name, ndim, level(stacklevel, 2) + 2)
        return found

    space: dict[str, types.FunctionType] = {}
    exec(compile(_TEXT, code.co_filename, "exec", dont_inherit=True), space)  # noqa: S102 -- above
    new = space[_NAME].__code__.replace(co_firstlineno=code.co_firstlineno)

    def apply() -> Callable[[], None]:
        vars(torch.nn.functional)[_OURS] = leveled
        function.__code__ = new

        def undo() -> None:
            function.__code__ = code
            vars(torch.nn.functional).pop(_OURS, None)

        return undo

    return apply
