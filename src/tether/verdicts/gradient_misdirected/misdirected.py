"""Parameters that the program changes by the gradient of another one.

Each gradient belongs to the tensor that it was asked for. Where a program writes parameters or sets
their gradients itself, it pairs them with a list of gradients; when one of the two has lost an
item, or has another order, each parameter is moved by the gradient of another. Both were to get
their own: they were asked for in one call, or passes of one line go through both.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import NamedTuple

import numpy as np

from tether.analysis.gradients.graph import Graph
from tether.analysis.history import History, latest, losses_of
from tether.analysis.surroundings import Surroundings, at_line
from tether.facts import GRAD_ON, Event, Operand, SiteId
from tether.finding import At, CallOf, Claim, Repair, Step, Tensor, say
from tether.source.reading import looped_over

MOST_CALLS = 64
"""Calls that a written value is followed back through, to the gradients in it."""

MOST_WRITES = 16
"""Writes of one line to one parameter that are looked at."""


class Misdirected(NamedTuple):
    """A line that changes parameters by the gradients of others; positions, of its first case."""

    write: int
    given: int  # the call that gave the gradient
    used: int  # the first call that used it on the way to the write
    owner: int  # the tensor whose gradient it is
    takers: tuple[int, ...]
    missing: tuple[int, ...]  # tensors for which that call had no gradient


def misdirected(history: History) -> Iterator[Misdirected]:
    """Yield each line that changes a parameter by the gradient of another and not by its own."""
    gradients, lines = _GradientOwners(history), dict[SiteId, list[Misdirected]]()
    writes = _written(history, gradients.parameters()) if gradients.owners else ()
    for at, taker in (*writes, *_set(history)):
        found = gradients.case(at, taker)
        if found is not None:
            lines.setdefault(history.events[at].site, []).append(found)
    for cases in lines.values():
        takers = tuple(dict.fromkeys(one for case in cases for one in case.takers))
        yield cases[0]._replace(takers=takers)


def _written(history: History, parameters: Iterable[int]) -> Iterator[tuple[int, Operand]]:
    """Yield the first writes of each line to all of a parameter, outside of the graph."""
    seen = [one for one in map(history.operand_of, parameters) if one is not None]
    places = {(one.storage, one.offset, one.shape): one for one in seen}
    events, operands = history.events.touched("writes")
    storages = history.events.operands.column("storage")[operands]
    sites, looked = history.events.column("site"), Counter[tuple[int, int]]()
    for place in np.flatnonzero(np.isin(storages, [one.storage for one in seen])).tolist():
        at = int(events[place])
        key = int(sites[at]), int(storages[place])
        looked[key] += 1
        if looked[key] > MOST_WRITES:
            continue
        event, written = history.events[at], history.events.operands[int(operands[place])]
        tracked = event.grad_mode == GRAD_ON and written.requires_grad
        taker = places.get((written.storage, written.offset, written.shape))
        if taker is not None and not tracked and event.operation != "step":
            yield at, taker


def _set(history: History) -> Iterator[tuple[int, Operand]]:
    """Yield the calls that set the gradient of a parameter, each with the parameter."""
    for at, event in history.events.where("grad.__set__".__eq__):
        if len(event.reads) == 2:
            yield at, event.reads[0]


class _GradientOwners:
    """Whose gradient each tensor is that the program was given as one."""

    def __init__(self, history: History) -> None:
        self._history = history
        self.owners: dict[int, tuple[int, int]] = {}  # gradient -> the call that gave it, its owner
        self._together: dict[int, set[int]] = {}  # call of autograd.grad -> what it was asked for
        for at, event in history.events.where({"grad.__get__", "autograd.grad"}.__contains__):
            if event.operation == "grad.__get__":
                for one in event.results:
                    self.owners[one.tensor] = at, event.reads[0].tensor
            elif not event.raised:
                self._asked(at, event)

    def parameters(self) -> set[int]:
        """Return the parameters that have gradients, or were to have some."""
        tensors = {owner for _, owner in self.owners.values()}.union(*self._together.values())
        tensors.update(*self._by_line.values())
        return set(filter(self._history.is_parameter, tensors))

    def _asked(self, at: int, event: Event) -> None:
        asked = [int(one.tensor) for one in event.reads[len(losses_of(event)) :]]
        missing = self._missing.get(at, ())
        given = [one for one in asked if one not in missing]
        if len(given) == len(event.results):
            self._together[at] = set(asked)
            for owner, result in zip(given, event.results, strict=True):
                self.owners[result.tensor] = at, owner

    @cached_property
    def _missing(self) -> dict[int, tuple[int, ...]]:
        """For each call of ``autograd.grad`` the tensors that it had no gradient for."""
        calls = [at for at, _ in self._history.events.where("autograd.grad".__eq__)]
        return {
            latest(calls, self._history.position(fact.at)): tuple(
                int(one) for one, status in fact.status.items() if status == "none"
            )
            for fact in self._history.trace.gradients
            if fact.moment == "asked"
        }

    def case(self, write: int, taker: Operand) -> Misdirected | None:
        """Return whose gradient a write puts into a parameter; None where its own is among it."""
        used = self._behind(write, taker)
        owners = {owner for _, _, owner in used}
        if not used or taker.tensor in owners:
            return None
        given, at, owner = used[0]
        if not all(self._goes_with(given, taker.tensor, one) for given, _, one in used):
            return None
        missing = self._missing.get(given, ())
        return Misdirected(write, given, at, owner, (taker.tensor,), missing)

    def _behind(self, write: int, taker: Operand) -> list[tuple[int, int, int]]:
        """Return the gradients of the last pass that went, in their shape, into a write.

        Of each the call that gave it, the call that used it, and whose it is.
        """
        flow, since = self._history.flow, latest(self._history.backwards, write)
        waiting, seen, found = [write], {write}, list[tuple[int, int, int]]()
        while waiting and len(seen) <= MOST_CALLS:
            at = waiting.pop()
            for edge in flow.edges[at]:
                operand = edge.operand
                if operand is None or operand.shape != taker.shape:
                    continue
                known = self.owners.get(operand.tensor)
                if known is not None:
                    given, owner = known
                    found += [(given, at, owner)] if given >= since else []
                elif edge.source > since and edge.source not in seen:
                    seen.add(edge.source)
                    waiting.append(edge.source)
        return found if len(seen) <= MOST_CALLS else []

    def _goes_with(self, given: int, taker: int, owner: int) -> bool:
        """Whether both were to have gradients: of one call, or of the passes of one line."""
        together = self._together.get(given)
        if together is not None:
            return taker in together and owner in together
        passes = self._history.backwards
        last = latest(passes, given)
        if last < 0:
            return False
        return {taker, owner} <= self._by_line.get(self._history.events[last].site, set())

    @cached_property
    def _by_line(self) -> dict[SiteId, set[int]]:
        """For each line of a backward pass the leaves of its graphs, where they were walked.

        To have a gradient is not enough: a tensor may have been given another's.
        """
        found, graph = defaultdict[SiteId, set[int]](set), self._history.get(Graph)
        for at in self._history.backwards:
            found[self._history.events[at].site] |= graph.leaves(at) or set()
        return found


def claims(history: History) -> Iterator[Claim]:
    """Give one claim for each such line."""
    for found in misdirected(history):
        yield _claim(history, found)


def _claim(history: History, found: Misdirected) -> Claim:
    write, given = (history.events[at].site for at in (found.write, found.given))
    owner = Tensor(found.owner)
    return Claim(
        tensors=found.takers,
        cause=write,
        site=write,
        operation=history.events[found.write].operation,
        message=say(
            "{writing} at {line} gives {subject} the gradient of {owner}, and not its own: {call}"
            " at {given} gave it for {owner}.",
            writing=CallOf(found.write), line=At(write), owner=owner, call=CallOf(found.given),
            given=At(given),
        ),
        story=(
            *_given(history, found),
            *_paired(history, found),
            Step("written", write, say("{x} is given it", x=Tensor(found.takers[0]))),
        ),
        repair=Repair(say("Keep each gradient with its parameter: drop both of a pair whose"
                          " gradient is None, after they are paired.")),
        count=0,
        calls=(found.write,),
    )  # fmt: skip


def _given(history: History, found: Misdirected) -> Iterator[Step]:
    site = history.events[found.given].site
    yield Step("read", site, say("this is the gradient of {owner}", owner=Tensor(found.owner)))
    if found.missing:
        said = say("{n} of what it was asked for have none: None", n=len(found.missing))
        yield Step("read", site, said)


def _paired(history: History, found: Misdirected) -> Iterator[Step]:
    """Yield the loop that pairs parameters with gradients, and what it goes over."""
    place = history.site_of(history.events[found.used])
    source = history.get(Surroundings).source(place.file)
    loop, *gathered = looped_over(source, place) or [0]
    if loop:
        said = say("this loop gives the gradient of {owner} together with {x}",
                   owner=Tensor(found.owner), x=Tensor(found.takers[0]))  # fmt: skip
        yield Step("used", at_line(place, loop), said)
    for line in gathered:
        yield Step("used", at_line(place, line), say("what it goes over is put together here"))
