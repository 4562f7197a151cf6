"""`gradient-on-non-leaf`: the gradient of a computed tensor was asked for."""

from __future__ import annotations

from collections.abc import Iterator

from tether.analysis.history import History
from tether.analysis.wording import listed, place
from tether.finding import Evidence, Finding, Fix
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


def check(history: History) -> Iterator[Finding]:
    """Give one finding for each line that reads such a gradient."""
    told: dict[tuple[int, str], int] = {}
    found: dict[tuple[int, str], Finding] = {}
    for position, event in enumerate(history.events):
        if event.operation != "grad.__get__" or not event.none or not event.reads:
            continue
        operand = event.reads[0]
        if operand.leaf or not operand.requires_grad or event.inner != event.site:
            continue
        name = history.name_of(operand.tensor)
        key: tuple[int, str] = (event.site, name)
        told[key] = told.get(key, 0) + 1
        if key not in found:
            found[key] = _finding(history, position, operand.tensor, name)
    for key, finding in found.items():
        yield Finding(**{**finding.__dict__, "count": told[key]})


def _finding(history: History, position: int, tensor: int, name: str) -> Finding:
    event = history.events[position]
    site = history.site_of(event)
    leaves = _leaves(history, position)
    named = [_called(history, leaf, name) for leaf in leaves]
    made = history.made_at(tensor)
    facts = [Evidence("read", site, ".grad is read here and is None")]
    if made >= 0:
        where = history.site_of(history.events[made])
        facts.insert(0, Evidence("made", where, "it is computed here, so it is no leaf"))
    source = f", computed from {listed(named)}" if named else ""
    return Finding(
        slug="gradient-on-non-leaf",
        severity="warning",
        subject=name,
        site=site,
        operation="grad",
        message=f"`{name}` is not a leaf{source}: backward does not fill its `.grad`.",
        also=(),
        evidence=tuple(facts),
        fix=Fix(
            f"Call {name}.retain_grad() before backward"
            + (f", or read the gradient of {listed(named)}." if named else ".")
        ),
        tensors=(tensor,),
    )


def _called(history: History, leaf: int, name: str) -> str:
    """Return what a leaf is called; by its line where the computed tensor took its name over."""
    own = history.name_of(leaf).strip("`")
    made = history.made_at(leaf)
    if own != name or made < 0:
        return f"`{own}`"
    return f"the leaf that {place(history.site_of(history.events[made]))} makes"


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
