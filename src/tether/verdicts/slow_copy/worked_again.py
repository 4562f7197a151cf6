"""The lines that compute again what they computed of the same operands: part of `slow-copy`.

Within a gradient graph too, where no bytes are compared: a parametrized weight that is built at
each time step, the keys of a memory that is attended to step by step.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Container, Iterator, Sequence
from functools import cached_property

from tether.analysis.copies.already_there import nbytes
from tether.analysis.copies.memory_lives import MemoryLives
from tether.analysis.gradients.graph import Graph
from tether.facts import UNKNOWN, Operand
from tether.verdicts.slow_copy.again import Repeats
from tether.verdicts.slow_copy.numbered import Line, Numbered
from tether.verdicts.slow_copy.on_device import LARGE, STEPS, Slow

SHARE = 10
"""Of all that the program's calls made: with less left out it is not a tenth faster."""

Pair = tuple[int, int]
"""Positions of a call, and of one that computed the same again."""


def worked_again(again: Repeats, known: Container[int]) -> Iterator[Slow]:
    """Give each function of which most runs computed what the run before had computed.

    What is computed of that alone belongs to it; told is the last of it, which meets what changed.
    Not where that is known already of one of its lines, by their sites.
    """
    work = _Work(again)
    by_function: dict[tuple[str, str], list[Line]] = defaultdict(list)
    for line in work.lines:
        site = again.history.site(line[0])
        by_function[site.scope].append(line)
    for lines in by_function.values():
        ends = [line for line in lines if work.meets_more(line)]
        total = sum(work.bytes(line) for line in lines)
        told = any(line[0] in known for line in lines)
        if ends and not told and total >= max(LARGE, work.numbered.bytes / SHARE):
            yield _slow(work, lines, max(ends, key=work.bytes), total)


class _Work:
    """The lines that computed the same again, and what became of it."""

    def __init__(self, again: Repeats) -> None:
        self.again = again
        self._history, self._events = again.history, again.lines.events
        self.numbered = again.history.get(Numbered)

    @cached_property
    def lines(self) -> dict[Line, list[Pair]]:
        """The lines of which most runs did the same again, with all of these."""
        found: dict[Line, list[Pair]] = {}
        for line, pairs in self.numbered.again.items():
            if self._mostly(line, pairs):
                same = [pair for pair in pairs if self._could_be_one(*pair)]
                if self._mostly(line, same):
                    found[line] = same
        return found

    def _mostly(self, line: Line, pairs: Sequence[Pair]) -> bool:
        return len(pairs) >= STEPS and 2 * len(pairs) > self.numbered.runs[line]

    def bytes(self, line: Line) -> int:
        """Return how many bytes a line made again."""
        return sum(nbytes(one) for _, at in self.lines[line] for one in self._events[at].results)

    def meets_more(self, line: Line) -> bool:
        """Whether what a line made is used with something that changed, each time."""
        return all(self._used_with_more(*pair) for pair in self.lines[line])

    def _used_with_more(self, before: int, at: int) -> bool:
        earlier = {(one.storage, one.version) for one in self._beside(before)}
        return any(
            (one.storage, one.version) not in earlier
            and self._history.made_at(one.tensor) not in self.numbered.repeats
            for one in self._beside(at)
        )

    def _beside(self, at: int) -> Iterator[Operand]:
        """Yield what the calls that used a result were given beside it."""
        for made in self._events[at].results:
            for user in self._history.on_storage(made):
                if user > at and user not in self.numbered.repeats:
                    reads = self._events[user].reads
                    yield from (one for one in reads if one.storage != made.storage)

    # -- whether one could stand for both --------------------------------------------------------

    def _could_be_one(self, before: int, at: int) -> bool:
        """Whether the earlier result could have been used again: nothing wrote either."""
        results = (*self._events[before].results, *self._events[at].results)
        if any(one.tensor in self._history.held for one in results):
            return False
        if any(True for one in results for _ in self._lives.written(one, before, math.inf)):
            return False
        if any(one.requires_grad for one in results) and not self._one_graph(before, at):
            return False
        given = self.numbered.given[at]
        return all(self._unwritten(one, before, at) for one in given)

    def _unwritten(self, operand: Operand, before: int, at: int) -> bool:
        shown = self._history.flow.memory(operand) in self._lives.exported
        if shown and self._history.arrays_unchecked:
            return False
        return not any(True for _ in self._lives.written(operand, before, at))

    def _one_graph(self, before: int, at: int) -> bool:
        """Whether no backward pass went through one of two calls without the other.

        What was saved for a backward pass is gone after it.
        """
        passes, graph = self._history.backwards, self._history.get(Graph)
        for one in passes[bisect_right(passes, before) :]:
            through = graph.behind(one)
            if before in through or at in through:
                return before in through and at in through
        return True

    @cached_property
    def _lives(self) -> MemoryLives:
        memory, pairs = self._history.flow.memory, self.numbered.again.values()
        both = {at for some in pairs for pair in some for at in pair}
        operands = [one for at in both for one in self._events[at].results]
        operands += [one for given in self.numbered.given.values() for one in given]
        return MemoryLives(self._history, {memory(one) for one in operands})


def _slow(work: _Work, lines: Sequence[Line], line: Line, total: int) -> Slow:
    """Say what one function computes again."""
    pairs = work.lines[line]
    names = list(dict.fromkeys(name for *_, name in lines))
    calls = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
    makes = "makes" if len(names) == 1 else "make"
    what = f"{calls} {makes} the same again of what nothing wrote, in {len(pairs):,} of"
    what += f" {work.numbered.runs[line]:,} runs, {total:,} bytes"
    fix = "Make it once for as long as nothing of it changes, and use that each time"
    inside = line[1] not in (UNKNOWN, line[0])
    fix += " (a parametrized weight: torch.nn.utils.parametrize.cached())." if inside else "."
    at = pairs[-1][1]
    return Slow(
        at, work.again.lines.events[at].results[0], len(pairs), total, None, "made", what, fix
    )
