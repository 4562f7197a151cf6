"""Memory that lives on unused: a line that ran many times made it, and each run left its own.

A block is idle at a moment when it is alive and no call touches it from then on. A line leaves idle
memory when, as it runs for the last time, that of its earlier runs is still there and idle: what a
program reads later, or what a backward pass goes back through, is not.

What a program reads after a pause, as a replay memory that it draws from, it may read after as long
a pause again: what counts is what lies unused for longer than the line's memory ever did before it
was read.

The layers of a network, which one line may call all, are parts of one pass: what they leave is
there until it ends. So what counts is in how many passes before the last one something was left.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from tether.analysis.copies.blocks import Blocks
from tether.analysis.gradients.graph import Graph
from tether.analysis.history import History
from tether.analysis.surroundings import Surroundings
from tether.facts import UNKNOWN, Event, Site, SiteId
from tether.operations.table import operation
from tether.source.loops import comprehension_at
from tether.store.lives import tensors_of
from tether.store.numbers import Numbers

LEAST_RUNS = 8
"""Runs of a line whose memory is left: fewer are what a program keeps at hand."""

LEAST_TIMES = 3
"""Times that they came to the line: a comprehension's runs, with no other line between, are one."""

LEAST_BYTES = 1 << 20
"""Bytes from which it is more than a note, and from which it is told where no graph has it."""

LEAST_IN_GRAPHS = 64 << 10
"""Bytes of graphs that are worth a note: each batch more brings as much again."""


class Idle(NamedTuple):
    """What the runs of one line left."""

    site: SiteId
    made: tuple[int, ...]  # positions of the calls that made it
    nbytes: int
    graph: bool  # these calls are part of a gradient graph, and nothing outside it holds the memory
    kept: tuple[int, ...]  # positions of the calls that made the tensors which hold it
    more: bool  # than the line had had at one time before: else it took the place of as much


class _Left(NamedTuple):
    memory: int
    made: int
    nbytes: int
    freed: int  # position; past the last event: alive


class _Uses(NamedTuple):
    """When memory was used, by its number."""

    last: dict[int, int]  # the position of the last call
    pauses: dict[int, int]  # the longest time between two, in calls


class IdleMemory:
    """All of it, the line with the most first. Empty for a program that did not finish."""

    def __init__(self, history: History) -> None:
        self._history = history
        self.all: list[Idle] = []
        if history.whole:
            found = [one for one in self._found() if one.graph or one.nbytes >= LEAST_BYTES]
            self.all = sorted(found, key=lambda one: -one.nbytes)

    def _lines(self) -> list[list[_Left]]:
        """Return the memory that the calls of each line made, where what is left of it weighs."""
        history, blocks = self._history, self._history.get(Blocks)
        made, memories = self._first_made()
        line = blocks.lines(memories)
        nbytes = _of_rows(blocks.nbytes, line, otherwise=0)
        freed = _of_rows(blocks.freed, line, otherwise=UNKNOWN)
        lines = history.lines[made]
        last = _last_by_number(lines, made)
        left = freed > last[lines]  # with the last one itself: what weighs is looked at again
        counts = np.bincount(lines[left], minlength=len(last))
        total = np.bincount(lines[left], nbytes[left], len(last))
        weighs = ((counts >= LEAST_RUNS) & (total >= LEAST_IN_GRAPHS))[lines]
        found: dict[int, list[_Left]] = defaultdict(list)
        columns = (one[weighs].tolist() for one in (lines, memories, made, nbytes, freed))
        for number, *block in zip(*columns, strict=True):
            found[number].append(_Left(*block))
        return [some for some in found.values() if _weighs(_left(some))]

    def _first_made(self) -> tuple[Numbers, Numbers]:
        """Return the calls that made memory, in order, and this memory.

        Memory that a call before had, or this one was given, it did not make; nor what is kept.
        """
        history, events = self._history, self._history.events
        given_at, given = events.touched("reads")
        makes = events.column("results")[given_at] > 0
        made_at, rows = events.touched("results")
        numbers = history.memories - history.memories.min(initial=0)  # from 0 on
        count = int(numbers.max(initial=0)) + 1
        given_first = _first_by_number(numbers[given[makes]], given_at[makes], count, len(events))
        made_first = _first_by_number(numbers[rows], np.arange(len(rows)), count, UNKNOWN)
        first = np.sort(made_first[made_first != UNKNOWN])
        first = first[made_at[first] < given_first[numbers[rows[first]]]]
        own = ~np.isin(events.operands.column("tensor")[rows[first]], list(_kept(history)))
        return made_at[first[own]], history.memories[rows[first[own]]]

    def _found(self) -> Iterator[Idle]:
        history = self._history
        lines = self._lines()
        if not lines:
            return
        blocks, passes = list(itertools.chain.from_iterable(lines)), _PassesOfLines(history)
        uses, living = self._uses(blocks), self._living(blocks)
        for some in lines:
            last = some[-1].made
            pause = _longest_pause([uses.pauses[one.memory] for one in some])
            idle = [one for one in _left(some) if last - uses.last[one.memory] > pause]
            event = history.events[last]
            inside = history.inside(event, "backward", "step") >= 0
            if not inside and self._is_leak(some, idle, passes):
                yield self._told(event, idle, living, more=_is_more(some, idle))

    def _is_leak(self, all_: list[_Left], idle: list[_Left], passes: _PassesOfLines) -> bool:
        """Whether the runs of a line left what lies idle, one after the other."""
        if not _weighs(idle) or not _run_after_run(all_, idle) or self._times(idle) < LEAST_TIMES:
            return False
        return passes.runs([one.made for one in all_], {one.made for one in idle}) >= LEAST_RUNS

    def _times(self, idle: list[_Left]) -> int:
        """Count the runs of a line, as `runs_apart` tells them apart."""
        return 1 + max(runs_apart(self._history, [one.made for one in idle]))

    def _told(
        self, event: Event, idle: list[_Left], living: dict[int, list[int]], *, more: bool
    ) -> Idle:
        kept = tuple(at for one in idle for at in living.get(one.memory, ()))
        made, nbytes = tuple(one.made for one in idle), sum(one.nbytes for one in idle)
        return Idle(event.site, made, nbytes, self._by_graph(idle, living), kept, more)

    def _by_graph(self, idle: list[_Left], living: dict[int, list[int]]) -> bool:
        """Whether a graph holds what is left, and not tensors outside of it.

        The last runs' results may be held by variables besides: what counts is what is held by
        nothing that stands outside.
        """
        has_graph = self._history.get(Graph).kind
        inside = [one for one in idle if all(map(has_graph, living.get(one.memory, ())))]
        return _weighs(inside) and any(has_graph(one.made) for one in inside)

    def _living(self, blocks: list[_Left]) -> dict[int, list[int]]:
        """Return memory -> the calls that made the tensors which show it as long as it lives."""
        freed = {one.memory: one.freed for one in blocks}
        history, memory = self._history, self._history.flow.memory
        found: dict[int, list[int]] = defaultdict(list)
        events, rows = history.events.touched("results")
        of_these = np.isin(history.memories[rows], list(freed))
        for at, row in zip(events[of_these].tolist(), rows[of_these].tolist(), strict=True):
            one = history.events.operands[row]
            life = history.trace.tensors.get(one.tensor)
            if life is None or history.made_at(one.tensor) != at:
                continue
            end = len(history.events) + 1 if life.died < 0 else history.position(life.died)
            if end >= freed[memory(one)]:
                found[memory(one)].append(at)
        return found

    def _uses(self, blocks: list[_Left]) -> _Uses:
        """Find for each memory the calls that touched it, or may have."""
        history = self._history
        last = {one.memory: UNKNOWN for one in blocks}
        pauses = dict.fromkeys(last, 0)
        events, rows = history.events.touched()
        touched = history.memories[rows]
        of_these = np.isin(touched, list(last))
        for at, number in zip(events[of_these].tolist(), touched[of_these].tolist(), strict=True):
            before, last[number] = last[number], at
            pauses[number] = max(pauses[number], at - before if before >= 0 else 0)
        for number, at in itertools.chain(self._by_passes(), self._by_arrays()):
            if number in last:
                last[number] = max(last[number], at)
        return _Uses(last, pauses)

    def _by_passes(self) -> Iterator[tuple[int, int]]:
        """Yield each memory that a backward pass goes back through, and the pass."""
        history = self._history
        used = history.get(Graph).last_pass
        events, rows = history.events.touched("reads", "results")
        passes = np.asarray(used)[events]
        pairs = np.unique(np.stack([history.memories[rows], passes], axis=1)[passes >= 0], axis=0)
        yield from map(tuple, pairs.tolist())

    def _by_arrays(self) -> Iterator[tuple[int, int]]:
        """Yield each memory that an array shows, and its end: what reads an array is not heard."""
        history, memory = self._history, self._history.flow.memory
        for fact in history.trace.arrays:
            at = history.position(fact.event)
            end = len(history.events) if fact.released < 0 else history.position(fact.released)
            if 0 <= at < len(history.events):
                yield from ((memory(one), end) for one in history.events[at].reads)


def runs_apart(history: History, made: Sequence[int]) -> list[int]:
    """Return for calls of one line, in order, the number of its run in which each was made.

    What a comprehension makes is made in one run, if no other line's calls lie in between. So is
    what a library's call makes that copies a model, and with it each of its tensors once.
    """
    events, memory = history.events, history.flow.memory
    event = events[made[0]]
    line = history.site_of(event)
    copies = bool(operation(event.operation).copies) and event.inner not in (UNKNOWN, event.site)
    source = history.get(Surroundings).source(line.file)
    if not copies and comprehension_at(source, line) is None:
        return list(range(len(made)))
    runs, seen = list[int](), set[int]()
    for before, at in itertools.pairwise([made[0], *made]):
        between = (history.site_of(events[one]).row for one in range(before + 1, at))
        copied = {memory(one) for one in events[at].reads if copies}
        anew = not seen.isdisjoint(copied) or any(row != line.row for row in between)
        seen = copied if anew else seen | copied
        runs.append((runs[-1] if runs else 0) + anew)
    return runs


class _PassesOfLines:
    """Where parameters and buffers are used: what runs of a line are in one pass of a network."""

    def __init__(self, history: History) -> None:
        parts = {int(one.tensor) for one in history.trace.names if one.module} | _kept(history)
        at, rows = history.events.touched("reads")
        tensors = history.events.operands.column("tensor")[rows]
        of_these = np.isin(tensors, list(parts))
        self._at: list[int] = at[of_these].tolist()
        self._used: list[int] = tensors[of_these].tolist()

    def runs(self, all_: list[int], some: set[int]) -> int:
        """Count the passes in which some of all calls of a line were made, without the last one.

        Between two calls of one pass something of a module's is used that the pass had not used.
        """
        number, found, seen, before = 0, set[int](), set[int](), UNKNOWN
        for at in all_:
            used = set(self._used[bisect_right(self._at, before) : bisect_right(self._at, at)])
            if used <= seen:
                number, seen = number + 1, used
            seen |= used
            before = at
            if at in some:
                found.add(number)
        return len(found - {number})


def _of_rows(values: Numbers, rows: Numbers, *, otherwise: int) -> Numbers:
    """Return the values in some rows of a table; of a row before the first one `otherwise`."""
    found = np.full(len(rows), otherwise, np.int64)
    found[rows >= 0] = values[rows[rows >= 0]]
    return found


def _last_by_number(numbers: Numbers, values: Numbers) -> Numbers:
    """Return for each number the last of the values that stand beside it."""
    found = np.full(int(numbers.max(initial=0)) + 1, UNKNOWN)
    found[numbers] = values  # NumPy keeps the last one that is assigned
    return found


def _first_by_number(numbers: Numbers, values: Numbers, count: int, otherwise: int) -> Numbers:
    """Return for each number below `count` the first of the values that stand beside it."""
    found = np.full(count, otherwise, np.int64)
    found[numbers[::-1]] = values[::-1]
    return found


def _kept(history: History) -> set[int]:
    """Return the tensors that are a model's own: they are there to be there."""
    lives = tensors_of(history.trace.tensors)
    plain = [number for number, word in lives.names.words.items() if word == "Tensor"]
    own = lives.column("serial")[~np.isin(lives.column("kind"), plain)]
    return history.held.union(own.tolist())


def _left(blocks: list[_Left]) -> list[_Left]:
    """Return the blocks that are there as the last one of their line is made."""
    return [one for one in blocks[:-1] if one.freed > blocks[-1].made]


def _is_more(all_: list[_Left], idle: list[_Left]) -> bool:
    """Whether fewer blocks of a line were there when the first of some was made.

    What a round of a program makes and the next one replaces is there once, however many rounds.
    """
    first = idle[0].made
    return sum(one.made < first < one.freed for one in all_) < len(idle)


def _longest_pause(pauses: list[int]) -> int:
    """Return after how many calls what a line made may be read again: some of it was."""
    return sorted(pauses)[-LEAST_TIMES] if len(pauses) >= LEAST_TIMES else 0


def _run_after_run(all_: list[_Left], idle: list[_Left]) -> bool:
    """Whether what is left was left all the time: some by each quarter of the runs it came from.

    What variables hold of the last turn of a loop, and of the last turn of another, is no leak.
    """
    first, last = (
        next(n for n, one in enumerate(all_) if one is end) for end in (idle[0], idle[-1])
    )
    left = {one.memory for one in idle}
    runs = [one.memory in left for one in all_[first : last + 1]]
    bounds = [len(runs) * n // 4 for n in range(5)]
    return all(any(runs[a:b]) for a, b in itertools.pairwise(bounds))


def _weighs(blocks: list[_Left]) -> bool:
    total = sum(one.nbytes for one in blocks)
    return len(blocks) >= LEAST_RUNS and total >= LEAST_IN_GRAPHS


def outlive(history: History, site: Site) -> set[str]:
    """Return what a function calls tensors of its own of which many are alive at one time."""
    made: dict[str, list[int]] = defaultdict(list)
    for at, event in enumerate(history.events):
        here = history.site_of(event)
        if here.scope == site.scope and here.target:
            made[here.target].extend(at for _ in event.results)
    return {name for name, times in made.items() if _alive(history, times) >= LEAST_RUNS}


def _alive(history: History, times: list[int]) -> int:
    """Count the tensors of a name that are there when the last of them is made."""
    tensors = {one.tensor for at in times for one in history.events[at].results}
    died = (history.trace.tensors[one].died for one in tensors if one in history.trace.tensors)
    return sum(one == UNKNOWN or history.position(one) > times[-1] for one in died)
