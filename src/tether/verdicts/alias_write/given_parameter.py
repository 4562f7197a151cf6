"""Parameters that a function was given, wrote on the way to its result, and that train on.

``grid = make_grid(conv.weight.data, normalize=True)`` brings the weights into a range to draw them.
What is called for its effect is told apart by facts: its result is used outside, lives in memory of
its own, has as many numbers as what was written and was computed from these; nothing that was
handed in beside the parameter went into the write; neither did the function train it, nor does its
result go back into the parameter or into a loss.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from tether.analysis.history import History, following, latest
from tether.analysis.sharing.holding import Holding
from tether.analysis.sharing.shared_memory import Sharing, fills_anew
from tether.analysis.surroundings import WaysThere
from tether.facts import UNKNOWN, Event, Holder, Operand, SiteId
from tether.finding import At, CallOf, Claim, Code, Repair, Step, Tensor, named, say
from tether.verdicts.alias_write.definition_owners import moved_at
from tether.verdicts.alias_write.telling import written

MOST_CALLS = 4_000
"""Calls of one function, and of what follows it up to the next step."""

_ASIDE = ("step", "backward", "hook", "function", "closure", "compiled", "transform")


class GivenParameter(NamedTuple):
    """A write to a parameter by a function that was called for another result."""

    parameter: int
    write: int  # the last one of the call
    call: SiteId  # that was given the parameter
    function: str  # whose argument showed it
    read: int  # of the result, outside
    step: int  # the next step, which goes on from what was written


class _Frame(NamedTuple):
    """A function that was handed the memory, and the caller's line."""

    function: str
    call: SiteId


def given_parameters(history: History) -> Iterator[GivenParameter]:
    """Yield what was found, at each write whose places were looked for."""
    for at, holders in history.get(Holding).looks():
        event = history.events[at]
        parameter = _parameter(history, event) if len(event.writes) == 1 else UNKNOWN
        if parameter == UNKNOWN or history.inside(event, *_ASIDE) >= 0:
            continue
        steps = moved_at(history, parameter)
        before, step = latest(steps, at), following(steps, at)
        if before == UNKNOWN or step == UNKNOWN or not _is_on(history, step, at, parameter):
            continue
        for frame in _frames(history, at, holders):
            found = _CallForAResult(history, frame, at, step).judged(parameter)
            if found is not None:
                yield found
                break


def _parameter(history: History, event: Event) -> int:
    """Return the parameter, of those that optimizers hold, whose memory a call wrote; or -1."""
    written = event.writes[0].tensor
    chain = [written, *(one.source for one in history.get(Sharing).chain(written))]
    return next((one for one in chain if one in history.held), UNKNOWN)


def _is_on(history: History, step: int, at: int, parameter: int) -> bool:
    """Whether the next step of a parameter writes the memory that a call wrote."""
    memory = history.flow.memory
    here = memory(history.events[at].writes[0])
    return any(one.tensor == parameter and memory(one) == here
               for one in history.events[step].writes)  # fmt: skip


def _frames(history: History, at: int, holders: Sequence[Holder]) -> Iterator[_Frame]:
    """Yield the functions that were handed what a call wrote as an argument, the innermost first.

    None where one of them says by its name that it writes, or belongs to what has the parameter.
    """
    ways = (history.events[at].site, *history.get(WaysThere).above(at))
    fillings = history.get(Holding).fillings
    for depth, (number, call) in enumerate(pairwise(ways)):
        site = history.site(number)
        here = [one for one in holders if one.depth == depth and one.function == site.function]
        owned = any(one.name.startswith("self.") for one in here)
        if owned or site.says_it_writes or site.function == "<module>":
            return
        filled = fillings.of_function(*site.scope)
        arguments = {one.target for one in filled if one.how == "parameter"}
        if any(one.kind == "variable" and one.name in arguments for one in here):
            yield _Frame(site.function, call)


class _CallForAResult:
    """One call of a function, from its first call of PyTorch to its last."""

    def __init__(self, history: History, frame: _Frame, at: int, step: int) -> None:
        self._history, self._frame, self._step = history, frame, step
        self._written = history.events[at].writes[0]
        self._memory = history.flow.memory(self._written)
        self._first = self._last = at
        while at - self._first < MOST_CALLS and self._is_inside(self._first - 1):
            self._first -= 1
        while self._last - at < MOST_CALLS and self._is_inside(self._last + 1):
            self._last += 1

    def _is_inside(self, at: int) -> bool:
        """Whether a call was made below the line of this one's caller."""
        if not 0 <= at < len(self._history.events):
            return False
        return self._frame.call in self._history.get(WaysThere).above(at)

    def judged(self, parameter: int) -> GivenParameter | None:
        """Return what this call wrote on the way to its result, if it was called for that."""
        events = self._history.events
        inside = range(self._first, self._last + 1)
        writes = [at for at in inside if any(map(self._is_it, events[at].writes))]
        trains = any(events[at].is_backward or events[at].operation == "step" for at in inside)
        if trains or not all(map(self._is_of_itself, writes)):
            return None
        read = self._read_outside(self._results(writes))
        if read == UNKNOWN:
            return None
        frame = self._frame
        return GivenParameter(parameter, writes[-1], frame.call, frame.function, read, self._step)

    def _is_it(self, operand: Operand) -> bool:
        return self._history.flow.memory(operand) == self._memory

    def _is_of_itself(self, write: int) -> bool:
        """Whether a write goes on from what was there, by what this call made of it alone."""
        events, waiting, seen = self._history.events, [write], set[int]()
        if fills_anew(events[write]):
            return False
        for at in waiting:
            for one in events[at].reads:
                made = self._history.made_at(one.tensor)
                if self._is_it(one) or made in seen:
                    continue
                if made < self._first:
                    return False
                seen.add(made)
                waiting.append(made)
        return True

    def _results(self, writes: Sequence[int]) -> set[int]:
        """Return the memories that hold what was computed from what was written last."""
        flow, events = self._history.flow, self._history.events
        reached, found = {writes[-1]}, set[int]()
        for at in range(writes[-1] + 1, self._last + 1):
            if flow.carries[at] and not reached.isdisjoint(flow.edges.sources(at)):
                reached.add(at)
                found |= {flow.memory(one) for one in (*events[at].results, *events[at].writes)}
        return found - {self._memory}

    def _read_outside(self, results: set[int]) -> int:
        """Return the first read of a result outside of the call; -1: none, or it is used to train.

        A result that goes back into the parameter, or into what has a gradient, is no mere copy.
        """
        flow, events, first = self._history.flow, self._history.events, UNKNOWN
        if self._step - self._last > MOST_CALLS:
            return UNKNOWN
        for at in range(self._last + 1, self._step):
            event = events[at]
            read = [one for one in event.reads if flow.memory(one) in results]
            if any(map(self._is_it, event.writes)) or (read and _trains(event)):
                return UNKNOWN
            if first == UNKNOWN and any(map(self._is_as_much, read)):
                first = at
            made = (*event.results, *event.writes) if read else ()
            results = results.union(map(flow.memory, made))
        return first

    def _is_as_much(self, operand: Operand) -> bool:
        """Whether an operand has a number for each that was written, and no truths or counts."""
        return not operand.whole and math.prod(operand.shape) >= math.prod(self._written.shape)


def _trains(event: Event) -> bool:
    """Whether what a call made of its operands has a gradient, or gives them theirs."""
    return event.is_backward or any(one.requires_grad for one in (*event.results, *event.writes))


def given_parameter(history: History) -> Iterator[Claim]:
    """Yield one claim for each line that hands a parameter to a function which writes it."""
    told = set[SiteId]()
    for found in given_parameters(history):
        if found.call not in told:
            told.add(found.call)
            yield _claim(history, found)


def _claim(history: History, found: GivenParameter) -> Claim:
    write, read, step = (history.events[at] for at in (found.write, found.read, found.step))
    parts = {
        "p": Tensor(found.parameter), "code": Code(found.call), "line": At(found.call),
        "function": named(found.function), "call": CallOf(found.write), "write": At(write.site),
        "step": CallOf(found.step), "at": At(step.site), "read": At(read.site),
    }  # fmt: skip
    taken = history.get(Sharing).chain(write.writes[0].tensor)
    since = [history.events[one.at].site for one in taken[-1:]]
    return Claim(
        tensors=(found.parameter,),
        cause=("given parameter", found.call),
        site=found.call,
        operation=write.operation,
        severity="note",
        message=say(
            "{code} at {line} changes {p} while it trains: {function} is given its memory, {call}"
            " at {write} writes it, and {step} at {at} goes on from there. What the function"
            " computed from it is used at {read}.",
            **parts,
        ),
        story=(
            *(Step("shared", one, say("this shows the memory of {p} itself", **parts))
              for one in since),
            Step("shared", found.call, say("{function} is given {p}", **parts)),
            written(history, found.write),
            Step("read", read.site, say("the result is used here", **parts)),
            Step("step", step.site, say("{p} trains on from what was written", **parts)),
        ),
        repair=Repair(say("If {p} is to keep its values, hand in a copy at {line}: .clone() of what"
                          " is handed in.", **parts)),
    )  # fmt: skip
