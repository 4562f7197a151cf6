"""Parameters that were frozen, and that a line let train again which was to undo another freeze.

A line freezes all there is for a while, and finds some of it frozen already; another line switches
on again what the first had switched off, and that as well. Both did so in one round: what the two
lines switched off and on shows that they belong together, and what was computed in between that the
freeze was for a while.

Nothing is said where another line, too, switches on what was frozen, since that may be the one that
is to; nor where the line had passed over it before, since then it decides what is to train.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

from tether.analysis.history import History
from tether.analysis.surroundings import WaysThere
from tether.analysis.training.frozen import switches_of, used_between
from tether.facts import UNKNOWN, Gradients, SiteId, TensorId

_Way = tuple[SiteId, ...]  # a call's line and those above it
_GRADED = ("some", "unchecked")


class Unfrozen(NamedTuple):
    """Tensors that a line was to leave frozen; lines, and a step that moved them."""

    tensors: tuple[int, ...]
    frozen: SiteId
    off: SiteId  # that froze all for a while, and found them frozen
    on: SiteId  # that was to undo this
    call: int  # position of the call of that line
    others: int  # tensors that both lines switched, in that round
    step: SiteId


class _Round(NamedTuple):
    """When a tensor was frozen, met by what freezes again, and let go; positions."""

    tensor: TensorId
    frozen: int
    off: int  # the last call that found it frozen; -1: none did
    on: int


class _WithOther(NamedTuple):
    """Such a tensor, with one that both lines switched, and the first step that moved it."""

    round: _Round
    other: _Round
    step: Gradients


def unfrozen(history: History) -> Iterator[Unfrozen]:
    """Yield them by the three lines."""
    if not history.in_part and history.steps:
        yield from history.get(_Rounds).found()


class _Rounds:
    """The rounds of switching off and on again, of each tensor."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._switches = switches_of(history)
        self._met: list[_Round] = []  # the first of each tensor since it was frozen
        self._plain: dict[tuple[SiteId, SiteId], list[_Round]] = defaultdict(list)
        for tensor, switches in self._switches.items():
            for one in self._of(tensor, switches):
                if one.off >= 0:
                    self._met.append(one)
                else:
                    self._plain[self._site(one.frozen), self._site(one.on)].append(one)
        for some in self._plain.values():
            some.sort(key=lambda one: one.on)

    def found(self) -> Iterator[Unfrozen]:
        groups: dict[tuple[SiteId, ...], list[_WithOther]] = defaultdict(list)
        for one in self._met:
            passed = self._passed(one)
            if passed is not None:
                groups[self._lines(one)].append(passed)
        for (frozen, off, on), some in groups.items():
            first = some[0]
            yield Unfrozen(
                tuple(one.round.tensor for one in some), frozen, off, on, first.round.on,
                self._alike(first.other), first.step.site,
            )  # fmt: skip

    def _of(self, tensor: TensorId, switches: Sequence[int]) -> Iterator[_Round]:
        frozen = off = UNKNOWN
        for at in switches:
            event = self._history.events[at]
            was_on = event.reads[0].requires_grad
            if event.on and not was_on and frozen >= 0:
                yield _Round(tensor, frozen, off, at)
                frozen = off = UNKNOWN
            elif not event.on and was_on:
                frozen, off = at, UNKNOWN
            elif not event.on and frozen >= 0:
                off = at

    def _site(self, at: int) -> SiteId:
        return self._history.events[at].site

    def _way(self, at: int) -> _Way:
        return (self._site(at), *self._history.get(WaysThere).above(at))

    def _depth(self, one: _Round) -> int:
        """Return how far above the three calls their lines are no longer the same; -1: nowhere.

        One function may switch for all: then it is told apart by who calls it.
        """
        ways = [self._way(at) for at in (one.frozen, one.off, one.on)]
        apart = (len(set(lines)) == len(ways) for lines in zip(*ways, strict=False))
        return next((depth for depth, differ in enumerate(apart) if differ), UNKNOWN)

    def _lines(self, one: _Round) -> tuple[SiteId, ...]:
        depth = self._depth(one)
        return tuple(self._way(at)[depth] for at in (one.frozen, one.off, one.on))

    # -- what shows that a line was to undo another ------------------------------------------------

    def _passed(self, one: _Round) -> _WithOther | None:
        """Return a tensor with what shows that it was to stay frozen, if something does."""
        depth = self._depth(one)
        if depth == UNKNOWN or not self._is_meant(one, depth):
            return None
        step, other = self._moved(one), self._other(one, depth)
        if step is None or other is None or self._passes_over(one, other):
            return None
        used = any(
            used_between(self._history, each.off if each.off >= 0 else each.frozen, each.on)
            for each in (one, other)
        )
        return _WithOther(one, other, step) if used else None

    def _is_meant(self, one: _Round, depth: int) -> bool:
        """Whether it was frozen before it trained, or for steps, and no other line lets it go."""
        switched = self._switches[one.tensor]
        later = [at for at in switched if at > one.frozen and self._history.events[at].on]
        if any(not self._is_one_line(at, one.on, depth) for at in later):
            return False
        stepped = any(one.frozen < at < one.off for at in self._steps)
        return stepped or all(at > one.frozen for at, _ in self._graded(one.tensor))

    def _other(self, one: _Round, depth: int) -> _Round | None:
        """Return what both lines switched in the round, and found as the other had left it."""
        some = self._plain.get((self._site(one.off), self._site(one.on)), [])
        place = bisect_left(some, one.on, key=lambda each: each.on)
        for each in some[max(place - 1, 0) : place + 1]:
            together = each.frozen < one.on and each.on > one.off
            alike = self._is_one_line(each.frozen, one.off, depth)
            if together and alike and self._is_one_line(each.on, one.on, depth):
                return each
        return None

    def _is_one_line(self, at: int, other: int, depth: int) -> bool:
        """Whether one line made two calls, or reached them from so many functions above."""
        return self._way(at)[: depth + 1] == self._way(other)[: depth + 1]

    def _passes_over(self, one: _Round, other: _Round) -> bool:
        """Whether the line that lets go had run since the freeze, and left the tensor frozen."""
        line = self._site(one.on)
        return any(
            self._history.events[at].on and self._site(at) == line
            for at in self._switches[other.tensor]
            if one.frozen < at < one.off
        )

    def _alike(self, other: _Round) -> int:
        """Count what the two lines switched in one round."""
        some = self._plain[self._site(other.frozen), self._site(other.on)]
        return sum(one.frozen < other.on and one.on > other.frozen for one in some)

    # -- whom a step moves -------------------------------------------------------------------------

    @cached_property
    def _steps(self) -> list[int]:
        return [self._history.position(one.at) for one in self._history.steps]

    def _graded(self, tensor: TensorId) -> Iterator[tuple[int, Gradients]]:
        """Yield the steps that had a gradient of a tensor."""
        for at, fact in zip(self._steps, self._history.steps, strict=True):
            if fact.status.get(tensor) in _GRADED:
                yield at, fact

    def _moved(self, one: _Round) -> Gradients | None:
        """Return the first step with a gradient after a tensor was let go, if steps moved it."""
        tensor = one.tensor
        first = next((each for at, each in self._graded(tensor) if at > one.on), None)
        new = all(at > one.frozen for at, _ in self._graded(tensor))
        moved = any(
            each.status.get(tensor) == "moved" and (new or each.moment == "step")
            for each in self._history.trace.movements
            if self._history.position(each.at) > one.on
        )
        return first if moved else None
