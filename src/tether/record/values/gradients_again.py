"""Whether a call gives the same bits with a copy's source where a graph is recorded.

The gradients count as well as the result, and how they lie: by that, what comes before them in the
graph may add in another order. So the call is made again on leaves of its own, once with what it
was given and once with the source, and each is given one incoming gradient: laid out as the result
lies, and as the other's does. The engine is asked by itself, past what the recorder or a program
has put before it; where a program could hear it all the same, nothing is made again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NamedTuple

import numpy as np
import torch

from tether.record.arrays.contents import words_of
from tether.record.gradients.following import runs_compiled
from tether.record.values.indexed import Ints

_at_work: Callable[[], Any] = getattr(torch._C, "_current_autograd_node", lambda: None)
_run_backward = torch.autograd.Variable._execution_engine.run_backward
_SEED = 20_261

Call = tuple[tuple[Any, ...], dict[str, Any]]
Others = Mapping[int, torch.Tensor]  # by the identity of what each takes the place of
Unheard = Callable[[], AbstractContextManager[None]]


def backward_alone() -> bool:
    """Whether a forward and a backward pass made now would be plain ones, that nobody hears."""
    return not (
        torch.is_anomaly_enabled()
        or _at_work() is not None
        or torch._C._functorch.peek_interpreter_stack() is not None
        or torch.autograd.forward_ad._current_level >= 0
        or torch._C._is_any_autocast_enabled()  # it keeps what it made of leaves
        or runs_compiled()
    )


def with_gradients(
    func: Callable[..., Any], call: Call, result: torch.Tensor, *, draws: bool
) -> Callable[[Others], Ints | None]:
    """Return what says by which strides the result lies of a call that is given others.

    None where the result or a gradient has other bits. A call that draws is compared with itself,
    made again from the same state.
    """
    trial = _TrainedCall(func, call, result, draws=draws)
    return trial.gives if trial.repeats(result, exact=not draws) else lambda _: None


class _Gave(NamedTuple):
    """What a call gave, and the gradients of what it was given for each incoming gradient."""

    result: torch.Tensor
    gradients: Sequence[tuple[torch.Tensor | None, ...]]


class _TrainedCall:
    """A call of the program's whose result has a graph, as it is made again."""

    def __init__(
        self, func: Callable[..., Any], call: Call, result: torch.Tensor, *, draws: bool
    ) -> None:
        self._func, self._call = func, call
        self._unheard: Unheard = drawing_unheard if draws else nullcontext
        self._first: _Gave | None = None
        with torch._C.DisableTorchFunction():
            self._drawn = _drawn(result.shape)  # the incoming gradient

    def repeats(self, result: torch.Tensor, *, exact: bool) -> bool:
        """Make the call again as it was: whether its result lies as before, with the same bits."""
        try:
            first = self._first = self._passed({}, (result,))
        except Exception:  # noqa: BLE001 -- a call may have no gradient that the engine computes
            return False
        alike = first.result.shape == result.shape and first.result.stride() == result.stride()
        return alike and (not exact or same_bits(first.result, result))

    def gives(self, others: Others) -> Ints | None:
        """Return the strides of what it gives with others, if all bits are the same; else None."""
        try:
            return self._compared(others)
        except Exception:  # noqa: BLE001 -- it may refuse other strides: then the copy is needed
            return None

    def _compared(self, others: Others) -> Ints | None:
        first = self._first
        if first is None:
            return None
        again = self._passed(others, (first.result,))
        alike = again.result.shape == first.result.shape
        same = alike and same_bits(again.result, first.result) and _same_gradients(first, again)
        return again.result.stride() if same else None

    def _passed(self, others: Others, lie: Sequence[torch.Tensor]) -> _Gave:
        """Make the call with others, and ask for gradients: laid out as some tensors, and as it."""
        leaves: list[torch.Tensor] = []

        def leaf(tensor: torch.Tensor) -> torch.Tensor:
            made = others.get(id(tensor), tensor).detach()
            if tensor.requires_grad:
                leaves.append(made.requires_grad_())
            return made

        with torch._C.DisableTorchFunction(), torch.enable_grad(), self._unheard():
            args, kwargs = exchanged(self._call, leaf)
            result = self._func(*args, **kwargs)
            layouts = {one.stride(): one for one in (*lie, result)}
            incoming = [torch.empty_like(one).copy_(self._drawn) for one in layouts.values()]
            gradients = [
                _run_backward((result,), (one,), True, False, tuple(leaves), True, False)
                for one in incoming
            ]
        return _Gave(result.detach(), gradients)


@contextmanager
def drawing_unheard() -> Iterator[None]:
    """Let what is called draw random numbers that the program draws again."""
    before = torch.default_generator.get_state()
    try:
        yield
    finally:
        torch.default_generator.set_state(before)


def same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors of one shape have the same bits."""
    words, others = words_of(one), words_of(other)
    return words is not None and others is not None and bool(np.array_equal(words, others))


def _same_gradients(one: _Gave, other: _Gave) -> bool:
    """Whether all gradients are the first of one, and lie so."""
    first = one.gradients[0]
    pairs = [pair for found in other.gradients for pair in zip(first, found, strict=True)]
    return all(a is b if a is None or b is None else _same_gradient(a, b) for a, b in pairs)


def _same_gradient(one: torch.Tensor, other: torch.Tensor) -> bool:
    alike = one.shape == other.shape and one.stride() == other.stride()
    return alike and same_bits(one, other)


def _drawn(shape: torch.Size) -> torch.Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(_SEED)) - 0.5


def exchanged(value: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """Return an argument, also a list of tensors, with another tensor in the place of each."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if type(value) in (list, tuple):
        return type(value)([exchanged(one, change) for one in value])
    if type(value) is dict:
        return {key: exchanged(one, change) for key, one in value.items()}
    return value
