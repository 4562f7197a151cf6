"""Statistics of frozen norms that move all the same, while something else is trained.

A parameter that requires no grad gets none; the mean and variance that a norm keeps beside it are
written by its forward, in training mode, whatever requires grad. Nothing is said of a norm that is
trained again, or whose weights are written: its statistics go with them.
"""

from __future__ import annotations

import functools
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from tether.analysis.history import History, latest
from tether.analysis.training.no_longer import ModeSwitches
from tether.facts import GRAD_ON, UNKNOWN, Event, TensorId
from tether.finding import At, Claim, Repair, Step, Tensor, say
from tether.operations.table import operation

MOST_READS = 4
MOST_AFTER = 2000
"""Calls that read moved statistics and are looked at, and calls after each that are gone over."""


class StatisticsMoved(NamedTuple):
    """Statistics of norms that one line froze and one line put into training mode."""

    tensors: tuple[int, ...]
    weight: int  # of the first norm
    frozen: int  # the call that froze it
    mode: int  # the line of the switch to training mode; UNKNOWN: there was none
    used: int  # the first call that moved them
    passes: int
    read: int  # a call by which a model that the last passes did not train reads them, or UNKNOWN


def statistics_moved(history: History) -> Iterator[StatisticsMoved]:
    """Yield them by the two lines; nothing where a freeze may not have been recorded."""
    lines: dict[tuple[int, int], list[StatisticsMoved]] = defaultdict(list)
    for weight, calls in () if history.in_part else _moves(history).items():
        found = _moved(history, weight, calls)
        if found is not None:
            lines[history.events[found.frozen].site, found.mode].append(found)
    for some in lines.values():
        tensors = tuple(dict.fromkeys(tensor for one in some for tensor in one.tensors))
        read = next((one.read for one in some if one.read >= 0), UNKNOWN)
        yield some[0]._replace(tensors=tensors, read=read)


def _moves(history: History) -> dict[int, list[int]]:
    """Return the calls that moved statistics of a frozen norm for a pass, by its weight."""
    found: dict[int, list[int]] = defaultdict(list)
    taken_along = functools.cache(functools.partial(_taken_along, history))
    norms = history.events.where(lambda name: operation(name).notes == "statistics")
    for at, event in norms if history.steps else ():
        weights = [one for one in event.reads if history.is_parameter(one.tensor)]
        frozen = weights and not any(one.requires_grad for one in weights)
        if frozen and event.writes:
            weight = weights[0].tensor
            times, along = taken_along(weight)
            last = bisect_right(times, at) - 1
            if event.grad_mode == GRAD_ON or (last >= 0 and along[last]):
                found[weight].append(at)
    return found


def _taken_along(history: History, weight: int) -> tuple[list[int], list[bool]]:
    """Return when modules around a weight were switched, and whether then one was taken along.

    A line had put it into evaluation mode, and a module around it is put into training mode.
    Without gradients a forward may well be there for the statistics; not of what was to stay in
    evaluation mode.
    """
    times, along = list[int](), list[bool]()
    still = set[frozenset[TensorId]]()  # what was put into evaluation mode, and not by itself back
    for one in history.get(ModeSwitches).of.get(weight, ()):
        tensors = frozenset(one.tensors)
        still = {known for known in still if tensors > known} if one.training else {*still, tensors}
        times.append(history.position(one.at))
        along.append(bool(still))
    return times, along


def _moved(history: History, weight: int, calls: list[int]) -> StatisticsMoved | None:
    """Return what one frozen norm moved, if it stays as it is while something else is trained."""
    first = calls[0]
    training = history.get(_Training)
    frozen, trained = training.frozen(weight, first), training.after(first)
    passes = {history.next_pass(at) for at in calls} - {len(history.events)}
    operand = history.operand_of(weight)
    if frozen < 0 or len(passes) < 2 or not trained or weight in trained or operand is None:
        return None
    if next(history.writes_to(operand, frozen), None) is not None:
        return None
    tensors = tuple(int(one.tensor) for one in history.events[first].writes)
    switches = [
        one
        for one in history.get(ModeSwitches).of.get(tensors[0], ())
        if history.position(one.at) <= first
    ]
    mode = int(switches[-1].site) if switches and switches[-1].training else UNKNOWN
    # Several that are trained in turn share what moves; whoever was trained earlier does not.
    lately = training.after(calls[-1 - len(calls) // 4])
    read = _of_another(history, tensors[0], calls[-1], lately)
    return StatisticsMoved(tensors, weight, frozen, mode, first, len(passes), read)


class _Training:
    """What was frozen when, and what was trained after a pass."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._after: dict[int, set[TensorId]] = {}  # by the pass
        self._freezes: dict[int, list[int]] = defaultdict(list)
        for at, event in history.events.where(lambda name: name.startswith("requires_grad")):
            for one in () if event.on else event.reads:
                self._freezes[one.tensor].append(at)

    def frozen(self, tensor: int, before: int) -> int:
        """Return the last call before a position that said a tensor requires no grad, or -1."""
        return latest(self._freezes[tensor], before)

    def after(self, at: int) -> set[TensorId]:
        """Return what the steps that follow the next pass, and later ones, had a gradient of."""
        first = self._history.next_pass(at)
        if first not in self._after:
            self._after[first] = {
                tensor
                for fact in self._history.steps
                if self._history.position(fact.at) > first
                for tensor, status in fact.status.items()
                if status != "none"
            }
        return self._after[first]


def _of_another(history: History, tensor: int, since: int, trained: set[TensorId]) -> int:
    """Return a later call that computes with statistics for trained parameters of none of these."""
    operand = history.operand_of(tensor)
    reads = list(history.readers(operand, since)) if operand is not None else []
    for at in reads[-MOST_READS:]:
        event = history.events[at]
        if operation(event.operation).notes == "statistics" and not event.writes:
            joined = set(_joined(history, at))
            if joined and joined.isdisjoint(trained):
                return at
    return UNKNOWN


def _joined(history: History, first: int) -> Iterator[TensorId]:
    """Yield the parameters, of those that are not frozen, that a call's values meet."""
    reached = {first}
    for at in range(first + 1, min(first + MOST_AFTER, len(history.events))):
        event: Event = history.events[at]
        if not reached.isdisjoint(history.flow.edges.sources(at)):
            reached.add(at)
            for one in event.reads:
                if one.requires_grad and one.leaf and history.is_parameter(one.tensor):
                    yield one.tensor


def claims(history: History, told: set[int]) -> Iterator[Claim]:
    """Give one claim for each such line, but of tensors that were told of."""
    for found in statistics_moved(history):
        if told.isdisjoint(found.tensors):
            yield _claim(history, found)


def _claim(history: History, found: StatisticsMoved) -> Claim:
    events = history.events
    frozen, used = events[found.frozen].site, events[found.used].site
    mode = found.mode if found.mode >= 0 else used
    parts = {"w": Tensor(found.weight), "frozen": At(frozen), "n": found.passes, "mode": At(mode)}
    since = " since {mode}" if found.mode >= 0 else ""
    message = (
        "{subject} changed in {n} training passes though {frozen} froze {w}: the norm is in"
        f" training mode{since}, where its forward writes the statistics, whatever requires grad."
    )
    read: tuple[Step, ...] = ()
    if found.read >= 0:
        line = events[found.read].site
        message += (
            " A model that the last of these passes did not train computes with them at {read}."
        )
        parts["read"] = At(line)
        read = (Step("read", line, say("a model that they were not moved for reads them")),)
    return Claim(
        tensors=found.tensors,
        cause=("moved", frozen, mode),
        site=mode,
        operation="train",
        severity="warning" if read else "note",
        message=say(message, **parts),
        story=(
            Step("frozen", frozen, say("{w} is frozen here", **parts)),
            *([Step("mode", mode, say("training mode begins here"))] if since else []),
            Step("written", used, say("the forward in training mode writes the statistics")),
            *read,
        ),
        repair=Repair(say("Call eval() on what is frozen, after each train() of a module around"
                          " it.")),
        count=0,
    )  # fmt: skip
