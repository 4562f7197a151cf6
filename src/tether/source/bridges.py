"""Values that left the tensors and came back, followed through the source.

The recorder is certain of a bridge where the memory or the object was the same. A number or a
list that was computed with in between is neither; there the source says whether the value can
have flowed from where it left to where a tensor was made of it.
"""

from __future__ import annotations

import ast
import builtins
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from tether.facts import Bridge, Event, EventId, Trace
from tether.operations.table import operation
from tether.source.flow import Flow
from tether.source.held import Way
from tether.source.run_ways import Fit, WaysOfRuns, same_way
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
    text = _followed(trace, calls, elsewhere=elsewhere)
    if text is None:
        return []
    known = {(bridge.exit, bridge.entry) for bridge in trace.bridges}
    settled = {bridge.entry for bridge in trace.bridges if bridge.certain}
    joining = _Joining(text)
    bridges: list[Bridge] = []
    for position, thread, site, leaves in calls.crossing:
        number = trace.event_id(position)
        way = text.ways.at(site, number)
        if leaves:
            joining.leaves(number, thread, site, way)
            continue
        bridges += (
            Bridge(EventId(exit_), number, False, _in_words(exit_, via, trace), doubtful)
            for exit_, via, doubtful in joining.enters(thread, site, way)
            if number not in settled and (exit_, number) not in known
        )
    return bridges


class _Join(NamedTuple):
    """What the text leads from an exit to an entry that was reached by one way."""

    ways: frozenset[tuple[Way, bool]]  # to the exit, each with whether it is doubtful
    via: str


class _Joining:
    """Joins the calls by which values came in to those by which they had left."""

    def __init__(self, text: _Text) -> None:
        self._text = text
        self._left: dict[tuple[int, int], list[tuple[int, Way]]] = defaultdict(list)
        self._of: dict[tuple[int, Way], dict[int, _Join]] = {}
        self._matching: dict[tuple[object, ...], tuple[list[tuple[int, bool]], list[int]]] = {}
        self._used: dict[tuple[object, ...], int] = {}  # how many calls of an exit

    def leaves(self, number: int, thread: int, site: int, way: Way) -> None:
        """Note a call of an exit."""
        if site in self._text.exits:
            self._left[thread, self._text.exits[site]].append((number, way))

    def enters(self, thread: int, site: int, way: Way) -> Iterator[tuple[int, str, bool]]:
        """Yield by which calls left what an entry took in, by which name, and if it is doubtful."""
        entry = self._text.entries.get(site)
        if entry is None:
            return
        if (entry, way) not in self._of:
            self._of[entry, way] = self._text.joins(entry, way)
        for exit_, join in self._of[entry, way].items():
            events = self._those(thread, exit_, join)
            key = (thread, exit_, entry, way)
            since = max(min(self._used.get(key, 0), len(events) - 1), len(events) - WINDOW, 0)
            self._used[key] = len(events)
            yield from ((number, join.via, unsure) for number, unsure in events[since:])

    def _those(self, thread: int, exit_: int, join: _Join) -> list[tuple[int, bool]]:
        """Return the calls of an exit that were reached by ways, and whether each is doubtful."""
        left = self._left[thread, exit_]
        found, seen = self._matching.setdefault((thread, exit_, join.ways), ([], [0]))
        for number, way in left[seen[0] :]:
            fits = [(same_way(one, way), unsure) for one, unsure in join.ways]
            sure = [fit is Fit.SURE and not unsure for fit, unsure in fits if fit is not Fit.NOT]
            if sure:
                found.append((number, not any(sure)))
        seen[0] = len(left)
        return found


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


class _Text:
    """Where the text leads values, by the ways to its lines."""

    def __init__(self, trace: Trace, flow: Flow, nodes: dict[int, ast.AST]) -> None:
        self._flow = flow
        self.ways = WaysOfRuns(trace, flow, nodes)
        self.exits = {one: flow.exits[node] for one, node in nodes.items() if node in flow.exits}
        self.entries = {
            one: flow.entries[node] for one, node in nodes.items() if node in flow.entries
        }

    def joins(self, entry: int, way: Way) -> dict[int, _Join]:
        """Return the exits whose values come to an entry that was reached by a way."""
        found: dict[int, dict[Way, bool]] = defaultdict(dict)
        names: dict[int, str] = {}
        for known, held in self._flow.reached.get(entry, {}).items():
            fit = same_way(known, way)
            for one, via in held.items() if fit is not Fit.NOT else ():
                doubtful = one.mixed or fit is Fit.PERHAPS or self._flow.full
                found[one.exit][one.way] = doubtful or found[one.exit].get(one.way, False)
                names.setdefault(one.exit, via)
        return {one: _Join(frozenset(ways.items()), names[one]) for one, ways in found.items()}


def _followed(trace: Trace, calls: _Calls, *, elsewhere: bool) -> _Text | None:
    """Return where the text leads values that leave and come in; None if from none to another."""
    exit_sites, entry_sites = calls.sites(leaves=True), calls.sites(leaves=False)
    if not exit_sites or not entry_sites:
        return None
    made = calls.makers() - exit_sites - {-1}
    trees, nodes = _placed(trace, elsewhere=elsewhere)
    exits = _numbered(exit_sites, nodes)
    entries = _numbered(entry_sites, nodes)
    tensors = [one for one in _numbered(made, nodes) if not _iterates(one)]
    flow = Flow(trees, exits, entries, tensors)
    return _Text(trace, flow, nodes) if flow.run() else None


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
