"""Tensors whose gradients the program gives to other tensors, for an optimizer to step those."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from tether.analysis.history import History
from tether.facts import UNKNOWN
from tether.finding import CallOf, Step, say

MOST_CALLS = 64
"""Calls that a gradient is followed back through, to the tensor whose it was."""


class Handed:
    """Whose gradients became those of which other tensors."""

    def __init__(self, history: History) -> None:
        self._history = history
        self.to: dict[int, int] = {}  # a tensor -> the one that was first given its gradient
        given: set[int] = set()
        for at, event in history.events.where("grad.__set__".__eq__):
            if len(event.reads) != 2:
                continue
            taker = event.reads[0].tensor
            if taker in history.held and taker not in given:
                given.add(taker)
                for owner in self._owners(at):
                    self.to.setdefault(owner, taker)

    def _owners(self, at: int) -> Iterator[int]:
        """Yield the tensors whose gradients went into the one that a call sets."""
        events = self._history.events
        waiting = [int(events[at].reads[1].tensor)]
        for _ in range(MOST_CALLS):
            if not waiting:
                return
            made = self._history.made_at(waiting.pop())
            if made < 0:
                continue
            read = [int(one.tensor) for one in events[made].reads]
            if events[made].operation == "grad.__get__":
                yield read[0]
            else:
                waiting += read

    def story(self, taker: int) -> Iterator[Step]:
        """Yield what became of a tensor that was given another's gradient."""
        history, steps = self._history, self._history.steps_of(taker)
        made = history.made_at(taker)
        if made >= 0:
            said = say("what is given the gradient is made here")
            yield Step("made", history.events[made].site, said)
        if steps:
            site = history.events[steps[0]].site
            yield Step("step", site, say("this step changes what was given the gradient"))
            until = steps[1] if len(steps) > 1 else len(history.events)
            yield from self._dropped(taker, steps[0] + 1, until)

    def _dropped(self, tensor: int, first: int, until: int) -> Iterator[Step]:
        """Yield the first call on a tensor's new values whose result nothing uses."""
        reached = {tensor}
        for at in range(first, until):
            event = self._history.events[at]
            if event.writes or not any(one.tensor in reached for one in event.reads):
                continue
            made = {int(one.tensor) for one in event.results}
            if event.site != UNKNOWN and made and not made & self._read:
                said = say("nothing uses what {call} makes of it here", call=CallOf(at))
                yield Step("dropped", event.site, said)
                return
            reached |= made

    @cached_property
    def _read(self) -> set[int]:
        return {int(one.tensor) for event in self._history.events for one in event.reads}
