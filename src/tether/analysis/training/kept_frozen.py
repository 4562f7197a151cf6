"""Parameters that trained, were frozen, and that their optimizer has passed over ever since.

A freeze may be meant to last. What says that it is not: the text switches the same values on again,
beside the line that froze them, and nothing came of that; all that an optimizer holds is frozen,
and passes are made for its steps alone; or the freeze belongs to the loss of another optimizer,
each of whose passes came after it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from functools import cached_property
from itertools import islice, takewhile
from typing import NamedTuple

from tether.analysis.history import History, following, latest
from tether.analysis.surroundings import Surroundings, WaysThere
from tether.analysis.training.frozen import SWITCHES, switches_of
from tether.facts import GRAD_ON, UNKNOWN, Event, Gradients, OptimizerId, Site, SiteId, TensorId
from tether.source.switching import Stretch, Undoing, undoing

FEWEST = 2
"""Steps that pass over a tensor, each after a pass that computes with it, before it is told."""

_MOST_CALLS = 100_000
"""Calls after a freeze among which the one is looked for by which its block was left."""

_MOST_PASSES = 8
"""Passes of which it is asked whether they compute with a tensor."""

_GRADED = ("some", "unchecked")


class KeptFrozen(NamedTuple):
    """A tensor that trained until a line froze it, and what its optimizer did since."""

    tensor: TensorId
    frozen: int  # position of the call that froze it
    optimizer: OptimizerId
    step: int  # position of the last step that had a gradient of it
    before: int  # steps with one
    since: int  # and without, since it was frozen
    passed: int  # a pass since, that computes with it
    again: int  # times that the line froze what was frozen already
    undoing: Site | None  # that is to switch it on again, in the text
    alone: bool  # all that the optimizer holds is frozen, and passes are made for it alone
    other: int  # pass of another optimizer's loss that the freeze is for; -1: none

    @property
    def certain(self) -> bool:
        """Whether it was not to stay so."""
        return self.undoing is not None or self.alone or self.again >= FEWEST


class _Stepped(NamedTuple):
    """A tensor that an optimizer holds, and the calls that froze it last, in order."""

    tensor: TensorId
    optimizer: OptimizerId
    froze: list[int]


def kept_frozen(history: History) -> Iterator[KeptFrozen]:
    """Yield those of which something says that they were not to stay frozen."""
    yield from () if history.in_part else history.get(_Passed).found


class _Passed:
    def __init__(self, history: History) -> None:
        self._history = history
        self._events = history.events
        self._backwards = history.backwards
        self._undoings: dict[SiteId, tuple[Site | None, int]] = {}

    @cached_property
    def found(self) -> list[KeptFrozen]:
        found = (self._asked(one) for one in self._held())
        return [one for one in found if one is not None]

    @cached_property
    def _steps(self) -> dict[int, list[Gradients]]:
        found: dict[int, list[Gradients]] = defaultdict(list)
        for one in self._history.steps:
            found[one.optimizer].append(one)
        return found

    @cached_property
    def _stepped_by(self) -> dict[int, set[int]]:
        """For each pass the optimizers whose steps came right after it."""
        found: dict[int, set[int]] = defaultdict(set)
        for one in self._history.steps:
            found[self._pass_of(one)].add(int(one.optimizer))
        return found

    def _held(self) -> Iterator[_Stepped]:
        """Yield what ended frozen after its optimizer had stepped it."""
        for tensor, switches in switches_of(self._history).items():
            if self._history.trained.get(tensor, set()).isdisjoint(_GRADED):
                continue
            off = takewhile(lambda at: not self._events[at].on, reversed(switches))
            froze = list(off)[::-1]
            for number in self._history.holders_of(tensor) if froze else ():
                yield _Stepped(tensor, OptimizerId(number), froze)

    def _asked(self, held: _Stepped) -> KeptFrozen | None:
        before, since = self._graded(held)
        if not before or not self._moved(held):
            return None
        passes = [self._pass_of(one) for one in since]
        own = {self._events[self._pass_of(one)].site for one in before if self._pass_of(one) >= 0}
        back, left = self._undoing(held.froze[0])
        used = self._used(held, own, passes, left) if back is not None else []
        if len(used) < FEWEST:
            back, used = None, self._used(held, own, passes, held.froze[0])
        if len(used) < FEWEST:
            return None
        other = self._other(held, own)
        told = KeptFrozen(
            held.tensor, held.froze[0], held.optimizer, self._at(before[-1]), len(before),
            len(since), used[0], self._rounds(held, since) if other >= 0 else 0, back,
            self._alone(held, since, used), other,
        )  # fmt: skip
        return told if told.certain or other >= 0 else None

    def _used(self, held: _Stepped, own: set[SiteId], passes: list[int], after: int) -> list[int]:
        """Return the first passes after a call, made where its own were, that compute with it."""
        there = (at for at in passes if at > after and self._events[at].site in own)
        asked = (at for at in islice(there, _MOST_PASSES) if self._computed_with(held, at))
        return list(islice(asked, FEWEST))

    def _graded(self, held: _Stepped) -> tuple[list[Gradients], list[Gradients]]:
        """Return the steps that had a gradient, before the freeze, and those since it.

        Nothing where one since had a gradient all the same: the program gave it.
        """
        steps = [one for one in self._steps[held.optimizer] if held.tensor in one.status]
        before = [one for one in steps if self._at(one) < held.froze[0]]
        since = steps[len(before) :]
        if any(one.status[held.tensor] in _GRADED for one in since):
            return [], []
        return [one for one in before if one.status[held.tensor] in _GRADED], since

    def _at(self, step: Gradients) -> int:
        return self._history.position(step.at)

    def _pass_of(self, step: Gradients) -> int:
        return latest(self._backwards, self._at(step))

    def _moved(self, held: _Stepped) -> bool:
        """Whether steps moved it, as far as that was looked at, and none since it was frozen."""
        looks = [
            (self._history.position(one.at), one.status[held.tensor])
            for one in self._history.trace.movements
            if one.moment == "step" and held.tensor in one.status
        ]
        moved = [at for at, status in looks if status == "moved"]
        return not (looks and not moved) and all(at < held.froze[0] for at in moved)

    def _computed_with(self, held: _Stepped, at: int) -> bool:
        """Whether calls read a tensor, with gradients on, since it was frozen and before a pass."""
        operand = self._history.operand_of(held.tensor)
        since = max(latest(self._backwards, at), held.froze[0])
        readers = self._history.readers(operand, since, at) if operand is not None else ()
        return any(self._computes(self._events[one]) for one in readers)

    def _computes(self, event: Event) -> bool:
        return event.operation not in SWITCHES and event.grad_mode == GRAD_ON

    # -- what says that it was not to stay so ----------------------------------------------------

    def _alone(self, held: _Stepped, since: list[Gradients], used: list[int]) -> bool:
        """Whether nothing that the optimizer holds has a gradient, and passes are its own."""
        if any(status in _GRADED for one in since for status in one.status.values()):
            return False
        return all(self._stepped_by[at] == {held.optimizer} for at in used)

    def _other(self, held: _Stepped, own: set[SiteId]) -> int:
        """Return the pass that the first freeze came before, if it is for another optimizer's loss.

        The loss goes through the tensor, and no pass of its line came before the freeze.
        """
        at = following(self._backwards, held.froze[0])
        line = self._events[at].site if at >= 0 else UNKNOWN
        holders = set(self._history.holders_of(held.tensor))
        steppers = self._stepped_by.get(at, set())
        if at < 0 or line in own or not steppers or not steppers.isdisjoint(holders):
            return UNKNOWN
        if any(self._events[one].site == line for one in takewhile(at.__gt__, self._backwards)):
            return UNKNOWN
        return at if self._computed_with(held, at) else UNKNOWN

    def _rounds(self, held: _Stepped, since: list[Gradients]) -> int:
        """Count how often the line froze it again, each time after a step more had passed over."""
        line, steps = self._events[held.froze[0]].site, [self._at(one) for one in since]
        again = [at for at in held.froze[1:] if self._events[at].site == line]
        return len({latest(steps, at) for at in again} - {UNKNOWN})

    def _undoing(self, frozen: int) -> tuple[Site | None, int]:
        """Return the text's line that was to switch on again, and when it had been passed."""
        line = self._events[frozen].site
        if line not in self._undoings:
            found = next(self._ways_back(frozen), None)
            self._undoings[line] = found or (None, UNKNOWN)
        return self._undoings[line]

    def _ways_back(self, frozen: int) -> Iterator[tuple[Site, int]]:
        """Yield such lines that came to nothing: of the function that froze, and of its callers."""
        history = self._history
        sites = [history.site(one) for one in self._lines(frozen)]
        for number, site in enumerate(sites):
            found = undoing(history.get(Surroundings).source(site.file), site)
            if found is None:
                continue
            frame = next(
                (one for one in sites[number:] if not one.function.endswith("comp>")), site
            )
            left = self._left(frozen, frame, found)
            if left >= 0 and not self._acted(frozen, frame, found.undone):
                yield found.site, left

    def _lines(self, at: int) -> tuple[SiteId, ...]:
        return (self._events[at].site, *self._history.get(WaysThere).above(at))

    def _in(self, at: int, frame: Site) -> list[int]:
        """Return the lines at which a call was reached in a function."""
        sites = map(self._history.site, self._lines(at))
        return [one.line for one in sites if _function(one) == _function(frame)]

    def _left(self, frozen: int, frame: Site, found: Undoing) -> int:
        """Return the first call by which the statement that undoes had been passed; -1: none."""
        first, last = found.switched, found.undone
        until = min(len(self._events), frozen + _MOST_CALLS)
        for at in range(frozen + 1, until):
            lines = self._in(at, frame)
            if not lines and not found.waits and self._whole(at):
                return at
            if any(_is_past(line, first, last) for line in lines):
                return at
        return UNKNOWN

    def _whole(self, at: int) -> bool:
        """Whether the lines by which a call was reached are known, up to the program's first."""
        return self._history.site(self._lines(at)[-1]).function == "<module>"

    def _acted(self, frozen: int, frame: Site, lines: Stretch) -> bool:
        """Whether a statement has switched anything on since a freeze."""
        return any(
            lines.first <= line <= lines.last
            for at, event in self._events.where(SWITCHES.__contains__)
            if at > frozen and event.on
            for line in self._in(at, frame)
        )


def _function(site: Site) -> tuple[str, str, int]:
    return site.definition


def _is_past(line: int, switched: Stretch, undone: Stretch) -> bool:
    """Whether a line of a function runs after a switch off only once the switch on has been passed.

    A block runs from its first statement to its last.
    """
    if undone.first > switched.first:
        return line > undone.last or line < switched.first
    return undone.last < line < switched.first
