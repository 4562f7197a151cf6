"""Which line made a copy: the user's own, or a library's that the user's called."""

from __future__ import annotations

from tether.analysis.copies.needs.answers import Key
from tether.analysis.history import History
from tether.facts import UNKNOWN, Event
from tether.operations.table import operation
from tether.source.calls import called_by


def key_of(history: History, event: Event) -> Key:
    """Return the line that made a copy; all that a deep copy makes is of one."""
    if not own_line(history, event):
        return (event.site, event.inner, event.operation)
    whole = "__deepcopy__" if is_deep(history, event) else event.operation
    return (event.site, UNKNOWN, whole)


def own_line(history: History, event: Event) -> bool:
    """Whether the user's line makes the copy itself; ``copy.deepcopy`` is no library here."""
    if event.inner in (UNKNOWN, event.site):
        return True
    if operation(event.operation).rows:
        return _is_layer(history, event)
    deep = "__deepcopy__"
    return is_deep(history, event) and operation(deep).typed in history.site_of(event).expression


def _is_layer(history: History, event: Event) -> bool:
    """Whether a line calls the layer that holds a table, by the table's own name."""
    layer = called_by(history.site_of(event).expression)
    own = (one.removesuffix(".weight") for one in history.names_of(event.reads[1].tensor))
    return bool(layer) and layer in {one.rpartition(".")[2] for one in own}


def is_deep(history: History, event: Event) -> bool:
    """Whether an event is one tensor's part of a deep copy, perhaps of a whole model."""
    within = history.site(event.inner).function.rpartition(".")[2]
    return "__deepcopy__" in (event.operation, within)
