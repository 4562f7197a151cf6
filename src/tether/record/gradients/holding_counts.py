"""How many references a gradient has that nobody holds but the code that is given it.

PyTorch counts who refers to a tensor. While a custom Function's backward runs, or a hook, some of
the references are the engine's own to what it gives, and how many depends on the release. So the
count is read in passes of our own through a Function and a hook that nobody else takes part in: in
a thread of their own, since each thread numbers its nodes and has its own modes, and not before a
pass of the program's, which has started what threads the engine has. Where a pass in which somebody
else holds the tensor does not count one more, nothing is known.
"""

from __future__ import annotations

import _thread
from collections.abc import Callable
from itertools import product
from typing import Any, NamedTuple

import torch

_run_backward = torch.autograd.Variable._execution_engine.run_backward
_profiled: Callable[[], bool] = getattr(torch._C._autograd, "_profiler_enabled", lambda: True)

SECONDS = 5.0
"""After which a thread that has not answered is waited for no longer."""


class HowGiven(NamedTuple):
    """How a Function's backward is given a tensor."""

    viewed: bool  # as a view, and what is counted is the tensor that it shows
    root: bool  # the pass began with it, or with what it shows
    hooked: bool  # there are hooks on the node


class _Counts(NamedTuple):
    """What was counted."""

    fresh: int  # of a tensor that a variable of Python's alone holds
    given: dict[HowGiven, int]
    in_hooks: dict[bool, tuple[int, int]]  # by whether the pass began with it; of the storage too


class HoldingCounts:
    """The counts of this release, measured when they are first asked for."""

    def __init__(self) -> None:
        self._known: _Counts | None = None
        self._asked = not hasattr(torch.Tensor, "_use_count")

    def is_fresh(self, count: int | None) -> bool:
        """Whether only variables of Python's held a tensor that had a count."""
        counts = self._counts()
        return counts is not None and count == counts.fresh

    def of(self, given: HowGiven) -> int | None:
        """Return the count of a tensor that nobody else holds; None where it is not known."""
        counts = self._counts()
        return None if counts is None else counts.given.get(given)

    def held_by_others(self, tensor: torch.Tensor, *, root: bool) -> bool:
        """Whether somebody holds what a hook was given, and nothing else shows its memory."""
        counts = self._counts()
        if counts is None or tensor.requires_grad or type(tensor) is not torch.Tensor:
            return False
        least, storage = counts.in_hooks[root]
        return count_of(tensor) > least and _storage_count(tensor) == storage

    def _counts(self) -> _Counts | None:
        """Return what was counted; while a profiler would see the passes, they wait."""
        if not self._asked and not torch.is_anomaly_enabled() and not _profiled():
            self._asked = True
            self._known = _in_a_thread(_measured)
        return self._known


def count_of(tensor: torch.Tensor) -> int:
    """Return how many references PyTorch has to a tensor."""
    ask: Callable[[], int] = getattr(tensor, "_use_count", lambda: 0)
    return ask()


def shown_whole(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return the tensor that a view shows all elements of."""
    base = tensor._base
    return base if base is not None and base.numel() == tensor.numel() else None


def _storage_count(tensor: torch.Tensor) -> int:
    count: int = torch._C._storage_Use_Count(tensor.untyped_storage()._cdata)
    return count


def _in_a_thread(measure: Callable[[], _Counts | None]) -> _Counts | None:
    """Return what a function returns in a thread that no module of Python's knows of."""
    found: list[_Counts | None] = []
    done = _thread.allocate_lock()
    done.acquire()

    def run() -> None:
        try:
            found.append(measure())
        except Exception:  # noqa: BLE001 -- a release may do otherwise: then nothing is known
            found.append(None)
        finally:
            done.release()

    _thread.start_new_thread(run, ())
    return found[0] if done.acquire(timeout=SECONDS) and found else None


class _Counted(torch.autograd.Function):
    """Says of what its backward is given how many references there are to it."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, counts: list[int]) -> torch.Tensor:
        ctx.counts = counts
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *given: Any) -> Any:
        gradient = given[0]
        base = shown_whole(gradient)
        ctx.counts.append(count_of(gradient if base is None else base))
        return gradient, None


def _measured() -> _Counts | None:
    given = {}
    for values in product((False, True), repeat=3):
        how = HowGiven(*values)
        given[how] = _counted(how)
        if _counted(how, shared=True) != given[how] + 1:
            return None
    return _Counts(count_of(_leaf()), given, {root: _in_hook(root=root) for root in (False, True)})


def _leaf() -> torch.Tensor:
    return torch.ones(2, dtype=torch.float32, device="cpu", requires_grad=True)


def _counted(how: HowGiven, *, shared: bool = False) -> int:
    """Return the count in a pass; `shared`: in one in which another node waits for the tensor."""
    counts: list[int] = []
    other = _leaf() * 1  # older, so that its turn comes later
    made = _Counted.apply(_leaf(), counts)  # type: ignore[no-untyped-call]
    if how.hooked and made.grad_fn is not None:
        made.grad_fn.register_hook(lambda *_: None)
    if how.viewed:
        made, other = made.view(1, 2), other.view(1, 2)
    _pass(made + other if shared else made, root=how.root)
    return counts[0]


def _in_hook(*, root: bool) -> tuple[int, int]:
    counts: list[tuple[int, int]] = []
    made = _leaf() * 1
    hook = torch.Tensor.register_hook
    hook(made, lambda one: counts.append((count_of(one), _storage_count(one))))  # type: ignore[no-untyped-call]
    _pass(made, root=root)
    return counts[0]


def _pass(made: torch.Tensor, *, root: bool) -> None:
    made = made if root else made * 2
    _run_backward((made,), (torch.ones_like(made),), False, False, (), True, True)
