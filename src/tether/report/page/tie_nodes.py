"""What a graph of ties holds: nodes, the flow of gradients, shared memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from tether.facts import Site
from tether.finding import Severity

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
