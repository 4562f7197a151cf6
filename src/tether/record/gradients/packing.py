"""What the program's own hooks on saved tensors keep for backward: a copy, or the memory itself.

PyTorch checks no version of what such a hook keeps. Noted is what a hook that packs is given, and
whether what the other one gives back for it lies in that memory, or was made of an array or tensor
that does. Only hooks of the program's own are followed: `save_on_cpu` copies, and so do libraries.
"""

from __future__ import annotations

import dis
import functools
import types
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch

from tether.facts import UNKNOWN, KeptByHook, Moment, SiteId, StorageId
from tether.record.arrays.contents import shared_until_written
from tether.record.arrays.memory import is_array, stretch_of
from tether.record.identity import version_of
from tether.record.objects import items_of
from tether.record.patches.replacing import Original, Replacements
from tether.record.sites import code_of
from tether.record.tape import Tape

__tracebackhide__ = True

MOST = 20_000
"""Values that are noted as kept."""

MOST_OPEN = 20_000
"""Packed values that may be asked for yet: the last ones."""

_DEPTH = 3
_COUNTED = (int, str, bytes)  # by what they are equal to, an object by its number
_no_modes = torch._C.DisableTorchFunction


class _GivenToPack(NamedTuple):
    """A tensor that a hook was given."""

    at: int
    storage: Callable[[], torch.UntypedStorage | None]
    serial: int
    version: int
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    hook: int
    holds: bool  # what the hook returned has the memory itself, and no other


class PackingLog:
    """What hooks were given to pack, until it is asked for."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape
        self._open: dict[Any, _GivenToPack] = {}  # by what the hook returned
        self._places: dict[tuple[str, types.CodeType], int] = {}
        self.facts: list[KeptByHook] = []

    def install(self, replacements: Replacements) -> None:
        """Put in place what hears of the hooks."""

        def make(original: Original) -> Original:
            @functools.wraps(original)
            def push(pack: Any, unpack: Any) -> None:
                hook = self._place(code_of(pack)) if self._tape.active else UNKNOWN
                if hook == UNKNOWN:
                    original(pack, unpack)
                else:
                    original(self._packing(pack, hook), self._unpacking(unpack))

            return push

        replacements.replace(torch._C._autograd, "_push_saved_tensors_default_hooks", make)

    def _place(self, code: types.CodeType | None) -> int:
        """Return where a hook of the program's returns; where it begins, if at several lines."""
        if code is None:
            return UNKNOWN
        key = code.co_filename, code  # equal code of two files is one as a key
        known = self._places.get(key)
        if known is None:
            known = self._places[key] = self._returning(code)
        return known

    def _returning(self, code: types.CodeType) -> int:
        begins = self._tape.places.add_beginning(code)
        if begins == UNKNOWN:
            return UNKNOWN
        ends = [one for one in dis.get_instructions(code) if one.opname == "RETURN_VALUE"]
        if len({one.positions.lineno for one in ends if one.positions is not None}) != 1:
            return begins
        return self._tape.places.add(self._tape.places.of_code(code), ends[0].offset).number

    def _packing(self, pack: Any, hook: int) -> Any:
        def packing(tensor: torch.Tensor) -> Any:
            value = pack(tensor)
            if self._tape.active:
                try:
                    with _no_modes():
                        self._note(tensor, value, hook)
                except Exception as error:  # noqa: BLE001 -- a wrapper may refuse
                    self._tape.failed("a hook on saved tensors", error)
            return value

        return packing

    def _unpacking(self, unpack: Any) -> Any:
        def unpacking(value: Any) -> Any:
            tensor = unpack(value)
            known = self._open.get(_key(value)) if self._tape.active else None
            if known is not None and len(self.facts) < MOST:
                try:
                    with _no_modes():
                        self._asked_for(known, tensor)
                except Exception as error:  # noqa: BLE001
                    self._tape.failed("a hook on saved tensors", error)
            return tensor

        return unpacking

    def _note(self, tensor: torch.Tensor, value: Any, hook: int) -> None:
        key, memory = _key(value), self._tape.who.storage_of(tensor)
        self._open.pop(key, None)
        if memory is None or tensor.layout is not torch.strided:
            return
        if len(self._open) >= MOST_OPEN:
            self._open.pop(next(iter(self._open)), None)
        found = list(_held(value, 0))
        self._open[key] = _GivenToPack(
            self._tape.now(), memory, memory.serial, version_of(tensor),
            int(tensor.storage_offset()), tuple(tensor.shape), tensor.stride(),
            str(tensor.dtype).removeprefix("torch."), hook,
            bool(found) and all(_lies_in(one, tensor.untyped_storage()) for one in found),
        )  # fmt: skip

    def _asked_for(self, known: _GivenToPack, given: Any) -> None:
        storage = known.storage()
        if storage is not None and (known.holds or _lies_in(given, storage)):
            self.facts.append(KeptByHook(
                Moment(known.at), Moment(self._tape.now()), StorageId(known.serial),
                known.version, known.offset, known.shape, known.strides, known.dtype,
                SiteId(known.hook),
            ))  # fmt: skip


def _key(value: Any) -> Any:
    return value if type(value) in _COUNTED else (type(value), id(value))


def _held(value: Any, depth: int) -> Iterator[Any]:
    """Yield the tensors and arrays in what a hook returned, within plain containers."""
    if isinstance(value, torch.Tensor) or is_array(value):
        yield value
    elif depth < _DEPTH:
        inside = list(dict.values(value)) if isinstance(value, dict) else items_of(value)
        for one in inside:
            yield from _held(one, depth + 1)


def _lies_in(value: Any, storage: torch.UntypedStorage) -> bool:
    """Whether a tensor or an array shows the bytes of a storage, and has not only a copy."""
    if isinstance(value, torch.Tensor):
        if value.layout is not torch.strided:
            return False
        own = value.untyped_storage()
        if own._cdata == storage._cdata:
            return True
        if shared_until_written(value) or own.device != storage.device:
            return False
        begin = own.data_ptr()
    elif is_array(value) and storage.device.type == "cpu":
        begin = stretch_of(value)[0]
    else:
        return False
    first = storage.data_ptr()
    return 0 < first <= begin < first + storage.nbytes()
