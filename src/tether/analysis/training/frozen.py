"""Parameters that the program freezes, and that steps move all the same."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from tether.analysis.history import History, latest
from tether.analysis.surroundings import Surroundings, WaysThere
from tether.facts import UNKNOWN, Event, Gradients, Operand, OptimizerId, Site, SiteId, TensorId
from tether.operations.table import operation
from tether.source.reading import given_to_others, goes_on

SWITCHES = ("requires_grad_", "requires_grad.__set__")
"""The calls that say whether a tensor requires grad."""


def taken_off(event: Event) -> Operand | None:
    """Return the tensor that a call took off the graph itself, and that it returned; None if none.

    It required grad before the call and does not after it: `x.detach_()`.
    """
    for read in event.reads[:1] if operation(event.operation).retypes else ():
        for one in event.results[:1]:
            if one.tensor == read.tensor and read.requires_grad and not one.requires_grad:
                return read
    return None


def ended_frozen(history: History) -> dict[int, int]:
    """Return for each tensor that ended frozen the position of the call that froze it last."""
    frozen: dict[int, int] = {}
    for position, event in history.events.where(lambda name: operation(name).retypes):
        switch = event.operation in SWITCHES and bool(event.reads)
        if switch and event.on:
            frozen.pop(event.reads[0].tensor, None)
        elif switch or (taken_off(event) is not None and event.reads[0].leaf):
            frozen[event.reads[0].tensor] = position
    return frozen


def frozen_for_its_value(history: History, at: int) -> bool:
    """Whether a call that took a tensor off the graph itself was made for what it returned.

    One that stands alone, or whose value goes where it came from, was made to freeze.
    """
    event = history.events[at]
    if event.operation in SWITCHES or taken_off(event) is None:
        return False
    site = history.site_of(event)
    source = history.get(Surroundings).source(site.file)
    return history.site(event.inner).user and goes_on(source, site)


class MovedFrozen(NamedTuple):
    """A tensor that a step moved while it was frozen, with zeros for a gradient."""

    tensor: int
    frozen: int  # position of the call that froze it
    optimizer: OptimizerId
    step: SiteId


class FrozenInVain(NamedTuple):
    """A line that freezes tensors, each of which is let go again before anything used it."""

    tensors: tuple[int, ...]
    frozen: int  # position of the first call
    undone: int  # and of the one that undid it


def frozen_in_vain(history: History) -> Iterator[FrozenInVain]:
    """Yield the lines all of whose calls were undone before anything could tell.

    What is read between is use, and so is an optimizer that is made: it may be given what still
    requires grad. One line that does both, for one function that asks it for both, is a setter:
    what was active is switched off, and then what is to be.
    """
    if history.in_part:
        return
    undone, effective = dict[SiteId, dict[int, tuple[int, int]]](), set[SiteId]()
    made = sorted(history.position(one.at) for one in history.trace.optimizers)
    for tensor, switches in switches_of(history).items():
        for at, then in pairwise([*switches, UNKNOWN]):
            event = history.events[at]
            if event.on:
                continue
            if _is_undone(history, at, then) and latest(made, then) < at:
                undone.setdefault(event.site, {}).setdefault(tensor, (at, then))
            else:
                effective.add(event.site)
    for site, found in undone.items():
        if site not in effective:
            yield FrozenInVain(tuple(found), *next(iter(found.values())))


def _is_undone(history: History, frozen: int, then: int) -> bool:
    """Whether a call lets go what another had frozen, and nothing used it in between."""
    if then == UNKNOWN or not history.events[then].on:
        return False
    return not (_sets(history, frozen, then) or used_between(history, frozen, then))


def _sets(history: History, frozen: int, undone: int) -> bool:
    """Whether one line froze a tensor and let it go, called for both by one function."""
    ways = [(history.events[at].site, *history.get(WaysThere).above(at)) for at in (frozen, undone)]
    if ways[0][0] != ways[1][0]:
        return False
    places = [[history.site(one) for one in way] for way in ways]
    apart = next(((a, b) for a, b in zip(*places, strict=False) if a != b), None)
    return apart is None or apart[0].scope == apart[1].scope


class FlaggedInVain(NamedTuple):
    """What a line of the text gives a plain attribute, to freeze tensors or to let them train.

    A class may have such an attribute for itself: what it gives ``self`` is not spoken of.
    """

    owner: str  # class of the module or tensor
    name: str  # of the attribute
    lines: tuple[Site, ...]
    tensors: tuple[int, ...]


def flagged_in_vain(history: History, *, on: bool) -> Iterator[FlaggedInVain]:
    """Yield them by the name and the class; the lines are those at which no tensor was asked."""
    switched = {
        history.site_of(event).position[:2] for _, event in history.events.where(SWITCHES[1].__eq__)
    }
    found: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for fact in history.trace.plain_flags:
        if fact.on == on:
            found[fact.name][fact.owner] += fact.tensors
    for name, owners in found.items():
        lines = tuple(
            Site(file, line, end_line=line)
            for file in history.trace.sources
            for line in given_to_others(history.get(Surroundings).source(file), name, on)
            if (file, line) not in switched
        )
        if lines:
            tensors = [one for some in owners.values() for one in some]
            yield FlaggedInVain(next(iter(owners)), name, lines, tuple(dict.fromkeys(tensors)))


def used_between(history: History, frozen: int, undone: int) -> bool:
    """Whether a call read what one call froze before another let it go."""
    readers = history.readers(history.events[frozen].reads[0], frozen, undone)
    return any(history.events[at].operation not in SWITCHES for at in readers)


def moved_frozen(history: History) -> Iterator[MovedFrozen]:
    """Yield what a step moved that came a whole pass after it had been frozen.

    With zeros at every look since then: who sets the gradient of what is frozen wants it to move.
    Nothing is said where what let it go again may not have been recorded.
    """
    if history.in_part:
        return
    switches, found = switches_of(history), dict[int, MovedFrozen]()
    moved = {
        (one.at, one.optimizer): {tensor for tensor, is_ in one.status.items() if is_ == "moved"}
        for one in history.trace.movements
        if one.moment == "step"
    }
    used = set[int]()
    for fact in history.steps if switches else ():
        for tensor, frozen in _frozen_at(history, switches, fact):
            if fact.status[tensor] == "some":
                used.add(tensor)
            if fact.status[tensor] == "zero" and tensor in moved.get((fact.at, fact.optimizer), ()):
                one = MovedFrozen(tensor, frozen, fact.optimizer, fact.site)
                found.setdefault(tensor, one)
    yield from (one for tensor, one in found.items() if tensor not in used)


class MovedInPart(NamedTuple):
    """A tensor of which a step moved elements whose gradients a line had set to zero."""

    tensor: int
    elements: int
    zeroed: int  # position of the call that set them
    optimizer: OptimizerId
    step: SiteId


def moved_in_part(history: History) -> Iterator[MovedInPart]:
    """Yield each tensor once for a line of the program's own that sets parts of its gradient to 0.

    Between a backward pass and the step, or in a hook on the tensor. What only scales a gradient
    sets nothing to zero: it has one argument.
    """
    found: dict[tuple[int, SiteId], MovedInPart] = {}
    for fact in history.trace.drifts:
        at = history.position(fact.at)
        for tensor, elements in fact.elements.items():
            zeroed = _set_to_zero(history, tensor, at)
            if zeroed != UNKNOWN and not _put_back(history, tensor, at):
                one = MovedInPart(tensor, elements, zeroed, fact.optimizer, fact.site)
                found.setdefault((tensor, history.events[zeroed].site), one)
    yield from found.values()


def _put_back(history: History, tensor: int, step: int) -> bool:
    """Whether the program itself writes a tensor between a step and the next backward pass."""
    operand, then = history.operand_of(tensor), history.next_pass(step)
    writes = history.writes_to(operand, step) if operand is not None else ()
    return any(at < then and history.events[at].operation != "step" for at in writes)


def _set_to_zero(history: History, tensor: int, step: int) -> int:
    """Return the last call before a step that may have set parts of a gradient to zero."""
    events, since = history.events, latest(history.backwards, step)
    for at in range(since + 1, step):
        event = events[at]
        of_it = event.operation == "grad.__get__" and event.reads[0].tensor == tensor
        for gradient in event.results if of_it else ():
            for write in history.writes_to(gradient, at):
                if write < step and _in_part(history, write, gradient):
                    return write
    hooked = any(one.tensor == tensor for one in history.trace.hooks)
    return _in_hook(history, tensor, since) if hooked else UNKNOWN


def _in_part(history: History, write: int, gradient: Operand) -> bool:
    """Whether a call of the program's own writes a part of a gradient, or all by another tensor."""
    event, memory = history.events[write], history.flow.memory
    mixed = any(memory(one) != memory(gradient) and one.shape for one in event.reads)
    smaller = any(one.shape != gradient.shape for one in event.writes)
    return event.inner == event.site and (mixed or smaller or operation(event.operation).part)


def _in_hook(history: History, tensor: int, backward: int) -> int:
    """Return the call in a backward pass that joins what is as large as a tensor with others."""
    events, operand = history.events, history.operand_of(tensor)
    for at in range(backward - 1, latest(history.backwards, backward), -1):
        event = events[at]
        if history.inside(event, "backward") < 0:
            return UNKNOWN
        alike = operand is not None and [one.shape for one in event.results] == [operand.shape]
        if alike and event.inner == event.site and len(event.reads) > 1:
            return at
    return UNKNOWN


def switches_of(history: History) -> dict[TensorId, list[int]]:
    """Return for each tensor the positions at which it was frozen, or let go."""
    found: dict[TensorId, list[int]] = defaultdict(list)
    for at, event in history.events.where(SWITCHES.__contains__):
        if event.reads:
            found[event.reads[0].tensor].append(at)
    return found


def _frozen_at(
    history: History, switches: dict[TensorId, list[int]], step: Gradients
) -> Iterator[tuple[TensorId, int]]:
    """Yield what was frozen before the last pass before a step, with the call that froze it."""
    at = history.position(step.at)
    since = latest(history.backwards, at)
    for tensor in switches.keys() & step.status.keys():
        frozen = latest(switches[tensor], at)
        if 0 <= frozen < since and not history.events[frozen].on:
            yield tensor, frozen
