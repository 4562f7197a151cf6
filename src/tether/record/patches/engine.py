"""Backward passes and custom functions: what the engine does, seen from where it is called."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from tether.facts import (
    CREATE_GRAPH,
    RAISED,
    RETAIN_GRAPH,
    UNKNOWN,
    EventId,
    Followed,
    ThreadId,
)
from tether.record.gradients.backward_hooks import FUNCTION
from tether.record.gradients.following import Trail, can_follow
from tether.record.gradients.gradients import NOBODY
from tether.record.gradients.nodes import count_nodes
from tether.record.listener import Listener
from tether.record.mode_stack import muted, push, remove
from tether.record.patches.replacing import Original, Replacements
from tether.record.recorder import Recorder
from tether.record.sites import here
from tether.record.tape import NOWHERE

__tracebackhide__ = True

MOST_EARLY = 16
"""Passes of a line of which it is looked into what `autograd.grad` returns: one line may ask for
several derivatives in turn, so that powers of two would find the same one each time."""


def install(replacements: Replacements, recorder: Recorder, listen: Callable[[], Listener]) -> None:
    """Put the replacements in place; `listen` makes the listener of the current thread."""

    def make(original: Original) -> Original:
        return _run_backward(replacements, recorder, listen, original)

    replacements.replace(torch.autograd, "_engine_run_backward", make)
    replacements.replace(
        torch.autograd.Function,
        "apply",
        functools.partial(_apply, replacements, recorder),
        _is_classmethod,
    )
    replacements.replace(
        torch.autograd.function.BackwardCFunction,
        "apply",
        functools.partial(_apply_backward, replacements, recorder),
    )


def _is_classmethod(found: Any) -> bool:
    return type(found).__name__ in ("classmethod", "classmethod_descriptor")


class _Pass:
    """One backward pass, from before the engine runs to after it."""

    def __init__(self, recorder: Recorder, listener: Listener, asks: bool) -> None:
        self.recorder = recorder
        self.listener = listener
        self.name = "autograd.grad" if asks else "backward"
        self.place = NOWHERE
        self.span: int = UNKNOWN
        self.outer: int = UNKNOWN
        self.losses: list[torch.Tensor] = []
        self.asked: list[torch.Tensor] = []  # what autograd.grad is to return the gradients of
        self.wanted: list[torch.Tensor] = []  # what alone is to get gradients; none: all leaves
        self.reads: tuple[Any, ...] = ()
        self.results: list[torch.Tensor] = []
        self.flags = 0
        self.looks = False  # the 1st, 2nd, 4th... pass of its line: more is asked of it
        self.early = False  # one of its first passes
        self.number = 0.0  # that the last call of the loss had saved
        self.walk: tuple[list[int], list[int], bool] | None = None
        self.trail: Trail | None = None

    def begins(self, outputs: Any, wanted: Any, frame: Any) -> None:
        recorder, listener = self.recorder, self.listener
        who = recorder.tape.who
        with muted(listener):
            self.place = recorder.tape.places.user_place(frame)
            self.losses = [one for one in outputs if isinstance(one, torch.Tensor)]
            self.wanted = [one for one in wanted or () if isinstance(one, torch.Tensor)]
            self.asked = self.wanted if self.name == "autograd.grad" else []
            self.reads = tuple(who.snapshot(one) for one in (*self.losses, *self.asked))
            if recorder.arrays.watched:
                recorder.arrays.compare_all(self.place[0])
            if recorder.memory is not None:
                recorder.memory.before_backward()
            recorder.carried.passes()
            passes = recorder.graph.passed(self.place[0])
            self.looks = passes & (passes - 1) == 0
            self.early = passes <= MOST_EARLY
            self.number = recorder.graph.number(self.place[0], self.losses, first=passes == 1)
            if self.looks or recorder.graph.differs(self.place[0], self.number):
                self.walk = recorder.graph.walk(self.losses)
            if self.looks and self._is_followed(passes):
                self.trail = Trail(self.losses, partly=bool(self.wanted))
            self.span = recorder.tape.open_span("backward", self.name, self.place[0], listener.span)
        self.outer, listener.span = listener.span, self.span

    def _is_followed(self, passes: int) -> bool:
        """Whether one of the passes of this line that are looked at is followed node by node."""
        again = self.recorder.gradients.lacking() or self.place[0] in self.recorder.undone
        return (passes == 1 or again) and can_follow(self.losses)

    @property
    def hooked(self) -> frozenset[int]:
        """The program's own nodes on which there are hooks that follow the pass."""
        return frozenset() if self.trail is None else self.trail.hooked

    def ends(self, frame: Any) -> int:
        recorder, listener = self.recorder, self.listener
        listener.span = self.outer
        index = UNKNOWN
        with muted(listener):
            followed = None if self.trail is None else self.trail.ended()
            if recorder.memory is not None:
                recorder.memory.backward_ended(self.place[0])
            leaves = recorder.gradients.trained() if self.name == "backward" else NOBODY
            written = recorder.gradients.written(leaves)
            index = listener.note(
                self.name, self.place, results=self.results, writes=written, flags=self.flags,
                losses=len(self.losses), snapshots=self.reads,
            )  # fmt: skip
            recorder.tape.close_span(self.span, index)
            if self.flags & RAISED:
                recorder.checkpoints.failed(index, self.span)
            if written:
                recorder.holders.reached(written, index, self.place[0])
            self._walked(index)
            if followed is not None:
                event, thread = EventId(index), ThreadId(listener.thread)
                recorder.followed.append(Followed(event, thread, *followed))
                if followed.undone or followed.cancelled:
                    recorder.undone.add(self.place[0])
            recorder.arrays.wrote_any()
            recorder.naming.maybe_search(frame)
            if self.name == "backward":
                site, looks = self.place[0], self.looks
                leaves = recorder.gradients.trained(leaves)
                graded = recorder.gradients.after_backward(site, leaves, look=looks)
                recorder.movement.met(leaves.leaves, graded, site, look=looks)
                if recorder.memory is not None:
                    recorder.memory.after_backward(self.place[0])
            recorder.tape.on_beat()
        return index

    def _walked(self, index: int) -> None:
        """Record the graph, if it was walked; that of a pass that raised is looked at again."""
        graph = self.recorder.graph
        freed: list[int] = []
        if self.flags & RAISED:
            self.walk = self.walk or graph.walk(self.losses)
            freed = graph.freed(self.losses)
        if self.walk is not None:
            asked = tuple(self.recorder.tape.who.serial(one) for one in self.wanted)
            graph.walked(index, self.listener.thread, self.walk, freed, asked, self.number)
            self.walk = None

    def returned(self, value: Any) -> None:
        """Take note of which gradients ``autograd.grad`` found."""
        if self.asked and len(value) == len(self.asked):
            with muted(self.listener):
                self.recorder.gradients.after_grad(
                    self.place[0], self.asked, value, look=self.looks or self.early
                )


def _run_backward(
    replacements: Replacements,
    recorder: Recorder,
    listen: Callable[[], Listener],
    original: Original,
) -> Original:
    tape, given = recorder.tape, recorder.given

    @functools.wraps(original)
    def _engine_run_backward(t_outputs: Any, *args: Any, **kwargs: Any) -> Any:
        if not tape.active:
            return original(t_outputs, *args, **kwargs)
        heard = replacements.listener()
        # Inside a function written in Python the mode is off: hooks are heard all the same.
        listener = listen() if heard is None else heard
        asks = not kwargs.get("accumulate_grad", True)
        one = _Pass(recorder, listener, asks)
        _, keeps, creates, inputs = (*args, None, None, None, None)[:4]
        one.flags |= (RETAIN_GRAPH if keeps else 0) | (CREATE_GRAPH if creates else 0)
        frame = here(2)
        one.begins(t_outputs, inputs, frame)
        given.passes_begin(args[0] if args else (), one.hooked)
        if heard is None:
            push(listener)
        recorder.gradients.trains()
        tape.has_passed = True
        try:
            try:
                value = original(t_outputs, *args, **kwargs)
            finally:
                given.passes_end()
                if heard is None:
                    remove(listener)
        except BaseException as error:
            one.flags |= RAISED
            tape.error(error, one.place[0], one.ends(frame))
            raise
        one.results = [found for found in value or () if isinstance(found, torch.Tensor)]
        one.ends(frame)
        one.returned(value)
        return value

    return _engine_run_backward


def _apply(replacements: Replacements, recorder: Recorder, original: Any) -> Any:
    """Record a call of an `autograd.Function`, its forward being a span of its own."""
    tape, graph = replacements.tape, recorder.graph

    def apply(cls: type, *args: Any, **kwargs: Any) -> Any:
        run = original.__get__(None, cls)
        listener = replacements.listener()
        if listener is None:
            return run(*args, **kwargs)
        place, span = NOWHERE, UNKNOWN
        tensors: list[torch.Tensor] = []
        reads: tuple[Any, ...] = ()
        with muted(listener):
            place = tape.places.user_place(here(2))
            tensors = listener.tensors_in(*args, *kwargs.values())
            reads = tuple(tape.who.snapshot(one) for one in tensors)
            span = tape.open_span("function", cls.__name__, place[0], listener.span)
        outer, listener.span = listener.span, span
        nodes = count_nodes()
        try:
            value = run(*args, **kwargs)
        except BaseException as error:
            listener.span = outer
            with muted(listener):
                event = listener.note(
                    "apply", place, flags=RAISED, detail=cls.__name__, snapshots=reads
                )
                tape.error(error, place[0], event)
            raise
        finally:
            listener.span = outer
            tape.close_span(span)
        with muted(listener):
            results = listener.tensors_in(value)
            for one in results:
                tape.who.refresh(one)  # its grad_fn came after the forward
            written = [
                one
                for one, before in zip(tensors, reads, strict=True)
                if tape.who.has_moved(one, before)
            ]
            kind, now = UNKNOWN, count_nodes()
            if now != nodes:
                key = (cls, now - nodes, *[one[3] for one in reads])
                kind = graph.kinds.get(key, UNKNOWN)
                if kind == UNKNOWN:
                    kind = graph.learn(key, tensors, results, nodes, now)
            index = listener.note(
                "apply", place, results=results, writes=written, detail=cls.__name__, kind=kind,
                snapshots=reads,
            )  # fmt: skip
            tape.close_span(span, index)
            recorder.function_states.called(cls, index)
            if cls is FUNCTION:
                recorder.backward_hooks.applied(index, here(2))
        return value

    functools.update_wrapper(apply, getattr(original, "__func__", original))
    return classmethod(apply)


def _apply_backward(replacements: Replacements, recorder: Recorder, original: Original) -> Original:
    """Look at what the backward of an `autograd.Function` is given, and what it gives back."""
    passes, given = recorder.function_passes, recorder.given

    def apply(node: Any, *args: Any) -> Any:
        listener, ended, wrote = replacements.listener(), None, None
        function = getattr(node, "_forward_cls", None)
        if listener is not None and function is not None:
            with muted(listener):
                ended = passes.begins(function, args) if passes.looks(function) else None
                wrote = given.begins(node, args, listener.thread)
        value = original(node, *args)
        if listener is not None and (ended is not None or wrote is not None):
            with muted(listener):
                if wrote is not None:
                    wrote()
                if ended is not None:
                    ended(value)
        return value

    return functools.update_wrapper(apply, original)
