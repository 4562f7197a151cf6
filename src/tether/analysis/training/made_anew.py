"""Parameters that are made anew before each backward pass: they get a gradient, and are gone.

The line to speak of is the one that makes the module: above all constructors. Whether it was meant
is asked of what stands around it. A layer that was forgotten is a part of the model, wherever it
runs. A random change of the data comes before all that trains, and the model goes without it at
times, or its values are drawn by the program itself.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import starmap
from typing import NamedTuple, TypeVar

import numpy as np

from tether.analysis.history import History
from tether.analysis.surroundings import WaysThere
from tether.facts import UNKNOWN, Event
from tether.operations.table import operation

_Item = TypeVar("_Item")

MOST_ASKED = 8
"""Parameters of a line, and calls of another, of which each is asked; of more, first and last."""

MOST_BEHIND = 1000
"""Calls before one that are looked at."""


class MadeAnew(NamedTuple):
    """A line that makes parameters anew."""

    site: int  # that makes what has them
    lines: tuple[int, ...]  # that make the parameters themselves, within constructors
    passes: int  # before so many backward passes
    without: int  # the line of trained values that ran without them, too; UNKNOWN: none
    drawn: int  # the line at which the program gave them values; UNKNOWN: none
    first: bool  # what they are joined with comes from nothing that trains

    @property
    def deliberate(self) -> bool:
        """Whether they may well be a random change of the data."""
        return self.first and (self.without >= 0 or self.drawn >= 0)


class LinesAnew:
    """The lines that made parameters which got a gradient, no optimizer held, and are gone."""

    def __init__(self, history: History) -> None:
        self._history = history
        self.lines: dict[int, dict[int, None]] = defaultdict(dict)
        self.gone: dict[int, dict[int, int]] = defaultdict(dict)  # tensor -> where it was made
        self.passes: dict[int, set[int]] = defaultdict(set)
        self._rest: dict[int, dict[int, int]] = defaultdict(dict)
        for tensor in sorted(history.had_gradient - history.held) if history.steps else ():
            at = history.made_at(tensor)
            if at < 0 or history.trace.tensors[tensor].kind == "Tensor":
                continue
            event, line = history.events[at], _outside(history, at)
            self.passes[line].add(bisect_left(history.backwards, at))
            if not operation(event.operation).wraps:
                continue
            if _is_gone(history, tensor, at):
                self.lines[line][event.site] = None
                self.gone[line][tensor] = at
            else:
                self._rest[line][tensor] = at

    @cached_property
    def left(self) -> dict[int, int]:
        """Parameters that live on, of lines which make them anew before each pass, by line.

        What a call made last lives as long as its loss does; and a name may show what it made.
        """
        found: dict[int, int] = {}
        for line, tensors in self._rest.items():
            if line in self.gone and all(starmap(self._is_of_one_pass, tensors.items())):
                found |= dict.fromkeys(tensors, line)
        return found

    def _is_of_one_pass(self, tensor: int, at: int) -> bool:
        """Whether no second pass came after a parameter was read."""
        history = self._history
        passes = history.backwards[bisect_left(history.backwards, at) :]
        return len(passes) < 2 or not any(one > passes[0] for one in history.reads_of(tensor))


def made_anew(history: History) -> Iterator[MadeAnew]:
    """Yield the lines that make parameters anew before several passes."""
    found = history.get(LinesAnew)
    for line, tensors in found.gone.items():
        before = {bisect_left(history.backwards, at) for at in tensors.values()}
        if line >= 0 and len(before) > 1:
            inside = tuple(one for one in found.lines[line] if one != line)
            meant, passes = _Meant(history, tensors), len(found.passes[line])
            yield MadeAnew(line, inside, passes, meant.without(), meant.drawn(), meant.first())


def _is_gone(history: History, tensor: int, at: int) -> bool:
    """Whether nothing but the next making of such a tensor came after its backward pass."""
    operand = history.operand_of(tensor)
    if history.names_of(tensor) or tensor in history.asked or _of_trained_values(history, at):
        return False
    if operand is None or history.trace.tensors[tensor].died == UNKNOWN:
        return False
    after = next((one for one in history.backwards if one > at), len(history.events))
    return not any(
        later > after and any(one.tensor == tensor for one in history.events[later].reads)
        for later in history.on_storage(operand)
    )


def _of_trained_values(history: History, at: int) -> bool:
    """Whether a parameter was made of another's values: a copy, told as a cut if it is one."""
    return any(
        edge.operand is not None and edge.operand.requires_grad
        for one in (*history.flow.behind(at, most=MOST_BEHIND), at)
        for edge in history.flow.edges[one]
    )


def _outside(history: History, at: int) -> int:
    """Return the nearest line above the making of a parameter that is in no constructor."""
    own = history.events[at].site
    ways = (own, *history.get(WaysThere).above(at))
    return next((one for one in ways if not _constructs(history, one)), own)


class _Meant:
    """What speaks for parameters that were made anew on purpose."""

    def __init__(self, history: History, tensors: dict[int, int]) -> None:
        self._history = history
        self._made = tensors
        self._lines = {history.events[at].site for at in tensors.values()}
        self._asked = dict(_ends(list(tensors.items())))

    def first(self) -> bool:
        """Whether what they are joined with comes from nothing that an optimizer holds."""
        uses, flow = list(self._first_uses()), self._history.flow
        return bool(uses) and not any(
            edge.operand is not None and edge.operand.tensor in self._history.held
            for use in uses
            for one in (use, *flow.behind(use, most=MOST_BEHIND))
            for edge in flow.edges[one]
        )

    def drawn(self) -> int:
        """Return the line, beside those that make them, at which they get values; -1: none."""
        history = self._history
        for tensor, at in self._asked.items():
            operand, own = history.operand_of(tensor), history.events[at].site
            for write in history.writes_to(operand, at) if operand is not None else ():
                site = history.events[write].site
                if site != own and not _constructs(history, site):
                    return int(site)
        return UNKNOWN

    def without(self) -> int:
        """Return a line that computes with what trains after them, and also without them."""
        history = self._history
        for use in self._first_uses():
            after = self._first_trained(use)
            if after >= 0 and any(not self._reach(at) for at in self._alike(after)):
                return int(history.events[after].site)
        return UNKNOWN

    def _first_uses(self) -> Iterator[int]:
        """Yield the calls that first compute with them, for a gradient."""
        for tensor, at in self._asked.items():
            operand = self._history.operand_of(tensor)
            for use in self._history.readers(operand, at) if operand is not None else ():
                if _computes(self._history.events[use]):
                    yield use
                    break

    def _first_trained(self, use: int) -> int:
        """Return the first call before a backward pass that joins what they gave with trained."""
        history, reached = self._history, {use}
        for at in range(use + 1, history.next_pass(use)):
            if not reached.isdisjoint(history.flow.edges.sources(at)):
                reached.add(at)
                if any(one.tensor in history.held for one in history.events[at].reads):
                    return at
        return UNKNOWN

    def _alike(self, at: int) -> Iterable[int]:
        """Return calls made where one was, above all those before which none of them was made."""
        events, wanted = self._history.events, self._history.events[at]
        same = np.flatnonzero(
            (events.column("site") == wanted.site) & (events.column("inner") == wanted.inner)
        )
        calls = [one for one, event in events.at(same) if event.operation == wanted.operation]
        made = sorted(self._made.values())
        alone = [
            call
            for before, call in zip([UNKNOWN, *calls], calls, strict=False)
            if bisect_left(made, before) == bisect_left(made, call)
        ]
        return _ends(alone)

    def _reach(self, at: int) -> bool:
        """Whether they have a part in what a call computed with, as far as can be told."""
        behind = self._history.flow.behind(at, most=MOST_BEHIND)
        return len(behind) >= MOST_BEHIND - 1 or any(
            map(self._reads, (self._history.events[one] for one in behind))
        )

    def _reads(self, event: Event) -> bool:
        return any(one.tensor in self._made or self._made_there(one.tensor) for one in event.reads)

    def _made_there(self, tensor: int) -> bool:
        """Whether a line of theirs made a tensor, for no optimizer: it may have no gradient."""
        at = self._history.made_at(tensor) if tensor not in self._history.held else UNKNOWN
        return at >= 0 and self._history.events[at].site in self._lines


def _constructs(history: History, site: int) -> bool:
    return "__init__" in history.site(site).function.split(".")


def _computes(event: Event) -> bool:
    """Whether a call makes of what it reads something that gradients come back from."""
    return not event.writes and any(one.requires_grad for one in event.results)


def _ends(some: list[_Item]) -> list[_Item]:
    """Return the first and the last of a list, where it is long."""
    half = MOST_ASKED // 2
    return some if len(some) <= MOST_ASKED else [*some[:half], *some[-half:]]
