"""Parameters that trained, and that no loss depends on any more since a change of mode.

A module that adds what it learned to its other weights for evaluation, or passes over a part then,
does so in training too if nothing switches the mode back. A program that trains one part after the
other may evaluate in between: what is read there by then is not out of use for the mode.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from tether.analysis.history import History
from tether.facts import GRAD_ON, UNKNOWN, ModeSwitch, SiteId
from tether.operations.table import operation


class NoLonger(NamedTuple):
    """A parameter that had gradients in training mode and had none since evaluation mode."""

    tensor: int
    with_gradient: int  # steps
    without: int  # steps since, up to the end
    switch: ModeSwitch  # to evaluation mode, and nothing switched back
    trained: SiteId  # the line that had switched to training mode; UNKNOWN: none did
    sure: bool  # it was evaluated without the parameter, and the same line switched again later


class LastSteps(NamedTuple):
    """When a parameter had gradients at steps, and since when it had none."""

    last: int  # position of the last step that had a gradient
    first: int  # and of the first that had none, and all after it
    before: int  # how many had one, and how many had none since
    since: int


class ModeSwitches:
    """The switches of the modules that each parameter is in, in order."""

    def __init__(self, history: History) -> None:
        self.of: dict[int, list[ModeSwitch]] = defaultdict(list)
        for fact in history.trace.mode_switches:
            for tensor in fact.tensors:
                self.of[tensor].append(fact)


class OutOfUse:
    """What lost its gradient with a switch to evaluation mode, and never had one again.

    Nothing is said where what switched back may not have been recorded.
    """

    def __init__(self, history: History) -> None:
        self.found = [] if history.in_part else list(_no_longer(history))


def _no_longer(history: History) -> Iterator[NoLonger]:
    switches = history.get(ModeSwitches).of
    looked: dict[tuple[int, int], tuple[set[int], set[int]]] = {}
    for tensor, steps in ceased(history) if switches else ():
        found = _switched(history, switches[tensor], steps)
        if found is None:
            continue
        stretch = history.position(found.switch.at), steps.first
        if stretch not in looked:
            looked[stretch] = _read(history, *stretch)
        read, aside = looked[stretch]
        if tensor not in read:
            evaluated = not aside.isdisjoint(found.switch.tensors)
            yield found._replace(
                tensor=tensor, with_gradient=steps.before, without=steps.since,
                sure=found.sure and evaluated,
            )  # fmt: skip


def ceased(history: History) -> Iterator[tuple[int, LastSteps]]:
    """Yield what had gradients at some steps of its optimizers and none at all since."""
    found: dict[int, LastSteps] = {}
    for fact in history.steps:
        at = history.position(fact.at)
        for tensor, status in fact.status.items():
            old = found.get(tensor, LastSteps(UNKNOWN, UNKNOWN, 0, 0))
            if status != "none":
                found[tensor] = LastSteps(at, UNKNOWN, old.before + 1, 0)
            elif old.last != UNKNOWN:
                first = at if old.first == UNKNOWN else old.first
                found[tensor] = old._replace(first=first, since=old.since + 1)
    yield from ((tensor, one) for tensor, one in found.items() if one.first != UNKNOWN)


def _switched(history: History, switches: list[ModeSwitch], steps: LastSteps) -> NoLonger | None:
    """Return the switch to evaluation mode between the two steps, if nothing switched back."""
    before = [one for one in switches if history.position(one.at) <= steps.last]
    after = switches[len(before) :]
    if not after or (before and not before[-1].training) or any(one.training for one in after):
        return None
    if not steps.last < history.position(after[0].at) < steps.first:
        return None
    again = [
        one for one in after if one.site == after[0].site and history.position(one.at) > steps.first
    ]
    trained = before[-1].site if before else SiteId(UNKNOWN)
    return NoLonger(UNKNOWN, 0, 0, after[0], trained, bool(again))


def _read(history: History, first: int, last: int) -> tuple[set[int], set[int]]:
    """Return the tensors whose values calls read in a stretch, and those read without a graph."""
    read, aside = set[int](), set[int]()
    for event in history.events[first:last]:
        if operation(event.operation).carries:
            tensors = {int(one.tensor) for one in event.reads}
            read |= tensors
            aside |= tensors if event.grad_mode != GRAD_ON else set()
    return read, aside
