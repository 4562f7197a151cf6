"""Which gradients were there: after each backward pass, and as each optimizer steps.

Only leaves that require grad are looked at: those that an optimizer holds, and those that were
seen as an argument of a call. Whether a gradient is exactly zero is looked into until it was once
seen to be something else: at the 1st, 2nd, 4th, 8th... step of an optimizer, and at those between
for at most half a percent of the run's time; of what an optimizer holds and is frozen, at each of
the former. What was not looked into is "unchecked", and nothing is concluded of it.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

import torch

from tether.facts import UNKNOWN, Gradients, GradientStatus, Moment, OptimizerId, SiteId, TensorId
from tether.record.arrays.contents import is_zero
from tether.record.budget import Budget
from tether.record.identity import TensorRef, is_leaf, version_of
from tether.record.tape import Tape

gradient_of: Callable[[torch.Tensor], torch.Tensor | None] = vars(torch._C.TensorBase)[
    "grad"
].__get__
"""Reads a tensor's gradient, whatever the program made of `torch.Tensor.grad`."""


class Trained(NamedTuple):
    """The leaves that are alive, with their serial numbers, at one moment."""

    leaves: list[tuple[int, torch.Tensor]]
    mine: list[tuple[int, torch.Tensor]]
    others: list[TensorId]  # those of other threads, which work on their gradients
    met: int  # how often a leaf had been met by then


NOBODY = Trained([], [], [], UNKNOWN)


class GradientLog:
    """The gradients of the tensors that can be trained."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape
        tape.who.on_leaf = self.seen
        tape.who.on_release = self._forget
        self.facts: list[Gradients] = []
        self._leaves: dict[int, TensorRef] = {}  # serial -> the leaf
        self._met = 0  # times that a leaf was met, or looked at again
        self._held: set[int] = set()  # serials of those that an optimizer holds
        # Serials whose gradient was once something: after a backward pass, at a step or the end.
        self._alive: dict[str, set[int]] = {"backward": set(), "step": set(), "end": set()}
        # Of these nothing is asked between looks: some of `_alive`, and what could not be read.
        self._settled: dict[str, set[int]] = {"backward": set(), "step": set(), "end": set()}
        self._budget = Budget(0.005, allowed=0.1)  # of the looks between
        self._last: dict[tuple[str, int], dict[TensorId, GradientStatus]] = {}
        self._owners: dict[int, int] = {}  # serial -> the thread that met it; 0: several did
        self._trainers: set[int] = set()  # threads that have run a backward pass or a step

    def seen(self, ref: TensorRef) -> None:
        """Take note of a leaf that requires grad, met as an argument or a result of a call."""
        self._met += 1
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
            # As `is_leaf` says it, without the call.
            elif leaf.is_leaf if not leaf._is_view() else is_leaf(leaf):
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
        """Follow the gradient of `tensor`, which an optimizer holds; return its serial number."""
        serial = self._tape.who.serial(tensor)
        self._held.add(serial)
        ref = self._tape.who.find(tensor)
        if ref is not None:
            self.seen(ref)
        return TensorId(serial)

    def lacking(self) -> bool:
        """Whether some tensor that an optimizer holds never had a gradient but zeros."""
        return not self._held <= self._alive["step"]

    def trained(self, before: Trained | None = None) -> Trained:
        """Return the leaves that are alive: those of this thread, and those it is to leave alone.

        They are those of an answer just before, if no leaf was met since.
        """
        if before is not None and before.met == self._met:
            return before
        leaves, me, owners = list(self.leaves()), threading.get_ident(), self._owners
        others = [
            TensorId(serial)
            for serial, _ in leaves
            if owners.get(serial) != me and not self.safe(serial)
        ]
        apart = set(others)
        mine = [one for one in leaves if one[0] not in apart] if apart else leaves
        return Trained(leaves, mine, others, self._met)

    def after_backward(self, site: int, leaves: Trained, *, look: bool) -> set[TensorId]:
        """Record which leaves have a gradient now, and return them; with `look`, what it is.

        Those that only another thread may look at are taken to have one.
        """
        numbers = [TensorId(serial) for serial, _ in leaves.mine]
        status = self._statuses([leaf for _, leaf in leaves.mine], numbers, "backward", look=look)
        for serial in leaves.others:
            self._tape.gap("gradient-threads")
            status[serial] = "unchecked"
        self._add("backward", site, UNKNOWN, status)
        return {serial for serial, found in status.items() if found != "none"}

    def written(self, leaves: Trained) -> list[torch.Tensor]:
        """Return the gradients that the program has met and that were added to in place since."""
        known, found = self._tape.who.tensors, list[torch.Tensor]()
        for _, leaf in leaves.mine:
            gradient = gradient_of(leaf)
            ref = known.get(id(gradient))
            if ref is None or ref() is not gradient:
                continue
            if gradient is not None and version_of(gradient) != ref.snapshot[2]:
                found.append(gradient)
        return found

    def after_grad(
        self,
        site: int,
        asked: Sequence[torch.Tensor],
        found: Sequence[torch.Tensor | None],
        *,
        look: bool,
    ) -> None:
        """Record which of the tensors given to ``autograd.grad`` it found a gradient for.

        With `look`, what it is.
        """
        status: dict[TensorId, GradientStatus] = {}
        for tensor, gradient in zip(asked, found, strict=True):
            serial = TensorId(self._tape.who.serial(tensor))
            zero = is_zero(gradient) if look and gradient is not None else None
            known: GradientStatus = "unchecked" if zero is None else "zero" if zero else "some"
            status[serial] = "none" if gradient is None else known
        self._add("asked", site, UNKNOWN, status)

    def before_step(
        self, tensors: Sequence[torch.Tensor], numbers: Sequence[TensorId], *, look: bool
    ) -> dict[TensorId, GradientStatus]:
        """Note the gradients that an optimizer is about to use; with `look`, what they are."""
        self.trains()
        return self._statuses(tensors, numbers, "step", look=look)

    def stepped(self, site: int, optimizer: int, status: dict[TensorId, GradientStatus]) -> None:
        """Record the gradients that a step has used, now that it has finished."""
        self._add("step", site, optimizer, status)

    def carried(self, site: int, optimizer: int, tensors: Iterable[TensorId]) -> None:
        """Record which gradients of a step held what an earlier step had used."""
        self._add("carried", site, optimizer, dict.fromkeys(tensors, "some"))

    def at_end(self) -> None:
        """Record the gradients as the recording ends."""
        alive = self.trained().mine
        numbers = [TensorId(serial) for serial, _ in alive]
        status = self._statuses([leaf for _, leaf in alive], numbers, "end", look=True)
        self._add("end", UNKNOWN, UNKNOWN, status)

    def _statuses(
        self, tensors: Sequence[torch.Tensor], numbers: Sequence[TensorId], moment: str, *,
        look: bool,
    ) -> dict[TensorId, GradientStatus]:  # fmt: skip
        given = map(gradient_of, tensors)
        if not look:
            return self._between(dict(zip(numbers, given, strict=True)), moment)
        status: dict[TensorId, GradientStatus] = {}
        alive = self._alive[moment]
        for tensor, serial, gradient in zip(tensors, numbers, given, strict=True):
            if gradient is None:
                status[serial] = "none"
            elif serial in alive and tensor.requires_grad:
                status[serial] = "unchecked"
            else:
                status[serial] = self._look(serial, gradient, moment)
        return status

    def _between(
        self, given: dict[TensorId, torch.Tensor | None], moment: str
    ) -> dict[TensorId, GradientStatus]:
        """Return what is known where no look is due: of what was zeros so far, whether it still is.

        Where there is time for it.
        """
        status: dict[TensorId, GradientStatus] = {
            one: "none" if gradient is None else "unchecked" for one, gradient in given.items()
        }
        if self._settled[moment].issuperset(given) or self._budget.late():
            return status
        with self._budget:
            for serial in given.keys() - self._settled[moment]:
                gradient = given[serial]
                if gradient is not None:
                    status[serial] = self._look(serial, gradient, moment)
        return status

    def _look(self, serial: TensorId, gradient: torch.Tensor, moment: str) -> GradientStatus:
        zero = is_zero(gradient)
        if not zero:
            self._settled[moment].add(serial)
        if zero is False:
            self._alive[moment].add(serial)
        return "unchecked" if zero is None else "zero" if zero else "some"

    def _add(
        self,
        moment: Literal["backward", "asked", "step", "carried", "end"],
        site: int,
        optimizer: int,
        status: dict[TensorId, GradientStatus],
    ) -> None:
        key = moment, optimizer
        last = self._last.get(key)
        if last == status:
            status = last  # thousands of equal steps share one table
        self._last[key] = status
        now = Moment(self._tape.now())
        self.facts.append(Gradients(moment, now, SiteId(site), OptimizerId(optimizer), status))


# -- carried ---------------------------------------------------------------------------------------
# Gradients that a step has used and that backward adds to, for the next step to use again. After
# the 1st, 2nd, 4th... step of an optimizer what it used is watched, by identity, since one object
# can be the gradient of several leaves in turn. As a pass begins, one that no leaf has any more, or
# that is zero by then, was cleared, and is watched no longer. What is left at a later step, and was
# added to, is carried.


MOST_STEPS = 3
"""Steps of an optimizer with carried gradients after which it is watched no more."""


class CarriedLog:
    """The gradients that optimizers have used at the steps that were looked at."""

    def __init__(self, gradients: GradientLog) -> None:
        self._gradients = gradients
        self._watched: dict[int, dict[int, int]] = {}  # optimizer -> id of a gradient -> version
        self._found: dict[int, int] = {}  # optimizer -> steps into which some were carried

    def stepped(self, optimizer: int, tensors: Iterable[torch.Tensor]) -> None:
        """Watch the gradients that a step has used."""
        if self._found.get(optimizer, 0) < MOST_STEPS:
            found = [gradient_of(one) for one in tensors]
            watched = self._watched.setdefault(optimizer, {})
            watched |= {id(one): version_of(one) for one in found if one is not None}

    def passes(self) -> None:
        """Watch no longer what was cleared by the time that a backward pass begins."""
        wanted = {number for one in self._watched.values() for number in one}
        if not wanted:
            return
        full: set[int] = set()
        for _, leaf in self._gradients.trained().mine:
            gradient = gradient_of(leaf)
            if gradient is not None and id(gradient) in wanted and is_zero(gradient) is False:
                full.add(id(gradient))
        for optimizer, watched in self._watched.items():
            left = {number: version for number, version in watched.items() if number in full}
            self._watched[optimizer] = left

    def steps(
        self, optimizer: int, held: Callable[[], dict[TensorId, torch.Tensor]]
    ) -> list[TensorId]:
        """Return the tensors whose gradients are carried into the step that begins.

        Which ones the optimizer holds is asked only while some are watched.
        """
        watched = self._watched.get(optimizer, {})
        found = []
        for number, tensor in held().items() if watched else ():
            gradient = gradient_of(tensor)
            if gradient is not None and version_of(gradient) > watched.get(id(gradient), 1 << 62):
                found.append(number)
        if found:
            self._found[optimizer] = self._found.get(optimizer, 0) + 1
            if self._found[optimizer] == MOST_STEPS:
                del self._watched[optimizer]
        return found
