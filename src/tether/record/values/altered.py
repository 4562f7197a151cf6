"""Writes that no version tells of, to values that a node saved: whether its gradient changed.

A write through ``.data`` or through a tensor on an array's memory moves the version of that tensor
alone, so backward goes on with what was written. Most such writes come when no graph needs the
values any more, and some change nothing: a variance is the same after a shift. PyTorch is asked: a
node that saved the memory is given the same gradient before and after the write. Only for results
that something may bring a gradient to: singular values without their vectors need no values. Where
a node's answer differs, the leaves of the living graph are asked too: a later node may take out
again what has changed.

It is asked at the 1st, 2nd, 4th... write of each line. Nodes of the program's own Functions are not
run, and nothing is run where hooks on saved tensors, a profiler or a dispatch mode would hear it. A
Function whose backward is at work has read what it saved: what it writes there is its own.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

import torch

from tether.facts import Altered, EventId, ThreadId
from tether.record.gradients.leaf_answers import (
    MOST_ELEMENTS,
    call_node,
    elements_of,
    is_on_cpu,
    leaf_answers,
    made_up,
    runs_own_code,
)
from tether.record.gradients.nodes import nodes_behind, saved_by, saved_hooks
from tether.record.tape import Tape

MOST_NODES = 5_000
"""Nodes of living graphs that are looked through at one write."""

ROUNDING = 84
"""Units in the last place by which a gradient that is computed anew may miss: 1e-5 in float32."""

_profiled: Callable[[], bool] = getattr(torch._C._autograd, "_profiler_enabled", lambda: False)
_at_work: Callable[[], Any] = getattr(torch._C, "_current_autograd_node", lambda: None)


class KeptGradients(NamedTuple):
    """Gradients as they were."""

    values: tuple[torch.Tensor | None, ...] = ()  # in a row, as float64
    rounding: tuple[float, ...] = ()  # of each, as a part of its greatest element


class LeafAnswers:
    """What the leaves of the living graph would get, before a write and after it."""

    def __init__(self, ends: Sequence[tuple[Any, int]]) -> None:
        self._ends = ends
        self._before = self._answer()

    @functools.cached_property
    def differ(self) -> bool | None:
        """Whether they would get other gradients now; None where nobody can say."""
        after = self._answer() if self._before is not None else None
        return None if self._before is None or after is None else not _alike(self._before, after)

    def _answer(self) -> KeptGradients | None:
        found = leaf_answers(self._ends)
        return None if found is None else _kept_all(found)


class NodeAnswer(NamedTuple):
    """What a node gives back for some gradients."""

    node: Any
    results: frozenset[int]  # those of the node's that a graph or a living tensor goes through
    gradients: KeptGradients
    leaves: LeafAnswers | None = None  # of the graph that it is in
    at_work: bool = False  # its backward is running, and is not asked: it has read what it saved


class AlteredLog:
    """Looks at the nodes that saved a memory before and after an unseen write."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape
        self._writes: dict[int, int] = {}  # site -> writes so far
        self.facts: list[Altered] = []

    def before(self, tensor: torch.Tensor, site: int) -> list[NodeAnswer]:
        """Ask the nodes that saved the memory of `tensor`, which a call is about to write."""
        count = self._writes[site] = self._writes.get(site, 0) + 1
        if count & (count - 1) or not tensor.is_cpu or not alone():
            return []
        with torch._C.DisableTorchFunction():
            answers = list(self._answers(tensor))
            node, wanted = _at_work(), self._tape.who.memory_number(tensor)
            if runs_own_code(node) and self._saved(node, wanted):
                answers.append(NodeAnswer(node, frozenset(), KeptGradients(), at_work=True))
            return answers

    def after(self, answers: Sequence[NodeAnswer], event: int, thread: int) -> None:
        """Ask them again; `event` is the write."""
        with torch._C.DisableTorchFunction():
            for before in answers:
                number = before.node._sequence_nr()
                differs = not before.at_work and _differs(before)
                self.facts.append(Altered(EventId(event), ThreadId(thread), number, differs))

    def _answers(self, tensor: torch.Tensor) -> Iterator[NodeAnswer]:
        """Ask PyTorch's own nodes, in the graphs of living tensors, that saved a memory.

        Each for its results that a gradient may come to.
        """
        who = self._tape.who
        wanted = who.memory_number(tensor)
        if wanted is None:
            return
        # A view is not asked, which would bring its node up to date with writes to its base: the
        # base is.
        living = (one for one in who.living_tensors() if one.requires_grad)
        asked = [one if one._base is None else one._base for one in living]
        nodes = list(nodes_behind(asked, MOST_NODES))
        found = [node for node in nodes if not runs_own_code(node) and self._saved(node, wanted)]
        if found:
            ends = [(one.grad_fn, one.output_nr) for one in asked if one.grad_fn is not None]
            ways = list(chain(ends, *(node.next_functions for node in nodes)))
            leaves = LeafAnswers(ends)
            for node in found:
                yield _asked(node, frozenset(n for target, n in ways if target is node), leaves)

    def _saved(self, node: Any, memory: int | None) -> bool:
        """Whether a node saved something on a memory."""
        number = self._tape.who.memory_number
        return memory is not None and any(number(one) == memory for one in saved_by(node))


def alone() -> bool:
    """Whether nobody but this process's own code would hear a node run."""
    return not (saved_hooks() or _profiled() or torch._C._len_torch_dispatch_stack())


def _asked(node: Any, results: frozenset[int], leaves: LeafAnswers | None = None) -> NodeAnswer:
    """Run a node on gradients of some of its results; they are the same each time."""
    given = _given(node, results)
    returned = () if given is None else call_node(node, given)
    return NodeAnswer(node, results, _kept_all(returned), leaves)


def _given(node: Any, results: frozenset[int]) -> list[torch.Tensor | None] | None:
    """Return made-up gradients of some results of a node; None where one would be too large."""
    metadata = node._input_metadata
    if not all(_may_be_made(metadata[n]) for n in results):
        return None
    return [made_up(one) if n in results else None for n, one in enumerate(metadata)]


def _may_be_made(metadata: Any) -> bool:
    return elements_of(metadata) <= MOST_ELEMENTS and is_on_cpu(metadata)


def _kept_all(gradients: Sequence[torch.Tensor | None]) -> KeptGradients:
    kept = tuple(_kept(one) for one in gradients)
    return KeptGradients(kept, tuple(_rounding(one) for one in gradients))


def _rounding(gradient: torch.Tensor | None) -> float:
    real = gradient is not None and (gradient.is_floating_point() or gradient.is_complex())
    return ROUNDING * torch.finfo(gradient.dtype).eps if gradient is not None and real else 0.0


def _kept(gradient: torch.Tensor | None) -> torch.Tensor | None:
    """Return a copy of a gradient as real numbers in a row; None where there are none."""
    if gradient is None or gradient.layout is not torch.strided:
        return None
    plain = gradient.detach().resolve_conj().resolve_neg()
    return (torch.view_as_real(plain) if plain.is_complex() else plain).double().reshape(-1).clone()


def _differs(before: NodeAnswer) -> bool:
    """Whether a node now gives other gradients: what is computed anew is rounded anew.

    By rounding they differ in proportion to the greatest element, where elements are added up; to
    the element itself, in a node that works on each alone. Where they differ, the leaves behind the
    node have to get others as well.
    """
    after = _asked(before.node, before.results).gradients
    if not _alike(before.gradients, after):
        return before.leaves is None or before.leaves.differ is not False
    by_element = _by_element(before.node, before.results)
    return by_element and not _alike(before.gradients, after, whole=False)


def _by_element(node: Any, results: frozenset[int]) -> bool:
    """Whether what a node gives back is zero where the gradient that it is given is."""
    given = _given(node, results)
    if given is None or len(results) != 1:
        return False
    [gradient] = [one for one in given if one is not None]
    kept = (torch.arange(gradient.numel()) % 2).reshape(gradient.shape)
    masked = [None if one is None else one * kept for one in given]
    returned = [one for one in call_node(node, masked) if one is not None]
    return all(  # nothing of what is infinite is not a number
        one.shape == kept.shape and not one[kept == 0].nan_to_num(nan=0.0).any() for one in returned
    )


def _alike(before: KeptGradients, after: KeptGradients, *, whole: bool = True) -> bool:
    """Whether gradients differ by rounding at most, of the greatest element or of each."""
    if len(before.values) != len(after.values):
        return False
    pairs = zip(before.values, after.values, before.rounding, strict=True)
    return all(
        a is b if a is None or b is None else _close(a, b, rounding, whole=whole)
        for a, b, rounding in pairs
    )


def _close(a: torch.Tensor, b: torch.Tensor, rounding: float, *, whole: bool) -> bool:
    if a.shape != b.shape:
        return False
    finite = a[torch.isfinite(a)].abs()
    size = float(finite.max()) if whole and finite.numel() else 0.0
    return torch.allclose(a, b, rtol=rounding, atol=rounding * size, equal_nan=True)
