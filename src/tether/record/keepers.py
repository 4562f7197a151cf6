"""Where a search begins for tensors that no variable of the program leads to any more.

A function has returned, and an exception that was kept still has its frame; a cache of a class has
the model as a key. Who refers to such a tensor is asked of Python's garbage collector, step by
step, until a function's frame or a cache is met: from there the search for names goes down again.
Asked once, when the recording ends, and only where tensors with a graph have no name.
"""

from __future__ import annotations

import collections
import functools
import gc
import time
import types
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from tether.record.identity import is_leaf
from tether.record.naming import Naming, locals_of
from tether.record.sites import is_user_file
from tether.record.tape import Tape

ALIKE = 3
"""Tensors of one shape without a name: fewer are what a last step has left."""

ASKED = 8
"""Tensors that are asked about, of as many shapes."""

STEPS = 16
"""Steps from a tensor to what keeps it."""

MOST = 2_000
"""Objects that are asked about in one step."""

SECONDS = 2.0
"""That asking may take: each step looks through all objects of the process."""

_cache = type(functools.lru_cache(lambda: None))


def roots_of_the_nameless(tape: Tape, naming: Naming) -> list[tuple[str, Any]]:
    """Return what keeps tensors with a graph that have no name, as roots for a search."""
    asked = _nameless(tape, naming)
    try:
        return list(_roots(_outermost(asked))) if asked else []
    except Exception as error:  # noqa: BLE001 -- the program's objects may do anything
        tape.failed("looking for what keeps a tensor", error)
        return []


def _nameless(tape: Tape, naming: Naming) -> list[Any]:
    """Return one tensor of each shape of which several are alive with a graph and no name."""
    alike: dict[tuple[int, ...], list[torch.Tensor]] = collections.defaultdict(list)
    for tensor in tape.who.living_tensors():
        if tensor.requires_grad and not is_leaf(tensor) and not naming.knows(tensor):
            alike[tuple(tensor.shape)].append(tensor)
    largest = sorted(alike.values(), key=len, reverse=True)
    return [found[0] for found in largest[:ASKED] if len(found) >= ALIKE]


def _outermost(asked: list[Any]) -> list[Any]:
    """Return the frames and caches met last on the way from some objects to what keeps them.

    Frames of a function that was met before are in a ring: what it keeps leads to its callers.
    """
    began, frontier, last = time.perf_counter(), asked, list[Any]()
    all_met, known = list(asked), set[int]()
    met = {id(one) for one in (asked, all_met, *asked)}
    for _ in range(STEPS):
        if not frontier or time.perf_counter() - began > SECONDS:
            break
        found = gc.get_referrers(*frontier)
        met |= {id(frontier), id(found), id(met)}
        frontier = [one for one in found if id(one) not in met and not _is_ours(one)][:MOST]
        met.update(map(id, frontier))
        all_met += frontier  # they live as long as their numbers are asked for
        roots = {id(_kind(one)): one for one in frontier if _kind(one) is not None}
        last = [one for kind, one in roots.items() if kind not in known] or last
        known |= roots.keys()
    return last


def _is_ours(value: Any) -> bool:
    """Whether an object is the recorder's own, or a part of the interpreter that keeps nothing."""
    if type(value) is types.FrameType:
        return not is_user_file(value.f_code.co_filename)
    return type(value) is types.ModuleType


def _kind(value: Any) -> Any:
    """Return what a root is one of: a frame of its code, a cache of itself; None: it is no root."""
    if type(value) is types.FrameType:
        return value.f_code
    return value if type(value) is _cache else None


def _roots(keepers: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    for one in keepers:
        if type(one) is types.FrameType:
            yield from locals_of(one)
        else:
            yield getattr(one, "__qualname__", "a cache"), one
