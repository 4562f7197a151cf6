"""Parameters that the program gives the values of trained ones, as a target network follows."""

from __future__ import annotations

from collections.abc import Iterator

from tether.analysis.history import History
from tether.facts import Operand

MOST_BEHIND = 16
"""Calls before one that are gone back over to what its values were made of."""


def read_behind(history: History, at: int) -> Iterator[Operand]:
    """Yield what a call reads, and what those read whose values came to it, a few calls back."""
    for one in (at, *history.flow.behind(at, most=MOST_BEHIND)):
        yield from history.events[one].reads


class Following:
    """What is given the values of what optimizers train."""

    def __init__(self, history: History) -> None:
        self._history = history
        operands = {one: history.operand_of(one) for one in history.held}
        self._trained = {
            history.flow.memory(one): tensor for tensor, one in operands.items() if one is not None
        }

    def source(self, write: int, tensor: int) -> int:
        """Return the trained parameter that a call gives a tensor its values of; -1 for none."""
        event, flow = self._history.events[write], self._history.flow
        if event.operation == "step":
            return -1
        own = {flow.memory(one) for one in event.writes}
        for one in read_behind(self._history, write):
            memory = flow.memory(one)
            if one.tensor != tensor and memory not in own and memory in self._trained:
                return self._trained[memory]
        return -1

    def followed(self, tensor: int) -> int:
        """Return the trained parameter that a tensor follows once passes have begun; -1: none."""
        history = self._history
        operand, first = history.operand_of(tensor), history.next_pass(-1)
        writes = () if operand is None else history.writes_to(operand, first)
        return next((one for at in writes if (one := self.source(at, tensor)) >= 0), -1)
