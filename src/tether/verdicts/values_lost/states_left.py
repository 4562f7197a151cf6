"""Training that goes on from saved values without the optimizer's state, or the scheduler's.

Whether it is the same training is told by what it reads: tensors that are no parameters, in calls
recorded for gradients, before and after. To train from saved values on other data is another one,
for which an optimizer begins anew. So is each of several that begin with one saved point. Where no
state was handed out at all it may well be another, and is told only of the same.

And states that an optimizer loaded in vain: before it steps, another is made of its parameters. And
states handed out of an optimizer that never steps, while another steps its parameters.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from tether.analysis.history import History, latest
from tether.analysis.training.rates import LOADS
from tether.facts import (
    GRAD_ON,
    UNKNOWN,
    Event,
    OptimizerFact,
    Schedule,
    SiteId,
    StateGiven,
    StateLeft,
)
from tether.finding import At, Claim, Repair, Step, say


class LeftBehind(NamedTuple):
    """A state that was handed out and is missing where the training goes on."""

    fact: StateLeft
    given: SiteId  # the line that gave the parameters their values; UNKNOWN: none was seen
    goes_on: bool  # it is the same training, as far as is known


class LoadedInVain(NamedTuple):
    """A state that an optimizer loaded, and the optimizer that stepped in its place."""

    loaded: Schedule
    made: OptimizerFact
    number: int  # of the other
    alike: bool  # it steps with the rates that were loaded


def loaded_in_vain(history: History) -> Iterator[LoadedInVain]:
    """Yield the loads after which another optimizer, given no state, steps the same parameters."""
    loads = [one for one in history.trace.schedules if one.kind == LOADS and one.after]
    given = {int(one.optimizer) for one in loads}
    last = {int(one.optimizer): history.position(one.at) for one in history.steps}
    for fact in loads:
        since = history.position(fact.at)
        if last.get(fact.optimizer, UNKNOWN) >= since or not _brought(history, since):
            continue
        others = () if _handed_on(history, since) else _alike(history, fact, since)
        stepped = ((number, one) for number, one in others if number in last.keys() - given)
        for number, one in islice(stepped, 1):
            rates = _rates(history, number) == list(fact.after)
            yield LoadedInVain(fact, one, number, rates)


def _alike(history: History, fact: Schedule, since: int) -> Iterator[tuple[int, OptimizerFact]]:
    """Yield later optimizers of one kind and the same parameters as one that loaded a state."""
    loaded = history.trace.optimizers[fact.optimizer]
    for number, one in enumerate(history.trace.optimizers):
        same = (one.kind, set(one.tensors)) == (loaded.kind, set(loaded.tensors))
        if same and history.position(one.at) >= since:
            yield number, one


def _brought(history: History, since: int) -> bool:
    """Whether a load gave an optimizer tensors, and not its settings alone."""
    around = history.events[max(since - 1, 0) : since]
    return any(one.operation == LOADS and one.results for one in around)


def _handed_on(history: History, since: int) -> bool:
    """Whether a state of an optimizer was handed out after a position and before the next step."""
    for one in history.events[since:]:
        if one.operation in ("state_dict", "step"):
            return one.operation == "state_dict"
    return False


def _rates(history: History, optimizer: int) -> list[float]:
    """Return the rates of an optimizer's groups as its first step used them."""
    first: dict[int, float] = {}
    for one in history.trace.rates:
        if one.optimizer == optimizer:
            first.setdefault(one.group, one.rate)
    return [first[group] for group in sorted(first)]


class StateOfNone(NamedTuple):
    """An empty state that was handed out, and the optimizer whose state it should have been."""

    given: StateGiven
    idle: OptimizerFact
    stepped: OptimizerFact
    step: SiteId  # the line of its last step before that
    steps: int  # it had taken by then


def states_of_none(history: History) -> Iterator[StateOfNone]:
    """Yield the lines that hand out the empty state of an optimizer that another stands in for.

    The other is of the same kind and of the same parameters, and nothing asks for its state, or
    gives it one.
    """
    busy, seen = {int(one.optimizer) for one in history.steps}, set[SiteId]()
    told = {int(one.optimizer) for one in history.trace.states_given if one.full}
    told |= {int(one.optimizer) for one in history.trace.schedules if one.kind == LOADS}
    for given in history.trace.states_given if history.whole else ():
        if not given.full and given.optimizer not in busy and given.site not in seen:
            for found in islice(_standing_in(history, given, sorted(busy - told)), 1):
                seen.add(given.site)
                yield found


def _standing_in(
    history: History, given: StateGiven, others: Sequence[int]
) -> Iterator[StateOfNone]:
    """Yield those of some optimizers that had stepped the parameters of one without a state."""
    optimizers = history.trace.optimizers
    idle = optimizers[given.optimizer]
    for number in others:
        other = optimizers[number]
        same = (other.kind, set(other.tensors)) == (idle.kind, set(idle.tensors))
        steps = [one for one in history.steps if one.optimizer == number and one.at <= given.at]
        if same and steps and _keeps(history, number):
            yield StateOfNone(given, idle, other, steps[-1].site, len(steps))


def _keeps(history: History, number: int) -> bool:
    """Whether an optimizer keeps something of its first step for later ones."""
    first = next(one for one in history.steps if one.optimizer == number)
    at = history.position(first.at)
    return any(
        one.operation == "step" and one.keeps for one in history.events[max(at - 1, 0) : at + 2]
    )


def left_behind(history: History) -> Iterator[LeftBehind]:
    """Yield them, each line that makes such an optimizer or scheduler once."""
    seen = set[tuple[SiteId, str]]()
    replaced = {one.number for one in loaded_in_vain(history)}
    for fact in history.trace.states_left:
        if fact.optimizer not in replaced and (fact.site, fact.kind) not in seen:
            seen.add((fact.site, fact.kind))
            made = history.position(history.trace.optimizers[fact.optimizer].at)
            given = _given(history, fact, history.position(fact.at))
            goes_on = not _is_tried(history, fact) and _goes_on(history, made)
            if goes_on or not fact.filed:
                yield LeftBehind(fact, given, goes_on)


def _given(history: History, fact: StateLeft, at: int) -> SiteId:
    """Return the line that last wrote one of the parameters before a position."""
    for tensor in history.trace.optimizers[fact.optimizer].tensors:
        operand = history.operand_of(tensor)
        write = latest(list(history.writes_to(operand)), at) if operand is not None else UNKNOWN
        if write >= 0:
            return history.events[write].site
    return SiteId(UNKNOWN)


def _is_tried(history: History, fact: StateLeft) -> bool:
    """Whether more optimizers than that of before and the new one were made for such parameters."""
    this = history.trace.optimizers[fact.optimizer]
    alike = [
        one
        for one in history.trace.optimizers
        if (one.kind, len(one.tensors)) == (this.kind, len(this.tensors))
    ]
    return len(alike) > 2


def _goes_on(history: History, at: int) -> bool:
    """Whether calls recorded for gradients read after a position what a training before it read.

    What lies before its first backward pass, or after its last, may as well prepare the next data.
    """
    events, passes = history.events, history.backwards
    passes = passes[: bisect_left(passes, at)]
    if not passes:
        return False
    training = events[passes[0] if len(passes) > 1 else 0 : passes[-1]]
    before = {one for event in training for one in _read(history, event)}
    return any(one in before for event in events[at:] for one in _read(history, event))


def _read(history: History, event: Event) -> Iterator[int]:
    """Yield the memories that a call read, and that are of no module."""
    for one in event.reads if event.grad_mode == GRAD_ON else ():
        name = None if one.requires_grad else history.facts_of_name(one.tensor)
        if not one.requires_grad and (name is None or not name.module):
            yield history.flow.memory(one)


def claims(history: History) -> Iterator[Claim]:
    """Give one claim for each such line."""
    for found in left_behind(history):
        yield _left(history, found)
    for state in states_of_none(history):
        yield _of_none(state)
    for loaded in loaded_in_vain(history):
        yield _loaded(history, loaded)


def _left(history: History, found: LeftBehind) -> Claim:
    fact = found.fact
    scheduler = fact.kind != history.trace.optimizers[fact.optimizer].kind
    parts = {"kind": fact.kind, "line": At(fact.site), "saved": At(fact.saved), "n": fact.steps}
    missing = "the state which {saved} handed out with them, after {n} steps, was not loaded"
    saved, repair = "the state of {kind} after {n} steps is handed out", "Load it"
    if fact.filed:
        missing = "{saved} saved them after {n} steps, without what {kind} had kept for them"
        saved = "the parameters are saved after {n} steps, without the state of {kind}"
        repair = "Save the state_dict() of the optimizer too, and load it"
    given = () if found.given < 0 else (
        Step("written", found.given, say("the parameters get the values that they had then")),
    )  # fmt: skip
    return Claim(
        tensors=(),
        subject=f"state of {fact.kind}",
        cause=("left", fact.site, fact.kind),
        site=fact.site,
        operation="load_state_dict",
        severity="warning" if found.goes_on and not fact.filed else "note",
        message=say(
            "{kind}, made at {line}, begins anew for parameters that have the values of a saved"
            f" training: {missing}.",
            **parts,
        ),
        story=(
            Step("saved", fact.saved, say(saved, **parts)),
            *given,
            Step("made", fact.site, say("{kind} is made, as the other was, and given no state",
                 **parts)),
        ),
        repair=Repair(say(f"{repair}: {{what}}.load_state_dict(...), once the {{what}} is made.",
                          what="scheduler" if scheduler else "optimizer")),
        count=0,
    )  # fmt: skip


def _of_none(found: StateOfNone) -> Claim:
    given, idle, stepped = found.given.site, found.idle.site, found.stepped.site
    parts = {"kind": found.idle.kind, "given": At(given), "idle": At(idle), "made": At(stepped),
             "step": At(found.step), "n": found.steps}  # fmt: skip
    return Claim(
        tensors=(),
        subject=f"state of {found.idle.kind}",
        cause=("of none", given),
        site=given,
        operation="state_dict",
        message=say(
            "The state of {kind} that {given} hands out is empty: the one made at {idle} never"
            " steps, and {n} steps were those of another, made at {made} of the same parameters,"
            " whose state nothing asks for.",
            **parts,
        ),
        story=(
            Step("held", idle, say("{kind} is made, and never steps", **parts)),
            Step("held", stepped, say("another {kind} of the same parameters is made", **parts)),
            Step("step", found.step, say("the other one steps")),
            Step("saved", given, say("the state of the first is handed out")),
        ),
        repair=Repair(say("Hand out the state of the {kind} that steps.", **parts)),
        count=0,
    )  # fmt: skip


def _loaded(history: History, found: LoadedInVain) -> Claim:
    fact, made = found.loaded, found.made
    steps = [one for one in history.steps if one.optimizer == found.number]
    parts = {"kind": made.kind, "loaded": At(fact.site), "made": At(made.site),
             "step": At(steps[0].site)}  # fmt: skip
    return Claim(
        tensors=(),
        subject=f"state of {made.kind}",
        cause=("loaded", fact.site, made.site),
        site=fact.site,
        operation="load_state_dict",
        severity="warning" if found.alike else "note",
        message=say(
            "The state that {loaded} loads into {kind} is lost: before a step used it, {made} makes"
            " another {kind} of the same parameters, which steps at {step} and was given no state.",
            **parts,
        ),
        story=(
            Step("loaded", fact.site, say("the state is loaded")),
            Step("made", made.site, say("another {kind} of these parameters is made", **parts)),
            Step("step", steps[0].site, say("the other one steps, from no state")),
        ),
        repair=Repair(say("Load the state into the optimizer that steps: after {made}.", **parts)),
        count=0,
    )  # fmt: skip
