"""What the running program calls its tensors: `model.layer1.weight`, `agent.net.h0`.

Names are looked for where a user would look: in the variables of the frames that are running, the
outermost first, and from there through module trees, containers and the attributes of objects. No
property is run and no user code called: attributes are read from the instances' own dictionaries.
"""

from __future__ import annotations

import itertools
import types
import weakref
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch

from tether.facts import (
    UNKNOWN,
    WAITING,
    ModuleId,
    Moment,
    Name,
    OwnBackward,
    PlainFlag,
    SiteId,
    Suspended,
    TensorId,
)
from tether.record.arrays.small_arrays import SmallArrays
from tether.record.budget import Budget
from tether.record.names.made_once import MadeOnceLog
from tether.record.objects import (
    CONTAINERS,
    KEEPERS,
    LEAVES,
    ObjectWalk,
    is_closed,
    is_tethers,
    is_user_class,
    kept_by,
    modules_of,
    own_parts_of,
    registered,
    variables_of_frames,
    waiting_in,
)
from tether.record.sites import is_user_file
from tether.record.tape import Tape

VISITS = 50_000  # objects that one search looks at
AT_ONCE = 64  # of the things in one container; the others wait until all else was looked at
DEPTH = 24  # steps from the variable: a network may have a dozen modules inside one another
_PER_TENSOR = 6  # names kept of one tensor
_PATHS = 3  # ways by which one search comes to a module: a loop variable must not hide its place

_NO_MODULE = ModuleId(UNKNOWN)
_SWITCH = "requires_grad"
_BACKWARD = "backward"
_WORDS = ["require", "gra"]  # of the switch, without endings


class Reached(NamedTuple):
    """A thing that a search has come to, and how it got there."""

    path: str
    value: Any
    depth: int
    users: bool  # the class around it is the user's
    listed: bool  # the module around it would list it
    owner: str  # class of the object around it


class Naming:
    """The names found so far, and the search for more."""

    def __init__(self, tape: Tape, arrays: SmallArrays, made_once: MadeOnceLog) -> None:
        self._tape = tape
        self._arrays = arrays
        self.made_once = made_once
        self.facts: dict[tuple[int, str], Name] = {}
        self.suspended: dict[str, Suspended] = {}
        # By module, or by tensor below zero.
        self.flags: dict[tuple[int, str, bool], PlainFlag] = {}
        self.own_backwards: list[OwnBackward] = []
        self._classes: set[type] = set()  # of modules that were come to
        self._count: dict[int, int] = {}
        self._modules: dict[int, tuple[weakref.ref[torch.nn.Module], ModuleId]] = {}
        self._next_module = itertools.count().__next__
        self.paths: dict[
            int, str
        ] = {}  # by number: the modules that are asked for, and their names
        self._asked = 0
        self._next = 1
        self._budget = Budget(0.01, allowed=0.3)

    def maybe_search(self, frame: types.FrameType | None) -> None:
        """Search at the first calls, and then at each doubling of their number."""
        self._asked += 1
        if self._asked < self._next:
            return
        self._next = self._asked * 2
        self.search_now(frame)

    def search_now(self, frame: types.FrameType | None, *, from_outside: bool = False) -> None:
        """Search the variables of the functions that run, unless that took its share of the run.

        With `from_outside` the innermost function's own names do not count, if another called it.
        """
        if not self._budget.late():
            self.search(variables_of_frames(frame, from_outside=from_outside))

    def knows(self, value: Any) -> bool:
        """Whether a tensor, or a parameter of a module, has a name."""
        tensors = value.parameters() if isinstance(value, torch.nn.Module) else [value]
        found = (self._tape.who.find(one) for one in tensors)
        return any(ref is not None and ref.serial in self._count for ref in found)

    def search(self, roots: Iterable[tuple[str, Any]]) -> None:
        """Name every known tensor that can be reached from the variables in `roots`.

        What functions, exceptions, generators and objects of C hold is looked into last.
        """
        with self._budget:
            roots = list(roots)
            self.made_once.begins(roots)
            self._search(roots)
            self._arrays.searched()
            self.made_once.searched()

    def _search(self, roots: Iterable[tuple[str, Any]]) -> None:
        walk = ObjectWalk(
            (Reached(name, value, 0, True, True, "") for name, value in roots), VISITS
        )
        for place in walk:
            kind = type(place.value)  # `isinstance` would ask the object itself for its class
            if issubclass(kind, torch.Tensor):
                self._found(place)
            elif issubclass(kind, KEEPERS) or is_closed(kind):
                if walk.times(place.value) == 1:
                    walk.add(_kept_inside(place), at_once=0)
                self._waits(place)
            elif not issubclass(kind, LEAVES) and place.depth <= DEPTH and not is_tethers(kind):
                inside = self._inside_again(place, kind, walk.times(place.value))
                walk.add(inside, at_once=AT_ONCE if issubclass(kind, CONTAINERS) else None)

    def _waits(self, place: Reached) -> None:
        """Take note of where a generator waits that the program has kept."""
        frame = waiting_in(place.value)
        if frame is not None and frame.f_lasti >= 0:
            known = self._tape.places.of_code(frame.f_code)
            site = self._tape.places.add(known, frame.f_lasti).number
            name = f"{place.path}.{WAITING}"
            self.suspended.setdefault(name, Suspended(name, SiteId(site)))

    def _inside_again(self, place: Reached, kind: type, times: int) -> Iterator[Reached]:
        """Return the things inside one; nothing where it was come to often enough."""
        if issubclass(kind, np.ndarray):
            self._arrays.met(place.path, place.value)
        if times > (_PATHS if issubclass(kind, torch.nn.Module) else 1):
            return iter(())
        if times == 1 and not issubclass(kind, (*CONTAINERS, np.ndarray, types.ModuleType)):
            self.made_once.met(place.path, place.value, kind)
        return self._inside(place, kind, again=times > 1)

    def _inside(self, place: Reached, kind: type, *, again: bool) -> Iterator[Reached]:
        """Yield the things inside one; the parameters and buffers of a module are named at once.

        A module that was come to before has other names by this path, and so have its parts.
        """
        path, value, depth, users, listed, owner = place
        module = issubclass(kind, torch.nn.Module)
        if not str(kind.__module__).startswith(("torch.", "builtins", "collections")):
            users = is_user_class(kind)
        if not issubclass(kind, (*CONTAINERS, types.ModuleType)):
            owner = kind.__name__
        if module:
            number = self.number(value)
            self._reached(number, path)
            self._flagged(value, number)
            if kind not in self._classes:
                self._note_class(kind)
            own = registered(value)
            for table, lists in ((own.parameters, listed), (own.buffers, False)):
                for part, tensor in table.items():
                    if tensor is not None:
                        at = Reached(f"{path}.{part}", tensor, depth, users, lists, owner)
                        self._found(at, path, number)
            for part_path, part in modules_of(path, value):
                yield Reached(part_path, part, depth + 1, users, listed, owner)
        for part_path, part in () if again else own_parts_of(path, value):
            yield Reached(part_path, part, depth + 1, users, listed and not module, owner)

    def _note_class(self, kind: type) -> None:
        """Take note of a method by which a module is to compute gradients."""
        self._classes.add(kind)
        method = _own_backward(kind)
        if method is not None:
            site = SiteId(self._tape.places.add_definition(method))
            self.own_backwards.append(OwnBackward(Moment(self._tape.now()), kind.__name__, site))

    def number(self, module: torch.nn.Module) -> ModuleId:
        """Return the number of a module object: an address alone may come back."""
        known = self._modules.get(id(module))
        if known is not None and known[0]() is module:
            return known[1]
        number = ModuleId(self._next_module())
        self._modules[id(module)] = weakref.ref(module), number
        return number

    def _reached(self, number: int, path: str) -> None:
        """Take note of a name of a module that is asked for."""
        if number in self.paths:
            self.paths[number] = min(path, self.paths[number] or path, key=_from_outside)

    def _flagged(self, module: torch.nn.Module, number: int) -> None:
        """Take note of what is to freeze a module or a parameter, or to let it train, in vain.

        The name that a tensor asks by is a plain attribute of a module.
        """
        for key in _flags(module):
            held = [self._tape.who.find(one) for one in module.parameters()]
            self._flag((number, *key), module, [one.serial for one in held if one is not None])
        for tensor in registered(module).parameters.values():
            ref = None if tensor is None or not vars(tensor) else self._tape.who.find(tensor)
            if ref is not None:
                for key in _flags(tensor):
                    self._flag((-1 - ref.serial, *key), tensor, [ref.serial])

    def _flag(self, key: tuple[int, str, bool], owner: Any, serials: list[int]) -> None:
        tensors = tuple(map(TensorId, serials))
        if key not in self.flags or len(self.flags[key].tensors) < len(tensors):
            now = Moment(self._tape.now())
            self.flags[key] = PlainFlag(now, type(owner).__name__, key[1], tensors, key[2])

    def _found(self, place: Reached, module: str = "", holder: ModuleId = _NO_MODULE) -> None:
        ref = self._tape.who.find(place.value)
        if ref is None:
            return  # never part of a call: nothing will be said of it
        key = (ref.serial, place.path)
        if key in self.facts or self._count.get(ref.serial, 0) >= _PER_TENSOR:
            return
        self._count[ref.serial] = self._count.get(ref.serial, 0) + 1
        self.facts[key] = Name(
            TensorId(ref.serial), place.path, Moment(self._tape.now()), place.owner, place.users,
            module, place.listed, holder,
        )  # fmt: skip


def _from_outside(path: str) -> tuple[bool, bool]:
    """Order the names of a module: from outside before `self`, through others before by itself."""
    return path.startswith("self."), "." not in path


def _own_backward(kind: type) -> types.CodeType | None:
    """Return the code of a class's method `backward`, if it is the user's and takes a gradient.

    One that calls another `backward` begins a pass, and a library that has one calls it itself.
    """
    methods = [vars(one)[_BACKWARD] for one in kind.__mro__ if _BACKWARD in vars(one)]
    codes = [getattr(getattr(one, "__func__", one), "__code__", None) for one in methods]
    users = [code for code in codes if code is not None and is_user_file(code.co_filename)]
    if not users or len(users) < len(codes):
        return None
    code: types.CodeType = users[0]
    return code if code.co_argcount > 1 and _BACKWARD not in code.co_names else None


def _flags(value: Any) -> list[tuple[str, bool]]:
    """Return the plain attributes of a module or tensor that say whether it is to train."""
    module = isinstance(value, torch.nn.Module)
    return [
        (name, said)
        for name, said in vars(value).items()
        if isinstance(said, bool) and (_is_misspelt(name) or (module and name == _SWITCH))
    ]


def _is_misspelt(name: str) -> bool:
    """Whether a name is that of the switch, but for its endings: ``require_grads``, ``..._``."""
    words = [one.rstrip("sd") for one in name.split("_") if one]
    return words == _WORDS and name != _SWITCH


def _kept_inside(place: Reached) -> Iterator[Reached]:
    """Yield what a function or an exception holds."""
    for path, part in kept_by(place.path, place.value):
        yield Reached(path, part, place.depth + 1, place.users, False, place.owner)
