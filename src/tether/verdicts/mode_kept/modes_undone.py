"""Parts that the program put into evaluation mode, and that a switch of the whole took out of it.

``train()`` goes through all that is in a module: what had been switched by itself, to hold its
statistics still or its dropout off, computes in training mode from then on. Where the whole was in
evaluation mode as the part was switched, the part was not held back but followed it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from tether.analysis.history import History
from tether.analysis.training.no_longer import ModeSwitches
from tether.analysis.wording import listed
from tether.facts import UNKNOWN, Event, ModeSwitch, SiteId, TensorId
from tether.finding import At, Claim, Repair, Step, say
from tether.operations.table import operation

MOST_CALLS = 4
MOST_BEHIND = 64
"""Calls that use a part and are looked at, and calls before each that are gone back over."""


class ModeUndone(NamedTuple):
    """Parts that one line had put into evaluation mode, computing in training mode."""

    held: ModeSwitch  # the first of the parts' switches
    undone: ModeSwitch
    tensors: tuple[int, ...]  # statistics that moved; of what is not trained, what was read
    used: int  # the first such call
    statistics: bool
    in_vain: bool  # nothing had used the parts until another switch came
    trained: bool  # steps change the parts


class _Undoing(NamedTuple):
    held: ModeSwitch
    first: ModeSwitch  # the next switch around it
    undone: ModeSwitch
    until: int  # when the whole is switched to evaluation mode again, or the part by itself
    once: bool  # the line switched the part at no other time


def modes_undone(history: History) -> Iterator[ModeUndone]:
    """Yield them by the two lines; nothing where a switch may not have been recorded."""
    lines: dict[tuple[SiteId, SiteId], list[ModeUndone]] = defaultdict(list)
    for tensor, facts in () if history.in_part else history.get(ModeSwitches).of.items():
        widths = {len(one.tensors) for one in facts}
        for one in _PartsOf(history, tensor).found(facts) if len(widths) > 1 else ():
            lines[one.held.site, one.undone.site].append(one)
    for found in lines.values():
        moving = [one for one in found if one.statistics]
        cases = moving or found  # that statistics moved says most
        tensors = tuple(dict.fromkeys(one for case in cases for one in case.tensors))
        yield cases[0]._replace(tensors=tensors)


class GradientsUsed:
    """What steps had a gradient of."""

    def __init__(self, history: History) -> None:
        self.tensors = {
            tensor for fact in history.steps for tensor, one in fact.status.items() if one != "none"
        }


class _PartsOf:
    """The parts around one tensor."""

    def __init__(self, history: History, tensor: int) -> None:
        self._history = history
        self._tensor = tensor
        operand = history.operand_of(tensor)
        readers = () if operand is None else history.readers(operand, -1)
        self._computing = [at for at in readers if _computes(history.events[at])]

    def found(self, facts: list[ModeSwitch]) -> Iterator[ModeUndone]:
        """Yield for each two lines the first time that a part computes in training mode."""
        seen = set[tuple[SiteId, SiteId]]()
        for undoing in _undone(self._tensor, facts) if self._computing else ():
            lines = undoing.held.site, undoing.undone.site
            one = None if lines in seen else self._used(undoing)
            if one is not None:
                seen.add(lines)
                yield one

    def _used(self, found: _Undoing) -> ModeUndone | None:
        """Return what the part did in training mode after all."""
        held, own = found.held, set(found.held.tensors)
        trained = not self._history.get(GradientsUsed).tensors.isdisjoint(own)
        if trained and not held.itself:
            return None
        for number, at in enumerate(self._between(found.undone.at, found.until)):
            moved = _moved(self._history.events[at], own)
            drops = not trained and number < MOST_CALLS and self._drops(at, own)
            if moved or drops:
                unused = not self._between(held.at, found.first.at)
                if trained and not unused and not found.once:
                    return None  # each time anew it is decided whether the part is held
                return ModeUndone(
                    held, found.undone, moved or (self._tensor,), at, bool(moved), unused, trained
                )
        return None

    def _drops(self, at: int, own: set[TensorId]) -> bool:
        """Whether values were left to chance within a part: between two calls that use it."""
        events, flow = self._history.events, self._history.flow
        for chance in flow.behind(at, most=MOST_BEHIND):
            event = events[chance]
            shown = {one.storage for one in event.reads}
            fresh = event.reads and all(one.storage not in shown for one in event.results)
            if fresh and operation(event.operation).random:
                before = flow.behind(chance, most=MOST_BEHIND)
                if any(one.tensor in own for each in before for one in events[each].reads):
                    return True
        return False

    def _between(self, since: int, until: int) -> list[int]:
        """Return the calls that computed with the tensor between two moments."""
        position, end = self._history.position, len(self._history.events)
        first = bisect_left(self._computing, position(since))
        last = end if until == UNKNOWN else position(until)
        return self._computing[first : bisect_left(self._computing, last)]


def _moved(event: Event, own: set[TensorId]) -> tuple[int, ...]:
    """Return the statistics of its own that a call wrote."""
    keeps = operation(event.operation).notes == "statistics"
    return tuple(int(one.tensor) for one in event.writes if keeps and one.tensor in own)


def _computes(event: Event) -> bool:
    return bool(event.results) and operation(event.operation).carries and not event.raised


_Around = list[tuple[ModeSwitch, frozenset[TensorId]]]


def _undone(tensor: int, facts: list[ModeSwitch]) -> Iterator[_Undoing]:
    """Yield the switches of a part around a tensor that one of the whole undid."""
    around: _Around = [(one, frozenset(one.tensors)) for one in facts]
    whole = max(len(own) for _, own in around)
    for number, (held, own) in enumerate(around):
        if held.training or not held.kinds or len(own) == whole or _followed(around, number):
            continue
        wider, until = _wider(around[number + 1 :], own)
        undone = next((one for one in wider if one.training), None)
        if undone is not None and tensor not in undone.apart:
            once = sum(one.site == held.site for one in facts) == 1
            yield _Undoing(held, wider[0], undone, until, once)


def _wider(later: _Around, own: frozenset[TensorId]) -> tuple[list[ModeSwitch], int]:
    """Return the switches of what is around a part, up to where its training mode ends, and when.

    It ends where the whole is put into evaluation mode, or the part is switched by itself.
    """
    found: list[ModeSwitch] = []
    for one, its in later:
        back = any(before.training for before in found)
        if own >= its or (own < its and back and not one.training):
            return found, one.at
        if own < its:
            found.append(one)
    return found, UNKNOWN


def _followed(around: _Around, number: int) -> bool:
    """Whether the whole was in evaluation mode as a part was put into it."""
    own = around[number][1]
    before = next((one for one, its in reversed(around[:number]) if own < its), None)
    return before is not None and not before.training


def claims(history: History) -> Iterator[Claim]:
    """Give one claim for each such line."""
    for found in modes_undone(history):
        yield _claim(history, found)


def _claim(history: History, found: ModeUndone) -> Claim:
    held, undone, used = found.held.site, found.undone.site, history.events[found.used].site
    what = (
        "computes in training mode and moves {subject}"
        if found.statistics
        else "computes with {subject} in training mode and drops values, though no step trains it"
    )
    parts = {"kinds": listed(list(found.held.kinds), 3), "held": At(held), "line": At(undone)}
    return Claim(
        tensors=found.tensors,
        cause=("undone", held, undone),
        site=held,
        operation="eval",
        severity="warning" if found.in_vain or not found.trained else "note",
        message=say(
            f"A part with {{kinds}} {what}: {{held}} put it into evaluation mode, and train() at"
            " {line}, of a module around it, took it out again.",
            **parts,
        ),
        story=(
            Step("mode", held, say("evaluation mode of this part begins here")),
            Step("mode", undone, say("training mode of all that is in the module begins here")),
            Step("used", used, say("the part is used in training mode")),
        ),
        repair=Repair(say("Call eval() on the part after each train() of the module around it, or"
                          " let the module's own train() do so.")),
        count=0,
    )  # fmt: skip
