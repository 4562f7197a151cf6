"""`parameter-unmoved`: a parameter that should have trained has the values of the beginning."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tether.analysis.history import History
from tether.analysis.surroundings import Surroundings
from tether.analysis.training.misplaced import Misplaced
from tether.analysis.training.rates import RateSpent, rates_spent
from tether.analysis.training.unmoved import BY_VALUES, Training
from tether.facts import Schedule
from tether.finding import At, Claim, Repair, Step, say
from tether.verdicts.base import Example, Expected, Verdict
from tether.verdicts.parameter_unmoved import alike, emptied

PAGE = """
# parameter-unmoved

## What it says
The program trained, came to its end, and this parameter has the very values it had at the first
look, or lost what its steps had changed. The finding says why, as far as the facts tell: a custom
Function computes with it and is not handed it, no optimizer holds it, no step of its optimizer ever
ran, its learning rate was zero, its steps were too small for its dtype, a batch norm takes out what
it adds (a bias right before the norm), or something wrote over what the steps did. A gradient that
was there and exactly zero is told by [gradient-zero](gradient-zero.md). Or it moved, and for a
quarter of all steps or more it does not any longer: its learning rate has fallen so far that no
step changes a bit, as that of a scheduler does which was made for epochs and counts batches. Or the
optimizer that held it was made again and got nothing for it, as an iterator (`model.parameters()`)
gives nothing a second time. Or its values move and their differences do not: all units of a layer
were given the same weights, get the same gradients, and so stay the same.

## Why it matters
Nothing raises, the loss is printed, and a part of the model stays as it was made.

## Known problems
Values are compared at the first, second, fourth, eighth... step of each optimizer and at the end.
On devices other than the CPU they are not compared, since that would make the program wait. What
can be meant (a layer left out of the optimizer, a learning rate of zero for one group) is a note;
so is a rate that is spent where another optimizer goes on, or for less than half of the steps.
A write over what the steps did is a reset that is meant, and not told, where the optimizer that
steps next is made after it, or where what the steps had made was saved, or copied for longer.
Units that are the same are found bit for bit, in their weights and gradients at each look; it is a
note where no layer is known that takes them up by weights that began the same.

## Example
```python
opt = torch.optim.SGD(model.parameters(), lr=epoch // 10)   # 0 in the first ten epochs
```

## Use instead
```python
opt = torch.optim.SGD(model.parameters(), lr=0.1 * (epoch + 1) / 10)
```

## Fix safety
It changes what is trained: never applied by itself.
"""

_REPAIRS: dict[str, str] = {
    "not asked": "Name {subject} among the inputs of that pass, or leave inputs out: then each leaf"
    " gets its gradient.",
    "not in apply": "Hand {subject} to the Function as an argument of its own, and let its backward"
    " return its gradient: what it reads of other objects gets none.",
    "handed": "After each step write the new values back in place, under torch.no_grad():"
    " parameter.copy_(new).",
    "not held": "Give {subject} to the optimizer; or, if it is not to train, switch its"
    " requires_grad off, which saves its gradient.",
    "never stepped": "Let the optimizer step after backward: check the condition around its step,"
    " and what it counts.",
    "left out": "Let the step come to all tensors that it holds: where a gradient is None,"
    " `continue` and do not `return`.",
    "rate zero": "Give the optimizer a learning rate above zero, or leave {subject} out of it.",
    "taken out": "Make the layer without it (`bias=False`): the norm has a bias of its own.",
    "too small": "Take larger steps (the learning rate); where {subject} is of a lower precision"
    " than float32, keep it in float32 and compute in the lower one (torch.autocast).",
    "stopped": "Take larger steps (the learning rate); or keep {subject} in float32 and compute in"
    " a lower precision (torch.autocast).",
    "undone": "Write into {subject} before the training and not during it, or the other way round"
    " if the two were mixed up.",
    "put back": "Take what is to be put back before anything else is written over {subject}.",
    "not a number": "Find the first value that is not finite with"
    " `torch.autograd.set_detect_anomaly(True)`.",
    "nothing back": "Look at the values that go in there, at the start and after some steps.",
}


_NEVER = "{subject} never changed: {why}."
_MESSAGES: dict[str, str] = {
    "stopped": "{subject} no longer changes: {why}.",
    "undone": "The steps of {subject} are undone: {why}.",
    "put back": "The steps of {subject} are undone: {why}.",
    "not a number": "{subject} does not train: {why}.",
}


def check(history: History) -> Iterator[Claim]:
    """Give one claim for each parameter that did not move; those of one reason and line join."""
    in_place = {one.new for one in history.get(Misplaced).replaced}  # parameter-stale has both
    for tensor, reason in history.get(Training).reasons.items():
        if tensor in in_place or reason.why in BY_VALUES:
            continue
        yield Claim(
            tensors=(tensor,),
            cause=(reason.why, reason.site),
            site=reason.site,
            operation="step",
            severity="warning" if reason.certain else "note",
            message=say(_MESSAGES.get(reason.why, _NEVER), why=reason.said),
            story=reason.steps,
            repair=Repair(say(_REPAIRS[reason.why])),
            count=0,
        )
    for spent in rates_spent(history):
        yield _spent(history, spent)
    yield from emptied.claims(history)
    yield from alike.claims(history)


def _spent(history: History, found: RateSpent) -> Claim:
    optimizer, schedule = history.trace.optimizers[found.optimizer], found.schedule
    half = 2 * (found.steps - found.number) >= found.steps
    parts = _parts(history, found)
    return Claim(
        tensors=found.tensors,
        cause=("spent", found.optimizer),
        site=optimizer.site if schedule is None else schedule.site,
        operation="step",
        severity="warning" if half and found.alone and schedule is not None else "note",
        message=say(
            "From step {n} of {steps} on no step that was looked at changed a bit of {subject}: the"
            " learning rate of {kind}, once {before}, is {rate} there.",
            **parts,
        ),
        story=(
            Step("held", optimizer.site, say("{kind} is made here", **parts)),
            *(history.get(Surroundings).rates_stored() if schedule is None else
              _scheduled(schedule, parts)),
            Step("step", found.step, say("its steps go on, {steps} in all, and change nothing",
                 **parts)),
            *((Step("step", found.step, say("{others} more stay as they are from step {last} on",
                    **parts)),) if found.others else ()),
        ),
        repair=Repair(say(_COUNTS if schedule is not None else _ANEW, **parts)),
        count=0,
    )  # fmt: skip


_COUNTS = (
    "Let {setter} count what it was made for: a schedule in epochs is stepped once an epoch, one in"
    " batches is given their number."
)

_ANEW = (
    "Compute the rate of each step from the one that the optimizer was made with: what multiplies"
    " the last rate at each step soon leaves nothing of it."
)


def _parts(history: History, found: RateSpent) -> dict[str, Any]:
    schedule = found.schedule
    return {
        "kind": history.trace.optimizers[found.optimizer].kind, "n": found.number,
        "steps": found.steps, "step": At(found.step), "rate": f"{found.rate:.3g}",
        "before": f"{found.before:.3g}", "others": found.others, "last": found.last,
        **({} if schedule is None else {"setter": schedule.kind, "m": schedule.steps}),
    }  # fmt: skip


def _scheduled(schedule: Schedule, parts: dict[str, Any]) -> Iterator[Step]:
    yield Step("rate", schedule.site, say("{setter} sets its rate", **parts))
    if schedule.stepped >= 0:
        yield Step(
            "rate", schedule.stepped, say("{setter} is stepped here, {m} times in all", **parts)
        )


VERDICT = Verdict(
    slug="parameter-unmoved",
    severity="warning",
    summary="a parameter has the values of the beginning after all the training, and why",
    page=PAGE,
    check=check,
    damage="lost training",
    after=(
        "parameter-stale",
        "parameter-frozen",
        "gradient-discarded",
        "gradient-cut",
        "gradient-zero",
        "gradient-unused",
    ),
    examples=(
        Example(
            "A learning rate that is an integer division",
            """import torch

w = torch.ones(3, requires_grad=True)
opt = torch.optim.SGD([w], lr=1 // 10)
for _ in range(3):
    opt.zero_grad()
    w.pow(2).sum().backward()
    opt.step()
""",
            (Expected("parameter-unmoved", "w", 4),),
        ),
        Example(
            "A backup that is made before",
            """import torch

w = torch.ones(3, requires_grad=True)
average = w.detach().clone()
opt = torch.optim.SGD([w], lr=0.1)
for _ in range(3):
    opt.zero_grad()
    w.pow(2).sum().backward()
    opt.step()
    with torch.no_grad():
        average.lerp_(w, 0.1)
        backup = w.clone()
        w.copy_(average)
        print(w.sum().item())
        w.copy_(backup)
""",
        ),
    ),
)
