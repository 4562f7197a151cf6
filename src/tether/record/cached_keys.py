"""What the caches of functions keep as keys that nothing else has: looked for as a recording ends.

``@lru_cache`` on a method keeps ``self``, and on a function of tensors each tensor. Those are found
again by their identity alone, so that an entry whose key nobody else has is never found again.
"""

from __future__ import annotations

import collections
import functools
import gc
import sys
from collections.abc import Iterator
from typing import Any

import torch

from tether.facts import CacheKept, SiteId, TensorId
from tether.record.naming import modules_of, parts_of
from tether.record.sites import is_user_file
from tether.record.tape import Tape

MOST = 2_000
"""Objects that are looked at for the tensors of one key."""

_CACHE = type(functools.lru_cache(lambda: None))


def kept_by_caches(tape: Tape) -> list[CacheKept]:
    """Return what each cache of the program's own functions keeps alone."""
    caches = [one for one in gc.get_objects() if type(one) is _CACHE]
    try:
        return [fact for one in caches for fact in _kept_by(tape, one)]
    except Exception as error:  # noqa: BLE001 -- the program's objects may do anything
        tape.failed("looking into caches", error)
        return []


def _kept_by(tape: Tape, cache: Any) -> Iterator[CacheKept]:
    code = getattr(cache.__dict__.get("__wrapped__"), "__code__", None)
    if code is None or not is_user_file(code.co_filename):
        return
    keys = [part for key in _keys(cache) for part in key if _by_identity(type(part))]
    times = collections.Counter(map(id, keys))
    keys = list({id(one): one for one in keys}.values())
    tensors, entries = list[torch.Tensor](), 0
    for number in range(len(keys)):
        if _references(keys, number) == _ONE + times[id(keys[number])] - 1:
            inside = _tensors_of(keys[number])
            tensors += inside
            entries += bool(inside)
    serials = [ref.serial for ref in map(tape.who.find, tensors) if ref is not None]
    if serials:
        site = SiteId(tape.places.add_definition(code))
        nbytes = sum(one.untyped_storage().nbytes() for one in tensors)
        yield CacheKept(cache.__qualname__, site, entries, tuple(map(TensorId, serials)), nbytes)


def _keys(cache: Any) -> Iterator[tuple[Any, ...]]:
    """Yield the arguments of each call that a cache keeps the result of."""
    for table in gc.get_referents(cache):
        if type(table) is dict and table is not cache.__dict__:
            yield from (tuple(key) for key in list(table) if issubclass(type(key), (tuple, list)))


def _by_identity(kind: type) -> bool:
    """Whether objects of a class are equal to themselves alone."""
    if issubclass(kind, (torch.Tensor, torch.nn.Module)):
        return kind.__hash__ in (torch.Tensor.__hash__, object.__hash__)
    return kind.__hash__ is object.__hash__ and not issubclass(kind, type)


def _references(found: list[Any], number: int) -> int:
    return sys.getrefcount(found[number])


_sample = (object(),)
_ONE = _references([_sample[0]], 0)


def _tensors_of(value: Any) -> list[torch.Tensor]:
    """Return the tensors that an object has and nothing else."""
    if issubclass(type(value), torch.Tensor):
        return [value]
    found = tensors_inside(value)
    return [found[number] for number in range(len(found)) if _references(found, number) == _ONE]


def tensors_inside(value: Any) -> list[torch.Tensor]:
    """Return the tensors that can be reached from an object, or itself."""
    if issubclass(type(value), torch.Tensor):
        return [value]
    waiting, seen, found = [value], {id(value)}, list[torch.Tensor]()
    for one in waiting:
        parts = [*parts_of("", one)]
        if issubclass(type(one), torch.nn.Module):
            parts += [*modules_of("", one), *one._parameters.items(), *one._buffers.items()]
        for _, part in parts if len(seen) < MOST else ():
            if id(part) not in seen:
                seen.add(id(part))
                (found if issubclass(type(part), torch.Tensor) else waiting).append(part)
    return found
