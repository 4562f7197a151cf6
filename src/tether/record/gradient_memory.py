"""What no variable holds: gradients in `.grad`, optimizers' state, what the graph alone keeps.

The engine fills `.grad` and an optimizer its state where no mode hears. For the account of memory
they are met afterwards, once each; what died while the engine ran had been kept for it. A recording
that was not asked for memory does without.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

import torch

from tether.facts import Allocator, Attached
from tether.record.gradients import gradient_of
from tether.record.identity import is_leaf
from tether.record.naming import items_of

if TYPE_CHECKING:
    from tether.record.recorder import Recorder


class Holdings:
    """What was found attached to other tensors so far."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        recorder.who.sizes = True
        self._known: set[int] = set()  # serial numbers of the tensors already told
        self._freed: set[int] = set()  # storages told to have been freed by a backward pass
        self.facts: list[Attached] = []
        # For each thread the backward passes that run: when they began, deaths until then.
        self._began: dict[int, list[tuple[int, int]]] = {}

    def before_backward(self) -> None:
        """Take note of what is alive as a backward pass begins."""
        who = self._recorder.who
        who.bury()
        running = self._began.setdefault(threading.get_ident(), [])
        running.append((self._recorder.now(), who.storages_dead()))

    def backward_ended(self, site: int) -> None:
        """Tell what the backward pass that began last freed, of what was there before it."""
        who = self._recorder.who
        who.bury()
        running = self._began.get(threading.get_ident())
        if not running:
            return  # recording began in the midst of it
        began, deaths = running.pop()
        now = self._recorder.now()
        for storage, born in who.storages_dead_since(deaths):
            if born <= began and storage not in self._freed:
                self._freed.add(storage)
                self.facts.append(Attached(-1, storage, "activation", -1, "", now, site))

    def after_backward(self, site: int, leaves: dict[int, weakref.ref[torch.Tensor]]) -> None:
        """Meet the gradients of these leaves, known by serial number."""
        for serial, ref in list(leaves.items()):
            leaf = ref()
            if leaf is None or not is_leaf(leaf) or not self._recorder.gradients.safe(serial):
                continue
            gradient = gradient_of(leaf)
            if gradient is not None:
                self._meet(gradient, "gradient", serial, "grad", site)

    def after_step(self, site: int, optimizer: torch.optim.Optimizer) -> None:
        """Meet the state that an optimizer keeps for its tensors."""
        for owner, state in list(optimizer.state.items()):
            of = self._recorder.who.serial(owner) if isinstance(owner, torch.Tensor) else -1
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
        serial, storage = self._recorder.who.snapshot(tensor)[:2]
        if serial not in self._known:
            self._known.add(serial)
            now = self._recorder.now()
            self.facts.append(Attached(serial, storage, kind, of, part, now, site))

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
