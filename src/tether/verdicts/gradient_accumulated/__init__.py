"""`gradient-accumulated`: steps use the gradients of earlier steps again."""

from __future__ import annotations

from collections.abc import Iterator

from tether.analysis.history import History
from tether.finding import Claim
from tether.verdicts.base import Example, Expected, Verdict
from tether.verdicts.gradient_accumulated import (
    carried,
    foreign_gradients,
    mixed_readings,
    piled_up,
    prepared_inputs,
    stepped_apart,
    summed_in_closures,
    updated_by_hand,
)

PAGE = """
# gradient-accumulated

## What it says
The finding says one of these:

- Nothing cleared the gradient of this parameter after a step, a later backward pass added to it,
  and a later step used the sum.
- The loss that another optimizer steps on goes through this parameter, too, and its gradient was
  still there when the parameter's own loss added to it.
- An optimizer steps for the first time, and the gradients that it uses have piled up since another
  one stepped alone and cleared nothing but its own.
- A batch is cut into parts and the loss of each is divided by their number, but a step takes the
  gradient of each part alone, where all were to add up (a note).
- Some steps, as the last of an epoch, have fewer passes than the others, and than the loss of each
  is divided by.
- The program itself moved all parameters by their gradients, as to the worst place nearby, a second
  backward pass added the gradients of that place, and a step uses the sums (a note).
- Passes that an attack or a sampler makes for the gradient of its input give the parameters
  gradients as well, and these are still there when the loss that is trained adds its own.
- A step calls its closure several times, and the closure clears nothing.
- One line reads a gradient after each of several passes, nothing clears it between them, and what
  was read goes into a later loss (a note, since the sum may be meant).

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
    """Give one claim for each line that leaves, adds up or mixes gradients."""
    yield from carried.claims(history)
    told = carried.carried(history)
    for of_others in (foreign_gradients, prepared_inputs, piled_up):
        yield from of_others.claims(history, told)
    for within_steps in (stepped_apart, updated_by_hand, mixed_readings, summed_in_closures):
        yield from within_steps.claims(history)


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
