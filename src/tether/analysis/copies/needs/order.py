"""Whether a gradient would be added up in another order without a copy."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from tether.analysis.copies.already_there import Copied
from tether.analysis.copies.needs.answers import WhyNeeded
from tether.analysis.copies.needs.index import FAR, CopyIndex
from tether.analysis.copies.needs.words import CopyQuestion


class GradientOrder(CopyQuestion):
    """The reads of a copy and its source through which gradients come back."""

    def __init__(self, index: CopyIndex) -> None:
        super().__init__(index)
        self._nodes_of: dict[int, list[int]] = {}

    def reason(self, copied: Copied) -> WhyNeeded | None:
        """Ask for sums of gradients: three parts or more, added in another order, round anew."""
        if not copied.copy.requires_grad:
            return None
        parts = [
            self._in_graph(one.tensor, copied.position) for one in (copied.source, copied.copy)
        ]
        if min(parts) and sum(parts) > 2:
            text = f"without it the gradient of {self._words.source(copied)}"
            return WhyNeeded("unknown", f"{text} is added up in another order")
        return None

    def _in_graph(self, tensor: int, but: int) -> int:
        """Count the reads of a tensor that made nodes, without those of one event.

        Nor those by which the same line reads it for other passes, or that no pass came after.
        """
        found = self._nodes_of.get(tensor)
        if found is None:
            events = self._history.events
            found = [at for at in self._index.reads[tensor] if events[at].kind >= 0]
            self._nodes_of[tensor] = found
        others = len(found) - (bisect_right(found, but) - bisect_left(found, but))
        return sum(self._may_join(at, but) for at in found) if 0 < others <= FAR else others

    def _may_join(self, at: int, position: int) -> bool:
        """Whether the gradient by another call may be added to that by one."""
        events, history = self._history.events, self._history
        alike = (events[at].site, events[at].inner) == (
            events[position].site, events[position].inner,
        )  # fmt: skip
        passed = history.next_pass(at)
        apart = passed == len(events) or (alike and passed != history.next_pass(position))
        return at != position and not apart
