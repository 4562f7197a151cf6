"""Who is who: serial numbers for tensors and for the memory they use.

An address is no identity: memory freed and allocated again comes back at the same place within
microseconds. A serial number is minted when a tensor or a storage is first seen, and a weak
reference retires it when the object is gone. Nothing here keeps a tensor alive, and nothing calls
``data_ptr()``, which would un-share copy-on-write storages.

A snapshot is taken once per tensor and version, and reused while the tensor stays as it was. It is
a row of numbers in an array, which becomes a `facts.Operand` when the recording has ended: objects
kept by the million would slow the program's own garbage collections.
"""

from __future__ import annotations

import contextlib
import struct
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count
from typing import Any

import numpy as np
import torch

from tether.facts import COMPARED, PRETENDED, UNKNOWN, GapCode
from tether.record.events import EventLog
from tether.record.sparse import is_sparse, values_of
from tether.record.values.indexed import View
from tether.store.columns import OPERAND, STORAGE, TENSOR
from tether.store.numbers import Numbers

Snapshot = tuple[int, int, int, bool, bool, int]
"""What the recorder itself needs of a snapshot: the serial numbers of the tensor and its storage,
the version, requires_grad, leaf, and the row with all of it."""

PLAIN, SUBCLASS, SEQUENCE, MAPPING, WORD, OTHER = 1, 2, 3, 4, 5, 0
_META = "meta"  # the device whose storages have a size and no bytes
_without_subclasses = torch._C.DisableTorchFunctionSubclass
_Tensor = torch.Tensor


class TensorRef(weakref.ref):  # type: ignore[type-arg]
    """A weak reference that is also the entry of its tensor."""

    __slots__ = ("apart", "born", "key", "kind", "layout", "serial", "snapshot", "wrapped")

    apart: bool  # it has a version counter of its own on memory that others show
    key: int
    serial: int
    kind: int  # number of the class name
    born: int
    snapshot: Snapshot
    layout: tuple[int, ...]  # of its last row: offset, shape, strides, dtype with the flags
    wrapped: bool  # a wrapper without memory of its own: functorch, sparse, nested


class _StorageRef(weakref.ref):  # type: ignore[type-arg]
    __slots__ = ("born", "device", "key", "memory", "nbytes", "serial", "start")

    key: int
    serial: int
    nbytes: int
    device: int  # number of the device's name
    born: int
    memory: int
    start: int


_pack_row = struct.Struct(f"{len(OPERAND)}q").pack
_pack_tensor = struct.Struct(f"{len(TENSOR)}q").pack
_pack_storage = struct.Struct(f"{len(STORAGE)}q").pack
_STORAGE_SIZE = len(STORAGE) * 8
_LATEST = 4096
"""Snapshots that may not have found their event yet."""


class _Tuples(dict[Any, int]):
    """Numbers of shapes and strides: each gets one when it is first asked for."""

    def __init__(self, number: Callable[[], int]) -> None:
        super().__init__()
        self._number = number

    def __missing__(self, sizes: tuple[int, ...]) -> int:
        return self.setdefault(tuple(sizes), self._number())  # two threads may be at it


class Identities:
    """Tensors and storages of one recording, by serial number."""

    def __init__(self, on_gap: Callable[[GapCode, str], None], log: EventLog) -> None:
        self._log = log  # whose count of events is the time
        self.on_leaf: Callable[[TensorRef], None] = lambda _: None
        self.on_shared: Callable[[int, torch.UntypedStorage], None] = lambda *_: None
        self.on_release: Callable[[int], None] = lambda _: None
        self._on_gap = on_gap
        self._pretends = False  # whether a tensor without bytes was met
        self.tensors: dict[int, TensorRef] = {}
        self.storages: dict[int, _StorageRef] = {}
        self.large = UNKNOWN  # the last new storage that is worth a look
        self.sizes = False  # whether storages that grow are measured again
        self._next_tensor = count().__next__
        self._next_storage = count().__next__
        self._next_row = count().__next__
        self._next_name = count().__next__  # a counter, since two threads may be at it
        # Rows of eight numbers: row, tensor, storage, version, offset, shape and strides (numbers
        # of tuples), dtype (number of a name) with the flags. Arrays of numbers cost the
        # program's garbage collector nothing, however long the recording.
        self.rows = bytearray()
        self.tuples = _Tuples(self._next_name)
        self.names: dict[Any, int] = {}
        self._cpu = self._number(torch.device("cpu"), "cpu")
        # The weak references whose objects are gone, until `bury` takes note of it: it is called
        # before the time moves on and before anything is looked up. A weak reference that calls
        # back into Python costs three times one that appends itself to a list.
        self.dead: list[Any] = []  # of TensorRef and _StorageRef
        self._mourn = self.dead.append
        self.dead_tensors = bytearray()  # serial, kind, born, died
        self.dead_storages = bytearray()  # serial, bytes, device, born, freed, memory, start
        self.rewritten = 0  # how often the start of these was forgotten
        self._swapped: set[int] = set()  # serial numbers of tensors whose class may have changed
        self.categories: dict[type, int] = {
            torch.Tensor: PLAIN,
            torch.nn.Parameter: PLAIN,
            list: SEQUENCE,
            tuple: SEQUENCE,
            torch.Size: OTHER,
            dict: MAPPING,
            str: WORD,
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
        """Return what is true of `tensor` now."""
        if self.dead:
            self.bury()
        ref = self.tensors.get(id(tensor))
        if ref is None:
            return self.meet(tensor)
        known = ref.snapshot
        if self.categories.get(type(tensor)) != PLAIN:
            with _without_subclasses():
                if 0 <= known[2] == tensor._version and tensor.requires_grad is known[3]:
                    return known
        elif known[2] >= 0:
            if tensor._version == known[2] and tensor.requires_grad is known[3]:
                return known
        elif not ref.wrapped and tensor.requires_grad is known[3]:
            return known  # an inference tensor: it has no version to compare
        return self._look(tensor, ref)

    def snapshots(self, tensors: Iterable[torch.Tensor]) -> list[Snapshot]:
        """Return what is true of some tensors now."""
        refs, categories, found = self.tensors, self.categories, list[Snapshot]()
        if self.dead:
            self.bury()
        for one in tensors:
            ref = refs.get(id(one))
            if ref is not None and categories.get(type(one)) == PLAIN:
                seen = ref.snapshot  # as `snapshot` says it of nearly all, without the call
                if 0 <= seen[2] == one._version and one.requires_grad is seen[3]:
                    found.append(seen)
                    continue
            found.append(self.snapshot(one))
        return found

    def known(self, tensors: Sequence[torch.Tensor]) -> tuple[int, ...]:
        """Return the serial numbers of tensors that were met before; of others none."""
        if self.dead:
            self.bury()
        refs = self.tensors
        try:
            return tuple([refs[id(one)].serial for one in tensors])
        except KeyError:
            return ()

    def find(self, tensor: torch.Tensor) -> TensorRef | None:
        """Entry of a tensor that was met before; None for any other."""
        if self.dead:
            self.bury()
        return self.tensors.get(id(tensor))

    def refresh(self, tensor: torch.Tensor) -> Snapshot:
        """Look again at a tensor that may have changed without moving its version."""
        if self.dead:
            self.bury()
        ref = self.tensors.get(id(tensor))
        return self.meet(tensor) if ref is None else self._look(tensor, ref)

    def has_moved(self, tensor: torch.Tensor, before: Snapshot) -> bool:
        """Whether a tensor has another version than when it was looked at.

        A wrapper of `torch.func` has a version of its own beside that of what it stands on, which
        is the one that was noted.
        """
        version = before[2]
        if version < 0 or tensor._version == version:
            return False
        ref = self.find(tensor)
        return ref is None or not ref.wrapped or self.refresh(tensor)[2] != version

    def written(self, tensor: torch.Tensor) -> Snapshot:
        """Look again at a tensor whose elements were written, and nothing else of it changed."""
        ref = self.tensors.get(id(tensor))
        if ref is None or not ref.layout:
            return self.refresh(tensor)
        serial, storage, _, requires_grad, leaf, _ = ref.snapshot
        if tensor.requires_grad is not requires_grad:
            return self.refresh(tensor)
        memory = self.storages.get(id(tensor.untyped_storage()))
        if memory is None or memory.serial != storage:
            return self.refresh(tensor)
        version, row = tensor._version, self._next_row()
        self.rows += _pack_row(row, serial, storage, version, *ref.layout)
        ref.snapshot = found = (serial, storage, version, requires_grad, leaf, row)
        return found

    def part(self, tensor: torch.Tensor, region: View) -> Snapshot:
        """Take a row of some elements of a tensor, as it was last looked at."""
        serial, storage, version, requires_grad, leaf, _ = whole = self.snapshot(tensor)
        dtype = self.names.get(tensor.dtype)
        if dtype is None:
            return whole
        (offset, *sizes), row = region, self._next_row()
        a, b = (self.tuples[one] for one in sizes)
        flags = dtype << 2 | requires_grad << 1 | leaf
        self.rows += _pack_row(row, serial, storage, version, offset, a, b, flags)
        return (serial, storage, version, requires_grad, leaf, row)

    def serial(self, tensor: torch.Tensor) -> int:
        """Return the serial number of `tensor`, meeting it first if need be."""
        return self.snapshot(tensor)[0]

    def meet(self, tensor: torch.Tensor) -> Snapshot:
        """Look for the first time at a tensor that `tensors` does not know."""
        ref = self._enter(tensor, self._next_tensor())
        if type(tensor) is _Tensor:
            try:
                ref.snapshot = result = self._read(tensor, ref)
                if result[3] and result[4]:
                    self.on_leaf(ref)
            except Exception:  # noqa: BLE001 -- it has no memory of its own, say
                result = self._look(tensor, ref)
        else:
            result = self._look(tensor, ref)
        self.tensors[ref.key] = ref
        return result

    def _enter(self, tensor: torch.Tensor, serial: int) -> TensorRef:
        """Return a new entry for a tensor of this number; nothing was looked at yet."""
        ref = TensorRef(tensor, self._mourn)
        ref.key = id(tensor)
        ref.serial = serial
        kind = type(tensor)
        number = self.names.get(kind)
        ref.kind = self._number(kind, kind.__name__) if number is None else number
        ref.born = self._log.count
        ref.apart = False
        ref.wrapped = False
        ref.layout = ()
        return ref

    def _look(self, tensor: torch.Tensor, ref: TensorRef) -> Snapshot:
        try:
            if self.categories.get(type(tensor)) == PLAIN:
                snapshot = self._read(tensor, ref)
            else:  # a user's subclass must not hear the recorder look
                with _without_subclasses():
                    snapshot = self._read(tensor, ref, _wrapped(tensor), counted=tensor)
        except Exception as error:  # noqa: BLE001 -- any wrapper may refuse any question
            ref.wrapped = True
            snapshot = self._read_wrapper(tensor, ref, error)
        ref.snapshot = snapshot
        if snapshot[3] and snapshot[4]:
            self.on_leaf(ref)
        return snapshot

    def _read(
        self, tensor: torch.Tensor, ref: TensorRef, base: Any = None, counted: Any = None
    ) -> Snapshot:
        """Take a row of `tensor`; its memory is that of `base`, where it has none of its own.

        Its version is then that of `base` too, or of `counted`.
        """
        leaf = True
        if requires_grad := tensor.requires_grad:
            # As `is_leaf` says it, without the call.
            leaf = tensor.is_leaf if not tensor._is_view() else is_leaf(tensor)
        if base is not None:
            tensor = base
        storage = tensor.untyped_storage()
        key = id(storage)
        known = self.storages.get(key)
        if known is None:
            known = self._met(storage, tensor, plain=counted is None)
        elif self.sizes and storage.nbytes() > known.nbytes:
            known.nbytes = storage.nbytes()  # resized, as by `out=` into an empty tensor
        # What `torch.Tensor` says of itself, at 50 to 90 ns an attribute: half of what a
        # recorded call costs. So each is asked once.
        tuples, dtype = self.tuples, tensor.dtype
        a, b, c = tuples[tensor.shape], tuples[tensor.stride()], self.names.get(dtype)
        if c is None:
            c = self._number(dtype, str(dtype).removeprefix("torch."))
        try:
            version = (tensor if counted is None else counted)._version
        except RuntimeError:  # an inference tensor
            version = UNKNOWN
        serial, row = ref.serial, self._next_row()
        layout = (int(tensor.storage_offset()), a, b, c << 2 | requires_grad << 1 | leaf)
        ref.layout = layout if version >= 0 and base is None else ()
        self.rows += _pack_row(row, serial, known.serial, version, *layout)
        return (serial, known.serial, version, requires_grad, leaf, row)

    def _met(self, storage: Any, tensor: torch.Tensor, *, plain: bool) -> _StorageRef:
        """Take note of the memory of a tensor that no other had."""
        key = id(storage)
        self.storages[key] = known = _StorageRef(storage, self._mourn)
        known.key = key
        known.serial = self._next_storage()
        known.nbytes = storage.nbytes()
        plain = plain and tensor.is_cpu
        if plain and storage.is_shared():
            self.on_shared(known.serial, storage)
        known.device = self._cpu if plain else self._device(tensor.device, storage.device)
        known.born = self._log.count
        known.memory = UNKNOWN
        known.start = 0
        if known.nbytes >= COMPARED:
            self.large = known.serial
        return known

    def _read_wrapper(self, tensor: torch.Tensor, ref: TensorRef, error: BaseException) -> Snapshot:
        """Look at a tensor without memory of its own: the memory is that of what it wraps."""
        with _without_subclasses():
            inner = _innermost(tensor)
            if inner is not None:
                ref.kind = self._number("functorch wrapper", "functorch wrapper")
                return self._read(tensor, ref, inner)
            values = values_of(tensor)
            if values is not None:
                self._on_gap("memory", f"the indices of a {_layout(tensor)} tensor")
                return self._read(tensor, ref, values, counted=tensor)
            name = type(tensor).__name__
            detail = f"{name} with layout {_layout(tensor)} ({_first_line(error)})"
            self._on_gap("memory", detail)
            requires_grad = bool(tensor.requires_grad)
            leaf = is_leaf(tensor) if requires_grad else True
            storage, version = self._components(tensor), version_of(tensor)
            dtype = str(tensor.dtype).removeprefix("torch.")
            nothing = self.tuples[()]
            row = self._next_row()
            self.rows += _pack_row(
                row, ref.serial, storage, version, 0, nothing, nothing,
                self._number(dtype, dtype) << 2 | requires_grad << 1 | leaf,
            )  # fmt: skip
            return (ref.serial, storage, version, requires_grad, leaf, row)

    def _components(self, tensor: torch.Tensor) -> int:
        """Storage of the values of a nested tensor, so that data flow is not lost.

        To ask for them is a call of PyTorch: under a profiler it would be listed as the program's.
        """
        if _profiled() or is_sparse(tensor):
            return UNKNOWN
        for name in ("_nested_tensor_storage_offsets", "values"):
            try:
                found = self.storage_of(getattr(tensor, name)())
            except Exception:  # noqa: BLE001, S112 -- one of them fits, or none does
                continue
            if found is not None:
                return found.serial
        return UNKNOWN

    # -- objects that change places ----------------------------------------------------------

    @contextlib.contextmanager
    def unreferenced(self, *tensors: torch.Tensor) -> Iterator[None]:
        """Hold no weak reference to some tensors for the length of a block that swaps them.

        ``torch.utils.swap_tensors`` refuses tensors that have one. Afterwards each object is known
        by the number that it had: it is the variable's, whatever its memory and class are now.
        """
        entries = []
        for tensor in tensors:
            ref = self.tensors.pop(id(tensor), None)
            if ref is not None:
                entries.append((tensor, ref.serial, ref.born))
                self.on_release(ref.serial)
            del ref
        try:
            yield
        finally:
            for tensor, serial, born in entries:
                again = self._enter(tensor, serial)
                again.born = born
                self._look(tensor, again)
                self.tensors[again.key] = again
                self._swapped.add(serial)

    # -- memory ------------------------------------------------------------------------------

    def _device(self, device: torch.device, really: torch.device) -> int:
        """Return the number of a device's name; `really` is where the storage itself lies."""
        key = (device, really)
        number = self.names.get(key)
        if number is not None:
            return number
        if really.type != _META:
            return self._number(key, str(device))
        if not self._pretends:
            self._pretends = True
            self._on_gap("pretended", "")
        return self._number(key, _META if device.type == _META else f"{device} {PRETENDED}")

    def memory_number(self, tensor: torch.Tensor) -> int | None:
        """Return a number for the memory behind a tensor, the same for all storages that wrap it.

        None where no tensor on that storage was met.
        """
        try:
            known = self.storages.get(id(_storage_behind(tensor)))
        except Exception:  # noqa: BLE001 -- wrappers refuse in their own ways
            return None
        if known is None:
            return None
        return known.serial if known.memory == UNKNOWN else -2 - known.memory

    def storage_of(self, tensor: torch.Tensor) -> _StorageRef | None:
        """Entry of the storage behind a tensor; None for a wrapper without one."""
        try:
            storage = _storage_behind(tensor)
        except Exception:  # noqa: BLE001 -- wrappers refuse in their own ways
            return None
        if self.dead:
            self.bury()
        if id(storage) not in self.storages:
            self.refresh(tensor)
        return self.storages.get(id(storage))

    # -- what stands in for tensors that nobody holds ----------------------------------------

    def stand_in_memory(self) -> int:
        """Return the number of a memory that may never have been: it has no bytes."""
        serial, now = self._next_storage(), self._log.count
        self.dead_storages += _pack_storage(serial, 0, self._cpu, now, now, UNKNOWN, 0)
        return serial

    def stand_in(
        self,
        memory: int,
        offset: int,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        dtype: torch.dtype,
        requires_grad: bool,
        leaf: bool,
    ) -> tuple[int, int]:
        """Return the number of a tensor inside a graph, and the row that shows it."""
        serial, row = self._next_tensor(), self._next_row()
        a, b = self.tuples[shape], self.tuples[strides]
        c = self.names.get(dtype)
        if c is None:
            c = self._number(dtype, str(dtype).removeprefix("torch."))
        layout = (offset, a, b, c << 2 | requires_grad << 1 | leaf)
        self.rows += _pack_row(row, serial, memory, 0, *layout)
        return serial, row

    def stood_in(self, tensors: Iterable[int], born: int) -> None:
        """Take note that tensors inside a graph are gone: its last call was just appended."""
        kind, now = self._number(_Tensor, _Tensor.__name__), self._log.count
        for serial in tensors:
            self.dead_tensors += _pack_tensor(serial, kind, born, now)

    # -- the dead ----------------------------------------------------------------------------

    def bury(self) -> None:
        """Take note of the tensors and storages that went since the last event."""
        dead, now = self.dead, self._log.count
        tensors, storages = self.tensors, self.storages
        tensors_gone, storages_gone = self.dead_tensors, self.dead_storages
        try:
            while dead:
                # From here to the deletion nothing is called: no other thread comes in between,
                # and finds a stale entry that has left the list.
                ref = dead[-1]
                del dead[-1]
                key = ref.key
                if ref.__class__ is TensorRef:
                    if key in tensors and tensors[key] is ref:
                        del tensors[key]
                    tensors_gone += _pack_tensor(ref.serial, ref.kind, ref.born, now)
                else:
                    if key in storages and storages[key] is ref:
                        del storages[key]
                    storages_gone += _pack_storage(
                        ref.serial, ref.nbytes, ref.device, ref.born, now, ref.memory, ref.start
                    )
        except IndexError:
            return  # another thread buried the last one

    def forget(self, wanted: Numbers, since: int, *, storages: bool) -> None:
        """Drop the snapshots that no event holds, and the lives that ended before `since`.

        `wanted` are the rows that events hold; those of living tensors and the latest are kept
        too, and of lives those that a row shows which is kept. `storages`: forget the lives of
        storages as well.
        """
        alive = np.array([ref.snapshot[5] for ref in list(self.tensors.values())], np.int64)
        size = len(self.rows) - 8 * len(OPERAND) * _LATEST  # others may be adding to the rest
        if size > 0:
            old = _table(self.rows[:size], len(OPERAND))
            kept = old[np.isin(old[:, 0], np.concatenate([wanted, alive]))]
            self.rows[:size] = kept.tobytes()
        shown = self.operand_table()
        for lives, width, field, column in (
            (self.dead_tensors, len(TENSOR), 3, 1),
            (self.dead_storages, len(STORAGE), 4, 2),
        ):
            if lives is self.dead_tensors or storages:
                table = _table(lives, width)
                over = table[: int(np.searchsorted(table[:, field], since))]
                lives[: over.nbytes] = over[np.isin(over[:, 0], shown[:, column])].tobytes()
        self.rewritten += 1

    def living_tensors(self) -> Iterator[torch.Tensor]:
        """Yield the tensors that are alive."""
        for ref in list(self.tensors.values()):
            tensor = ref()
            if tensor is not None:
                yield tensor

    def living(self) -> set[int]:
        """Return the serial numbers of the tensors that are alive."""
        self.bury()
        return {ref.serial for ref in list(self.tensors.values())}

    def living_storages(self) -> set[int]:
        """Return the serial numbers of the storages that are alive."""
        self.bury()
        return {ref.serial for ref in list(self.storages.values())}

    def storages_dead(self) -> int:
        """Count the storages buried so far."""
        return len(self.dead_storages) // _STORAGE_SIZE

    def storages_dead_since(self, count: int) -> list[tuple[int, int]]:
        """Return (serial number, birth) of the storages buried after the first `count`."""
        rows = _table(self.dead_storages[count * _STORAGE_SIZE :], len(STORAGE))
        return [(row[0], row[3]) for row in rows.tolist()]

    def _number(self, key: Any, name: str) -> int:
        """Return the number of a name (of a class, dtype or device); it gets one when it is new."""
        number = self.names.setdefault(name, self._next_name())
        self.names[key] = number
        return number

    # -- facts -------------------------------------------------------------------------------

    def texts(self) -> dict[int, str]:
        """Return the names of classes, dtypes and devices, by their numbers."""
        return {n: text for text, n in list(self.names.items()) if isinstance(text, str)}

    def operand_table(self, first: int = 0) -> Numbers:
        """Return the snapshots from byte `first` on, as lines of `store.columns.OPERAND`."""
        return _table(self.rows[first:], len(OPERAND))

    def tensor_table(self, dead: int = 0, since: int = 0) -> Numbers:
        """Return lives of tensors, as lines of `store.columns.TENSOR`.

        Those that ended, from byte `dead` on, and of the living those numbered `since` or higher
        and those that may have changed.
        """
        living = b"".join(
            _pack_tensor(one.serial, one.kind, one.born, UNKNOWN)
            for one in list(self.tensors.values())
            if one.serial >= since or one.serial in self._swapped
        )
        return _table(living + self.dead_tensors[dead:], len(TENSOR))

    def storage_table(self, dead: int = 0, since: int = 0) -> Numbers:
        """Return lives of storages, as lines of `store.columns.STORAGE`.

        Those that ended, from byte `dead` on, and of the living those numbered `since` or higher
        and those that may have changed.
        """
        living = b"".join(
            _pack_storage(
                one.serial, one.nbytes, one.device, one.born, UNKNOWN, one.memory, one.start
            )
            for one in list(self.storages.values())
            if one.serial >= since or one.memory != UNKNOWN or self.sizes
        )
        return _table(living + self.dead_storages[dead:], len(STORAGE))


def _table(data: bytes | bytearray, width: int) -> Numbers:
    return np.frombuffer(bytes(data), np.int64).reshape(-1, width)


def _innermost(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return what a functorch wrapper stands on, through every level; None for anything else."""
    functorch = torch._C._functorch
    inner = None
    while functorch.is_functorch_wrapped_tensor(tensor):
        inner = functorch.get_unwrapped(tensor)
        if inner is tensor:
            return None
        tensor = inner
    return inner


def _storage_behind(tensor: torch.Tensor) -> torch.UntypedStorage:
    """Return the storage that a tensor shows; of a sparse one that of its values."""
    try:
        return tensor.untyped_storage()
    except Exception:
        values = values_of(tensor)
        if values is None:
            raise
        return values.untyped_storage()


def _wrapped(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return the one tensor that PyTorch's own wrapper shows the values of; None for other tensors.

    A `DTensor` has a storage that nothing is ever written to: its values are in its local tensor.
    A program's own wrapper is not asked: that would run the program's code.
    """
    kind = type(tensor)
    if kind is _Tensor or not kind.__module__.startswith("torch."):
        return None
    inner = getattr(tensor, "_local_tensor", None)
    return inner if type(inner) is _Tensor else None


def is_leaf(tensor: torch.Tensor) -> bool:
    """Whether no node made `tensor`, as it stands.

    A view is not asked for its attribute: that brings its node up to date with writes to its base,
    after which a write to the view that PyTorch would have refused goes through. It also raises
    for views that may not follow their base.
    """
    return bool(_leaf_as_it_stands(tensor) if tensor._is_view() else tensor.is_leaf)


_profiled: Callable[[], bool] = getattr(torch._C._autograd, "_profiler_enabled", lambda: False)
_leaf_as_it_stands = torch.ops.aten.is_leaf.default


def _layout(tensor: torch.Tensor) -> str:
    try:
        return str(tensor.layout).removeprefix("torch.")
    except Exception:  # noqa: BLE001
        return "unknown"


def version_of(tensor: torch.Tensor) -> int:
    """Return the version of `tensor`; UNKNOWN (-1) where it has none, as in inference mode."""
    try:
        return int(tensor._version)
    except Exception:  # noqa: BLE001
        return UNKNOWN


def versions_of(tensors: Sequence[torch.Tensor]) -> list[int]:
    """Return the version of each of some tensors; UNKNOWN (-1) where it has none."""
    try:
        return [one._version for one in tensors]
    except Exception:  # noqa: BLE001 -- one of them has none
        return [version_of(one) for one in tensors]


def _first_line(error: BaseException) -> str:
    return str(error).split("\n", 1)[0][:120]
