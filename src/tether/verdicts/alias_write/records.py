"""Records whose memory was written through another name before they were read.

They were made by a call that looks like a copy and was none.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tether.analysis.history import History
from tether.analysis.sharing.acts import Acts
from tether.analysis.sharing.shared_memory import Sharing, Touch
from tether.facts import UNKNOWN, Operand
from tether.operations.table import operation
from tether.regions import overlaps


class SharedThenWritten(NamedTuple):
    """Shared from here, written there, read there."""

    shared: int
    write: int
    read: int
    reader: int  # the tensor that reads what it did not write
    writer: int


def records(history: History, found: Sharing) -> Iterator[SharedThenWritten]:
    """Find records whose memory was written through another name before they were read."""
    for memory, records in found.records.items():
        writes = found.writes.get(memory)
        reads = found.reads_of(memory)
        if not writes:
            continue
        written = {*map(found.family, writes.tensors())}
        for record in records:
            at = found.links[record].at
            kept = _kept(history, record, at)
            story = _read_after(history, found, record, at, writes, reads) if kept else None
            if story is None and record in written:
                story = _written_through(history, found, record, at, writes, reads)
                passed = story is None or kept or _passed_on(history, story)
                story = story if passed else None
            if story is not None:
                yield story


def _kept(history: History, record: int, at: int) -> bool:
    """Whether the program keeps the record under a name, or in its own line at the least."""
    event = history.events[at]
    if history.names_of(record) or history.held_by(record):
        return True
    return event.inner == event.site and bool(history.site_of(event).target)


def _passed_on(history: History, story: SharedThenWritten) -> bool:
    """Whether another function than the one that made a record wrote it, and not by its name."""
    if history.get(Acts).died(story.writer) <= story.shared + 3:
        return False
    made, wrote = (history.site_of(history.events[at]) for at in (story.shared, story.write))
    return made.function != wrote.function and not wrote.says_it_writes


def _read_after(
    history: History,
    found: Sharing,
    record: int,
    at: int,
    writes: Sequence[Touch],
    reads: Sequence[Touch],
) -> SharedThenWritten | None:
    """Find a write through another name, and a read of the record that was not filled anew."""
    shown = _as_made(history, record, at)
    own = [one for one in writes if found.family(one.operand.tensor) == record and one.at > at]
    others = [
        one
        for one in writes
        if one.at > at
        and found.record_of(one.operand.tensor) != record
        and not _by_its_own_line(history, found, record, one)
        and overlaps(shown, one.operand._replace(storage=shown.storage))
    ]
    if not others or own:
        return None
    read = _next_read(history, found, reads, record, others[0].at)
    if read == UNKNOWN:
        return None
    last = max((one for one in others if one.at < read), key=lambda one: one.at)
    writer = last.operand.tensor
    return SharedThenWritten(max(at, _handed(history, writer, last)), last.at, read, record, writer)


def _by_its_own_line(history: History, found: Sharing, record: int, write: Touch) -> bool:
    """Whether a line writes a record through what it takes from it itself: ``x.data.copy_(y)``."""
    line = history.site_of(history.events[write.at])
    taken = (
        history.site_of(history.events[link.at])
        for link in found.chain(write.operand.tensor)
        if link.source == record
    )
    return any(one.row == line.row for one in taken)


def _handed(history: History, tensor: int, write: Touch) -> int:
    """Return the last call before a write that put the tensor on the memory it wrote; or -1."""
    memory, events = history.flow.memory, history.events
    calls = history.get(GivenMemory).calls.get(tensor, [])
    for at in reversed(calls[: bisect_left(calls, write.at)]):
        given = events[at].reads[1:2]
        if given and given[0].tensor != tensor and memory(given[0]) == memory(write.operand):
            return at
    return UNKNOWN


class GivenMemory:
    """When each tensor was given the memory of another."""

    def __init__(self, history: History) -> None:
        self.calls: dict[int, list[int]] = defaultdict(list)  # tensor -> positions, in order
        for at, event in history.events.where(lambda name: operation(name).rebinds):
            if event.reads:
                self.calls[event.reads[0].tensor].append(at)


def _next_read(
    history: History, found: Sharing, reads: Sequence[Touch], reader: int, after: int
) -> int:
    """Return the first read of a tensor, or of a view of it, after a call; or -1."""
    own = (one.at for one in reads
           if one.at > after and found.family(one.operand.tensor) == reader)  # fmt: skip
    return next((at for at in own if not _in_passing(history, at)), UNKNOWN)


def _written_through(
    history: History,
    found: Sharing,
    record: int,
    at: int,
    writes: Sequence[Touch],
    reads: Sequence[Touch],
) -> SharedThenWritten | None:
    """Find a write to part of the record by the user's own line, and a read of its source."""
    event = history.events[at]
    if event.operation == "data.__get__" or event.inner != event.site:
        return None
    for write in writes:
        done = history.events[write.at]
        if write.at <= at or found.family(write.operand.tensor) != record:
            continue
        if operation(done.operation).overwrites or done.inner != done.site:
            continue
        read = _source_read(history, found, record, at, write, reads)
        if read is None:
            return None  # then no later write has one either
        return SharedThenWritten(at, write.at, read.at, read.operand.tensor, record)
    return None


def _source_read(
    history: History,
    found: Sharing,
    record: int,
    made: int,
    write: Touch,
    reads: Sequence[Touch],
) -> Touch | None:
    """Return the first read of a record's source after a write to the record.

    What was put on the memory since there is the record is there to have what is written to it.
    """
    for read in reads:
        if read.at > write.at and _shows_source(history, found, record, read):
            since = history.get(GivenMemory).calls.get(read.operand.tensor, [])
            if bisect_right(since, made) == bisect_left(since, read.at):
                return read
    return None


def _shows_source(history: History, found: Sharing, record: int, read: Touch) -> bool:
    """Whether the user's line reads a record's memory by a name that is not the record's.

    A view made of the record shows the record.
    """
    other = found.family(read.operand.tensor)
    if other == record or any(link.source == record for link in found.chain(other)):
        return False
    user = history.site_of(history.events[read.at]).user
    return user and not _in_passing(history, read.at)


def _as_made(history: History, tensor: int, at: int) -> Operand:
    return next(one for one in history.events[at].results if one.tensor == tensor)


def _in_passing(history: History, at: int) -> bool:
    """Whether a read is an optimizer's own, or lies inside a backward pass."""
    return history.inside(history.events[at], "step", "backward", "hook") >= 0


def hands_over(name: str) -> bool:
    """Whether a call gives the memory itself to another object: nn.Parameter(t), p.data = t."""
    return operation(name).wraps or name == "data.__set__"
