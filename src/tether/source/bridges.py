"""Values that left the tensors and came back, followed through the source.

The recorder is certain of a bridge where the memory or the object was the same. A number or a
list that was computed with in between is neither; there the source says whether the value can
have flowed from where it left to where a tensor was made of it.
"""

from __future__ import annotations

import ast
import builtins
from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from tether.facts import Bridge, Event, EventId, Trace
from tether.operations.table import operation
from tether.source.flow import Flow
from tether.source.syntax import read, source_of
from tether.store.columns import columns_of

WINDOW = 1024
"""Executions of one exit that one entry is joined to: of a longer sum the last terms."""


def follow(trace: Trace, *, elsewhere: bool = True) -> list[Bridge]:
    """Return the likely bridges of a trace: (exit, entry) events, never certain.

    An entry is joined to the executions of an exit since this entry was last passed (to the last
    one before it when there was none), on the same thread. Bridges that are known already are
    left out, and so are entries that are certain of where their memory came from. Without
    `elsewhere` only the text that the trace has is used.
    """
    calls = _Calls(trace)
    reached = _reached(trace, calls, elsewhere=elsewhere)
    if not reached:
        return []
    known = {(bridge.exit, bridge.entry) for bridge in trace.bridges}
    settled = {bridge.entry for bridge in trace.bridges if bridge.certain}
    passed: dict[tuple[int, int], list[int]] = defaultdict(list)  # (thread, exit site) -> events
    used: dict[tuple[int, int, int], int] = {}  # (thread, exit site, entry site) -> how many
    bridges: list[Bridge] = []
    for position, thread, site, leaves in calls.crossing:
        number = trace.event_id(position)
        if leaves:
            passed[thread, site].append(number)
            continue
        for exit_site, via in reached.get(site, {}).items():
            events = passed[thread, exit_site]
            key = (thread, exit_site, site)
            since = max(min(used.get(key, 0), len(events) - 1), len(events) - WINDOW, 0)
            used[key] = len(events)
            if number in settled:
                continue
            bridges += (
                Bridge(EventId(exit_), number, certain=False, via=_in_words(exit_, via, trace))
                for exit_ in events[since:]
                if (exit_, number) not in known
            )
    return bridges


def _in_words(exit_: int, via: str, trace: Trace) -> str:
    if via:
        return f"`{via}`"
    left = operation(trace.events[trace.position(exit_)].operation).leaves
    return "the NumPy array" if left == "array" else "the Python value"


class _Crossing(NamedTuple):
    """A call by which values left the tensors (`leaves`), or came in."""

    position: int
    thread: int
    site: int
    leaves: bool


class _Calls:
    """The calls by which values left and came in, and where tensors were made."""

    def __init__(self, trace: Trace) -> None:
        events = self._events = columns_of(trace.events)
        made, written = events.column("results") > 0, events.column("writes") > 0
        exits = events.called(lambda name: operation(name).exports) & (events.column("reads") > 0)
        entries = events.called(_may_enter) & (made | written)
        self.crossing: list[_Crossing] = []
        for at, event in events.at(np.flatnonzero(exits | entries)) if exits.any() else ():
            if exits[at] or _is_entry(event):
                self.crossing.append(_Crossing(at, event.thread, event.site, bool(exits[at])))

    def sites(self, *, leaves: bool) -> set[int]:
        """Return the sites of the calls by which values left, or came in."""
        return {one.site for one in self.crossing if one.leaves is leaves} - {-1}

    def makers(self) -> set[int]:
        """Return the sites whose calls gave tensors."""
        events = self._events
        return set(np.unique(events.column("site")[events.column("results") > 0]).tolist())


def _may_enter(name: str) -> bool:
    row = operation(name)
    return row.mixes or row.bounds or row.enters


def _is_entry(event: Event) -> bool:
    """Whether a call can have made a tensor of data, or taken a number beside a tensor.

    With a tensor as the data nothing came back; ``loss + 0.1 * penalty.item()`` takes a number.
    """
    row = operation(event.operation)
    if row.mixes:
        return len({one.tensor for one in event.reads}) <= 1
    if row.bounds:
        written = {one.tensor for one in event.writes}
        return all(one.tensor in written for one in event.reads)
    return row.enters and not event.reads


_LOOPS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.For, ast.AsyncFor)


def _iterates(node: ast.AST) -> bool:
    """Whether the call recorded at an expression iterates over a tensor, and is not its value.

    What a loop, a comprehension, or `zip` and other functions of Python's own give is made of all
    that is inside, not of that call's tensors alone.
    """
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return hasattr(builtins, node.func.id)
    return isinstance(node, _LOOPS)


def _reached(trace: Trace, calls: _Calls, *, elsewhere: bool) -> dict[int, dict[int, str]]:
    """Return for each entry site the exit sites whose value can reach it, and by which name."""
    exit_sites, entry_sites = calls.sites(leaves=True), calls.sites(leaves=False)
    if not exit_sites or not entry_sites:
        return {}
    made = calls.makers() - exit_sites - {-1}
    trees, nodes = _placed(trace, elsewhere=elsewhere)
    exits = _numbered(exit_sites, nodes)
    entries = _numbered(entry_sites, nodes)
    tensors = [one for one in _numbered(made, nodes) if not _iterates(one)]
    flow = Flow(trees, exits, entries, tensors).run()
    back = _sites_of(nodes)
    return {
        twin: {number: via for one, via in held.items() for number in back[one] & exit_sites}
        for entry, held in flow.items()
        for twin in back[entry] & entry_sites
    }


def _numbered(numbers: Iterable[int], nodes: dict[int, ast.AST]) -> dict[ast.AST, int]:
    return {nodes[number]: number for number in sorted(numbers) if number in nodes}


def _placed(trace: Trace, *, elsewhere: bool) -> tuple[dict[str, ast.Module], dict[int, ast.AST]]:
    """Return the trees of the user's files, and the expression at each of the user's sites."""
    trees: dict[str, ast.Module] = {}
    nodes: dict[int, ast.AST] = {}
    for number, site in enumerate(trace.sites):
        if not site.user:
            continue
        text = trace.sources.get(site.file) or (read(site.file) if elsewhere else "")
        source = source_of(site.file, text)
        if not text or source.tree is None:
            continue
        trees[site.file] = source.tree
        node = source.node_at(site)
        if node is not None:
            nodes[number] = node
    return trees, nodes


def _sites_of(nodes: dict[int, ast.AST]) -> dict[int, set[int]]:
    """Return for each site all sites of its expression (one runs in several code objects)."""
    by_node: dict[ast.AST, set[int]] = defaultdict(set)
    for number, node in nodes.items():
        by_node[node].add(number)
    return {number: by_node[node] for number, node in nodes.items()}
