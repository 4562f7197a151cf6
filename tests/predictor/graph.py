"""The abstract machine's graph: nodes, saved values, views that follow their base, backward.

It knows only what decides ties and errors: which node leads where, which value of which version it
will read again, and in which order the engine runs. No numbers flow through it.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Literal, NamedTuple

from predictor.layout import Layout
from tether.operations.rule import DTYPES, WHOLE, Given

SIZES = dict(zip(DTYPES, (2, 2, 4, 8, 8, 8, 1), strict=True)) | {"int32": 4}
"""Bytes of one element, by type."""

LEAF_WRITE = "a leaf Variable that requires grad is being used in an in-place operation."
VIEW_OF_LEAF_WRITE = "a view of " + LEAF_WRITE
_NO_GRAD_VIEW = "created in no_grad mode and {} modified inplace with grad mode enabled."
_MULTI_VIEW = (
    "is a view and {} modified inplace. This view is the output of a function that returns"
)
_TWICE = "Trying to backward through the graph a second time"
_NO_LEAF_ANY_MORE = "leaf variable has been moved into the graph interior"
_DETACHED = "Trying to use a saved tensor that has been detached in-place"
_CHANGED = "one of the variables needed for gradient computation has been modified by an inplace"

_serials = count()


class Refused(Exception):
    """PyTorch raises here. `kind` is the exception's name, the text a part of its message."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


@dataclass(eq=False)
class Memory:
    """One storage."""

    serial: int
    nbytes: int
    device: str = "cpu"
    region: int = -1  # storages of one region lie on the same bytes


@dataclass(eq=False)
class Counter:
    """A version counter; views and detached aliases have one together."""

    value: int = 0


class Saved(NamedTuple):
    """A value that backward reads again."""

    tensor: Tensor
    version: int
    follows: bool  # an operand that a node made: it is asked for that node again

    def read(self) -> None:
        """Read it. Raises `Refused` when it is no longer what was saved."""
        if self.follows and self.tensor.gradient_node() is None:
            raise Refused("RuntimeError", _DETACHED)
        if self.tensor.counter.value != self.version:
            raise Refused("RuntimeError", _CHANGED)


@dataclass(eq=False)
class Node:
    """A step of the way back: where it leads, and what it reads again."""

    edges: list[Node | Tensor]
    saved: list[Saved] = field(default_factory=list)
    keeps: bool = False  # it holds values that are freed after backward
    freed: bool = False
    order: int = field(default_factory=lambda: next(_serials))  # later nodes run first

    def save(self, tensor: Tensor, *, result: bool = False) -> None:
        """Keep a tensor's value, at its version now, for backward."""
        follows = not result and not tensor.leaf
        self.saved.append(Saved(tensor, tensor.counter.value, follows))
        self.keeps = True


Created = Literal["", "no_grad", "multi"]


@dataclass(eq=False)
class Tensor:
    """One tensor object of the predicted program."""

    serial: int
    memory: Memory
    counter: Counter
    layout: Layout
    dtype: str = "float32"
    marked: bool = False  # requires_grad was set on it
    node: Node | None = None
    base: Tensor | None = None  # a differentiable view follows its base
    created: Created = ""  # how the view was made, where that forbids writes to it
    seen: int = 0  # version at which `node` was last known to be right
    kind: str = "Tensor"
    reached: bool = False  # its .grad is there

    @property
    def requires_grad(self) -> bool:
        """A view requires grad with its base, whatever else is true of it."""
        if self.marked or self.node is not None:
            return True
        return self.base is not None and self.base.requires_grad

    @property
    def leaf(self) -> bool:
        """No node made it, as it stands: a view may not have followed its base yet.

        PyTorch decides by this whether a write is refused; its attribute ``is_leaf`` lets the view
        follow first (`gradient_node`).
        """
        return not self.requires_grad or self.node is None

    @property
    def source(self) -> Given:
        """What a rule may ask of it."""
        return Given(
            self.dtype,
            self.layout.contiguous,
            self.requires_grad,
            self.leaf,
            self.memory.device,
        )

    @property
    def differentiable(self) -> bool:
        """Whether its type can carry a gradient."""
        return self.dtype not in (*WHOLE, "int32")

    def gradient_node(self) -> Node | None:
        """Return the node that made it; a view whose base was written gets a new one.

        Raises `Refused` for a view that may not follow.
        """
        base = self.base
        if base is None or (self.node is None and not base.requires_grad):
            return self.node
        if self.seen != self.counter.value:
            _refuse_view(self, "its base or another view of its base has been")
            self.node = Node(edges([base]))
            self.seen = self.counter.value
        return self.node

    def collect(self) -> None:
        """Take a gradient in; a leaf that no longer requires grad drops it.

        Raises `Refused` for what was a leaf when the graph was made and is none any more.
        """
        if self.node is not None:
            raise Refused("RuntimeError", _NO_LEAF_ANY_MORE)
        self.reached = self.reached or self.marked

    def edge(self) -> Node | Tensor | None:
        """Return where gradients of it go: its node, or itself, a leaf that collects them.

        None for a view that requires grad only since its base does, without a node that leads
        there (made under no_grad, say): its gradient is lost.
        """
        return self.gradient_node() or (self if self.marked else None)


def edges(tensors: Sequence[Tensor]) -> list[Node | Tensor]:
    """Return where the gradients of all of them go."""
    found = [tensor.edge() for tensor in tensors if tensor.requires_grad]
    return [edge for edge in found if edge is not None]


def check_write(target: Tensor, inputs: list[Tensor]) -> None:
    """Refuse a write in place as autograd does, grad mode being on."""
    if not any(tensor.requires_grad for tensor in (target, *inputs)):
        return
    if target.base is not None:
        _refuse_view(target, "is being")
        if target.requires_grad and target.base.leaf:
            raise Refused("RuntimeError", VIEW_OF_LEAF_WRITE)
    if target.requires_grad and target.leaf:
        raise Refused("RuntimeError", LEAF_WRITE)


def rebase(target: Tensor, node: Node) -> None:
    """Let `node`, made by a write, be what made `target`; or its base, when it is a view.

    The node of a write to a view wraps that of the write, and keeps it until backward.
    """
    base = target.base
    if base is None:
        target.node = node
    else:
        node.keeps = True
        base.node = node
        target.gradient_node()


def backward(root: Tensor, *, retain: bool = False) -> None:
    """Run the engine from `root`: marks the leaves reached, frees what was saved.

    Raises `Refused` at the first node whose value is gone or was overwritten; leaves whose turn
    came before have their gradient by then.
    """
    first = root.edge() if root.requires_grad else None
    if first is None:
        raise Refused(
            "RuntimeError", "element 0 of tensors does not require grad and does not have a grad_fn"
        )
    if isinstance(first, Tensor):
        first.collect()
        return
    waits = _dependencies(first)
    ready = [(-first.order, first)]
    while ready:
        _, node = heapq.heappop(ready)
        _read_saved(node)
        if not retain:
            node.freed = True
        leaves = [edge for edge in node.edges if isinstance(edge, Tensor)]
        for edge in node.edges:
            if isinstance(edge, Node):
                waits[edge] -= 1
                if not waits[edge]:
                    heapq.heappush(ready, (-edge.order, edge))
        for leaf in leaves:
            waits[leaf] -= 1
            if not waits[leaf]:  # a leaf that has all of its gradient goes before any node
                leaf.collect()


def _dependencies(first: Node) -> dict[Node | Tensor, int]:
    waits: dict[Node | Tensor, int] = {}
    seen: set[Node] = {first}
    todo = [first]
    while todo:
        for edge in todo.pop().edges:
            waits[edge] = waits.get(edge, 0) + 1
            if isinstance(edge, Node) and edge not in seen:
                seen.add(edge)
                todo.append(edge)
    return waits


def _read_saved(node: Node) -> None:
    if node.keeps and node.freed:
        raise Refused("RuntimeError", _TWICE)
    for saved in node.saved:
        saved.read()


def _refuse_view(view: Tensor, what: str) -> None:
    if view.created == "no_grad" or (view.created and view.node is None):
        raise Refused("RuntimeError", _NO_GRAD_VIEW.format(what))
    if view.created == "multi":
        raise Refused("RuntimeError", _MULTI_VIEW.format(what))
