"""What a definition made once and several objects have: defaults, attributes of a class.

A default argument is made when its function is defined, and an attribute of a class with the class:
an object that keeps it shares it with every other one that does. Met on the way of a search for
names; who has it is asked of the objects themselves, and no code of the program's is run.
"""

from __future__ import annotations

import collections
import types
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import torch

from tether.facts import UNKNOWN, MadeOnce, Moment, SiteId, TensorId
from tether.record.cached_keys import tensors_inside
from tether.record.naming import attributes_of, is_user_class, registered
from tether.record.sites import is_user_file
from tether.record.tape import Tape

_NAMED = 4
"""Owners of one object that are told of by name."""

_KINDS = (torch.Tensor, torch.nn.Module, dict, list, collections.deque)


class _MadeByDefinition(NamedTuple):
    """An object that a definition made."""

    name: str  # of the argument; of the attribute, behind its class
    value: Any
    code: types.CodeType | None  # of the function that has it as a default


class MadeOnceLog:
    """The objects of definitions that several owners had at one time, as a search met them."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape
        self.facts: dict[tuple[str, int], MadeOnce] = {}
        self._of: dict[type, list[_MadeByDefinition]] = {}
        self._owners: dict[int, dict[int, str]] = {}  # object -> its owners, and how each is called
        self._made: dict[int, _MadeByDefinition] = {}

    def met(self, path: str, owner: Any, kind: type) -> None:
        """Note what an object of the program's has of the definition of its class."""
        if kind not in self._of:
            self._of[kind] = list(_made_for(kind)) if is_user_class(kind) else []
        made = self._of[kind]
        own = dict(_parts_of(path, owner)) if made else {}
        held = {id(part) for part in own.values()}
        for one in made:
            name = one.name.rpartition(".")[2]
            if id(one.value) in held or (one.code is None and f"{path}.{name}" not in own):
                self._made.setdefault(id(one.value), one)
                owners = self._owners.setdefault(id(one.value), {})
                if owners.get(id(owner), "self").startswith("self"):  # in a method: called so there
                    owners[id(owner)] = path

    def searched(self) -> None:
        """Keep what the search found to have several owners, and let go of the rest."""
        made, owners = self._made, self._owners
        self._of, self._made, self._owners = {}, {}, {}
        for number, some in owners.items():
            if len(some) > 1:
                self._shared(made[number], list(some.values()))

    def _shared(self, made: _MadeByDefinition, owners: list[str]) -> None:
        found = (self._tape.who.find(one) for one in tensors_inside(made.value))
        tensors = tuple(TensorId(ref.serial) for ref in found if ref is not None)
        site = UNKNOWN if made.code is None else self._tape.places.add_definition(made.code)
        if tensors:
            self.facts[made.name, site] = MadeOnce(
                Moment(self._tape.now()), made.name, SiteId(site), len(owners),
                tuple(owners[:_NAMED]), tensors, _how_filled(type(made.value)),
            )  # fmt: skip


def _how_filled(kind: type) -> Literal["", "in order", "by key"]:
    if issubclass(kind, dict):
        return "by key"
    return "in order" if issubclass(kind, (list, collections.deque)) else ""


def _made_for(kind: type) -> Iterator[_MadeByDefinition]:
    """Yield what the definition of a class made: defaults of its methods, and its attributes."""
    for one in kind.__mro__:
        for name, part in list(vars(one).items()) if is_user_class(one) else ():
            if isinstance(part, types.FunctionType) and is_user_file(part.__code__.co_filename):
                yield from _defaults_of(part)
            elif _may_be_shared(part) and not name.startswith("__"):
                yield _MadeByDefinition(f"{one.__name__}.{name}", part, None)


def _defaults_of(function: types.FunctionType) -> Iterator[_MadeByDefinition]:
    code, values = function.__code__, function.__defaults__ or ()
    names = code.co_varnames[code.co_argcount - len(values) : code.co_argcount]
    for name, value in (
        *zip(names, values, strict=False),
        *(function.__kwdefaults__ or {}).items(),
    ):
        if _may_be_shared(value):
            yield _MadeByDefinition(name, value, code)


def _may_be_shared(value: Any) -> bool:
    kind = type(value)
    descriptor = any("__get__" in vars(one) for one in kind.__mro__)
    plain = descriptor or issubclass(kind, type) or not is_user_class(kind)
    return issubclass(kind, _KINDS) or not plain


def _parts_of(path: str, owner: Any) -> Iterator[tuple[str, Any]]:
    yield from ((f"{path}.{name}", part) for name, part in attributes_of(owner))
    if issubclass(type(owner), torch.nn.Module):
        for table in registered(owner):
            yield from ((f"{path}.{name}", part) for name, part in table.items())
