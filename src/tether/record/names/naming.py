"""What the running program calls its tensors: `model.layer1.weight`, `agent.net.h0`.

Names are looked for where a user would look: in the variables of the frames that are running, the
outermost first, and from there through module trees, containers and the attributes of objects. No
property is run and no user code called: attributes are read from the instances' own dictionaries.
"""

from __future__ import annotations

import collections
import functools
import gc
import inspect
import itertools
import sys
import types
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from tether.facts import (
    CACHE,
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
from tether.record.arrays.memory import is_array, objects_in
from tether.record.arrays.small_arrays import SmallArrays
from tether.record.budget import Budget
from tether.record.notebook_cells import of_the_user
from tether.record.plain import items_of
from tether.record.sites import is_user_file, user_frames
from tether.record.tape import Tape

if TYPE_CHECKING:
    from tether.record.names.made_once import MadeOnceLog

VISITS = 50_000  # objects that one search looks at
AT_ONCE = 64  # of the things in one container; the others wait until all else was looked at
DEPTH = 24  # steps from the variable: a network may have a dozen modules inside one another
_PER_TENSOR = 6  # names kept of one tensor
_PATHS = 3  # ways by which one search comes to a module: a loop variable must not hide its place

LEAVES = (
    str, bytes, bytearray, int, float, complex, bool, type(None), type, types.FunctionType,
    types.BuiltinFunctionType, types.MethodType, types.CodeType, types.FrameType, range, slice,
    torch.dtype, torch.device, torch.Size, torch.Generator, torch.optim.Optimizer,
    functools.partial, BaseException,
)  # fmt: skip
_CACHE = type(functools.lru_cache(lambda: None))
_KEYS = frozenset((str, bytes, int, float, bool, type(None), torch.dtype, torch.device))
UNSAID = "..."
"""In brackets: a place in a set, or one whose key has no plain text."""

GENERATORS = (types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType)
_KEEPERS = (
    types.FunctionType, types.MethodType, functools.partial, BaseException, type, _CACHE,
    *GENERATORS,
)  # fmt: skip
_CONTAINERS = (dict, list, tuple, collections.deque, set, frozenset)


_PACKAGE = __name__.partition(".")[0]
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
        seen: dict[int, int] = {}
        queue = collections.deque(Reached(name, value, 0, True, True, "") for name, value in roots)
        later: collections.deque[Reached] = collections.deque()
        for _ in range(VISITS):
            if not queue and not later:
                break
            place = queue.popleft() if queue else later.popleft()
            kind = type(place.value)  # `isinstance` would ask the object itself for its class
            if issubclass(kind, torch.Tensor):
                self._found(place)
            elif issubclass(kind, _KEEPERS) or _is_closed(kind):
                later.extend(_kept_inside(place, seen))
                self._waits(place)
            elif not issubclass(kind, LEAVES) and place.depth <= DEPTH:
                inside = self._inside_again(place, kind, seen)
                queue.extend(itertools.islice(inside, AT_ONCE))
                # A replay buffer of a million numbers must not hide the model behind it.
                (later if issubclass(kind, _CONTAINERS) else queue).extend(inside)

    def _waits(self, place: Reached) -> None:
        """Take note of where a generator waits that the program has kept."""
        frame = _waiting(place.value)
        if frame is not None and frame.f_lasti >= 0:
            known = self._tape.places.of_code(frame.f_code)
            site = self._tape.places.add(known, frame.f_lasti).number
            name = f"{place.path}.{WAITING}"
            self.suspended.setdefault(name, Suspended(name, SiteId(site)))

    def _inside_again(self, place: Reached, kind: type, seen: dict[int, int]) -> Iterator[Reached]:
        """Return the things inside one; nothing where it was come to often enough."""
        if is_tethers(kind):
            return iter(())
        times = seen[id(place.value)] = seen.get(id(place.value), 0) + 1
        if issubclass(kind, np.ndarray):
            self._arrays.met(place.path, place.value)
        if times > (_PATHS if issubclass(kind, torch.nn.Module) else 1):
            return iter(())
        if times == 1 and not issubclass(kind, (*_CONTAINERS, np.ndarray, types.ModuleType)):
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
        if not issubclass(kind, (*_CONTAINERS, types.ModuleType)):
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
        for part_path, part in () if again else parts_of(path, value):
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


def _kept_inside(place: Reached, seen: dict[int, int]) -> Iterator[Reached]:
    """Yield what a function or an exception holds, the first time that it is come to."""
    if seen.setdefault(id(place.value), 0) == 0:
        seen[id(place.value)] = 1
        for path, part in kept_by(place.path, place.value):
            yield Reached(path, part, place.depth + 1, place.users, False, place.owner)


def variables_of(namespace: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Return the variables of a module, those that tell of the program before the rest."""
    for name, value in list(namespace.items()):
        if not name.startswith("__"):
            yield name, value


def variables_of_frames(
    frame: types.FrameType | None, *, from_outside: bool = False
) -> list[tuple[str, Any]]:
    """Return the variables of all user frames from `frame` outwards, the outermost first."""
    frames = list(user_frames(frame))
    found: list[tuple[str, Any]] = []
    if from_outside and frames and frames[0].f_code.co_name != "<module>":
        frames = frames[1:] or frames
    for one in reversed(frames):
        found += locals_of(one)
    return of_the_user(found)


def variables_of_error(error: BaseException | None) -> Iterator[tuple[str, Any]]:
    """Yield the variables of the user's functions that an error left, the outermost first."""
    trace = None if error is None else BaseException.__dict__["__traceback__"].__get__(error)
    while trace is not None:
        if is_user_file(trace.tb_frame.f_code.co_filename):
            yield from locals_of(trace.tb_frame)
        trace = trace.tb_next


def locals_of(frame: types.FrameType) -> list[tuple[str, Any]]:
    """Return the variables of a frame."""
    variables = frame.f_locals
    found = [pair for pair in list(variables.items()) if not pair[0].startswith("__")]
    copied = frame.f_code.co_flags & inspect.CO_OPTIMIZED and isinstance(variables, dict)
    if copied and frame.f_trace is None:  # a debugger writes the copy back into the function
        variables.clear()  # it would keep the function's tensors alive
    return found


def _is_closed(kind: type) -> bool:
    """Whether objects of a class show nothing of what they hold: C's own, as `itertools.cycle`."""
    if issubclass(kind, (*LEAVES, *_CONTAINERS, np.ndarray)) or is_user_class(kind):
        return False
    slots = any("__slots__" in one.__dict__ for one in kind.__mro__)
    return kind.__dictoffset__ == 0 and not slots


def is_kept_inside(kind: type) -> bool:
    """Whether what an object holds is shown by no attribute and no index."""
    return issubclass(kind, (*LEAVES, *_KEEPERS)) or _is_closed(kind)


def kept_by(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Return what a thing holds that is neither a container nor an object with attributes."""
    for known, parts in _HELD:
        if issubclass(type(value), known):
            yield from parts(path, value)
            return
    for part in gc.get_referents(value):
        yield f"{path}[{UNSAID}]", part


_Parts = Iterator[tuple[str, Any]]


def _of_generator(path: str, value: Any) -> _Parts:
    frame = _waiting(value)
    for name, part in locals_of(frame) if frame is not None else ():
        yield f"{path}.{WAITING}.{name}", part


def _of_function(path: str, value: types.FunctionType) -> _Parts:
    users = is_user_file(value.__code__.co_filename)
    for name, part in cells_of(value):
        if users or not _is_of_a_library(part):
            yield f"{path}.__closure__.{name}", part


def _of_method(path: str, value: types.MethodType) -> _Parts:
    if not _is_of_a_library(value.__self__):
        yield f"{path}.__self__", value.__self__
    yield path, value.__func__


def _is_of_a_library(value: Any) -> bool:
    """Whether a thing is an object of a library's class, and neither a module nor a tensor.

    What a library's function holds in one, as the hooks that it hangs on a module, is its own.
    """
    kind = type(value)
    open_to_all = (torch.nn.Module, torch.Tensor, *_CONTAINERS, *_KEEPERS)
    return not issubclass(kind, open_to_all) and not is_user_class(kind)


def _of_class(path: str, value: type) -> _Parts:
    for name, part in list(vars(value).items()) if is_user_class(value) else ():
        if not name.startswith("__"):
            yield f"{path}.{name}", part


def _of_exception(path: str, value: BaseException) -> _Parts:
    yield from ((f"{path}.{name}", part) for name, part in attributes_of(value))
    for name, part in variables_of_error(value):
        yield f"{path}.__traceback__.{name}", part


_HELD: tuple[tuple[Any, Callable[[str, Any], _Parts]], ...] = (
    (types.FunctionType, _of_function),
    (_CACHE, lambda path, value: (
        (f"{path}.{CACHE}[{number}]", part) for number, part in enumerate(cached_by(value)))),
    (types.MethodType, _of_method),
    (functools.partial, lambda path, value: iter(
        ((f"{path}.args", value.args), (f"{path}.keywords", value.keywords)))),
    (GENERATORS, _of_generator),
    (type, _of_class),
    (BaseException, _of_exception),
)  # fmt: skip
"""What things hold that show it by no attribute and no index."""


def frame_of(generator: Any) -> types.FrameType | None:
    """Return the frame of a user's generator or coroutine that has begun and has not ended."""
    for kind, name in zip(GENERATORS, ("gi_frame", "cr_frame", "ag_frame"), strict=True):
        if issubclass(type(generator), kind):
            frame: types.FrameType | None = kind.__dict__[name].__get__(generator)
            return frame if frame and is_user_file(frame.f_code.co_filename) else None
    return None


def _waiting(generator: Any) -> types.FrameType | None:
    """Return the frame of a generator or coroutine that waits: of one that runs it is no place.

    The variables of a running function are looked at as such.
    """
    frame = frame_of(generator)
    return frame if frame is not None and frame.f_back is None else None


def cached_by(function: Any) -> Iterator[Any]:
    """Return the results that the cache of a function keeps."""
    for table in gc.get_referents(function):
        if type(table) is dict and table is not function.__dict__:
            for part in list(table.values()):
                link = type(part).__name__ == "_lru_list_elem"
                yield from gc.get_referents(part) if link else (part,)


def cells_of(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """Return the variables around a function that it uses."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
        try:
            yield name, cell.cell_contents
        except ValueError:  # not filled yet
            continue


def parts_of(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Return the things inside `value`, with the names a user would write for them."""
    kind = type(value)
    if issubclass(kind, dict):
        yield from _items_of_dict(path, value)
    elif issubclass(kind, (list, tuple, collections.deque)):
        fields = getattr(kind, "_fields", None) or ()
        for number, item in enumerate(items_of(value)[:VISITS]):
            yield f"{path}{_place(number, item, fields)}", item
    elif issubclass(kind, (set, frozenset)):
        for item in items_of(value)[:VISITS]:
            yield f"{path}[{UNSAID}]", item
    elif is_array(value):
        yield from ((f"{path}{place}", item) for place, item in objects_in(value, VISITS))
    elif not issubclass(kind, types.ModuleType) or _is_users(value):
        for name, item in attributes_of(value):
            yield f"{path}.{name}", item


def _items_of_dict(path: str, value: Any) -> _Parts:
    """Yield what a dictionary holds: a subclass may load or compute it, and is not asked."""
    if dict.__contains__(value, "__builtins__"):
        return  # the variables of a module, which are looked for by themselves
    for key, item in list(dict.items(value))[:VISITS]:
        yield f"{path}[{_key(key)}]", item


def _key(key: Any) -> str:
    """Return how a user would write a key, where that runs no code of the program's."""
    parts = key if type(key) is tuple else (key,)
    return repr(key) if all(type(one) in _KEYS for one in parts) else UNSAID


def _place(number: int, item: Any, fields: Sequence[str]) -> str:
    """Return how a user would write an item of a sequence."""
    if number < len(fields):
        return f".{fields[number]}"
    # As in named_parameters().
    return f".{number}" if issubclass(type(item), torch.nn.Module) else f"[{number}]"


def _is_users(module: types.ModuleType) -> bool:
    return is_user_file(getattr(module, "__file__", None) or "<frozen>")


class Registered(NamedTuple):
    """What a module has registered; nothing yet before its class's own `__init__` has run."""

    parameters: dict[str, torch.Tensor | None]
    buffers: dict[str, torch.Tensor | None]
    modules: dict[str, torch.nn.Module | None]


def registered(module: torch.nn.Module) -> Registered:
    """Return what a module has registered."""
    own = object.__getattribute__(module, "__dict__")
    return Registered(*(own.get(f"_{name}") or {} for name in Registered._fields))


def modules_of(path: str, value: torch.nn.Module) -> Iterator[tuple[str, Any]]:
    """Return the modules inside a module."""
    for name, module in registered(value).modules.items():
        if module is not None:
            yield f"{path}.{name}", module


def attributes_of(value: Any) -> Iterator[tuple[str, Any]]:
    """Return the attributes that an object holds itself, its slots among them."""
    module = issubclass(type(value), torch.nn.Module)
    hidden = ("_parameters", "_buffers", "_modules") if module else ()
    try:
        own = object.__getattribute__(value, "__dict__")
    except Exception:  # noqa: BLE001 -- an object without a dictionary, or one that guards it
        own = {}
    for name, item in list(own.items()) if isinstance(own, dict) else ():
        if isinstance(name, str) and not name.startswith("__") and name not in hidden:
            yield name, item
    yield from _slots_of(value)


def _slots_of(value: Any) -> Iterator[tuple[str, Any]]:
    for kind in type(value).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            member = kind.__dict__.get(name)
            if isinstance(member, types.MemberDescriptorType):
                try:
                    yield name, member.__get__(value, kind)
                except AttributeError:
                    continue


def is_tethers(kind: type) -> bool:
    """Whether a class is tether's own: a program may have a recording in a variable.

    What a recording holds is facts by the thousand, and nothing that the program calls by a name.
    """
    return str(kind.__module__).partition(".")[0] == _PACKAGE


def is_user_class(kind: type) -> bool:
    """Whether a class is the user's own."""
    module = sys.modules.get(kind.__module__) if isinstance(kind.__module__, str) else None
    if module is None or kind.__module__ == "__main__":
        return True
    file = getattr(module, "__file__", None)
    return bool(file) and is_user_file(str(file))
