"""A copy of what there was, put beside what a write left: who does so knows of the write.

Part of `alias-write`: of a tensor, within one function or anywhere, and of an array.
"""

from __future__ import annotations

from tether.analysis.history import History
from tether.analysis.sharing.shared_memory import Sharing, same_place
from tether.facts import UNKNOWN
from tether.operations.table import operation

_FAR = 1_000  # events behind a read that are looked through


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
    if memory == UNKNOWN:
        return False  # which array it is is not known, so neither is what was copied of it
    function = history.site_of(history.events[read]).function
    taken = (history.position(one.event) for one in history.trace.taken if one.memory == memory)
    copies = {
        at for at in taken
        if 0 <= at < changed and history.site_of(history.events[at]).function == function
    }  # fmt: skip
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
