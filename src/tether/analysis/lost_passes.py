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
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from tether.analysis.gradient_ends import GradientEnds
from tether.analysis.graph import Graph
from tether.analysis.history import History, following, latest
from tether.facts import UNKNOWN, SiteId
from tether.operations.table import operation

LEAST_STEPS = 2
"""Steps that must each have lost passes: one may be a retry."""

LEAST_PASSES = 2
"""Passes of a step that adds up: of steps that take one each, a pass without one is skipped."""


LEAST_SKIPPED = 3
"""Steps that a scaler must have left out, all with a part of a loss: the first few may be, until
its scale has fallen."""


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
    found = history.get(_Passes)
    lines: dict[SiteId, list[int]] = defaultdict(list)
    for at in history.backwards:
        event = history.events[at]
        if event.operation == "backward" and not event.raised:
            lines[event.site].append(at)
    for passes in lines.values():
        known = [at for at in passes if found.leaves(at)]
        if len(known) < LEAST_STEPS or len(lines) < 2:
            continue
        lost = [found.replaced(at) for at in known]
        first = lost[0]
        if first is not None and None not in lost:
            yield first._replace(times=len(passes))


class SkippedPart(NamedTuple):
    """A part of a loss of whose passes a gradient scaler let no step come."""

    call: int  # the last call of the part, in one of the passes
    backward: int
    rescaled: int  # the call of the scaler that came next
    times: int
    stepped: int  # passes without the part that a step came after
    meant: bool  # values of the pass were read before the part, or it may have been tried again


class _Window(NamedTuple):
    since: int  # the scaler's call before
    backward: int
    until: int  # the scaler's call after it
    stepped: bool


def skipped_parts(history: History) -> Iterator[SkippedPart]:
    """Yield what no step ever used, since the scaler left out each that was to."""
    windows = _windows(history)
    skipped = [number for number, one in enumerate(windows) if not one.stepped]
    others = len(windows) - len(skipped)
    if len(skipped) < LEAST_SKIPPED or others < LEAST_STEPS or history.in_part:
        return
    for calls in _parts(history, windows, skipped):
        number = list(calls)[1]  # before the first one, more may be read
        since, backward, until, _ = windows[number]
        first, last = min(calls[number]), max(calls[number])
        meant = _read(history, since, first) or _tried_again(history, windows, set(calls))
        yield SkippedPart(last, backward, until, len(calls), others, meant)


def _windows(history: History) -> list[_Window]:
    """Return the last pass before each call of a scaler, and whether a step came after it."""
    found, steps = list[_Window](), sorted(history.position(one.at) for one in history.steps)
    updates = [at for at, _ in history.events.where(lambda name: operation(name).rescales)]
    for since, until in pairwise([UNKNOWN, *updates]):
        backward = latest(history.backwards, until)
        if backward > since:
            found.append(_Window(since, backward, until, latest(steps, until) > since))
    return found


def _parts(
    history: History, windows: list[_Window], skipped: list[int]
) -> Iterator[dict[int, list[int]]]:
    """Yield calls with a graph that only skipped windows have, of lines that go together."""
    others = _lines(history, windows, set(skipped), inside=False)
    found: dict[SiteId, dict[int, int]] = defaultdict(dict)  # line -> window -> its last call
    for number in skipped:
        for at in sorted(history.get(Graph).behind(windows[number].backward)):
            if at > windows[number].since:
                found[history.events[at].site][number] = at
    groups: dict[tuple[int, ...], dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for site, calls in found.items():
        if site not in others and len(calls) >= LEAST_SKIPPED:
            for number, at in calls.items():
                groups[tuple(calls)][number].append(at)
    yield from groups.values()


def _lines(
    history: History, windows: list[_Window], numbers: set[int], *, inside: bool
) -> set[SiteId]:
    """Return the lines of calls with a graph that are in some windows, or outside of them all."""
    chosen = np.full(len(history.events), not inside)
    for number in numbers:
        chosen[windows[number].since + 1 : windows[number].until] = inside
    sites = history.events.column("site")[chosen & (history.events.column("kind") >= 0)]
    return set(map(SiteId, sites.tolist()))


def _read(history: History, since: int, until: int) -> bool:
    """Whether a value that was computed after a call was read before another one."""
    return any(
        operation(event.operation).leaves and history.made_at(one.tensor) > since
        for event in history.events[since + 1 : until]
        for one in event.reads
    )


def _tried_again(history: History, windows: list[_Window], numbers: set[int]) -> bool:
    """Whether steps right after those that were left out have lines that no others have."""
    after = {one + 1 for one in numbers if one + 1 < len(windows) and windows[one + 1].stepped}
    others = {number for number, one in enumerate(windows) if one.stepped} - after
    again = _lines(history, windows, after, inside=True)
    return not again <= _lines(history, windows, others, inside=True)


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
            gives = leaves is None or tensor in leaves
            # An optimizer that calls a closure uses each of its passes.
            gives = gives and self._history.inside(event, "closure") < 0
            if gives and event.operation == "backward" and not event.raised:
                found.setdefault(event.site, []).append(at)
        return found

    def leaves(self, at: int) -> list[int]:
        """Return the tensors that a pass gave a gradient, as far as that is known."""
        order = self._history.order
        return sorted(
            self._history.get(Graph).leaves(at) or (), key=lambda one: order.get(one, len(order))
        )

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
