"""`graph-retained`: old graphs are kept alive, by a container, a name, or gradients."""

from __future__ import annotations

from collections.abc import Iterator

from tether.analysis.copies.idle import IdleMemory
from tether.analysis.gradients.graph import graph_of
from tether.analysis.history import History
from tether.finding import Claim
from tether.verdicts.base import Example, Expected, Verdict
from tether.verdicts.graph_retained import chains, containers, gradients, nameless
from tether.verdicts.graph_retained.in_buffers import in_buffers
from tether.verdicts.graph_retained.on_ctx import on_ctx
from tether.verdicts.graph_retained.states import states
from tether.verdicts.graph_retained.summed import summed, summed_after_passes, summed_in_vain
from tether.verdicts.graph_retained.unused import unused

PAGE = """
# graph-retained

## What it says
This container, attribute or variable holds tensors whose graphs were built in several steps, so all
the values saved for those graphs stay in memory. The finding names the line where it grows, how
many graphs it holds and how many bytes they keep. So do graphs that no backward pass ever goes
through, where run after run of a line leaves them: an evaluation with gradients on, a state that is
carried on. So do graphs of several steps that went at one moment: one thing, such as a list of
linked objects, held them until then. So does a row taken under no_grad: it has no graph and is a
view, and a view holds the tensor that it is a view of. So does the result of a custom Function that
is an attribute of its own ctx: the three hold one another until Python's garbage collector runs. So
does a sum of losses that no backward pass goes through, such as that of a validation. So does a
registered buffer into which a value with a graph is written (a note). A note tells
of losses of many runs that are summed up before one backward pass, where the runs have only
parameters in common: a pass for each gives the same gradients and keeps one graph at a time. Notes
tell of losses that are added up after the backward pass of each, of what an object holds of runs
after which no backward pass is made, and of graphs in rings of objects (reference cycles), which
go only when Python's garbage collector runs.

## Why it matters
Memory grows with every step until it runs out, far from the line that causes it.

## Known problems
After a backward pass a graph's saved values are freed and its nodes stay: the bytes told are those
still alive. What is held by a closure, a hook, a cache, a grad_fn, a generator that waits or a
kept exception's traceback may bear no name: it is told by the line that made it, and by the one
line that hands it on. Graphs that no backward pass uses are told from eight runs and 1 MiB on, of a
program that finished, and from 64 KiB on as a note; losses that are summed up, from 1 MiB on. What
is in rings is told from 1 MiB on at one run of the collector; where it is switched off, as what is
kept.

## Example
```python
losses.append(loss)                  # keeps the graph of every step
```

## Use instead
```python
losses.append(loss.detach())         # or loss.item()
```

## Fix safety
What is detached gives no gradient any more: never applied by itself.
"""


def check(history: History) -> Iterator[Claim]:
    """Give the containers, the running totals and the gradients that keep graphs."""
    kept = [one for one in _named(history) if history.had_graph(one)]
    told: set[int] = set()
    for some in (
        containers.claims(history, set(kept)), chains.claims(history, kept, told),
        nameless.claims(history, told),
    ):  # fmt: skip
        for claim in some:
            told.update(claim.tensors)
            yield claim
    yield from gradients.claims(history)
    yield from on_ctx(history)
    idle = list(unused(history, told))
    yield from idle
    yield from states(history, kept, {claim.site for claim in idle})
    yield from in_buffers(history, kept, told)
    yield from summed(history)
    spoken = _spoken_of(history, told)
    yield from summed_in_vain(history, spoken)
    yield from summed_after_passes(history, spoken)


def _spoken_of(history: History, told: set[int]) -> set[int]:
    """Return the calls of graphs that were told of."""
    spoken = {at for one in history.get(IdleMemory).all if one.graph for at in one.made}
    makers = {at for at in map(history.made_at, told) if at >= 0}
    return spoken.union(makers, *(graph_of(history, one) for one in makers))


def _named(history: History) -> list[int]:
    """Return the tensors that some name led to: alive at the end, or they outlived a step."""
    return list(dict.fromkeys(fact.tensor for fact in history.trace.names))


VERDICT = Verdict(
    slug="graph-retained",
    severity="warning",
    summary="this container or attribute keeps old graphs alive; it grows here",
    page=PAGE,
    check=check,
    past="some",
    damage="leak",
    examples=(
        Example(
            "A result that its Function keeps on the ctx",
            """import torch

class Power(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = x.exp()
        ctx.y = y
        return y

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.y

w = torch.ones(600, 600, requires_grad=True)
for _ in range(3):
    Power.apply(w).sum().backward()
""",
            (Expected("graph-retained", "y", 7),),
        ),
        Example(
            "A result that its Function saves for backward, and an argument on the ctx",
            """import torch

class Power(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, size):
        y = x.exp()
        ctx.save_for_backward(y)
        ctx.size = size
        return y * size

    @staticmethod
    def backward(ctx, gradient):
        (y,) = ctx.saved_tensors
        return gradient * y * ctx.size, None

w, size = torch.ones(600, 600, requires_grad=True), torch.tensor(2.0)
for _ in range(3):
    Power.apply(w, size).sum().backward()
""",
        ),
    ),
)
