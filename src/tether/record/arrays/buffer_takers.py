"""Calls of Python's own that are given bytes, and take the memory of an array as well.

By Python's documentation: what a file is written, what a hash is updated with, and what is
compressed, summed, encoded or sent is a *bytes-like object*; a contiguous array is one.
"""

from __future__ import annotations

import ast
import io
import socket
import sys
import types
from typing import Any

from tether.record.plain_values import NotPlain, Variables, value_of

_FUNCTIONS = ("_hashlib", "_blake2", "_md5", "_sha1", "_sha2", "_sha3", "hashlib", "zlib", "bz2",
              "lzma", "binascii", "base64")  # fmt: skip
"""Modules all of whose functions take bytes-like objects."""


def taker(call: ast.Call, variables: Variables) -> str:
    """Return the name of what a call calls, where that takes an array's memory; else ""."""
    try:
        match call.func:
            case ast.Attribute(value=owner, attr=name):
                held = value_of(owner, variables)
                if not isinstance(held, types.ModuleType):
                    return name if _takes(held, name) else ""
        function = value_of(call.func, variables)
    except NotPlain:
        return ""
    known = isinstance(function, (types.FunctionType, types.BuiltinFunctionType))
    return function.__name__ if known and function.__module__ in _FUNCTIONS else ""


def _takes(owner: Any, name: str) -> bool:
    """Whether a method of an object of Python's own takes what is like bytes."""
    kind = type(owner)
    if kind.__module__.partition(".")[0] not in sys.stdlib_module_names:
        return False
    if name == "write":
        return issubclass(kind, (io.RawIOBase, io.BufferedIOBase))
    if name in ("send", "sendall"):
        return issubclass(kind, socket.socket)
    return name == "update" and hasattr(kind, "digest")
