"""What the caches of functions keep as keys that nothing else has: looked for as a recording ends.

``@lru_cache`` on a method keeps ``self``, and on a function of tensors each tensor. Those are found
again by their identity alone, so that an entry whose key only caches have is never found again.
"""

from __future__ import annotations

import gc
import sys
import types
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

from tether.facts import CacheKept, SiteId, TensorId
from tether.record.objects import CACHE_KIND, ObjectWalk, cache_of, parts_of
from tether.record.sites import is_user_file
from tether.record.tape import Tape

MOST = 5_000
"""Objects that are looked at for the tensors of one key."""


class _KeysOfCache(NamedTuple):
    """A cache of one of the program's own functions, and the keys that are found by identity."""

    name: str
    code: types.CodeType
    keys: list[Any]  # each as often as the cache has it


def kept_by_caches(tape: Tape) -> list[CacheKept]:
    """Return what the caches of the program's own functions keep alone; each key is told once."""
    try:
        return [*_kept_by(tape, _caches())]
    except Exception as error:  # noqa: BLE001 -- the program's objects may do anything
        tape.failed("looking into caches", error)
        return []


def _caches() -> list[_KeysOfCache]:
    """Return the caches of the program's own functions, in the order of their definitions."""
    found = list[_KeysOfCache]()
    for one in gc.get_objects():
        if type(one) is CACHE_KIND:
            code = getattr(one.__dict__.get("__wrapped__"), "__code__", None)
            if code is not None and is_user_file(code.co_filename):
                keys = [part for key in _keys(one) for part in key if _by_identity(type(part))]
                found.append(_KeysOfCache(one.__qualname__, code, keys))
    return sorted(found, key=lambda one: (one.code.co_filename, one.code.co_firstlineno))


def _kept_by(tape: Tape, caches: list[_KeysOfCache]) -> Iterator[CacheKept]:
    keepers = defaultdict[int, list[int]](list)  # key -> caches, as often as they have it
    for number, key in ((at, id(key)) for at, cache in enumerate(caches) for key in cache.keys):
        keepers[key].append(number)
    for number, cache in enumerate(caches):
        keys = [*{id(one): one for one in cache.keys}.values()]
        tensors, entries, also = list[torch.Tensor](), 0, set[int]()
        for at in range(len(keys)):
            having = keepers[id(keys[at])]
            # Each time it is in a key of the cache, and in the list that was made above.
            if having[0] == number and _references(keys, at) == _ONE + 2 * len(having) - 1:
                inside = _tensors_of(keys[at])
                if inside:
                    tensors, entries, also = tensors + inside, entries + 1, also.union(having)
        sites = [SiteId(tape.places.add_definition(caches[one].code)) for one in sorted(also)]
        yield from _told(tape, cache.name, sites, entries, tensors)


def _told(
    tape: Tape, name: str, sites: list[SiteId], entries: int, tensors: list[torch.Tensor]
) -> Iterator[CacheKept]:
    serials = [ref.serial for ref in map(tape.who.find, tensors) if ref is not None]
    if serials:
        nbytes = sum(one.untyped_storage().nbytes() for one in tensors)
        kept = tuple(map(TensorId, serials))
        yield CacheKept(name, sites[0], entries, kept, nbytes, tuple(sites[1:]))


def _keys(cache: Any) -> Iterator[tuple[Any, ...]]:
    """Yield the arguments of each call that a cache keeps the result of."""
    keys = (key for key, _ in cache_of(cache))
    yield from (tuple(key) for key in keys if issubclass(type(key), (tuple, list)))


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
    walk, found = ObjectWalk([value], MOST), list[torch.Tensor]()
    for one in walk:
        if walk.times(one) > 1:
            continue
        if issubclass(type(one), torch.Tensor):
            found.append(one)
        else:
            walk.add(part for _, part in parts_of("", one))
    return found
