"""Which gradients were there: after each backward pass, and as each optimizer steps.

Only leaves that require grad are looked at: those that an optimizer holds, and those that were
seen as an argument of a call. Whether a gradient is exactly zero is looked into until it was once
seen to be something else, at the first steps and then at each doubling of the number of steps: a
look costs a device synchronisation.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from tether.facts import UNKNOWN, Gradients, GradientStatus
from tether.record.identity import is_leaf

if TYPE_CHECKING:
    from tether.record.recorder import Recorder

gradient_of: Callable[[torch.Tensor], torch.Tensor | None] = vars(torch._C.TensorBase)[
    "grad"
].__get__
"""Reads a tensor's gradient, whatever the program made of `torch.Tensor.grad`."""


class GradientLog:
    """The gradients of the tensors that can be trained."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self.facts: list[Gradients] = []
        self._leaves: dict[int, weakref.ref[torch.Tensor]] = {}  # serial -> the leaf
        self._alive: set[int] = set()  # serials whose gradient was once something
        self._last: dict[str, dict[int, GradientStatus]] = {}
        self._owners: dict[int, int] = {}  # serial -> the thread that met it; 0: several did
        self._trainers: set[int] = set()  # threads that have run a backward pass or a step
        self._looks = 0
        self._next_look = 1

    def seen(self, tensor: torch.Tensor, serial: int) -> None:
        """Take note of a leaf that requires grad, met as an argument or a result of a call."""
        me = threading.get_ident()
        if self._owners.setdefault(serial, me) != me:
            self._owners[serial] = 0
        if serial not in self._leaves:
            leaves, owners = self._leaves, self._owners

            def gone(_: object) -> None:
                leaves.pop(serial, None)
                owners.pop(serial, None)

            leaves[serial] = weakref.ref(tensor, gone)

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

    def hold(self, tensor: torch.Tensor) -> int:
        """Follow the gradient of `tensor`; return its serial number."""
        serial = self._recorder.who.serial(tensor)
        self.seen(tensor, serial)
        return serial

    def after_backward(self, site: int) -> None:
        """Record which leaves have a gradient now.

        Those that only another thread may look at are taken to have one.
        """
        status: dict[int, GradientStatus] = {}
        for serial, ref in list(self._leaves.items()):
            leaf = ref()
            if leaf is None or not is_leaf(leaf):
                continue
            if not self.safe(serial):
                self._recorder.gap(_UNSEEN)
                status[serial] = "unchecked"
            else:
                status[serial] = "none" if gradient_of(leaf) is None else "unchecked"
        self._add("backward", site, UNKNOWN, status)
        if self._recorder.holdings is not None:
            self._recorder.holdings.after_backward(site, self._leaves)

    def after_grad(
        self,
        site: int,
        asked: Sequence[torch.Tensor],
        found: Sequence[torch.Tensor | None],
    ) -> None:
        """Record which of the tensors given to ``autograd.grad`` it found a gradient for."""
        status: dict[int, GradientStatus] = {}
        for tensor, gradient in zip(asked, found, strict=True):
            serial = self._recorder.who.serial(tensor)
            status[serial] = "none" if gradient is None else "unchecked"
        self._add("asked", site, UNKNOWN, status)

    def at_step(self, site: int, optimizer: int, tensors: Iterable[torch.Tensor]) -> None:
        """Record the gradients that an optimizer is about to use."""
        self.trains()
        self._looks += 1
        look = self._looks == self._next_look or self._looks <= 3
        if self._looks >= self._next_look:
            self._next_look = self._looks * 2
        self._add("step", site, optimizer, self._statuses(tensors, look=look))

    def at_end(self) -> None:
        """Record the gradients as the recording ends."""
        leaves = [(serial, ref()) for serial, ref in list(self._leaves.items())]
        alive = [
            leaf
            for serial, leaf in leaves
            if leaf is not None and is_leaf(leaf) and self.safe(serial)
        ]
        self._add("end", UNKNOWN, UNKNOWN, self._statuses(alive, look=True))

    def _statuses(
        self, tensors: Iterable[torch.Tensor], *, look: bool
    ) -> dict[int, GradientStatus]:
        status: dict[int, GradientStatus] = {}
        for tensor in tensors:
            serial = self._recorder.who.serial(tensor)
            gradient = gradient_of(tensor)
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
        self, moment: Any, site: int, optimizer: int, status: dict[int, GradientStatus]
    ) -> None:
        key = f"{moment} {optimizer}"
        last = self._last.get(key)
        if last == status:
            status = last  # thousands of equal steps share one table
        self._last[key] = status
        self.facts.append(Gradients(moment, self._recorder.now(), site, optimizer, status))


_UNSEEN = "several threads train: each looks only at the gradients of the tensors it met"


def _content(gradient: torch.Tensor) -> GradientStatus:
    try:
        values = gradient.detach()
        if values.layout is torch.sparse_coo:
            values = values._values()
        if values.device.type == "meta":
            return "unchecked"
        return "some" if bool((values != 0).any()) else "zero"
    except Exception:  # noqa: BLE001 -- a gradient may be of any type; then it stays unchecked
        return "unchecked"
