"""Tensors with a graph that only rings of Python objects had (reference cycles).

Nothing leads to them, yet they live until Python's collector comes by. What goes while it runs was
in such a ring, or held by one. It is asked once more as the recording ends, where tensors with a
graph have no name: a ring that nothing leads to is not what keeps them for good.
"""

from __future__ import annotations

import gc
from typing import Any

from tether.facts import InRing, TensorId
from tether.record.identity import TensorRef
from tether.record.tape import Tape

MOST = 1 << 16
"""Tensors that are noted."""


class RingLog:
    """Listens to Python's collector."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape
        self._before = 0  # what had gone before the collector began, and is not buried yet
        self.facts: list[InRing] = []

    def hear(self) -> None:
        """Listen from now on."""
        gc.callbacks.append(self._collecting)

    def mute(self) -> None:
        """Listen no more."""
        if self._collecting in gc.callbacks:
            gc.callbacks.remove(self._collecting)

    def collect(self) -> None:
        """Let the collector run, unless the program has switched it off: rings are kept then."""
        if gc.isenabled():
            self._tape.who.bury()
            self.hear()
            try:
                gc.collect()
            finally:
                self.mute()

    def _collecting(self, phase: str, _: dict[str, Any]) -> None:
        dead = self._tape.who.dead
        if phase == "start":
            self._before = len(dead)
            return
        for ref in dead[self._before :] if len(self.facts) < MOST else ():
            if type(ref) is TensorRef and ref.snapshot[3] and not ref.snapshot[4]:
                self.facts.append(InRing(TensorId(ref.serial)))
