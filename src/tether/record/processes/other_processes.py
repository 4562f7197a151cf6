"""What other processes have of this one's memory, and what forked ones do with it.

A forked process has every memory as it was then, and from then on as its own: what one of the two
writes the other does not see. Only memory that was sent, received or mapped is one for both. What a
forked process does with the memory that it was given, and with what it sent, it says as it does it:
a byte for each storage, in a page that both see. Nothing is lost if it is killed, and nobody waits.
"""

from __future__ import annotations

import functools
import mmap
import sys
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from tether.facts import (
    UNKNOWN,
    Fork,
    Inherited,
    Moment,
    Shared,
    SharedBy,
    Site,
    SiteId,
    StorageId,
    TensorId,
)
from tether.operations.table import operation
from tether.record.functions import Function
from tether.record.identity import Identities, version_of
from tether.record.patches.replacing import Original, Replacements
from tether.record.sites import is_ours, is_user_file
from tether.record.tape import Tape

__tracebackhide__ = True

PLACES = 1 << 20
"""Bytes of the page for each kind of mark; storages with higher numbers share them."""

_USED, _CHANGED, _GRADED = 0, PLACES, 2 * PLACES
_UNHEARD, _REWRITES, _LINES = 3 * PLACES, 3 * PLACES + 1, 3 * PLACES + 2

_SLOTS, _SLOT, _PARTS = 64, 1024, 5
"""Uses that forked processes write down, the bytes that each may have, and the lines of its text:
storage, tensor, and file, line and function of the user's."""


class SharingLog:
    """What is known of the processes that may show this one's memory."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape
        self._page: mmap.mmap | None = None
        self._forks: list[int] = []
        self._shared: dict[int, SharedBy] = {}  # by number of the storage
        self._arrived: dict[int, Any] = {}  # by id: storages received that were not met yet
        tape.who.on_shared = self._met

    def install(self, replacements: Replacements) -> None:
        """Hear of storages that are sent to other processes, and of those that come from there."""
        storage, replace = torch.UntypedStorage, replacements.replace
        for name in ("_share_fd_cpu_", "_share_filename_cpu_"):
            replace(storage, name, functools.partial(_after, self._sent))
        for name in ("_new_shared_fd_cpu", "_new_shared_filename_cpu"):
            replace(storage, name, self._arriving)
        for name in ("fill_", "copy_"):
            replace(storage, name, functools.partial(_after, self._written))

    # -- shared ----------------------------------------------------------------------------------

    def share(self, serial: int, way: SharedBy) -> None:
        """Note that other processes may show a storage's memory."""
        if way != "received" or serial not in self._shared:
            self._shared[serial] = way

    def _met(self, serial: int, storage: torch.UntypedStorage) -> None:
        """Note a storage in shared memory that is met for the first time."""
        known = self._arrived.pop(id(storage), None)
        came = known is not None and known() is storage
        self.share(serial, "received" if came else "mapped")

    def _sent(self, storage: torch.UntypedStorage) -> None:
        ear: ChildEar | None = self._tape.ear
        if ear is not None:
            ear.sent(storage)
            return
        known = self._tape.who.storages.get(id(storage))
        if known is not None:
            self.share(known.serial, "sent")

    def _written(self, storage: torch.UntypedStorage) -> None:
        ear: ChildEar | None = self._tape.ear
        if ear is not None:
            ear.wrote(storage)

    def _arriving(self, original: Original) -> Any:
        @functools.wraps(original)
        def new(*args: Any, **kwargs: Any) -> Any:
            storage = original(*args, **kwargs)
            ear: ChildEar | None = self._tape.ear
            if ear is not None:
                ear.sent(storage)  # it is another's as well
            else:
                key = id(storage)
                gone = functools.partial(self._gone, key)
                self._arrived[key] = weakref.ref(storage, gone)
            return storage

        return staticmethod(new)

    def _gone(self, key: int, known: Any) -> None:
        if self._arrived.get(key) is known:
            del self._arrived[key]

    # -- forked ----------------------------------------------------------------------------------

    def forks(self) -> None:
        """Note that a process is about to be forked off."""
        if self._page is None:
            # Shared with those forked from now on.
            self._page = mmap.mmap(-1, _LINES + _SLOTS * _SLOT)
        self._tape.who.bury()
        self._forks.append(self._tape.now())

    def in_child(self, tensors_in: Callable[..., list[Any]], *, heard: bool) -> None:
        """Hear, in a process just forked off, what it does with the memory that it was given."""
        if self._page is None or self._tape.ear is not None:
            return
        if heard:
            self._tape.ear = ChildEar(self._page, self._tape.who, tensors_in)
        else:
            self._page[_UNHEARD] = 1

    # -- facts -----------------------------------------------------------------------------------

    def fork_facts(self) -> list[Fork]:
        """Return when processes were forked off."""
        page = self._page
        heard, rewrites = page is None or not page[_UNHEARD], page is not None and page[_REWRITES]
        return [Fork(Moment(at), heard, bool(rewrites)) for at in self._forks]

    def inherited_facts(self) -> list[Inherited]:
        """Return the storages that a forked process used, which it had from here."""
        return [
            Inherited(StorageId(serial), changed, graded, *(self._use(serial) if graded else ()))
            for serial, changed, graded in self._marked()
        ]

    def _use(self, serial: int) -> tuple[SiteId, TensorId]:
        """Return the line and the tensor that a forked process wrote down for a storage."""
        first = _LINES + serial % _SLOTS * _SLOT
        text = self._page[first : first + _SLOT].rstrip(b"\0") if self._page else b""
        parts = text.decode("utf-8", "replace").split("\n")
        if len(parts) != _PARTS or parts[0] != str(serial):
            return SiteId(UNKNOWN), TensorId(UNKNOWN)
        _, tensor, file, line, name = parts
        site = Site(file, int(line), function=name) if line.isdecimal() else None
        place = UNKNOWN if site is None else self._tape.places.add_site(site)
        return SiteId(place), TensorId(int(tensor) if tensor.isdecimal() else UNKNOWN)

    def _marked(self) -> Iterator[tuple[int, bool, bool]]:
        page = self._page
        if page is None:
            return
        used = np.flatnonzero(np.frombuffer(page[:PLACES], np.uint8)).tolist()
        numbers = self._tape.who.storage_table()[:, 0]
        for place in used:
            for serial in range(place, int(numbers.max(initial=-1)) + 1, PLACES):
                yield serial, bool(page[_CHANGED + place]), bool(page[_GRADED + place])

    def shared_facts(self) -> list[Shared]:
        """Return the storages that other processes may show."""
        return [Shared(StorageId(serial), way) for serial, way in self._shared.items()]


class ChildEar:
    """Hears a forked process: what it uses and changes of the memory that it was given."""

    def __init__(
        self, page: mmap.mmap, who: Identities, tensors_in: Callable[..., list[Any]]
    ) -> None:
        self._page, self._tensors_in = page, tensors_in
        self._find = who.find
        self._given = who.storages  # by id; a storage made later with that id is another
        self._sent: dict[int, Any] = {}
        # Frames that were forked as well. Ours are about to end, and their ids will be others'.
        self._below = {
            id(frame) for frame in _frames(sys._getframe(1)) if not is_ours(frame.f_code)
        }
        self._lines: set[int] = set()  # storages for which a line was looked for

    def call(
        self,
        func: Callable[..., Any],
        what: Function,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Call a function that a listener heard of, and mark what it did."""
        if what.silent:
            return func(*args, **kwargs)
        met: list[tuple[Any, Any, int]] = []
        try:
            met = self._look(args, kwargs)
        except Exception:  # noqa: BLE001 -- a tensor that refuses to be asked
            self._page[_UNHEARD] = 1
        result = None
        try:
            result = func(*args, **kwargs)
            return result
        finally:
            self._computed(met, result)
            for number, (tensor, storage, version) in enumerate(met):
                keeps = _keeps(what.name) or (what.writes and not number)
                if keeps or version < 0 or version_of(tensor) != version:
                    self.wrote(storage)

    def _look(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[tuple[Any, Any, int]]:
        """Return the tensors among arguments whose memory is not this process's own."""
        met = []
        given, sent = self._given, self._sent
        with torch._C.DisableTorchFunctionSubclass():
            for tensor in self._tensors_in(*args, *kwargs.values()):
                storage = tensor.untyped_storage()
                if (key := id(storage)) in given or key in sent:
                    self._use(tensor, storage)
                    met.append((tensor, storage, version_of(tensor)))
        return met

    def _use(self, tensor: torch.Tensor, storage: torch.UntypedStorage) -> None:
        serial = self._serial(storage)
        if serial >= 0:
            self._page[_USED + serial % PLACES] = 1
            if tensor.requires_grad and torch.is_grad_enabled():
                self._page[_UNHEARD] = 1  # what a backward pass adds to is not heard

    def _computed(self, met: list[tuple[Any, Any, int]], result: Any) -> None:
        """Mark what a call with a graph, or one that failed, was given that requires grad."""
        if not met or not torch.is_grad_enabled():
            return
        try:
            with torch._C.DisableTorchFunctionSubclass():
                given = [(one, storage) for one, storage, _ in met if one.requires_grad]
                made = self._tensors_in(result) if given else []
                if result is None or any(one.requires_grad for one in made):
                    for tensor, storage in given:
                        self._graded(tensor, self._serial(storage))
        except Exception:  # noqa: BLE001 -- a tensor that refuses to be asked
            self._page[_UNHEARD] = 1

    def _graded(self, tensor: torch.Tensor, serial: int) -> None:
        """Mark a storage that went into a graph, the first time."""
        if serial >= 0 and serial not in self._lines:
            self._lines.add(serial)
            self._page[_GRADED + serial % PLACES] = 1
            self._write_down(serial, tensor)

    def _write_down(self, serial: int, tensor: torch.Tensor) -> None:
        """Write down which tensor on a storage is used, and by which line of the user's."""
        known, first = self._find(tensor), _LINES + serial % _SLOTS * _SLOT
        text = f"{serial}\n{known.serial if known is not None else UNKNOWN}\n{self._line()}"
        told = text.encode("utf-8", "replace")
        if len(told) <= _SLOT and not self._page[first]:
            self._page[first : first + len(told)] = told

    def _line(self) -> str:
        """Return file, line and function of the user's that runs in this process's own part."""
        for frame in _frames(sys._getframe(1)):
            code = frame.f_code
            if id(frame) in self._below:
                break
            if is_user_file(code.co_filename) and not is_ours(code):
                return f"{code.co_filename}\n{frame.f_lineno}\n{code.co_qualname}"
        return "\n\n"

    def _serial(self, storage: torch.UntypedStorage) -> int:
        ref = self._given.get(id(storage))
        return ref.serial if ref is not None and ref() is storage else -1

    def wrote(self, storage: torch.UntypedStorage) -> None:
        """Mark a storage that was written, or may be without being heard."""
        serial, sent = self._serial(storage), self._sent.get(id(storage))
        if serial >= 0:
            self._page[_USED + serial % PLACES] = self._page[_CHANGED + serial % PLACES] = 1
        if sent is not None and sent() is storage:
            self._page[_REWRITES] = 1

    def sent(self, storage: torch.UntypedStorage) -> None:
        """Follow a storage that another process shows from now on."""
        self.wrote(storage)
        key = id(storage)
        self._sent[key] = weakref.ref(storage, functools.partial(self._gone, key))

    def _gone(self, key: int, known: Any) -> None:
        if self._sent.get(key) is known:
            del self._sent[key]


def _frames(frame: types.FrameType | None) -> Iterator[types.FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


@functools.cache
def _keeps(name: str) -> bool:
    """Whether a call does more with a tensor than to read or write its elements there and then."""
    row = operation(name)
    return bool(row.lends or row.own or row.replaces or row.leaves == "pickle")


def _after(tell: Callable[[Any], None], original: Original) -> Original:
    @functools.wraps(original)
    def method(storage: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(storage, *args, **kwargs)
        tell(storage)
        return result

    return method
