"""What did not train, and why: of each parameter that should have moved and did not.

A parameter moved when its values, compared at some steps and at the end, differ from those at the
first look. Of one that did not, the reasons are tried in the order in which they would hide each
other: nothing holds it, nothing stepped, the rate was zero, the step was too small, a write undid
the step, the gradient was zero because of values met on its way.

A reason is judged elsewhere; here it is only worked out. Nothing is said of a program that did not
come to its end.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from tether.analysis.graph import Graph
from tether.analysis.history import History
from tether.analysis.surroundings import Surroundings, at_line
from tether.facts import UNKNOWN, Movement, Stop, TensorId
from tether.finding import CallOf, Sentence, Step, Tensor, say
from tether.operations.table import operation
from tether.source.reading import calls_of, gathered, returns
from tether.source.syntax import source_of

Why = Literal[
    "not held", "never stepped", "rate zero", "too small", "undone", "not a number",
    "zero by values", "nothing moved it",
]  # fmt: skip

MOST_STOPS = 3
"""Places at which a gradient became zero that are told of one parameter."""


@dataclass(frozen=True)
class Reason:
    """Why a parameter did not move."""

    why: Why
    said: Sentence
    steps: tuple[Step, ...]
    site: int  # the line to name
    certain: bool = False  # and against what the program evidently wants


class Training:
    """The parameters of a program that did not move, and the reasons."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._trace = history.trace
        self._holders: dict[int, int] = {}  # tensor -> the last optimizer that holds it
        self._groups: dict[int, set[tuple[int, int]]] = defaultdict(set)  # tensor -> its groups
        for number, optimizer in enumerate(self._trace.optimizers):
            places = [group for group, size in enumerate(optimizer.groups) for _ in range(size)]
            for tensor, group in zip(optimizer.tensors, places, strict=False):
                self._holders[tensor] = number
                self._groups[tensor].add((number, group))
        self._steps = [one for one in self._trace.movements if one.moment == "step"]
        self._state: dict[TensorId, str] = {}  # "same" or "moved", as far as it was looked at
        for one in self._trace.movements:
            for tensor, status in one.status.items():
                if status == "moved" or (status == "same" and one.moment != "step"):
                    self._state[tensor] = status

    @cached_property
    def reasons(self) -> dict[int, Reason]:
        """Each parameter that did not move, with the reason."""
        if self._trace.outcome != "finished" or not self._history.backwards:
            return {}
        found = {}
        for tensor in self._subjects():
            reason = self._reason(TensorId(tensor))
            if reason is not None:
                found[tensor] = reason
        return found

    def moved(self, tensor: int) -> bool | None:
        """Whether the values of a tensor are others than at the first look; None: not known."""
        status = self._state.get(TensorId(tensor))
        return None if status is None else status == "moved"

    # -- whom it is about ------------------------------------------------------------------------

    def _subjects(self) -> Iterator[int]:
        """Yield what optimizers hold, and parameters that a finished backward gave a gradient."""
        yield from self._holders
        for tensor in sorted(self._history.had_gradient):
            fact, kind = self._history.facts_of_name(tensor), self._trace.tensors.get(tensor)
            if tensor in self._holders or kind is None or tensor in self._history.asked:
                continue
            if kind.kind != "Tensor" or (fact is not None and fact.module):
                yield tensor

    # -- the reasons, in order -------------------------------------------------------------------

    def _reason(self, tensor: TensorId) -> Reason | None:
        if self.moved(tensor):
            return self._written_over(tensor)
        for ask in (
            self._not_held, self._never_stepped, self._not_a_number, self._rate_zero, self._undone,
            self._written_over, self._too_small, self._zero_by_values,
        ):  # fmt: skip
            found = ask(tensor)
            if found is not None:
                return found
        return None

    def _not_held(self, tensor: TensorId) -> Reason | None:
        if tensor in self._holders or not self._history.steps or self.moved(tensor) is None:
            return None
        return Reason(
            "not held",
            say("no optimizer holds it, though backward gives it a gradient"),
            (
                *self._made(tensor),
                *self._without(),
                *self._passes(tensor),
            ),
            self._made_site(tensor),
        )  # fmt: skip

    def _never_stepped(self, tensor: TensorId) -> Reason | None:
        number = self._holders.get(tensor, UNKNOWN)
        if number < 0 or any(tensor in one.status for one in self._history.steps):
            return None
        if tensor not in self._history.had_gradient or self.moved(tensor) is None:
            return None
        optimizer = self._trace.optimizers[number]
        passes, waiting = self._passes(tensor), tuple(self._step_calls(optimizer.site))
        return Reason(
            "never stepped",
            say("{kind} holds it and no step of it ever ran", kind=optimizer.kind),
            (
                Step("held", optimizer.site, say("{kind} takes it here", kind=optimizer.kind)),
                *passes,
                *waiting,
                *self._broken(),
            ),
            optimizer.site,
            certain=bool(waiting),  # else the gradients may be all that was wanted
        )  # fmt: skip

    def _not_a_number(self, tensor: TensorId) -> Reason | None:
        looks = self._looks(tensor)
        if not any(one.status[tensor] == "lost" for one in looks):
            return None
        first = next(one for one in looks if one.status[tensor] == "lost")
        return Reason(
            "not a number",
            say("its values are not finite numbers, and no step changes that"),
            (*self._made(tensor), *self._broken(), Step("step", first.site,
             say("{x} is not finite at this step", x=Tensor(tensor)))),
            first.site,
            certain=True,
        )  # fmt: skip

    def _rate_zero(self, tensor: TensorId) -> Reason | None:
        number, groups = self._holders.get(tensor, UNKNOWN), self._groups.get(tensor, set())
        rates = [one for one in self._trace.rates if (one.optimizer, one.group) in groups]
        if not rates or any(one.rate for one in rates) or not self._stayed(tensor):
            return None
        optimizer, group = self._trace.optimizers[number], rates[-1].group
        alone = all(one.rate == 0 for one in self._trace.rates if one.optimizer == number)
        return Reason(
            "rate zero",
            say("its learning rate was zero at every step"),
            (
                Step("held", optimizer.site, say("{kind} takes {x} here, in parameter group {n}",
                     kind=optimizer.kind, x=Tensor(tensor), n=group)),
                Step("step", self._stepped_at(number), say("the learning rate is 0 here")),
                *self._written_rates(optimizer.site),
            ),
            optimizer.site,
            certain=alone,
        )  # fmt: skip

    def _undone(self, tensor: TensorId) -> Reason | None:
        looks = self._looks(tensor)
        if not any(one.status[tensor] == "moved" for one in looks):
            return None
        if self.moved(tensor) is not False:
            return None
        operand = self._history.operand_of(tensor)
        first = self._history.position(looks[0].at)
        writes = [
            at
            for at in (self._history.writes_to(operand, first) if operand is not None else ())
            if self._history.events[at].operation != "step"
        ]
        if not writes:
            return None
        last = writes[-1]
        site = self._history.events[last].site
        return Reason(
            "undone",
            say("its steps were undone: at the end its values are those of the beginning"),
            (
                Step("step", looks[0].site, say("this step moves {x}", x=Tensor(tensor))),
                *self._writes(writes, tensor),
            ),
            site,
        )

    def _written_over(self, tensor: TensorId) -> Reason | None:
        """Find a line that again and again replaces a stepped tensor by values of elsewhere.

        What is written must not come from what the steps had made of the tensor, as an average, a
        clamp or a snapshot does.
        """
        steps = [self._history.position(one.at) for one in self._history.steps
                 if tensor in one.status]  # fmt: skip
        operand = self._history.operand_of(tensor)
        if len(steps) < 2 or operand is None:
            return None
        writes = [
            at
            for at in self._history.writes_to(operand, steps[0])
            if operation(self._history.events[at].operation).overwrites
        ]
        between = {bisect_left(steps, at) for at in writes}
        if len(between) < 2 or self._comes_from(tensor, writes[-1], steps[0]):
            return None
        return Reason(
            "undone",
            say("between its steps, values that do not come from them are written over it"),
            tuple(self._writes(writes, tensor)),
            self._history.events[writes[-1]].site,
        )

    def _comes_from(self, tensor: int, write: int, since: int) -> bool:
        """Whether what a call wrote was computed from a tensor as it was after a step."""
        events = self._history.events
        given = [one for one in events[write].reads if one.tensor != tensor]
        if not given:
            return True  # a fill: an initialisation, or a reset that is meant
        sources = [edge.source for edge in self._history.flow.edges[write] if edge.source >= 0]
        behind = set(sources).union(*[self._history.flow.behind(one) for one in sources])
        return any(one.tensor == tensor for at in behind if at > since for one in events[at].reads)

    def _too_small(self, tensor: TensorId) -> Reason | None:
        if not self._stayed(tensor) or tensor not in self._had_values:
            return None
        number, operand = self._holders.get(tensor, UNKNOWN), self._history.operand_of(tensor)
        if number < 0 or operand is None:
            return None
        low = operand.dtype in ("bfloat16", "float16")
        return Reason(
            "too small",
            say(
                "its gradient was not zero, and yet no step changed a bit of it: the update is"
                " below what {dtype} can hold beside such values",
                dtype=operand.dtype,
            )
            if low
            else say("its gradient was not zero, and yet no step changed a bit of it"),
            (
                *self._made(tensor),
                Step("held", self._trace.optimizers[number].site, say("its optimizer is made")),
                *self._typed(tensor),
                Step("step", self._stepped_at(number), say("this step changes nothing of {x}",
                     x=Tensor(tensor))),
            ),
            self._stepped_at(number),
            certain=low,
        )  # fmt: skip

    def _zero_by_values(self, tensor: TensorId) -> Reason | None:
        statuses = self._history.trained.get(tensor, set())
        if not statuses or statuses & {"some"} or statuses == {"unchecked"}:
            return None
        stops = list(self._stops(tensor))[:MOST_STOPS]
        if not stops:
            return self._cancelled(tensor) if statuses <= {"zero", "unchecked"} else None
        at, _ = stops[0]
        return Reason(
            "zero by values",
            say("its gradient was zero at {call}, because of the values there", call=CallOf(at)),
            tuple(step for one, stop in stops for step in self._zeroed(one, stop)),
            self._history.events[at].site,
        )

    def _cancelled(self, tensor: int) -> Reason | None:
        """Find the call in which several ways from a tensor meet, and whose gradients add to zero.

        The pass was followed, and none of its calls gave back zeros on any of these ways.
        """
        graph, events = self._history.get(Graph), self._history.events
        for fact in self._trace.followed:
            behind = sorted(graph.behind(self._history.position(fact.event)))
            uses = {at for at in behind if any(one.tensor == tensor for one in events[at].reads)}
            if len(uses) < 2:
                continue
            for at in behind:
                if len(uses & (graph.behind(at) | {at})) > 1:
                    said = say("what comes back to it over several ways adds up to zero")
                    return Reason(
                        "zero by values",
                        said,
                        (
                            *(Step("used", events[one].site, say("one way begins here"))
                              for one in sorted(uses)[:MOST_STOPS]),
                            Step("zero", events[at].site, say("the ways meet here")),
                        ),
                        events[at].site,
                    )  # fmt: skip
        return None

    def _zeroed(self, at: int, stop: Stop | None) -> Iterator[Step]:
        """Yield where a gradient became zero, and where a factor that is zero came from."""
        yield Step("zero", self._history.events[at].site, _stopped(at, stop))
        if stop is None or not stop.saved or stop.low or stop.high:
            return
        for operand in self._history.get(Graph).saved(at):
            writes = [one for one in self._history.writes_to(operand) if one < at]
            for one in (*writes[-1:], *self._origin(operand.tensor)):
                said = say("{x}, which it saved, got its values here", x=Tensor(operand.tensor))
                yield Step("written", self._history.events[one].site, said)

    def _origin(self, tensor: int) -> Iterator[int]:
        """Yield the calls on the last few lines by which a value was computed."""
        waiting, lines = [self._history.made_at(tensor)], set[int]()
        while waiting and len(lines) < MOST_STOPS:
            at = waiting.pop(0)
            if at < 0:
                continue
            site = self._history.events[at].site
            if site not in lines:
                lines.add(site)
                yield at
            waiting += [edge.source for edge in self._history.flow.edges[at]]

    # -- what the reasons rest on ----------------------------------------------------------------

    @cached_property
    def _had_values(self) -> set[int]:
        """Tensors whose gradient was something else than zero as a step used it."""
        return {
            int(tensor)
            for fact in self._history.steps
            for tensor, status in fact.status.items()
            if status == "some"
        }

    def _looks(self, tensor: TensorId) -> list[Movement]:
        return [one for one in self._steps if tensor in one.status]

    def _stayed(self, tensor: TensorId) -> bool:
        """Whether some steps were looked at, and none of them moved it."""
        looks = self._looks(tensor)
        return bool(looks) and all(one.status[tensor] == "same" for one in looks)

    def _stops(self, tensor: int) -> Iterator[tuple[int, Stop | None]]:
        """Yield the calls behind which only zeros came back, of those that the tensor went into."""
        graph = self._history.get(Graph)
        for fact in self._trace.followed:
            places: list[tuple[int, Stop | None]] = [
                (graph.call_of(fact.thread, stop.node), stop)
                for stop in fact.stops
                if not stop.broken
            ]
            places += [(graph.call_of(fact.thread, node), None) for node in fact.zeroed]
            for at, stop in sorted(places, key=lambda one: one[0], reverse=True):
                if at >= 0 and self._went_into(tensor, at, stop):
                    yield at, stop
            if places:
                return

    def _went_into(self, tensor: int, at: int, stop: Stop | None) -> bool:
        """Whether a tensor is behind a call, or behind the edge of it that gave no gradient."""
        graph, event = self._history.get(Graph), self._history.events[at]
        behind = {at} if stop is None else set()
        kind = graph.kind(at)
        operands = list(event.reads)
        if stop is not None and kind is not None:
            places = {-1 - target for _, place, target in kind.edges
                      if place == stop.input and target < 0}  # fmt: skip
            operands = [one for n, one in enumerate(event.reads) if n in places] or operands
        for one in operands:
            if one.tensor == tensor:
                return True
            made = list(graph.makers_of(one, at))
            behind.update(made, *[graph.behind(earlier) for earlier in made])
        behind.discard(at)
        return any(
            one.tensor == tensor
            for earlier in behind
            for one in self._history.events[earlier].reads
        )

    def _without(self) -> Iterator[Step]:
        """Yield where optimizers were made, and of what their parameters were gathered."""
        for one in self._trace.optimizers:
            yield Step("held", one.site, say("{kind} is made here, without it", kind=one.kind))
            empty = [n for n, size in enumerate(one.groups) if not size]
            if empty:
                many = say("parameter group {n} of it is empty", n=empty[0])
                yield Step("held", one.site, many)
            place = self._history.site(one.site)
            source = source_of(place.file, self._trace.sources.get(place.file, ""))
            for error in self._trace.raised:
                at = self._history.position(error.event)
                if at >= 0 and self._history.events[at].operation == "add_param_group":
                    yield Step("raised", error.site, say("this parameter group is refused"))
            for line in gathered(source, place):
                yield Step("held", at_line(place, line), say("what it is given is gathered here"))

    def _typed(self, tensor: int) -> Iterator[Step]:
        """Yield where a parameter was given the memory, and with it the dtype, that it has."""
        operand = self._history.operand_of(tensor)
        for at in self._history.on_storage(operand) if operand is not None else ():
            event = self._history.events[at]
            if event.operation == "data.__set__" and event.reads[0].tensor == tensor:
                said = say("it is given memory of {dtype} here", dtype=event.reads[-1].dtype)
                yield Step("typed", event.site, said)
                return

    def _broken(self) -> Iterator[Step]:
        """Yield the calls through which finite gradients came back as what is not finite."""
        graph = self._history.get(Graph)
        for fact in self._trace.followed:
            for stop in fact.stops:
                at = graph.call_of(fact.thread, stop.node) if stop.broken else UNKNOWN
                if at >= 0:
                    yield Step("broken", self._history.events[at].site, _stopped(at, stop))
                    return

    def _made_site(self, tensor: int) -> int:
        at = self._history.made_at(tensor)
        if at >= 0:
            return self._history.events[at].site
        number = self._holders.get(tensor, UNKNOWN)
        return self._trace.optimizers[number].site if number >= 0 else UNKNOWN

    def _made(self, tensor: int) -> Iterator[Step]:
        at = self._history.made_at(tensor)
        if at >= 0:
            said = say("it is made here")
            yield Step("made", self._history.events[at].site, said)

    def _passes(self, tensor: int) -> Iterator[Step]:
        """Yield the line of the last backward pass after which it had a gradient."""
        for fact in reversed(self._history.after_backward):
            if fact.status.get(TensorId(tensor), "none") != "none" and fact.site >= 0:
                said = say("backward gives it a gradient")
                yield Step("loss", fact.site, said)
                return

    def _stepped_at(self, optimizer: int) -> int:
        return next(
            (one.site for one in reversed(self._history.steps) if one.optimizer == optimizer),
            UNKNOWN,
        )

    def _writes(self, writes: Sequence[int], tensor: int) -> Iterator[Step]:
        sites: set[int] = set()
        for at in writes:
            event = self._history.events[at]
            if event.site not in sites and len(sites) < MOST_STOPS:
                sites.add(event.site)
                said = say("{call} writes over {x}", call=CallOf(at), x=Tensor(tensor))
                yield Step("written", event.site, said)

    # -- what stands in the text and did not run -------------------------------------------------

    def _step_calls(self, site: int) -> Iterator[Step]:
        """Yield the calls of a step in the program's text at whose lines no step was heard."""
        ran = {
            (place.file, place.line) for place in map(self._history.site, self._sites_of_steps())
        }
        here = self._history.site(site)
        text = self._trace.sources.get(here.file, "")
        for line, condition in calls_of(source_of(here.file, text), "step"):
            if (here.file, line) in ran:
                continue
            place = at_line(here, line)
            yield Step("step", place, say("a step is asked for here, and none ran"))
            if condition:
                yield Step("mode", at_line(here, condition), say("under this condition"))

    def _sites_of_steps(self) -> set[int]:
        return {one.site for one in self._history.steps}

    def _written_rates(self, site: int) -> Iterator[Step]:
        """Yield where a scheduler was made: what sets the rate after the optimizer."""
        for one in self._trace.schedules:
            if self._trace.optimizers[one.optimizer].site == site:
                yield Step("rate", one.site, say("{kind} sets the rate", kind=one.kind))
                if one.factor >= 0:
                    place = self._history.site(one.factor)
                    source = self._history.get(Surroundings).source(place.file)
                    yield Step("rate", one.factor, say("it is computed by this function"))
                    for line in returns(source, place.line):
                        yield Step("rate", at_line(place, line), say("this is what it returns"))


def _stopped(at: int, stop: Stop | None) -> Sentence:
    """Say how a gradient became zero at a call."""
    call = CallOf(at)
    if stop is not None and stop.broken:
        return say(
            "{call} gives back NaN or infinity: what it saved lies between {low} and {high}",
            call=call, low=f"{stop.low:.4g}", high=f"{stop.high:.4g}",
        )  # fmt: skip
    if stop is None:
        return say("what comes back to {call} adds up to zero", call=call)
    if not stop.zeros:
        return say("{call} gives nothing back over its input {n}", call=call, n=stop.input + 1)
    if stop.saved:
        return say(
            "{call} gives back only zeros: what it saved as {saved} lies between {low} and {high}",
            call=call, saved=stop.saved, low=f"{stop.low:.4g}", high=f"{stop.high:.4g}",
        )  # fmt: skip
    return say("{call} gives back only zeros", call=call)
