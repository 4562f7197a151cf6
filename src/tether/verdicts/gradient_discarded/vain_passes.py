"""Passes in vain: whatever a line's passes give is cleared, each time, and nothing reads it before.

An evaluation by a helper that goes back through its loss, a pass that is left over from when its
gradients were still used: the program would train the same without it. Each pass of the line is
asked, for each leaf that it reaches: a saliency reads the gradient of its input, the pass of a
generator fills the gradients of a discriminator in passing. What a hook sees is read as well.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Container, Iterator
from typing import NamedTuple

import numpy as np

from tether.analysis.gradients.ends import GradientEnds
from tether.analysis.gradients.graph import Graph
from tether.analysis.history import History, following
from tether.facts import SiteId
from tether.finding import At, Claim, Repair, Step, Where, say
from tether.verdicts.gradient_discarded.other_uses import OtherUses

LEAST_STEPS = 2
"""Steps before which there were such passes: before the first one they may be there to try it."""

MOST_LINES = 3
"""Lines that clear and are named."""


class VainPasses(NamedTuple):
    """A line none of whose passes anything uses."""

    passes: tuple[int, ...]  # positions
    cleared: tuple[int, ...]  # of each pass the call that cleared it first; UNKNOWN: none did
    tensors: tuple[int, ...]  # that an optimizer holds, whose gradients these were


def vain_passes(history: History) -> Iterator[VainPasses]:
    """Yield such lines, of a program that trains what they give gradients to."""
    if history.in_part or not history.steps:
        return
    fates = _Fates(history)
    for passes in _lines(history):
        found = fates.of_line(passes)
        if found is not None:
            yield found


def _lines(history: History) -> Iterator[list[int]]:
    """Yield the calls of backward() of each line that leaves all that it gives in `.grad`.

    Not where hooks may have seen gradients, or code of the program's ran in a pass. If the program
    was stopped, what comes after its last step may have had a use.
    """
    lines, others = defaultdict[SiteId, list[int]](list), set[SiteId]()
    last = max(history.position(one.at) for one in history.steps)
    others_use = history.get(OtherUses)
    for at in history.backwards:
        event = history.events[at]
        if not _is_plain(history, at) or others_use.of(at):
            others.add(event.site)
        elif history.whole or at < last:
            lines[event.site].append(at)
    yield from (some for site, some in lines.items() if site not in others)


def _is_plain(history: History, at: int) -> bool:
    """Whether a pass adds to the gradients of leaves, and does no more."""
    event = history.events[at]
    plain = event.operation == "backward" and not event.raised and not event.create_graph
    inside = history.inside(event, "closure", "backward", "step")
    return plain and inside < 0 and not history.get(Graph).asked(at)


class _Fates:
    """What became of the gradients of passes."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._ends = history.get(GradientEnds)

    def of_line(self, passes: list[int]) -> VainPasses | None:
        """Return the passes of a line if all are in vain; None if one of them was used."""
        history, graph = self._history, self._history.get(Graph)
        known = [found for at in passes if (found := graph.leaves(at))]
        leaves = frozenset[int]().union(*known)
        held = [one for one in leaves & history.held if history.steps_of(one)]
        if not held or history.get(OtherUses).shows(leaves) or self._is_used(leaves, passes[0]):
            return None
        groups = self._alike(leaves)
        stepped = self._windows(held[0], passes)
        if stepped < LEAST_STEPS or any(self._is_used(groups, at) for at in passes):
            return None
        order = history.order
        held.sort(key=lambda one: order.get(one, len(order)))
        cleared = (following(history.gradients_replaced.get(held[0], []), at) for at in passes)
        return VainPasses(tuple(passes), tuple(cleared), tuple(held))

    def _windows(self, tensor: int, passes: list[int]) -> int:
        """Count the steps that come after passes, which had none between."""
        steps = self._history.steps_of(tensor)
        return len({bisect_right(steps, at) for at in passes} - {len(steps)})

    def _alike(self, leaves: frozenset[int]) -> frozenset[int]:
        """Return one of all leaves that the same calls step with, read and clear."""
        history, found = self._history, dict[object, int]()
        for one in leaves:
            calls = (self._ends.times(one), history.gradients_replaced.get(one, ()))
            found[tuple(history.holders_of(one)), *(np.array(some).tobytes() for some in calls)] = (
                one
            )
        return frozenset(found.values())

    def _is_used(self, leaves: frozenset[int], at: int) -> bool:
        """Whether a step, or a reader, comes before what a pass gave some leaf is cleared."""
        return any(self._is_used_of(one, at) for one in leaves)

    def _is_used_of(self, leaf: int, at: int) -> bool:
        end = self._ends.after(leaf, at)
        replaced = following(self._history.gradients_replaced.get(leaf, []), at)
        return end.uses and not 0 <= replaced < end.at


def claims(history: History, told: Container[Where]) -> Iterator[Claim]:
    """Give a note for each such line, unless it or the line that clears was told of."""
    for found in vain_passes(history):
        lines = {history.events[at].site: at for at in reversed(found.cleared) if at >= 0}
        sites = [history.events[found.passes[0]].site, *lines]
        if lines and not any(one in told for one in sites):
            yield _claim(history, found, list(reversed(lines)))


def _claim(history: History, found: VainPasses, cleared: list[SiteId]) -> Claim:
    loss = history.events[found.passes[0]].site
    return Claim(
        tensors=found.tensors,
        cause=("in vain", loss),
        site=loss,
        operation="backward",
        severity="note",
        message=say(
            "Nothing uses what backward at {loss} gives {subject}, in any of {n} passes: {here}"
            " clears it before a step, or anything else, reads it.",
            loss=At(loss), n=len(found.passes), here=At(cleared[0]),
        ),
        story=(
            Step("made", loss, say("backward fills the gradients")),
            *(Step("cleared", one, say("they are cleared here")) for one in cleared[:MOST_LINES]),
        ),
        repair=Repair(say("Leave this pass out; or, where it is to train, step before {here}.",
                          here=At(cleared[0]))),
        count=len(found.passes),
    )  # fmt: skip
