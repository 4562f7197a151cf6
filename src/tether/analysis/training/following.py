"""Parameters that the program gives the values of trained ones, as a target network follows."""

from __future__ import annotations

from tether.analysis.history import History

MOST_BEHIND = 16
"""Calls before a write that are gone back over to what it writes."""


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
        calls = [write, *flow.behind(write, most=MOST_BEHIND)]
        own = {flow.memory(one) for one in event.writes}
        for at in calls:
            for one in self._history.events[at].reads:
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
