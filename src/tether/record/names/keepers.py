"""Where a search begins for tensors that no variable of the program leads to any more.

A function has returned, and an exception that was kept still has its frame; a cache of a class has
the model as a key; a library keeps a list of its own. Who refers to such a tensor is asked of
Python's garbage collector, step by step, until a function's frame, a generator, a cache, a class or
the variables of a module are met: from there the search for names goes down again.
Asked once, when the recording ends, and only where tensors with a graph have no name.
"""

from __future__ import annotations

import collections
import gc
import sys
import types
from collections.abc import Iterator
from typing import Any

import torch

from tether.record.budget import Budget
from tether.record.identity import is_leaf
from tether.record.names.naming import Naming
from tether.record.names.rings import RingLog
from tether.record.objects import CACHE_KIND, GENERATORS, frame_of, is_tethers, locals_of
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


def roots_of_the_nameless(tape: Tape, naming: Naming, rings: RingLog) -> list[tuple[str, Any]]:
    """Return what keeps tensors with a graph that have no name, as roots for a search."""
    try:
        if _nameless(tape, naming):
            rings.collect()
        asked = _nameless(tape, naming)
        return _outermost(asked) if asked else []
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


class _Climb:
    """The way up from some objects to what keeps them, and the roots that were met on it."""

    def __init__(self, asked: list[Any]) -> None:
        self.modules = _modules()
        self.all_met = list(asked)  # they live as long as their numbers are asked for
        self.met = {id(one) for one in (asked, self.all_met, self.modules, *asked)}
        self.last: list[Any] = []
        self._known: set[int] = set()

    def step(self, frontier: list[Any]) -> list[Any]:
        """Return what refers to some objects and was not met before."""
        found = gc.get_referrers(*frontier)
        self.met |= {id(frontier), id(found), id(self.met)}
        new = [one for one in found if id(one) not in self.met and not _is_ours(one)][:MOST]
        self.met.update(map(id, new))
        self.all_met += new
        roots = {id(kind): one for one in new if (kind := self._kind(one)) is not None}
        self.last = [one for kind, one in roots.items() if kind not in self._known] or self.last
        self._known |= roots.keys()
        self.met.add(id(self.last))
        return [one for one in new if not self._ends_at(one)]

    def _ends_at(self, value: Any) -> bool:
        """Whether the way ends: all functions of a module, all objects of a class refer to it."""
        return id(value) in self.modules or issubclass(type(value), type)

    def _kind(self, value: Any) -> Any:
        """Return what a root is one of: a frame of its code, else itself; None: it is no root."""
        if type(value) is types.FrameType:
            return value.f_code
        if issubclass(type(value), GENERATORS):
            frame = frame_of(value)
            return frame and frame.f_code
        if issubclass(type(value), type):
            return None if is_tethers(value) else value
        return value if type(value) is CACHE_KIND or id(value) in self.modules else None

    def roots(self) -> Iterator[tuple[str, Any]]:
        """Yield where a search begins, in what was met last."""
        for value in self.last:
            if type(value) is types.FrameType:
                yield from locals_of(value)
            elif self._ends_at(value):
                yield from self._among(value)
            else:
                yield getattr(value, "__qualname__", "a cache"), value

    def _among(self, value: Any) -> Iterator[tuple[str, Any]]:
        """Yield the variables of a module, or of a class, that were met."""
        module = self.modules.get(id(value))
        around = "" if module == "__main__" else f"{module or value.__qualname__}."
        for name, part in list((vars(value) if module is None else value).items()):
            if id(part) in self.met:
                yield f"{around}{name}", part


def _outermost(asked: list[Any]) -> list[tuple[str, Any]]:
    """Return the roots met last on the way from some objects to what keeps them.

    Frames of a function that was met before are in a ring: what it keeps leads to its callers.
    """
    frontier, climb, budget = asked, _Climb(asked), Budget(0.0, allowed=SECONDS)
    for _ in range(STEPS):
        if not frontier or budget.late():
            break
        with budget:
            frontier = climb.step(frontier)
    return list(climb.roots())


def _modules() -> dict[int, str]:
    """Return the names of the modules by the numbers of what has their variables."""
    return {
        id(vars(one)): name
        for name, one in list(sys.modules.items())
        if type(one) is types.ModuleType and name.partition(".")[0] != "tether"
    }


def _is_ours(value: Any) -> bool:
    """Whether an object is the recorder's own, or a part of the interpreter that keeps nothing."""
    if type(value) is types.FrameType:
        return not is_user_file(value.f_code.co_filename)
    return type(value) in (types.ModuleType, _Climb)
