"""Debuggers step through the program, not through the recorder that stands between its lines."""

from __future__ import annotations

import bdb
import functools
import types
from typing import Any

from tether.record.patches.replacing import Original, Replacements
from tether.record.sites import is_ours

_US = __name__.partition(".")[0]


def install(replacements: Replacements) -> None:
    """Put the replacement in place, for every debugger that is made of Python's own."""
    replacements.replace(bdb.Bdb, "stop_here", _stop_here)


def _stop_here(original: Original) -> Original:
    @functools.wraps(original)
    def stop_here(debugger: Any, frame: types.FrameType) -> Any:
        return not _is_ours(frame) and original(debugger, frame)

    return stop_here


def _is_ours(frame: types.FrameType) -> bool:
    """Whether a frame runs our code; what a dataclass was given is known by its module alone."""
    if is_ours(frame.f_code):
        return True
    return str(frame.f_globals.get("__name__", "")).partition(".")[0] == _US
