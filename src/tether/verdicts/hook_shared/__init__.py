"""`hook-shared`: a hook turns the gradient of a tensor that several ways of the loss use."""

from __future__ import annotations

from tether.verdicts.base import Example, Expected, Verdict
from tether.verdicts.hook_shared import turned

PAGE = """
# hook-shared

## What it says
A hook on a tensor reverses its gradient, several calls use the tensor on the way to the loss, and
no other way leads to what the tensor was computed from. The hook sees the sum of what comes back
from all of these calls, also from those that were made before it was registered.

## Why it matters
Of two heads on the same features one was to be fought against. Both are: what computes the features
is moved against each part of the loss.

## Known problems
All of it may be meant, as with the multiplier of a constraint: it is a note. The first passes of a
line are looked at.

## Example
```python
features.register_hook(lambda gradient: -gradient)
loss = label_loss(features) + domain_loss(features)
```

## Use instead
```python
reversed_features = features.view_as(features)      # a branch of its own
reversed_features.register_hook(lambda gradient: -gradient)
loss = label_loss(features) + domain_loss(reversed_features)
```

## Fix safety
It changes what is trained: never applied by itself.
"""


VERDICT = Verdict(
    slug="hook-shared",
    severity="note",
    summary="a hook reverses the gradient of a tensor that several ways of the loss use",
    page=PAGE,
    check=turned.claims,
    damage="wrong result",
    examples=(
        Example(
            "Reversed for one head, after the other has used the features",
            """import torch

body, label, domain = (torch.nn.Linear(3, 3) for _ in range(3))
opt = torch.optim.SGD([*body.parameters(), *label.parameters(), *domain.parameters()], lr=0.1)
for _ in range(3):
    features = body(torch.ones(2, 3)).tanh()
    first = label(features).pow(2).mean()
    features.register_hook(lambda gradient: -gradient)
    second = domain(features).pow(2).mean()
    opt.zero_grad()
    (first + second).backward()
    opt.step()
""",
            (Expected("hook-shared", "features", 8),),
        ),
        Example(
            "On a branch of its own, and one that bounds the sum",
            """import torch

body, label, domain = (torch.nn.Linear(3, 3) for _ in range(3))
opt = torch.optim.SGD([*body.parameters(), *label.parameters(), *domain.parameters()], lr=0.1)
for _ in range(3):
    features = body(torch.ones(2, 3)).tanh()
    features.register_hook(lambda gradient: gradient.clamp(-1, 1))
    other = features.view_as(features)
    other.register_hook(lambda gradient: -0.5 * gradient)
    opt.zero_grad()
    (label(features) + domain(other) + domain(other * 2)).pow(2).mean().backward()
    opt.step()
""",
        ),
    ),
)
