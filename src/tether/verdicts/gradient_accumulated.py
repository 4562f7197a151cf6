"""`gradient-accumulated`: steps use the gradients of earlier steps again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tether.analysis.history import History, latest
from tether.facts import Gradients, SiteId, TensorId
from tether.finding import At, Claim, Repair, Step, Tensor, say
from tether.verdicts.base import Example, Expected, Verdict

PAGE = """
# gradient-accumulated

## What it says
A step used the gradient of this parameter, nothing cleared it, a later backward pass added to it,
and a later step used the sum.

## Why it matters
Each step follows all gradients since the first one, most of them of old values: the loss falls
slowly, swings or grows, and nothing raises.

## Known problems
Followed are the gradients of the 1st, 2nd, 4th, 8th... step of each optimizer, until it was seen at
three. Where the second step does not use those of the first, it is a note. A gradient that the
program itself overwrites in place is not spoken of.

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
        if not event.is_backward
        for written in event.writes
        if written.tensor in owners
    }


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
        ),
        repair=Repair(say("Clear the gradients before each backward: call zero_grad() on the model"
                          " that backward goes through.")),
        count=0,
    )  # fmt: skip


def _clearing(history: History, tensor: TensorId, until: int) -> tuple[list[SiteId], list[SiteId]]:
    """Return the lines that clear gradients before a step: with that of a tensor, and without."""
    since = latest(history.steps_of(tensor), until)
    events = [one for one in history.events[max(since, 0) : until] if one.operation == "zero_grad"]
    cleared = [one.site for one in events if any(read.tensor == tensor for read in one.reads)]
    others = [one.site for one in events if one.site not in cleared]
    return list(dict.fromkeys(cleared))[:1], list(dict.fromkeys(others))[:1]


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
            "Two passes for each step, which clears them afterwards",
            """import torch

w = torch.ones(3, requires_grad=True)
opt = torch.optim.SGD([w], lr=0.1)
for _ in range(4):
    for part in range(2):
        (w.pow(2).sum() / 2).backward()
    opt.step()
    opt.zero_grad()
""",
        ),
        Example(
            "Gradients of another loss are cleared before its own",
            """import torch

w = torch.ones(3, requires_grad=True)
v = torch.ones(3, requires_grad=True)
first, second = torch.optim.SGD([w], lr=0.1), torch.optim.SGD([v], lr=0.1)
for _ in range(4):
    first.zero_grad()
    (w - 1).pow(2).sum().backward()
    first.step()
    second.zero_grad()
    (w * v).pow(2).sum().backward()
    second.step()
""",
        ),
    ),
)
