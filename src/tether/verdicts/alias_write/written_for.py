"""A memory that is written to be read by one other name alone: part of `alias-write`."""

from __future__ import annotations

from tether.analysis.history import History
from tether.analysis.sharing.shared_memory import Sharing


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


def _made_after(found: Sharing, tensor: int, moment: int) -> bool:
    """Whether a call after a moment made a tensor on memory that was there."""
    link = found.links.get(tensor)
    return link is not None and link.at > moment
