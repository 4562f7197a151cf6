"""Finds every tensor inside an object, and builds the same object again around other tensors.

Two passes over any object that holds tensors: `find` lists the tensors (each once, however often
it is met, cycles included), and `rebuild` makes the copy of everything else, with the tensors'
copies in their places. Plain containers are rebuilt here, namedtuples, PyTorch's result tuples and
types registered as tree nodes with optree, and every other object by `copy.deepcopy`, which is
handed the same memo and so puts our tensors in.
"""

from __future__ import annotations

import collections
import copy
import functools
import io
import logging
import mmap
import operator
import queue
import sys
import threading
import types
import weakref
from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

import optree
import torch

ATOMIC: frozenset[Any] = frozenset(
    {type(None), bool, int, float, complex, str, bytes, range, slice, type(...), torch.Size}
    | {type(NotImplemented), torch.dtype, torch.device, torch.layout, torch.memory_format}
)
"""Cannot change and hold no tensor: the same object serves both."""

PASSED: tuple[type, ...] = (
    type,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.ModuleType,
    types.CodeType,
    types.GeneratorType,
    types.CoroutineType,
    types.FrameType,
    types.TracebackType,
    weakref.ReferenceType,
    type(threading.Lock()),
    type(threading.RLock()),
    threading.Thread,
    threading.Event,
    threading.Condition,
    threading.Semaphore,
    queue.Queue,
    io.IOBase,
    mmap.mmap,
    logging.Logger,
    torch.Stream,
    torch.Event,
)
"""Passed through: they are code, or handles on something that exists once."""

_PLAIN_KEYS = frozenset([str, int, float, bool, bytes, type(None)])
_ABSENT: Any = object()
_attributes = operator.attrgetter("__dict__")


class Found(NamedTuple):
    """What one walk met."""

    tensors: list[torch.Tensor]  # each object once, in the order met
    passed: list[Any]  # objects that the copy will share
    deaf: list[Any]  # objects whose own deepcopy would not listen to the memo
    flat: bool  # one dict, list or tuple of plain tensors and nothing else


def find(root: Any, passed_types: tuple[type, ...] = ()) -> Found:
    """Return the tensors inside `root`; objects of `passed_types` are not entered."""
    values = plain_values(root)
    if values is not None:
        distinct = list(values)
        if len(set(map(id, distinct))) < len(distinct):
            distinct = list(dict(zip(map(id, values), values, strict=True)).values())
        return Found(distinct, [], [], flat=True)
    tensors: list[torch.Tensor] = []
    passed: list[Any] = []
    deaf: list[Any] = []
    for item, inside in _met(root, passed_types):
        if inside is None:
            passed.append(item)
        elif isinstance(item, torch.Tensor):
            tensors.append(item)
        elif _is_deaf(item):
            deaf.append(item)
    return Found(tensors, passed, deaf, flat=False)


def _met(root: Any, passed_types: tuple[type, ...]) -> Iterator[tuple[Any, list[Any] | None]]:
    """Yield each object under `root` once, with what is inside it; None: it is not entered."""
    seen: dict[int, Any] = {}
    stops, stack = PASSED + passed_types, [root]
    while stack:
        item = stack.pop()
        if type(item) in ATOMIC or id(item) in seen:
            continue
        seen[id(item)] = item
        inside = None if isinstance(item, stops) else children(item)
        yield item, inside
        stack.extend(inside or ())


def plain_values(root: Any) -> Collection[torch.Tensor] | None:
    """Return the tensors of a plain container of plain tensors as they lie; None for others."""
    if type(root) is dict:
        if not _PLAIN_KEYS.issuperset(map(type, root)):
            return None
        values: Collection[Any] = root.values()
    elif type(root) in {list, tuple}:
        values = root
    else:
        return None
    if set(map(type, values)) != {torch.Tensor} or any(map(_attributes, values)):
        return None
    return values


def children(item: Any) -> list[Any]:
    """Return the objects that `item` directly holds, last first, as a stack wants them."""
    cls: Any = type(item)
    held = _contents(item)
    attributes = getattr(item, "__dict__", None)
    if type(attributes) is dict and attributes:
        held += attributes.values()
    for slot in _slots(cls):
        value = getattr(item, slot, _ABSENT)
        if value is not _ABSENT:
            held.append(value)
    if isinstance(item, torch.Tensor) and item.is_leaf and item.requires_grad:
        for hooks in tensor_hooks(item):
            held += hooks.values()
    held.reverse()
    return held


def _contents(item: Any) -> list[Any]:
    """Return what a container, a method or a partial function holds, as a list of its own."""
    if isinstance(item, dict):
        return [*item.keys(), *item.values()]
    if isinstance(item, (list, tuple, set, frozenset, collections.deque)):
        return list(item)
    if isinstance(item, types.MethodType):
        return [item.__self__]
    if isinstance(item, functools.partial):
        return [item.func, item.args, item.keywords]
    if _is_registered(type(item)):
        return list(optree.tree_flatten_one_level(item, none_is_leaf=True)[0])
    return []


def tensor_hooks(item: torch.Tensor) -> Iterator[dict[int, Any]]:
    """Yield the dictionaries of hooks that hang on a leaf itself, those on its gradient first."""
    yield getattr(item, "_backward_hooks", None) or {}
    yield getattr(item, "_post_accumulate_grad_hooks", None) or {}


@functools.lru_cache(maxsize=4096)
def _slots(cls: Any) -> tuple[str, ...]:
    names: list[str] = []
    for base in cls.__mro__:
        if base.__module__.partition(".")[0] in {"builtins", "torch._C"}:
            continue
        slots = base.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name in {"__dict__", "__weakref__"}:
                continue
            hidden = name.startswith("__") and not name.endswith("__")
            names.append(f"_{base.__name__.lstrip('_')}{name}" if hidden else name)
    return tuple(names)


def _is_registered(cls: Any) -> bool:
    """Whether optree knows `cls` as a tree node: namedtuples, result tuples, users' own."""
    if cls in {dict, list, tuple, collections.OrderedDict}:
        return False
    if issubclass(cls, (collections.defaultdict, collections.deque, type(None))):
        return False  # they can hold themselves: deepcopy makes them before their contents
    return (
        optree.is_namedtuple_class(cls)
        or optree.is_structseq_class(cls)
        or optree.register_pytree_node.get(cls) is not None
    )


def rebuild(item: Any, memo: dict[int, Any]) -> Any:
    """Return the copy of `item` whose parts are those in `memo` (id of the old -> the new).

    Raises what `copy.deepcopy` raises for an object that cannot be copied.
    """
    cls: Any = type(item)
    if cls in ATOMIC:
        return item
    known = memo.get(id(item), _ABSENT)
    if known is not _ABSENT:
        return known
    made: Any
    if cls is dict or cls is collections.OrderedDict:
        made = _rebuilt_dict(item, memo)
    elif cls is list:
        made = memo[id(item)] = []
        made.extend(rebuild(value, memo) for value in item)
    elif cls is tuple:
        parts = tuple(rebuild(value, memo) for value in item)
        made = memo.setdefault(id(item), parts)  # a part that holds the tuple may have made it
    elif _is_registered(cls):
        held, metadata, _, unflatten = optree.tree_flatten_one_level(item, none_is_leaf=True)
        made = unflatten(metadata, [rebuild(value, memo) for value in held])
        made = memo.setdefault(id(item), made)
    elif _is_deaf(item):
        made = memo[id(item)] = cls.__new__(cls)
        made.__setstate__(rebuild(item.__getstate__(), memo))
    else:
        return copy.deepcopy(item, memo)
    return made


def _rebuilt_dict(item: Any, memo: dict[int, Any]) -> Any:
    made = memo[id(item)] = type(item)()
    for key, value in item.items():
        made[rebuild(key, memo)] = rebuild(value, memo)
    if getattr(item, "__dict__", None):  # a state_dict's _metadata
        made.__dict__.update(rebuild(item.__dict__, memo))
    return made


def _is_deaf(item: Any) -> bool:
    """Whether the object's `__deepcopy__` ignores the memo, and with it ties: a TensorDict's."""
    tensordict = sys.modules.get("tensordict")
    return tensordict is not None and isinstance(item, tensordict.TensorDictBase)


def rebuild_flat(root: Any, found: Found, copies: list[Any]) -> Any:
    """`rebuild` for what `find` called flat; `copies` are those of its tensors, in order."""
    if len(copies) == len(root):
        return filled(root, copies)
    memo = dict(zip(map(id, found.tensors), copies, strict=True))  # a tensor is met twice
    values = root.values() if type(root) is dict else root
    return filled(root, [memo[id(value)] for value in values])


def filled(root: Any, parts: list[Any]) -> Any:
    """Return a plain container like `root` with `parts` in the places of its own."""
    return dict(zip(root, parts, strict=True)) if type(root) is dict else type(root)(parts)


def without_tensors(root: Any, found: Found, passed_types: tuple[type, ...]) -> list[Any]:
    """Return the objects under `root` from which no tensor can be reached.

    Containers of such objects are among them. Used to share them when that is asked for.
    """
    holders: dict[int, list[int]] = collections.defaultdict(list)  # id -> ids that hold it
    met: dict[int, Any] = {}
    for item, inside in _met(root, passed_types):
        met[id(item)] = item
        for child in inside or ():
            holders[id(child)].append(id(item))
    reaching = {id(tensor) for tensor in found.tensors}
    pending = list(reaching)
    while pending:
        for holder in holders.get(pending.pop(), ()):
            if holder not in reaching:
                reaching.add(holder)
                pending.append(holder)
    return [item for key, item in met.items() if key not in reaching]


def paths(root: Any) -> dict[int, str]:
    """Return id of tensor -> how it is reached ("model.layer1.weight"); for messages only."""
    names: dict[int, str] = {}
    seen: set[int] = set()
    stack: list[tuple[str, Any]] = [("", root)]
    while stack:
        name, item = stack.pop()
        if type(item) in ATOMIC or id(item) in seen or isinstance(item, PASSED):
            continue
        seen.add(id(item))
        if isinstance(item, torch.Tensor):
            names[id(item)] = name or "the tensor"
            continue
        stack.extend(reversed(list(_named_children(name, item))))
    return names


def _named_children(name: str, item: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(item, torch.nn.Module):
        for part in ("_parameters", "_buffers", "_modules"):
            for key, value in getattr(item, part).items():
                yield f"{name}.{key}".lstrip("."), value
    if isinstance(item, dict):
        for key, value in item.items():
            yield f"{name}[{key!r}]", value
    elif isinstance(item, (list, tuple, collections.deque)):
        for index, value in enumerate(item):
            yield f"{name}[{index}]", value
    for key, value in (getattr(item, "__dict__", None) or {}).items():
        yield f"{name}.{key}".lstrip("."), value
    cls: Any = type(item)
    for slot in _slots(cls):
        if hasattr(item, slot):
            yield f"{name}.{slot}".lstrip("."), getattr(item, slot)
