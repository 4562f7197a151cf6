"""`batch-crossed`: a row and a column of one batch are joined, each value with every other."""

from __future__ import annotations

from tether.verdicts.base import Example, Expected, Verdict
from tether.verdicts.batch_crossed import crossed

PAGE = """
# batch-crossed

## What it says
A call that works element by element was given a row of n values and a column of n values, and made
n times n results of them: each value of one with every value of the other. All of them went into
one number of the loss. What was joined may have no graph (a value that was detached, a target made
without gradients), where it meets a computed value of each sample that has one.

## Why it matters
A prediction is compared with the targets of all samples and learns their mean; an advantage weighs
the actions of all samples, and what has a mean of zero teaches nothing. Nothing raises.

## Known problems
Silent where a column was made of a row for this call (`unsqueeze`, `[:, None]`, `view`), where a
parameter has that shape, and where the square is used as one: multiplied as a matrix, masked,
joined with another square, or reduced along one dimension.

## Example
```python
predicted = linear(x)                        # (n, 1)
loss = ((predicted - target) ** 2).mean()    # target: (n,)
```

## Use instead
```python
predicted = linear(x).squeeze(1)
```

## Fix safety
It changes what is trained: never applied by itself.
"""


VERDICT = Verdict(
    slug="batch-crossed",
    severity="warning",
    summary="a row and a column of one batch are joined, each value with every other",
    page=PAGE,
    check=crossed.claims,
    damage="wrong result",
    examples=(
        Example(
            "A prediction of one column, and targets without",
            """import torch

linear = torch.nn.Linear(2, 1)
opt = torch.optim.SGD(linear.parameters(), lr=0.1)
x, target = torch.randn(8, 2), torch.randn(8)
for _ in range(3):
    opt.zero_grad()
    predicted = linear(x)
    loss = (predicted - target).pow(2).mean()
    loss.backward()
    opt.step()
""",
            (Expected("batch-crossed", "predicted", 9),),
        ),
        Example(
            "All pairs, wanted; and a square that is used as one",
            """import torch

linear = torch.nn.Linear(2, 1)
opt = torch.optim.SGD(linear.parameters(), lr=0.1)
x, better = torch.randn(8, 2), torch.ones(8, 8).triu(1)
for _ in range(3):
    opt.zero_grad()
    score = linear(x)
    flat = score.squeeze(1)
    spread = (flat.unsqueeze(1) - flat).pow(2).mean() + (score - flat).abs().mean()
    ranked = (torch.nn.functional.softplus(flat - score) * better).sum()
    (spread + ranked).backward()
    opt.step()
""",
        ),
    ),
)
