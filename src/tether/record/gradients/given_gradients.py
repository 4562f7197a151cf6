"""Gradients that the program's own code is given in a backward pass, and writes in place.

The engine may give one tensor to several parts of the graph: an addition gives what it is given to
both summands. A custom Function's backward, or a hook on a tensor, that writes it in place changes
what another part has still to be given. Whether somebody else holds a tensor is asked of PyTorch,
by its count of references. What that count is for a tensor that nobody else holds differs between
releases and by how a tensor is given: it is measured once (`record.gradients.holding_counts`).

Asked is at the 1st, 2nd, 4th... run of a Function, or write of a hook, whose gradient somebody else
holds; told, where its elements are others afterwards. In passes that make a graph nothing is asked:
there a node may hold a gradient for a later derivative.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator, Sequence
from threading import get_ident
from typing import Any, NamedTuple

import torch

from tether.facts import UNKNOWN, GivenWritten, Moment, SiteId, StorageId, TensorId, ThreadId
from tether.record.arrays.contents import fingerprint
from tether.record.gradients.holding_counts import HoldingCounts, HowGiven, count_of, shown_whole
from tether.record.sites import code_of
from tether.record.tape import Tape

MOST = 4096

MOST_FRAMES = 64
"""Functions between a write and the hook in which it was made."""

_ENGINE = getattr(getattr(torch.autograd.graph, "_engine_run_backward", None), "__code__", None)
_ANY = TensorId(UNKNOWN), StorageId(UNKNOWN)  # of a fact, until it is known which was written


class _Running(NamedTuple):
    """A backward pass that a thread is in."""

    roots: tuple[torch.Tensor, ...]  # the gradients that it began with
    holders: int | None  # of one, as the program gave it; None: of several, or in another pass


class _AsGiven(NamedTuple):
    """A gradient as it was before the program's code worked on it."""

    tensor: torch.Tensor
    sum: int
    number: int
    storage: int


class GivenGradients:
    """What backwards of custom Functions and hooks wrote into gradients that others held."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape
        self.facts: list[GivenWritten] = []
        self.passes: dict[int, list[_Running]] = {}  # by thread
        self.hooks: set[types.CodeType] = set()  # functions that are hooks on tensors
        self.on_nodes = False  # the program has put hooks on nodes: these hold what nodes are given
        self._counts = HoldingCounts()
        self._hooked: set[int] = set()  # the program's nodes that a pass was followed through
        self._runs: dict[Any, int] = {}

    # -- passes ----------------------------------------------------------------------------------

    def passes_begin(self, roots: Sequence[Any], hooked: frozenset[int]) -> None:
        """Take note of a pass of this thread, and of the nodes that our own hooks are on.

        A node that has had one holds what it is given once more, also when the hook is gone.
        """
        stack = self.passes.setdefault(get_ident(), [])
        given = tuple(one for one in roots if isinstance(one, torch.Tensor))
        plain = len(roots) == len(given) == 1 and not stack and type(given[0]) is torch.Tensor
        stack.append(_Running(given, count_of(given[0]) if plain else None))
        self._hooked |= hooked

    def passes_end(self) -> None:
        """Take note of the end of the last one."""
        stack = self.passes.get(get_ident(), [])
        del stack[-1:]
        if not stack:
            self.passes.pop(get_ident(), None)

    def _running(self) -> _Running | None:
        stack = self.passes.get(get_ident())
        quiet = torch._C._functorch.peek_interpreter_stack() is None
        return stack[-1] if stack and quiet and not torch.is_grad_enabled() else None

    def _looks(self, key: Any) -> bool:
        self._runs[key] = runs = self._runs.get(key, 0) + 1
        return runs & (runs - 1) == 0 and len(self.facts) < MOST

    # -- custom Functions ------------------------------------------------------------------------

    def begins(self, node: Any, given: Sequence[Any], thread: int) -> Callable[[], None] | None:
        """Look at what a Function's backward is given; return what is to be called after it."""
        running, function = self._running(), node._forward_cls
        place = SiteId(self._tape.places.add_beginning(code_of(function.backward)))
        if running is None or place == UNKNOWN or self.on_nodes:
            return None
        number = node._sequence_nr()
        hooked = number in self._hooked
        held = [one for one in _apart(given) if self._is_held(one, running, hooked=hooked)]
        before = list(self._seen(held)) if held and self._looks(function) else []
        now = Moment(self._tape.now())

        def ended() -> None:
            until, name = Moment(self._tape.now()), function.__name__
            self._changed(
                before, GivenWritten(now, until, place, name, *_ANY, ThreadId(thread), number)
            )

        return ended if before else None

    def _is_held(self, tensor: torch.Tensor, running: _Running, *, hooked: bool) -> bool:
        """Whether somebody else holds a tensor, or the one that it shows all elements of."""
        base = shown_whole(tensor)
        for one, viewed in ((tensor, False), (base, True)):
            root = any(one is root for root in running.roots)
            if one is None or (root and not self._counts.is_fresh(running.holders)):
                continue
            least = self._counts.of(HowGiven(viewed, root, hooked))
            if least is not None and count_of(one) > least:
                return True
        return False

    def _seen(self, tensors: Sequence[torch.Tensor]) -> Iterator[_AsGiven]:
        for one in tensors:
            found = fingerprint(one)
            if found is not None:
                yield _AsGiven(one, found, *self._tape.who.snapshot(one)[:2])

    # -- hooks -----------------------------------------------------------------------------------

    def is_hook(self, hook: Any) -> None:
        """Take note of a function that is a hook on a tensor."""
        code = code_of(hook)
        if code is not None and len(self.hooks) < MOST:
            self.hooks.add(code)

    def writes(
        self, tensor: torch.Tensor, frame: types.FrameType | None
    ) -> Callable[[int, int], None] | None:
        """Look at what a call is about to write, if a hook was given it; what is returned is told.

        The event of the write and its thread.
        """
        running = self._running()
        code = None if running is None else self._hook_given(tensor, frame)
        place = SiteId(self._tape.places.add_beginning(code))
        if running is None or code is None or place == UNKNOWN:
            return None
        root = any(tensor is one for one in running.roots)
        if root and not self._counts.is_fresh(running.holders):
            return None
        if not self._counts.held_by_others(tensor, root=root):
            return None
        before = list(self._seen([tensor])) if self._looks(code) else []

        def wrote(event: int, thread: int) -> None:
            at, until, name = Moment(event), Moment(event + 1), code.co_qualname
            self._changed(
                before, GivenWritten(at, until, place, name, *_ANY, ThreadId(thread), UNKNOWN)
            )

        return wrote if before else None

    def _hook_given(
        self, tensor: torch.Tensor, frame: types.FrameType | None
    ) -> types.CodeType | None:
        """Return the hook that the engine called and gave a tensor, from a frame inside it."""
        for _ in range(MOST_FRAMES):
            above = None if frame is None else frame.f_back
            if frame is None or above is None:
                return None
            if above.f_code is _ENGINE:
                code = frame.f_code
                names = code.co_varnames[: code.co_argcount]
                given = any(frame.f_locals.get(name) is tensor for name in names)
                return code if given and code in self.hooks else None
            frame = above
        return None

    def _changed(self, before: Sequence[_AsGiven], fact: GivenWritten) -> None:
        """Keep a fact of each gradient that has other elements than it had before."""
        self.facts += [
            fact._replace(tensor=TensorId(one.number), storage=StorageId(one.storage))
            for one in before
            if fingerprint(one.tensor) != one.sum
        ]


def _apart(given: Sequence[Any]) -> list[torch.Tensor]:
    """Return the plain tensors among some values that share no memory with the others."""
    tensors = [one for one in given if type(one) is torch.Tensor and not one.requires_grad]
    memories = [one.untyped_storage()._cdata for one in tensors if one.layout is torch.strided]
    if len(memories) != len(tensors):
        return []
    return [one for one, where in zip(tensors, memories, strict=True) if memories.count(where) == 1]
