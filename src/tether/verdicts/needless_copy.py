"""`needless-copy`: a copy that could have been its source, in every execution that was seen."""

from __future__ import annotations

from collections.abc import Iterator

from tether.analysis.copy_needs import Key, Need, copied_text, needs
from tether.analysis.history import History, shortened
from tether.analysis.wording import place
from tether.facts import UNKNOWN
from tether.finding import Evidence, Finding, Fix
from tether.verdicts.base import Example, Expected, Verdict

PAGE = """
# needless-copy

## What it says
A copy made at this line could have been the tensor that it was made of: every time the line ran,
neither was written while the other lived, nothing was done to the copy that its source could not
have been used for, and the gradient graph says the same without it.

## Why it matters
The copy is read and written once, and lives beside its source: the bytes are named, for the whole
run.

## Known problems
It speaks of this run: a line of the program that did not run may write either of the two. It takes
for granted that no code asks whether the two are one object (`is`, `data_ptr()`), or is a
C extension that writes a tensor without telling PyTorch. `tether run --prove` runs the program
again without the copies, and compares every result bit for bit.

Of a library's line more is asked, since other programs call it in another order: that it does not
keep both, and that nothing writes its source at any time after it was filled.

It says nothing, on purpose, of a copy kept for later (of weights that train on, say) even when this
run never came back to it; of a layout that a later call may rely on (`.contiguous()` before
`.view()`); of copies by which a much larger memory goes; of gradients that would be added up in
another order; of what is inside an `autograd.Function`, a checkpointed block or a compiled region.
The report's table of copies gives the reason for each.

## Example
```python
keys = torch.clone(self.k_cache[: t + 1])     # only read, and gone before the cache is written
weights = (keys @ query).softmax(0)
```

## Use instead
```python
keys = self.k_cache[: t + 1]
```

## Fix safety
Safe where it was proven by a re-run (`tether run --prove`); by itself it is not applied.
"""

TELLING = 64 << 10
"""Bytes in a run from which a needless copy in a library's code is told."""


def check(history: History) -> Iterator[Finding]:
    """Give each line whose copies were all needless; lines of libraries where they led from."""
    libraries: dict[int, list[tuple[Key, Need]]] = {}
    for key, need in needs(history).items():
        if need.needed != "no":
            continue
        site, inner, _ = key
        if inner != UNKNOWN:
            libraries.setdefault(site, []).append((key, need))
        else:
            yield _finding(history, key, need)
    for found in libraries.values():
        if sum(need.bytes for _, need in found) >= TELLING:
            yield _in_library(history, found)


def _finding(history: History, key: Key, need: Need) -> Finding:
    site = history.site(key[0])
    position, source, copy = next(
        (one for one in need.executions if history.names_of(one[2].tensor)), need.executions[0]
    )
    subject = site.target or history.name_of(copy.tensor).strip("`")
    origin = copied_text(need.operation, site.expression)
    of = f" of `{shortened(origin)}`" if origin else ""
    times = "" if need.count == 1 else f" in all {need.count:,} runs of the line"
    assumes = ["no line of the program that did not run writes either of them"]
    if need.relaid and copy.requires_grad:
        assumes.append("sums over gradients round the same in the source's layout")
    return Finding(
        slug="needless-copy",
        severity="note",
        subject=subject,
        site=site,
        operation=need.operation,
        message=(
            f"`{subject}` ({place(site)}) is a copy{of} that nothing needed{times}: neither is"
            f" written while the other lives."
        ),
        evidence=_story(history, position, source.tensor, copy.tensor, need),
        assumes=tuple(assumes),
        fix=Fix(f"Use the tensor itself: {_without(need.operation, site.expression)}"),
        count=need.count,
        bytes=need.bytes,
        tensors=tuple(dict.fromkeys(one[2].tensor for one in need.executions)),
    )


def _story(
    history: History, position: int, source: int, copy: int, need: Need
) -> tuple[Evidence, ...]:
    """Where it is made, where it is read, and where the source is read beside it."""
    made = history.site_of(history.events[position])
    facts = [Evidence("made", made, f"{need.operation} copies here")]
    for tensor, who in ((copy, "the copy"), (source, "its source")):
        lines: dict[int, str] = {}
        for at in range(position + 1, min(position + 5_000, len(history.events))):
            event = history.events[at]
            if any(one.tensor == tensor for one in event.reads):
                lines.setdefault(event.site, event.operation)
                if len(lines) == 2:
                    break
        facts += [
            Evidence("read", history.site(site), f"{operation} reads {who}")
            for site, operation in lines.items()
        ]
    return tuple(facts)


def _without(operation: str, expression: str) -> str:
    """Say what to write instead, as far as the text of the call is known."""
    name = {"__deepcopy__": "copy.deepcopy", "tensor": "torch.tensor"}.get(operation, operation)
    return f"leave {name} out of {expression}." if expression else f"leave {name} out."


def _in_library(history: History, found: list[tuple[Key, Need]]) -> Finding:
    """Tell of a library's copies at the user's line that led there."""
    site = history.site(found[0][0][0])
    found = sorted(found, key=lambda one: -one[1].bytes)
    total, count = sum(one.bytes for _, one in found), sum(one.count for _, one in found)
    facts = []
    for (_, inner, operation), need in found[:8]:
        where = history.site(inner)
        text = f"{operation} copies {need.bytes:,} bytes in {need.count:,} runs"
        facts.append(Evidence("made", where, text))
    return Finding(
        slug="needless-copy",
        severity="note",
        subject=site.target or site.function or place(site),
        site=site,
        operation=found[0][1].operation,
        message=(
            f"The library called at {place(site)} makes {count:,} copies that nothing needed, of"
            f" {total:,} bytes together."
        ),
        evidence=tuple(facts),
        assumes=("no line that did not run writes either of them",),
        count=count,
        bytes=total,
    )


VERDICT = Verdict(
    slug="needless-copy",
    severity="note",
    summary="a copy that could have been its source: nothing was written while both lived",
    page=PAGE,
    check=check,
    past="all",
    damage="cost",
    examples=(
        Example(
            "A residual connection: the clone of an input that nothing writes",
            """import torch
from torch import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(4, 4, 3, padding=1)

    def forward(self, x):
        identity = x.clone()
        out = self.conv(x).relu()
        return out + identity


block = Block()
block(torch.randn(2, 4, 8)).sum().backward()
""",
            (Expected("needless-copy", "identity", 11),),
        ),
        Example(
            "The same with a ReLU in place on the input: the clone is needed",
            """import torch
from torch import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(4, 4, 3, padding=1)

    def forward(self, x):
        identity = x.clone()
        out = self.conv(torch.relu_(x))
        return out + identity


block = Block()
block(torch.randn(2, 4, 8)).sum().backward()
""",
        ),
        Example(
            "A copy of what an index list has just made",
            """import torch

data = torch.randn(90, 4)
rows = torch.tensor([3, 1, 4])
batch = data[rows].clone()
batch.add_(1)
""",
            (Expected("needless-copy", "batch", 5),),
        ),
        Example(
            "A copy of weights that train on, which this run never used",
            """import copy
import torch

model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    model(torch.ones(4, 2)).pow(2).sum().backward()
    optimizer.step()
    best = copy.deepcopy(model.state_dict())
""",
        ),
        Example(
            "A layout that a view relies on",
            """import torch

x = torch.randn(6, 4)
flat = x.t().contiguous()
print(flat.view(-1).sum().item())
""",
        ),
    ),
)
