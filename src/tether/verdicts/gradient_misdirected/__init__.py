"""`gradient-misdirected`: a parameter is changed by the gradient of another."""

from __future__ import annotations

from collections.abc import Iterator

from tether.analysis.history import History
from tether.facts import StateOfAnother
from tether.finding import At, Claim, Repair, Step, Tensor, say
from tether.verdicts.base import Example, Expected, Verdict
from tether.verdicts.gradient_misdirected import misdirected, moved_targets, weighing

PAGE = """
# gradient-misdirected

## What it says
The program writes a parameter itself, or sets its gradient, with a gradient that was computed for
another parameter, and the parameter's own is not in it. Both were asked for together. Or an
optimizer goes on, after `load_state_dict`, with what it kept of another parameter's gradients. Or,
as a note, a loss draws an estimate towards its target, and the difference of the two multiplies
another loss without being detached: the estimate follows both. Or, as a note, the target of a
cross entropy or a divergence was computed with a graph, of parameters that what it is compared with
does not come from: steps move these towards the prediction.

## Why it matters
It moves in a direction that has nothing to do with it, where the shapes happen to be the same;
the parameter whose gradient it was does not move. Most often two lists are paired of which one has
lost its `None`s or has another order. The state of an optimizer is loaded by position: where its
parameters come in another order than when it was saved, each moves on with another's momentum.

## Known problems
Followed are gradients that keep their shape, through calls that are not recorded for gradients.
Whose state was loaded is known where it was saved in the same run, and by values that no two
parameters shared.

## Example
```python
gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
gradients = [one for one in gradients if one is not None]
for parameter, gradient in zip(parameters, gradients):
    parameter.data.sub_(0.1 * gradient)
```

## Use instead
```python
gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
for parameter, gradient in zip(parameters, gradients):
    if gradient is not None:
        parameter.data.sub_(0.1 * gradient)
```

## Fix safety
It changes what is trained: never applied by itself.
"""


DETECTORS = (misdirected, weighing, moved_targets)


def check(history: History) -> Iterator[Claim]:
    """Give one claim for each line that a gradient, or a state, goes astray at."""
    for fact in history.trace.states_of_others:
        yield _loaded(history, fact)
    for detector in DETECTORS:
        yield from detector.claims(history)


def _loaded(history: History, fact: StateOfAnother) -> Claim:
    optimizer = history.trace.optimizers[fact.optimizer]
    parts = {"kind": optimizer.kind, "other": Tensor(fact.of), "saved": At(fact.saved)}
    return Claim(
        tensors=(fact.tensor,),
        cause=("loaded", fact.site),
        site=fact.site,
        operation="load_state_dict",
        message=say(
            "{kind} goes on with what it kept of the gradients of {other} for {x}: the state saved"
            " at {saved} is loaded by position, and the parameters are in another order.",
            x=Tensor(fact.tensor), **parts,
        ),
        story=(
            Step("held", optimizer.site, say("{kind} takes its parameters here, in this order",
                 **parts)),
            Step("read", fact.saved, say("this is the state that was kept for {other}", **parts)),
            Step("written", fact.site, say("{x} is given it", x=Tensor(fact.tensor))),
        ),
        repair=Repair(say("Give {kind} its parameters, and its groups, in the order that they had"
                          " at {saved}.", **parts)),
        count=0,
    )  # fmt: skip


VERDICT = Verdict(
    slug="gradient-misdirected",
    severity="warning",
    summary="a parameter is changed by the gradient of another",
    page=PAGE,
    check=check,
    damage="wrong result",
    examples=(
        Example(
            "Gradients without their Nones, paired with all parameters",
            """import torch
from torch import nn

heads = nn.ModuleList(nn.Linear(3, 1, bias=False) for _ in range(2))
parameters = list(heads.parameters())
for turn in range(4):
    loss = heads[turn % 2](torch.ones(2, 3)).pow(2).sum()
    gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
    gradients = [one for one in gradients if one is not None]
    with torch.no_grad():
        for parameter, gradient in zip(parameters, gradients):
            parameter.sub_(0.1 * gradient)
""",
            (Expected("gradient-misdirected", "heads.0.weight", 12),),
        ),
        Example(
            "Pairs without a gradient left out, and gradients of a mean norm",
            """import torch
from torch import nn

heads = nn.ModuleList(nn.Linear(3, 1, bias=False) for _ in range(2))
parameters = list(heads.parameters())
for turn in range(4):
    loss = heads[turn % 2](torch.ones(2, 3)).pow(2).sum()
    gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
    pairs = [(p, g) for p, g in zip(parameters, gradients) if g is not None]
    norm = torch.stack([g.norm() for _, g in pairs]).mean()
    with torch.no_grad():
        for parameter, gradient in pairs:
            parameter.sub_(0.1 * gradient / norm)
""",
        ),
    ),
)
