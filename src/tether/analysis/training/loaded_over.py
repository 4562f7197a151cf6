"""Loaded parameters over which other values are written, before a pass or after the first step.

An optimizer that steps copies of a model's parameters, of a higher precision, writes them back
after each step. Where the model loads a state after the copies were made, and nothing brings the
loaded values to the copies, the first step writes the old ones over them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Hashable, Iterator
from typing import NamedTuple

from tether.analysis.history import History, following
from tether.analysis.surroundings import WaysThere
from tether.analysis.training.from_itself import LOADS
from tether.facts import UNKNOWN, Event, Operand, Site, SiteId
from tether.operations.table import operation


class LoadedUnused(NamedTuple):
    """A line that loads what others overwrite unread: positions."""

    loaded: int
    written: tuple[int, ...]  # one for each of the lines, which are of one function
    tensors: tuple[int, ...]


def loaded_unused(history: History) -> Iterator[LoadedUnused]:
    """Yield the lines that overwrite loaded values with computed ones, before anything read them.

    Constants and draws begin a part anew, which may well be meant, as may what a library writes.
    """
    found: dict[Hashable, list[LoadedUnused]] = defaultdict(list)
    for loaded, target in () if history.in_part else _first_loads(history):
        later = (at for at in history.on_storage(target) if at > loaded)
        then = next((at for at in later if not history.events[at].shows(target)), UNKNOWN)
        if then >= 0 and _replaces(history, then, target):
            key = history.events[loaded].site, _by_whom(history, then)
            found[key].append(LoadedUnused(loaded, (then,), (int(target.tensor),)))
    for some in found.values():
        lines = {history.events[at].site: at for one in reversed(some) for at in one.written}
        yield some[0]._replace(
            written=tuple(sorted(lines.values())),
            tensors=tuple(tensor for one in some for tensor in one.tensors),
        )


def _by_whom(history: History, at: int) -> Hashable:
    """Return the function that makes a call; of what stands in none the line."""
    site = history.site_of(history.events[at])
    inside = site.function not in ("", "<module>")
    return site.scope if inside else history.events[at].site


def gives_others(history: History, at: int, target: Operand) -> bool:
    """Whether a call gives a tensor the values of another memory."""
    event, memory = history.events[at], history.flow.memory
    others = any(memory(one) != memory(target) for one in event.reads)
    return operation(event.operation).overwrites and others


def _replaces(history: History, at: int, target: Operand) -> bool:
    """Whether a line of the program's own gives all of a tensor values that were computed."""
    event = history.events[at]
    whole = any((one.offset, one.shape) == target[3:5] for one in event.writes)
    if event.inner not in (UNKNOWN, event.site) or not whole:
        return False
    return gives_others(history, at, target) and not _is_drawn(history, at)


def _is_drawn(history: History, at: int) -> bool:
    """Whether all that a call writes was drawn in the same run of its function: noise made anew."""
    event = history.events[at]
    written = {history.flow.memory(one) for one in event.writes}
    values = [one for one in event.reads if history.flow.memory(one) not in written]
    makers = [history.made_at(one.tensor) for one in values]
    if min(makers, default=UNKNOWN) < 0:
        return False
    behind = {one for made in makers for one in (made, *history.flow.behind(made))}
    site = history.site_of(event)
    return (
        site.function != "<module>"
        and any(operation(history.events[one].operation).random for one in behind)
        and all(_is_within(history, one, site) for one in behind)
    )


def _is_within(history: History, at: int, site: Site) -> bool:
    """Whether a call was made in a function, or in what that called."""
    lines = (history.events[at].site, *history.get(WaysThere).above(at))
    places = map(history.site, lines)
    return any(one.scope == site.scope for one in places)


MOST_CALLS = 8
"""Calls between a copy that is stepped and what is written back of it."""


class LoadedOver(NamedTuple):
    """A line that loads parameters in vain: positions."""

    loaded: int
    copied: int  # made the copy, before
    step: int  # of the copy, after the load
    written: int  # over what was loaded
    tensors: tuple[int, ...]


def loaded_over(history: History) -> Iterator[LoadedOver]:
    """Yield each line that loads such parameters."""
    if history.in_part or not history.steps:
        return
    held = {
        history.flow.memory(one): one
        for one in map(history.operand_of, history.held)
        if one is not None
    }
    found: dict[SiteId, list[LoadedOver]] = defaultdict(list)
    for loaded, target in _first_loads(history):
        written = next(history.writes_to(target, loaded), UNKNOWN)
        copy = _stepped(history, held, target, written) if written >= 0 else None
        one = None if copy is None else _lost(history, (loaded, written), target, copy)
        if one is not None:
            found[history.events[loaded].site].append(one)
    for some in found.values():
        yield some[0]._replace(tensors=tuple(tensor for one in some for tensor in one.tensors))


def _first_loads(history: History) -> Iterator[tuple[int, Operand]]:
    """Yield the first call that loads values into each tensor of a module, and the tensor."""
    known = set[int]()
    for at, event in history.events.where("copy_".__eq__):
        if history.site(event.inner).function == LOADS and event.reads[0].tensor not in known:
            known.add(event.reads[0].tensor)
            yield at, event.reads[0]


def _lost(
    history: History, between: tuple[int, int], target: Operand, copy: Operand
) -> LoadedOver | None:
    """Return what became of a tensor that was loaded, if a copy from before is written over."""
    loaded, written = between
    made, step = history.made_at(copy.tensor), following(history.steps_of(copy.tensor), loaded)
    if not 0 <= made < loaded < step < written or not _is_of(history, made, target):
        return None
    passes = history.backwards
    if bisect_right(passes, step) == bisect_right(passes, loaded):
        return None
    if any(at < written and not by_step(history, at) for at in history.writes_to(copy, made)):
        return None  # it was given the loaded values, or others
    return LoadedOver(loaded, made, step, written, (int(target.tensor),))


def _source(event: Event, target: Operand) -> Operand | None:
    """Return what a copy gives one of its targets: they stand before what they are given."""
    targets = [one.tensor for one in event.writes]
    if len(event.reads) != 2 * len(targets) or target.tensor not in targets:
        return None
    return event.reads[len(targets) + targets.index(target.tensor)]


def _stepped(
    history: History, held: dict[int, Operand], target: Operand, written: int
) -> Operand | None:
    """Return what an optimizer holds and a call writes over a tensor, as a copy or a view of it."""
    event, value = history.events[written], _source(history.events[written], target)
    for _ in range(MOST_CALLS if operation(event.operation).overwrites else 0):
        found = None if value is None else held.get(history.flow.memory(value))
        made = UNKNOWN if value is None else history.made_at(value.tensor)
        if found is not None or not 0 <= made < written or len(history.events[made].reads) != 1:
            return found
        value = history.events[made].reads[0]
    return None


def _is_of(history: History, made: int, target: Operand) -> bool:
    """Whether a call made its result from the values of a tensor."""
    memory = history.flow.memory(target)
    return any(
        history.flow.memory(one) == memory
        for at in (made, *history.flow.behind(made))
        for one in history.events[at].reads
    )


def by_step(history: History, at: int) -> bool:
    """Whether an optimizer's step made a call, or is it."""
    return bool(history.by_steps[at])
