"""Values that a Function computed in forward and that a second derivative takes for constants.

Forward runs without a graph. What it computes from its inputs and keeps for backward is, in a
backward pass that makes a graph (`create_graph=True`), a number like any other: the derivative of
the gradient lacks what goes through it. Told where a later pass goes through that very call, to
what the input was computed from. An input or a result that is kept comes back with its graph.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import NamedTuple

import numpy as np

from tether.analysis.gradients.ends import GradientEnds
from tether.analysis.gradients.graph import Graph
from tether.analysis.gradients.summands import summands
from tether.analysis.history import History, following, latest
from tether.analysis.surroundings import Surroundings
from tether.facts import UNKNOWN, Event, Operand, SiteId, Span
from tether.operations.table import operation
from tether.source.calls import is_decided_elsewhere

MOST_PASSES = 8
"""Passes after one that made a graph that are asked whether they go through it."""

MOST_CALLS = 256
"""Calls of one forward that a value is followed back through."""


class TakenForConstant(NamedTuple):
    """A value of a Function's forward, and the passes between which it lost its derivative."""

    name: str  # of the Function
    call: int
    tensor: int
    made: int  # in forward
    used: int  # in backward
    first: int  # the pass that made a graph
    second: int  # the one that went through that


class _Kept(NamedTuple):
    call: int  # of the Function
    made: int
    span: Span  # of its forward


def taken_for_constant(history: History) -> Iterator[TakenForConstant]:
    """Yield for each line of a forward the first such value."""
    passes = _with_a_graph(history)
    kept = _made_in_forward(history) if passes else {}
    told = set[int]()
    for span, first in passes if kept else ():
        for tensor, used in _used_as_factor(history, span, kept):
            call, made, forward = kept[tensor]
            if history.events[made].site in told or not _depends(history, call, forward, tensor):
                continue
            second = _goes_through(history, first, used, call)
            if second != UNKNOWN:
                told.add(history.events[made].site)
                name = history.events[call].detail
                yield TakenForConstant(name, call, tensor, made, used, first, second)


def _with_a_graph(history: History) -> list[tuple[Span, int]]:
    """Return the passes that made a graph of the gradients."""
    spans = (one for one in history.trace.spans if one.kind == "backward")
    passes = ((one, history.position(one.event)) for one in spans)
    return [(one, at) for one, at in passes if at >= 0 and history.events[at].create_graph]


def _made_in_forward(history: History) -> dict[int, _Kept]:
    """Return the tensors that forwards made and neither were given nor handed out."""
    found: dict[int, _Kept] = {}
    for span in history.trace.spans:
        call = history.position(span.event) if span.kind == "function" else UNKNOWN
        if call < 0 or history.events[call].operation != "apply":
            continue
        event = history.events[call]
        outside = {one.tensor for one in (*event.reads, *event.results)}
        for at in range(max(history.position(span.first), 0), call):
            for one in history.events[at].results:
                if one.tensor not in outside and not one.whole and not one.requires_grad:
                    found.setdefault(one.tensor, _Kept(call, at, span))
    return found


def _used_as_factor(
    history: History, span: Span, kept: dict[int, _Kept]
) -> Iterator[tuple[int, int]]:
    """Yield what a pass read of such values on the way to a gradient with a graph, and where."""
    of = {tensor: tensor for tensor in kept}  # what was computed of a value -> the value
    for at in range(max(history.position(span.first), 0), history.position(span.event)):
        event = history.events[at]
        whose = [of[one.tensor] for one in event.reads if one.tensor in of]
        if not whose or not _has_derivative(event):
            continue
        if any(one.requires_grad for one in event.results):
            yield from ((one, at) for one in whose)
        else:
            of.update(dict.fromkeys((one.tensor for one in event.results), whose[0]))


def _has_derivative(event: Event) -> bool:
    """Whether what a call makes changes smoothly with what it reads."""
    row = operation(event.operation)
    stops = row.flat or row.selects or row.cuts or row.leaves or not row.carries
    return not stops and not event.raised


def _depends(history: History, call: int, span: Span, tensor: int) -> bool:
    """Whether a value of a forward was computed smoothly from an input that requires grad."""
    given = {one.tensor for one in history.events[call].reads if one.requires_grad}
    makers: dict[int, list[int]] = defaultdict(list)
    for at in range(max(history.position(span.first), 0), call):
        event = history.events[at]
        for one in {one.tensor for one in (*event.results, *event.writes)}:
            makers[one].append(at)
    waiting, seen = [tensor], set[int]()
    while waiting and len(seen) < MOST_CALLS:
        for at in makers[waiting.pop()]:
            if at not in seen and _has_derivative(history.events[at]):
                seen.add(at)
                read = [one.tensor for one in _values(history.events[at])]
                if not given.isdisjoint(read):
                    return True
                waiting += read
    return False


def _values(event: Event) -> list[Operand]:
    """Return the operands of a call whose values it looks at."""
    row, reads = operation(event.operation), event.reads
    if row.template == (-1,):
        return []
    return [one for place, one in enumerate(reads) if place not in row.template and not one.whole]


def _goes_through(history: History, first: int, used: int, call: int) -> int:
    """Return a later pass through a call of a backward, to what the Function was given; or -1."""
    graph = history.get(Graph)
    behind = graph.leaves_behind(call)
    given = behind | {one.tensor for one in history.events[call].reads}
    later = [at for at in history.backwards if at > first][:MOST_PASSES]
    for at in later:
        wanted = graph.asked(at) or graph.leaves(at) or frozenset()
        if used in graph.behind(at) and not history.events[at].raised and wanted & given:
            return at
    return UNKNOWN


# -- first order -----------------------------------------------------------------------------------
# Updates inside a loss by gradients that have no graph: the loss is differentiated as if constant.
# `autograd.grad` without `create_graph=True` gives values. Where they change the very tensors whose
# gradient they are, and a loss goes through the result, backward takes the update for a constant.


MOST_RUNS = 8
"""Runs of a line, each the last before a loss, that are followed until one is found."""


class FirstOrder(NamedTuple):
    """Calls, by position."""

    gradient: int
    update: int  # takes the gradient and the tensor that it is the gradient of
    loss: int
    tensors: tuple[int, ...]  # that the gradient was asked for
    calls: tuple[int, ...]  # of that line, before losses whose gradients are used


def first_order(history: History) -> Iterator[FirstOrder]:
    """Yield for each line that asks for gradients the first update that a loss goes through.

    A loss that no step uses, as that of an evaluation, teaches nothing in any order. Where a line
    asks for a graph at other times, or its text decides it (`create_graph=second_order`), the
    program has chosen.
    """
    used = _UsedPasses(history)
    for site, some in _without_graph(history).items():
        runs = [at for at in some if used.follows(at)]
        if not runs or _is_chosen(history, site):
            continue
        # Those that come before no loss may be of an evaluation.
        last = dict.fromkeys(bisect_left(runs, at) for at in used.passes if at > runs[0])
        found = (_first(history, runs[:end][-MOST_RUNS:]) for end in islice(last, MOST_RUNS))
        for one in islice((one for one in found if one is not None), 1):
            yield one._replace(calls=tuple(runs))


def _without_graph(history: History) -> dict[SiteId, list[int]]:
    """Return the calls that gave gradients without a graph, of the lines that never asked for one.

    By their lines.
    """
    runs, chosen = defaultdict[SiteId, list[int]](list), set[SiteId]()
    for at, event in history.events.where("autograd.grad".__eq__):
        if event.create_graph:
            chosen.add(event.site)
        elif not event.raised and not any(one.requires_grad for one in event.results):
            runs[event.site].append(at)
    return {site: some for site, some in runs.items() if site not in chosen}


def _is_chosen(history: History, site: SiteId) -> bool:
    """Whether the text of a line says by a variable whether its gradients have a graph."""
    line = history.site(site)
    source = history.get(Surroundings).source(line.file)
    return is_decided_elsewhere(source.node_at(line), "create_graph")


class _UsedPasses:
    """The calls of backward() of which a step, or a reader, uses a gradient of what is trained."""

    def __init__(self, history: History) -> None:
        self._history, events = history, history.events
        self.passes = [at for at in history.backwards if events[at].operation == "backward"]
        self._used: dict[int, bool] = {}

    def follows(self, at: int) -> bool:
        """Whether the next pass after a call is one."""
        loss = following(self.passes, at)
        if loss >= 0 and loss not in self._used:
            self._used[loss] = self._is_used(loss)
        return loss >= 0 and self._used[loss]

    def _is_used(self, loss: int) -> bool:
        history = self._history
        trained = history.get(Graph).leaves_led_to(loss) & history.held
        return any(_is_used_of(history, loss, one) for one in trained)


def _is_used_of(history: History, loss: int, leaf: int) -> bool:
    """Whether a step, or a reader, comes before what a pass gave a leaf is cleared."""
    end = history.get(GradientEnds).after(leaf, loss)
    replaced = following(history.gradients_replaced.get(leaf, []), loss)
    return end.uses and not 0 <= replaced < end.at


def _first(history: History, runs: list[int]) -> FirstOrder | None:
    """Return the first of the runs, from the last one back, whose updates one loss goes through."""
    found = None
    for at in reversed(runs):
        one = _followed(history, at)
        if one is None or (found is not None and one.loss != found.loss):
            break
        found = one
    return found


def _followed(history: History, at: int) -> FirstOrder | None:
    event = history.events[at]
    wanted = _trained_of_each(history, event)
    if not wanted:
        return None
    update = _update(history, at, event, wanted)
    loss = UNKNOWN if update < 0 else _loss_through(history, update)
    if loss < 0:
        return None
    return FirstOrder(at, update, loss, tuple(one.tensor for one in wanted), (at,))


def _trained_of_each(history: History, event: Event) -> tuple[Operand, ...]:
    """Return what a call gave the gradients of, one for each; none unless all of it is trained."""
    wanted = event.reads[event.losses :]
    whole = len(wanted) == len(event.results) and all(_is_trained(history, one) for one in wanted)
    return wanted if whole else ()


def _is_trained(history: History, operand: Operand) -> bool:
    """Whether a tensor is held by an optimizer, or was computed from one that is."""
    if operand.leaf:
        return operand.tensor in history.held
    made = history.made_at(operand.tensor)
    return made >= 0 and not history.held.isdisjoint(history.get(Graph).leaves_behind(made))


def _update(history: History, at: int, event: Event, wanted: tuple[Operand, ...]) -> int:
    """Return the first call that joins a gradient, or what was computed of it, with its tensor."""
    of: dict[int, int] = {
        got.tensor: one.tensor for got, one in zip(event.results, wanted, strict=True)
    }
    for position in range(at + 1, history.next_pass(at)):
        one = history.events[position]
        whose = {of[read.tensor] for read in one.reads if read.tensor in of}
        if not whose or not history.flow.carries[position]:
            continue
        if _joins(one, whose):
            return position
        if len(whose) == 1 and not any(made.requires_grad for made in one.results):
            of.update(dict.fromkeys((made.tensor for made in one.results), whose.pop()))
    return UNKNOWN


def _joins(event: Event, tensors: set[int]) -> bool:
    """Whether a call takes one of some tensors into the graph of its result."""
    reads = (one.requires_grad and one.tensor in tensors for one in event.reads)
    return any(reads) and any(made.requires_grad for made in event.results)


def _loss_through(history: History, update: int) -> int:
    """Return the first backward() after a call, if the call is in its graph; else -1."""
    graph = history.get(Graph)
    for backward in history.backwards:
        if backward > update and history.events[backward].operation == "backward":
            return backward if update in graph.behind(backward) else UNKNOWN
    return UNKNOWN


# -- a change without what is changed --------------------------------------------------------------
# The gradient has a graph, and what it changes was taken without one (`p.data - rate * gradient`):
# what a later loss gives back comes through the gradient alone, a remainder of the second order.


class OnlyTheChange(NamedTuple):
    """Calls, by position."""

    gradient: int
    cut: int  # took the tensor's values without its graph
    update: int
    loss: int
    tensor: int


def only_the_change(history: History) -> Iterator[OnlyTheChange]:
    """Yield for each line the first such update whose loss a step of the tensor's follows.

    Where nobody steps by what comes back to the tensor, the loss is there for something else.
    """
    told = set[SiteId]()
    for at, event in history.events.where("autograd.grad".__eq__):
        graph = not event.raised and all(one.requires_grad for one in event.results)
        if event.site in told or not graph or not _trained_of_each(history, event):
            continue
        for cut, update, tensor in islice(_parted(history, at, event), 1):
            loss = _loss_through(history, update)
            if loss >= 0 and _is_stepped_by(history, loss, tensor):
                told.add(event.site)
                yield OnlyTheChange(at, cut, update, loss, tensor)


def _parted(history: History, at: int, event: Event) -> Iterator[tuple[int, int, int]]:
    """Yield the calls that join a gradient, or what was made of it, with its tensor's mere values.

    Each with the call that took those, before it, and with the tensor.
    """
    of = dict(zip((got.tensor for got in event.results), event.reads[event.losses :], strict=True))
    for position in range(at + 1, history.next_pass(at)):
        one = history.events[position]
        whose = next((of[read.tensor] for read in one.reads if read.tensor in of), None)
        if whose is not None and any(made.requires_grad for made in one.results):
            for cut in _bare(history, one, whose):
                yield cut, position, whose.tensor
            of.update(dict.fromkeys((made.tensor for made in one.results), whose))


def _bare(history: History, event: Event, tensor: Operand) -> Iterator[int]:
    """Yield the calls that took a tensor's values without its graph for another call."""
    memory = history.flow.memory
    for read in event.reads:
        cut = UNKNOWN if read.requires_grad else history.made_at(read.tensor)
        same = cut >= 0 and memory(read) == memory(tensor)
        if same and operation(history.events[cut].operation).cuts:
            yield cut


def _is_stepped_by(history: History, loss: int, tensor: int) -> bool:
    """Whether a step uses what a pass adds to what a tensor is, or was computed from."""
    graph, made = history.get(Graph), history.made_at(tensor)
    behind = {tensor} if tensor in history.held or made < 0 else graph.leaves_behind(made)
    for leaf in behind & graph.leaves_led_to(loss) & history.held:
        step = following(history.steps_of(leaf), loss)
        replaced = following(history.gradients_replaced.get(leaf, []), loss)
        if step >= 0 and not 0 <= replaced < step:
            return True
    return False


# -- the last derivative ---------------------------------------------------------------------------
# A derivative that has no graph, and that a loss takes in beside what has one, is a constant to it.
# Of a derivative of a derivative the graph of the first was asked for, and not that of the last.


class LastDerivative(NamedTuple):
    """Calls, by position."""

    gradient: int  # autograd.grad without create_graph
    used: int  # where what it gives meets what has a graph
    loss: int
    second: bool  # it is of what another such call gave; else it meets what it is a derivative of


def last_derivatives(history: History) -> Iterator[LastDerivative]:
    """Yield for each line the first such derivative that a loss goes past.

    Of a first derivative, by what nothing trains: one that is added to the very output that it is
    of, as in the residual of a differential equation. A new input of a network is none.
    """
    told = set[SiteId]()
    second = set(_of_derivatives(history))
    for at, event in history.events.where("autograd.grad".__eq__):
        graphless = not event.create_graph and not any(one.requires_grad for one in event.results)
        if event.site in told or event.raised or not graphless:
            continue
        if at in second or _is_by_an_input(history, event):
            for found in _last(history, at, second=at in second):
                told.add(event.site)
                yield found


def _last(history: History, at: int, *, second: bool) -> Iterator[LastDerivative]:
    """Yield a derivative, if a loss that trains something goes past where it is joined."""
    joins = _meeting_a_graph(history, at)
    used = next((one for one in joins if second or _meets_its_own(history, at, one)), UNKNOWN)
    loss = _loss_through(history, used) if used >= 0 else UNKNOWN
    if loss >= 0 and not history.get(Graph).leaves_led_to(loss).isdisjoint(history.held):
        yield LastDerivative(at, used, loss, second)


def _is_by_an_input(history: History, event: Event) -> bool:
    """Whether a derivative is of what trained parameters compute, by what no optimizer holds."""
    given, by = event.reads[: event.losses], event.reads[event.losses :]
    return all(map(partial(_is_trained, history), given)) and not any(
        _is_trained(history, one) for one in by
    )


def _meets_its_own(history: History, at: int, used: int) -> bool:
    """Whether a derivative is added to what was computed of the very output that it is of.

    As a factor it may be a weight, which is there to be a constant.
    """
    graph, joined = history.get(Graph), history.events[used]
    given = {one.tensor for one in joined.reads if not one.requires_grad}
    if not given.isdisjoint(one.tensor for one in graph.saved(used, unchecked=True)):
        return False
    terms = summands(history, at, ())
    outputs = {maker for one in terms for maker in graph.makers_of(one.operand, one.joined)}
    return not outputs.isdisjoint(graph.behind(used))


def _meeting_a_graph(history: History, at: int) -> Iterator[int]:
    """Yield the calls that join what a call gave, or what was made of it, with a graph.

    What a line takes off the graph itself is meant to be a constant; not what the library's call
    takes off that computed the derivative, as `torch.autograd.functional` does.
    """
    asked = history.events[at]
    of = {one.tensor for one in asked.results}
    for position in range(at + 1, history.next_pass(at)):
        event = history.events[position]
        read = any(one.tensor in of for one in event.reads) and history.flow.carries[position]
        if read and any(one.requires_grad for one in event.results):
            yield position
        elif read:
            by_library = event.site == asked.site != event.inner
            if by_library or not operation(event.operation).cuts:
                of.update(one.tensor for one in event.results)


# -- no second derivative --------------------------------------------------------------------------
# A derivative of a derivative that is exactly zero, each time it was looked at, and part of a loss.
# What is made of straight pieces, as a network of ReLUs is, has none; the term teaches nothing.


LEAST = 3
"""Looks with steps in between: values may be zero at the start."""


class NoSecond(NamedTuple):
    """Calls, by position, and how many were looked at."""

    gradient: int  # the last that was looked at
    used: int
    loss: int
    looks: int


def no_second(history: History) -> Iterator[NoSecond]:
    """Yield for each line that asks for them, and each that uses them, the last case."""
    lines: dict[tuple[SiteId, SiteId], list[tuple[int, int]]] = defaultdict(list)
    other = set[tuple[SiteId, SiteId]]()
    zeros = _looked_into(history)
    for at in _of_derivatives(history) if any(zeros.values()) else ():
        used = next(_readers_of(history, at), UNKNOWN) if at in zeros else UNKNOWN
        if used >= 0:
            key = history.events[at].site, history.events[used].site
            lines[key].append((at, used))
            if not zeros[at]:
                other.add(key)
    for key, some in lines.items():
        if key not in other and len(some) >= LEAST and _is_trained_between(history, some):
            at, used = some[-1]
            loss = _loss_through(history, used)
            if loss >= 0:
                yield NoSecond(at, used, loss, len(some))


def _looked_into(history: History) -> dict[int, bool]:
    """Return the calls of autograd.grad that were looked into, and whether all it gave was zero."""
    calls = [at for at, _ in history.events.where("autograd.grad".__eq__)]
    return {
        latest(calls, history.position(fact.at)): set(fact.status.values()) == {"zero"}
        for fact in history.trace.gradients
        if fact.moment == "asked" and not {"zero", "some"}.isdisjoint(fact.status.values())
    }


def _of_derivatives(history: History) -> Iterator[int]:
    """Yield the calls of autograd.grad that start from what another made."""
    derived = set[int]()
    first = next((at for at, _ in history.events.where("autograd.grad".__eq__)), None)
    later = np.arange(len(history.events) if first is None else first, len(history.events))
    for at, event in history.events.at(later):
        of = any(one.tensor in derived for one in event.reads)
        asks = event.operation == "autograd.grad"
        if asks and any(one.tensor in derived for one in event.reads[: event.losses]):
            yield at
        if asks or of:
            derived.update(one.tensor for one in event.results if one.requires_grad)


def _readers_of(history: History, at: int) -> Iterator[int]:
    for one in history.events[at].results:
        yield from history.readers(one, at)


def _is_trained_between(history: History, some: list[tuple[int, int]]) -> bool:
    first, last = some[0][0], some[-1][0]
    return sum(first < history.position(one.at) < last for one in history.steps) >= LEAST - 1
