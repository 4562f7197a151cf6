"""A graph of ties with what is alike put together, small enough to be drawn."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from tether.finding import SEVERITIES
from tether.report.document.grouping import runs
from tether.report.page.tie_nodes import FlowEdge, Key, MemoryEdge, TieGraph, TieNode

FEW = 12
"""Modules up to which nothing is folded, and edges up to which all are drawn."""


MANY_NODES = 60
"""Modules that are drawn apart; of more, those deep inside others are drawn as the outer one."""


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


def folded(graph: TieGraph) -> TieGraph:
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


def reduced(graph: TieGraph) -> TieGraph:
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
