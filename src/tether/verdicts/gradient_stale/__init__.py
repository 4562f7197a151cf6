"""`gradient-stale`: a backward pass goes through values computed before the last step."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tether.analysis.gradients.graph import Graph
from tether.analysis.history import History
from tether.analysis.surroundings import Surroundings
from tether.analysis.timelines import Timeline
from tether.facts import UNKNOWN, Operand
from tether.finding import At, CallOf, Claim, Repair, Step, Tensor, say
from tether.verdicts.base import Example, Expected, Verdict
from tether.verdicts.gradient_stale import kept_gradients, stepped_twice

PAGE = """
# gradient-stale

## What it says
The graph of this loss holds a call that had read a parameter before the last step of its optimizer.
The step changed the parameter, and the call was not made again: loss and gradient are those of the
old values. Or the program set the gradient of a parameter once, as to that of a copy which
computes it, and step after step uses this one gradient again: nothing sets it anew, clears it or
adds to it, while passes go on to give the copy others. Or two optimizers hold a parameter and both
step by the gradient of one pass (a note).

## Why it matters
The parameter moves by gradients of values that it no longer has. PyTorch raises where such a value
was saved for backward, and is silent where none was: at sums, views and casts.

## Known problems
Graphs are looked at in the 1st, 2nd, 4th, 8th... pass of each line.

## Example
```python
with torch.autocast("cpu"):          # keeps its casts of the parameters until it ends
    for x, y in batches:
        train_step(x, y)
```

## Use instead
```python
for x, y in batches:
    with torch.autocast("cpu"):
        loss = loss_of(x, y)
    update(loss)
```

## Fix safety
It changes what is trained: never applied by itself.
"""


def check(history: History) -> Iterator[Claim]:
    """Give one claim for each call that stays in the graphs of losses over a step."""
    graph, steps, begun = history.get(Graph), _steps(history), _begun(history)
    told: set[tuple[int, int]] = set()

    def rank(tensor: int) -> int:
        return history.order.get(tensor, len(history.order))

    for backward in history.backwards if history.steps else ():
        if graph.leaves(backward) is None or history.events[backward].raised:
            continue
        for at in sorted(graph.behind(backward)):
            for one in sorted(_entering(history, at), key=lambda leaf: rank(leaf.tensor)):
                last = steps.latest(one.tensor, begun.get(backward, backward))
                key = (one.tensor, history.events[at].site)
                if at < last and key not in told:
                    told.add(key)
                    yield _claim(history, one, at, last, backward)
    yield from kept_gradients.claims(history)
    yield from stepped_twice.claims(history)


def _steps(history: History) -> Timeline:
    """Return the positions of the steps that wrote each tensor."""
    steps = np.zeros(len(history.events), bool)
    known = (history.position(one.at) for one in history.steps)
    steps[[at for at in known if at >= 0]] = True
    at, rows = history.events.touched("writes")
    chosen = (steps & history.events.called("step".__eq__))[at]
    return Timeline(history.events.operands.column("tensor")[rows[chosen]], at[chosen])


def _begun(history: History) -> dict[int, int]:
    """Return when each backward pass began: a hook may step within it, on values it has used."""
    return {
        history.position(span.event): history.position(span.first)
        for span in history.trace.spans
        if span.kind == "backward" and span.event != UNKNOWN
    }


def _entering(history: History, at: int) -> Iterator[Operand]:
    """Yield the leaves that a call's own nodes lead back to."""
    kind, event = history.get(Graph).kind(at), history.events[at]
    places = sorted({-1 - target for _, _, target in (kind.edges if kind is not None else ())})
    for place in places:
        if 0 <= place < len(event.reads) and event.reads[place].leaf:
            yield event.reads[place]


def _claim(history: History, leaf: Operand, at: int, step: int, backward: int) -> Claim:
    events = history.events
    read, stepped, loss = events[at].site, events[step].site, events[backward].site
    return Claim(
        tensors=(leaf.tensor,),
        cause=(stepped, loss),
        site=read,
        operation=events[at].operation,
        message=say(
            "Backward at {loss} goes through values of {subject} from before the step at {step}:"
            " {call} made them once and was not run again.",
            loss=At(loss), step=At(stepped), call=CallOf(at),
        ),
        story=(
            Step("used", read, say("{call} reads {x}", call=CallOf(at), x=Tensor(leaf.tensor))),
            Step("step", stepped, say("this step changes {x}", x=Tensor(leaf.tensor))),
            Step("loss", loss, say("this pass goes through what was made before the step")),
            *history.get(Surroundings).around_both(history.site(loss), history.site(stepped)),
        ),
        repair=Repair(
            say(
                "Compute the value anew after each step: keep neither it nor, with torch.autocast,"
                " the context that caches it."
            )
        ),
        count=0,
        calls=(at,),
    )  # fmt: skip


VERDICT = Verdict(
    slug="gradient-stale",
    severity="warning",
    summary="a backward pass goes through values that were computed before the last step",
    page=PAGE,
    check=check,
    after=("rerun-differs",),
    examples=(
        Example(
            "A term that is computed once",
            """import torch

w = torch.ones(3, requires_grad=True)
opt = torch.optim.SGD([w], lr=0.1)
shifted = w + 1
for _ in range(3):
    opt.zero_grad()
    (shifted * torch.arange(3.0)).sum().backward(retain_graph=True)
    opt.step()
""",
            (Expected("gradient-stale", "w", 5),),
        ),
        Example(
            "Computed anew, and a value of no graph kept",
            """import torch

w = torch.ones(3, requires_grad=True)
opt = torch.optim.SGD([w], lr=0.1)
start = (w + 1).detach()
for _ in range(3):
    opt.zero_grad()
    ((w + 1) * start).sum().backward()
    opt.step()
""",
        ),
    ),
)
