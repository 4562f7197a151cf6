"""`rerun-differs`: a checkpointed block computed something else in the backward pass."""

from __future__ import annotations

from collections.abc import Iterator

from tether.analysis.history import History
from tether.finding import Claim
from tether.verdicts.base import Example, Expected, Verdict
from tether.verdicts.rerun_differs import other_numbers, other_values, other_way, updated_twice

PAGE = """
# rerun-differs

## What it says
A block under activation checkpointing ran in the forward, and once more in the backward pass, and
the second run was not as the first:
- it drew other random numbers (`preserve_rng_state=False`),
- it read a tensor that was written in between: a step of an optimizer, a buffer, an input,
- or it made another call in place of one of the forward's, with a result of the same shape.

As a note it says which buffers the block updates in both runs, such as the running statistics of a
norm: each batch counts twice.

## Why it matters
The backward pass computes gradients from what the second run gives. Where this is something else,
the gradients belong to a loss that nobody computed. PyTorch compares shapes and types of what both
runs save, and not the values: nothing raises.

## Known problems
Followed are blocks of `torch.utils.checkpoint`. A library's own writes are passed over, since it
may put the same values back. Where the runs part at a call that only one of them makes, nothing is
said: it may be one that prints, or fills a cache.

## Example
```python
hidden = checkpoint(block, x, use_reentrant=False, preserve_rng_state=False)   # with dropout
```

## Use instead
```python
hidden = checkpoint(block, x, use_reentrant=False)
```

## Fix safety
It changes what is trained: never applied by itself.
"""

DETECTORS = (other_numbers, other_values, other_way, updated_twice)


def check(history: History) -> Iterator[Claim]:
    """Give the claims of each detector."""
    for detector in DETECTORS:
        yield from detector.claims(history)


VERDICT = Verdict(
    slug="rerun-differs",
    severity="warning",
    summary="a checkpointed block computed something else in the backward pass",
    page=PAGE,
    check=check,
    damage="wrong result",
    examples=(
        Example(
            "Dropout in a block whose random state is not put back",
            """import torch
from torch.utils.checkpoint import checkpoint

block = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.5), torch.nn.Linear(4, 4))
x = torch.randn(8, 4)
out = checkpoint(block, x, use_reentrant=False, preserve_rng_state=False)
loss = out.pow(2).mean()
loss.backward()
""",
            (Expected("rerun-differs", "loss", 6),),
        ),
        Example(
            "No dropout, and weights that are changed after the pass",
            """import torch
from torch.utils.checkpoint import checkpoint

block = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh(), torch.nn.Linear(4, 4))
opt = torch.optim.SGD(block.parameters(), lr=0.1)
for _ in range(3):
    x = torch.randn(8, 4)
    out = checkpoint(block, x, use_reentrant=False, preserve_rng_state=False)
    loss = out.pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
""",
        ),
    ),
)
