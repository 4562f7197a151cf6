"""`gradient-on-non-leaf`: the gradient of a computed tensor was asked for."""

from __future__ import annotations

from collections.abc import Iterator

from tether.analysis.history import History
from tether.analysis.wording import listed
from tether.finding import At, Claim, Repair, Sentence, Step, Tensor, say
from tether.verdicts.base import Example, Expected, Verdict

PAGE = """
# gradient-on-non-leaf

## What it says
The program read `.grad` of a tensor that was computed from others. Backward fills `.grad` only for
leaves: tensors that were made by you and require grad. The leaves it was computed from are named.

## Why it matters
The value is None and looks like a gradient that was lost. A common case: `nn.Parameter(...)` or
`torch.randn(..., requires_grad=True)` followed by `.to(device)`, `* 0.1` or a reshape, which makes
a new tensor that is no leaf.

## Known problems
None known.

## Example
```python
w = torch.randn(3, requires_grad=True) * 0.1
loss(w).backward()
w.grad                     # None: w is computed
```

## Use instead
```python
w = (torch.randn(3) * 0.1).requires_grad_()
```
or call `w.retain_grad()` before backward.

## Fix safety
Making it a leaf changes what is trained: never applied by itself.
"""


def check(history: History) -> Iterator[Claim]:
    """Give one claim for each read of such a gradient; those of one line and name join."""
    claims: dict[tuple[int, str], Claim] = {}
    for position, event in history.events.where("grad.__get__".__eq__):
        if not event.none or not event.reads:
            continue
        operand = event.reads[0]
        if operand.leaf or not operand.requires_grad or event.inner != event.site:
            continue
        key: tuple[int, str] = (event.site, history.name_of(operand.tensor))
        if key not in claims:
            claims[key] = _claim(history, position, operand.tensor, key)
        yield claims[key]


def _claim(history: History, position: int, tensor: int, cause: tuple[int, str]) -> Claim:
    site, name = cause
    leaves = [_called(history, leaf, name) for leaf in _leaves(history, position)]
    made = history.made_at(tensor)
    story = [Step("read", site, say(".grad is read here and is None"))]
    if made >= 0:
        said = say("it is computed here, so it is no leaf")
        story.insert(0, Step("made", history.events[made].site, said))
    parts = {f"n{number}": one for number, one in enumerate(leaves)}
    all_leaves = say(listed([f"{{{one}}}" for one in parts]) if parts else "", **parts)
    source = say(", computed from {leaves}", leaves=all_leaves) if leaves else ""
    also = say(", or read the gradient of {leaves}", leaves=all_leaves) if leaves else ""
    return Claim(
        tensors=(tensor,),
        cause=cause,
        site=site,
        operation="grad",
        message=say("{subject} is not a leaf{source}: backward does not fill its `.grad`.",
                    source=source),
        story=tuple(story),
        repair=Repair(
            say("Call {x!s}.retain_grad() before backward{also}.", x=Tensor(tensor), also=also)
        ),
    )  # fmt: skip


def _called(history: History, leaf: int, name: str) -> Sentence:
    """Return what a leaf is called; by its line where the computed tensor took its name over."""
    made = history.made_at(leaf)
    if history.name_of(leaf).strip("`") != name or made < 0:
        return say("{leaf}", leaf=Tensor(leaf))
    return say("the leaf that {made} makes", made=At(history.events[made].site))


def _leaves(history: History, position: int) -> list[int]:
    """Return the leaves that require grad from which the operand of an event was computed."""
    flow = history.flow
    leaves: dict[int, None] = {}
    for at in [*flow.behind(position, most=20_000), position]:
        for edge in flow.edges[at]:
            operand = edge.operand
            if operand is not None and operand.requires_grad and operand.leaf:
                leaves[operand.tensor] = None
    return list(leaves)


VERDICT = Verdict(
    slug="gradient-on-non-leaf",
    severity="warning",
    summary="`.grad` of a computed tensor was read; its leaf is this one",
    page=PAGE,
    check=check,
    past="some",
    damage="lost training",
    examples=(
        Example(
            "A computed tensor is no leaf",
            """import torch

w = torch.ones(3, requires_grad=True)
scaled = w * 2
scaled.sum().backward()
print(scaled.grad)
""",
            (Expected("gradient-on-non-leaf", "scaled", 6),),
        ),
        Example(
            "retain_grad keeps it",
            """import torch

w = torch.ones(3, requires_grad=True)
scaled = w * 2
scaled.retain_grad()
scaled.sum().backward()
print(scaled.grad)
""",
        ),
    ),
)
