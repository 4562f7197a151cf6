"""What the text does at once with an array: copies it (`x.numpy().copy()`), or hands it on."""

from __future__ import annotations

import ast
from typing import NamedTuple

from tether.facts import Site
from tether.source.on_the_way import beside
from tether.source.syntax import (
    COMPREHENSIONS,
    FUNCTIONS,
    LOOPS,
    RUNS,
    SCOPES,
    Source,
    called,
    is_module,
    names,
)

_SCOPES = (*SCOPES, *COMPREHENSIONS, *LOOPS)
_FUNCTIONS_ALONE = ("array", "deepcopy")


class CopiedAtOnce(NamedTuple):
    """An expression that copies an array, and one that gives it."""

    text: str
    array: str
    by_name: bool = False  # it copies the variable which has that array


def copied_at_once(source: Source, site: Site) -> CopiedAtOnce | None:
    """Return the expression that copies what a call gives, and does nothing else; None if none.

    Or what copies the variable that the call gives its value, where nothing else reads that. It may
    be the call itself: `numpy.array(x)` asks a tensor for its array, and copies that.
    """
    node = source.node_at(site)
    if not isinstance(node, ast.Call):
        return None
    if called(node.func) == "array" and _of_numpy(node):
        array = ast.Call(ast.Attribute(node.args[0], "numpy", ast.Load()), [], [])
        return CopiedAtOnce(ast.unparse(node), ast.unparse(array))
    given = _only_use(source, node) or node
    around = _copy_of(source, given)
    if around is None:
        return None
    return CopiedAtOnce(ast.unparse(around), ast.unparse(node), given is not node)


class ArrayCopyText(NamedTuple):
    """A call that copies an array: the text of the call, and of the array."""

    text: str
    array: str


def array_copied(source: Source, site: Site, name: str) -> ArrayCopyText | None:
    """Return what a call of NumPy's copies, as the text has it; None where that is not plain.

    `name` says what is called: an array's method, or a function that is given the array.
    """
    node = source.node_at(site)
    if not isinstance(node, ast.Call) or called(node.func) != name:
        return None
    given = node.args[0] if node.args else None
    by_function = name in _FUNCTIONS_ALONE or (
        name == "copy" and given is not None and not isinstance(given, ast.Constant)
    )
    array = given if by_function else _asked(node)
    if array is None or isinstance(array, ast.Starred):
        return None
    return ArrayCopyText(ast.unparse(node), ast.unparse(array))


def _asked(call: ast.Call) -> ast.expr | None:
    """Return what the method that is called belongs to."""
    return call.func.value if isinstance(call.func, ast.Attribute) else None


def handed_to(source: Source, site: Site) -> ast.Call | None:
    """Return the call that is given what an expression makes, where nothing else is; else None.

    By a variable only in the statement after, where the variable is read there alone.
    """
    node = source.node_at(site)
    if not isinstance(node, ast.Call):
        return None
    given: ast.expr = node
    name = _only_use(source, node)
    if name is not None:
        if beside(source, node)[1][:1] != [source.around(name, (ast.stmt,))]:
            return None
        given = name
    call = source.parent(given)
    return call if isinstance(call, ast.Call) and given in call.args else None


def _copy_of(source: Source, given: ast.expr) -> ast.expr | None:
    """Return the call around an expression, where that does nothing but copy what it is given."""
    around = source.parent(given)
    if isinstance(around, ast.Attribute) and around.attr == "copy":
        call = source.parent(around)
        plain = isinstance(call, ast.Call) and not (call.args or call.keywords)
        return call if isinstance(call, ast.Call) and plain else None
    copies = isinstance(around, ast.Call) and around.args == [given] and _copies(around)
    return around if isinstance(around, ast.Call) and copies else None


def _only_use(source: Source, node: ast.Call) -> ast.Name | None:
    """Return where a function's variable is read that a call alone gives its value, if once."""
    assigned, scope = source.parent(node), source.around(node, RUNS)
    match assigned:
        case ast.Assign(targets=[ast.Name(id=name)]) if isinstance(scope, FUNCTIONS):
            pass
        case _:
            return None
    named = [one for one in ast.walk(scope) if names(one, name)]
    reads = [one for one in named if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load)]
    if len(named) != 2 or len(reads) != 1:
        return None
    together = source.around(reads[0], _SCOPES) is source.around(node, _SCOPES)
    return reads[0] if together else None


def _copies(call: ast.Call) -> bool:
    return called(call.func) == "deepcopy" or _of_numpy(call)


def _of_numpy(call: ast.Call) -> bool:
    """Whether a call is `numpy.array(x)` or `numpy.copy(x)`, of one argument alone."""
    if not isinstance(call.func, ast.Attribute) or len(call.args) != 1 or call.keywords:
        return False
    return call.func.attr in ("array", "copy") and is_module(call.func.value)
