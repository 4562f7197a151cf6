"""Who has what a definition made once, and who of them computes with it.

A default that trains is told of for sure where two objects use it, each along with parameters of
its own: each was made to be a whole by itself.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

from tether.analysis.history import History
from tether.analysis.surroundings import WaysThere
from tether.facts import MadeOnce, Site
from tether.source.names import steps_in

MOST_CALLS = 20_000
"""Calls before a step that are looked through."""


class Owner(NamedTuple):
    """An object that has what a definition made, or what that object is a part of."""

    name: str
    own: tuple[int, ...]  # parameters that no other owner has


def moved_at(history: History, tensor: int) -> list[int]:
    """Return the steps that wrote a tensor."""
    return [
        at for at in history.steps_of(tensor)
        if any(one.tensor == tensor for one in history.events[at].writes)
    ]  # fmt: skip


def owners_of(history: History, fact: MadeOnce) -> list[Owner]:
    """Return the owners that are known by name, each with parameters of its own."""
    wholes = [_whole(path, fact.owners) for path in fact.owners]
    inside: dict[str, dict[int, None]] = {one: {} for one in wholes}
    for name in history.trace.names:
        for one in wholes:
            if name.module and name.name.startswith((f"{one}.", f"{one}[")):
                inside[one][name.tensor] = None
    times: dict[int, int] = defaultdict(int)
    for tensor in (tensor for some in inside.values() for tensor in some):
        times[tensor] += 1
    return [
        Owner(path, tuple(one for one in inside[whole] if times[one] == 1))
        for path, whole in zip(fact.owners, wholes, strict=True)
    ]  # fmt: skip


def _whole(path: str, paths: Sequence[str]) -> str:
    """Return as much of a path as tells it apart from the others: ``a`` of ``a.head``, ``b.head``.

    What is around an owner and around no other one is the owner's alone.
    """
    steps, others = steps_in(path), [steps_in(one) for one in paths if one != path]
    for count in range(1, len(steps)):
        if all(one[:count] != steps[:count] for one in others):
            return "".join(steps[:count])
    return path


def is_used_by_two(history: History, shared: Sequence[int], owners: Sequence[Owner]) -> bool:
    """Whether two owners compute with what they share, each along with parameters of its own.

    Between two steps: each use of one tensor counts for one owner.
    """
    if sum(1 for one in owners if one.own) < 2:
        return False
    return any(_is_used_by_two(history, one, owners) for one in shared[:2])


def _is_used_by_two(history: History, shared: int, owners: Sequence[Owner]) -> bool:
    steps = moved_at(history, shared)
    since = max(steps[-2] if len(steps) > 1 else 0, steps[-1] - MOST_CALLS)
    uses = _UsesOfShared(history, shared, owners)
    for at in range(since, steps[-1]):
        if history.flow.carries[at]:
            uses.follow(at)
    pairs = combinations(uses.found.values(), 2)
    return any(a != b for one, other in pairs for a in one for b in other)


class _UsesOfShared:
    """The calls that read what is shared, each with the owners beside it in the flow.

    The last one whose own parameters its values came from, and the first one that takes them on.
    """

    def __init__(self, history: History, shared: int, owners: Sequence[Owner]) -> None:
        self._history = history
        self._shared = shared
        self._of = {tensor: number for number, one in enumerate(owners) for tensor in one.own}
        self._near: dict[int, tuple[int, int]] = {}  # call -> last own one behind it, its owner
        self._waiting: dict[int, set[int]] = {}  # call -> uses behind it that no owner took on
        self.found: dict[int, set[int]] = {}

    def follow(self, at: int) -> None:
        """Go on to the next call."""
        sources = self._history.flow.edges.sources(at)
        read = {int(one.tensor) for one in self._history.events[at].reads}
        behind = max((self._near[one] for one in sources if one in self._near), default=None)
        waiting = set[int]().union(*(self._waiting.get(one, ()) for one in sources))
        if self._shared in read:
            self.found[at] = set() if behind is None else {behind[1]}
            waiting.add(at)
        own = {self._of[one] for one in read if one in self._of}
        for use in waiting:
            self.found[use] |= own
        self._waiting[at] = set() if own else waiting
        if own:
            behind = at, max(own)
        if behind is not None:
            self._near[at] = behind


def made_within(history: History, tensor: int, place: Site) -> bool:
    """Whether a tensor was made by what stands at a place."""
    lines = range(place.line, (place.end_line or place.line) + 1)
    way = history.get(WaysThere).of_what_made(tensor)
    return any(one.file == place.file and one.line in lines for one in way)


def made_at(history: History, owners: Sequence[Owner]) -> list[tuple[Owner, Site]]:
    """Return the lines that made owners, where each has one that no other owner came by."""
    there = history.get(WaysThere)
    ways = [there.of_what_made(one.own[0]) if one.own else [] for one in owners]
    found: list[tuple[Owner, Site]] = []
    for number, (owner, way) in enumerate(zip(owners, ways, strict=True)):
        others = {site for at, one in enumerate(ways) if at != number for site in one}
        apart = next((site for site in way if site not in others), None)
        if apart is not None:
            found.append((owner, apart))
    return found
