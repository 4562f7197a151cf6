"""Losses divided by the number of passes of a batch, where each pass has a step of its own.

A batch that is cut into parts, with a pass for each, has the gradient of the whole once all passes
have added theirs; the loss of each is divided by their number for that. A step that comes with each
pass takes the part of one alone.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import groupby, islice, pairwise
from math import prod
from typing import NamedTuple

from tether.analysis.gradients.graph import Graph
from tether.analysis.history import History, losses_of
from tether.facts import Operand, SiteId, Walk
from tether.finding import At, Claim, Repair, Step, say
from tether.operations.table import operation

MOST_PASSES = 64
"""Passes of one line whose parts are looked at; later ones are of the same loop."""


class SteppedApart(NamedTuple):
    """A line of such passes; positions, of its first pass."""

    backward: int
    divided: int  # the call that divides the loss
    step: int  # the first step that took the gradient of one pass
    cut: int  # the call that gave the pass its part
    parts: int  # of each batch
    tensors: tuple[int, ...]  # what is stepped


class _PartOfPass(NamedTuple):
    """What one pass used of memory that it shows a part of."""

    storages: frozenset[int]
    sizes: frozenset[int]
    cut: int  # the first call that showed it


class DividedPasses(NamedTuple):
    """A line of passes whose losses are all divided by one whole number, last of all."""

    passes: list[int]
    divided: int  # the call that divides the first one's loss
    number: int
    steps: list[int]  # of what the passes go through
    tensors: tuple[int, ...]


def divided_passes(history: History) -> Iterator[DividedPasses]:
    """Yield each line of such passes that has steps."""
    lines: dict[SiteId, list[Walk]] = {}
    for walk in history.trace.walks if history.steps and not history.in_part else ():
        at = history.position(walk.event)
        lines.setdefault(history.events[at].site, []).append(walk)
    for site, walks in lines.items():
        number = walks[0].number
        if number < 2 or any(one.number != number for one in walks) or not number.is_integer():
            continue
        passes = [at for at in history.backwards if history.events[at].site == site]
        divided, steps = _divided(history, passes[0]), _steps(history, walks[0])
        if divided >= 0 and steps:
            yield DividedPasses(passes, divided, int(number), steps, walks[0].leaves)


def stepped_apart(history: History) -> Iterator[SteppedApart]:
    """Yield each line of passes whose losses are divided by how many there are of each batch."""
    for line in divided_passes(history):
        found = _apart(history, line)
        if found is not None:
            yield found


def _apart(history: History, line: DividedPasses) -> SteppedApart | None:
    """Return what is wrong with the passes of a line, if each has a step and they come in parts."""
    passes, number, steps = line.passes[:MOST_PASSES], line.number, line.steps
    if len(passes) < 2 * number:
        return None
    done = [bisect_right(steps, one) for one in passes]
    if any(before == after for before, after in pairwise(done)):
        return None  # two passes without a step between them
    parts = [_part_of(history, one) for one in passes]
    if not _come_in(number, parts):
        return None
    return SteppedApart(passes[0], line.divided, steps[0], parts[0].cut, number, line.tensors)


def _come_in(number: int, parts: list[_PartOfPass]) -> bool:
    """Whether so many passes in a row share a batch, again and again.

    Not where that is how many samples a part has, which its loss may be divided by.
    """
    if not parts[0].storages or number in parts[0].sizes:
        return False
    counts = [len(list(some)) for _, some in groupby(parts, key=lambda one: one.storages)]
    whole = counts[: len(parts) // number]
    return len(whole) > 1 and set(whole) == {number}


def _divided(history: History, backward: int) -> int:
    """Return the call that divides the loss of a pass, last of all; -1 for none."""
    graph, events = history.get(Graph), history.events
    losses = losses_of(events[backward])
    made = [at for one in losses for at in graph.makers_of(one, backward)]
    return made[0] if len(made) == 1 and operation(events[made[0]].operation).divides else -1


def _steps(history: History, walk: Walk) -> list[int]:
    """Return the positions of the steps of what a pass goes through."""
    found = {at for tensor in islice(walk.leaves, 1) for at in history.steps_of(tensor)}
    return sorted(found)


def _part_of(history: History, backward: int) -> _PartOfPass:
    """Return what a pass used of memory without a graph that it shows only a part of."""
    events, storages, sizes, cut = history.events, set[int](), set[int](), -1
    for at in history.flow.behind(backward):
        event = events[at]
        if not event.reads or not operation(event.operation).view:
            continue
        whole = event.reads[0]
        shown = [one for one in event.results if _is_part(one, whole)]
        if shown:
            storages.add(whole.storage)
            sizes.update(shown[0].shape[:1])
            cut = at if cut < 0 else cut
    return _PartOfPass(frozenset(storages), frozenset(sizes), cut)


def _is_part(one: Operand, whole: Operand) -> bool:
    same = one.storage == whole.storage and not one.requires_grad
    return same and prod(one.shape) < prod(whole.shape)


# -- short windows ---------------------------------------------------------------------------------
# Steps that take the gradients of fewer passes than the loss of each was divided by. Where
# gradients are accumulated over so many passes, each loss is divided by their number. At the end of
# an epoch fewer may be left: their step takes a part of a mean only.


LEAST = 2
"""Steps with as many passes as the loss is divided by: one may be a chance."""


class ShortWindow(NamedTuple):
    """A line of passes, some of whose steps have fewer of them; positions."""

    backward: int  # the first pass of such a step
    divided: int  # the call that divides the loss
    step: int  # the first such step
    number: int  # that all losses are divided by
    passes: int  # of that step
    short: int  # how many such steps
    full: int  # steps with as many passes as that
    tensors: tuple[int, ...]


def short_windows(history: History) -> Iterator[ShortWindow]:
    """Yield each line of passes that has both kinds of steps, and no other."""
    for line in divided_passes(history):
        windows = {step: passes for step, passes in _windows(line) if passes}
        full = [step for step, passes in windows.items() if len(passes) == line.number]
        short = [step for step, passes in windows.items() if len(passes) < line.number]
        if not short or len(full) < max(LEAST, len(short)):
            continue  # no step has fewer, or most have
        if len(full) + len(short) < len(windows):
            continue
        usual = {one for step in full for one in _done_between(history, windows[step][-1], step)}
        first, passes = short[0], windows[short[0]]
        if usual >= _done_between(history, passes[-1], first):
            yield ShortWindow(
                passes[0], line.divided, first, line.number, len(passes), len(short), len(full),
                line.tensors,
            )  # fmt: skip


def _windows(line: DividedPasses) -> Iterator[tuple[int, list[int]]]:
    """Yield each step with the passes since the one before it."""
    since = 0
    for step in line.steps:
        until = bisect_left(line.passes, step)
        yield step, line.passes[since:until]
        since = until


def _done_between(history: History, backward: int, step: int) -> set[int]:
    """Return the lines that write something between a pass and a step: a scaling may be one."""
    events = history.events
    return {events[at].site for at in range(backward + 1, step) if events[at].writes}


def claims(history: History) -> Iterator[Claim]:
    """Give one claim for each such line."""
    for found in stepped_apart(history):
        yield _one_part(history, found)
    for short in short_windows(history):
        yield _short(history, short)


def _one_part(history: History, found: SteppedApart) -> Claim:
    events = history.events
    loss, divided, step, cut = (
        events[at].site for at in (found.backward, found.divided, found.step, found.cut)
    )
    return Claim(
        tensors=found.tensors,
        cause=("apart", loss),
        site=step,
        operation="step",
        severity="note",
        message=say(
            "The loss at {divided} is divided by {n}, and each batch has {n} passes, but nothing"
            " adds up: the step at {step} takes the gradient that one pass gives {subject}.",
            divided=At(divided), n=found.parts, step=At(step),
        ),
        story=(
            Step("used", cut, say("a pass gets a part of the batch here")),
            Step("loss", divided, say("its loss is divided by the number of parts")),
            Step("loss", loss, say("backward adds its gradient to what is there: nothing")),
            Step("step", step, say("this step uses the gradient of one part")),
        ),
        repair=Repair(say("Step once all {n} passes have added their gradients, or leave out the"
                          " division.", n=found.parts)),
        count=0,
        calls=(found.step,),
    )  # fmt: skip


def _short(history: History, found: ShortWindow) -> Claim:
    loss, divided, step = (
        history.events[at].site for at in (found.backward, found.divided, found.step)
    )
    parts = {"n": found.number, "divided": At(divided), "step": At(step)}
    return Claim(
        tensors=found.tensors,
        cause=("short", loss),
        site=divided,
        operation=history.events[found.divided].operation,
        severity="note",
        message=say(
            "The loss at {divided} is divided by {n}, and {full} steps at {step} take the gradients"
            " of {n} passes. Others ({short}) take fewer: the first takes {passes}, and so"
            " {passes}/{n} of the mean gradient of {subject}.",
            full=found.full, short=found.short, passes=found.passes, **parts,
        ),
        story=(
            Step("loss", divided, say("each loss is divided by {n}", **parts)),
            Step("loss", loss, say("backward adds a gradient, {passes} times before the step",
                 passes=found.passes)),
            Step("step", step, say("the step uses their sum")),
        ),
        repair=Repair(say("Divide by the number of passes that the step will have, or leave out"
                          " what does not fill a window.")),
        count=found.short,
        calls=(found.divided,),
    )  # fmt: skip
