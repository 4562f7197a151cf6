"""Values that a call saved for its backward pass and that were written before that pass.

PyTorch compares the version that a saved value had with the one that its memory has now, and
raises where they differ. The same is done here, for all that lies behind a backward pass.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from tether.analysis.gradients.graph import Graph
from tether.analysis.history import History
from tether.facts import UNKNOWN, Operand, Raised

_RAISED = "modified by an inplace operation"
_VERSIONS = re.compile(
    r"\[[\w.]+ \[(?P<shape>[\d, ]*)\]\].* is at version (?P<now>\d+); expected version"
    r" (?P<expected>\d+)"
)


class Overwritten(NamedTuple):
    """A value that a call saved, and the first write to it afterwards."""

    at: int  # the call that saved it
    operand: Operand
    write: int


def overwritten(history: History, position: int, until: int) -> Iterator[Overwritten]:
    """Find values saved in the graph behind a call and written before `until`.

    Those that a backward pass needs first come first.
    """
    graph = history.get(Graph)
    for at in sorted(graph.behind(position), key=graph.order, reverse=True):
        for operand in graph.saved(at):
            write = _written_after(history, operand, at, until)
            if write != UNKNOWN:
                yield Overwritten(at, operand, write)


def blamed(history: History, fact: Raised) -> Overwritten | None:
    """Return the value that an exception speaks of; None where it is no such exception.

    Its message tells a shape and two versions; where it cannot be read, the facts decide alone.
    """
    backward = history.position(fact.event) if _RAISED in fact.message else UNKNOWN
    found = list(overwritten(history, backward, backward)) if backward >= 0 else []
    said = _VERSIONS.search(fact.message)
    if said is None or not found:
        return found[0] if found else None
    shape = tuple(int(n) for n in said["shape"].replace(" ", "").split(",") if n)
    expected, now = int(said["expected"]), int(said["now"])

    def fits(one: Overwritten) -> tuple[bool, bool]:
        versions = one.operand.version == expected and _version_at(history, one, backward) == now
        return versions, versions and one.operand.shape == shape

    return max(found, key=fits)  # of equals the first: backward comes to it first


def _written_after(history: History, operand: Operand, at: int, until: int) -> int:
    """Return the first write between two calls that moved the version of a saved value, or -1."""
    if operand.version < 0:
        return UNKNOWN
    for position in history.on_storage(operand):
        if at < position < until and _version_after(history, position, operand) > operand.version:
            return position
    return UNKNOWN


def _version_at(history: History, found: Overwritten, until: int) -> int:
    """Return the version that the memory of a saved value had at a position."""
    before = (at for at in history.on_storage(found.operand) if at < until)
    return max((_version_after(history, at, found.operand) for at in before), default=UNKNOWN)


def _version_after(history: History, at: int, operand: Operand) -> int:
    """Return the version of a memory after a call wrote it; -1 when it did not."""
    storage = operand.storage
    return max(
        (one.version for one in history.events[at].writes if one.storage == storage),
        default=UNKNOWN,
    )
