"""What autograd made of a call: asked of the graph itself, once for each kind of call.

PyTorch numbers the nodes of the graph as it makes them, in each thread. So the nodes of a call are
those whose numbers lie between what the counter said before and after it; what they saved is read
off their ``_saved_*``, which costs a microsecond a node and is therefore done once for each kind of
call. The graph of a backward pass is walked at the first passes of each line and then ever more
rarely.

To read what a node saved runs the hooks that a program has set on saved tensors: where some are
set, nothing is read.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch

from tether.facts import EventId, Kind, TensorId, ThreadId, Walk
from tether.record.arrays.contents import words_of
from tether.record.tape import Tape

count_nodes: Callable[[], int] = getattr(torch._C._autograd, "_get_sequence_nr", lambda: 0)
"""How many graph nodes this thread has made so far."""

MOST = 200_000  # nodes of one graph that are walked
_hooks: Callable[[bool], Any] | None = getattr(
    torch._C._autograd, "_top_saved_tensors_default_hooks", None
)
_MODES = torch._C.DispatchKeySet(torch._C.DispatchKey.Python).add(
    torch._C.DispatchKey.PythonTLSSnapshot
)


class GraphLog:
    """The kinds of calls met so far, and the graphs walked."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape
        self.kinds: dict[Any, int] = {}  # what makes calls one kind -> its number
        self.facts: list[Kind] = []
        self.walks: list[Walk] = []
        self._passes: dict[int, int] = {}  # site of backward -> passes so far
        self._numbers: dict[int, float] = {}  # site of backward -> its number so far; 0: not asked

    # -- one call --------------------------------------------------------------------------------

    def learn(
        self, key: Any, reads: Sequence[torch.Tensor], results: Sequence[torch.Tensor],
        first: int, last: int,
    ) -> int:  # fmt: skip
        """Look at the nodes numbered `first` to `last` - 1, which a call made; return its kind."""
        number = len(self.facts)
        self.facts.append(self._kind(reads, results, first, last))
        self.kinds[key] = number
        return number

    def _kind(
        self, reads: Sequence[torch.Tensor], results: Sequence[torch.Tensor], first: int, last: int
    ) -> Kind:
        nodes = _nodes_between(results, first, last)
        names = tuple(node.name() for node in nodes)
        edges = tuple(_edges(nodes, reads, results))
        ends = tuple(_ends(nodes, results)) if len(results) > 1 else ()
        if saved_hooks():
            return Kind(names, last - first, edges=edges, known=False, results=ends)
        operands = [*reads, *results]
        saved = {at for node in nodes for one in saved_by(node) for at in _same(one, operands)}
        kept = [one for node in nodes for one in _on_ctx(node)]
        held = {at for one in kept for at in _same(one, operands)}
        rounds = any(getattr(node, "_saved_rounding_mode", None) is not None for node in nodes)
        return Kind(
            names, last - first, tuple(sorted(saved)), tuple(sorted(held)), edges, rounds,
            results=ends, on_ctx=_among(kept, operands),
        )  # fmt: skip

    # -- one backward pass -----------------------------------------------------------------------

    def passed(self, site: int) -> int:
        """Count the backward passes of a line, with this one."""
        passes = self._passes[site] = self._passes.get(site, 0) + 1
        return passes

    def number(self, site: int, losses: Sequence[torch.Tensor], *, first: bool) -> float:
        """Return what `number_saved` says of a pass; 0 where nobody will ask for it.

        Asked for are lines whose number is a whole one, for as long as it is the same.
        """
        if not first and not self._numbers.get(site):
            return 0.0
        number = number_saved(losses)
        if first:
            self._numbers[site] = number if number > 1 and number.is_integer() else 0.0
        return number

    def differs(self, site: int, number: float) -> bool:
        """Whether a line has ceased to divide by one number, with this pass."""
        known = self._numbers.get(site)
        if not known or known == number:
            return False
        self._numbers[site] = 0.0
        return True

    def walk(self, losses: Iterable[torch.Tensor]) -> tuple[list[int], list[int], bool]:
        """Return the leaves and the numbers of the nodes behind some losses.

        The third value says whether that is all of them.
        """
        losses, numbers = list(losses), list[int]()
        leaves = [self._tape.who.serial(one) for one in losses if _is_leaf_loss(one)]
        for count, node in enumerate(nodes_behind(losses, MOST + 1)):
            if count == MOST:
                return leaves, numbers, False
            if accumulates(node):
                leaves.append(self._tape.who.serial(node.variable))
            else:
                numbers.append(node._sequence_nr())
        return leaves, numbers, True

    def freed(self, losses: Iterable[torch.Tensor]) -> list[int]:
        """Return the numbers of the nodes behind some losses whose saved values are gone."""
        if saved_hooks():
            return []
        return [node._sequence_nr() for node in nodes_behind(losses, MOST) if _is_freed(node)]

    def walked(
        self, event: int, thread: int, found: tuple[list[int], list[int], bool], freed: list[int],
        asked: Iterable[int] = (), number: float = 0.0,
    ) -> None:  # fmt: skip
        """Record a walk."""
        leaves, numbers, whole = found
        self.walks.append(
            Walk(
                EventId(event), ThreadId(thread), tuple(TensorId(one) for one in leaves),
                _ranges(numbers), _ranges(freed), whole, tuple(map(TensorId, asked)),
                number,
            )
        )  # fmt: skip


def number_saved(losses: Sequence[torch.Tensor]) -> float:
    """Return the one number that the last call of a loss saved, what it was divided by, say.

    0 where it is not one, or the program's own hooks on saved tensors were not to be run.
    """
    node = losses[0].grad_fn if len(losses) == 1 else None
    if node is None or saved_hooks():
        return 0.0
    found = saved_by(node)
    if len(found) != 1 or found[0].dim() or found[0].is_complex() or words_of(found[0]) is None:
        return 0.0
    number = float(found[0].detach())
    return number if math.isfinite(number) else 0.0


def nodes_behind(tensors: Iterable[torch.Tensor], most: int) -> Iterator[Any]:
    """Yield the nodes of the graph that some tensors were computed by, at most so many."""
    waiting = [one.grad_fn for one in tensors if one.grad_fn is not None]
    seen: set[Any] = set(waiting)
    while waiting and most:
        most -= 1
        node = waiting.pop()
        yield node
        for target, _ in node.next_functions:
            if target is not None and target not in seen:
                seen.add(target)
                waiting.append(target)


def accumulates(node: Any) -> bool:
    """Whether a node adds up the gradient of a leaf."""
    return type(node).__name__ == "AccumulateGrad"


def saved_by(node: Any) -> list[torch.Tensor]:
    """Return the tensors that a node saved for its backward and that are not freed."""
    return list(saved_with_names(node).values())


def saved_with_names(node: Any) -> dict[str, torch.Tensor]:
    """Return name -> the tensor that a node saved under it; a list's are counted ``name 0``."""
    found: dict[str, torch.Tensor] = {}
    for name, value in saved_values(node).items():
        if isinstance(value, torch.Tensor):
            found[name] = value
        elif isinstance(value, (tuple, list)):
            tensors = [one for one in value if isinstance(one, torch.Tensor)]
            found |= {f"{name} {n}": one for n, one in enumerate(tensors)}
    return found


def saved_values(node: Any) -> dict[str, Any]:
    """Return name -> what a node saved under it, tensors and others; nothing of what is freed."""
    found: dict[str, Any] = {}
    with _unheard():
        for name in saved_names(node.__class__):
            try:
                found[name] = getattr(node, name)
            except Exception:  # noqa: BLE001, S112 -- freed, or of a kind that has no Python form
                continue
    return found


class _unheard:  # noqa: N801 -- reads as a statement
    """Read what nodes saved: PyTorch detaches a saved result, which modes and profilers hear."""

    __slots__ = ("_modes_off", "_profiled")

    def __enter__(self) -> None:
        self._modes_off = torch._C._ExcludeDispatchKeyGuard(_MODES)
        self._modes_off.__enter__()  # type: ignore[no-untyped-call]
        self._profiled = torch._C._autograd._profiler_enabled()
        if self._profiled:
            torch._C._autograd._enable_record_function(False)

    def __exit__(self, *_: object) -> None:
        if self._profiled:
            torch._C._autograd._enable_record_function(True)
        self._modes_off.__exit__(None, None, None)


@functools.cache
def saved_names(kind: type) -> tuple[str, ...]:
    """Return the attributes in which nodes of a class show what they saved."""
    names = [name for name in dir(kind) if name.startswith("_saved_")]
    return (*names, "saved_tensors") if hasattr(kind, "saved_tensors") else tuple(names)


def saved_hooks() -> bool:
    """Whether the program has set hooks on the tensors that calls save."""
    return _hooks is None or _hooks(False) is not None


def _ends(nodes: Sequence[Any], results: Sequence[torch.Tensor]) -> Iterator[int]:
    """Yield which of a call's nodes made each result, -1 for none of them."""
    numbers = {node: n for n, node in enumerate(nodes)}
    for one in results:
        yield numbers.get(one.grad_fn, -1)


def _edges(
    nodes: Sequence[Any], reads: Sequence[torch.Tensor], results: Sequence[torch.Tensor]
) -> Iterator[tuple[int, int, int]]:
    """Yield where each edge of a call's nodes leads: to a node of its own, or to an operand."""
    numbers = {node: n for n, node in enumerate(nodes)}
    maker = _Makers(reads)
    # A call in place leads back to what had made the tensor before.
    written = [at for at, one in enumerate(reads) if any(one is made for made in results)]
    for n, node in enumerate(nodes):
        for place, (target, _) in enumerate(node.next_functions):
            if target is None:
                continue
            inner = numbers.get(target)
            if inner is not None:
                yield n, place, inner
            else:
                yield from ((n, place, -1 - at) for at in maker.operands(target) or written[:1])


def _nodes_between(results: Sequence[torch.Tensor], first: int, last: int) -> list[Any]:
    """Return the nodes of these numbers behind some results, in the order of their numbers."""
    waiting = [one.grad_fn for one in results if one.requires_grad]
    found: dict[int, Any] = {}
    while waiting:
        node = waiting.pop()
        if node is None:
            continue
        number = node._sequence_nr()
        if not first <= number < last or number in found:
            continue
        found[number] = node
        waiting += [target for target, _ in node.next_functions]
    return [found[number] for number in sorted(found)]


class _Makers:
    """Which operands of a call a node made, or for which it adds up the gradient."""

    def __init__(self, reads: Sequence[torch.Tensor]) -> None:
        self._reads = reads
        self._made: dict[Any, list[int]] = {}
        for at, tensor in enumerate(reads):
            if tensor.grad_fn is not None:
                self._made.setdefault(tensor.grad_fn, []).append(at)

    def operands(self, node: Any) -> list[int]:
        if not accumulates(node):
            return self._made.get(node, [])
        # The other way, from a leaf to its node, PyTorch makes a view: others would hear that.
        leaf = node.variable
        return [at for at, one in enumerate(self._reads) if one is leaf]


def _same(tensor: torch.Tensor, operands: Sequence[torch.Tensor]) -> list[int]:
    """Return which operands a saved tensor is: those of its elements, else those of its memory."""
    memory = _memory(tensor)
    if memory is None:
        return []
    sharing = [at for at, one in enumerate(operands) if _memory(one) == memory]
    place = (tensor.storage_offset(), tensor.shape, tensor.stride())
    exact = [
        at
        for at in sharing
        if (operands[at].storage_offset(), operands[at].shape, operands[at].stride()) == place
    ]
    return exact or sharing


def _memory(tensor: torch.Tensor) -> int | None:
    try:
        return int(tensor.untyped_storage()._cdata)
    except Exception:  # noqa: BLE001 -- a wrapper has none
        return None


def _among(kept: Sequence[torch.Tensor], operands: Sequence[torch.Tensor]) -> tuple[int, ...]:
    """Return which operands are themselves among some tensors."""
    return tuple(at for at, operand in enumerate(operands) if any(one is operand for one in kept))


def _on_ctx(node: Any) -> list[torch.Tensor]:
    """Return the tensors that a custom Function keeps as attributes of its ctx."""
    own = getattr(node, "__dict__", None) or {}
    return [value for value in own.values() if isinstance(value, torch.Tensor)]


def _is_freed(node: Any) -> bool:
    with _unheard():
        return any(_was_freed(node, name) for name in saved_names(node.__class__))


def _was_freed(node: Any, name: str) -> bool:
    try:
        getattr(node, name)
    except RuntimeError as error:
        return "freed" in str(error)
    except Exception:  # noqa: BLE001
        return False
    return False


def _is_leaf_loss(loss: torch.Tensor) -> bool:
    return loss.requires_grad and loss.grad_fn is None


def _ranges(numbers: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """Return numbers as stretches, each from its first to its last."""
    found: list[tuple[int, int]] = []
    for number in sorted(numbers):
        if found and number <= found[-1][1] + 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return tuple(found)
