"""Passes that no step uses: all but the last of one line, or all of a line that another replaces.

A pass is lost when what it gave a parameter was cleared before the last pass of its line before a
step, no optimizer stepped between them and nobody read the gradient. Where the last pass is used,
the others were to count as well. Where no pass of a line is ever used, for none
of the tensors that it reaches, and a pass of another line fills their gradients before each step,
the steps follow another loss than that line's. Where each step takes the gradients of several
passes, those that an epoch has left over, too few for a step, may be cleared at the next. The
window may go on over that: then each step has its passes, and some use a part of them alone.

A gradient scaler leaves out a step whose gradients are not finite. A part of a loss that is there
in such passes alone, as a term of every sixteenth, is lost with them.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Container, Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

from tether.analysis.gradients.ends import GradientEnds
from tether.analysis.gradients.graph import Graph
from tether.analysis.history import History, following
from tether.facts import UNKNOWN, SiteId
from tether.finding import At, Claim, Repair, Step, Where, say
from tether.verdicts.gradient_discarded.other_uses import OtherUses

LEAST_STEPS = 2
"""Steps that must each have lost passes: one may be a retry."""

LEAST_PASSES = 2
"""Passes of a step that adds up: of steps that take one each, a pass without one is skipped."""


class LostPasses(NamedTuple):
    """A line with backward passes that were cleared before a step used them."""

    backward: int  # a pass that was lost
    cleared: int  # the call that cleared it
    step: int  # the next step
    tensors: tuple[int, ...]  # whose gradients
    lost: int
    passes: int  # of that line, between the steps


def lost_passes(history: History) -> Iterator[LostPasses]:
    """Yield the lines of which every step used the last of several passes alone."""
    found = history.get(_Passes)
    for tensors, steps, groups in found.by_step():
        lost = [found.cleared(tensors[0], some) for some in groups]
        if len(lost) < LEAST_STEPS or not all(lost):
            continue
        if all(found.is_the_last(tensors[0], some[-1]) for some in groups):
            first = lost[0][0]
            step = steps[bisect_right(steps, first[1])]
            count = sum(map(len, lost))
            yield LostPasses(*first, step, tensors, count, count + len(lost))


class LeftOverPasses(NamedTuple):
    """A line whose passes add up for a step, but for some that are cleared between."""

    backward: int  # the first that was lost
    cleared: int  # the call that cleared it
    step: int  # the next step
    tensors: tuple[int, ...]  # whose gradients
    lost: int
    times: int  # how often some were lost
    full: int  # passes that each step takes, or has
    within: bool  # the window of a step goes on over the clearing


def left_over_passes(history: History) -> Iterator[LeftOverPasses]:
    """Yield the lines that lose fewer passes than a step takes, several times."""
    found = history.get(_Passes)
    for tensors, steps, groups in found.by_step():
        windows = [found.left_over(tensors[0], some) for some in groups]
        used = {len(kept) for _, _, kept in windows}
        short = [(lost, clear) for lost, clear, _ in windows if lost]
        within = len(used) > 1
        if len(short) < LEAST_STEPS or (within and not found.have_as_many(tensors[0], groups)):
            continue
        full = len(groups[0]) if within else max(used)
        lost = [len(some) for some, _ in short]
        if full >= LEAST_PASSES and max(lost) < full:
            (first, *_), cleared = short[0]
            step = steps[bisect_right(steps, cleared)]
            yield LeftOverPasses(first, cleared, step, tensors, sum(lost), len(lost), full, within)


class OtherPasses(NamedTuple):
    """A line whose backward passes are all cleared, and made good for by those of another."""

    backward: int  # its first pass
    cleared: int
    instead: int  # the pass whose gradients the step used
    step: int
    tensors: tuple[int, ...]
    times: int


def replaced_passes(history: History) -> Iterator[OtherPasses]:
    """Yield the lines of which no pass was used, and another line's were in their place."""
    found, uses = history.get(_Passes), history.get(OtherUses)
    lines: dict[SiteId, list[int]] = defaultdict(list)
    for at in history.backwards:
        event = history.events[at]
        if event.operation == "backward" and not event.raised:
            lines[event.site].append(at)
    for passes in lines.values() if len(lines) > 1 else ():
        first = found.all_replaced(passes)
        if first is not None and not uses.shows({*first.tensors}):
            yield first._replace(times=len(passes))


def _between(passes: Sequence[int], steps: Sequence[int]) -> list[list[int]]:
    """Return the passes before each step that has some, after the step before."""
    groups: dict[int, list[int]] = defaultdict(list)
    for at in passes:
        groups[bisect_right(steps, at)].append(at)
    groups.pop(len(steps), None)  # no step came after them
    return list(groups.values())


class _Passes:
    def __init__(self, history: History) -> None:
        self._history = history
        self._steps = sorted(history.position(one.at) for one in history.steps)
        self._ends = history.get(GradientEnds)

    def alike(self) -> Iterator[list[int]]:
        """Yield the tensors that the same optimizers hold and the same calls clear."""
        groups: dict[object, list[int]] = defaultdict(list)
        history = self._history
        for tensor in sorted(history.held, key=lambda one: history.order.get(one, 0)):
            ends = array("q", self._ends.times(tensor))
            cleared = any(self._ends.clears[at] for at in ends)
            if len(history.steps_of(tensor)) >= LEAST_STEPS and cleared:
                groups[tuple(history.holders_of(tensor)), ends.tobytes()].append(tensor)
        yield from groups.values()

    def by_step(self) -> Iterator[tuple[tuple[int, ...], list[int], list[list[int]]]]:
        """Yield tensors that are alike, their steps, and the passes of each line before each."""
        for tensors in self.alike():
            steps = self._history.steps_of(tensors[0])
            for passes in self.by_line(tensors[0]).values():
                yield tuple(tensors), steps, _between(passes, steps)

    def by_line(self, tensor: int) -> dict[SiteId, list[int]]:
        """Return the passes that gave a tensor a gradient, as far as that is known, by line."""
        graph, found = self._history.get(Graph), dict[SiteId, list[int]]()
        for at in self._history.while_alive(tensor, self._history.backwards):
            leaves, event = graph.leaves(at), self._history.events[at]
            gives = tensor in (self._always_reached[event.site] if leaves is None else leaves)
            # An optimizer that calls a closure uses each of its passes.
            gives = gives and self._history.inside(event, "closure") < 0
            if gives and event.operation == "backward" and not event.raised:
                found.setdefault(event.site, []).append(at)
        return found

    def leaves(self, at: int) -> list[int]:
        """Return the tensors that a pass gave a gradient, as far as that is known."""
        order, leaves = self._history.order, self._history.get(Graph).leaves(at)
        if leaves is None:
            leaves = frozenset(self._always_reached[self._history.events[at].site])
        return sorted(leaves, key=lambda one: order.get(one, len(order)))

    def all_replaced(self, passes: Sequence[int]) -> OtherPasses | None:
        """Return what became of the first pass of a line, if none of its passes had a use."""
        known = [at for at in passes if self.leaves(at)]
        if len(known) < LEAST_STEPS or any(map(self._history.get(OtherUses).of, passes)):
            return None
        first = self.replaced(known[0])
        return first if all(self.replaced(at) for at in known) else None

    def replaced(self, at: int) -> OtherPasses | None:
        """Return what became of a pass whose gradients were all cleared; None if one was used."""
        history, leaves = self._history, self.leaves(at)
        found: OtherPasses | None = None
        for tensor in leaves:
            cleared = following(self._ends.times(tensor), at)
            step = following(history.steps_of(tensor), at)
            if not at < cleared < step or not self._ends.clears[cleared]:
                return None
            instead = bisect_right(history.backwards, cleared)
            by = history.backwards[instead] if instead < len(history.backwards) else step
            if by >= step or history.events[by].site == history.events[at].site:
                return None
            found = found or OtherPasses(at, cleared, by, step, tuple(leaves), 0)
        return found

    def left_over(self, tensor: int, passes: Sequence[int]) -> tuple[list[int], int, list[int]]:
        """Return the passes that were cleared unread before a step, the call, and the others."""
        clears, times = self._ends.clears, self._ends.times(tensor)
        inside = times[bisect_right(times, passes[0]) : bisect_left(times, passes[-1])]
        clear = inside[-1] if inside else UNKNOWN
        lost = [at for at in passes if at < clear]
        stepped = bisect_right(self._steps, passes[0]) < bisect_right(self._steps, clear)
        if not all(clears[at] for at in inside) or (lost and stepped):
            return [], UNKNOWN, list(passes)
        return lost, clear, [at for at in passes if at > clear]

    def is_the_last(self, tensor: int, at: int) -> bool:
        """Whether no line with passes that reach a tensor has one between a pass and its step."""
        events, passes = self._history.events, self._history.backwards
        step = following(self._history.steps_of(tensor), at)
        between = passes[bisect_right(passes, at) : bisect_left(passes, step)]
        others = {events[one].site for one in between} - {events[at].site}
        return not any(tensor in self._reached[site] for site in others)

    @cached_property
    def _always_reached(self) -> dict[SiteId, set[int]]:
        """By line, the tensors that each of its passes that are known gave a gradient."""
        graph, found = self._history.get(Graph), dict[SiteId, set[int]]()
        for at in self._history.backwards:
            leaves, site = graph.leaves(at), self._history.events[at].site
            if leaves is not None:
                found[site] = found[site] & leaves if site in found else set(leaves)
        return defaultdict(set, found)

    @cached_property
    def _reached(self) -> dict[SiteId, set[int]]:
        """By line, the tensors that one of its passes is known to have given a gradient."""
        graph, found = self._history.get(Graph), defaultdict[SiteId, set[int]](set)
        for at in self._history.backwards:
            found[self._history.events[at].site] |= graph.leaves(at) or frozenset()
        return found

    def have_as_many(self, tensor: int, groups: Sequence[Sequence[int]]) -> bool:
        """Whether each step has the same number of passes, and uses the last of them."""
        uses = all(self._ends.after(tensor, passes[-1]).uses for passes in groups)
        return uses and len({len(passes) for passes in groups}) == 1

    def cleared(self, tensor: int, passes: Sequence[int]) -> list[tuple[int, int]]:
        """Return each pass but the last with the call that cleared it; none if one was kept."""
        clears, times = self._ends.clears, self._ends.times(tensor)
        *firsts, last = passes
        if bisect_right(self._steps, passes[0]) < bisect_right(self._steps, last):
            return []
        found = [(first, following(times, first)) for first in firsts]
        kept = any(not first < after < last or not clears[after] for first, after in found)
        return [] if kept else found


def claims(history: History, told: Container[Where]) -> Iterator[Claim]:
    """Give one claim for each such line that was not told of."""
    for lost in lost_passes(history):
        if history.events[lost.cleared].site not in told:
            yield _only_the_last(history, lost)
    for left in left_over_passes(history):
        yield _left_over(history, left)
    for other in replaced_passes(history):
        if history.events[other.cleared].site not in told:
            yield _replaced(history, other)


def _only_the_last(history: History, lost: LostPasses) -> Claim:
    events = history.events
    loss, cleared, step = (events[at].site for at in (lost.backward, lost.cleared, lost.step))
    return Claim(
        tensors=lost.tensors,
        cause=("passes", loss, cleared),
        site=cleared,
        calls=(lost.cleared,),
        operation=events[lost.cleared].operation,
        message=say(
            "{n} of {all} passes of backward at {loss} are lost to {subject}: {here} clears what"
            " they gave before the step at {step} uses it, so each step uses the last pass alone.",
            n=lost.lost, all=lost.passes, loss=At(loss), here=At(cleared), step=At(step),
        ),
        story=(
            Step("made", loss, say("backward fills the gradient, several times for each step")),
            Step("cleared", cleared, say("it is cleared here before the last pass")),
            Step("step", step, say("the optimizer steps with what the last pass gave")),
        ),
        repair=Repair(say("Clear gradients once for each step: right after it, or before the first"
                          " of its passes.")),
        count=0,
    )  # fmt: skip


_LEFT_OVER = (
    "Each step at {step} takes the gradients of {full} passes of backward at {loss}. {n} more"
    " passes were left over, {times} times too few for a step, and {here} clears what they gave to"
    " {subject}: no step uses it."
)


_CUT_SHORT = (
    "Each step at {step} has {full} passes of backward at {loss} before it, and {times} of the"
    " steps use a part of them alone: {here} clears what {n} passes gave to {subject} before the"
    " step that counts them."
)


def _left_over(history: History, lost: LeftOverPasses) -> Claim:
    events = history.events
    loss, cleared, step = (events[at].site for at in (lost.backward, lost.cleared, lost.step))
    return Claim(
        tensors=lost.tensors,
        cause=("left over", loss, cleared),
        site=cleared,
        calls=(lost.cleared,),
        operation=events[lost.cleared].operation,
        severity="note",
        message=say(
            _CUT_SHORT if lost.within else _LEFT_OVER,
            step=At(step), full=lost.full, loss=At(loss), n=lost.lost, times=lost.times,
            here=At(cleared),
        ),
        story=(
            Step("made", loss, say("backward adds to the gradient")),
            Step("cleared", cleared, say("it is cleared here, and no step came between")),
            Step("step", step, say("the next step goes by later passes alone")),
        ),
        repair=Repair(say("Clear gradients right after each step and nowhere else; or step with"
                          " what is left over before it is cleared, and count anew.")
                      if lost.within else
                      say("Step once more at the end of an epoch with what is left over, or clear"
                          " gradients right after each step and nowhere else.")),
        count=0,
    )  # fmt: skip


def _replaced(history: History, lost: OtherPasses) -> Claim:
    events = history.events
    loss, cleared, instead, step = (
        events[at].site for at in (lost.backward, lost.cleared, lost.instead, lost.step)
    )
    return Claim(
        tensors=lost.tensors,
        cause=("replaced", loss, cleared),
        site=cleared,
        calls=(lost.cleared,),
        operation=events[lost.cleared].operation,
        message=say(
            "What backward at {loss} gives {subject} is used by no step, in any of {n} passes:"
            " {here} clears it, and {step} steps with what backward at {instead} gives.",
            loss=At(loss), here=At(cleared), step=At(step), instead=At(instead), n=lost.times,
        ),
        story=(
            Step("made", loss, say("backward fills the gradient")),
            Step("cleared", cleared, say("it is cleared here")),
            Step("made", instead, say("another backward pass fills it")),
            Step("step", step, say("the optimizer steps with what the other pass gave")),
        ),
        repair=Repair(
            say("Ask for the other gradients with torch.autograd.grad, which leaves `.grad` alone,"
                " or before the pass at {loss}.", loss=At(loss))
        ),
        count=lost.times,
    )  # fmt: skip
