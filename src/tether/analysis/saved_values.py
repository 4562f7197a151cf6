"""What calls keep for their backward pass, and which calls lie behind a loss in its graph.

The table says for each operation which of its tensors autograd saves, read off PyTorch's own
``derivatives.yaml``; tests check each row against ``saved_tensors_hooks``. An operation that is not
in it is one of which nothing is known.
"""

from __future__ import annotations

from collections.abc import Iterator

from tether.analysis.history import History
from tether.facts import GRAD_ON, Event, Operand

RESULT = frozenset(
    {"exp", "exp2", "expm1", "sigmoid", "tanh", "softmax", "log_softmax", "sqrt", "rsqrt"}
    | {"reciprocal", "relu", "tan", "cholesky", "selu_", "relu_"}
)
"""Operations that save what they return."""

INPUT = frozenset(
    {"sin", "cos", "log", "log2", "log10", "log1p", "square", "abs", "gelu", "silu", "softplus"}
    | {"leaky_relu", "elu", "pow", "clamp", "atan", "asin", "acos", "sinh", "cosh", "erf"}
    | {"prod", "cumprod", "logsumexp", "norm", "layer_norm", "group_norm", "batch_norm", "mish"}
    | {"hardtanh", "hardswish", "logsigmoid", "log_sigmoid", "smooth_l1_loss", "mse_loss"}
    | {"huber_loss", "l1_loss", "binary_cross_entropy", "sinc", "digamma", "lgamma"}
)
"""Operations that save their first argument."""

PRODUCT = frozenset(
    {"mul", "multiply", "matmul", "mm", "bmm", "mv", "dot", "linear", "addmm", "einsum"}
    | {"conv1d", "conv2d", "conv3d", "outer", "inner", "bilinear", "baddbmm", "addmv"}
)
"""Operations that save an argument when the gradient of another needs it."""

_ADDED = frozenset({"addmm", "baddbmm", "addmv"})  # what is added comes first, and is not saved
_BIASED = frozenset({"linear", "conv1d", "conv2d", "conv3d"})  # the bias comes third, is not saved
_CELLS = frozenset({"gru", "lstm", "rnn_tanh", "rnn_relu", "gru_cell", "lstm_cell"})


def differentiable(event: Event) -> bool:
    """Whether the call put a node into the graph."""
    return event.grad_mode == GRAD_ON and any(
        one.requires_grad and not one.leaf for one in (*event.results, *event.writes)
    )


def saved(event: Event) -> Iterator[Operand]:
    """Yield the operands that a call surely saved for its backward pass."""
    if not differentiable(event):
        return
    name = event.operation.removesuffix("_")
    if name.startswith("__") and name.endswith("_"):
        name = name.strip("_")
    reads = event.reads
    if name in RESULT or event.operation in RESULT:
        yield from event.results
    elif name in INPUT:
        yield from reads[:1]
    elif name == "div":
        yield from reads[1:2]
        if len(reads) > 1 and reads[1].requires_grad:
            yield reads[0]
    elif name in PRODUCT:
        factors = reads[1:] if name in _ADDED else reads[:2] if name in _BIASED else reads
        for number, one in enumerate(factors):
            others = (*factors[:number], *factors[number + 1 :])
            if any(other.requires_grad for other in others):
                yield one


def perhaps_saved(event: Event) -> Iterator[Operand]:
    """Yield the operands that a call may have saved: those known, or all where nothing is known."""
    if not differentiable(event):
        return
    known = list(saved(event))
    if known:
        yield from known
    if not known or event.operation in _CELLS:
        yield from event.reads
        yield from event.results


def graph_of(history: History, position: int) -> frozenset[int]:
    """Return the events whose nodes the graph of an event's tensors holds (not their values)."""
    cache: dict[int, frozenset[int]] = history.memo.setdefault("graphs", {})
    if position in cache:
        return cache[position]
    flow, events = history.flow, history.events
    seen: set[int] = set()
    queue = [position]
    while queue:
        at = queue.pop()
        for edge in flow.edges[at]:
            operand, source = edge.operand, edge.source
            if source < 0 or source in seen or operand is None:
                continue
            if operand.requires_grad and not operand.leaf and differentiable(events[source]):
                seen.add(source)
                queue.append(source)
    cache[position] = frozenset(seen)
    return cache[position]
