"""Passes made for the gradient of an input, whose gradients of the parameters count as well.

An attack or a sampler goes back through the model for the gradient of its input, changes the input
by it, and the loss that is to be trained is computed of what came of that. `backward` gives the
parameters gradients on the way, and where nothing clears them, the step uses the sum. That a pass
was made for an input is known from the input, a leaf that no optimizer holds: its gradient is read
after each pass of that line, and goes into the loss of another line, which does not go back to it.

The sum is meant where the last pass before a step is of the same line (adversarial training that
takes all gradients on its way), where the losses are weighed, and where the second pass only goes
on with the first from where it had stopped. One pass before each step may be meant, too, as the
loss of the values that are not changed yet; so it is less sure.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Container, Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

from tether.analysis.dataflow import values_read
from tether.analysis.gradients.graph import Graph
from tether.analysis.history import History, following, latest
from tether.analysis.libraries import package_of
from tether.facts import UNKNOWN, SiteId, TensorId
from tether.finding import At, Claim, Repair, Step, Tensor, say
from tether.verdicts.gradient_accumulated.adding import gradients_met, passes_that_add
from tether.verdicts.gradient_accumulated.foreign_gradients import FOLLOWED, LEAST_STEPS


class PreparedInput(NamedTuple):
    """Steps that use the gradients of passes made for an input: positions, of one such step."""

    first: int  # the first pass for the input
    leaf: int  # the input
    own: int  # the pass of the loss that the input's gradient goes into
    step: int
    cleared: int  # the last call before that cleared the gradients; UNKNOWN: none
    passes: int  # for inputs, before that step
    steps: int  # that do so
    tensors: tuple[int, ...]  # whose gradients add up
    sure: bool


def prepared_inputs(history: History) -> Iterator[PreparedInput]:
    """Yield one step for the tensors that are trained and cleared alike."""
    found = _Inputs(history)
    if found.lines and not history.in_part:
        for tensors in found.alike():
            yield from found.of(tensors)


class _OfInput(NamedTuple):
    """The gradient that a pass gave to a leaf that no optimizer holds, as it is read."""

    leaf: int
    at: int  # the call that reads it


class _Case(NamedTuple):
    step: int
    passes: tuple[int, ...]  # for inputs
    leaves: frozenset[int]  # these inputs; none where a step was not followed
    own: int


class _Inputs:
    def __init__(self, history: History) -> None:
        self._history, self._graph = history, history.get(Graph)
        self._passes = passes_that_add(history)
        self._read = self._read_after()
        self.lines = {history.events[at].site for at in self._read}

    def _read_after(self) -> dict[int, list[_OfInput]]:
        """Return pass -> the readings of gradients of leaves that no optimizer holds."""
        history, found = self._history, defaultdict[int, list[_OfInput]](list)
        for at, event in history.events.where("grad.__get__".__eq__):
            leaf = event.reads[0] if event.reads and event.results else None
            passed = latest(self._passes, at)
            if leaf is None or passed < 0 or leaf.tensor in history.held:
                continue
            if leaf.leaf and history.inside(event, "backward", "step") < 0:
                found[passed].append(_OfInput(leaf.tensor, at))
        return found

    # -- which tensors ---------------------------------------------------------------------------

    def alike(self) -> Iterator[list[int]]:
        """Yield the tensors that the same optimizers hold, calls meet and lines go through."""
        groups, history = defaultdict[object, list[int]](list), self._history
        for tensor in history.order:
            lines = [site for site, leaves in self._reached.items() if tensor in leaves]
            if self.lines.intersection(lines) and not self.lines.issuperset(lines):
                key = *history.holders_of(tensor), UNKNOWN, *self._met[tensor]
                groups[key, tuple(lines)].append(tensor)
        yield from groups.values()

    @cached_property
    def _met(self) -> dict[int, list[int]]:
        """Tensor -> the calls that clear, set or look at its gradient, but for a clipping."""
        found, history = defaultdict[int, list[int]](list), self._history
        for at, event in gradients_met(history):
            if history.inside(event, "step") < 0:
                for one in event.reads:
                    found[one.tensor].append(at)
        return found

    @cached_property
    def _reached(self) -> dict[SiteId, frozenset[int]]:
        """Line -> the leaves that its passes give gradients, as far as some were walked."""
        lines = defaultdict[SiteId, list[int]](list)
        for at in self._passes:
            lines[self._site(at)].append(at)
        return {site: self._given(passes) for site, passes in lines.items()}

    def _given(self, passes: Sequence[int]) -> frozenset[int]:
        walked = [at for at in passes if self._graph.leaves(at) is not None] or passes[:1]
        asked = frozenset[int]().union(*map(self._graph.asked, walked))
        return asked or frozenset[int]().union(*map(self._graph.leaves_led_to, walked))

    def _site(self, at: int) -> SiteId:
        return self._history.events[at].site

    # -- step by step ----------------------------------------------------------------------------

    def of(self, tensors: list[int]) -> Iterator[PreparedInput]:
        """Yield what the steps of tensors that are alike have in common, if all are such cases."""
        steps, found = self._history.steps_of(tensors[0]), list[_Case]()
        for before, step in pairwise([UNKNOWN, *steps]):
            passes = self._window(tensors[0], before, step)
            if not self.lines.isdisjoint(map(self._site, passes)):
                case = self._case(step, passes, follow=len(found) < FOLLOWED)
                if case is None:
                    return
                found.append(case)
        if len(found) >= LEAST_STEPS:
            always = len(found) == len(steps) and all(len(one.passes) > 1 for one in found)
            shown = [one for one in found if one.leaves][-1]
            yield self._told(tensors, shown, len(found), sure=always and self._sure(found))

    def _told(self, tensors: list[int], case: _Case, steps: int, *, sure: bool) -> PreparedInput:
        met = self._met[tensors[0]]
        cleared, first = latest(met, case.passes[0]), case.passes[0]
        return PreparedInput(
            first, self._read[first][0].leaf, case.own, case.step, cleared, len(case.passes),
            steps, tuple(tensors), sure,
        )  # fmt: skip

    def _window(self, tensor: int, before: int, step: int) -> list[int]:
        """Return the passes through a tensor whose gradients a step uses."""
        last, met = latest(self._passes, step), self._met[tensor]
        after = met[bisect_right(met, last) : bisect_right(met, step)]
        since = max(before, latest(met, last))
        if not all(self._only_looks(at, step) for at in after):
            return []
        passes = self._passes[bisect_right(self._passes, since) : bisect_right(self._passes, last)]
        return [at for at in passes if tensor in self._reached[self._site(at)]]

    def _only_looks(self, at: int, step: int) -> bool:
        """Whether a call before a step reads a gradient that nobody writes until then."""
        event = self._history.events[at]
        gradients = event.results if event.operation == "grad.__get__" else ()
        writes = (self._history.writes_to(one, at) for one in gradients)
        return bool(gradients) and all(not at < next(one, UNKNOWN) < step for one in writes)

    def _case(self, step: int, passes: list[int], *, follow: bool) -> _Case | None:
        """Return what a step uses; None where the passes for inputs may be meant to count."""
        made = [at for at in passes if self._site(at) in self.lines]
        own = [at for at in passes if self._site(at) not in self.lines]
        if passes[-1] in made or not all(at in self._read for at in made):
            return None
        counts = following(own, made[0])
        made = [at for at in made if at < counts]
        if not follow:
            return _Case(step, tuple(made), frozenset(), counts)
        if self._meant(made, counts) or not self._apart(made, counts):
            return None
        leaves = frozenset(one.leaf for at in made for one in self._read[at])
        return _Case(step, tuple(made), leaves, counts)

    def _meant(self, made: list[int], own: int) -> bool:
        """Whether the gradients that passes for inputs give the parameters are to count."""
        return any(map(self._weighed, made)) or self._goes_on(made[0], own)

    def _made_for(self, at: int) -> bool:
        """Whether a pass goes back to the input whose gradient is read, and keeps no graph."""
        leaves = self._graph.leaves_led_to(at)
        alone = not self._history.events[at].create_graph
        return alone and all(one.leaf in leaves for one in self._read[at])

    def _apart(self, made: list[int], own: int) -> bool:
        """Whether a loss is computed from gradients of inputs, and goes back to no input."""
        if not all(map(self._made_for, made)):
            return False
        leaves = {one.leaf for at in made for one in self._read[at]}
        inputs = self._graph.leaves_led_to(own) - self._history.held
        known = frozenset[int]().union(*map(self._graph.leaves_led_to, made))
        users = {at for one in made for at in self._users(one)}
        uses = users.intersection(self._history.flow.behind(own))
        # A product with the gradient itself goes on with the pass that it is of: the chain rule.
        factor = users & self._graph.behind(own)
        return bool(uses) and not factor and inputs.isdisjoint(leaves) and inputs <= known

    def _users(self, passed: int) -> Iterator[int]:
        """Yield the calls that compute something of the input's gradient after a pass."""
        history = self._history
        for _, read in self._read[passed]:
            memory = history.flow.memory(history.events[read].results[0])
            touching = history.on_memory(memory)
            until = bisect_right(touching, history.next_pass(passed))
            for at in touching[bisect_right(touching, read) : until]:
                event = history.events[at]
                read_too = (event.reads[place] for place in values_read(event))
                if any(history.flow.memory(one) == memory for one in read_too):
                    yield at

    def _weighed(self, passed: int) -> bool:
        """Whether a loss is multiplied by a number of the program's: so that its pass counts.

        Unless that turns its sign, or is how many the input has of something, as for a mean.
        """
        loss, events = self._history.events[passed].reads[0], self._history.events
        made = self._history.made_at(loss.tensor)
        number = next((one for one in self._numbers[self._site(passed)] if one), 0.0)
        if number <= 0 or made < 0 or package_of(self._history, events[made]) == "torch":
            return False
        operand = self._history.operand_of(self._read[passed][0].leaf)
        return operand is None or not {number, 1 / number} & {*map(float, operand.shape)}

    @cached_property
    def _numbers(self) -> dict[SiteId, list[float]]:
        """Line of passes -> what the last call of their losses saved."""
        found, history = defaultdict[SiteId, list[float]](list), self._history
        for walk in history.trace.walks:
            at = history.position(walk.event)
            if at >= 0:
                found[self._site(at)].append(walk.number)
        return found

    def _goes_on(self, passed: int, own: int) -> bool:
        """Whether a pass goes through the calls that an input had its values from."""
        made = self._history.made_at(self._read[passed][0].leaf)
        behind = {*self._history.flow.behind(made), made} if made >= 0 else set()
        return not behind.isdisjoint(self._graph.behind(own))

    def _sure(self, cases: list[_Case]) -> bool:
        """Whether each step has inputs of its own, and no value was only likely followed."""
        leaves = [one for case in cases for one in case.leaves]
        calls = {at for case in cases if case.leaves for at in self._history.flow.behind(case.own)}
        bridges = self._history.trace.bridges
        likely = {self._history.position(one.entry) for one in bridges if not one.certain}
        return len(leaves) == len({*leaves}) and calls.isdisjoint(likely)


def claims(history: History, told: Container[int]) -> Iterator[Claim]:
    """Give one claim for each such line, but of tensors that were told of."""
    for found in prepared_inputs(history):
        if found.tensors[0] not in told:
            yield _claim(history, found)


def _claim(history: History, found: PreparedInput) -> Claim:
    events = history.events
    first, own, step = (events[at].site for at in (found.first, found.own, found.step))
    leaf, subject = Tensor(TensorId(found.leaf)), Tensor(TensorId(found.tensors[0]))
    cleared = [events[found.cleared].site] if found.cleared >= 0 else []
    return Claim(
        tensors=found.tensors,
        cause=("input", first, own, step),
        site=first,
        operation="backward",
        severity="warning" if found.sure else "note",
        message=say(
            "Backward at {first} gives {leaf} the gradient that the loss of {own} is computed with,"
            " and adds to the gradient of {subject} as well. Nothing clears that before backward at"
            " {own} adds its own, and {n} steps at {step} use the sum.",
            first=At(first), leaf=leaf, own=At(own), n=found.steps, step=At(step),
        ),
        story=(
            Step("loss", first, say("each backward fills the gradient of {x}, too", x=subject)),
            *(Step("cleared", one, say("the gradients are cleared here, before that"))
              for one in cleared),
            Step("loss", own, say("backward adds the gradient of the loss that is trained")),
            Step("step", step, say("this step uses the sum")),
        ),
        repair=Repair(say(
            "Clear the gradients right before backward at {own}. Or ask at {first} for the gradient"
            " of {leaf} alone, by torch.autograd.grad, which adds to nothing.",
            own=At(own), first=At(first), leaf=leaf,
        )),
        count=0,
        calls=(found.first,),
    )  # fmt: skip
