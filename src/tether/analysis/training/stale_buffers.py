"""Modules that follow another one by their parameters, and compute with buffers that do not.

A teacher, a target network or an average is moved after the module that is trained, by a loop over
``parameters()``. What the trained module keeps beside them (the statistics of a normalization) goes
on changing, and stays behind in the module that follows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

import numpy as np

from tether.analysis.copies.other_processes import OtherProcesses
from tether.analysis.history import History
from tether.facts import UNKNOWN, Event, Operand
from tether.operations.table import operation
from tether.source.names import steps_in

LEAST = 2
"""Moves, writes of what is followed, and calls that compute: one of each may be a beginning."""

MOST_CALLS = 16
"""Calls from a write back to the parameter that it takes values of: an average is made in few."""


class StaleBuffer(NamedTuple):
    """A buffer of a module that follows another; positions."""

    tensor: int
    of: int  # the buffer in the same place of the module that is followed
    follower: str  # names of the two modules
    followed: str
    moved: int  # the first call that moves a parameter of the one after one of the other
    written: int  # the first call since then that writes the other buffer
    read: int  # the first call since then that computes with the tensor
    reads: int  # how many do
    as_made: bool  # it shows what it was made with; what it lacks are values computed of others


class _Follows(NamedTuple):
    follower: str
    followed: str


class _Modules:
    """What stands where in modules, by names that only one tensor bears."""

    def __init__(self, history: History) -> None:
        self._history = history
        bearers: dict[str, set[int]] = defaultdict(set)
        listed: dict[int, bool] = {}
        for fact in history.trace.names:
            if fact.module:
                bearers[fact.name].add(int(fact.tensor))
                listed[fact.tensor] = listed.get(fact.tensor, False) or fact.listed
        self.places = {name: one for name, (one, *more) in bearers.items() if not more}
        self.within = listed.keys()
        self.names: dict[int, list[str]] = defaultdict(list)
        for name, tensor in self.places.items():
            self.names[tensor].append(name)
        self.buffers = {one for one, known in listed.items() if not known and not self._trains(one)}

    def _trains(self, tensor: int) -> bool:
        return self._history.is_parameter(tensor)

    @cached_property
    def parameters(self) -> list[int]:
        """All parameters in modules."""
        return [one for one in self.within if self._trains(one)]


class Moves:
    """The writes by which parameters that nothing trains follow trained ones."""

    def __init__(self, history: History) -> None:
        self.modules = _Modules(history)
        self.found = list(_moves(history, self.modules))  # call, follower, what it follows


def stale_buffers(history: History) -> Iterator[StaleBuffer]:
    """Yield the buffers that a module which follows another computes with, and never gets."""
    if history.in_part or not history.steps:
        return
    modules = history.get(Moves).modules
    if not modules.buffers:
        return
    told: set[int] = set()
    for pair, moved in _followers(history, modules).items():
        for name, tensor in modules.places.items():
            other = modules.places.get(pair.followed + name.removeprefix(pair.follower))
            apart = name.startswith(f"{pair.follower}.") and tensor not in told
            if apart and other is not None and tensor in modules.buffers:
                found = _left(history, modules, pair, moved, (tensor, other))
                if found is not None:
                    told.add(tensor)
                    yield found


# -- who follows whom ------------------------------------------------------------------------------


def _followers(history: History, modules: _Modules) -> dict[_Follows, int]:
    """Return the modules that are moved after others, with the first call that does so."""
    moves: dict[tuple[int, int], list[int]] = defaultdict(list)
    for at, tensor, source in history.get(Moves).found:
        # Those before the first step give it something to begin with.
        if any(one < at for one in history.steps_of(source)[:1]):
            moves[tensor, source].append(at)
    found: dict[_Follows, int] = {}
    for (tensor, source), calls in moves.items():
        steps = history.steps_of(source)
        if len(calls) >= LEAST and any(calls[0] < one < calls[-1] for one in steps):
            for pair in _pairs(modules.names[tensor], modules.names[source]):
                found[pair] = min(calls[0], found.get(pair, calls[0]))
    return found


def _moves(history: History, modules: _Modules) -> Iterator[tuple[int, int, int]]:
    """Yield the writes to parameters that no optimizer holds, which take values of trained ones."""
    free = [one for one in modules.parameters if one not in history.held]
    trained = {memory: one for one in history.held for memory in _memory(history, one)}
    for at, tensor in _written(history, free):
        event, operand = history.events[at], history.operand_of(tensor)
        if len(event.writes) > 1:
            source = _beside(history, event, tensor, trained)
        else:
            own = UNKNOWN if operand is None else history.flow.memory(operand)
            source = _taken_from(history, at, trained, own)
        if source != UNKNOWN and tensor != source:
            yield at, tensor, source


def _written(history: History, tensors: list[int]) -> Iterator[tuple[int, int]]:
    """Yield the calls that write tensors, by whatever name, or put other memory under them."""
    known = set(tensors)
    memories = {memory: one for one in tensors for memory in _memory(history, one)}
    at_of, rows = history.events.touched("writes")
    on = history.memories[rows]
    wanted = np.isin(on, list(memories))
    for at, memory in zip(at_of[wanted].tolist(), on[wanted].tolist(), strict=True):
        yield at, memories[memory]
    for at, event in history.events.where(lambda name: operation(name).rebinds):
        if event.reads and event.reads[0].tensor in known:
            yield at, event.reads[0].tensor


def _memory(history: History, tensor: int) -> list[int]:
    operand = history.operand_of(tensor)
    return [] if operand is None else [history.flow.memory(operand)]


def _taken_from(history: History, at: int, trained: dict[int, int], own: int) -> int:
    """Return the trained parameter that a write takes values of, and of no more than one; or -1."""
    waiting, found = [at], set[int]()
    for _ in range(MOST_CALLS):
        if not waiting:
            break
        for edge in history.flow.edges[waiting.pop()]:
            memory = UNKNOWN if edge.operand is None else history.flow.memory(edge.operand)
            if memory in trained:
                found.add(trained[memory])
            elif memory != own and edge.source >= 0:
                waiting.append(edge.source)
    return found.pop() if len(found) == 1 and not waiting else UNKNOWN


def _beside(history: History, event: Event, tensor: int, trained: dict[int, int]) -> int:
    """Return the trained parameter that stands in the place of a tensor in a second list; or -1."""
    reads = [int(one.tensor) for one in event.reads]
    place = reads.index(tensor) + len(event.writes) if tensor in reads else len(reads)
    if place >= len(reads):
        return UNKNOWN
    return trained.get(history.flow.memory(event.reads[place]), UNKNOWN)


def _pairs(names: list[str], others: list[str]) -> Iterator[_Follows]:
    """Yield the modules within which two places are the same one: ``ema`` and ``net``."""
    for name in names:
        for other in others:
            one, two = steps_in(name), steps_in(other)
            alike = 0
            while alike < min(len(one), len(two)) - 1 and one[-1 - alike] == two[-1 - alike]:
                alike += 1
            if alike:
                yield _Follows("".join(one[:-alike]), "".join(two[:-alike]))


# -- what stays behind -----------------------------------------------------------------------------


def _left(
    history: History, modules: _Modules, pair: _Follows, moved: int, places: tuple[int, int]
) -> StaleBuffer | None:
    """Return the first of two buffers if calls compute with it while only the other is written."""
    own, other = (history.operand_of(one) for one in places)
    if own is None or other is None or not _stays(history, own, other, moved):
        return None
    writes = [at for at in history.writes_to(other) if at > moved]
    reads = [at for at in history.on_storage(own) if at > min(writes, default=len(history.events))]
    reads = [at for at in reads if _computes_with(history.events[at], own, modules)]
    if min(len(writes), len(reads)) < LEAST:
        return None
    as_made = _takes_others(history, writes[0], other) and not _was_filled(history, own)
    return StaleBuffer(
        *places, pair.follower, pair.followed, moved, writes[0], reads[0], len(reads), as_made
    )


def _stays(history: History, own: Operand, other: Operand, moved: int) -> bool:
    """Whether a buffer is one of its own, of real numbers, and keeps what it had at a moment."""
    apart = history.flow.memory(own) != history.flow.memory(other)
    return apart and not own.whole and not _is_written(history, own, moved)


def _is_written(history: History, own: Operand, since: int) -> bool:
    """Whether a tensor got other values after a moment, by a call or unheard."""
    if history.get(OtherProcesses).written(own, since):
        return True
    if any(one.storage == own.storage for one in history.trace.unseen):
        return True
    seen = [
        one.version
        for at in history.on_storage(own)
        for one in history.events[at].reads
        if at > since and one.tensor == own.tensor
    ]
    return len(set(seen)) > 1


def _computes_with(event: Event, own: Operand, modules: _Modules) -> bool:
    """Whether a call takes a tensor together with values that stand in no module."""
    tensors = {one.tensor for one in event.reads}
    return own.tensor in tensors and any(one not in modules.within for one in tensors)


def _was_filled(history: History, operand: Operand) -> bool:
    """Whether a tensor, or what it is a copy of, was ever given values computed of others."""
    before = len(history.events)
    while True:
        writes = (at for at in history.writes_to(operand) if at < before)
        if any(_takes_others(history, at, operand) for at in writes):
            return True
        made = history.made_at(operand.tensor)
        if made < 0:
            return True
        reads = history.events[made].reads
        if not reads:
            return False
        if not operation(history.events[made].operation).copies:
            return True
        operand, before = reads[0], made


def _takes_others(history: History, at: int, operand: Operand) -> bool:
    """Whether a write takes values of other memory than it writes."""
    own = history.flow.memory(operand)
    return any(history.flow.memory(one) != own for one in history.events[at].reads)
