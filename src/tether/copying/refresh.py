"""Brings a copied tree up to date in place: no new memory, ties as they are."""

from __future__ import annotations

import functools
import itertools
import operator
from typing import Any, NamedTuple

import torch

from tether.copying import pool, relation, steps, storages, threads, transfer, trees
from tether.copying.intent import Refused

_shape_of = operator.attrgetter("shape")
_cdata_of = operator.attrgetter("_cdata")
_dtype_of = operator.attrgetter("dtype")


class Pairs(NamedTuple):
    """Tensors and their copies, such that each byte of the copies is in at most one of them."""

    sources: list[torch.Tensor]
    copies: list[torch.Tensor]
    small: bool = False  # all are strided and known to be smaller than the pool's smallest


class Signature(NamedTuple):
    """What stays equal as long as pairs of these very tensors stay right.

    The tensors are held by it: they can be told apart by identity.
    """

    tensors: list[torch.Tensor]
    memory: list[int]  # the addresses of their storages
    shapes: list[torch.Size]
    dtypes: list[torch.dtype]

    def fits(self, tensors: list[torch.Tensor]) -> bool:
        """Whether `tensors` are these, and nothing about them has changed."""
        if len(tensors) != len(self.tensors) or not all(map(operator.is_, tensors, self.tensors)):
            return False
        now = signature(tensors)
        return now is not None and now[1:] == self[1:]


def refresh(
    obj: Any, out: Any, found: trees.Found | None = None, passed_types: tuple[type, ...] = ()
) -> None:
    """Write the tensors inside `obj` into those inside `out`. Raises `Refused` when they differ."""
    write(pair(obj, out, found, passed_types))


def pair(
    obj: Any, out: Any, found: trees.Found | None = None, passed_types: tuple[type, ...] = ()
) -> Pairs:
    """Return the tensors of two trees of one structure, tied ones once.

    Raises `Refused`, naming the first difference in number, shape, dtype or ties.
    """
    one = (found or trees.find(obj, passed_types)).tensors
    two = trees.find(out, passed_types).tensors
    again = "make a new copy: this one is of something else"
    if len(one) != len(two):
        raise Refused(f"the tree holds {len(one)} tensors and its copy {len(two)}", again)
    same = list(map(_shape_of, one)) == list(map(_shape_of, two))
    if not same or list(map(_dtype_of, one)) != list(map(_dtype_of, two)):
        _raise_difference(one, two, obj, again)
    apart = storages.apart(itertools.chain(one, two))
    if apart is not None:
        chosen = Pairs(one, two, small=storages.all_small(apart[: len(one)]))
    elif set(map(id, one)).isdisjoint(map(id, two)):
        chosen = _untied(one, two, obj, again)
    else:
        raise Refused("a tensor is in both trees", "give a copy with memory of its own")
    if not all(map(torch.Tensor.is_contiguous, chosen.copies)) and any(
        steps.is_plain(y) and relation.overlaps_itself(y) for y in chosen.copies
    ):
        raise Refused("an expanded tensor of the copy cannot be written", again)
    return chosen


def signature(tensors: list[torch.Tensor]) -> Signature | None:
    """Return the signature of `tensors`; None where one has no storage to tell it by."""
    try:
        memory = list(map(_cdata_of, map(torch.Tensor.untyped_storage, tensors)))
    except (RuntimeError, NotImplementedError):
        return None
    return Signature(tensors, memory, list(map(_shape_of, tensors)), list(map(_dtype_of, tensors)))


def _raise_difference(
    one: list[torch.Tensor], two: list[torch.Tensor], obj: Any, again: str
) -> None:
    names = trees.paths(obj)
    for x, y in zip(one, two, strict=True):
        if x.shape != y.shape or x.dtype != y.dtype:
            now, then = (f"{tuple(t.shape)} {steps.dtype_name(t.dtype)}" for t in (x, y))
            name = names.get(id(x), "a tensor")
            raise Refused(f"{name} is {now} now and {then} in the copy", again)


def _untied(one: list[torch.Tensor], two: list[torch.Tensor], obj: Any, again: str) -> Pairs:
    """Pair tensors up, leaving out those whose bytes are written through another of the group."""
    plain = [i for i, (x, y) in enumerate(zip(one, two, strict=True)) if _both_plain(x, y)]
    here, there = _partition(one, plain), _partition(two, plain)
    if set(here) != set(there):
        index = min(min(members) for members in set(here) ^ set(there))
        name = trees.paths(obj).get(id(one[index]), "a tensor")
        raise Refused(f"{name} does not share its memory with the same tensors in both", again)
    chosen = sorted(set(range(len(one))).difference(plain))
    for members in there:
        chosen += members if len(members) == 1 else _covering(two, members)
    chosen.sort()
    return Pairs([one[i] for i in chosen], [two[i] for i in chosen])


def _partition(tensors: list[torch.Tensor], indices: list[int]) -> list[tuple[int, ...]]:
    """Return the indices by the memory that their tensors lie on."""
    place = {id(tensors[i]): i for i in indices}
    groups = storages.grouped([tensors[i] for i in indices])
    return [tuple(sorted(place[id(x)] for x in group.members)) for group in groups]


def _both_plain(x: torch.Tensor, y: torch.Tensor) -> bool:
    return steps.is_plain(x) and steps.is_plain(y)


def _covering(tensors: list[torch.Tensor], indices: tuple[int, ...]) -> list[int]:
    """Return those whose bytes are not all within a larger dense one of the same group."""
    chosen: list[int] = []
    dense: list[tuple[int, int]] = []
    for index in sorted(indices, key=lambda i: -tensors[i].nbytes):
        place = relation.layout_of(tensors[index])
        if any(start <= place.start and place.end <= end for start, end in dense):
            continue
        chosen.append(index)
        if place.dense:
            dense.append((place.start, place.end))
    return chosen


def write(pairs: Pairs) -> None:
    """Copy each source into its copy: small ones in one call, large ones by themselves."""
    with torch.no_grad():
        if pairs.small and pairs.sources and pairs.sources[0].is_cpu and pairs.copies[0].is_cpu:
            torch._foreach_copy_(pairs.copies, pairs.sources)
            return
        small = Pairs([], [])
        for x, y in zip(pairs.sources, pairs.copies, strict=True):
            nbytes = x.nbytes if x.layout is torch.strided else 0
            if nbytes < pool.SMALLEST or x.device != y.device or x.device.type != "cpu":
                small.sources.append(x)
                small.copies.append(y)
            else:
                threads.paced(functools.partial(y.copy_, x), nbytes)
        if small.sources:
            transfer.into(small.copies, small.sources)
