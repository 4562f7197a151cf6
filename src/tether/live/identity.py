"""Who is who: serial numbers for tensors and for the memory they use.

An address is no identity: memory freed and allocated again comes back at the same place within
microseconds. A serial number is minted when a tensor or a storage is first seen, and a weak
reference retires it when the object is gone. Nothing here keeps a tensor alive, and nothing calls
``data_ptr()``, which would un-share copy-on-write storages.

A snapshot (the plain tuple behind `facts.Operand`) is taken once per tensor and version, and
reused while the tensor stays as it was. Plain tuples, not `NamedTuple`s: the garbage collector
stops tracking them, so a long recording does not slow the program's own collections.
"""

from __future__ import annotations

import weakref
from array import array
from collections.abc import Callable
from itertools import count
from typing import Any

import torch

from tether.facts import UNKNOWN, StorageFact, TensorFact

Snapshot = tuple[Any, ...]  # the fields of facts.Operand, in order

PLAIN, SUBCLASS, SEQUENCE, MAPPING, OTHER = 1, 2, 3, 4, 0
_DTYPE = 6
_without_subclasses = torch._C.DisableTorchFunctionSubclass


class _TensorRef(weakref.ref):  # type: ignore[type-arg]
    """A weak reference that is also the entry of its tensor."""

    __slots__ = ("born", "key", "kind", "serial", "snapshot", "storage", "wrapped")

    key: int
    serial: int
    kind: str
    born: int
    snapshot: Snapshot
    storage: int
    wrapped: bool  # a wrapper without memory of its own: functorch, sparse, nested


class _StorageRef(weakref.ref):  # type: ignore[type-arg]
    __slots__ = ("born", "device", "key", "memory", "nbytes", "serial", "start")

    key: int
    serial: int
    nbytes: int
    device: str
    born: int
    memory: int
    start: int


class Identities:
    """Tensors and storages of one recording, by serial number."""

    def __init__(self, now: Callable[[], int], on_gap: Callable[[str], None]) -> None:
        self._now = now
        self._on_gap = on_gap
        self.tensors: dict[int, _TensorRef] = {}
        self.storages: dict[int, _StorageRef] = {}
        self._serials = count()
        self._storage_serials = count()
        self._kinds: list[str] = []
        self._kind_numbers: dict[str, int] = {}
        self._dead_tensors = array("q")  # serial, kind, born, died
        self._dead_storages = array("q")  # serial, bytes, device, born, freed, memory, start
        self._tuples: dict[Any, tuple[int, ...]] = {}
        self._dtypes: dict[torch.dtype, str] = {}
        self.categories: dict[type, int] = {
            torch.Tensor: PLAIN,
            torch.nn.Parameter: PLAIN,
            list: SEQUENCE,
            tuple: SEQUENCE,
            torch.Size: OTHER,
            dict: MAPPING,
        }

    # -- looking at tensors ------------------------------------------------------------------

    def category(self, kind: type) -> int:
        """Classify a type of argument: a tensor, something that may hold tensors, or neither."""
        found = OTHER
        if issubclass(kind, torch.Tensor):
            found = SUBCLASS
        elif issubclass(kind, (list, tuple)):
            found = SEQUENCE
        elif issubclass(kind, dict):
            found = MAPPING
        self.categories[kind] = found
        return found

    def snapshot(self, tensor: torch.Tensor) -> Snapshot:
        """Return what is true of `tensor` now: the fields of `facts.Operand`."""
        ref = self.tensors.get(id(tensor))
        if ref is None:
            return self._meet(tensor)
        known = ref.snapshot
        if known[2] >= 0:
            if tensor._version == known[2] and tensor.requires_grad is known[7]:
                return known
        elif not ref.wrapped and tensor.requires_grad is known[7]:
            return known  # an inference tensor: it has no version to compare
        return self._look(tensor, ref)

    def refresh(self, tensor: torch.Tensor) -> Snapshot:
        """Look again at a tensor that may have changed without moving its version."""
        ref = self.tensors.get(id(tensor))
        return self._meet(tensor) if ref is None else self._look(tensor, ref)

    def serial(self, tensor: torch.Tensor) -> int:
        """Return the serial number of `tensor`, meeting it first if need be."""
        return int(self.snapshot(tensor)[0])

    def _meet(self, tensor: torch.Tensor) -> Snapshot:
        ref = _TensorRef(tensor, self._forget_tensor)
        ref.key = id(tensor)
        ref.serial = next(self._serials)
        ref.kind = type(tensor).__name__
        ref.born = self._now()
        ref.wrapped = False
        result = self._look(tensor, ref)
        self.tensors[ref.key] = ref
        return result

    def _look(self, tensor: torch.Tensor, ref: _TensorRef) -> Snapshot:
        try:
            if self.categories.get(type(tensor)) != PLAIN:
                # A user's subclass must not hear the recorder look.
                with _without_subclasses():
                    snapshot = self._read(tensor, ref)
            else:
                snapshot = self._read(tensor, ref)
        except Exception as error:  # noqa: BLE001 -- any wrapper may refuse any question
            ref.wrapped = True
            snapshot = self._read_wrapper(tensor, ref, error)
        ref.snapshot = snapshot
        return snapshot

    def _read(self, tensor: torch.Tensor, ref: _TensorRef) -> Snapshot:
        storage = tensor.untyped_storage()
        known = self.storages.get(id(storage))
        if known is None:
            known = self._meet_storage(storage)
        requires_grad = tensor.requires_grad
        shape, strides, dtype = tensor.shape, tensor.stride(), tensor.dtype
        tuples, dtypes = self._tuples, self._dtypes
        try:
            version = tensor._version
        except RuntimeError:  # an inference tensor
            version = UNKNOWN
        return (
            ref.serial,
            known.serial,
            version,
            tensor.storage_offset(),
            tuples.get(shape) or tuples.setdefault(tuple(shape), tuple(shape)),
            tuples.get(strides) or tuples.setdefault(strides, strides),
            dtypes.get(dtype) or dtypes.setdefault(dtype, str(dtype).removeprefix("torch.")),
            requires_grad,
            tensor.is_leaf if requires_grad else True,
        )

    def _read_wrapper(
        self, tensor: torch.Tensor, ref: _TensorRef, error: BaseException
    ) -> Snapshot:
        """Look at a tensor without memory of its own: the memory is that of what it wraps."""
        storage = UNKNOWN
        shape: tuple[int, ...] = ()
        strides: tuple[int, ...] = ()
        version, offset = UNKNOWN, 0
        with _without_subclasses():
            inner = _unwrapped(tensor)
            if inner is not None:
                ref.kind = "functorch wrapper"
                base = self._meet_inner(inner)
                storage, version, offset, shape, strides = (
                    base[1], base[2], base[3], base[4], base[5],
                )  # fmt: skip
            else:
                self._on_gap(
                    f"the memory of a {ref.kind} with layout {_layout(tensor)} cannot be seen"
                    f" ({_first_line(error)})"
                )
                storage, version = self._components(tensor), _version(tensor)
            requires_grad = bool(tensor.requires_grad)
            return (
                ref.serial, storage, version, offset, shape, strides,
                str(tensor.dtype).removeprefix("torch."), requires_grad,
                bool(tensor.is_leaf) if requires_grad else True,
            )  # fmt: skip

    def _meet_inner(self, inner: torch.Tensor) -> Snapshot:
        """Snapshot what a functorch wrapper stands on, through every level of wrapping."""
        deeper = _unwrapped(inner)
        return self._meet_inner(deeper) if deeper is not None else self.snapshot(inner)

    def _components(self, tensor: torch.Tensor) -> int:
        """Storage of the values of a sparse or nested tensor, so that data flow is not lost."""
        for name in ("_values", "_nested_tensor_storage_offsets", "values"):
            try:
                part = getattr(tensor, name)()
                found = self.storages.get(id(part.untyped_storage()))
                return (found or self._meet_storage(part.untyped_storage())).serial
            except Exception:  # noqa: BLE001, S112, PERF203 -- one of them fits, or none does
                continue
        return UNKNOWN

    # -- memory ------------------------------------------------------------------------------

    def _meet_storage(self, storage: torch.UntypedStorage) -> _StorageRef:
        ref = _StorageRef(storage, self._forget_storage)
        ref.key = id(storage)
        ref.serial = next(self._storage_serials)
        ref.nbytes = storage.nbytes()
        ref.device = str(storage.device)
        ref.born = self._now()
        ref.memory = UNKNOWN
        ref.start = 0
        self.storages[ref.key] = ref
        return ref

    def storage_of(self, tensor: torch.Tensor) -> _StorageRef | None:
        """Entry of the storage behind a tensor; None for a wrapper without one."""
        try:
            storage = tensor.untyped_storage()
        except Exception:  # noqa: BLE001 -- wrappers refuse in their own ways
            return None
        return self.storages.get(id(storage)) or self._meet_storage(storage)

    # -- the dead ----------------------------------------------------------------------------

    def _forget_tensor(self, ref: _TensorRef) -> None:
        if self.tensors.get(ref.key) is ref:
            del self.tensors[ref.key]
        self._dead_tensors.extend((ref.serial, self._kind(ref.kind), ref.born, self._now()))

    def _forget_storage(self, ref: _StorageRef) -> None:
        if self.storages.get(ref.key) is ref:
            del self.storages[ref.key]
        self._dead_storages.extend(
            (ref.serial, ref.nbytes, self._kind(ref.device), ref.born, self._now(),
             ref.memory, ref.start)
        )  # fmt: skip

    def _kind(self, name: str) -> int:
        number = self._kind_numbers.get(name)
        if number is None:
            number = self._kind_numbers[name] = len(self._kinds)
            self._kinds.append(name)
        return number

    # -- facts -------------------------------------------------------------------------------

    def tensor_facts(self) -> dict[int, TensorFact]:
        """Return the life of every tensor met, by serial number."""
        dead = self._dead_tensors
        facts = {
            dead[i]: TensorFact(self._kinds[dead[i + 1]], dead[i + 2], dead[i + 3])
            for i in range(0, len(dead), 4)
        }
        for ref in list(self.tensors.values()):
            facts[ref.serial] = TensorFact(ref.kind, ref.born)
        return facts

    def storage_facts(self) -> dict[int, StorageFact]:
        """Return the life of every storage met, by serial number."""
        dead = self._dead_storages
        facts = {
            dead[i]: StorageFact(
                dead[i + 1], self._kinds[dead[i + 2]], *dead[i + 3 : i + 7].tolist()
            )
            for i in range(0, len(dead), 7)
        }
        for ref in list(self.storages.values()):
            facts[ref.serial] = StorageFact(
                ref.nbytes, ref.device, ref.born, UNKNOWN, ref.memory, ref.start
            )
        return facts


def _unwrapped(tensor: torch.Tensor) -> torch.Tensor | None:
    functorch = torch._C._functorch
    if not functorch.is_functorch_wrapped_tensor(tensor):
        return None
    inner = functorch.get_unwrapped(tensor)
    return inner if inner is not tensor else None


def _layout(tensor: torch.Tensor) -> str:
    try:
        return str(tensor.layout).removeprefix("torch.")
    except Exception:  # noqa: BLE001
        return "unknown"


def _version(tensor: torch.Tensor) -> int:
    try:
        return int(tensor._version)
    except Exception:  # noqa: BLE001
        return UNKNOWN


def _first_line(error: BaseException) -> str:
    return str(error).split("\n", 1)[0][:120]
