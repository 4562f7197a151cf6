"""`gradient-accumulated`: steps use the gradients of earlier steps again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator

from tether.analysis.foreign_gradients import (
    ForeignGradients,
    PiledUp,
    foreign_gradients,
    piled_up,
)
from tether.analysis.history import History, latest
from tether.analysis.libraries import scaled_by_library
from tether.analysis.mixed_readings import MixedReading, mixed_readings
from tether.analysis.prepared_inputs import PreparedInput, prepared_inputs
from tether.analysis.stepped_apart import ShortWindow, SteppedApart, short_windows, stepped_apart
from tether.analysis.summed_in_closures import SummedInClosures, summed_in_closures
from tether.analysis.updated_by_hand import (
    CarriedUpdates,
    SummedGradients,
    carried_updates,
    summed_gradients,
)
from tether.facts import Gradients, SiteId, TensorId
from tether.finding import At, Claim, Repair, Step, Tensor, say
from tether.verdicts.base import Example, Expected, Verdict

PAGE = """
# gradient-accumulated

## What it says
A step used the gradient of this parameter, nothing cleared it, a later backward pass added to it,
and a later step used the sum. Or the loss that another optimizer steps on goes through this
parameter, too, and its gradient was still there when the parameter's own loss added to it. Or an
optimizer steps for the first time, and the gradients that it uses have piled up since another one
stepped alone and cleared nothing but its own. Or the other way round, as a note: a batch is cut
into parts, the loss of each is divided by their number, and a step takes the gradient of each part
alone, where all were to add up. Or some steps, as the last of an epoch, have fewer passes than the
others and than the loss of each is divided by. Or the program itself moved all parameters by their
gradients, as to the worst place nearby, a second backward pass added the gradients of that place,
and a step uses the sums: a note, too. Or passes that an attack or a sampler makes for the gradient
of its input give the parameters gradients as well, and these are still there when the loss that is
trained adds its own. Or a step calls its closure several times, and the closure
clears nothing. Or one line reads a gradient after each of several passes, nothing clears it
between them, and what was read goes into a later loss: a note, since the sum may
be meant.

## Why it matters
Each step follows all gradients since the first one, most of them of old values: the loss falls
slowly, swings or grows, and nothing raises.

## Known problems
Followed are the gradients of the 1st, 2nd, 4th, 8th... step of each optimizer, until it was seen at
three. Where the second step does not use those of the first, it is a note. A gradient that the
program itself writes in place is not spoken of; one that `clip_grad_norm_` scales is. What another
optimizer's loss left is a warning where the parameter's own loss is cut off from what that
optimizer trains, and a note elsewhere: both losses may be meant. What passes for an input left is a
note where there is one such pass before a step, which may be the loss of the unchanged input, where
some steps have none, or where the input is one tensor throughout. Nothing is said where the last
pass before a step is of the same line, where these losses are multiplied by a number, or where the
later loss is multiplied by the input's gradient itself, which goes on with the first pass.

## Example
```python
for x, y in batches:
    loss(model(x), y).backward()
    opt.step()
```

## Use instead
```python
for x, y in batches:
    opt.zero_grad()
    loss(model(x), y).backward()
    opt.step()
```

## Fix safety
It changes what is trained: never applied by itself.
"""


def check(history: History) -> Iterator[Claim]:
    """Give one claim for each parameter whose gradient was carried from step to step."""
    first: dict[TensorId, Gradients] = {}
    times: Counter[TensorId] = Counter()
    for one in history.trace.gradients:
        if one.moment == "carried":
            times.update(one.status.keys())
            first = dict.fromkeys(one.status, one) | first
    overwritten = _overwritten(history) if first else set()
    for tensor, fact in first.items():
        if tensor not in overwritten:
            second = history.steps_of(tensor)[1:2] == [history.position(fact.at)]
            yield _claim(history, tensor, fact, always=second and times[tensor] > 1)
    yield from _of_others(history, first)
    yield from _within_steps(history)


def _within_steps(history: History) -> Iterator[Claim]:
    """Give the claims about what adds up before one step, or is stepped on without one."""
    yield from (_apart(history, one) for one in stepped_apart(history))
    yield from (_short(history, one) for one in short_windows(history))
    yield from (_by_hand(history, one) for one in carried_updates(history))
    yield from (_summed(history, one) for one in summed_gradients(history))
    yield from (_mixed(history, one) for one in mixed_readings(history))
    yield from (_in_closures(history, one) for one in summed_in_closures(history))


def _of_others(history: History, told: Container[int]) -> Iterator[Claim]:
    """Give the claims about gradients that the passes of another optimizer's loss have left."""
    others = (one for one in foreign_gradients(history) if one.tensors[0] not in told)
    yield from (_of_another(history, one) for one in others)
    prepared = (one for one in prepared_inputs(history) if one.tensors[0] not in told)
    yield from (_for_an_input(history, one) for one in prepared)
    piles = (one for one in piled_up(history) if one.tensors[0] not in told)
    yield from (_piled(history, one) for one in piles)


def _overwritten(history: History) -> set[TensorId]:
    """Return the tensors whose gradients the program itself writes in place."""
    owners: dict[TensorId, TensorId] = {}  # a gradient -> the tensor that it was read from
    for _, event in history.events.where("grad.__get__".__eq__):
        owners.update({made.tensor: event.reads[0].tensor for made in event.results if event.reads})
    if not owners:
        return set()
    return {
        owners[written.tensor]
        for _, event in history.events.having("writes")
        if not event.is_backward and not scaled_by_library(history, event)
        for written in event.writes
        if written.tensor in owners
    }


def _in_closures(history: History, found: SummedInClosures) -> Claim:
    site = history.events[found.backward].site
    return Claim(
        tensors=found.tensors,
        cause=("closure", site),
        site=site,
        operation="backward",
        message=say(
            "Backward at {line} runs {n} times for the step at {step}, and nothing clears the"
            " gradient of {subject} in between: each call of the closure gives the sum of all"
            " before it.",
            line=At(site), n=found.passes, step=At(found.step),
        ),
        story=(
            Step("made", site, say("each call of the closure adds to the gradient here")),
            Step("step", found.step, say("the step calls the closure again and again")),
        ),
        repair=Repair(say("Clear the gradients in the closure, before backward.")),
        count=found.passes,
    )  # fmt: skip


def _claim(history: History, tensor: TensorId, fact: Gradients, *, always: bool) -> Claim:
    at = history.position(fact.at)
    before = latest(history.backwards, at)
    backward = history.events[before].site if before >= 0 else fact.site
    cleared, others = _clearing(history, tensor, at)
    message = (
        say(
            "Later steps use again what a step has used: what {line} lets go of as the gradient of"
            " {subject} is that of another tensor, too, and backward adds to it.",
            line=At(cleared[0]),
        )
        if cleared
        else say(
            "Later steps use again what a step has used: nothing clears the gradient of {subject}"
            " before backward at {line} adds to it.",
            line=At(backward),
        )
    )
    return Claim(
        tensors=(tensor,),
        cause=(fact.optimizer, backward),
        site=fact.site,
        operation="step",
        severity="warning" if always else "note",
        message=message,
        story=(
            Step("step", fact.site, say("this step uses the gradient of {x}", x=Tensor(tensor))),
            Step("loss", backward, say("backward adds to what that step used")),
            *(Step("cleared", one, say("the gradient of {x} becomes None here", x=Tensor(tensor)))
              for one in cleared),
            *(Step("cleared", one, say("{x} is not among what is cleared here", x=Tensor(tensor)))
              for one in others),
            *(Step("cleared", one, say("gradients are cleared here, but not between these steps"))
              for one in _elsewhere(history, tensor, [*cleared, *others])),
        ),
        repair=Repair(say("Clear the gradients before each backward: call zero_grad() on the model"
                          " that backward goes through.")),
        count=0,
    )  # fmt: skip


def _by_hand(history: History, found: CarriedUpdates) -> Claim:
    update, loss = (history.events[at].site for at in (found.update, found.backward))
    return Claim(
        tensors=(found.tensor,),
        cause=("by hand", update, loss),
        site=update,
        operation=history.events[found.update].operation,
        severity="warning" if found.always else "note",
        message=say(
            "{n} updates at {update} use again what the ones before have used: nothing clears the"
            " gradient of {subject} before backward at {line} adds to it.",
            n=found.carried, update=At(update), line=At(loss),
        ),
        story=(
            Step("step", update, say("{x} is changed by its gradient", x=Tensor(found.tensor))),
            Step("loss", loss, say("backward adds to that gradient")),
        ),
        repair=Repair(say("Set the gradient of {subject} to None after each update.")),
        count=0,
    )  # fmt: skip


def _summed(history: History, found: SummedGradients) -> Claim:
    move, loss, step = (history.events[at].site for at in (found.move, found.backward, found.step))
    subject = Tensor(TensorId(found.tensors[0]))
    return Claim(
        tensors=found.tensors,
        cause=("summed", move, loss, step),
        site=loss,
        operation="backward",
        severity="note",
        message=say(
            "{n} steps at {step} use the sum of two gradients of {subject}: the one by which"
            " {move} had moved it, and the one that backward at {loss} adds for the moved values."
            " Nothing clears the first in between.",
            n=found.steps, step=At(step), move=At(move), loss=At(loss),
        ),
        story=(
            Step("write", move, say("{x} is moved by its gradient", x=subject)),
            Step("loss", loss, say("backward adds to that gradient")),
            Step("step", step, say("this step uses the sum")),
        ),
        repair=Repair(say("Clear the gradients between {move} and {loss}, if the step is to follow"
                          " the gradient at the moved values alone.",
                          move=At(move), loss=At(loss))),
        count=0,
    )  # fmt: skip


def _mixed(history: History, found: MixedReading) -> Claim:
    backward, read, loss = (
        history.events[at].site for at in (found.backward, found.second, found.loss)
    )
    return Claim(
        tensors=(found.tensor,),
        cause=("mixed", read),
        site=read,
        operation="grad",
        severity="note",
        message=say(
            "The gradient of {subject} is read at {read} after one pass and again after the next,"
            " and nothing clears it in between: the second time it holds both. What is read"
            " {likely}goes on into the loss of {loss}.",
            read=At(read), loss=At(loss), likely="" if found.sure else "most likely ",
        ),
        story=(
            Step("loss", backward, say("backward adds to what has been read before")),
            Step("read", read, say("the sum of both passes is read here")),
            Step("used", loss, say("this pass is of a loss that both readings go into")),
        ),
        repair=Repair(say("Clear the gradients before each pass whose own gradient is to be read,"
                          " or ask for it by torch.autograd.grad, which adds to nothing.")),
        assumes=() if found.sure else (_FOLLOWED,),
        count=0,
    )  # fmt: skip


def _of_another(history: History, found: ForeignGradients) -> Claim:
    events = history.events
    other, stepped, own, step = (
        events[at].site for at in (found.other, found.stepped, found.own, found.step)
    )
    cleared = [events[found.cleared].site] if found.cleared >= 0 else []
    turn = (Step("step", stepped, say("another optimizer steps, without it")),)
    return Claim(
        tensors=found.tensors,
        cause=("another", own),
        site=other,
        operation="step",
        severity="warning" if found.parted and not found.together else "note",
        message=say(
            "Backward at {other}, for the step at {stepped}, adds to the gradient of {subject} as"
            " well. Nothing clears it before backward at {own} adds the gradient of another loss,"
            " and each step at {step} uses the sum.",
            other=At(other), stepped=At(stepped), own=At(own), step=At(step),
        ),
        story=(
            *(Step("cleared", one, say("the gradients are cleared here")) for one in cleared),
            Step("loss", other, say("backward fills the gradient of {x}",
                 x=Tensor(found.tensors[0]))),
            *(() if found.together else turn),
            Step("loss", own, say("backward adds the gradient of another loss")),
            *(turn if found.together else ()),
            Step("step", step, say("this step uses the sum")),
        ),
        repair=Repair(
            say("Switch requires_grad of {subject} off for the loss of {other}, and on again for"
                " its own, if that is to train it alone.", other=At(other))
            if found.together
            else say("Clear the gradient of {subject} right before backward at {own}.", own=At(own))
        ),
        count=0,
    )  # fmt: skip


def _for_an_input(history: History, found: PreparedInput) -> Claim:
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
    )  # fmt: skip


def _piled(history: History, found: PiledUp) -> Claim:
    events = history.events
    loss, stepped, step = (events[at].site for at in (found.first, found.stepped, found.step))
    cleared = [events[found.cleared].site] if found.cleared >= 0 else []
    return Claim(
        tensors=found.tensors,
        cause=("piled", loss, step),
        site=cleared[0] if cleared else loss,
        operation="step",
        message=say(
            "The first step of an optimizer at {step} uses gradients of {subject} that {n} passes"
            " before had added up from {loss} on: another optimizer stepped after each of them, and"
            " nothing cleared these.",
            step=At(step), loss=At(loss), n=found.passes,
        ),
        story=(
            *_holders(history, found.tensors[0], found.step),
            Step("loss", loss, say("each backward adds to the gradient of {x}, too",
                 x=Tensor(found.tensors[0]))),
            Step("step", stepped, say("another optimizer steps, without it")),
            *(Step("cleared", one, say("{x} is not among what is cleared here",
                   x=Tensor(found.tensors[0]))) for one in cleared),
            Step("step", step, say("this step uses the sum of all that")),
        ),
        repair=Repair(say("Clear all gradients before the first step of {subject}: call zero_grad()"
                          " on the whole model, or on this optimizer, before the backward pass of"
                          " that step. Or switch requires_grad off as long as it is not to"
                          " train.")),
        count=0,
    )  # fmt: skip


def _holders(history: History, tensor: TensorId | int, step: int) -> Iterator[Step]:
    """Yield where the optimizer of a step took a tensor."""
    for number in history.holders_of(tensor):
        fact = history.trace.optimizers[number]
        if any(one.optimizer == number and history.position(one.at) == step
               for one in history.steps):  # fmt: skip
            yield Step("held", fact.site, say("{kind} takes {x}", kind=fact.kind,
                       x=Tensor(TensorId(tensor))))  # fmt: skip


def _apart(history: History, found: SteppedApart) -> Claim:
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
    )  # fmt: skip


def _clearing(history: History, tensor: TensorId, until: int) -> tuple[list[SiteId], list[SiteId]]:
    """Return the lines that clear gradients before a step: with that of a tensor, and without."""
    since = latest(history.steps_of(tensor), until)
    events = [one for one in history.events[max(since, 0) : until] if one.operation == "zero_grad"]
    cleared = [one.site for one in events if any(read.tensor == tensor for read in one.reads)]
    others = [one.site for one in events if one.site not in cleared]
    return list(dict.fromkeys(cleared))[:1], list(dict.fromkeys(others))[:1]


def _elsewhere(history: History, tensor: TensorId, told: list[SiteId]) -> list[SiteId]:
    """Return the first line that clears a tensor's gradient at other times."""
    clears = (event for _, event in history.events.where("zero_grad".__eq__))
    found = (one.site for one in clears if any(read.tensor == tensor for read in one.reads))
    return [one for one in dict.fromkeys(found) if one not in told][:1]


_FOLLOWED = say("the value was followed through Python numbers or arrays in the source")

VERDICT = Verdict(
    slug="gradient-accumulated",
    severity="warning",
    summary="steps use the gradients of earlier steps again, since nothing clears them",
    page=PAGE,
    check=check,
    damage="wrong result",
    examples=(
        Example(
            "Nothing clears the gradients",
            """import torch

w = torch.ones(3, requires_grad=True)
opt = torch.optim.SGD([w], lr=0.1)
for _ in range(4):
    w.pow(2).sum().backward()
    opt.step()
""",
            (Expected("gradient-accumulated", "w", 7),),
        ),
        Example(
            "Updates without an optimizer, which let go of each gradient",
            """import torch

w = torch.ones(3, requires_grad=True)
for _ in range(4):
    w.pow(2).sum().backward()
    with torch.no_grad():
        w -= 0.1 * w.grad
    w.grad = None
""",
        ),
    ),
)
