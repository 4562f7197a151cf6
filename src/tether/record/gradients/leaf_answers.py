"""What the leaves of a living graph would get, computed node by node without a backward pass.

A node that saved a memory may give another gradient after a write, and yet no leaf: a shift of all
logits moves the gradient of a product, and the softmax before it takes the shift out again. So the
whole graph is asked, from the tensors that nothing else alive was computed from to the leaves, with
the same made-up gradients each time. Nodes are called as functions: PyTorch frees nothing then, and
runs no hook.
"""

from __future__ import annotations

import types
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from tether.record.gradients.nodes import accumulates

MOST_NODES = 400
"""Nodes of a graph up to which it is asked: about 10 ms of calls."""

MOST_ELEMENTS = 1 << 22
"""Elements of all gradients, or of that of one node, up to which anything is asked."""

_SEED = 20_261


def leaf_answers(ends: Sequence[tuple[Any, int]]) -> list[torch.Tensor | None] | None:
    """Return what leaves would get from made-up gradients of `ends`; None where nobody can say.

    `ends` are results of nodes, as ``(node, number)``. Where a node cannot be called, since it runs
    the program's own code, what comes to it counts as what a leaf gets.
    """
    order = _in_order([node for node, _ in ends])
    if order is None:
        return None
    given: dict[Any, dict[int, torch.Tensor]] = defaultdict(dict)
    for node, number in _outermost(ends, order):
        given[node][number] = made_up(node._input_metadata[number])
    found: list[torch.Tensor | None] = []
    for node in order:
        arrived = given.pop(node, None)
        if accumulates(node) or runs_own_code(node):
            found += [None] if arrived is None else arrived.values()
        elif arrived is not None and not _pass_on(node, arrived, given):
            return None
    return found


def runs_own_code(node: Any) -> bool:
    """Whether a node runs code of the program's, or code of PyTorch's that may call it."""
    return isinstance(node, torch.autograd.function.BackwardCFunction) and not _is_registered(node)


def _is_registered(node: Any) -> bool:
    """Whether a node runs the formula that PyTorch itself registered for an operator of its own."""
    backward = getattr(getattr(type(node), "_forward_cls", None), "backward", None)
    if not isinstance(backward, types.FunctionType):
        return False
    cells = dict(zip(backward.__code__.co_freevars, backward.__closure__ or (), strict=True))
    info = cells["info"].cell_contents if "info" in cells else None
    formula = getattr(info, "_backward_fn", None)
    return str(getattr(formula, "__module__", "")).startswith("torch.")


def made_up(metadata: Any) -> torch.Tensor:
    """Return a gradient for a result of a node; the same each time."""
    made = torch.Generator().manual_seed(_SEED)
    drawn = torch.rand(tuple(metadata.shape), generator=made, dtype=torch.float64)
    return drawn.to(metadata.dtype)


def elements_of(metadata: Any) -> int:
    """Return how many elements a result of a node has."""
    return torch.Size(metadata.shape).numel()


def is_on_cpu(metadata: Any) -> bool:
    """Whether a result of a node lies where nothing has to wait for it."""
    return bool(metadata.device.type == "cpu")


def _in_order(nodes: Sequence[Any]) -> list[Any] | None:
    """Return a graph's nodes, each before those that it hands gradients to; None: too large."""
    seen, order, size = set[Any](), list[Any](), 0
    waiting = [(node, False) for node in nodes]
    while waiting:
        node, through = waiting.pop()
        if through:
            order.append(node)
        elif node not in seen:
            seen.add(node)
            size += sum(map(elements_of, node._input_metadata))
            on_cpu = all(map(is_on_cpu, node._input_metadata))
            if len(seen) > MOST_NODES or size > MOST_ELEMENTS or not on_cpu:
                return None
            waiting.append((node, True))
            waiting += [(target, False) for target in _targets(node)]
    return order[::-1]


def _targets(node: Any) -> Iterator[Any]:
    if not runs_own_code(node):
        yield from (target for target, _ in node.next_functions if target is not None)


def _outermost(ends: Sequence[tuple[Any, int]], order: Sequence[Any]) -> set[tuple[Any, int]]:
    """Return the ends that nothing else alive was computed from."""
    inner = {way for node in order if not runs_own_code(node) for way in node.next_functions}
    return set(ends) - inner


def _pass_on(
    node: Any, arrived: dict[int, torch.Tensor], given: dict[Any, dict[int, torch.Tensor]]
) -> bool:
    """Call a node with what has come to it, and add what it returns to what its targets get."""
    results = call_node(node, [arrived.get(n) for n in range(len(node._input_metadata))])
    if not results or any(one is not None and one.layout is not torch.strided for one in results):
        return False
    for (target, number), gradient in zip(node.next_functions, results, strict=False):
        if target is None or gradient is None:
            continue
        fitted = _fitted(gradient, target._input_metadata[number])
        before = given[target].get(number)
        given[target][number] = fitted if before is None else before + fitted
    return True


def _fitted(gradient: torch.Tensor, metadata: Any) -> torch.Tensor:
    """Return a gradient in the shape and type of what it belongs to, as the engine does."""
    shape = torch.Size(metadata.shape)
    fitted = gradient if gradient.shape == shape else gradient.sum_to_size(shape)
    if fitted.is_complex() and not metadata.dtype.is_complex:
        fitted = torch.view_as_real(fitted.resolve_conj())[..., 0]
    return fitted.to(metadata.dtype)


def call_node(node: Any, given: Sequence[torch.Tensor | None]) -> tuple[torch.Tensor | None, ...]:
    """Return what a node gives back; nothing where what it saved is freed."""
    try:
        with torch.no_grad():
            found = getattr(node, "apply", node)(*given)
    except Exception:  # noqa: BLE001 -- also if it wants other gradients
        return ()
    return found if isinstance(found, tuple) else (found,)
