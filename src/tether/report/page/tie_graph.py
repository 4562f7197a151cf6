"""The graph of a program's ties: modules and named tensors, gradient flow, cuts, shared memory.

A node is a module with parameters, a tensor with a name, a call that cuts, or a loss. What lies
between two nodes is one edge: values flow along it, and a gradient comes back where it is live.
Neighbours that are built alike and fared alike are folded into one node.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import PurePath
from typing import Literal, NamedTuple

from tether.analysis.history import History, losses_of, shortened
from tether.facts import Event, Operand, Site
from tether.finding import SEVERITIES, Severity
from tether.report.document.compose import Findings
from tether.report.document.grouping import grouped, runs
from tether.report.filters import Selection

MANY_LOSSES = 4
"""Backward passes, each from a line of its own, that are drawn."""

MANY_EVENTS = 20_000
"""Events behind one backward pass that are followed."""

FEW = 12
"""Modules up to which nothing is folded, and edges up to which all are drawn."""

MANY_NODES = 60
"""Modules that are drawn apart; of more, those deep inside others are drawn as the outer one."""

LONGEST_LABEL = 26
"""Characters of an expression that stands for a tensor without a name."""

LONG_FILE = 20
"""Letters from which on the name of a file is left out of a cut's label."""

NodeKind = Literal["module", "tensor", "cut", "loss"]
Key = tuple[NodeKind, str]


@dataclass
class TieNode:
    """Something that is drawn."""

    key: Key
    label: str
    site: Site | None = None  # the line that a click leads to
    findings: tuple[int, ...] = ()  # numbers from 1
    severity: Severity | Literal[""] = ""
    members: tuple[str, ...] = ()  # what is folded into it


class FlowEdge(NamedTuple):
    """Values go from one node to the next; a gradient comes back where it is live."""

    source: Key
    target: Key
    live: bool


class MemoryEdge(NamedTuple):
    """Two nodes show the same memory."""

    one: Key
    other: Key
    tensors: int
    findings: tuple[int, ...] = ()
    severity: Severity | Literal[""] = ""


@dataclass
class TieGraph:
    """What is drawn: nodes in the order of the program."""

    nodes: dict[Key, TieNode] = field(default_factory=dict)
    flow: list[FlowEdge] = field(default_factory=list)
    memory: list[MemoryEdge] = field(default_factory=list)


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
    return _reduced(_folded(graph))


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

_UNIT = re.compile(r"^(.*?)(\d+)([^.\d]*)(?=\.|$)")


class _Unit(NamedTuple):
    """The beginning of a module's name up to its first number: ``model.layers.3``."""

    family: str  # "model.layers.#"
    digits: str
    name: str


def _unit(name: str) -> _Unit | None:
    match = _UNIT.match(name)
    if match is None:
        return None
    return _Unit(f"{match[1]}#{match[3]}", match[2], match[0])


def _folded(graph: TieGraph) -> TieGraph:
    """Fold modules that are built alike, have numbers in a row and fared alike."""
    modules = [one for one in graph.nodes.values() if one.key[0] == "module"]
    if len(modules) <= FEW:
        return graph
    families: dict[str, dict[str, list[TieNode]]] = defaultdict(lambda: defaultdict(list))
    for node in modules:
        unit = _unit(node.key[1])
        if unit is not None:
            families[unit.family][unit.digits].append(node)
    folded = (_alike(family, units) for family, units in families.items())
    names = _outer({key: name for one in folded for key, name in one.items()}, modules)
    return _contracted(graph, {key: ("module", name) for key, name in names.items()})


def _alike(family: str, units: Mapping[str, list[TieNode]]) -> dict[Key, str]:
    """Return what each module of a family is drawn as; the odd one out stays open."""
    names: dict[Key, str] = {}
    for run in _runs_alike(units):
        label = _name_of_run(family, run)
        if len(run) > 1 or not any(node.severity for node in units[run[0]]):
            names |= {node.key: label for number in run for node in units[number]}
    return names


def _runs_alike(units: Mapping[str, list[TieNode]]) -> Iterator[list[str]]:
    """Yield runs of numbers whose modules have the same parts, and the same said of them."""
    last: object = None
    run: list[str] = []
    for number in sorted(units, key=int):
        name = next(_unit(node.key[1]) for node in units[number])
        start = len(name.name) if name else 0
        like = sorted((node.key[1][start:], node.severity) for node in units[number])
        if run and (like != last or int(number) != int(run[-1]) + 1):
            yield run
            run = []
        run.append(number)
        last = like
    yield run


def _name_of_run(family: str, run: list[str]) -> str:
    if len(run) == 1:
        return family.replace("#", run[0])
    return f"{family.replace('#', f'[{runs(run)}]')} \u00d7{len(run)}"


def _outer(names: dict[Key, str], modules: list[TieNode]) -> dict[Key, str]:
    """Shorten names from the right while there are too many of them."""
    found = {node.key: names.get(node.key, node.key[1]) for node in modules}
    depth = max((name.count(".") for name in found.values()), default=0)
    while len(set(found.values())) > MANY_NODES and depth > 0:
        found = {
            key: ".".join(name.split(".")[:depth]) if name.count(".") >= depth else name
            for key, name in found.items()
        }
        depth -= 1
    return found


def _contracted(graph: TieGraph, to: Mapping[Key, Key]) -> TieGraph:
    """Return the graph with nodes put together; what was between them is gone."""
    made = TieGraph()
    for key, node in graph.nodes.items():
        new = to.get(key, key)
        old = made.nodes.get(new)
        if old is None:
            made.nodes[new] = replace(node, key=new, label=new[1] if key in to else node.label)
            continue
        numbers = tuple(sorted({*old.findings, *node.findings}))
        worst = [one for one in (old.severity, node.severity) if one]
        old.findings, old.members = numbers, (*old.members, *node.members)
        old.severity = min(worst, key=SEVERITIES.index) if worst else ""
    made.flow = _joined_flow(graph.flow, to)
    made.memory = _joined_memory(graph.memory, to)
    return made


def _joined_flow(edges: Iterable[FlowEdge], to: Mapping[Key, Key]) -> list[FlowEdge]:
    flow: dict[tuple[Key, Key], bool] = {}
    for edge in edges:
        pair = to.get(edge.source, edge.source), to.get(edge.target, edge.target)
        if pair[0] != pair[1]:
            flow[pair] = flow.get(pair, False) or edge.live
    return [FlowEdge(*pair, live) for pair, live in flow.items()]


def _joined_memory(ties: Iterable[MemoryEdge], to: Mapping[Key, Key]) -> list[MemoryEdge]:
    memory: dict[tuple[Key, Key], MemoryEdge] = {}
    for tie in ties:
        pair = to.get(tie.one, tie.one), to.get(tie.other, tie.other)
        if pair[0] != pair[1]:
            known = memory.get(pair)
            count = tie.tensors + (known.tensors if known else 0)
            memory[pair] = tie._replace(one=pair[0], other=pair[1], tensors=count)
    return list(memory.values())


def _reduced(graph: TieGraph) -> TieGraph:
    """Leave out edges beside which a longer way of their kind leads there too.

    Where there are few and nothing is folded, all stay: a residual connection is then seen.
    """
    if len(graph.flow) <= FEW and not any(one.members[1:] for one in graph.nodes.values()):
        return graph
    after: dict[bool, dict[Key, set[Key]]] = {live: defaultdict(set) for live in (True, False)}
    for edge in graph.flow:
        after[edge.live][edge.source].add(edge.target)
        if edge.live:
            after[False][edge.source].add(edge.target)  # values go where gradients come from
    # One at a time: around a ring each edge has a way beside it, as long as the others stay.
    kept = []
    for edge in graph.flow:
        if _around(edge, after[edge.live]):
            after[edge.live][edge.source].discard(edge.target)
        else:
            kept.append(edge)
    graph.flow = kept
    return graph


def _reached(start: set[Key], edges: Iterable[tuple[Key, Key]]) -> set[Key]:
    """Return what can be reached along some edges, and where it starts."""
    after: dict[Key, list[Key]] = defaultdict(list)
    for source, target in edges:
        after[source].append(target)
    reached, queue = set(start), list(start)
    while queue:
        fresh = set(after[queue.pop()]) - reached
        reached |= fresh
        queue += fresh
    return reached


def _around(edge: FlowEdge, after: Mapping[Key, set[Key]]) -> bool:
    seen = {edge.source}
    queue = [one for one in after[edge.source] if one != edge.target]
    while queue:
        key = queue.pop()
        if key == edge.target:
            return True
        if key not in seen:
            seen.add(key)
            queue += after[key]
    return False
