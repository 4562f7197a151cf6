"""What did not train, and why: of each parameter that should have moved and did not.

A parameter moved when its values, compared at some steps and at the end, differ from those at the
first look. Of one that did not, the reasons are tried in the order in which they would hide each
other: nothing holds it, nothing stepped, the rate was zero, the step was too small, a write undid
the step, the gradient was zero because of values met on its way.

A reason is judged elsewhere; here it is only worked out. Nothing is said of a program that did not
come to its end.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Literal

from tether.analysis.gradients.graph import Graph
from tether.analysis.gradients.ungraded import Unasked, not_handed
from tether.analysis.gradients.zeroed import Zeroed
from tether.analysis.history import History
from tether.analysis.surroundings import Surroundings, WaysThere, at_line
from tether.analysis.training.handed import Handed
from tether.analysis.training.made_anew import LinesAnew
from tether.analysis.training.taken_out import taken_out_by
from tether.analysis.training.undone import Undone
from tether.facts import UNKNOWN, Moment, Movement, Stop, TensorId
from tether.finding import At, CallOf, Sentence, Step, Tensor, Where, say
from tether.source.reading import calls_of, gathered, left_by, returns

Why = Literal[
    "not asked", "not in apply", "handed", "not held", "never stepped", "left out", "rate zero",
    "too small", "taken out", "undone", "put back", "not a number", "nothing back",
    "zero by values", "cancelled", "stopped",
]  # fmt: skip

BY_VALUES: frozenset[Why] = frozenset({"zero by values", "cancelled"})
"""Reasons of a gradient that was there and was zero, for the values of this run."""

LOADED = "load_state_dict"
"""Of `facts.Schedule`: no scheduler, but a state with learning rates of its own."""

LEAST_LOOKS = 3
"""Looks at the steps of an optimizer under which a parameter that had moved stays as it is."""

MOST_STOPS = 3
"""Places at which a gradient became zero that are told of one parameter."""


@dataclass(frozen=True)
class Reason:
    """Why a parameter did not move."""

    why: Why
    said: Sentence
    steps: tuple[Step, ...]
    site: Where  # the line to name
    certain: bool = False  # and against what the program evidently wants


class Training:
    """The parameters of a program that did not move, and the reasons."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._trace = history.trace
        self._holders: dict[int, int] = {}  # tensor -> the last optimizer that holds it
        self._groups: dict[int, set[tuple[int, int]]] = defaultdict(set)  # tensor -> its groups
        for number, optimizer in enumerate(self._trace.optimizers):
            for tensor, group in optimizer.members():
                self._holders[tensor] = number
                self._groups[tensor].add((number, group))
        self._steps = [one for one in self._trace.movements if one.moment == "step"]
        self._state: dict[TensorId, str] = {}  # "same" or "moved", as far as it was looked at
        self._last: dict[TensorId, Moment] = {}  # the last look that found the same values
        for one in self._trace.movements:
            for tensor, status in one.status.items():
                if status == "moved" or (status == "same" and one.moment != "step"):
                    self._state[tensor] = status
                if status == "same":
                    self._last[tensor] = max(one.at, self._last.get(tensor, one.at))

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
        """Whether the values of a tensor are others than at the first look; None: not known.

        That they are the same is known if there was a look after the last step.
        """
        status = self._state.get(TensorId(tensor))
        if status == "same" and (steps := self._history.steps_of(tensor)):
            last = self._history.position(self._last[TensorId(tensor)])
            status = status if last >= steps[-1] else None
        return None if status is None else status == "moved"

    # -- whom it is about ------------------------------------------------------------------------

    def _subjects(self) -> Iterator[int]:
        """Yield what optimizers hold, and parameters that a finished backward gave a gradient."""
        yield from self._holders
        for tensor in sorted(self._history.had_gradient):
            fact, kind = self._history.facts_of_name(tensor), self._trace.tensors.get(tensor)
            if tensor in self._holders or kind is None:
                continue
            module = fact is not None and bool(fact.module)
            if tensor in self._history.asked:
                if module and tensor in self._history.get(Handed).to:
                    yield tensor
            elif kind.kind != "Tensor" or module:
                yield tensor

    # -- the reasons, in order -------------------------------------------------------------------

    def _reason(self, tensor: TensorId) -> Reason | None:
        if self.moved(tensor):
            return self._put_back(tensor) or self._written_over(tensor) or self._stopped(tensor)
        for ask in (
            self._not_asked, self._handed, self._not_held, self._never_stepped, self._not_a_number,
            self._rate_zero, self._put_back, self._undone, self._written_over, self._left_out,
            self._taken_out, self._too_small, self._zero_by_values,
        ):  # fmt: skip
            found = ask(tensor)
            if found is not None:
                return found
        return None

    def _not_asked(self, tensor: TensorId) -> Reason | None:
        passes = self._history.get(Unasked).passes.get(tensor)
        if not passes or tensor in self._history.had_gradient or not self._stayed(tensor):
            return None
        event = self._history.events[passes[0]]
        call = not_handed(self._history, tensor, passes[0])
        if call >= 0:
            return self._not_in_apply(tensor, call, passes[0])
        return Reason(
            "not asked",
            say("{call} at {line} asks for the gradients of other tensors only",
                call=CallOf(passes[0]), line=At(event.site)),
            (
                *self._made(tensor),
                Step("loss", event.site, say("it is behind this loss, and not asked for")),
                *self._wanted(passes[0]),
            ),
            event.site,
            certain=True,
        )  # fmt: skip

    def _not_in_apply(self, tensor: TensorId, call: int, backward: int) -> Reason:
        site, inner = (self._history.events[at].site for at in (call, backward))
        return Reason(
            "not in apply",
            say("{call} at {line} computes with it and is not handed it, so its backward asks for"
                " the gradients of other tensors only, at {inner}",
                call=CallOf(call), line=At(site), inner=At(inner)),
            (
                Step("cut", site, say("it is not among the arguments of this call")),
                *self._made(tensor),
                Step("loss", inner, say("it is behind this pass, and not asked for")),
            ),
            site,
            certain=True,
        )  # fmt: skip

    def _wanted(self, backward: int) -> Iterator[Step]:
        """Yield the lines of the text that put together what a pass asks for."""
        place = self._history.site_of(self._history.events[backward])
        for line in gathered(self._around.source(place.file), place, 1, "inputs"):
            yield Step("held", at_line(place, line), say("what it asks for is gathered here"))

    def _handed(self, tensor: TensorId) -> Reason | None:
        handed = self._history.get(Handed)
        taker = handed.to.get(tensor)
        if taker is None or tensor in self._holders or self.moved(tensor) is not False:
            return None
        story = tuple(handed.story(taker))
        return Reason(
            "handed",
            say("its gradient is given to {x}, which the steps change instead", x=Tensor(taker)),
            (*self._made(tensor), *story),
            story[-1].site if story else self._made_site(tensor),
        )

    def _not_held(self, tensor: TensorId) -> Reason | None:
        if tensor in self._holders or not self._history.steps or self.moved(tensor) is None:
            return None
        if tensor in self._history.get(LinesAnew).left:
            return None  # it was there for one pass, and no optimizer could have held it
        return Reason(
            "not held",
            say("no optimizer holds it, though backward gives it a gradient"),
            (
                *self._made(tensor),
                *self._without(),
                *self._passes(tensor),
            ),
            self._made_site(tensor),
            # What an empty group was to be given is what is missing.
            certain=any(0 in one.groups for one in self._trace.optimizers),
        )  # fmt: skip

    def _never_stepped(self, tensor: TensorId) -> Reason | None:
        number = self._holders.get(tensor, UNKNOWN)
        if number < 0 or self._history.steps_of(tensor):
            return None
        if tensor not in self._history.had_gradient or self.moved(tensor) is None:
            return None
        optimizer = self._trace.optimizers[number]
        return Reason(
            "never stepped",
            say("{kind} holds it and no step of it ever ran", kind=optimizer.kind),
            (
                Step("held", optimizer.site, say("{kind} takes it here", kind=optimizer.kind)),
                *self._passes(tensor),
                *self._step_calls(optimizer.site),
                *self._broken(),
            ),
            optimizer.site,
            certain=self._is_wasted(tensor, number),
        )  # fmt: skip

    def _is_wasted(self, tensor: TensorId, optimizer: int) -> bool:
        """Whether the program meant to train: it never read the gradients that it made.

        They were made again and again, or a scheduler was to set the rate of the steps.
        """
        if tensor in self._history.asked:
            return False
        if any(one.optimizer == optimizer and one.kind != LOADED for one in self._trace.schedules):
            return True
        passes = self._history.after_backward
        return sum(one.status.get(tensor, "none") != "none" for one in islice(passes, 2)) > 1

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
        begun = optimizer.rates[group] if group < len(optimizer.rates) else 0.0
        given = optimizer.given_at(tensor)
        stored = self._stored_rates(optimizer.site) if begun else []
        return Reason(
            "rate zero",
            say("its learning rate, {rate} as {kind} was made, was zero at every step",
                rate=f"{begun:.3g}", kind=optimizer.kind)
            if begun
            else say("its learning rate was zero at every step"),
            (
                Step("held", given, say("{kind} takes {x} here, in parameter group {n}",
                     kind=optimizer.kind, x=Tensor(tensor), n=group)),
                Step("step", self._stepped_at(number), say("the learning rate is 0 here")),
                *self._written_rates(optimizer.site),
                *stored,
            ),
            stored[0].site if len(stored) == 1 else given,
            certain=alone,
        )  # fmt: skip

    def _put_back(self, tensor: TensorId) -> Reason | None:
        found = self._undoing.put_back(tensor)
        return None if found is None else Reason("put back", *found)

    def _undone(self, tensor: TensorId) -> Reason | None:
        looks = self._looks(tensor)
        moved = next((one for one in looks if one.status[tensor] == "moved"), None)
        if moved is None or self.moved(tensor) is not False:
            return None
        since = self._history.position(looks[0].at)
        found = self._undoing.of_the_beginning(tensor, since)
        if found is None:
            return None
        step = Step("step", moved.site, say("this step moves {x}", x=Tensor(tensor)))
        return Reason("undone", found.said, (step, *found.steps), found.site)

    def _written_over(self, tensor: TensorId) -> Reason | None:
        found = self._undoing.written_over(tensor)
        return None if found is None else Reason("undone", *found)

    @property
    def _undoing(self) -> Undone:
        return self._history.get(Undone)

    def _left_out(self, tensor: TensorId) -> Reason | None:
        """Find where a step of the program's own ends before it comes to a tensor."""
        events, steps = self._history.events, self._history.steps_of(tensor)
        if tensor not in self._had_values or not self._stayed(tensor):
            return None
        if tensor in self._written_by_steps:
            return None
        last = self._last_in(steps[-1])
        if last is None:
            return None
        read = events[last].reads
        return Reason(
            "left out",
            say("the step never writes it. The last that the step does is to read the gradient of"
                " {y}, which is None", y=Tensor(read[0].tensor))
            if events[last].none and read
            else say("the step never writes it. The last call of the step is {call} at {line}",
                     call=CallOf(last), line=At(events[last].site)),
            (
                Step("step", events[last].site, say("the step ends after this")),
                *self._left_by(events[last].site),
                Step("step", events[steps[-1]].site, say("this step changes nothing of {x}",
                     x=Tensor(tensor))),
                *self._made(tensor),
            ),
            events[last].site,
            certain=events[last].none,
        )  # fmt: skip

    def _left_by(self, site: int) -> Iterator[Step]:
        """Yield where the text leaves the step or its loop, decided by what a line asked."""
        place = self._history.site(site)
        line = left_by(self._around.source(place.file), place.line)
        if line:
            yield Step("step", at_line(place, line), say("it is left here"))

    def _last_in(self, step: int) -> int | None:
        """Return the last call that was heard inside a step, a switch of gradients left aside."""
        events = self._history.events
        for at in range(step - 1, -1, -1):
            if events[at].operation == "set_grad_enabled":
                continue
            return at if self._history.inside(events[at], "step") >= 0 else None
        return None

    def _taken_out(self, tensor: TensorId) -> Reason | None:
        """Name the norm that takes out what a bias adds, where no step changed the bias."""
        if not self._stayed(tensor) or tensor not in self._had_values:
            return None
        norm = taken_out_by(self._history, tensor)
        if norm == UNKNOWN:
            return None
        site = self._history.events[norm].site
        return Reason(
            "taken out",
            say("{norm} at {line} takes the mean of each channel away, and with it what {x} adds",
                norm=CallOf(norm), line=At(site), x=Tensor(tensor)),
            (*self._made(tensor), Step("used", site, say("the norm is given what {x} was added to",
                                                         x=Tensor(tensor)))),
            site,
            certain=False,
        )  # fmt: skip

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
                "its gradient was not zero, and yet no step that was looked at changed a bit of it:"
                " the update is below what {dtype} can hold beside such values",
                dtype=operand.dtype,
            )
            if low
            else say(
                "its gradient was not zero, and yet no step that was looked at changed a bit of it"
            ),
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

    def _stopped(self, tensor: TensorId) -> Reason | None:
        """Find what moved under one optimizer, and under the next one not at all."""
        number, operand = self._holders.get(tensor, UNKNOWN), self._history.operand_of(tensor)
        if operand is None or not self._stays_under(number, tensor):
            return None
        site, kind = self._trace.optimizers[number].site, self._trace.optimizers[number].kind
        return Reason(
            "stopped",
            say("no step of the {kind} of {line} that was looked at changed a bit of it, though it"
                " had a gradient each time. It is {dtype} by then", kind=kind, line=At(site),
                dtype=operand.dtype),
            (
                Step("held", site, say("this optimizer is made")),
                *self._typed(tensor),
                Step("step", self._stepped_at(number), say("this step changes nothing of {x}",
                     x=Tensor(tensor))),
            ),
            site,
            certain=operand.dtype in ("bfloat16", "float16"),
        )  # fmt: skip

    def _stays_under(self, number: int, tensor: TensorId) -> bool:
        """Whether an optimizer that steps with gradients leaves what another one had moved."""
        steps = (one.status for one in self._history.steps if one.optimizer == number)
        if number < 0 or any(one.get(tensor, "none") in ("none", "zero") for one in steps):
            return False
        looks = self._looks(tensor)
        last = [one.status[tensor] for one in looks if one.optimizer == number]
        before = {one.status[tensor] for one in looks if one.optimizer != number}
        stays = len(last) >= LEAST_LOOKS and set(last) == {"same"} and "moved" in before
        return stays and not self._rated_zero(tensor)

    def _rated_zero(self, tensor: TensorId) -> bool:
        """Whether some step of the last optimizer of a tensor had a learning rate of zero."""
        number, groups = self._holders[tensor], self._groups[tensor]
        return any(
            not one.rate for one in self._trace.rates
            if one.optimizer == number and (one.optimizer, one.group) in groups
        )  # fmt: skip

    def _zero_by_values(self, tensor: TensorId) -> Reason | None:
        statuses = self._history.trained.get(tensor, set())
        if not statuses or statuses & {"some"} or statuses == {"unchecked"}:
            return None
        if self.moved(tensor) is not False:
            return None
        stops = list(islice(self._zeros.stops(tensor), MOST_STOPS))
        if not stops:
            return self._cancelled(tensor)
        at, stop = stops[0]
        if stop is None and self._zeros.cancelled(at):
            return self._cancelled_at(at)
        nothing = statuses == {"none"}
        return Reason(
            "nothing back" if nothing else "zero by values",
            say("{call} gives no gradient back to it", call=CallOf(at))
            if nothing
            else say("its gradient was zero at {call}, in the passes that were followed",
                     call=CallOf(at)),
            tuple(step for one, stop in stops for step in self._zeroed(one, stop)),
            self._history.events[at].site,
        )  # fmt: skip

    @property
    def _graph(self) -> Graph:
        return self._history.get(Graph)

    @property
    def _zeros(self) -> Zeroed:
        return self._history.get(Zeroed)

    def _cancelled(self, tensor: int) -> Reason | None:
        """Say in which call ways from a tensor meet over which zero comes back as their sum."""
        found = self._zeros.meeting(tensor)
        if found is None:
            return None
        (at, uses), events = found, self._history.events
        joined = [one for place in events[at].reads for one in self._graph.makers_of(place, at)]
        return Reason(
            "cancelled",
            say("what comes back to it over several ways adds up to zero"),
            (
                *(Step("used", events[one].site, say("one way begins here"))
                  for one in uses[:MOST_STOPS]),
                *(Step("used", events[one].site, say("one way goes over this"))
                  for one in joined[:MOST_STOPS]),
                Step("zero", events[at].site, say("the ways meet here")),
            ),
            events[at].site,
        )  # fmt: skip

    def _cancelled_at(self, at: int) -> Reason:
        """Say over which lines gradients come back to a call that are zero as a sum only."""
        sites, here = self._zeros.users(at), self._history.events[at].site
        return Reason(
            "cancelled",
            say("the gradients that come back to {call} at {line} over several ways are not zero,"
                " and add up to exactly zero", call=CallOf(at), line=At(here)),
            (
                Step("zero", here, say("the ways begin at the result of {call}",
                     call=CallOf(at))),
                *(Step("used", one, say("its result goes this way into the loss"))
                  for one in sites[:MOST_STOPS]),
            ),
            sites[-1],
        )  # fmt: skip

    def _zeroed(self, at: int, stop: Stop | None) -> Iterator[Step]:
        """Yield where a gradient became zero, and where a factor that is zero came from."""
        yield Step("zero", self._history.events[at].site, _stopped(at, stop))
        for site in self._zeros.users(at)[:2]:
            yield Step("used", site, say("its result goes this way into the loss"))
        if stop is None or not stop.saved or stop.low or stop.high:
            return
        for operand in self._graph.saved(at):
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

    @property
    def _around(self) -> Surroundings:
        return self._history.get(Surroundings)

    @cached_property
    def _written_by_steps(self) -> set[int]:
        """Tensors that some step wrote."""
        steps = {self._history.position(fact.at) for fact in self._history.steps}
        return {int(one.tensor) for at in steps for one in self._history.events[at].writes}

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

    def _without(self) -> Iterator[Step]:
        """Yield where optimizers were made, and of what their parameters were gathered."""
        for one in self._trace.optimizers:
            yield Step("held", one.site, say("{kind} is made here, without it", kind=one.kind))
            for caller in self._history.get(WaysThere).callers(one.site)[:1]:
                yield Step("held", caller, say("called from here"))
            empty = [n for n, size in enumerate(one.groups) if not size]
            if empty:
                many = say("parameter group {n} of it is empty", n=empty[0])
                yield Step("held", one.site, many)
            place = self._history.site(one.site)
            for error in self._trace.raised:
                at = self._history.position(error.event)
                if at >= 0 and self._history.events[at].operation == "add_param_group":
                    yield Step("raised", error.site, say("this parameter group is refused"))
            for line in gathered(self._around.source(place.file), place):
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
        graph = self._graph
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

    # -- what stands in the text and did not run -------------------------------------------------

    def _step_calls(self, site: int) -> Iterator[Step]:
        """Yield the calls of a step in the program's text at whose lines no step was heard."""
        ran = {
            (place.file, place.line) for place in map(self._history.site, self._sites_of_steps())
        }
        here = self._history.site(site)
        for line in calls_of(self._around.source(here.file), "step"):
            if (here.file, line) not in ran:
                place = at_line(here, line)
                yield Step("step", place, say("a step is asked for here, and none ran"))
                yield from self._around.leading(place)

    def _sites_of_steps(self) -> set[int]:
        return {one.site for one in self._history.steps}

    def _stored_rates(self, site: int) -> list[Step]:
        """Return where the text stores a rate, but where a scheduler or a loaded state set it."""
        if any(self._trace.optimizers[one.optimizer].site == site for one in self._trace.schedules):
            return []
        return list(self._around.rates_stored())

    def _written_rates(self, site: int) -> Iterator[Step]:
        """Yield where a scheduler was made: what sets the rate after the optimizer."""
        for one in self._trace.schedules:
            if self._trace.optimizers[one.optimizer].site == site:
                yield Step("rate", one.site, say("{kind} sets the rate", kind=one.kind))
                if one.factor >= 0:
                    place = self._history.site(one.factor)
                    source = self._around.source(place.file)
                    yield Step("rate", one.factor, say("it is computed by this function"))
                    for line in returns(source, place.line):
                        yield Step("rate", at_line(place, line), say("this is what it returns"))
                if one.loaded >= 0:
                    text = "the state loaded here says how far {kind} has come"
                    yield Step("rate", one.loaded, say(text, kind=one.kind))


def _stopped(at: int, stop: Stop | None) -> Sentence:
    """Say how a gradient became zero at a call."""
    call = CallOf(at)
    if stop is None:
        return say("what comes back to {call} adds up to zero", call=call)
    if not (stop.zeros or stop.broken):
        return say("{call} gives nothing back over its input {n}", call=call, n=stop.input + 1)
    back = "NaN or infinity" if stop.broken else f"only zeros over its input {stop.input + 1}"
    if not stop.saved:
        return say("{call} gives back {back}", call=call, back=back)
    return say(
        "{call} gives back {back}: what it saved as {saved} lay between {low} and {high}",
        call=call, back=back, saved=stop.saved, low=f"{stop.low:.4g}", high=f"{stop.high:.4g}",
    )  # fmt: skip
