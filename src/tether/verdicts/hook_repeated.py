"""`hook-repeated`: a line registered the same hook again and again, and none was removed."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from tether.analysis.history import History
from tether.facts import UNKNOWN, Hooked
from tether.finding import At, Claim, Repair, Step, Tensor, say
from tether.verdicts.base import Example, Expected, Verdict

PAGE = """
# hook-repeated

## What it says
A line put a hook on the same module or tensor several times, with calls of the program between, and
as it put the last one there the others were still registered.

## Why it matters
Every one of them runs: a gradient is scaled several times over, an activation is recorded several
times, and each pass takes longer than the one before. What a hook holds lives as long as it.

## Known problems
Followed are hooks that the program's own lines register. It is a warning where a backward pass lies
between the registrations, else a note: several hooks of one line may be meant.

## Example
```python
for epoch in range(10):
    embedding.weight.register_hook(lambda gradient: gradient * 0.1)
    train_one_epoch()
```

## Use instead
```python
embedding.weight.register_hook(lambda gradient: gradient * 0.1)
for epoch in range(10):
    train_one_epoch()
```
Or keep what the call returns, and call its `remove()`.

## Fix safety
It changes what runs: never applied by itself.
"""


def check(history: History) -> Iterator[Claim]:
    """Give one claim for each line whose hooks pile up."""
    for fact in history.trace.hooks:
        apart = all(one < other for one, other in pairwise(fact.at))
        if len(fact.at) > 1 and apart:
            yield _claim(history, fact)


def _claim(history: History, fact: Hooked) -> Claim:
    first, last = history.position(fact.at[0]), history.position(fact.at[-1])
    passes = any(first <= at < last for at in history.backwards)
    on = Tensor(fact.tensor) if fact.tensor != UNKNOWN else f"one {fact.on}"
    return Claim(
        tensors=(fact.tensor,) if fact.tensor != UNKNOWN else (),
        subject="" if fact.tensor != UNKNOWN else fact.on,
        cause=fact.site,
        site=fact.site,
        operation="register_hook",
        severity="warning" if passes else "note",
        message=say(
            "{n} hooks of {line} are on {on}: each run of the line registers one more, and those"
            " from before were not removed. All of them run.",
            n=len(fact.at), line=At(fact.site), on=on,
        ),
        story=(Step("made", fact.site, say("one more hook is registered here each time")),),
        repair=Repair(say("Register it once, outside of what runs again and again; or keep what the"
                          " call returns, and call its remove().")),
        count=0,
    )  # fmt: skip


VERDICT = Verdict(
    slug="hook-repeated",
    severity="warning",
    summary="a line registered the same hook again and again, and none was removed",
    page=PAGE,
    check=check,
    damage="wrong result",
    examples=(
        Example(
            "In each epoch",
            """import torch

w = torch.ones(3, requires_grad=True)
opt = torch.optim.SGD([w], lr=0.1)
for epoch in range(3):
    w.register_hook(lambda gradient: gradient * 0.1)
    opt.zero_grad()
    w.pow(2).sum().backward()
    opt.step()
""",
            (Expected("hook-repeated", "w", 6),),
        ),
        Example(
            "Removed each time, and several of one line that are meant",
            """import torch

layer = torch.nn.Linear(3, 3)
seen = []

def remember(name):
    return lambda module, given, result: seen.append((name, result.mean().item()))

for name in ("first", "second"):
    layer.register_forward_hook(remember(name))
for part in range(3):
    handle = layer.register_forward_hook(remember("third"))
    layer(torch.ones(2, 3)).sum().backward()
    handle.remove()
""",
        ),
    ),
)
