"""Arrays that the text copies as soon as a call of PyTorch has given them: `x.numpy().copy()`."""

from __future__ import annotations

import ast
from typing import NamedTuple

from tether.facts import Site
from tether.source.syntax import Source, called, is_module


class CopiedAtOnce(NamedTuple):
    """An expression that copies an array, and one that gives it."""

    text: str
    array: str


def copied_at_once(source: Source, site: Site) -> CopiedAtOnce | None:
    """Return the expression that copies what a call gives, and does nothing else; None if none.

    It may be the call itself: `numpy.array(x)` asks a tensor for its array, and copies that.
    """
    node = source.node_at(site)
    if not isinstance(node, ast.Call):
        return None
    if called(node.func) == "array" and _of_numpy(node):
        array = ast.Call(ast.Attribute(node.args[0], "numpy", ast.Load()), [], [])
        return CopiedAtOnce(ast.unparse(node), ast.unparse(array))
    around = source.parent(node)
    if isinstance(around, ast.Attribute) and around.attr == "copy":
        around = source.parent(around)
        copies = isinstance(around, ast.Call) and not (around.args or around.keywords)
    else:
        copies = isinstance(around, ast.Call) and around.args == [node] and _copies(around)
    return CopiedAtOnce(ast.unparse(around), ast.unparse(node)) if around and copies else None


def _copies(call: ast.Call) -> bool:
    return called(call.func) == "deepcopy" or _of_numpy(call)


def _of_numpy(call: ast.Call) -> bool:
    """Whether a call is `numpy.array(x)` or `numpy.copy(x)`, of one argument alone."""
    if not isinstance(call.func, ast.Attribute) or len(call.args) != 1 or call.keywords:
        return False
    return call.func.attr in ("array", "copy") and is_module(call.func.value)
