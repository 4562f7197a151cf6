"""Who else shows a memory as it is written: looked for from the variables of running functions.

One tensor object in ten places of a list, in a caller's variable and a function's parameter, in a
cache: no call of PyTorch tells of it. So right after a write the program's variables, containers,
closures, caches, attributes and optimizers are searched for whatever shows that memory, tensors and
NumPy arrays alike. Every place is found once, by the first name that leads to it.

Looked for at the 1st, 2nd, 4th, 8th... write of a line, for at most 1 % of the time since the
recording began. What more objects refer to is counted apart from what fewer do, since somebody
keeps it. One line of the program's may run a whole model: below it each line of a library's is
counted by itself. No code of the program's is run.
"""

from __future__ import annotations

import collections
import functools
import gc
import itertools
import sys
import types
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from tether.facts import UNKNOWN, EventId, Holder, HolderKind, SiteId, Sought, TensorId
from tether.record.arrays.contents import shared_until_written
from tether.record.arrays.memory import holds_objects, is_array, stretch_of
from tether.record.budget import Budget
from tether.record.names.made_once import MadeOnceLog
from tether.record.names.shallow_copies import ShallowCopies
from tether.record.objects import (
    CACHE_KIND,
    CONTAINERS,
    GENERATORS,
    ObjectWalk,
    attributes_of,
    cells_of,
    is_tethers,
    is_user_class,
    kept_by,
    locals_of,
    modules_of,
    parts_of,
    tensors_of,
)
from tether.record.sites import is_user_file, user_frames
from tether.record.sparse import values_of
from tether.record.tape import Tape

ALLOWED = 0.2
"""Seconds that searching may take beside that."""

VISITS = 20_000
"""Objects that one search looks at."""

EACH = 4_000
"""Of these, in one variable."""

MOST_COUNTS = 8
"""Numbers of references that are told apart at one line: in a list that grows each is another."""

MOST_INSIDE = 1024
"""Places of one container that a search looks at: the first ones and the last ones."""

MOST = 512
"""Places that one search tells of."""

_AGAIN = 32
"""Places of one object that are told of, beside the first."""

_DEPTH = 10
_PLAIN = (
    str, bytes, int, float, complex, bool, type(None), types.BuiltinFunctionType, types.CodeType,
    types.FrameType, range, slice, torch.dtype, torch.device, torch.Size, torch.Generator,
)  # fmt: skip
_NOTHING = frozenset(_PLAIN)


class _Root(NamedTuple):
    """A function that runs: what its variables are reached by."""

    function: str
    site: int
    depth: int


class _Item(NamedTuple):
    """An object that waits to be looked at."""

    path: str
    value: Any
    kind: HolderKind
    root: _Root
    depth: int
    variable: str


class HolderLog:
    """The places found so far, and the search for more."""

    def __init__(self, tape: Tape, made_once: MadeOnceLog, copies: ShallowCopies) -> None:
        self._tape = tape
        self._made_once = made_once
        self._copies = copies
        self.facts: list[Holder] = []
        self._writes: dict[Hashable, int] = {}  # line, and what refers to it -> writes so far
        self._counts = collections.defaultdict[tuple[int, int], set[int]](set)  # by line, as seen
        self._budget = Budget(0.01, ALLOWED)

    def wrote(self, tensors: Sequence[Any], event: int, place: tuple[int, int]) -> None:
        """Take note of who shows what `event` has just written, where two places do.

        One is enough where a library wrote, whose own names are not looked at.
        """
        if self._copies.shared:
            self._through(tensors, event)
        site, inner = place
        line = site, inner, self._count(place, tensors)
        self._note(self._look(tensors, event, line), 2 if site == inner else 1)

    def _count(self, place: tuple[int, int], tensors: Sequence[Any]) -> int:
        """Return how many references there are to what a line wrote; -1: one more number of many.

        Where something more refers to it than at other writes of its line it has come to be kept,
        and is looked at as at a first write.
        """
        count, seen = sum(map(sys.getrefcount, tensors)), self._counts[place]
        if len(seen) < MOST_COUNTS:
            seen.add(count)
        return count if count in seen else UNKNOWN

    def _through(self, tensors: Sequence[Any], event: int) -> None:
        """Take note through which of several objects a call wrote, where some were copied."""
        try:
            with torch._C.DisableTorchFunction():
                self._copies.wrote(tensors, event)
        except Exception as error:  # noqa: BLE001 -- the program's objects may do anything
            self._tape.failed("looking for who wrote", error)

    def reached(self, gradients: Sequence[Any], event: int, site: int) -> None:
        """Take note of who shows gradients that `event` reached, be it one place."""
        self._note(self._look(gradients, event, site), 1)

    def given(self, shown: Any, event: int, site: int) -> None:
        """Take note of who shows an array that `event` was given, be it one place."""
        self._note(self._look((shown,), event, site, "given"), 1)

    def _note(self, found: list[Holder], least: int) -> None:
        if len(found) >= least or any(one.kind == "default" for one in found):
            self.facts += found

    def stepped(self, written: Sequence[torch.Tensor], event: int, site: int) -> None:
        """Take note of who else shows what an optimizer's step has written.

        Each parameter is its module's: only those that are found in two places are told of.
        """
        found = self._look(written, event, site)
        if not found:
            return
        times = collections.Counter(one.tensor for one in found)
        self.facts += [one for one in found if one.tensor < 0 or times[one.tensor] > 1]

    def met(self, arrays: Sequence[Any], event: int) -> None:
        """Take note of who shows some arrays, where there is time for it: `event` was the last."""
        if not self._budget.late():
            with self._budget:
                self.facts += self._search(arrays, event, "met")

    def _look(
        self, tensors: Iterable[Any], event: int, line: Hashable, sought: Sought = "written"
    ) -> list[Holder]:
        """Look for who shows some tensors, if it is time for it."""
        count = self._writes[line] = self._writes.get(line, 0) + 1
        if count & (count - 1):
            return []
        if self._budget.late():
            return []
        try:
            with self._budget, torch._C.DisableTorchFunction():
                return self._search(tensors, event, sought)
        except Exception as error:  # noqa: BLE001 -- the program's objects may do anything
            self._tape.failed("looking for who holds a tensor", error)
            return []

    def again(self) -> None:
        """Look at the next write of each line: something has come to share that did not before."""
        self._writes.clear()

    def _search(self, tensors: Iterable[Any], event: int, sought: Sought) -> list[Holder]:
        memories = [_Wanted(self._tape, one) for one in tensors]
        wanted = {one.number for one in memories if one.number is not None}
        if not wanted and not any(one.bytes for one in memories):
            return []
        stretches = [one.bytes for one in memories if one.bytes]
        search = _Search(self._tape, self._made_once, wanted, stretches)
        roots = _variables(self._tape, sys._getframe(3))
        try:
            return [
            Holder(
                EventId(event), TensorId(serial), item.path, item.kind, item.root.function,
                SiteId(item.root.site), item.root.depth,
                serial == UNKNOWN and search.in_part(item.value), sought,
            )
            for serial, item in itertools.islice(search.run(roots), MOST)
        ]  # fmt: skip
        finally:
            self._made_once.searched()


class _Wanted:
    """The memory behind a tensor: its number, and where it lies; or where an array does."""

    def __init__(self, tape: Tape, tensor: Any) -> None:
        self.bytes: tuple[int, int] | None = None
        self.number: int | None = None
        if is_array(tensor):
            self.bytes = stretch_of(tensor)
            return
        self.number = tape.who.memory_number(tensor)
        if self.number is None or not tensor.is_cpu:
            return
        try:
            shown = values_of(tensor)
            shown = tensor if shown is None else shown
            if shared_until_written(shown):
                return
            storage = shown.untyped_storage()
            if storage.device.type == "meta":
                return  # a tensor that only pretends to have memory
            first = storage.data_ptr()
        except Exception:  # noqa: BLE001 -- a wrapper may refuse
            return
        self.bytes = (first, first + storage.nbytes())


class _Search:
    """One walk through the program's objects."""

    def __init__(
        self,
        tape: Tape,
        made_once: MadeOnceLog,
        wanted: set[int],
        bytes_: list[tuple[int, int]],
    ) -> None:
        self._who = tape.who
        self._made_once = made_once
        self._wanted = wanted
        self._bytes = bytes_
        self._seen: dict[int, list[_Item]] = {}  # the ways by which an object was met
        self._again: dict[int, list[_Item]] = {}  # objects that are in two places themselves

    def run(self, roots: Iterable[_Item]) -> Iterator[tuple[int, _Item]]:
        """Yield the places that show the memory: the tensor's number, and how it is reached."""
        walk = ObjectWalk(roots, VISITS)
        left: dict[tuple[_Root, str], int] = collections.defaultdict(lambda: EACH - 1)
        for item in walk:
            value, kind = item.value, type(item.value)
            if issubclass(kind, torch.Tensor):
                if self._who.memory_number(value) in self._wanted:
                    yield self._who.serial(value), item
            elif issubclass(kind, np.ndarray) and not holds_objects(value):
                if self._shows(value):
                    yield UNKNOWN, item
            elif not issubclass(kind, _PLAIN) and item.depth <= _DEPTH and self._is_new(item):
                variable = item.root, item.variable
                inside = _inside(item)[: left[variable]]
                left[variable] -= len(inside)
                walk.add(inside)
        yield from self._repeated()

    def _is_new(self, item: _Item) -> bool:
        """Whether an object is met for the first time; the ways by which it is met are kept."""
        met = self._seen.setdefault(id(item.value), [])
        if any(_counts_again(item, one) for one in met):
            self._again.setdefault(id(item.value), []).append(item)
        met.append(item)
        if not issubclass(type(item.value), CONTAINERS):
            self._made_once.met(item.path, item.value, type(item.value))
        return len(met) == 1

    def _shows(self, array: Any) -> bool:
        begin, end = stretch_of(array)
        return any(first < end and begin < last for first, last in self._bytes)

    def in_part(self, array: Any) -> bool:
        """Whether an array shows other elements than just those that are looked for."""
        return stretch_of(array) not in self._bytes

    def _repeated(self) -> Iterator[tuple[int, _Item]]:
        """Yield the places inside objects that are themselves in two places, by the other name."""
        for number, items in self._again.items():
            first = self._seen[number][0]
            inside = [one for one in _parts_shown(first.value) if self._is_wanted(one[1])]
            for item in items[:_AGAIN]:
                for name, part in inside[:4]:
                    serial = UNKNOWN if is_array(part) else self._who.serial(part)
                    yield serial, item._replace(path=f"{item.path}{name}", value=part)

    def _is_wanted(self, part: Any) -> bool:
        if is_array(part):
            return self._shows(part)
        return self._who.memory_number(part) in self._wanted


def _counts_again(item: _Item, first: _Item) -> bool:
    """Whether an object met a second time is a place of its own.

    In two places of one container, or two variables of one function, a dictionary or list under two
    names: not an object that others refer to, as all programs are built.
    """
    kind = type(item.value)
    if issubclass(kind, torch.nn.Module):
        if item.kind == first.kind == "variable":
            return item.root == first.root
        return item.path.rpartition(".")[0] == first.path.rpartition(".")[0] != "" or (
            item.kind == first.kind == "slot"
        )
    if issubclass(kind, (dict, list)):
        return item.root == first.root or item.kind == "default"
    same = item.kind == first.kind and item.root == first.root
    return same and (item.kind == "variable" or (item.kind == "slot" and _beside(item, first)))


def _beside(item: _Item, first: _Item) -> bool:
    """Whether two places are of one container."""
    return item.path.rpartition("[")[0] == first.path.rpartition("[")[0]


def _parts_shown(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the tensors and arrays right inside an object; of a module, all its tensors."""
    if isinstance(value, torch.nn.Module):
        walk = ObjectWalk([("", value)], EACH)
        for path, module in walk:
            yield from tensors_of(path, module)
            walk.add(modules_of(path, module))
        return
    for path, part in parts_of("", value):
        if issubclass(type(part), (torch.Tensor, np.ndarray)):
            yield path, part


# -- what is inside an object ---------------------------------------------------------------


def _inside(item: _Item) -> list[_Item]:
    """Return the places inside an object, each with what kind of place it is."""
    if is_tethers(type(item.value)):
        return []
    found = (one for one in _places_in(item.path, item.value) if type(one[1]) not in _NOTHING)
    first = list(itertools.islice(found, MOST_INSIDE // 2))
    last = collections.deque(found, maxlen=MOST_INSIDE // 2)
    inside = item.kind == "cache"  # in the dictionary of a cache
    return [
        _Item(item.path if inside else name, part, "cache" if inside else kind, item.root,
              item.depth + 1, item.variable)
        for name, part, kind in (*first, *last)
    ]  # fmt: skip


_Places = Iterator[tuple[str, Any, HolderKind]]


def _places_in(path: str, value: Any) -> _Places:
    for known, places in _WAYS:
        if issubclass(type(value), known):
            return places(path, value)
    return _of_object(path, value)


def _of_module(path: str, value: torch.nn.Module) -> _Places:
    for name, tensor in tensors_of(path, value):
        yield name, tensor, "attribute"
    for name, module in modules_of(path, value):
        yield name, module, "slot"
    for name, part in attributes_of(value):
        yield f"{path}.{name}", part, _kind_of_attribute(value, name)


def _kind_of_attribute(value: Any, name: str) -> HolderKind:
    """Say whether an attribute is what a `cached_property` has computed."""
    kinds = (kind.__dict__.get(name) for kind in type(value).__mro__)
    cached = any(type(one) is functools.cached_property for one in kinds)
    return "cache" if cached else "attribute"


def _of_method(path: str, value: types.MethodType) -> _Places:
    yield f"{path}.__self__", value.__self__, "attribute"
    yield path, value.__func__, "attribute"


def _of_partial(path: str, value: functools.partial[Any]) -> _Places:
    for number, part in enumerate(value.args):
        yield f"{path}.args[{number}]", part, "slot"
    for name, part in value.keywords.items():
        yield f"{path}.keywords[{name!r}]", part, "slot"


def _of_class(path: str, value: type) -> _Places:
    if is_user_class(type(value)) or is_user_class(value):
        for name, part in list(vars(value).items()):
            if name == "__init__" or not name.startswith("__"):
                yield f"{path}.{name}", part, "default"


def _of_object(path: str, value: Any) -> _Places:
    slots = issubclass(type(value), (*CONTAINERS, np.ndarray))
    for name, part in parts_of(path, value):
        yield name, part, "slot" if slots else _kind_of_attribute(value, name[len(path) + 1 :])


def _of_function(path: str, value: types.FunctionType) -> Iterator[tuple[str, Any, HolderKind]]:
    if not is_user_file(value.__code__.co_filename):
        wrapped = value.__dict__.get("__wrapped__")
        if wrapped is not None:
            yield path, wrapped, "attribute"
    for name, part in cells_of(value):
        yield name, part, "closure"
    for number, part in enumerate(value.__defaults__ or ()):
        names = value.__code__.co_varnames[: value.__code__.co_argcount]
        yield names[number - len(value.__defaults__ or ())], part, "default"
    for name, part in (value.__kwdefaults__ or {}).items():
        yield name, part, "default"


def _of_generator(path: str, value: Any) -> _Places:
    for name, part in kept_by(path, value):
        yield name, part, "closure"


def _of_optimizer(path: str, value: torch.optim.Optimizer) -> Iterator[tuple[str, Any, HolderKind]]:
    for number, group in enumerate(value.__dict__.get("param_groups", ())):
        for name, part in group.items():
            if name != "params":
                yield f"{path}.param_groups[{number}][{name!r}]", part, "state"
    for number, state in enumerate(list(value.__dict__.get("state", {}).values())):
        if isinstance(state, dict):
            for name, part in list(state.items()):
                yield f"{path}.state[{number}][{name!r}]", part, "state"


# -- where the search begins ----------------------------------------------------------------


def _variables(tape: Tape, frame: types.FrameType | None) -> Iterator[_Item]:
    """Yield the variables of the user's running functions, those of the innermost one first."""
    for depth, one in enumerate(user_frames(frame)):
        known = tape.places.of_code(one.f_code)
        site = tape.places.add(known, one.f_lasti).number
        root = _Root(one.f_code.co_qualname, site, depth)
        for name, value in locals_of(one):
            if name[:1] != ".":  # what a comprehension runs over has a name elsewhere
                yield _Item(name, value, "variable", root, 0, name)


_WAYS: tuple[tuple[Any, Callable[[str, Any], _Places]], ...] = (
    (CACHE_KIND, lambda path, value: (
        (path, part, "cache") for part in gc.get_referents(value))),
    (torch.nn.Module, _of_module),
    (torch.optim.Optimizer, _of_optimizer),
    (types.FunctionType, _of_function),
    (types.MethodType, _of_method),
    (functools.partial, _of_partial),
    (GENERATORS, _of_generator),
    (type, _of_class),
)  # fmt: skip
"""How the places inside an object are found, by its class; the first that fits counts."""
