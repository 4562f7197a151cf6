"""Which gradients were there: after each backward pass, and as each optimizer steps.

Only leaves that require grad are looked at: those that an optimizer holds, and those that were
seen as an argument of a call. Whether a gradient is exactly zero is looked into until it was once
seen to be something else, at the first steps and then at each doubling of the number of steps: a
look costs a device synchronisation.
"""

from __future__ import annotations

import ctypes
import re
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal

import torch

from tether.facts import UNKNOWN, Gradients, GradientStatus, Moment, OptimizerId, SiteId, TensorId
from tether.record.identity import TensorRef, is_leaf
from tether.record.tape import Tape

gradient_of: Callable[[torch.Tensor], torch.Tensor | None] = vars(torch._C.TensorBase)[
    "grad"
].__get__
"""Reads a tensor's gradient, whatever the program made of `torch.Tensor.grad`."""


class GradientLog:
    """The gradients of the tensors that can be trained."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape
        tape.who.on_leaf = self.seen
        tape.who.on_release = self._forget
        self.facts: list[Gradients] = []
        self._leaves: dict[int, TensorRef] = {}  # serial -> the leaf
        self._alive: set[int] = set()  # serials whose gradient was once something
        self._last: dict[str, dict[TensorId, GradientStatus]] = {}
        self._owners: dict[int, int] = {}  # serial -> the thread that met it; 0: several did
        self._trainers: set[int] = set()  # threads that have run a backward pass or a step
        self._looks = 0
        self._next_look = 1

    def seen(self, ref: TensorRef) -> None:
        """Take note of a leaf that requires grad, met as an argument or a result of a call."""
        me = threading.get_ident()
        if self._owners.setdefault(ref.serial, me) != me:
            self._owners[ref.serial] = 0
        self._leaves[ref.serial] = ref

    def _forget(self, serial: int) -> None:
        """Hold nothing of a tensor that is about to change places with another."""
        self._leaves.pop(serial, None)

    def leaves(self) -> Iterator[tuple[int, torch.Tensor]]:
        """Yield the serial numbers of the leaves that are alive, and the leaves."""
        for serial, ref in list(self._leaves.items()):
            leaf = ref()
            if leaf is None:
                self._leaves.pop(serial, None)
                self._owners.pop(serial, None)
            elif is_leaf(leaf):
                yield serial, leaf

    def trains(self) -> None:
        """Take note that this thread works on gradients."""
        self._trainers.add(threading.get_ident())

    def safe(self, serial: int) -> bool:
        """Whether this thread may look at the gradient of a leaf.

        A look at a gradient that another thread is working on crashes the process: PyTorch does
        not guard it. So where several threads train, each looks at the leaves that are its own.
        """
        me = threading.get_ident()
        if self._owners.get(serial) == me:
            return True
        others = self._trainers - {me}
        return not others or others.isdisjoint(sys._current_frames())

    def hold(self, tensor: torch.Tensor) -> TensorId:
        """Follow the gradient of `tensor`; return its serial number."""
        serial = self._tape.who.serial(tensor)
        ref = self._tape.who.find(tensor)
        if ref is not None:
            self.seen(ref)
        return TensorId(serial)

    def after_backward(self, site: int) -> None:
        """Record which leaves have a gradient now.

        Those that only another thread may look at are taken to have one.
        """
        status: dict[TensorId, GradientStatus] = {}
        for serial, leaf in self.leaves():
            if not self.safe(serial):
                self._tape.gap("gradient-threads")
                status[TensorId(serial)] = "unchecked"
            else:
                missing = gradient_of(leaf) is None
                status[TensorId(serial)] = "none" if missing else "unchecked"
        self._add("backward", site, UNKNOWN, status)

    def after_grad(
        self,
        site: int,
        asked: Sequence[torch.Tensor],
        found: Sequence[torch.Tensor | None],
    ) -> None:
        """Record which of the tensors given to ``autograd.grad`` it found a gradient for."""
        status: dict[TensorId, GradientStatus] = {}
        for tensor, gradient in zip(asked, found, strict=True):
            serial = TensorId(self._tape.who.serial(tensor))
            status[serial] = "none" if gradient is None else "unchecked"
        self._add("asked", site, UNKNOWN, status)

    def before_step(self, tensors: Iterable[torch.Tensor]) -> dict[TensorId, GradientStatus]:
        """Look at the gradients that an optimizer is about to use."""
        self.trains()
        self._looks += 1
        look = self._looks == self._next_look or self._looks <= 3
        if self._looks >= self._next_look:
            self._next_look = self._looks * 2
        return self._statuses(tensors, look=look)

    def stepped(self, site: int, optimizer: int, status: dict[TensorId, GradientStatus]) -> None:
        """Record the gradients that a step has used, now that it has finished."""
        self._add("step", site, optimizer, status)

    def at_end(self) -> None:
        """Record the gradients as the recording ends."""
        alive = [leaf for serial, leaf in self.leaves() if self.safe(serial)]
        self._add("end", UNKNOWN, UNKNOWN, self._statuses(alive, look=True))

    def _statuses(
        self, tensors: Iterable[torch.Tensor], *, look: bool
    ) -> dict[TensorId, GradientStatus]:
        status: dict[TensorId, GradientStatus] = {}
        held = list(tensors)
        known = self._tape.who.known(held) or [self._tape.who.serial(one) for one in held]
        for tensor, number in zip(held, known, strict=True):
            serial, gradient = TensorId(number), gradient_of(tensor)
            if gradient is None:
                status[serial] = "none"
            elif serial in self._alive or not look:
                status[serial] = "unchecked"
            else:
                status[serial] = _content(gradient)
                if status[serial] == "some":
                    self._alive.add(serial)
        return status

    def _add(
        self,
        moment: Literal["backward", "asked", "step", "end"],
        site: int,
        optimizer: int,
        status: dict[TensorId, GradientStatus],
    ) -> None:
        key = f"{moment} {optimizer}"
        last = self._last.get(key)
        if last == status:
            status = last  # thousands of equal steps share one table
        self._last[key] = status
        now = Moment(self._tape.now())
        self.facts.append(Gradients(moment, now, SiteId(site), OptimizerId(optimizer), status))


def _content(gradient: torch.Tensor) -> GradientStatus:
    """Look whether a gradient is zero everywhere, without a call that anyone could hear.

    Its bytes are read where they are. On another device, or where there are none of its own (a
    sparse tensor, a wrapper), that cannot be done, and to wait for a device would slow the program.
    """
    try:
        if type(gradient) is not torch.Tensor or not gradient.is_cpu:
            return "unchecked"
        size = gradient.numel() * gradient.element_size()
        if gradient.layout is not torch.strided or not _dense(gradient):
            return "unchecked"
        first = gradient.data_ptr()
    except Exception:  # noqa: BLE001 -- a gradient may be of any type; then it stays unchecked
        return "unchecked"
    for at in range(0, size, _CHUNK):
        chunk = ctypes.string_at(first + at, min(_CHUNK, size - at))
        if _NOT_ZERO.search(chunk) and not _minus_zeros(chunk, gradient):
            return "some"
    return "zero"


_CHUNK = 1 << 20
_NOT_ZERO = re.compile(rb"[^\x00]")
_PERHAPS = re.compile(rb"[^\x00\x80]")  # the sign of a minus zero is all that it has
_WORDS = {1: "B", 2: "H", 4: "I", 8: "Q"}


def _minus_zeros(chunk: bytes, gradient: torch.Tensor) -> bool:
    """Whether a stretch of a gradient that is not all zero bytes is zeros of either sign."""
    if _PERHAPS.search(chunk):
        return False
    if not (gradient.is_floating_point() or gradient.is_complex()):
        return False
    width = gradient.element_size() // (2 if gradient.is_complex() else 1)
    word: Any = _WORDS[width]
    numbers = memoryview(chunk).cast(word)
    sign = 1 << (8 * width - 1)
    return not any(number & ~sign for number in numbers)


def _dense(tensor: torch.Tensor) -> bool:
    """Whether a tensor's elements fill one stretch of memory, in whatever order."""
    reach = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size != 1 and stride != reach:
            return False
        reach *= size
    return True
