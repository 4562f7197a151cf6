"""Parts that a module which is to stand still has in common with the one that it is copied from.

A target network is copied from the network that trains, now and then, and is read in between as it
was. A part that is one object in both moves with each step of the optimizer. The line that copies
tells: it gives that part its own values, and the rest those of the other network.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from itertools import islice, pairwise
from typing import NamedTuple

from tether.analysis.history import History
from tether.facts import Event, Operand, SiteId
from tether.operations.table import operation

MOST_BACK = 16
"""Calls between a value and the tensors that it was computed from."""

MOST_WINDOWS = 8
"""Stretches between two changes that are looked into."""

MOST_CALLS = 4_000
"""Calls of one of them."""


class TwoOwners(NamedTuple):
    """A part of two modules, of which the one follows the other by copies."""

    shared: tuple[int, ...]  # parameters that both have, and that a step moves
    follower: int  # a parameter of the one that stands still between copies
    leader: int  # that it is copied from
    copies: tuple[int, ...]  # positions of the copies onto the follower, in order
    step: int  # moved what is shared
    read: int  # after it: computed with what is shared and with the follower

    @property
    def again(self) -> bool:
        """Whether the follower was copied again after the step: it was to move only then."""
        return self.copies[-1] > self.step


class _Written(NamedTuple):
    """What a line writes: tensors from others, and tensors from themselves."""

    others: dict[int, int]  # follower -> leader
    itself: dict[int, None]


def two_owners(history: History) -> Iterator[TwoOwners]:
    """Yield what was found, once for each line that copies."""
    for line in _lines(history).values():
        shared = tuple(one for one in line.itself if one in history.held)
        for follower, leader in line.others.items() if shared else ():
            found = _moved_between(history, shared, follower, leader, set(line.others.values()))
            if found is not None:
                yield found
                break


def _lines(history: History) -> dict[SiteId, _Written]:
    """Return the lines that write tensors from one other tensor, and what they write."""
    lines: dict[SiteId, _Written] = defaultdict(lambda: _Written({}, {}))
    if not history.steps:
        return lines
    for _, event in history.events.where(lambda name: name == "copy_" or operation(name).blends):
        if event.raised or len(event.reads) != 2 or not event.writes:
            continue
        target = _origins(history, event.reads[0])
        sources = _origins(history, event.reads[1])
        others = sources - target
        if len(target) == 1 and sources and len(others) < 2:
            line = lines[event.site]
            if others:
                line.others.setdefault(*target, *others)
            else:
                line.itself.update(dict.fromkeys(target))
    return lines


def _origins(history: History, value: Operand) -> set[int]:
    """Return the tensors that a value was computed from, element by element."""
    found, waiting = set[int](), [int(value.tensor)]
    for _ in range(MOST_BACK):
        if not waiting:
            return found
        tensor = waiting.pop()
        made = history.made_at(tensor)
        event = history.events[made] if made >= 0 else None
        if event is None or not _is_passing(event):
            found.add(tensor)
        else:
            waiting += [int(one.tensor) for one in event.reads]
    return set()


def _is_passing(event: Event) -> bool:
    """Whether a call gives the values of what it reads, or of each element a new one."""
    row = operation(event.operation)
    by_elements = row.outside or (row.pointwise and not row.random)
    return bool(by_elements and event.reads and event.results and not event.writes)


def _moved_between(
    history: History, shared: tuple[int, ...], follower: int, leader: int, leaders: set[int]
) -> TwoOwners | None:
    """Return a step that moved what is shared, and a later use of it along with the follower."""
    if follower in history.held or follower in history.had_gradient or leader not in history.held:
        return None
    copies = _copies(history, follower, leader)
    for one in shared if copies else ():
        steps = [at for at in _writes(history, one) if history.events[at].operation == "step"]
        windows = (each for each in _windows(history, steps, copies)
                   if _is_read(history, follower, *each[1:]))  # fmt: skip
        for step, since, until in islice(windows, MOST_WINDOWS):
            read = _together(history, since, until, (one, follower), leaders)
            if read is not None:
                return TwoOwners(shared, follower, leader, tuple(copies), step, read)
    return None


def _copies(history: History, follower: int, leader: int) -> list[int]:
    """Return the copies onto a tensor; none where it is also changed in another way since.

    What is blended may be scaled first.
    """
    writes = _writes(history, follower)
    found = [at for at in writes if _is_copy(history, at, leader)]
    sites = [history.site_of(history.events[at]) for at in found]
    lines, functions = {one[:2] for one in sites}, {one.scope for one in sites}
    for at in writes:
        event = history.events[at]
        site = history.site_of(event)
        scaled = len(event.reads) == 1 and site.scope in functions
        if found and at > found[0] and site[:2] not in lines and not scaled:
            return []
    return found


def _is_copy(history: History, at: int, leader: int) -> bool:
    event = history.events[at]
    return len(event.reads) == 2 and leader in _origins(history, event.reads[1])


def _writes(history: History, tensor: int) -> list[int]:
    operand = history.operand_of(tensor)
    return [] if operand is None else list(history.writes_to(operand))


def _is_read(history: History, tensor: int, since: int, until: int) -> bool:
    operand = history.operand_of(tensor)
    return operand is not None and any(history.readers(operand, since, until))


def _windows(
    history: History, steps: list[int], copies: list[int]
) -> Iterator[tuple[int, int, int]]:
    """Yield the last step before a stretch in which what is shared is ahead of what is copied.

    And where the stretch begins and ends. What is blended is behind at all times.
    """
    exact = all(_is_whole(history, at) for at in copies)
    changes = sorted({*steps, *copies, len(history.events)})
    stepped = set(steps)
    for since, until in pairwise(changes):
        before = bisect_right(steps, since)
        if since > copies[0] and before and (since in stepped or not exact):
            yield steps[before - 1], since, until


def _is_whole(history: History, at: int) -> bool:
    """Whether a copy gives a tensor the values of one other, and leaves nothing of its own."""
    event = history.events[at]
    return event.operation == "copy_" and len(_origins(history, event.reads[1])) == 1


def _together(
    history: History, since: int, until: int, pair: tuple[int, int], leaders: set[int]
) -> int | None:
    """Return the first call of a stretch that computes with both of two tensors.

    Not by way of a leader, which is what trains.
    """
    flow, events, last = history.flow, history.events, min(until, since + MOST_CALLS)
    reached: tuple[set[int], set[int]] = set(), set()
    for at in range(since + 1, last):
        event = events[at]
        read = {int(one.tensor) for one in event.reads}
        if not flow.carries[at] or not read.isdisjoint(leaders):
            continue
        sources = set(flow.edges.sources(at))
        by = [one in read or not sources.isdisjoint(some)
              for one, some in zip(pair, reached, strict=True)]  # fmt: skip
        if all(by) and not read.isdisjoint(pair):
            return at
        for one, some in zip(by, reached, strict=True):
            some.update([at] if one else [])
    return None
