"""One name that was put on another's memory to follow it: part of `alias-write`."""

from __future__ import annotations

from bisect import bisect_left

from tether.analysis.history import History
from tether.analysis.sharing.shared_memory import Sharing, same_place
from tether.facts import UNKNOWN
from tether.operations.table import operation
from tether.verdicts.alias_write.records import hands_over

LEAST_TURNS = 3
"""Writes, and a read after them. Fewer may come about by chance."""

_FAR = 1_000  # events behind a read that are looked through


def follows(history: History, found: Sharing, shared: int, reader: int) -> bool:
    """Whether a module's tensor came to a memory once, and is read in turn with the writes to it.

    An actor that always acts with the newest weights does so; and what another memory is brought up
    to date by, whatever tensor it is. Who meant a copy of a moment makes it again when that moment
    is over, and the second time the memory is the same already.
    """
    event, operand = history.events[shared], history.operand_of(reader)
    if operand is None:
        return False
    memory = history.flow.memory(operand)
    reads = [one.at for one in found.reads_of(memory) if one.operand.tensor == reader]
    if not hands_over(event.operation) and not _beside(history, found, reader):
        reads = [at for at in reads if _writes_another(history, at, memory) or _told(history, at)]
    calls = (history.events[at] for at in history.on_storage(operand))
    if sum((one.operation, one.site) == (event.operation, event.site) for one in calls) > 1:
        return False
    writes = sorted({one.at for one in found.writes.get(memory) if one.at > shared})
    return len({bisect_left(writes, one) for one in reads} - {0}) >= LEAST_TURNS


def _writes_another(history: History, at: int, memory: int) -> bool:
    """Whether a call writes other memory by what it reads: an average that is brought up to date.

    One of values that stand still would have nothing to follow.
    """
    event = history.events[at]
    written = {history.flow.memory(one) for one in event.writes}
    return bool(written) and memory not in written and event.operation != "step"


def _told(history: History, at: int) -> bool:
    """Whether a line takes a number of one tensor alone out of PyTorch, as a log of it does.

    The number of one that stands still would be the same each time.
    """
    line, event = history.site_of(history.events[at]), history.events[at]
    while operation(event.operation).leaves != "number":
        if len(event.reads) != 1 or len(event.results) != 1:
            return False
        at = next(history.readers(event.results[0], at), UNKNOWN)
        if at == UNKNOWN or history.site_of(history.events[at]).line != line.line:
            return False
        event = history.events[at]
    return len(event.reads) == 1


def _beside(history: History, found: Sharing, record: int) -> bool:
    """Whether a module was given a record as its buffer by the line that tied its parameters.

    A parameter made of a state lies on the memory of the state's own; a buffer is the state's own.
    """
    given = history.trace.reassigned
    lines = {one.site for one in given if one.new == record}
    return any(
        one.site in lines and found.record_of(_source(found, one.new)) != UNKNOWN
        for one in given
        if one.new != record
    )


def _source(found: Sharing, tensor: int) -> int:
    """Return what a parameter was made of."""
    link = found.links.get(tensor)
    return UNKNOWN if link is None else link.source


def written_for(history: History, found: Sharing, record: int, shared: int) -> bool:
    """Whether what is written on a record's memory is read through the record alone.

    Nothing reads the memory by another name, nor makes another tensor on it after a write: who
    fills it anew by that other name means the values to be seen through the record.
    """
    operand = history.operand_of(record)
    if not history.whole or operand is None or found.record_of(record) != record:
        return False
    memory = history.flow.memory(operand)

    def is_its_own(tensor: int) -> bool:
        return tensor == record or any(link.source == record for link in found.chain(tensor))

    if not all(is_its_own(one.operand.tensor) for one in found.reads_of(memory)):
        return False
    writes = found.writes.get(memory)
    first = min((one.at for one in writes if one.at > shared), default=shared)
    later = (history.events[at] for at in history.on_memory(memory) if at > first)
    shown = {one.tensor for event in later for one in event.results}
    return all(is_its_own(tensor) or not _made_after(found, tensor, first) for tensor in shown)


def set_beside(history: History, tensor: int, shared: int, changed: int, read: int) -> bool:
    """Whether a function has a copy of a tensor from before a write, and reads both by one call.

    It keeps what there was under another name: the tensor is to show what has become of it.
    """
    function = history.site_of(history.events[shared]).function
    if history.site_of(history.events[read]).function != function:
        return False
    made = {history.made_at(one.tensor) for one in history.events[read].reads}
    return any(
        shared < at < changed
        and history.site_of(history.events[at]).function == function
        and _copies(history, at, tensor)
        for at in made
    )


def compared(history: History, tensor: int, shared: int, changed: int) -> bool:
    """Whether a call reads a tensor as a write left it together with a copy from before the write.

    Wherever it is: who puts the two side by side knows that the one has changed.
    """
    operand = history.operand_of(tensor)
    for at in history.readers(operand, shared, changed) if operand is not None else ():
        if _copies(history, at, tensor):
            copy = history.events[at].results[0]
            if any(history.writes_to(copy, at)):
                continue  # it is not what there was
            later = (history.events[one].reads for one in history.readers(copy, changed))
            if any(one.tensor == tensor for reads in later for one in reads):
                return True
    return False


def array_beside(history: History, memory: int, changed: int, read: int) -> bool:
    """Whether a function made a tensor of an array before a write, and reads what came of it too.

    The copy has what there was: the tensor that shows the array is to have what has become of it.
    """
    function = history.site_of(history.events[read]).function
    copies = {
        at
        for one in history.trace.taken
        if one.memory == memory != UNKNOWN
        and (at := history.position(one.event)) < changed
        and history.site_of(history.events[at]).function == function
    }
    return bool(copies) and not copies.isdisjoint(history.flow.behind(read, _FAR))


def _copies(history: History, at: int, tensor: int) -> bool:
    """Whether a call gave all elements of a tensor in memory of their own."""
    event, operand = history.events[at], history.operand_of(tensor)
    if operation(event.operation).copies != "clone" or not event.reads or operand is None:
        return False
    source, copy = event.reads[0], event.results[0]
    links = history.get(Sharing).chain(source.tensor)
    own = source.tensor == tensor or any(one.source == tensor for one in links)
    return own and copy.storage != source.storage and same_place(source, operand)


def _made_after(found: Sharing, tensor: int, moment: int) -> bool:
    """Whether a call after a moment made a tensor on memory that was there."""
    link = found.links.get(tensor)
    return link is not None and link.at > moment
