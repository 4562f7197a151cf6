"""Values that leave the tensors and come back: arrays on the same memory, and silent writes.

A NumPy array made by ``t.numpy()`` has the tensor as its ``base``, so an array that comes back is
joined to the tensor it came from by walking its bases. Two storages that wrap one array (each
``from_numpy`` makes a new one) get the same ``memory`` number.

Writes through such an array move no version counter. The bytes of an exported storage are summed
when it is exported and compared when one of its tensors is read next: while the array lives, at
most `LIMIT` bytes a comparison, and for at most `SHARE` of the time since the recording began.
"""

from __future__ import annotations

import contextlib
import sys
import weakref
import zlib
from array import array
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from tether.facts import (
    UNKNOWN,
    ArrayFact,
    Bridge,
    EventId,
    Moment,
    Rewritten,
    SharedBy,
    SiteId,
    StorageId,
    Unseen,
)
from tether.operations.table import operation
from tether.record.arrays.contents import memory_at
from tether.record.arrays.memory import (
    Buffer,
    bytes_of,
    distance_in,
    holds_objects,
    is_array,
    root_of,
    size_of,
    stretch_of,
)
from tether.record.arrays.small_arrays import SmallArrays
from tether.record.budget import Budget
from tether.record.tape import Snapshot, Tape
from tether.record.values.sameness import SameLog

LIMIT = 16 << 20  # bytes of a storage that is compared; larger ones are a gap
SHARE = 0.02  # of the run's time that comparing may take
COPIED = 0.005  # of it that looking at arrays which are copied may take
ENTERED = 256  # storages on memory that NumPy owns, watched at a time
_ALONE = 3  # references to an array that only its tensor has: the tensor's, and the two that ask


class _Watch:
    """An exported storage, with the sum of its bytes."""

    __slots__ = ("event", "holders", "owner", "place", "seen", "storage", "sum", "tensor")

    def __init__(self, storage: int, event: int) -> None:
        self.storage = storage
        self.event = event
        self.seen = event
        self.sum = 0
        self.holders = 0
        self.place: Place | None = None  # the memory is an array's, from before the tensor
        self.tensor: weakref.ref[Any] | None = None
        self.owner: weakref.ref[Any] | None = None  # the array, where it takes weak references

    def is_held(self) -> bool:
        """Whether anybody but the tensor still has the array."""
        array = self.owner() if self.owner is not None else None
        return array is None or sys.getrefcount(array) > _ALONE


class ArrayWatch:
    """What is known of memory that NumPy or another library can write."""

    def __init__(self, tape: Tape, same: SameLog) -> None:
        self._tape = tape
        self._same = same
        self.watched: dict[int, _Watch] = {}  # storage serial -> watch
        self.facts: list[Unseen] = []
        self.rewritten = RewrittenLog()
        self.small = SmallArrays(tape)
        self.on_foreign: Callable[[int, SharedBy], None] = lambda *_: None
        self.on_many: Callable[[], None] = lambda: None
        self.on_others = array("q")  # calls that made a tensor of memory that is not PyTorch's
        self.lives: dict[int, int] = {}  # export -> events recorded when its array was gone
        self._memories: dict[int, int] = {}  # id of the root array -> memory number
        same.taken.number = lambda root: self._memory_of(root, None)
        self._buffers: dict[int, list[int]] = {}  # id of a buffer -> its number, storages on it
        self._next_memory = 0
        self._entered = 0
        self._budget = Budget(SHARE, allowed=0.5)
        self._copied = Budget(COPIED, allowed=0.1)

    # -- out ---------------------------------------------------------------------------------

    def exported(self, name: str, event: int, tensors: list[torch.Tensor], result: Any) -> None:
        """Remember that the memory of ``tensors[0]`` has been handed out."""
        leaves = operation(name).leaves
        if tensors and leaves in ("array", "numbers"):
            self._same.left(tensors[0], event, result)
        if not tensors or leaves not in ("array", "capsule"):
            return
        tape = self._tape
        storage = tape.who.storage_of(tensors[0])
        if storage is not None:
            tape.exports[storage.serial] = event
            self._follow(storage.serial, event, result)
            if self.small.gave(event, storage.serial, storage.nbytes, result):
                self.on_many()
        if storage is None or tensors[0].device.type != "cpu":
            return
        if storage.nbytes > LIMIT:
            tape.gap("array-large", f"{LIMIT >> 20} MiB")
            return
        watch = self.watched.get(storage.serial)
        if watch is None:
            watch = self.watched[storage.serial] = _Watch(storage.serial, event)
            watch.tensor = weakref.ref(tensors[0].untyped_storage(), self._gone(storage.serial))
            watch.sum = self._sum(tensors[0].untyped_storage())
        elif watch.seen >= event:  # compared just before the call
            watch.event = event
        watch.holders += 1

    def _follow(self, storage: int, event: int, array: Any) -> None:
        """Follow how long an array lives."""
        try:
            weakref.finalize(array, self._released, storage, event).atexit = False
        except TypeError:  # a capsule: how long it is held cannot be known
            return
        self.lives[event] = UNKNOWN

    def _gone(self, serial: int) -> Any:
        return lambda _: self._forget(serial)

    def _forget(self, serial: int) -> None:
        watch = self.watched.pop(serial, None)
        if watch is not None and watch.place is not None:
            self._entered -= 1

    def _released(self, serial: int, event: int) -> None:
        """One exported array is gone; with the last one nobody can write unheard any more."""
        now = self._tape.now()
        if now > event + 1:
            self.lives[event] = now
        else:  # in passing: most are
            self.lives.pop(event, None)
        watch = self.watched.get(serial)
        if watch is not None:
            watch.holders -= 1
            if watch.holders <= 0:
                # A write may have happened just before: look once more, then forget.
                self._look(watch, self._tape.now(), UNKNOWN)
                self._forget(serial)

    # -- back in -----------------------------------------------------------------------------

    def entered(self, event: int, site: int, data: Any, result: Any) -> Any:
        """Join a tensor made from an array to where the array's memory came from.

        Where an earlier call had found other bytes in that array, return what shows it: the tensor,
        or the array itself if the tensor is a copy.
        """
        if data is None or isinstance(data, (torch.Tensor, list, tuple, int, float, bool)):
            self._same.came(event, site, data, result, None)
            return None
        root, tensor = root_of(data)
        self._same.came(event, site, data, result, tensor)
        who = self._tape.who
        # The array's base may be another tensor object on the memory that was exported.
        origin = who.storage_of(tensor) if tensor is not None else None
        if origin is not None and origin.serial in self._tape.exports:
            export = EventId(self._tape.exports[origin.serial])
            self._tape.bridges.append(Bridge(export, EventId(event), True, "the NumPy array"))
        if not isinstance(result, torch.Tensor):
            return None
        storage = who.storage_of(result)
        if storage is None:
            return None
        if not result.untyped_storage().resizable():
            self.on_others.append(event)  # PyTorch has no allocator for it: it was there before
        if storage.memory != UNKNOWN:
            return None
        if tensor is None:
            return self._entered_from_array(event, site, root, data, result)
        if origin is not None:
            self._entered_from_tensor(tensor, origin, result, storage)
        return None

    def _entered_from_tensor(
        self, tensor: torch.Tensor, origin: Any, result: torch.Tensor, storage: Any
    ) -> None:
        """Give a tensor's storage the memory of the tensor whose bytes an array handed on."""
        distance = distance_in(tensor, result, origin.nbytes)
        if distance is not None:
            if origin.memory == UNKNOWN:
                origin.memory = self.new_memory()
            storage.memory, storage.start = origin.memory, origin.start + distance

    def _entered_from_array(
        self, event: int, site: int, root: Any, data: Any, result: torch.Tensor
    ) -> Any:
        """Give a tensor's storage the number of the memory of the array that it lies on."""
        storage: Any = self._tape.who.storage_of(result)
        distance = distance_in(root, result, bytes_of(root))
        if distance is None:
            return data if self._copied_from_array(event, site, root, data) else None
        storage.memory = self._memory_of(root, result)
        storage.start = distance
        if not (is_array(root) or root.own):
            self.on_foreign(storage.serial, "mapped")
        watch = self._watch_entered(event, storage, result, root)
        if watch is None or watch.place is None:
            return None
        return result if self.rewritten.entered(watch.place, watch.sum, event, site) else None

    def _copied_from_array(self, event: int, site: int, root: Any, data: Any) -> bool:
        """Look whether an array that was copied has other bytes than as it was copied before."""
        if self._copied.late():
            return False
        with self._copied:
            return self._was_rewritten(event, site, root, data)

    def _was_rewritten(self, event: int, site: int, root: Any, data: Any) -> bool:
        if not (is_array(root) and is_array(data)) or not 0 < size_of(data) <= LIMIT:
            return False
        first, last = stretch_of(data)
        if last - first != size_of(data) or holds_objects(data):
            return False
        place = self._memory_of(root, None), first - stretch_of(root)[0], last - first
        total = zlib.crc32(memory_at(first, last - first))
        return self.rewritten.entered(place, total, event, site, copied=True)

    def _watch_entered(
        self, event: int, storage: Any, tensor: torch.Tensor, root: Any
    ) -> _Watch | None:
        """Watch memory that the array's owner can write as long as the tensor lives."""
        memory, serial = tensor.untyped_storage(), storage.serial
        if serial in self.watched or memory.nbytes() > LIMIT:
            return None
        if self._entered >= ENTERED:
            self._tape.gap("array-many", str(ENTERED))
            return None
        self._entered += 1
        watch = self.watched[serial] = _Watch(serial, event)
        watch.holders = 1
        watch.place = storage.memory, storage.start, memory.nbytes()
        with contextlib.suppress(TypeError):
            watch.owner = weakref.ref(root)
        watch.tensor = weakref.ref(memory, self._gone(serial))
        watch.sum = self._sum(memory)
        return watch

    def new_memory(self) -> int:
        """Return a number for a piece of memory that several storages wrap."""
        self._next_memory += 1
        return self._next_memory - 1

    def _memory_of(self, root: Any, tensor: torch.Tensor | None) -> int:
        if isinstance(root, Buffer) and tensor is not None:
            return self._memory_of_buffer(root.owner, tensor)
        known = self._memories.get(id(root))
        if known is None:
            known = self._memories[id(root)] = self.new_memory()
            try:
                weakref.finalize(root, self._root_gone, id(root)).atexit = False
            except TypeError:
                del self._memories[id(root)]
        return known

    def _root_gone(self, root: int) -> None:
        self.rewritten.forget(self._memories.pop(root, UNKNOWN))

    def _memory_of_buffer(self, owner: int, tensor: torch.Tensor) -> int:
        """Return the number of memory whose owner takes no weak reference.

        The tensors on it keep the owner, so that its id is its own as long as one of them lives.
        """
        entry = self._buffers.setdefault(owner, [self.new_memory(), 0])
        entry[1] += 1
        weakref.finalize(tensor.untyped_storage(), self._left_buffer, owner).atexit = False
        return entry[0]

    def _left_buffer(self, owner: int) -> None:
        entry = self._buffers.get(owner)
        if entry is not None:
            entry[1] -= 1
            if entry[1] <= 0:
                self.rewritten.forget(entry[0])
                del self._buffers[owner]

    # -- silent writes -----------------------------------------------------------------------

    def compare(self, reads: Sequence[Snapshot], site: int) -> None:
        """Before a call, look whether watched bytes among its operands changed unheard."""
        for snapshot in reads:
            watch = self.watched.get(snapshot[1])
            if watch is not None:
                self._look(watch, self._tape.now(), site)

    def compare_all(self, site: int) -> None:
        """Before calls that read what no argument tells of (a backward pass, a step)."""
        for watch in list(self.watched.values()):
            self._look(watch, self._tape.now(), site)

    def written(self, storage: torch.UntypedStorage, site: int) -> None:
        """Note a write through a storage itself, which moves no version."""
        known = self._tape.who.storages.get(id(storage))
        if known is not None:
            now = self._tape.now()
            self._found(known.serial, now - 1, now, UNKNOWN, site)
            watch = self.watched.get(known.serial)
            if watch is not None:
                self._accept(watch)

    def _look(self, watch: _Watch, now: int, site: int) -> None:
        storage = watch.tensor() if watch.tensor is not None else None
        if storage is None:
            return
        if self._late():
            return
        found = self._sum(storage)
        if found != watch.sum:
            # Another thread may have read it, and written it after that, while it was summed.
            end = max(now, self._tape.now())
            self._found(watch.storage, watch.seen, end, watch.event, site, held=watch.is_held())
        watch.sum = found
        watch.seen = now

    def _found(
        self, storage: int, after: int, before: int, export: int, site: int, *, held: bool = True
    ) -> None:
        self.facts.append(
            Unseen(
                StorageId(storage), Moment(after), Moment(before), EventId(export), SiteId(site),
                held,
            )
        )  # fmt: skip

    def array_facts(self) -> list[ArrayFact]:
        """Return the lives of the arrays handed out, in the order of their exports."""
        return [ArrayFact(EventId(at), Moment(gone)) for at, gone in sorted(self.lives.items())]

    def join(self, source: torch.Tensor, result: torch.Tensor) -> None:
        """Give two storages that hold the same memory one number for it."""
        ours, theirs = self._tape.who.storage_of(source), self._tape.who.storage_of(result)
        if ours is None or theirs is None or ours is theirs:
            return
        if ours.memory == UNKNOWN:
            ours.memory = self.new_memory()
        theirs.memory, theirs.start = ours.memory, ours.start

    def _late(self) -> bool:
        """Whether comparing has taken its share of the run."""
        if not self._budget.late():
            return False
        self._tape.gap("array-time", f"{SHARE:.0%}")
        return True

    def wrote(self, writes: tuple[Snapshot, ...]) -> None:
        """After a recorded write: what the bytes are now is what they ought to be."""
        for snapshot in writes:
            watch = self.watched.get(snapshot[1])
            if watch is not None and self._late():
                self.rewritten.clear()
                self._forget(snapshot[1])  # what is not accepted would look like a silent write
            elif watch is not None:
                self._accept(watch)

    def wrote_any(self) -> None:
        """After calls that write without being heard one by one (an optimizer's step)."""
        if self._late():
            self.watched.clear()  # what is not accepted would look like a silent write
            self.rewritten.clear()
            self._entered = 0
            return
        for watch in list(self.watched.values()):
            self._accept(watch)

    def _accept(self, watch: _Watch) -> None:
        storage = watch.tensor() if watch.tensor is not None else None
        if storage is not None:
            watch.seen, before = self._tape.now(), watch.sum
            watch.sum = self._sum(storage)
            if watch.place is not None and watch.sum != before:
                self.rewritten.forget(watch.place[0])

    def _sum(self, storage: torch.UntypedStorage) -> int:
        with self._budget:
            size = storage.nbytes()
            return zlib.crc32(memory_at(storage.data_ptr(), size)) if size else 0


# -- rewritten -------------------------------------------------------------------------------------
# Arrays that come to PyTorch again with other bytes: what NumPy code wrote in between. A tensor
# made of an array lies on its memory, and is often gone after one line; with it goes whoever
# compares its bytes. What the memory held is kept here as a sum for as long as the array lives, by
# the place in it, and looked up as a tensor is made of that place again. A write of PyTorch's makes
# all that is known of an array's memory void.


MOST = 4096
"""Places that are known at a time: each takes some hundred bytes."""

Place = tuple[int, int, int]
"""The memory's number, the first byte in it and how many."""


class _Read(NamedTuple):
    """What a place held as a call made a tensor of it."""

    sum: int
    event: int
    site: int


class RewrittenLog:
    """What the places of arrays held, and the calls that found other bytes there."""

    def __init__(self) -> None:
        self._known: dict[int, dict[tuple[int, int], _Read]] = {}
        self._count = 0
        self._found: dict[tuple[int, int], Rewritten] = {}  # by the lines of the two calls

    def entered(
        self, place: Place, total: int, event: int, site: int, *, copied: bool = False
    ) -> bool:
        """Note what a call made a tensor of; say whether there were other bytes before.

        A tensor that is a copy shows no array, so that no tie acted.
        """
        memory, *within = place
        known, key = self._known.setdefault(memory, {}), (within[0], within[1])
        before = known.get(key)
        if before is None:
            if self._count >= MOST:
                return False
            self._count += 1
        known[key] = _Read(total, event, site)
        if before is None or before.sum == total:
            return False
        if copied:
            return True
        lines = before.site, site
        fact = self._found.get(lines)
        self._found[lines] = (
            Rewritten(EventId(event), EventId(before.event), 1)
            if fact is None
            else fact._replace(times=fact.times + 1)
        )
        return True

    def forget(self, memory: int) -> None:
        """Forget an array's memory: it is gone, or PyTorch wrote it."""
        self._count -= len(self._known.pop(memory, ()))

    def clear(self) -> None:
        """Forget all arrays: who wrote them is not known any more."""
        self._known.clear()
        self._count = 0

    def facts(self) -> list[Rewritten]:
        """Return the calls that found other bytes, the first one for each two lines."""
        return list(self._found.values())
