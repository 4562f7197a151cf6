"""`mode-kept`: an evaluation mode that stayed on in training, or that did not stay on."""

from __future__ import annotations

from collections.abc import Iterator

from tether.analysis.history import History
from tether.finding import Claim
from tether.verdicts.base import Example, Expected, Verdict
from tether.verdicts.mode_kept import left_in_evaluation, modes_undone, statistics_moved

PAGE = """
# mode-kept

## What it says
The model was put into evaluation mode and evaluated, and the steps that follow train it in that
mode: nothing called `train()` again. Before, steps had trained it in training mode. Or a part of
the model was put into evaluation mode by itself, and a `train()` of the whole model took it out of
it: the statistics of a batch normalization that was to be held still move, or a part that nothing
trains drops values out. Or a batch normalization was frozen (`requires_grad_(False)`), and its
statistics move all the same while something else is trained, since it is in training mode. Or a
copy that followed what is trained, an average, follows no more since an evaluation put it into
evaluation mode.

## Why it matters
Dropout drops nothing and batch normalization uses the running statistics and no longer updates
them, so most of the training is another one than its first steps. Nothing raises, and the loss may
even look better.

## Known problems
It is a warning where the program shows that training mode is to come back: it calls `train()`, or
`eval()` at the same line again. Else it is a note. Nothing is said of a model without a module that
the mode makes a difference to, of one that was in evaluation mode from its first step on, or of an
`eval()` after which nothing is evaluated. Of a part it is a warning where nothing had used the part
in evaluation mode before `train()` came, or nothing trains it; else it may be what is meant, and is
a note. Nothing is said of a part that is trained and holds no statistics of its own, or of one in
which no statistics moved and no values were dropped. Of a norm that was frozen it is a warning
where a model that the last quarter of those passes did not train computes with the moved
statistics; else they may be meant to follow the data, and it is a note.

## Example
```python
model.train()
for epoch in range(epochs):
    fit(model)
    evaluate(model)       # calls model.eval(): the second epoch trains in that mode
```

## Use instead
```python
for epoch in range(epochs):
    model.train()
    fit(model)
    evaluate(model)
```

## Fix safety
It changes what is trained: never applied by itself.
"""


def check(history: History) -> Iterator[Claim]:
    """Give one claim for each line that put what is trained into evaluation mode, or out of it."""
    yield from left_in_evaluation.claims(history)
    undone = list(modes_undone.claims(history))
    yield from undone
    yield from statistics_moved.claims(
        history, {tensor for one in undone for tensor in one.tensors}
    )


VERDICT = Verdict(
    slug="mode-kept",
    severity="warning",
    summary="an evaluation mode stays on in training, or does not stay on where it was to",
    page=PAGE,
    check=check,
    damage="wrong result",
    examples=(
        Example(
            "Training mode is switched on once",
            """import torch
from torch import nn

model = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.2), nn.Linear(4, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
model.train()
for epoch in range(3):
    for _ in range(2):
        opt.zero_grad()
        model(torch.rand(4, 3)).pow(2).mean().backward()
        opt.step()
    model.eval()
    with torch.no_grad():
        print(model(torch.rand(4, 3)).mean())
""",
            (Expected("mode-kept", "model.0.weight", 12),),
        ),
        Example(
            "Statistics that are held still each time",
            """import torch
from torch import nn

model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(3):
    model.train()
    model[1].eval()
    opt.zero_grad()
    model(torch.rand(4, 3)).pow(2).mean().backward()
    opt.step()
""",
        ),
    ),
)
