"""`gradient-discarded`: a gradient was there, and was gone when the optimizer stepped."""

from __future__ import annotations

from collections.abc import Iterator

from tether.analysis.history import History
from tether.finding import Claim
from tether.verdicts.base import Example, Expected, Verdict
from tether.verdicts.gradient_discarded import (
    always_cleared,
    asked_in_vain,
    begun_anew,
    bounded_early,
    graded_copies,
    iterators,
    lost_changes,
    lost_passes,
    scaled_changes,
    skipped_parts,
    vain_clips,
    vain_passes,
)

PAGE = """
# gradient-discarded

## What it says
The finding says one of these:

- After backward this parameter had a gradient; when the optimizer stepped it was None or zero,
  since the line named cleared or overwrote it in between. So it was at every step.
- Several passes of one line come before each step, and the line named clears all but the last; or
  it clears what one backward pass gave, and the step uses what another gave.
- Each step takes several passes, the line clears those that an epoch has left over, and the count
  for the next step may go on over that (a note).
- What the passes of a line give is cleared each time, and nothing reads it before: the program
  would train the same without them (a note).
- The line changed the gradient in place (a clipping, a scaling), and each time it was cleared and
  made anew before a step used it.
- The line clips gradients and never found any: there were none yet, or it was given an iterator
  that had been gone through.
- The line clips gradients that still hold the scale of a gradient scaler, which divides them before
  the step, and with them the limit.
- The line limits the gradients of an accumulation, and backward adds to them before the step uses
  the sum, which nothing limits (a note where the sum is limited as well, or where another loss adds
  to them).
- The program goes through an iterator of parameters, or of batches, a second time, where it gives
  nothing any more: what is done there is done once, or never (a note where nothing says that the
  program came there again).
- The program reads an iterator of parameters again that its optimizer has gone through (a note).
- The line makes a new optimizer for each step, of a kind that goes by the gradients of earlier
  steps.
- The line computes a part of some losses, and a gradient scaler left out the step of each of them.
- Passes go back through a copy of what is trained, a target network: its parameters get gradients
  that nothing uses (a note).
- A line that changes parameters by their gradients itself asks for this one's, and it is never
  there yet.

## Why it matters
The optimizer steps on nothing: the loss stays where it is, and there is no error. Where only the
change is lost, the steps use gradients that were never clipped. An Adam of one step moves each
element by the learning rate, however small its gradient is.

## Known problems
Only what happens at every recorded step is reported; clearing once is taken as meant (a skipped
step, a gradient that was not finite). A changed gradient that anything read counts as used.
An iterator is known by a variable, or an attribute of `self`, that is assigned once.

## Example
```python
loss.backward()
opt.zero_grad()
opt.step()
```

## Use instead
```python
opt.zero_grad()
loss.backward()
opt.step()
```

## Fix safety
It changes what is trained: never applied by itself.
"""


def check(history: History) -> Iterator[Claim]:
    """Give one claim for each line that a gradient, or a change of it, is lost at."""
    cleared = list(always_cleared.claims(history))
    told = {one.site for one in cleared}
    yield from cleared
    lost = list(lost_passes.claims(history, told))
    yield from lost
    yield from lost_changes.claims(history, told)
    told.update(step.site for one in lost for step in one.story)
    yield from vain_passes.claims(history, told)
    for detector in DETECTORS:
        yield from detector.claims(history)


DETECTORS = (
    vain_clips, scaled_changes, bounded_early, skipped_parts, begun_anew, graded_copies,
    asked_in_vain, iterators,
)  # fmt: skip


VERDICT = Verdict(
    slug="gradient-discarded",
    severity="warning",
    summary="a gradient was there and was cleared, here, before the optimizer used it",
    page=PAGE,
    check=check,
    damage="lost training",
    examples=(
        Example(
            "A target network that the loss goes back through",
            """import torch

net, target = torch.nn.Linear(3, 1), torch.nn.Linear(3, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(3):
    wanted = 1 + 0.9 * target(torch.zeros(2, 3))
    opt.zero_grad()
    (net(torch.ones(2, 3)) - wanted).pow(2).mean().backward()
    opt.step()
    target.load_state_dict(net.state_dict())
""",
            (Expected("gradient-discarded", "target.weight", 6),),
        ),
        Example(
            "A target network without a graph",
            """import torch

net, target = torch.nn.Linear(3, 1), torch.nn.Linear(3, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(3):
    with torch.no_grad():
        wanted = 1 + 0.9 * target(torch.zeros(2, 3))
    opt.zero_grad()
    (net(torch.ones(2, 3)) - wanted).pow(2).mean().backward()
    opt.step()
    target.load_state_dict(net.state_dict())
""",
        ),
    ),
)
