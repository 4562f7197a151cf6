"""Brings a copied tree up to date in place: no new memory, ties as they are."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from tether.intent import Refused
from tether.live import applying, relating, storages, threads, trees


class Pairs(NamedTuple):
    """Tensors and their copies, such that each byte of the copies is in at most one of them."""

    sources: list[torch.Tensor]
    copies: list[torch.Tensor]


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
    shapes = [x.shape for x in one] == [x.shape for x in two]
    if not shapes or [x.dtype for x in one] != [x.dtype for x in two]:
        names = trees.paths(obj)
        for x, y in zip(one, two, strict=True):
            if x.shape != y.shape or x.dtype != y.dtype:
                now, then = (f"{tuple(t.shape)} {applying.dtype_name(t.dtype)}" for t in (x, y))
                name = names.get(id(x), "a tensor")
                raise Refused(f"{name} is {now} now and {then} in the copy", again)
    return _untied(one, two, obj, again)


def _untied(one: list[torch.Tensor], two: list[torch.Tensor], obj: Any, again: str) -> Pairs:
    """Pair tensors up, leaving out those whose bytes are written through another of their group."""
    plain = [i for i, (x, y) in enumerate(zip(one, two, strict=True)) if _both_plain(x, y)]
    chosen = [i for i in range(len(one)) if i not in set(plain)]
    position = {id(two[i]): i for i in plain}
    places = {id(one[i]): i for i in plain}
    for group in storages.grouped([one[i] for i in plain]):
        indices = [places[id(x)] for x in group.members]
        chosen += indices if group.alone else _covering(two, indices)
    there = {
        frozenset(position[id(y)] for y in group.members)
        for group in storages.grouped([two[i] for i in plain])
    }
    here = {
        frozenset(places[id(x)] for x in group.members)
        for group in storages.grouped([one[i] for i in plain])
    }
    if here != there:
        index = min(min(members) for members in here ^ there)
        name = trees.paths(obj).get(id(one[index]), "a tensor")
        raise Refused(f"{name} does not share its memory with the same tensors in both", again)
    chosen.sort()
    for index in chosen:
        if index in position.values() and relating.overlaps_itself(two[index]):
            raise Refused("an expanded tensor of the copy cannot be written", again)
    return Pairs([one[i] for i in chosen], [two[i] for i in chosen])


def _both_plain(x: torch.Tensor, y: torch.Tensor) -> bool:
    return applying.is_plain(x) and applying.is_plain(y)


def _covering(tensors: list[torch.Tensor], indices: list[int]) -> list[int]:
    """Return those whose bytes are not all within a larger dense one of the same group."""
    chosen: list[int] = []
    dense: list[tuple[int, int]] = []
    for index in sorted(indices, key=lambda i: -tensors[i].nbytes):
        place = relating.layout_of(tensors[index])
        if any(start <= place.start and place.end <= end for start, end in dense):
            continue
        chosen.append(index)
        if place.dense:
            dense.append((place.start, place.end))
    return chosen


def write(pairs: Pairs) -> None:
    """Copy each source into its copy: small ones in one call, large ones by themselves."""
    small: tuple[list[torch.Tensor], list[torch.Tensor]] = ([], [])
    with torch.no_grad():
        for x, y in zip(pairs.sources, pairs.copies, strict=True):
            if x is y:
                raise Refused("a tensor is in both trees", "give a copy with memory of its own")
            nbytes = x.nbytes if x.layout is torch.strided else 0
            if nbytes < threads.THRESHOLD or x.device != y.device or x.device.type != "cpu":
                small[0].append(y)
                small[1].append(x)
            else:
                _write_large(y, x, nbytes)
        if small[0]:
            torch._foreach_copy_(small[0], small[1])


def _write_large(y: torch.Tensor, x: torch.Tensor, nbytes: int) -> None:
    threads.paced(lambda: y.copy_(x), nbytes)
