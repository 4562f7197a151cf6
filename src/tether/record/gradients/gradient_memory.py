"""What no variable holds: gradients in `.grad`, optimizers' state, what the graph alone keeps.

The engine fills `.grad` and an optimizer its state where no mode hears. For the account of memory
they are met afterwards, once each; what died while the engine ran had been kept for it. A recording
that was not asked for memory does without.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any, Literal

import torch

from tether.facts import UNKNOWN, Allocator, Attached, Moment, SiteId, StorageId, TensorId
from tether.record.gradients.gradients import GradientLog, gradient_of
from tether.record.objects import items_of
from tether.record.tape import Tape


class GradientMemory:
    """What was found attached to other tensors so far."""

    def __init__(self, tape: Tape, gradients: GradientLog) -> None:
        self._tape = tape
        self._gradients = gradients
        tape.who.sizes = True
        self._known: set[int] = set()  # serial numbers of the tensors already told
        self._freed: set[int] = set()  # storages told to have been freed by a backward pass
        self.facts: list[Attached] = []
        # For each thread the backward passes that run: when they began, deaths until then.
        self._began: dict[int, list[tuple[int, int]]] = {}

    def before_backward(self) -> None:
        """Take note of what is alive as a backward pass begins."""
        who = self._tape.who
        who.bury()
        running = self._began.setdefault(threading.get_ident(), [])
        running.append((self._tape.now(), who.storages_dead()))

    def backward_ended(self, site: int) -> None:
        """Tell what the backward pass that began last freed, of what was there before it."""
        who = self._tape.who
        who.bury()
        running = self._began.get(threading.get_ident())
        if not running:
            return  # recording began in the midst of it
        began, deaths = running.pop()
        now = Moment(self._tape.now())
        for storage, born in who.storages_dead_since(deaths):
            if born <= began and storage not in self._freed:
                self._freed.add(storage)
                freed = Attached(
                    TensorId(UNKNOWN), StorageId(storage), "activation", TensorId(UNKNOWN), "", now,
                    SiteId(site),
                )  # fmt: skip
                self.facts.append(freed)

    def after_backward(self, site: int) -> None:
        """Meet the gradients of the leaves."""
        for serial, leaf in self._gradients.leaves():
            if not self._gradients.safe(serial):
                continue
            gradient = gradient_of(leaf)
            if gradient is not None:
                self._meet(gradient, "gradient", serial, "grad", site)

    def after_step(self, site: int, optimizer: torch.optim.Optimizer) -> None:
        """Meet the state that an optimizer keeps for its tensors."""
        for owner, state in list(optimizer.state.items()):
            of = self._tape.who.serial(owner) if isinstance(owner, torch.Tensor) else -1
            for part, tensor in _tensors("", state, 0):
                self._meet(tensor, "optimizer state", of, part, site)

    def _meet(
        self,
        tensor: torch.Tensor,
        kind: Literal["gradient", "optimizer state"],
        of: int,
        part: str,
        site: int,
    ) -> None:
        serial, storage = self._tape.who.snapshot(tensor)[:2]
        if serial not in self._known:
            self._known.add(serial)
            self.facts.append(
                Attached(
                    TensorId(serial), StorageId(storage), kind, TensorId(of), part,
                    Moment(self._tape.now()), SiteId(site),
                )
            )  # fmt: skip

    @staticmethod
    def allocators() -> list[Allocator]:
        """Ask the allocator of each device in use, as the recording ends.

        Bytes as they were asked for, without rounding. The peak counts from the start of the
        process, or from when the program last reset it.
        """
        if not torch.cuda.is_available() or not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            return []
        found = []
        for number in range(torch.cuda.device_count()):
            stats = torch.cuda.memory_stats(number)
            peak = int(stats.get("requested_bytes.all.peak", 0))
            if peak:
                held = int(stats.get("requested_bytes.all.current", 0))
                found.append(Allocator(f"cuda:{number}", peak, held))
        return found


def _tensors(part: str, value: Any, depth: int) -> Iterator[tuple[str, torch.Tensor]]:
    """Return the tensors inside an optimizer's state, each with the optimizer's word for it."""
    kind = type(value)
    if issubclass(kind, torch.Tensor):
        yield part, value
    elif issubclass(kind, dict) and depth < 4:
        for key, item in list(dict.items(value)):
            yield from _tensors(part or str(key), item, depth + 1)
    elif issubclass(kind, (list, tuple)) and depth < 4:
        for item in items_of(value):
            yield from _tensors(part, item, depth + 1)
