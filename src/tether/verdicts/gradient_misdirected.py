"""`gradient-misdirected`: a parameter is changed by the gradient of another."""

from __future__ import annotations

from collections.abc import Iterator

from tether.analysis.history import History
from tether.analysis.misdirected import Misdirected, misdirected
from tether.analysis.moved_targets import MovedTarget, moved_targets
from tether.analysis.surroundings import Surroundings, at_line
from tether.analysis.weighing import Weighing, weighing
from tether.facts import StateOfAnother
from tether.finding import At, CallOf, Claim, Repair, Step, Tensor, say
from tether.source.reading import looped_over
from tether.verdicts.base import Example, Expected, Verdict

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


def check(history: History) -> Iterator[Claim]:
    """Give one claim for each line."""
    for found in misdirected(history):
        yield _claim(history, found)
    for fact in history.trace.states_of_others:
        yield _loaded(history, fact)
    for one in weighing(history):
        yield _weighed(history, one)
    for moved in moved_targets(history):
        yield _moved(history, moved)


def _moved(history: History, found: MovedTarget) -> Claim:
    events = history.events
    loss, entered, backward = (
        events[at].site for at in (found.loss, found.entered, found.backward)
    )
    optimizer = history.trace.optimizers[history.holders_of(found.tensors[0])[0]]
    names = {"target": Tensor(found.target), "kind": optimizer.kind, "call": CallOf(found.loss)}
    return Claim(
        tensors=found.tensors,
        cause=("target", loss),
        site=loss,
        operation=events[found.loss].operation,
        severity="note",
        message=say(
            "The target of {call} at {line} has a graph, to {subject}, which what it is compared"
            " with does not come from: steps of {kind} move the target towards it as well.",
            line=At(loss), **names,
        ),
        story=(
            Step("held", optimizer.site, say("{kind} takes {x}", x=Tensor(found.tensors[0]),
                 **names)),
            Step("used", entered, say("the target is computed from it here")),
            Step("loss", backward, say("backward goes through both")),
        ),
        repair=Repair(say("Detach the target, or compute it under torch.no_grad(), where only what"
                          " is compared with it is to learn.", **names)),
        count=0,
    )  # fmt: skip


def _weighed(history: History, found: Weighing) -> Claim:
    events = history.events
    difference, product, own, loss = (
        events[at].site for at in (found.difference, found.product, found.own, found.backward)
    )
    names = {"estimate": Tensor(found.estimate), "weighed": Tensor(found.weighed)}
    return Claim(
        tensors=found.tensors,
        cause=("weighed", difference),
        site=difference,
        operation=events[found.difference].operation,
        severity="note",
        message=say(
            "Two parts of the loss move {subject}: {own} draws {estimate} towards its target, and"
            " what it lacks, the difference at {line}, multiplies {weighed} at {product} with its"
            " graph.",
            own=At(own), line=At(difference), product=At(product), **names,
        ),
        story=(
            Step("made", difference, say("the difference of {estimate} and its target", **names)),
            Step("used", product, say("it multiplies {weighed}, of other parameters", **names)),
            Step("used", own, say("{estimate} is trained to be its target here", **names)),
            Step("loss", loss, say("backward goes through both factors of the product")),
        ),
        repair=Repair(say("Detach the difference where it multiplies {weighed!s}: with .detach().",
                          **names)),
        count=0,
    )  # fmt: skip


def _claim(history: History, found: Misdirected) -> Claim:
    write, given = (history.events[at].site for at in (found.write, found.given))
    owner = Tensor(found.owner)
    return Claim(
        tensors=found.takers,
        cause=write,
        site=write,
        operation=history.events[found.write].operation,
        message=say(
            "{writing} at {line} gives {subject} the gradient of {owner}, and not its own: {call}"
            " at {given} gave it for {owner}.",
            writing=CallOf(found.write), line=At(write), owner=owner, call=CallOf(found.given),
            given=At(given),
        ),
        story=(
            *_given(history, found),
            *_paired(history, found),
            Step("written", write, say("{x} is given it", x=Tensor(found.takers[0]))),
        ),
        repair=Repair(say("Keep each gradient with its parameter: drop both of a pair whose"
                          " gradient is None, after they are paired.")),
        count=0,
    )  # fmt: skip


def _given(history: History, found: Misdirected) -> Iterator[Step]:
    site = history.events[found.given].site
    yield Step("read", site, say("this is the gradient of {owner}", owner=Tensor(found.owner)))
    if found.missing:
        said = say("{n} of what it was asked for have none: None", n=len(found.missing))
        yield Step("read", site, said)


def _paired(history: History, found: Misdirected) -> Iterator[Step]:
    """Yield the loop that pairs parameters with gradients, and what it goes over."""
    place = history.site_of(history.events[found.used])
    source = history.get(Surroundings).source(place.file)
    loop, *gathered = looped_over(source, place) or [0]
    if loop:
        said = say("this loop gives the gradient of {owner} together with {x}",
                   owner=Tensor(found.owner), x=Tensor(found.takers[0]))  # fmt: skip
        yield Step("used", at_line(place, loop), said)
    for line in gathered:
        yield Step("used", at_line(place, line), say("what it goes over is put together here"))


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
