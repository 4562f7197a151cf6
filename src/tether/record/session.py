"""One recording from start to stop: what is put in place, and how all of it goes away again."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any

import torch
from torch.optim import Optimizer

from tether.facts import UNKNOWN, Trace
from tether.record import mode_stack
from tether.record.listener import Listener
from tether.record.objects import variables_of
from tether.record.patches import Patches
from tether.record.patches.replacing import Replacements
from tether.record.recorded_steps import MEASURED, Doors, Sample, Slice
from tether.record.recorder import Recorder

if TYPE_CHECKING:
    from tether.record.processes.children import Children

TRIED = (2, 15)
"""The newest PyTorch that `make versions` was passed with."""


def _release() -> tuple[int, ...]:
    """Return major and minor number of the installed PyTorch."""
    numbers = torch.__version__.split(".")[:2]
    return tuple(int(one) for one in numbers if one.isdigit())


class Session:
    """A recorder, put in place in this process by `start` and taken away by `stop`.

    `limit` keeps the last so many events. `steps` records from the end of optimizer step ``first``
    to the end of step ``last - 1``, counted from 0 over all optimizers, as a slice counts; outside
    nothing is on the mode stack and nothing replaced. `sample` records the first steps, then ever
    rarer ones (see `record.recorded_steps`). `eager` makes compiled functions run eagerly.
    `memory` also meets the gradients and the optimizers' state, which no call returns. `children`
    says how processes that the program starts are recorded; None: they are not.
    """

    def __init__(
        self,
        limit: int | None = None,
        *,
        steps: tuple[int, int | None] | None = None,
        sample: bool = False,
        eager: bool = False,
        memory: bool = False,
        children: Children | None = None,
    ) -> None:
        self.recorder = Recorder(limit, memory=memory)
        self.children = children
        self._patches = Patches(self.recorder, self._listener, children, eager=eager)
        self._recorded: Sample | Slice = Sample() if sample else Slice(*steps or ())
        self._doors: Doors | None = None
        self._done = self._heard = 0  # optimizer steps, and those of them that were recorded
        self._next: float = 0  # of them, after which the next stretch begins
        self._threads = threading.local()
        self._count = 0
        self._lock = threading.Lock()

    def _listener(self) -> Listener:
        """Return the listener of the current thread, made when the thread is first heard."""
        listener: Listener | None = getattr(self._threads, "listener", None)
        if listener is None:
            with self._lock:
                listener = self._listen(self._count)
                self._count += 1
            self._threads.listener = listener
        return listener

    def _listen(self, thread: int) -> Listener:
        return Listener(self.recorder, thread)

    @property
    def saved_at(self) -> str:
        """Return the file that has what was recorded so far; "" when there is none."""
        autosave = self.recorder.autosave
        return autosave.path if autosave is not None and autosave.size else ""

    def save_as_it_grows(self, path: str, program: list[str], folder: str) -> None:
        """Save what is recorded of `program` at the absolute `path`, about once a second.

        Whatever kills the process, that file opens as a recording that says it is partial.
        """
        self.recorder.save_as_it_grows(path, program, folder)

    def start(self) -> None:
        """Begin to hear this thread and all that start from now on."""
        if _release() > TRIED:
            self.recorder.tape.gap("release", torch.__version__)
        self._patches.optimizers.on_step = self._stepped
        self._patches.optimizers.hook()
        _forked.add(self)
        if isinstance(self._recorded, Sample):
            self._doors = Doors(Replacements(self.recorder.tape), self._opened)
            self._doors.install()
        elif (self._recorded.first, self._recorded.last) != (0, None):
            last = "" if self._recorded.last is None else str(self._recorded.last)
            self.recorder.tape.gap("steps", f"{self._recorded.first}:{last}")
        self._choose()

    def _begin(self) -> None:
        self.recorder.tape.active = True
        self._patches.install()
        self.recorder.rings.hear()
        self.recorder.arrays.wrote_any()  # since it was last heard, if it was
        mode_stack.push(self._listener())

    def _end(self) -> None:
        if self.recorder.tape.active:
            mode_stack.remove(self._listener())
            self._patches.restore()
            self.recorder.rings.mute()
            self.recorder.tape.active = False
            if self.recorder.autosave is not None:
                self.recorder.autosave.flush()

    def _stepped(self, optimizer: Optimizer) -> None:
        """Count an optimizer step: recording may begin or end with it."""
        self._done += 1
        active = self.recorder.tape.active
        self._heard += active
        if self._done <= MEASURED:
            self._recorded.stepped(optimizer, self._done)
        if active or self._done >= self._next:
            self._choose()

    def _opened(self) -> None:
        """Record what comes now, though no stretch was due."""
        assert isinstance(self._recorded, Sample)
        self._recorded.opened(self._done)
        self._choose()

    def _choose(self) -> None:
        """Begin or end a stretch, where it is time."""
        wanted = self._recorded.wanted(self._done)
        if wanted and not self.recorder.tape.active:
            self._begin()
        elif not wanted:
            self._next = self._recorded.begins(self._done)
            self._end()
            if self._doors is not None:
                self._doors.closed()
                self._sampled()

    def _sampled(self) -> None:
        """Say how much of the run was recorded."""
        tape = self.recorder.tape
        for key in [one for one in tape.gaps if one[0] == "sampled"]:
            del tape.gaps[key]
        tape.gap("sampled", f"{self._heard:,} of {self._done:,}")

    def stop(
        self, namespace: dict[str, Any] | None = None, error: BaseException | None = None
    ) -> Trace:
        """Stop hearing, put everything back, and return the facts.

        `namespace` holds the variables from which tensors are named, the program's globals;
        `error` is what ended the program, and holds those of the functions that it left.
        """
        recorder = self.recorder
        self.mute()
        try:
            with torch._C.DisableTorchFunction():  # a user's subclass must not hear us look
                recorder.ends(variables_of(namespace or {}), error)
        except Exception as failure:  # noqa: BLE001 -- the program's objects may do anything
            recorder.tape.failed("naming what is left at the end", failure)
        trace = recorder.trace()
        recorder.tape.arrays.end()
        recorder.tape.places.release()
        return trace

    def mute(self) -> None:
        """Hear nothing more, and put everything back. Safe to call twice."""
        self._patches.optimizers.on_step = lambda _: None
        self._end()
        if self._doors is not None:
            self._doors.restore()
            if self._heard < self._done:
                self._sampled()
        # PyTorch takes a mode off the stack for the length of a call, and puts it back after: if
        # recording ended within one, it came back.
        mode_stack.remove(self._listener())
        self._patches.optimizers.unhook()
        _forked.discard(self)

    def in_child(self) -> None:
        """Fall silent in a forked process; where children are recorded it goes on by itself."""
        self._patches.optimizers.on_step = lambda _: None
        if self._doors is not None:
            self._doors.restore()
        self._lock = threading.Lock()  # another thread may have held it
        self.recorder.tape.arrays.in_child()
        recorded = self.children is not None and self.children.which == "all"
        listener = mode_stack.listener_here(self.recorder.tape)
        heard = not recorded and listener is not None
        self.recorder.others.in_child(self._listen(UNKNOWN).tensors_in, heard=heard)
        if not recorded:
            self.recorder.tape.active = False
            self.recorder.tape.arrays.end()
            return
        from tether.record.processes.children import forked

        self._patches.in_child()
        forked(self)


_forked: set[Session] = set()


def _after_fork_in_child() -> None:
    for session in list(_forked):
        session.in_child()


def _before_fork() -> None:
    for session in _forked:
        session.recorder.tape.gap("child", session.recorder.tape.forks)
        session.recorder.others.forks()


os.register_at_fork(before=_before_fork, after_in_child=_after_fork_in_child)
