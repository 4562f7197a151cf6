"""Blocks under activation checkpointing: the run of the forward, and the one in a backward pass.

Each block remembers its first run, and a fact is made as it has run again. Where a pass fails, the
last of these facts is told which pass that was.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils import checkpoint

from tether.facts import MOST_RUNS, UNKNOWN, EventId, Moment, RunAgain, RunEnd, SiteId, ThreadId
from tether.record.mode_stack import listener_here, muted
from tether.record.patches.replacing import Original, Replacements
from tether.record.sites import here
from tether.record.tape import Tape

__tracebackhide__ = True

_STOPS: Any = getattr(checkpoint, "_StopRecomputationError", ())
"""What PyTorch raises in a block once it has recomputed all that it needs."""


class _Checkpointed:
    """The function that a call of `checkpoint` was given, which PyTorch calls again later."""

    def __init__(
        self, log: CheckpointLog, function: Callable[..., Any], frame: Any, *, keeps_random: bool
    ) -> None:
        self._log = log
        self._function = function
        self.site = log.user_line(frame)
        self.first = self.last = self.thread = UNKNOWN
        self.reentrant, self.keeps_random = True, bool(keeps_random)
        self.random: tuple[int, int] = (0, 0)  # as the run of the forward began, and ended

    def begins(self) -> None:
        """Note that the run of the forward begins."""
        self.first, self.thread = self._log.now()
        self.random = self.state_of_random(), 0

    def ends(self) -> None:
        """Note that it has ended."""
        self.last, _ = self._log.now()
        self.random = self.random[0], self.state_of_random()

    def state_of_random(self) -> int:
        """Return a number for the states of PyTorch's own generators; 0 where these are kept."""
        return 0 if self.keeps_random else self._log.state_of_random()

    def _drew_others(self, began: int) -> bool:
        """Whether both runs moved the generators on, and that from other states to other states.

        Who sets a seed in the block has both runs end in one state.
        """
        first, second = self.random, (began, self.state_of_random())
        moved = first[0] != first[1] and second[0] != second[1]
        return moved and first[0] != second[0] and first[1] != second[1]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the function: the first time, if it has not run, for the forward."""
        if self.last == UNKNOWN:
            self.begins()
            try:
                return self._function(*args, **kwargs)
            finally:
                self.ends()
        again, random = self._log.now(), self.state_of_random()
        end: RunEnd = "raised"
        try:
            result = self._function(*args, **kwargs)
            end = "returned"
        except _STOPS:
            end = "stopped"
            raise
        finally:
            self._log.ran(self, again, end, other_random=self._drew_others(random))
        return result


def _generators() -> list[torch.Generator]:
    """Return those that PyTorch draws from where it is given none, if they can be asked now."""
    used = torch.cuda.is_initialized() and not torch.cuda.is_current_stream_capturing()  # type: ignore[no-untyped-call]
    return [torch.default_generator, *(torch.cuda.default_generators if used else ())]


class CheckpointLog:
    """The blocks that ran again."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape
        self._last: RunAgain | None = None
        self.facts: list[RunAgain] = []

    def install(self, replacements: Replacements) -> None:
        """Hear of the blocks of both kinds of checkpointing."""
        name = "_checkpoint_without_reentrant_generator"
        replacements.replace(checkpoint, name, self._around)
        replacements.replace(checkpoint.CheckpointFunction, "forward", self._forward)

    def _around(self, original: Original) -> Original:
        @functools.wraps(original)
        def around(fn: Any, /, *args: Any, **kwargs: Any) -> Iterator[None]:
            if listener_here(self._tape) is None:
                yield from original(fn, *args, **kwargs)
                return
            preserve = args[0] if args else kwargs.get("preserve_rng_state", True)
            block = _Checkpointed(self, fn, here(2), keeps_random=preserve)
            block.reentrant = False
            run = original(block, *args, **kwargs)
            next(run)  # what is put in place before the forward belongs to no run
            block.begins()
            try:
                yield
            except BaseException as error:  # noqa: BLE001 -- it is handed on
                block.ends()
                with contextlib.suppress(StopIteration):
                    run.throw(error)
                return
            block.ends()
            yield from run

        return around

    def _forward(self, original: Any) -> Any:
        run: Callable[..., Any] = getattr(original, "__func__", original)

        @functools.wraps(run)
        def forward(ctx: Any, function: Any, preserve: bool, *args: Any) -> Any:
            if listener_here(self._tape) is None:
                return run(ctx, function, preserve, *args)
            block = _Checkpointed(self, function, here(2), keeps_random=preserve)
            return run(ctx, block, preserve, *args)

        return staticmethod(forward)

    def user_line(self, frame: Any) -> int:
        """Return the program's line that led to a frame."""
        listener, site = listener_here(self._tape), UNKNOWN
        if listener is not None:
            with muted(listener):
                site = self._tape.places.user_place(frame)[0]
        return site

    def now(self) -> tuple[int, int]:
        """Return the time, and the thread that is heard; UNKNOWN: nothing is heard in it."""
        listener = listener_here(self._tape)
        return self._tape.now(), UNKNOWN if listener is None else listener.thread

    def state_of_random(self) -> int:
        """Return a number for the states of PyTorch's own generators; 0: not to be had."""
        listener = listener_here(self._tape)
        if listener is None:
            return 0
        with muted(listener):
            try:
                return hash(tuple(one.get_state().numpy().tobytes() for one in _generators()))
            except Exception as error:  # noqa: BLE001 -- never to the program
                self._tape.failed("the state of the generators", error)
        return 0

    def ran(
        self, block: _Checkpointed, again: tuple[int, int], end: RunEnd, *, other_random: bool
    ) -> None:
        """Note a run that was repeated and has ended."""
        self._last = RunAgain(
            EventId(UNKNOWN), SiteId(block.site), Moment(block.first), Moment(block.last),
            ThreadId(block.thread), Moment(again[0]), Moment(self._tape.now()), ThreadId(again[1]),
            end, block.reentrant, block.keeps_random, other_random,
        )  # fmt: skip
        if len(self.facts) < MOST_RUNS:
            self.facts.append(self._last)

    def failed(self, event: int, span: int) -> None:
        """Note at which block a backward pass failed: the last that ran again in its span."""
        last = self._last
        if last is not None and last.again >= self._tape.spans[span].first:
            self._last = None
            if self.facts[-1] is last:
                self.facts.pop()
            self.facts.append(last._replace(event=EventId(event)))
