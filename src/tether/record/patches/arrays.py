"""NumPy's own ways to copy an array, or to list it: methods of its type, and two functions.

`numpy.ndarray` is a type of C that takes no attribute, so that its dictionary is written, and its
cached look-ups are dropped as CPython itself would. A compiler such as Numba knows NumPy's
functions by identity: where one is loaded, or as soon as it is, they are left alone.
"""

from __future__ import annotations

import copy
import ctypes
import functools
import gc
import importlib.abc
import struct
import sys
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from tether.operations.numpy_calls import COPYING_FUNCTIONS, COPYING_METHODS, LISTING_METHOD
from tether.record.arrays.calls import LEAST, ArrayCallLog, bytes_made
from tether.record.arrays.listed import LEAST as LEAST_OF_A_LIST
from tether.record.arrays.listed import ListedLog
from tether.record.arrays.memory import is_array, size_of
from tether.record.mode_stack import muted
from tether.record.patches.replacing import Original, Replacements
from tether.record.sites import here

__tracebackhide__ = True

BY_IDENTITY = "numba"
"""The compiler that knows functions of NumPy by identity."""
_OF_OBJECTS = {"__copy__": "copy", "__deepcopy__": "deepcopy"}
"""What Python's `copy` calls, and the function of it that was asked."""
_CONVERTING = ("astype", "array")
_RECORDER = "tether.record."
_COPY = copy.deepcopy.__code__.co_filename


def install(replacements: Replacements, log: ArrayCallLog, lists: ListedLog) -> None:
    """Put the replacements in place."""

    def wrap(name: str, original: Original) -> Original:
        if name == LISTING_METHOD:
            return _listing(replacements, lists, original)
        return _telling(replacements, log, name, original)

    replacements.replace(struct, "unpack", functools.partial(_listing, replacements, lists))
    found = [one for one in gc.get_referents(np.ndarray.__dict__) if type(one) is dict]
    if len(found) == 1:
        replacements.reversible(functools.partial(_replace_methods, wrap, found[0]))
    else:
        replacements.unknown("numpy.ndarray")
    functions = _Functions(wrap)
    replacements.reversible(functions.replace)


def _replace_methods(
    wrap: Callable[[str, Original], Original], own: dict[str, Any]
) -> Callable[[], None]:
    """Write the methods into the type's dictionary; return what puts the originals back."""
    originals: dict[str, Any] = {
        name: own[name] for name in (*COPYING_METHODS, LISTING_METHOD) if name in own
    }

    def put(methods: dict[str, Any]) -> None:
        own.update(methods)
        ctypes.pythonapi.PyType_Modified(ctypes.py_object(np.ndarray))

    put({name: wrap(name, one) for name, one in originals.items()})
    return lambda: put(originals)


class _Functions(importlib.abc.MetaPathFinder):
    """NumPy's functions that are replaced, until a compiler is imported that knows them."""

    def __init__(self, wrap: Callable[[str, Original], Original]) -> None:
        self._wrap = wrap
        self._originals: dict[str, Any] = {}

    def replace(self) -> Callable[[], None]:
        """Replace them; return what puts them back."""
        if BY_IDENTITY not in sys.modules:
            self._originals = {name: getattr(np, name) for name in COPYING_FUNCTIONS}
            for name, original in self._originals.items():
                setattr(np, name, self._wrap(name, original))
            sys.meta_path.insert(0, self)
        return self._restore

    def _restore(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        while self._originals:
            name, original = self._originals.popitem()
            setattr(np, name, original)

    def find_spec(self, fullname: str, *_: Any) -> None:
        """Put the originals back before a compiler sees them; the others find it."""
        if fullname == BY_IDENTITY:
            self._restore()


def _hearing(
    replacements: Replacements,
    original: Original,
    wanted: Callable[[tuple[Any, ...], Any], bool],
    tell: Callable[[types.FrameType | None, tuple[Any, ...], Any], None],
    *,
    converts: bool = False,
) -> Original:
    """Return a function that calls its original, and tells of what it made if that is wanted."""
    places = replacements.tape.places

    @functools.wraps(original)
    def replaced(*args: Any, **kwargs: Any) -> Any:
        if converts:  # it may warn, of the line that asks
            result = places.called_from(here(2))(original, args, kwargs)
        else:
            result = original(*args, **kwargs)
        if wanted(args, result) and not _is_recorders(sys._getframe(1)):
            listener = replacements.listener()
            if listener is not None:
                with muted(listener):
                    listener.tape.arrays.look()
                    tell(here(2), args, result)
        return result

    replaced.__module__ = getattr(original, "__module__", "numpy")
    return replaced


def _is_recorders(frame: types.FrameType) -> bool:
    """Whether the recorder itself asked, as it looked at an array while the program went on."""
    return str(frame.f_globals.get("__name__")).startswith(_RECORDER)


def _telling(
    replacements: Replacements, log: ArrayCallLog, name: str, original: Original
) -> Original:
    """Return a function that tells of what its original made of an array."""
    called = _OF_OBJECTS.get(name, name)

    def tell(frame: types.FrameType | None, args: tuple[Any, ...], made: Any) -> None:
        by, within = _asked_by(frame) if name in _OF_OBJECTS else (frame, False)
        log.called(called, by, args[0], made, within=within)

    return _hearing(replacements, original, _is_large, tell, converts=name in _CONVERTING)


def _is_large(args: tuple[Any, ...], made: Any) -> bool:
    """Whether a call made as much of an array as is looked at."""
    return bytes_made(made) >= LEAST and bool(args) and is_array(args[0])


def _listing(replacements: Replacements, lists: ListedLog, original: Original) -> Original:
    """Return a function that tells of the list of numbers that its original made."""
    return _hearing(
        replacements, original, _is_long, lambda frame, _, made: lists.made(made, frame)
    )


def _is_long(args: tuple[Any, ...], made: Any) -> bool:
    """Whether a call made a list of more than a few numbers, maybe in lists of its own."""
    if not made or type(made) not in (list, tuple):
        return False
    return (size_of(args[0]) if is_array(args[0]) else len(made)) >= LEAST_OF_A_LIST


def _asked_by(frame: types.FrameType | None) -> tuple[types.FrameType | None, bool]:
    """Return who asked Python's `copy` for a copy, and whether of what holds the array."""
    calls = 0
    while frame is not None and frame.f_code.co_filename == _COPY:
        frame, calls = frame.f_back, calls + 1
    return frame, calls > 1
