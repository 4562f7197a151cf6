"""What the running program calls its tensors: `model.layer1.weight`, `agent.net.h0`.

Names are looked for where a user would look: in the variables of the frames that are running, the
outermost first, and from there through module trees, containers and the attributes of objects. No
property is run and no user code called: attributes are read from the instances' own dictionaries.
"""

from __future__ import annotations

import collections
import inspect
import sys
import time
import types
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from tether.facts import Moment, Name, TensorId
from tether.record.plain import items_of
from tether.record.sites import is_user_file
from tether.record.tape import Tape

VISITS = 50_000  # objects that one search looks at
DEPTH = 12  # steps from the variable
SHARE = 0.01  # of the run's time that searching may take
_PER_TENSOR = 6  # names kept of one tensor

_LEAVES = (
    str, bytes, bytearray, int, float, complex, bool, type(None), type, types.FunctionType,
    types.BuiltinFunctionType, types.MethodType, types.CodeType, types.FrameType, range, slice,
    torch.dtype, torch.device, torch.Size, torch.Generator, torch.optim.Optimizer,
)  # fmt: skip


class Naming:
    """The names found so far, and the search for more."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape
        self.facts: dict[tuple[int, str], Name] = {}
        self._count: dict[int, int] = {}
        self._asked = 0
        self._next = 1
        self._began = time.perf_counter()
        self._spent = 0.0

    def maybe_search(self, frame: types.FrameType | None) -> None:
        """Search at the first calls, and then at each doubling of their number."""
        self._asked += 1
        if self._asked < self._next:
            return
        self._next = self._asked * 2
        if self._spent < SHARE * (time.perf_counter() - self._began) + 0.3:
            self.search(variables_of_frames(frame))

    def search(self, roots: Iterable[tuple[str, Any]]) -> None:
        """Name every known tensor that can be reached from the variables in `roots`."""
        began = time.perf_counter()
        seen: set[int] = set()
        budget = VISITS
        # Beside the path and the object: is the class around it the user's, and is it what the
        # module around it would list?
        queue: collections.deque[tuple[str, Any, int, bool, bool]] = collections.deque()
        for name, value in roots:
            queue.append((name, value, 0, True, True))
        while queue and budget > 0:
            budget -= 1
            path, value, depth, users, listed = queue.popleft()
            kind = type(value)  # `isinstance` would ask the object itself for its class
            if issubclass(kind, torch.Tensor):
                self._found(path, value, None, "", users, listed)
                continue
            if issubclass(kind, _LEAVES) or id(value) in seen or depth > DEPTH:
                continue
            seen.add(id(value))
            module = issubclass(kind, torch.nn.Module)
            if not str(kind.__module__).startswith(("torch.", "builtins", "collections")):
                users = is_user_class(kind)
            if module:
                for part, tensor in value._parameters.items():
                    if tensor is not None:
                        self._found(f"{path}.{part}", tensor, value, path, users, listed)
                for part, tensor in value._buffers.items():
                    if tensor is not None:
                        self._found(f"{path}.{part}", tensor, value, path, users, False)
                for part_path, part in modules_of(path, value):
                    queue.append((part_path, part, depth + 1, users, listed))
            for part_path, part in parts_of(path, value):
                queue.append((part_path, part, depth + 1, users, listed and not module))
        self._spent += time.perf_counter() - began

    def _found(
        self,
        path: str,
        tensor: torch.Tensor,
        owner: Any,
        module: str,
        users: bool,
        listed: bool,
    ) -> None:
        ref = self._tape.who.find(tensor)
        if ref is None:
            return  # never part of a call: nothing will be said of it
        key = (ref.serial, path)
        if key in self.facts or self._count.get(ref.serial, 0) >= _PER_TENSOR:
            return
        self._count[ref.serial] = self._count.get(ref.serial, 0) + 1
        owner_class = type(owner).__name__ if owner is not None else ""
        self.facts[key] = Name(
            TensorId(ref.serial), path, Moment(self._tape.now()), owner_class, users, module, listed
        )


def variables_of(namespace: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Return the variables of a module, those that tell of the program before the rest."""
    for name, value in list(namespace.items()):
        if not name.startswith("__"):
            yield name, value


def variables_of_frames(frame: types.FrameType | None) -> list[tuple[str, Any]]:
    """Return the variables of all user frames from `frame` outwards, the outermost first."""
    frames = []
    while frame is not None:
        if is_user_file(frame.f_code.co_filename):
            frames.append(frame)
        frame = frame.f_back
    found: list[tuple[str, Any]] = []
    for one in reversed(frames):
        variables = one.f_locals
        found += [pair for pair in list(variables.items()) if not pair[0].startswith("__")]
        if one.f_code.co_flags & inspect.CO_OPTIMIZED and isinstance(variables, dict):
            variables.clear()  # this copy would keep the function's tensors alive
    return found


def parts_of(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Return the things inside `value`, with the names a user would write for them."""
    kind = type(value)
    if issubclass(kind, dict):  # a subclass may load or compute its items: they are not asked for
        for key, item in list(dict.items(value))[:VISITS]:
            if type(key) is str or type(key) is int:
                yield f"{path}[{key!r}]", item
        return
    if issubclass(kind, (list, tuple, collections.deque)):
        fields = getattr(kind, "_fields", None)
        for number, item in enumerate(items_of(value)[:VISITS]):
            if fields and number < len(fields):
                yield f"{path}.{fields[number]}", item
            elif issubclass(type(item), torch.nn.Module):
                yield f"{path}.{number}", item  # as in named_parameters()
            else:
                yield f"{path}[{number}]", item
        return
    if issubclass(kind, types.ModuleType) and not is_user_file(
        getattr(value, "__file__", None) or "<frozen>"
    ):
        return
    for name, item in attributes_of(value):
        yield f"{path}.{name}", item


def modules_of(path: str, value: torch.nn.Module) -> Iterator[tuple[str, Any]]:
    """Return the modules inside a module."""
    for name, module in value._modules.items():
        if module is not None:
            yield f"{path}.{name}", module


def attributes_of(value: Any) -> Iterator[tuple[str, Any]]:
    """Return the attributes that an object holds itself, its slots among them."""
    hidden = issubclass(type(value), torch.nn.Module)
    try:
        own = object.__getattribute__(value, "__dict__")
    except Exception:  # noqa: BLE001 -- an object without a dictionary, or one that guards it
        own = {}
    if isinstance(own, dict):
        for name, item in list(own.items()):
            if isinstance(name, str) and not name.startswith("__"):
                if hidden and name in ("_parameters", "_buffers", "_modules"):
                    continue
                yield name, item
    for kind in type(value).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            member = kind.__dict__.get(name)
            if isinstance(member, types.MemberDescriptorType):
                try:
                    yield name, member.__get__(value, kind)
                except AttributeError:
                    continue


def is_user_class(kind: type) -> bool:
    """Whether a class is the user's own."""
    module = sys.modules.get(kind.__module__) if isinstance(kind.__module__, str) else None
    if module is None or kind.__module__ == "__main__":
        return True
    file = getattr(module, "__file__", None)
    return bool(file) and is_user_file(str(file))
