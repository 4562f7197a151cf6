"""Leaves of different objects on the same elements: one is written, the other one read."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from tether.analysis.history import History
from tether.analysis.sharing.shared_memory import Sharing, same_place
from tether.facts import UNKNOWN, Operand
from tether.operations.table import operation
from tether.verdicts.alias_write.records import (
    GivenMemory,
    SharedThenWritten,
    _next_read,
    hands_over,
)


def parameters(history: History, found: Sharing) -> Iterator[SharedThenWritten]:
    """Find leaves of different objects on the same elements, one written, the other one read."""
    joined: dict[int, dict[int, tuple[int, Operand]]] = defaultdict(dict)
    memory = history.flow.memory
    for at, event in history.events.where(hands_over):
        if operation(event.operation).wraps and event.reads and event.results:
            source, made = event.reads[0], event.results[0]
            here = joined[memory(made)]
            here.setdefault(source.tensor, (at, source))
            here.setdefault(made.tensor, (at, made))
        elif event.operation == "data.__set__" and len(event.reads) == 2:
            target, source = event.reads
            if target.tensor == source.tensor:
                continue
            here = joined[memory(source)]
            source = _owner(history, found, source)
            here.setdefault(source.tensor, (at, source))
            moved = source._replace(tensor=target.tensor)
            if target.tensor not in here or not same_place(here[target.tensor][1], moved):
                here[target.tensor] = (at, moved)
    for where, members in joined.items():
        yield from _pairs(history, found, where, members)


def _owner(history: History, found: Sharing, operand: Operand) -> Operand:
    """Return what a tensor was made of where that is on its memory, else the tensor itself."""
    link = found.links.get(operand.tensor)
    reads = () if link is None else history.events[link.at].reads
    return reads[0] if reads else operand


def _pairs(
    history: History, found: Sharing, memory: int, members: dict[int, tuple[int, Operand]]
) -> Iterator[SharedThenWritten]:
    for reader, (since, shown) in members.items():
        for writer, (also, other) in members.items():
            if same_place(shown, other) and _called_apart(history, reader, writer):
                pair = SharedThenWritten(max(since, also), UNKNOWN, UNKNOWN, reader, writer)
                story = _acted(history, found, memory, pair)
                if story is not None:
                    yield story
                    break


def _called_apart(history: History, one: int, other: int) -> bool:
    """Whether each of two tensors has names, and none in common with the other."""
    mine, theirs = set(history.names_of(one)), set(history.names_of(other))
    return bool(mine and theirs) and mine.isdisjoint(theirs)


def _acted(
    history: History, found: Sharing, memory: int, pair: SharedThenWritten
) -> SharedThenWritten | None:
    """Return the story with a write through one of a pair and a read of the other, if there is."""
    writes = [one for one in found.writes.get(memory) if one.at > pair.shared]
    done = [one.at for one in writes if one.operand.tensor == pair.writer]
    if not done or any(one.operand.tensor == pair.reader for one in writes):
        return None
    reads = found.reads_of(memory)
    for group in _between(done, history.get(GivenMemory).calls.get(pair.reader, [])):
        read = _next_read(history, found, reads, pair.reader, group.writes[0])
        if UNKNOWN < read < group.until:
            return pair._replace(write=max(at for at in group.writes if at < read), read=read)
    return None


class _Stay(NamedTuple):
    """Writes while a tensor stayed on one memory, and when it was given other memory."""

    writes: list[int]
    until: float


def _between(writes: list[int], rebound: list[int]) -> Iterator[_Stay]:
    """Yield the writes between the moments at which a tensor was given memory."""
    for first, last in pairwise((UNKNOWN, *rebound, math.inf)):
        some = [at for at in writes if first < at < last]
        if some:
            yield _Stay(some, last)
