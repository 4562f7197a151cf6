"""What an expression of the program's text gives, read without running any of the program's code.

Variables, attributes that an object holds itself, and indices of Python's own containers and of
plain arrays are read; anything else has no plain value. A chain of calls of NumPy's may be tried
on another array in the place of the one that it begins with: it shows what becomes of any values.
"""

from __future__ import annotations

import ast
import builtins
import copy
import operator
import os
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from tether.record.arrays.contents import Array
from tether.record.arrays.memory import owner_of
from tether.record.sites import is_ours

_PLAIN = (int, float, bool, str, bytes, type(None), type(Ellipsis), np.dtype)
_CONTAINERS = (list, tuple, dict)
_FOLDER = os.path.dirname(os.path.abspath(np.__file__)) + os.sep
_DISPATCHED = type(np.concatenate)
_OF_INTEGERS: dict[type[ast.AST], Callable[[int, int], int]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod,
}  # fmt: skip


class NotPlain(Exception):  # noqa: N818 -- no error: the answer of what is not plain
    """An expression whose value is not to be had without running the program's code."""


class Variables(NamedTuple):
    """The variables of a function that runs."""

    local: Mapping[str, Any]
    outer: Mapping[str, Any]

    def value(self, name: str) -> Any:
        """Return what a name stands for; of Python's own names only the types."""
        for space in (self.local, self.outer):
            if name in space:
                return space[name]
        found = vars(builtins).get(name)
        if type(found) is type:
            return found
        raise NotPlain


def value_of(node: ast.expr, variables: Variables) -> Any:
    """Return what an expression gives."""
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name):
            return variables.value(name)
        case ast.Attribute(value=owner, attr=name):
            return _attribute(value_of(owner, variables), name)
        case ast.Subscript(value=owner, slice=index):
            return _item(value_of(owner, variables), value_of(index, variables))
        case ast.UnaryOp(op=ast.USub(), operand=one):
            return -_number(value_of(one, variables))
        case ast.BinOp(left=left, right=right, op=op):
            return _computed(op, value_of(left, variables), value_of(right, variables))
    return _of_several(node, variables)


def _of_several(node: ast.expr, variables: Variables) -> Any:
    """Return what an expression gives that is made of several others."""
    match node:
        case ast.Slice(lower=lower, upper=upper, step=step):
            return slice(*(one and value_of(one, variables) for one in (lower, upper, step)))
        case ast.Tuple(elts=parts):
            return tuple([value_of(one, variables) for one in parts])
        case ast.List(elts=parts):
            return [value_of(one, variables) for one in parts]
    raise NotPlain


def _computed(op: ast.operator, left: Any, right: Any) -> int:
    compute = _OF_INTEGERS.get(type(op))
    if compute is None:
        raise NotPlain
    left, right = _number(left), _number(right)
    if max(abs(left), abs(right)) >> 62 or (not right and isinstance(op, (ast.FloorDiv, ast.Mod))):
        raise NotPlain
    return compute(left, right)


def _number(value: Any) -> int:
    if type(value) is int:
        return value
    if isinstance(value, np.integer) and type(value).__module__ == "numpy":
        return int(value)
    raise NotPlain


def _attribute(owner: Any, name: str) -> Any:
    """Return what an object holds under a name, or what NumPy says of an array of its own."""
    kind = type(owner)
    if kind is np.ndarray:
        return _of_array(owner, name)
    own = next((vars(one)[name] for one in kind.__mro__ if name in vars(one)), None)
    if isinstance(own, types.MemberDescriptorType):
        try:
            return own.__get__(owner, kind)
        except AttributeError:
            raise NotPlain from None
    if own is not None and hasattr(type(own), "__set__"):
        raise NotPlain  # a property
    try:
        return object.__getattribute__(owner, "__dict__")[name]
    except Exception:  # noqa: BLE001 -- no such attribute, no dictionary, or one that guards it
        raise NotPlain from None


def _of_array(array: Array, name: str) -> Any:
    found = vars(np.ndarray).get(name)
    if not isinstance(found, types.GetSetDescriptorType):
        raise NotPlain
    return found.__get__(array)


def _item(owner: Any, index: Any) -> Any:
    """Return an item of one of Python's containers, or a view of an array."""
    if type(owner) is np.ndarray:
        parts = index if type(index) is tuple else (index,)
        index = tuple([_basic(one) for one in parts])
    elif type(owner) in (list, tuple):
        index = _basic(index)
    elif type(owner) is not dict or not _is_plain(index):
        raise NotPlain
    try:
        return owner[index]
    except (LookupError, TypeError, ValueError):
        raise NotPlain from None


def _basic(index: Any) -> Any:
    """Return an index that shows a part of an array as it lies."""
    if type(index) is slice:
        bounds = (index.start, index.stop, index.step)
        return slice(*(None if one is None else _number(one) for one in bounds))
    return index if index is None or index is Ellipsis else _number(index)


def _is_plain(value: Any) -> bool:
    """Whether a value is Python's or NumPy's own through and through."""
    if type(value) is tuple:
        return all(map(_is_plain, value))
    return type(value) in _PLAIN or isinstance(value, np.dtype)


# -- a chain of calls ------------------------------------------------------------------------------


class CallChain(NamedTuple):
    """An expression, and what stands in it for what a variable was given before."""

    node: ast.expr
    instead: dict[ast.AST, ast.expr]


def arrays_in(chain: CallChain, variables: Variables) -> list[tuple[ast.expr, Array]]:
    """Return the plain arrays that a chain begins with, each with the largest text for it."""
    return list(_arrays(chain, chain.node, variables))


def _arrays(
    chain: CallChain, node: ast.AST, variables: Variables
) -> Iterator[tuple[ast.expr, Array]]:
    if node in chain.instead:
        yield from _arrays(chain, chain.instead[node], variables)
        return
    if isinstance(node, ast.expr) and not any(one in chain.instead for one in ast.walk(node)):
        try:
            value = value_of(node, variables)
        except NotPlain:
            pass
        else:
            if type(value) is np.ndarray:
                yield node, value
            if not isinstance(node, (ast.List, ast.Tuple)):
                return
    for one in ast.iter_child_nodes(node):
        yield from _arrays(chain, one, variables)


class ChainOnOthers:
    """A chain with another array in the place of the one that it begins with."""

    def __init__(
        self, chain: CallChain, begins: ast.expr, array: Array, variables: Variables
    ) -> None:
        self._instead, self._begins, self._array = chain.instead, begins, array
        self._variables = variables

    def value(self, node: ast.expr) -> Any:
        """Return what an expression gives, made of the other array."""
        while node in self._instead:
            node = self._instead[node]
        if node is self._begins:
            return self._array
        if not self._is_made(node):
            return value_of(node, self._variables)
        match node:
            case ast.Attribute(value=owner, attr=name):
                return _of_array(self._own(owner), name)
            case ast.Subscript(value=owner, slice=index):
                return _item(self.value(owner), value_of(index, self._variables))
            case ast.Call(func=function, args=args, keywords=words):
                return self._called(function, args, words)
            case ast.List(elts=parts):
                return [self.value(one) for one in parts]
            case ast.Tuple(elts=parts):
                return tuple([self.value(one) for one in parts])
        raise NotPlain

    def _own(self, node: ast.expr) -> Array:
        found = self.value(node)
        if type(found) is not np.ndarray:
            raise NotPlain
        return found

    def _is_made(self, node: ast.AST) -> bool:
        """Whether an expression is made of the array."""
        for one in ast.walk(node):
            put = self._instead.get(one)
            if one is self._begins or (put is not None and self._is_made(put)):
                return True
        return False

    def _called(self, function: ast.expr, args: list[ast.expr], words: list[ast.keyword]) -> Any:
        """Call a function of NumPy's, or a method of an array, with constants beside it.

        What else it is given may decide by its value what becomes of the elements: then only a
        view of the array is taken, which shows them whatever it was.
        """
        given = [self.value(one) for one in args]
        named = {one.arg: self.value(one.value) for one in words if one.arg}
        if len(named) < len(words):
            raise NotPlain
        beside = [one for one in (*args, *(word.value for word in words)) if not self._is_made(one)]
        fixed = [self._is_fixed(one) for one in beside]
        if isinstance(function, ast.Attribute) and self._is_made(function.value):
            owner = self._own(function.value)
            found = _method(function.attr)(owner, *given, **named)
        else:
            owner = self._array
            found = _of_numpy(value_of(function, self._variables))(*given, **named)
        if not all(fixed) and not (
            type(found) is np.ndarray and owner_of(found) is owner_of(owner)
        ):
            raise NotPlain
        return found

    def _is_fixed(self, node: ast.expr) -> bool:
        """Whether an argument is one for all: written out, or a type of numbers."""
        value = value_of(node, self._variables)
        if isinstance(value, type):
            if value.__module__ not in ("numpy", "builtins"):
                raise NotPlain
            return True
        parts = value if type(value) in (list, tuple) else [value]
        if not all(_is_plain(one) or isinstance(one, np.generic) for one in parts):
            raise NotPlain
        named = any(isinstance(one, ast.Name) for one in ast.walk(node))
        return isinstance(value, np.dtype) or not named


def _method(name: str) -> Callable[..., Any]:
    found = _as_it_was(vars(np.ndarray).get(name))
    if not isinstance(found, types.MethodDescriptorType):
        raise NotPlain
    return found


def _of_numpy(function: Any) -> Callable[..., Any]:
    """Return a function that is NumPy's own, or `copy`'s: which depends on what it is given alone.

    Not one that is bound to an object, as those of a generator of random numbers.
    """
    function = _as_it_was(function)
    kind = type(function)
    if kind is types.BuiltinFunctionType:
        owner = function.__self__
        own = owner is None or type(owner) is types.ModuleType
        if own and str(function.__module__).partition(".")[0] == "numpy":
            return function  # type: ignore[no-any-return]
    elif kind is types.FunctionType:
        file = function.__code__.co_filename
        if file.startswith(_FOLDER) or file == copy.__file__:
            return function  # type: ignore[no-any-return]
    elif kind is _DISPATCHED:
        return function  # type: ignore[no-any-return]
    raise NotPlain


def _as_it_was(function: Any) -> Any:
    """Return what a recording has put a function of its own in the place of."""
    if type(function) is types.FunctionType and is_ours(function.__code__):
        return function.__wrapped__  # type: ignore[attr-defined]
    return function
