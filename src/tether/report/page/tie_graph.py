"""The graph of a program's ties: modules and named tensors, gradient flow, cuts, shared memory.

A node is a module with parameters, a tensor with a name, a call that cuts, or a loss. What lies
between two nodes is one edge: values flow along it, and a gradient comes back where it is live.
Neighbours that are built alike and fared alike are folded into one node.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import PurePath
from typing import Literal

from tether.analysis.history import History, losses_of, shortened
from tether.facts import Event, Operand, Site
from tether.finding import SEVERITIES, Severity
from tether.report.document.findings import Findings
from tether.report.document.grouping import grouped
from tether.report.filters import Selection
from tether.report.page.folded_graph import _reached, folded, reduced
from tether.report.page.tie_nodes import FlowEdge, Key, MemoryEdge, TieGraph, TieNode

MANY_LOSSES = 4
"""Backward passes, each from a line of its own, that are drawn."""

MANY_EVENTS = 20_000
"""Events behind one backward pass that are followed."""


LONGEST_LABEL = 26
"""Characters of an expression that stands for a tensor without a name."""

LONG_FILE = 20
"""Letters from which on the name of a file is left out of a cut's label."""


def tie_graph(about: Findings) -> TieGraph:
    """Return the graph of a recording, folded; empty where nothing is tied to anything."""
    walk = _FlowWalk(about)
    graph = TieGraph()
    flow = walk.edges()
    shared = list(_Shared(about, walk).edges())
    met = dict.fromkeys(key for one in flow for key in one[:2])
    met.update(dict.fromkeys(key for one in shared for key in one[:2]))
    graph.nodes = {key: walk.node(key) for key in met}
    graph.flow, graph.memory = flow, shared
    return reduced(folded(graph))


# -- who is meant ----------------------------------------------------------------------------


class Owners:
    """Which node a tensor belongs to: its module, or the variable that its name begins with."""

    def __init__(self, history: History) -> None:
        self._history = history
        self.by_name: dict[str, Key] = {}
        for fact in history.trace.names:
            if fact.module:
                self.by_name[fact.name] = ("module", fact.module)

    def of(self, tensor: int) -> Key | None:
        """Return the node of a tensor that has a name."""
        fact = self._history.facts_of_name(tensor)
        if fact is None:
            return None
        return ("module", fact.module) if fact.module else self.called(fact.name)

    def all_of(self, tensor: int) -> list[Key]:
        """Return every node of a tensor that has several names."""
        names = self._history.names_of(tensor)
        return list(dict.fromkeys(self.by_name.get(one) or self.called(one) for one in names))

    def called(self, name: str) -> Key:
        """Return the node of a name; an expression, in backticks, is a node of its own."""
        if name.startswith("`"):
            return "tensor", shortened(name.strip("`"), LONGEST_LABEL)
        return self.by_name.get(name) or ("tensor", re.split(r"[\[.]", name, maxsplit=1)[0])


# -- gradient flow ---------------------------------------------------------------------------


class _FlowWalk:
    """Follows values from the parameters to each loss, from node to node."""

    def __init__(self, about: Findings) -> None:
        self.about, self.history = about, about.history
        self.owners = Owners(self.history)
        self.selection = about.selection or Selection(about.trace.folder)
        self.sites: dict[Key, Site] = {}
        self.found: dict[Key, set[int]] = defaultdict(set)
        self.cuts = self._cut_sites()
        self.losses: dict[int, Key] = {}  # site of a backward pass -> its node
        self.failed: set[Key] = set()  # losses whose backward pass raised
        for row in about.gradients:
            if row.finding is not None:
                self.found[self.owners.called(row.name)].add(row.finding + 1)

    def _cut_sites(self) -> dict[tuple[object, ...], tuple[Key, int]]:
        """Return for each place that a finding calls a cut its node and the finding."""
        findings = self.about.findings
        numbered = [(n, one) for n, one in enumerate(findings, 1)]
        sites: dict[tuple[object, ...], tuple[Key, int]] = {}
        for group in grouped(numbered):
            for number in group.numbers:
                for one in findings[number - 1].evidence:
                    if one.role == "cut":
                        sites.setdefault(one.site[:5], (("cut", f"{group.numbers[0]}"), number))
        return sites

    def edges(self) -> list[FlowEdge]:
        """Return the flow of each representative backward pass, live where gradients came."""
        raw: dict[tuple[Key, Key], bool] = {}
        for position in self._backwards():
            self._follow(position, self.losses[self.history.events[position].site], raw)
        for key, position in self._kept():
            self._follow(position, key, raw)
        back = [(target, source) for (source, target), live in raw.items() if live]
        losses = {key for key in self.losses.values() if key not in self.failed}
        reached = _reached(losses, back)
        bearing = self._bearing(raw)
        return [
            FlowEdge(source, target, live and target in reached and source in bearing)
            for (source, target), live in raw.items()
        ]

    def _bearing(self, raw: Mapping[tuple[Key, Key], bool]) -> set[Key]:
        """Return the nodes that got a gradient as far as was seen, and those it went through.

        A custom backward can keep one back where the graph alone says that it comes.
        """
        seen: dict[Key, set[str]] = defaultdict(set)
        for row in self.about.gradients:
            seen[self.owners.called(row.name)].add(row.status)
        bearing = {key for pair in raw for key in pair if seen.get(key) != {"none"}}
        return _reached(bearing, [pair for pair, live in raw.items() if live])

    def _backwards(self) -> list[int]:
        lines: dict[int, int] = {}
        for position in self.history.backwards:
            lines.setdefault(self.history.events[position].site, position)
        chosen = list(lines.values())[:MANY_LOSSES]
        for position in chosen:
            event = self.history.events[position]
            site = self.history.site_of(event)
            key: Key = ("loss", f"{site.file}:{site.line}")
            self.losses[event.site], self.sites[key] = key, site
            if event.raised:
                self.failed.add(key)
        return chosen

    def _kept(self) -> Iterator[tuple[Key, int]]:
        """Yield what keeps graphs alive, and the call that made the first tensor in it."""
        for number, one in enumerate(self.about.findings, 1):
            made = [self.history.made_at(tensor) for tensor in one.tensors[:1]]
            if any(e.role == "grows" for e in one.evidence) and made and made[0] >= 0:
                key: Key = ("tensor", one.subject)
                self.found[key].add(number)
                self.sites[key] = one.site
                yield key, made[0]

    def _follow(self, last: int, target: Key, raw: dict[tuple[Key, Key], bool]) -> None:
        carried: dict[int, dict[Key, bool]] = {}
        for position in (*self.history.flow.behind(last, MANY_EVENTS), last):
            event = self.history.events[position]
            into, owners = self._into(position, carried)
            own = target if position == last else self._own(event, owners)
            if own is None:
                carried[position] = into
                continue
            site = self.history.site_of(event)
            if self.selection.wants(site):
                self.sites.setdefault(own, site)
            for source, live in into.items():
                if source != own:
                    raw[source, own] = raw.get((source, own), False) or live
            carried[position] = {own: own[0] != "cut"}

    def _into(
        self, position: int, carried: Mapping[int, Mapping[Key, bool]]
    ) -> tuple[dict[Key, bool], list[Key]]:
        """Return the nodes whose values an event takes in, and the modules it belongs to."""
        into: dict[Key, bool] = {}
        modules: list[Key] = []
        for edge in self.history.flow.edges[position]:
            operand = edge.operand
            live = operand is None or operand.requires_grad
            leaf = self._leaf(operand) if operand is not None else None
            if leaf is not None and leaf[0] == "module":
                modules.append(leaf)
            elif leaf is not None:
                into[leaf] = into.get(leaf, False) or live
            else:
                for key, alive in carried.get(edge.source, {}).items():
                    into[key] = into.get(key, False) or (alive and live)
        return into, modules

    def _leaf(self, operand: Operand) -> Key | None:
        """Return the node of a parameter, or of a leaf with a name."""
        if not operand.leaf:
            return None
        if operand.requires_grad or operand.tensor in self.history.held:
            return self.owners.of(operand.tensor)
        return None

    def _own(self, event: Event, modules: list[Key]) -> Key | None:
        site = self.history.site_of(event)
        cut = self.cuts.get(site[:5])
        if cut is not None and not any(one.requires_grad for one in event.results):
            key, number = cut
            self.found[key].add(number)
            self.sites.setdefault(key, site)
            return key
        return min(modules, key=lambda one: len(one[1])) if modules else None

    # -- nodes -------------------------------------------------------------------------------

    def node(self, key: Key) -> TieNode:
        """Return a node with its words, its line and what is found of it."""
        site = self.sites.get(key) or self._made_at(key)
        numbers = tuple(sorted(self.found.get(key, ())))
        return TieNode(
            key, self._label(key, numbers), site, numbers, self.worst(numbers), (key[1],)
        )

    def worst(self, numbers: Iterable[int]) -> Severity | Literal[""]:
        """Return the gravest severity of some findings."""
        severities = [self.about.findings[number - 1].severity for number in numbers]
        return min(severities, key=SEVERITIES.index) if severities else ""

    def _label(self, key: Key, numbers: tuple[int, ...]) -> str:
        kind, name = key
        if kind == "loss":
            return f"{self._lost(key)}.backward()" + (" raised" if key in self.failed else "")
        if kind == "cut":
            operation = self.about.findings[numbers[0] - 1].operation.partition(".")[0]
            if numbers[1:]:
                return f"{operation} \u00d7{len(numbers)}"
            site = self.sites[key]
            name = PurePath(site.file).name
            place = f" {name}:{site.line}" if len(name) < LONG_FILE else f", line {site.line}"
            return f"{operation}{place}"
        return name

    def _lost(self, key: Key) -> str:
        for position in self.history.backwards:
            event = self.history.events[position]
            if self.losses.get(event.site) == key:
                name = self.history.target_of(losses_of(event)[0].tensor)
                return name or "loss"
        return "loss"

    def _made_at(self, key: Key) -> Site | None:
        """Return the user's line that made the first tensor of a node."""
        if key[0] not in ("tensor", "module"):
            return None
        for fact in self.history.trace.names:
            if self.owners.called(fact.name) == key:
                position = self.history.made_at(fact.tensor)
                site = (
                    self.history.site_of(self.history.events[position]) if position >= 0 else None
                )
                if site is not None and self.selection.wants(site):
                    return site
        return None


# -- shared memory ---------------------------------------------------------------------------


class _Shared:
    """Which nodes show the same memory, where a finding or a tie that acted speaks of it."""

    def __init__(self, about: Findings, walk: _FlowWalk) -> None:
        self.about, self.walk = about, walk
        self.history = about.history
        self.on: dict[int, dict[Key, None]] = defaultdict(dict)  # memory -> nodes
        for tensor in dict.fromkeys(fact.tensor for fact in about.trace.names):
            memory = self._memory(tensor)
            if memory is not None:
                self.on[memory].update(dict.fromkeys(walk.owners.all_of(tensor)))
        for position in self.history.backwards:
            event = self.history.events[position]
            if event.site in walk.losses:
                for operand in losses_of(event):
                    self.on[self.history.flow.memory(operand)][walk.losses[event.site]] = None

    def _memory(self, tensor: int) -> int | None:
        operand = self.history.operand_of(tensor)
        if operand is None or operand.storage < 0:
            return None
        return self.history.flow.memory(operand)

    def edges(self) -> Iterator[MemoryEdge]:
        """Yield a tie for each pair of nodes that a finding or an act speaks of."""
        counted: dict[tuple[Key, Key], set[int]] = defaultdict(set)
        spoken: dict[tuple[Key, Key], set[int]] = defaultdict(set)
        for number, subject, tensors in self._told():
            for memory in dict.fromkeys(map(self._memory, tensors)):
                owners = self._owners(memory)
                if owners and subject[0] == "tensor":
                    owners = list(dict.fromkeys([*owners, subject]))
                for pair in map(_sorted, self._pairs(owners, subject)):
                    counted[pair].add(memory or 0)
                    spoken[pair] |= {number} if number else set()
        for (one, other), memories in counted.items():
            numbers = tuple(sorted(spoken[one, other]))
            severity = self.walk.worst(numbers)
            for key in (one, other):
                if key[0] == "tensor":
                    self.walk.found[key].update(numbers)
            yield MemoryEdge(one, other, len(memories), numbers, severity)

    def _told(self) -> Iterator[tuple[int, Key, tuple[int, ...]]]:
        """Yield what findings and acts speak of: the finding's number or 0, a node, tensors."""
        for number, one in enumerate(self.about.findings, 1):
            roles = {e.role for e in one.evidence}
            if roles & {"shared", "written", "held"}:
                yield number, self.walk.owners.called(one.subject), one.tensors
        for row in self.about.ties:
            if row.finding is None and row.tie.shows:
                yield 0, self.walk.owners.called(row.tie.shows[0]), row.tie.tensors

    def _pairs(self, owners: list[Key], subject: Key) -> Iterator[tuple[Key, Key]]:
        """Yield the subject with each module or loss on a memory, else with other variables."""
        if subject not in owners:
            return
        others = [one for one in owners if not _are_one(one[1], subject[1])]
        fixed = [one for one in others if one[0] != "tensor"]
        for other in fixed or others[:2]:
            yield subject, other

    def _owners(self, memory: int | None) -> list[Key]:
        """Return the nodes on a memory; where it has one alone, what its views are assigned to."""
        if memory is None:
            return []
        owners = self.on.get(memory, {})
        if len(owners) < 2:
            for tensor in self._on_memory.get(memory, ()):
                name = self.history.target_of(tensor) or self.history.held_by(tensor)
                if name and len(owners) < 3:
                    owners = {**owners, self.walk.owners.called(name): None}
        return list(owners)

    @cached_property
    def _on_memory(self) -> dict[int, dict[int, None]]:
        found: dict[int, dict[int, None]] = defaultdict(dict)
        memory = self.history.flow.memory
        for event in self.history.events:
            for one in event.results:
                found[memory(one)][one.tensor] = None
        return found


def _are_one(name: str, other: str) -> bool:
    """Whether two names are one, or one is of a part of the other: ``ema`` and ``ema.0``."""
    part, whole = sorted((name, other), key=len, reverse=True)
    return part == whole or ("(" not in part and part.startswith((f"{whole}.", f"{whole}[")))


def _sorted(pair: tuple[Key, Key]) -> tuple[Key, Key]:
    """Return a pair in one order: names before modules."""
    one, other = sorted(pair, key=lambda key: (key[0] != "tensor", key))
    return one, other


# -- folding ---------------------------------------------------------------------------------
