"""`gradient-lost`: a part of the loss gives nothing back, though other parts do."""

from __future__ import annotations

from collections.abc import Iterator

from tether.analysis.history import History
from tether.finding import Claim
from tether.verdicts.base import Example, Expected, Verdict
from tether.verdicts.gradient_lost import (
    cancelled_terms,
    cut_runs,
    derivatives,
    drawn_apart,
    flat,
    incoming,
    incoming_unread,
    own_backward,
    straight_through,
    taken_from_itself,
    terms,
    totals_of_all,
    vain_terms,
)

PAGE = """
# gradient-lost

## What it says
The parameters get gradients, and yet a part of the loss gives none back: a term that was added to
it has no graph, though it was computed from parameters; or a value's every way to the loss leads
through arguments whose derivative is zero everywhere, such as the mean of `torch.normal`; or of a
line that runs several times for one loss the last run alone gets a gradient, since what each run
gives to the next is cut off, or each run gets a gradient of its own part of the loss alone; or
tensors are changed, inside a loss, by gradients that have no graph (`autograd.grad` without
`create_graph=True`), or by gradients that have one while the tensors themselves are taken without
(`p.data - rate * gradient`). A second derivative lacks a part, where it goes through the backward
of an `autograd.Function` that uses what forward had computed from its inputs and kept: forward has
no graph, so that is a constant there. Where a value is taken from itself, computed twice from the
same values and with a graph both times, or one tensor by two names, what comes back over one way
undoes what comes back over the other. Or the backward of an `autograd.Function` returns what was
made without the gradient that it is given (numbers of both signs, or several in one pass, where
each is the same number throughout). Or two terms of a loss use one value, and what comes back to it
from both adds up to zero: a temperature's loss that goes back into the policy whose entropy it
weighs. Or a derivative of a derivative that goes into the loss was asked for without a graph, or a
derivative by an input that meets what it is a derivative of. Or a term gives gradients only to
parameters whose gradients are cleared before a step uses them, and a call cut the term off from
what the next step trains: a generator's loss that takes what a discriminator says of a detached
value. Or values are drawn from a distribution without a graph (`posterior.sample()`), and no term
of the loss that uses them leads back to what the distribution was computed from, though other terms
do. Or a module has a method `backward` of its own, by which gradients were to be computed: PyTorch
never calls it. Or a collective of `torch.distributed` writes the total of all processes into a
value with a graph, and the loss is not linear in it: of the losses of the other processes nothing
comes back. Or the backward of an
`autograd.Function` reads the gradients of some of its outputs alone, though the loss uses all. Or a
value is added and taken away again, as a straight-through estimator does it, and
no gradient comes back to it: `x + (y - x)` with the graph of the difference, or cut as a whole.

## Why it matters
What that part was to teach is never learned, and the loss that is printed contains it all the same.

## Known problems
A term is meant sometimes, to print a loss that is whole; and of many steps the gradient of the last
may be all that is wanted. So it is a note. A second derivative that lacks a part is a warning, and
so is a value that is taken from itself: it is found in the first backward passes of a line, by what
the two graphs have saved. So is an `autograd.Function` whose backward does not use the gradient
that it is given, where that was looked at in three runs with different elements. A term whose
gradients are cleared is a warning where that is so in every pass that has the term, where other
passes train the parameters that it reaches, and where no other term leads through them to what is
trained; else it is a note. Of a draw it is a note: a model may be meant to learn from its samples
alone. Nothing is said where the drawn values meet the distribution's parameters, as in `log_prob`,
where they became numbers or arrays, or where the program's own line leaves the graph. Of a
straight-through estimator whose two values have changed places it is a note.

## Example
```python
z = torch.normal(mean, std)                  # the gradient of a sample is zero
```

## Use instead
```python
z = mean + std * torch.randn_like(std)
```

## Fix safety
It changes what is trained: never applied by itself.
"""


DETECTORS = (
    terms, flat, taken_from_itself, cut_runs, derivatives, cancelled_terms, incoming, vain_terms,
    drawn_apart, own_backward, totals_of_all, straight_through,
    incoming_unread,
)  # fmt: skip


def check(history: History) -> Iterator[Claim]:
    """Give one claim for each line that something of the loss is lost at."""
    for detector in DETECTORS:
        yield from detector.claims(history)


VERDICT = Verdict(
    slug="gradient-lost",
    severity="warning",
    summary="a term of the loss, or a value on the way to it, gives no gradient back",
    page=PAGE,
    check=check,
    damage="lost training",
    after=("gradient-cut", "gradient-zero", "gradient-unused"),
    examples=(
        Example(
            "A sample of a normal distribution",
            """import torch

w = torch.ones(3, requires_grad=True)
opt = torch.optim.SGD([w], lr=0.1)
std = torch.exp(w)
z = torch.normal(torch.zeros(3), std)
(z.pow(2).sum() + w.pow(2).sum()).backward()
opt.step()
""",
            (Expected("gradient-lost", "std", 6),),
        ),
        Example(
            "A value that is taken from itself as it was, and one of other values",
            """import torch

policy = torch.nn.Linear(2, 2)
opt = torch.optim.SGD(policy.parameters(), lr=0.1)
x = torch.ones(3, 2)
for _ in range(3):
    with torch.no_grad():
        old = policy(x).log_softmax(1)
    new = policy(x).log_softmax(1)
    better = policy(x + 1) - policy(x)
    loss = -(new - old).exp()[:, 0].sum() - better.sigmoid().sum()
    opt.zero_grad()
    loss.backward()
    opt.step()
""",
        ),
    ),
)
