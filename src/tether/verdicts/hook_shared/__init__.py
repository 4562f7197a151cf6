"""`hook-shared`: a hook turns the gradient of a tensor that several ways of the loss use."""

from __future__ import annotations

from collections.abc import Iterator

from tether.analysis.history import History
from tether.finding import At, CallOf, Claim, Repair, Step, Tensor, say
from tether.verdicts.base import Example, Expected, Verdict
from tether.verdicts.hook_shared.turned import TurnedGradient, turned_gradients

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


def check(history: History) -> Iterator[Claim]:
    """Give one claim for each line that registers such a hook."""
    for found in turned_gradients(history):
        yield _claim(history, found)


def _claim(history: History, found: TurnedGradient) -> Claim:
    events, users = history.events, found.users
    site, loss = events[found.hooked].site, events[found.backward].site
    tensor = events[found.hooked].reads[0].tensor
    return Claim(
        tensors=(tensor,),
        cause=site,
        site=site,
        operation="register_hook",
        message=say(
            "The hook of {line} reverses the gradient of {subject}, and {n} calls use {subject} on"
            " the way to the loss of {loss}: what comes back from all of them is reversed.",
            line=At(site), n=len(users), loss=At(loss),
        ),
        story=(
            Step("made", events[found.made].site, say("{x} is computed here", x=Tensor(tensor))),
            Step("hook", site, say("the hook is registered here")),
            *(Step("used", events[at].site, say("{call} uses {x}", call=CallOf(at),
              x=Tensor(tensor))) for at in users),
            Step("loss", loss, say("backward starts from the loss here")),
        ),
        repair=Repair(say("Where it is meant for one of them, give that one a tensor of its own,"
                          " such as x.view_as(x), and register the hook there.")),
        count=history.times(found.hooked),
    )  # fmt: skip


VERDICT = Verdict(
    slug="hook-shared",
    severity="note",
    summary="a hook reverses the gradient of a tensor that several ways of the loss use",
    page=PAGE,
    check=check,
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
