"""The program's own objects: what is inside each, and the walk from one to the next.

Who searches for names, holders, caches or kept elements begins with variables and goes on with the
parts of what it comes to. An `ObjectWalk` gives the order and the bounds: breadth first, so that
the first name of a thing is its shortest; a number of things in all; and how often a thing was come
to, so that it is looked into once. What a thing consists of, and what a user would call each part,
says `parts_of`, and `kept_by` of what shows it by no attribute and no index.

No code of the program's runs: no property, no method of a subclass, no `__class__`; an object's
kind is its type, its attributes come from its own dictionary and slots, its items from the plain
class that it inherits from. Nothing is kept alive: a walk has only numbers of what it has left
behind, and the copy of a function's variables is emptied.
"""

from __future__ import annotations

import collections
import functools
import gc
import inspect
import itertools
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import torch

from tether.facts import CACHE, WAITING
from tether.record.arrays.memory import is_array, objects_in
from tether.record.notebook_cells import of_the_user
from tether.record.sites import is_user_file, user_frames

MOST_INSIDE = 50_000
"""Things in one container that are told of."""

LEAVES = (
    str, bytes, bytearray, int, float, complex, bool, type(None), type, types.FunctionType,
    types.BuiltinFunctionType, types.MethodType, types.CodeType, types.FrameType, range, slice,
    torch.dtype, torch.device, torch.Size, torch.Generator, torch.optim.Optimizer,
    functools.partial, BaseException,
)  # fmt: skip

CACHE_KIND = type(functools.lru_cache(lambda: None))

_KEYS = frozenset((str, bytes, int, float, bool, type(None), torch.dtype, torch.device))

UNSAID = "..."
"""In brackets: a place in a set, or one whose key has no plain text."""

GENERATORS = (types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType)

KEEPERS = (
    types.FunctionType, types.MethodType, functools.partial, BaseException, type, CACHE_KIND,
    *GENERATORS,
)  # fmt: skip

CONTAINERS = (dict, list, tuple, collections.deque, set, frozenset)
_PACKAGE = __name__.partition(".")[0]

_Place = TypeVar("_Place")


class ObjectWalk(Generic[_Place]):
    """The things that a search comes to: those of some roots, then what is added as it goes."""

    def __init__(self, roots: Iterable[_Place], visits: int) -> None:
        self._visits = visits
        self._next = collections.deque(roots)
        self._later: collections.deque[_Place] = collections.deque()
        self._times: dict[int, int] = {}

    def __iter__(self) -> Iterator[_Place]:
        for _ in range(self._visits):
            waiting = self._next or self._later
            if not waiting:
                return
            yield waiting.popleft()

    def add(self, places: Iterable[_Place], at_once: int | None = None) -> None:
        """Come to some things after those that wait, or to the first of them only.

        The others come after everything else: a million numbers must not hide a model behind them.
        """
        places = iter(places)
        self._next.extend(itertools.islice(places, at_once))
        self._later.extend(places)

    def times(self, value: Any) -> int:
        """Return how often it was asked of a thing, this time included."""
        times = self._times[id(value)] = self._times.get(id(value), 0) + 1
        return times


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


def is_closed(kind: type) -> bool:
    """Whether objects of a class show nothing of what they hold: C's own, as `itertools.cycle`."""
    if issubclass(kind, (*LEAVES, *CONTAINERS, np.ndarray)) or is_user_class(kind):
        return False
    slots = any("__slots__" in one.__dict__ for one in kind.__mro__)
    return kind.__dictoffset__ == 0 and not slots


def is_kept_inside(kind: type) -> bool:
    """Whether what an object holds is shown by no attribute and no index."""
    return issubclass(kind, (*LEAVES, *KEEPERS)) or is_closed(kind)


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
    frame = waiting_in(value)
    for name, part in locals_of(frame) if frame is not None else ():
        yield f"{path}.{WAITING}.{name}", part


def _of_function(path: str, value: types.FunctionType) -> _Parts:
    users = is_user_file(value.__code__.co_filename)
    for name, part in cells_of(value):
        if users or not is_of_a_library(part):
            yield f"{path}.__closure__.{name}", part


def _of_method(path: str, value: types.MethodType) -> _Parts:
    if not is_of_a_library(value.__self__):
        yield f"{path}.__self__", value.__self__
    yield path, value.__func__


def is_of_a_library(value: Any) -> bool:
    """Whether a thing is an object of a library's class, and neither a module nor a tensor.

    What a library's function holds in one, as the hooks that it hangs on a module, is its own.
    """
    kind = type(value)
    open_to_all = (torch.nn.Module, torch.Tensor, *CONTAINERS, *KEEPERS)
    return not issubclass(kind, open_to_all) and not is_user_class(kind)


def _of_class(path: str, value: type) -> _Parts:
    for name, part in list(vars(value).items()) if is_user_class(value) else ():
        if not name.startswith("__"):
            yield f"{path}.{name}", part


def _of_exception(path: str, value: BaseException) -> _Parts:
    yield from attributes_in(path, value)
    for name, part in variables_of_error(value):
        yield f"{path}.__traceback__.{name}", part


_HELD: tuple[tuple[Any, Callable[[str, Any], _Parts]], ...] = (
    (types.FunctionType, _of_function),
    (CACHE_KIND, lambda path, value: (
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


def waiting_in(generator: Any) -> types.FrameType | None:
    """Return the frame of a generator or coroutine that waits: of one that runs it is no place.

    The variables of a running function are looked at as such.
    """
    frame = frame_of(generator)
    return frame if frame is not None and frame.f_back is None else None


def cache_of(function: Any) -> list[tuple[Any, Any]]:
    """Return the keys and results that the cache of a function keeps, as C has them."""
    tables = (one for one in gc.get_referents(function) if type(one) is dict)
    return [pair for one in tables if one is not function.__dict__ for pair in list(one.items())]


def cached_by(function: Any) -> Iterator[Any]:
    """Return the results that the cache of a function keeps."""
    for _, part in cache_of(function):
        link = type(part).__name__ == "_lru_list_elem"
        yield from gc.get_referents(part) if link else (part,)


def cells_of(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """Return the variables around a function that it uses."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
        try:
            yield name, cell.cell_contents
        except ValueError:  # not filled yet
            continue


def items_of(value: Any) -> list[Any]:
    """Return the items of a list, tuple, deque or set, as its plain class gives them."""
    for kind in (list, tuple, collections.deque, set, frozenset):
        if issubclass(type(value), kind):
            return list(kind.__iter__(value))
    return []


def parts_of(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Return the things inside `value`, with the names a user would write for them.

    Of a module first what it has registered: its tensors, then its modules.
    """
    own = own_parts_of(path, value)
    if not issubclass(type(value), torch.nn.Module):
        return own
    return itertools.chain(tensors_of(path, value), modules_of(path, value), own)


def own_parts_of(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Return the things inside `value`; of a module but what it has registered."""
    kind = type(value)
    if issubclass(kind, dict):
        yield from _items_of_dict(path, value)
    elif issubclass(kind, (list, tuple, collections.deque)):
        fields = getattr(kind, "_fields", None) or ()
        for number, item in enumerate(items_of(value)[:MOST_INSIDE]):
            yield f"{path}{_place(number, item, fields)}", item
    elif issubclass(kind, (set, frozenset)):
        for item in items_of(value)[:MOST_INSIDE]:
            yield f"{path}[{UNSAID}]", item
    elif is_array(value):
        yield from ((f"{path}{place}", item) for place, item in objects_in(value, MOST_INSIDE))
    elif not issubclass(kind, types.ModuleType) or _is_users(value):
        for name, item in attributes_of(value):
            yield f"{path}.{name}", item


def _items_of_dict(path: str, value: Any) -> _Parts:
    """Yield what a dictionary holds: a subclass may load or compute it, and is not asked."""
    if dict.__contains__(value, "__builtins__"):
        return  # the variables of a module, which are looked for by themselves
    for key, item in list(dict.items(value))[:MOST_INSIDE]:
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


def tensors_of(path: str, value: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Return the parameters and the buffers of a module."""
    own = registered(value)
    for table in (own.parameters, own.buffers):
        for name, tensor in table.items():
            if tensor is not None:
                yield f"{path}.{name}", tensor


def modules_of(path: str, value: torch.nn.Module) -> Iterator[tuple[str, Any]]:
    """Return the modules inside a module."""
    for name, module in registered(value).modules.items():
        if module is not None:
            yield f"{path}.{name}", module


def attributes_in(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Return the attributes that an object holds itself, as a user writes them."""
    return ((f"{path}.{name}", item) for name, item in attributes_of(value))


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
