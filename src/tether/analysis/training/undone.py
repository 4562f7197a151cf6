"""Tensors that lose what their steps changed: what is written over them in between, and from where.

Told are the line that writes, where its values come from, and what leads there: a condition in the
text around the line, or around the nearest line that called its function.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from tether.analysis.history import History, latest
from tether.analysis.sharing.shared_memory import onto_itself
from tether.analysis.surroundings import CALLED, Surroundings, WaysThere
from tether.facts import UNKNOWN, Operand, TensorId
from tether.finding import At, CallOf, Sentence, Step, Tensor, Where, say
from tether.operations.table import operation

MOST_LINES = 3
"""Lines that are told of one tensor."""

_MOST_CALLS = 8
"""Calls that a value is followed back through to where it was taken."""


class Loss(NamedTuple):
    """How the steps' changes of a tensor were lost."""

    said: Sentence
    steps: tuple[Step, ...]
    site: Where


class Undone:
    """Asked of tensors that optimizers hold."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._events = history.events
        self._steps = history.events.called("step".__eq__).tobytes()

    # -- the reasons -----------------------------------------------------------------------------

    def put_back(self, tensor: TensorId) -> Loss | None:
        """Find a line that puts back what is there already, taken after something wrote over it.

        What the steps had made was gone by then. It counts where the next that writes is a step,
        and where it was so more than once.
        """
        steps, operand = self._history.steps_of(tensor), self._history.operand_of(tensor)
        if len(steps) < 2 or operand is None:
            return None
        found = list(self._put_backs(operand, steps[0]))
        if len({bisect_left(steps, at) for *_, at in found}) < 2:
            return None
        over, taken, at = (self._events[one].site for one in found[-1])
        before = self._events[steps[bisect_left(steps, found[-1][0]) - 1]].site
        return Loss(
            say("what {line} puts back was taken at {taken}, after {over} had written over what"
                " the steps had made", line=At(at), taken=At(taken), over=At(over)),
            (
                Step("step", before, say("what this step changes is undone")),
                *self._writers(found[-1][:1], tensor),
                Step("read", taken, say("its values are taken here, to be put back")),
                *self._callers(found[-1][1]),
                Step("written", at, say("they are put back here: nothing changes")),
                *self._callers(found[-1][2]),
            ),
            taken,
        )  # fmt: skip

    def _put_backs(self, operand: Operand, since: int) -> Iterator[tuple[int, int, int]]:
        """Yield what wrote over a tensor, where its values were then taken, and put back."""
        writes = array("q", self._history.writes_to(operand))
        others = ~np.frombuffer(self._steps, bool)[np.asarray(writes)]
        for place in np.flatnonzero(others[:-1] & others[1:]).tolist():
            over, at = writes[place : place + 2]
            last = place + 2 == len(writes) or not others[place + 2]
            if (
                last
                and since < over
                and self._replaces(over, operand)
                and self._replaces(at, operand)
            ):
                taken = self._taken(at, operand, over)
                if taken != UNKNOWN:
                    yield over, taken, at

    def of_the_beginning(self, tensor: TensorId, since: int) -> Loss | None:
        """Find what gave a tensor the values of the beginning again."""
        operand = self._history.operand_of(tensor)
        writes = [] if operand is None else self._besides_steps(operand, since)
        if operand is not None and self._history.steps_of(tensor):
            writes = self._lost(operand, writes, self._history.steps_of(tensor))
        if not writes:
            return None
        return Loss(
            say("when last looked at, its values are those of the beginning again"),
            tuple(self._writers(writes, tensor)),
            self._events[writes[-1]].site,
        )

    def written_over(self, tensor: TensorId) -> Loss | None:
        """Find a line that again and again replaces a stepped tensor by values of elsewhere.

        What is written must not come from what the steps had made of the tensor, as an average, a
        clamp or a snapshot does; nor from what steps make of another one, which are the values of
        one model taken over by the next (the best of a population). A reset is meant: what the
        steps had made was kept before, or an optimizer made after it begins anew.
        """
        steps, operand = self._history.steps_of(tensor), self._history.operand_of(tensor)
        if len(steps) < 2 or operand is None:
            return None
        writes = self._besides_steps(operand, steps[0])
        writes = [at for at in writes if self._replaces(at, operand)]
        lost = self._lost(operand, writes, steps)
        between = {bisect_left(steps, at) for at in lost}
        if len(between) < 2 or self._comes_from(tensor, lost[-1], steps[0]):
            return None
        if any(map(self._is_of_another_that_trains, lost)):
            return None
        return Loss(
            say("between its steps, values that do not come from them are written over it"),
            tuple(self._writers(lost, tensor)),
            self._events[lost[-1]].site,
        )

    # -- parts -----------------------------------------------------------------------------------

    def _besides_steps(self, operand: Operand, since: int) -> list[int]:
        """Return the writes to a tensor after an event that are no steps."""
        writes = self._history.written(operand, self._steps)
        return writes[bisect_right(writes, since) :]

    def _replaces(self, at: int, operand: Operand) -> bool:
        """Whether a call puts other values in the place of all that were there, not of a part."""
        event, memory = self._events[at], self._history.flow.memory
        if self._steps[at] or not operation(event.operation).overwrites:
            return False
        written = (math.prod(one.shape) for one in event.writes if memory(one) == memory(operand))
        whole = max(written, default=0) >= math.prod(operand.shape)
        return whole and not onto_itself(self._history, at)

    def _lost(self, operand: Operand, writes: Sequence[int], steps: Sequence[int]) -> list[int]:
        """Return the writes that are no resets; after the last step, those of no line of resets."""
        resets = {at for at in writes if self._is_reset(operand, at, steps)}
        lines = {self._events[at].site for at in resets}
        return [
            at
            for at in writes
            if at not in resets and not (at > steps[-1] and self._events[at].site in lines)
        ]

    def _is_reset(self, operand: Operand, write: int, steps: Sequence[int]) -> bool:
        """Whether a write begins anew what had come to its end, or what it is over was kept."""
        next_ = bisect_left(steps, write)
        anew = next_ < len(steps) and self._made_between(operand.tensor, write, steps[next_])
        return anew or (next_ > 0 and self._is_kept(operand, steps[next_ - 1], write))

    def _made_between(self, tensor: int, write: int, step: int) -> bool:
        """Whether the optimizer that steps was made after a write."""
        history = self._history
        made = (
            history.position(history.trace.optimizers[one.optimizer].at)
            for one in history.steps
            if history.position(one.at) == step and tensor in one.status
        )
        return any(at > write for at in made)

    def _is_kept(self, operand: Operand, since: int, write: int) -> bool:
        """Whether what a step made was saved before a write, or copied and the copy outlives it."""
        touching = (at for at in self._history.on_storage(operand) if since < at < write)
        return any(self._keeps(at, operand, write) for at in touching)

    def _keeps(self, at: int, operand: Operand, until: int) -> bool:
        """Whether a call stores the values of a tensor, or copies them for longer than to a write.

        Pickle asks a tensor for its strides right before it saves what is behind it.
        """
        memory, row = self._history.flow.memory, operation(self._events[at].operation)
        saves = any(self._events[one].operation == "save" for one in (at, at + 1))
        copies = self._events[at].results if row.copies else ()
        return (
            saves
            or row.leaves in ("numbers", "pickle", "process")
            or any(
                memory(one) != memory(operand) and self._outlives(one.tensor, until)
                for one in copies
            )
        )

    def _outlives(self, tensor: int, at: int) -> bool:
        life = self._history.trace.tensors.get(tensor)
        return life is None or life.died < 0 or self._history.position(life.died) > at

    def _comes_from(self, tensor: int, write: int, since: int) -> bool:
        """Whether what a call wrote was computed from a tensor as it was after a step."""
        events, flow = self._events, self._history.flow
        given = [one for one in events[write].reads if one.tensor != tensor]
        if not given:
            return True  # a fill: an initialisation, or a reset that is meant
        sources = [edge.source for edge in flow.edges[write] if edge.source >= 0]
        behind = set(sources).union(*[flow.behind(one) for one in sources])
        return any(one.tensor == tensor for at in behind if at > since for one in events[at].reads)

    def _is_of_another_that_trains(self, write: int) -> bool:
        """Whether a call writes what optimizers step elsewhere."""
        return any(self._history.flow.memory(one) in self._stepped for one in self._others(write))

    def _others(self, write: int) -> list[Operand]:
        """Return what a call reads and does not write."""
        written = {one.tensor for one in self._events[write].writes}
        return [one for one in self._events[write].reads if one.tensor not in written]

    @cached_property
    def _stepped(self) -> set[int]:
        """Memories of tensors that an optimizer has stepped."""
        history = self._history
        held = {one for optimizer in history.trace.optimizers for one in optimizer.tensors}
        operands = (history.operand_of(one) for one in held if history.steps_of(one))
        return {history.flow.memory(one) for one in operands if one is not None}

    def _taken(self, write: int, target: Operand, since: int) -> int:
        """Return where what a call writes was taken from its own target, after a position; or -1.

        Followed are calls that give a tensor's values as they are, of what was not written since.
        """
        history = self._history
        memory = history.flow.memory
        given = [one for one in self._events[write].reads if one.tensor != target.tensor]
        at, source = write, given[0] if len(given) == 1 else None
        for _ in range(_MOST_CALLS):
            if source is None or memory(source) == memory(target):
                return at if source is not None and since < at < write else UNKNOWN
            written = list(history.writes_to(source))
            made = history.made_at(source.tensor)
            if made < 0 or latest(written, write) > made:
                return UNKNOWN
            at, source = made, self._as_it_is(made)
        return UNKNOWN

    def _as_it_is(self, at: int) -> Operand | None:
        """Return the tensor whose values a call gave as they are."""
        event = self._events[at]
        row = operation(event.operation)
        if len(event.reads) != 1 or len(event.results) != 1 or not (row.same or row.rebuilds):
            return None
        (source,), (result,) = event.reads, event.results
        return source if (source.shape, source.dtype) == (result.shape, result.dtype) else None

    # -- the story -------------------------------------------------------------------------------

    def _writers(self, writes: Sequence[int], tensor: int) -> Iterator[Step]:
        """Yield the lines that write, where their values come from, and what leads there."""
        sites = dict.fromkeys(self._events[at].site for at in writes)
        for site in list(sites)[:MOST_LINES]:
            at = next(one for one in writes if self._events[one].site == site)
            said = say("{call} writes over {x}", call=CallOf(at), x=Tensor(tensor))
            yield Step("written", site, said)
            for one in self._events[at].reads:
                made = self._history.made_at(one.tensor)
                if one.tensor != tensor and made >= 0:
                    said = say("what it writes is made here")
                    yield Step("made", self._events[made].site, said)
            yield from self._around.leading(self._history.site(site))

    def _callers(self, at: int) -> Iterator[Step]:
        for one in self._history.get(WaysThere).callers(self._events[at].site, (at,))[:1]:
            yield Step("called", one, CALLED)

    @property
    def _around(self) -> Surroundings:
        return self._history.get(Surroundings)
