"""How two tensors are tied, and what one tensor is: `tether.relate` and `tether.describe`."""

from __future__ import annotations

import collections
import math
from typing import Any, Literal, NamedTuple

import torch

from tether.cards import card, chip, words
from tether.copying import numpy_bridge

MemoryTie = Literal["none", "same", "overlaps", "disjoint", "unknown"]
GradientTie = Literal["none", "same", "ancestor", "descendant", "common", "cut"]

data_address: Any = getattr(torch._C, "_data_address")  # noqa: B009 -- missing in the stubs
"""Where a tensor's storage begins; `data_ptr` would un-share copy-on-write memory."""

_MARKS_LIMIT = 1 << 30
"""Marks set at most to compare two strided views exactly, one byte each."""


class Relation(NamedTuple):
    """How two tensors (or arrays) are tied; printed, it is a sentence."""

    memory: MemoryTie
    bytes: int | None  # that both use; None: not known
    gradient: GradientTie
    storage: bool  # one storage object under both
    note: str = ""  # why something is not known

    def __str__(self) -> str:
        shared = f"{self.bytes} bytes" if self.bytes is not None else "an unknown number of bytes"
        memory = {
            "none": "no memory in common",
            "same": f"the same memory ({shared})",
            "overlaps": f"overlapping memory ({shared} in common)",
            "disjoint": "one storage and no byte in common",
            "unknown": "memory that cannot be compared",
        }[self.memory]
        gradient = {
            "none": "no gradient on either side",
            "same": "one place in the gradient graph",
            "ancestor": "gradients of the second flow into the first",
            "descendant": "gradients of the first flow into the second",
            "common": "gradients of both flow into a common tensor",
            "cut": "no gradient flows between them",
        }[self.gradient]
        return f"{memory}; {gradient}" + (f" ({self.note})" if self.note else "")

    def _repr_html_(self) -> str:
        """Return the card that a notebook shows."""
        memory, _, gradient = str(self).partition("; ")
        tied = self.memory in ("same", "overlaps")
        edge = "warning" if tied or self.memory == "unknown" else "good"
        title = f"<b>{'one memory' if tied else 'separate memory'}</b>"
        if self.memory == "unknown":
            title = "<b>not known</b>"
        return card(title, [("memory", words(memory)), ("gradient", words(gradient))], edge)


class Description(NamedTuple):
    """What one tensor is tied to; printed, it is a few lines."""

    kind: str  # class name
    shape: tuple[int, ...]
    strides: tuple[int, ...]  # in elements
    offset: int  # in elements
    dtype: str
    device: str
    layout: str
    bytes_used: int  # distinct bytes its elements lie on
    bytes_kept: int  # of the whole storage, which it keeps alive; 0 when it has none to name
    contiguous: bool
    requires_grad: bool
    leaf: bool
    grad_fn: str  # "" for none
    version: int | None  # None for an inference tensor, which counts none
    resizable: bool  # false on pooled and on foreign memory: the storage cannot grow
    view_of: tuple[int, ...] | None = None  # shape of its base; None where it is no view
    bits: tuple[str, ...] = ()  # "conj", "neg": what reading it does to its bytes
    note: str = ""

    def __str__(self) -> str:
        size = "x".join(map(str, self.shape)) or "scalar"
        where = "a leaf" if self.leaf else f"made by {self.grad_fn}"
        grad = f"{where}, {'requires' if self.requires_grad else 'no'} grad"
        order = "contiguous" if self.contiguous else f"strides {list(self.strides)}"
        bits = "".join(f", {bit} bit set" for bit in self.bits)
        base = "" if self.view_of is None else f", a view of a tensor {list(self.view_of)}"
        lines = [
            f"{self.kind} {size} {self.dtype} on {self.device}, {self.layout}, {order}{bits}",
            f"  memory: {self.bytes_used} bytes used of {self.bytes_kept} kept alive{base}",
            f"  gradient: {grad}",
            f"  version: {'not counted' if self.version is None else self.version}",
        ]
        return "\n".join(lines + ([f"  note: {self.note}"] if self.note else []))

    def _repr_html_(self) -> str:
        """Return the card that a notebook shows: chips for what it is, rows for its ties."""
        size = "x".join(map(str, self.shape)) or "scalar"
        title = "".join(map(chip, (self.kind, size, self.dtype, self.device)))
        parts = (line.strip().partition(": ") for line in str(self).split("\n")[1:])
        return card(title, [(label, words(text)) for label, _, text in parts])


class TensorLayout(NamedTuple):
    """Where the elements of a strided tensor lie: addresses and distances in bytes."""

    device: str
    start: int  # address of the first element in memory order
    end: int  # address after the last
    dims: tuple[tuple[int, int], ...]  # (size, stride in bytes), sizes of 1 and 0 strides removed
    itemsize: int

    @property
    def dense(self) -> bool:
        """Whether every byte from start to end belongs to an element."""
        expected = self.itemsize
        for size, stride in sorted(self.dims, key=lambda dim: dim[1]):
            if stride > expected:
                return False
            expected = max(expected, stride * (size - 1) + expected)
        return expected == self.end - self.start


def layout_of(x: torch.Tensor) -> TensorLayout:
    """Return where `x` lies. Does not un-share copy-on-write memory, as `data_ptr` would."""
    item = x.element_size()
    start = data_address(x) + int(x.storage_offset()) * item
    if x.numel() == 0:
        return TensorLayout(str(x.device), start, start, (), item)
    pairs = zip(x.shape, x.stride(), strict=True)
    dims = tuple((size, stride * item) for size, stride in pairs if size > 1 and stride)
    end = start + item + sum((size - 1) * stride for size, stride in dims)
    return TensorLayout(str(x.device), start, end, dims, item)


def overlaps_itself(x: torch.Tensor) -> bool:
    """Whether two elements of `x` share a byte: a write to one shows in the other."""
    if x.numel() < 2 or x.is_contiguous():
        return False
    expected = 0
    for size, stride in sorted(zip(x.shape, x.stride(), strict=True), key=lambda dim: dim[1]):
        if size == 1:
            continue
        if stride <= expected:
            # Strides that interleave without meeting ((2, 3) over (3, 2)) need the exact count.
            found = distinct_bytes(x)
            return found is None or found < x.numel() * x.element_size()
        expected += stride * (size - 1)
    return False


def distinct_bytes(x: torch.Tensor) -> int | None:
    """Return how many bytes the elements of `x` lie on; None when that is too costly to count."""
    place = layout_of(x)
    if place.dense:
        return place.end - place.start
    return _marked(place, place)


def common_bytes(a: torch.Tensor, b: torch.Tensor) -> int | None:
    """Return how many bytes both tensors use, exactly; None when that is too costly to count."""
    one, two = layout_of(a), layout_of(b)
    if one.device != two.device:
        return 0
    span = min(one.end, two.end) - max(one.start, two.start)
    if span <= 0:
        return 0
    if one.dense and two.dense:
        return span
    return _marked(one, two)


def _marked(one: TensorLayout, two: TensorLayout) -> int | None:
    """Count common bytes by marking the places of both, in the largest unit that fits."""
    low, high = min(one.start, two.start), max(one.end, two.end)
    distances = [stride for _, stride in one.dims + two.dims]
    unit = math.gcd(one.start - low, two.start - low, one.itemsize, two.itemsize, *distances)
    if 2 * (high - low) // unit > _MARKS_LIMIT:
        return None
    marks = [_marks(place, low, (high - low) // unit, unit) for place in (one, two)]
    return int(torch.logical_and(*marks).sum()) * unit


def _marks(place: TensorLayout, low: int, count: int, unit: int) -> torch.Tensor:
    marks = torch.zeros(count, dtype=torch.bool, device="cpu")
    dims = [*place.dims, (place.itemsize // unit, unit)]
    sizes = [size for size, _ in dims]
    strides = [stride // unit for _, stride in dims]
    marks.as_strided(sizes, strides, (place.start - low) // unit).fill_(True)
    return marks


def relate(a: Any, b: Any) -> Relation:
    """Return how `a` and `b` are tied, in memory and in gradient.

    Each is a tensor or a NumPy array; neither is touched. Raises `TypeError` for other objects.

    Memory: ``same`` (exactly the same bytes), ``overlaps`` (some bytes in common), ``disjoint``
    (one storage, no common byte), ``none``. Gradient: ``ancestor`` (gradients of `b` flow into
    `a`), ``descendant``, ``common``, ``same``, ``cut`` (one of them takes part in a graph and
    nothing flows between them), ``none``.
    """
    one, two = numpy_bridge.bytes_of(a), numpy_bridge.bytes_of(b)
    gradient = _gradient_between(one, two)
    with torch._C.DisableTorchFunctionSubclass():
        return _memory_between(one, two, gradient)


def _memory_between(one: torch.Tensor, two: torch.Tensor, gradient: GradientTie) -> Relation:
    try:
        storages = one.untyped_storage()._cdata, two.untyped_storage()._cdata
        layout_of(one), layout_of(two)
    except (RuntimeError, NotImplementedError) as error:
        if one is two:
            return Relation("same", None, gradient, True, "it has no single storage")
        reason = str(error).partition("\n")[0]
        return Relation("unknown", None, gradient, False, reason)
    storage = storages[0] == storages[1]
    if torch.device("meta") in {one.device, two.device}:
        tie: MemoryTie = "disjoint" if storage else "none"
        return Relation(tie, 0, gradient, storage, "meta tensors have no bytes")
    common = common_bytes(one, two)
    if common is None:
        note = "the views are too large to be compared byte for byte"
        return Relation("unknown", None, gradient, storage, note)
    if common == 0:
        return Relation("disjoint" if storage else "none", 0, gradient, storage)
    same = common == distinct_bytes(one) == distinct_bytes(two)
    return Relation("same" if same else "overlaps", common, gradient, storage)


def _gradient_between(a: torch.Tensor, b: torch.Tensor) -> GradientTie:
    if not a.requires_grad and not b.requires_grad:
        return "none"
    if a is b:
        return "same"
    if not (a.requires_grad and b.requires_grad):
        return "cut"
    start_a, start_b = _edge(a), _edge(b)
    if start_a == start_b:
        return "same"
    below_a, below_b = _reachable(start_a), _reachable(start_b)
    if start_a in below_b:
        return "ancestor"
    if start_b in below_a:
        return "descendant"
    return "common" if below_a & below_b else "cut"


_Edge = tuple[Any, int]


def _edge(x: torch.Tensor) -> _Edge:
    """Return where gradients of `x` enter the graph: node and which of its outputs."""
    edge = torch.autograd.graph.get_gradient_edge(x)
    return edge.node, edge.output_nr


def _reachable(start: _Edge) -> set[_Edge]:
    """Return every place that gradients entering at `start` reach, `start` among them.

    A node is reached as a whole: all its inputs get gradients, whichever output they came by.
    """
    edges = {start}
    queue = collections.deque([start[0]])
    nodes = {start[0]}
    while queue:
        for node, output in queue.popleft().next_functions:
            if node is None:
                continue
            edges.add((node, output))
            if node not in nodes:
                nodes.add(node)
                queue.append(node)
    return edges


def describe(x: Any) -> Description:
    """Return what `x`, a tensor or a NumPy array, is tied to. Touches no memory of it."""
    tensor = numpy_bridge.tensor_on(x)
    with torch._C.DisableTorchFunctionSubclass():
        return _described(x, tensor)


def _described(x: Any, tensor: torch.Tensor) -> Description:
    strided = tensor.layout is torch.strided and not tensor.is_nested
    memory = _memory_of(tensor, strided=strided)
    leaf = is_leaf(tensor)
    made_by, refused = ("", "") if leaf else _maker_of(tensor)
    base = tensor._base
    return Description(
        kind=type(x).__name__,
        shape=tuple(tensor.shape) if not tensor.is_nested else (),
        strides=tuple(tensor.stride()) if strided else (),
        offset=int(tensor.storage_offset()) if strided else 0,
        dtype=str(tensor.dtype).removeprefix("torch."),
        device=str(tensor.device),
        layout=str(tensor.layout).removeprefix("torch."),
        bytes_used=memory.used,
        bytes_kept=memory.kept,
        contiguous=strided and tensor.is_contiguous(),
        requires_grad=tensor.requires_grad,
        leaf=leaf,
        grad_fn=made_by,
        version=None if tensor.is_inference() else tensor._version,
        resizable=memory.growing,
        view_of=None if base is None else tuple(base.shape),
        bits=tuple(bit for bit in ("conj", "neg") if getattr(tensor, f"is_{bit}")()),
        note=refused or memory.note,
    )


class _BytesUnder(NamedTuple):
    """The bytes under a tensor."""

    used: int
    kept: int
    growing: bool
    note: str  # what must be said of these figures


def _memory_of(tensor: torch.Tensor, *, strided: bool) -> _BytesUnder:
    try:
        storage = tensor.untyped_storage()
        kept, growing = storage.nbytes(), storage.resizable()
        used = distinct_bytes(tensor)
    except (RuntimeError, NotImplementedError) as error:
        return _BytesUnder(0, 0, True, str(error).partition("\n")[0])
    if used is None:
        return _BytesUnder(
            tensor.nbytes, kept, growing, "elements that share bytes are counted each"
        )
    idle = kept - used if strided else 0
    note = f"it keeps {idle} bytes alive that it does not use" if idle > 0 else ""
    return _BytesUnder(used, kept, growing, note)


def _maker_of(tensor: torch.Tensor) -> tuple[str, str]:
    """Return the name of the node that made a tensor, and why there is none to name."""
    try:
        node = tensor.grad_fn
    except RuntimeError as error:  # a view that may not follow the writes to its base
        return "a call that PyTorch refuses to tell", str(error).partition(". ")[0]
    return type(node).__name__ if node is not None else "", ""


def is_leaf(tensor: torch.Tensor) -> bool:
    """Whether no node made `tensor`, without bringing the node of a view up to date."""
    asked = torch.ops.aten.is_leaf.default
    return bool(asked(tensor) if tensor._is_view() else tensor.is_leaf)
