"""What a definition made once and several objects have: defaults, attributes of a class.

A default argument is made when its function is defined, and an attribute of a class with the class:
an object that keeps it shares it with every other one that does. So does one that keeps what a
default holds: the modules of a tuple, put into a list of its own. Met on the way of a search for
names; who has it is asked of the objects themselves, and no code of the program's is run.
"""

from __future__ import annotations

import collections
import itertools
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal, NamedTuple

import torch

from tether.facts import UNKNOWN, MadeOnce, Moment, SiteId, TensorId
from tether.record.names.cached_keys import tensors_inside
from tether.record.objects import ObjectWalk, is_user_class, modules_of, parts_of, tensors_of
from tether.record.sites import is_user_file
from tether.record.tape import Tape

_NAMED = 4
"""Owners of one object that are told of by name."""

_MOST = 512
"""Things inside one owner, and inside one default, that are looked at."""

_KINDS = (torch.Tensor, torch.nn.Module, dict, list, collections.deque)
_TENSORS = (torch.Tensor, torch.nn.Module)
_CONTAINERS = (dict, list, tuple, collections.deque)


class _MadeByDefinition(NamedTuple):
    """An object that a definition made."""

    name: str  # of the argument; of the attribute, behind its class
    value: Any
    code: types.CodeType | None  # of the function that has it as a default
    by: type | None = None  # the class that it belongs to


class _OwnersOfOne(NamedTuple):
    """Who has an object of a definition."""

    made: _MadeByDefinition
    paths: dict[int, str]  # owner -> how it is called
    inherited: list[int]  # owners that do not hold it themselves


class MadeOnceLog:
    """The objects of definitions that several owners had at one time, as a search met them."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape
        self.facts: dict[tuple[str, int], MadeOnce] = {}
        self._of: dict[type, list[_MadeByDefinition]] = {}
        self._of_functions: dict[int, _MadeByDefinition] = {}
        self._met: dict[int, _OwnersOfOne] = {}

    def begins(self, roots: Iterable[tuple[str, Any]]) -> None:
        """Take note of the modules and tensors that functions among the variables have made.

        Any object may have got one of them: a function is no part of its class.
        """
        for _, value in roots:
            if type(value) is types.FunctionType and is_user_file(value.__code__.co_filename):
                for one in _defaults_of(value):
                    if issubclass(type(one.value), _TENSORS) and tensors_inside(one.value):
                        self._of_functions[id(one.value)] = one

    def met(self, path: str, owner: Any, kind: type) -> None:
        """Note what an object of the program's has of the definition of its class."""
        if kind not in self._of:
            self._of[kind] = list(_made_for(kind)) if is_user_class(kind) else []
        made = self._of[kind]
        if not (made or self._of_functions):
            return
        own = dict(parts_of(path, owner))
        found = map(self._of_functions.get, map(id, own.values()))
        for made_there in filter(None, found):
            self._has(made_there, path, owner)
        held = _inside(own.values(), {one.by for one in made}) if made else set()
        for one in made:
            if id(one.value) in held:
                self._has(one, path, owner)
            elif one.code is None and f"{path}.{one.name.rpartition('.')[2]}" not in own:
                self._has(one, path, owner, inherited=True)

    def _has(
        self, one: _MadeByDefinition, path: str, owner: Any, *, inherited: bool = False
    ) -> None:
        met = self._met.setdefault(id(one.value), _OwnersOfOne(one, {}, []))
        if met.paths.get(id(owner), "self").startswith("self"):  # in a method: called so there
            met.paths[id(owner)] = path
        met.inherited.extend([id(owner)] if inherited else [])

    def searched(self) -> None:
        """Keep what the search found to have several owners, and let go of the rest."""
        groups = collections.defaultdict[tuple[str, Any], list[_OwnersOfOne]](list)
        for one in self._met.values():
            if len(one.paths) > 1:
                groups[one.made.name, one.made.code].append(one)
        self._of, self._of_functions, self._met = {}, {}, {}
        for several in groups.values():
            self._shared(several)

    def _shared(self, several: list[_OwnersOfOne]) -> None:
        """Keep a fact of what one default or attribute has made."""
        made = several[0].made
        paths = {owner: path for one in several for owner, path in one.paths.items()}
        if made.by is None:
            paths = _outermost(paths)
        inside = {id(part): part for one in several for part in tensors_inside(one.made.value)}
        found = map(self._tape.who.find, inside.values())
        tensors = tuple(TensorId(ref.serial) for ref in found if ref is not None)
        site = UNKNOWN if made.code is None else self._tape.places.add_definition(made.code)
        filled = max((_how_filled(type(one.made.value)) for one in several), key=len)
        if tensors and len(paths) > 1:
            self.facts[made.name, site] = MadeOnce(
                Moment(self._tape.now()), made.name, SiteId(site), len(paths),
                tuple([*paths.values()][:_NAMED]), tensors, filled,
                not any(one.inherited for one in several),
            )  # fmt: skip


def _outermost(paths: dict[int, str]) -> dict[int, str]:
    """Leave out the owners that are inside another one: what one call made is one."""
    return {
        owner: path
        for owner, path in paths.items()
        if not any(path.startswith(f"{one}.") for one in paths.values())
    }


def _how_filled(kind: type) -> Literal["", "in order", "by key"]:
    if issubclass(kind, dict):
        return "by key"
    return "in order" if issubclass(kind, (list, collections.deque)) else ""


def _made_for(kind: type) -> Iterator[_MadeByDefinition]:
    """Yield what the definition of a class made: defaults of its methods, and its attributes."""
    for one in kind.__mro__:
        for name, part in list(vars(one).items()) if is_user_class(one) else ():
            if isinstance(part, types.FunctionType) and is_user_file(part.__code__.co_filename):
                yield from _defaults_of(part, one)
            elif _may_be_shared(part) and not name.startswith("__"):
                yield _MadeByDefinition(f"{one.__name__}.{name}", part, None, one)


def _defaults_of(
    function: types.FunctionType, by: type | None = None
) -> Iterator[_MadeByDefinition]:
    """Yield the defaults of a function, each with what it holds, if it is a container."""
    code, values = function.__code__, function.__defaults__ or ()
    names = code.co_varnames[code.co_argcount - len(values) : code.co_argcount]
    for name, value in (
        *zip(names, values, strict=False),
        *(function.__kwdefaults__ or {}).items(),
    ):
        for part in (value, *_parts_in(value)):
            if _may_be_shared(part):
                yield _MadeByDefinition(name, part, code, by)


def _parts_in(value: Any) -> Iterator[Any]:
    """Yield the modules and tensors in a container, and in those inside it."""
    for part in _contained(value, lambda kind: issubclass(kind, _CONTAINERS)):
        if issubclass(type(part), _TENSORS):
            yield part


def _inside(values: Iterable[Any], owners: set[type | None]) -> set[int]:
    """Return what some attributes are or hold: in containers, and in modules as their parts.

    What another owner has inside this one is the other's.
    """

    def looked_into(kind: type) -> bool:
        module = issubclass(kind, torch.nn.Module) and owners.isdisjoint(kind.__mro__)
        return module or issubclass(kind, _CONTAINERS)

    return {id(part) for one in values for part in (one, *_contained(one, looked_into))}


def _contained(value: Any, looked_into: Callable[[type], bool]) -> Iterator[Any]:
    """Yield what things of some kinds hold, from one on; of modules what is registered."""
    walk = ObjectWalk([value], _MOST)
    for one in walk:
        if walk.times(one) == 1:
            if one is not value:
                yield one
            walk.add(_held(one) if looked_into(type(one)) else ())


def _held(value: Any) -> Iterable[Any]:
    module = issubclass(type(value), torch.nn.Module)
    parts = (*tensors_of("", value), *modules_of("", value)) if module else parts_of("", value)
    return [part for _, part in itertools.islice(parts, _MOST)]


def _may_be_shared(value: Any) -> bool:
    kind = type(value)
    descriptor = any("__get__" in vars(one) for one in kind.__mro__)
    plain = descriptor or issubclass(kind, type) or not is_user_class(kind)
    return issubclass(kind, _KINDS) or not plain
