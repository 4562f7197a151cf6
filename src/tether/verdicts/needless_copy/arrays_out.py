"""Arrays that are copied as soon as they have left PyTorch, off memory that nothing uses again.

What a tensor gives as an array lies in the tensor's memory. A copy of it keeps the two apart; where
nothing reads or writes the tensor's memory after that, on any way, there is nothing to be kept
apart from. Who writes the array is not heard, and need not be: it would have been the only one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from tether.analysis.copies.already_there import nbytes
from tether.analysis.copies.layouts import contiguous
from tether.analysis.copies.needs import FLOOR, read_unseen
from tether.analysis.history import History
from tether.analysis.surroundings import Surroundings
from tether.facts import UNKNOWN, Operand, SiteId
from tether.operations.table import operation
from tether.source.copied_arrays import copied_at_once


class ArraysOut(NamedTuple):
    """A line that copies arrays which it has just got."""

    calls: tuple[int, ...]  # that gave the arrays
    text: str  # of the expression that copies
    array: str  # and of what gives the array without a copy
    bytes: int  # copied, in all
    by_name: bool  # a variable has the array in between, which nothing else reads


def arrays_out(history: History) -> Iterator[ArraysOut]:
    """Yield the lines none of whose copies was needed."""
    lines: dict[SiteId, list[int]] = defaultdict(list)
    for at, event in history.events.where(lambda name: operation(name).exports):
        if event.reads and event.inner in (UNKNOWN, event.site):
            lines[event.site].append(at)
    if not lines or read_unseen(history):
        return
    for site, calls in lines.items():
        place = history.site(site)
        copy = copied_at_once(history.get(Surroundings).source(place.file), place)
        total = sum(nbytes(history.events[at].reads[0]) for at in calls)
        if copy is not None and total >= FLOOR and all(_is_last(history, at) for at in calls):
            yield ArraysOut(tuple(calls), copy.text, copy.array, total, copy.by_name)


def _is_last(history: History, at: int) -> bool:
    """Whether a call that gives an array is the last to touch memory that it shows whole."""
    source = history.events[at].reads[0]
    laid_out = contiguous(source.shape) == source.strides
    return laid_out and _is_whole(history, source) and _is_alone(history, at, source)


def _is_whole(history: History, source: Operand) -> bool:
    """Whether hardly more lies beside a tensor: a copy would let that go."""
    fact = history.trace.storages[source.storage]
    beside = fact.nbytes - nbytes(source)
    return fact.device == "cpu" and fact.memory == UNKNOWN and beside <= min(FLOOR, nbytes(source))


def _is_alone(history: History, at: int, source: Operand) -> bool:
    """Whether PyTorch made a memory here, keeps none of it for gradients, and gave one array."""
    memory = history.flow.memory(source)
    touching = history.on_memory(memory)
    if touching[-1] != at:
        return False
    events = [history.events[one] for one in touching]
    made = {one.storage for one in events[0].results} - {one.storage for one in events[0].reads}
    graph = any(one.requires_grad for event in events for one in (*event.reads, *event.results))
    arrays = sum(bool(operation(event.operation).exports) for event in events)
    enters = operation(events[0].operation).enters
    return arrays == 1 and not graph and not enters and bool(made)
