"""`gradient-zero`: the only paths to the loss go through a step function."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from tether.analysis.gradient_paths import Paths
from tether.analysis.history import History, shortened
from tether.analysis.ungraded import missing
from tether.facts import Operand
from tether.finding import Evidence, Finding, Fix
from tether.verdicts.base import Example, Expected, Verdict

PAGE = """
# gradient-zero

## What it says
The gradient of this parameter was there and was exactly zero at every step that was looked into,
because its only paths to the loss go through a step function: round, sign, floor, ceil.

## Why it matters
A step function is flat wherever it has a derivative, so PyTorch gives zero and no error. The
optimizer steps, and nothing moves.

## Known problems
A zero gradient alone is no finding: zero-initialised heads, a softmax over one value and dead ReLUs
give zeros on smooth paths and stay silent here.

## Example
```python
quantized = torch.round(weight / scale) * scale
```

## Use instead
A straight-through estimator, which rounds forward and passes the gradient backward:
```python
quantized = weight + (torch.round(weight / scale) * scale - weight).detach()
```

## Fix safety
It changes what is trained: never applied by itself.
"""


def check(history: History) -> Iterator[Finding]:
    """Give one finding for each step function that flattens all paths."""
    found = missing(history)
    groups: dict[int, list[int]] = defaultdict(list)
    for tensor in found.zero:
        reaching = found.reaching(tensor)
        bits = [(one, 1 << one.tensors.index(tensor)) for one in reaching]
        if not bits:
            continue
        if any(paths.smooth & bit for paths, bit in bits):
            yield from _hooked(history, tensor, [paths for paths, _ in bits])
            continue
        steps = [at for paths, _ in bits for at in paths.of(paths.steps, tensor)]
        if steps:
            groups[history.events[min(steps)].site].append(tensor)
            history.memo[f"step of {history.events[min(steps)].site}"] = min(steps)
    for site_number, tensors in groups.items():
        event = history.events[history.memo[f"step of {site_number}"]]
        site = history.site_of(event)
        names = [history.name_of(tensor) for tensor in tensors]
        what = f"`{shortened(site.expression)}`" if site.expression else event.operation
        yield Finding(
            slug="gradient-zero",
            severity="warning",
            subject=names[0],
            site=site,
            operation=event.operation,
            message=(
                f"`{names[0]}` got a gradient of exactly zero at every step: its only paths to the"
                f" loss go through {what}, which is flat wherever it has a derivative."
            ),
            also=tuple(names[1:]),
            evidence=(Evidence("step", site, f"{event.operation} has a derivative of zero"),),
            fix=Fix("Pass the gradient straight through: x + (f(x) - x).detach()."),
            tensors=tuple(tensors),
        )


def _hooked(history: History, tensor: int, reaching: list[Paths]) -> Iterator[Finding]:
    """Look for a hook on the way that makes tensors of the gradient's own shape."""
    makers = _makers_in_backward(history)
    for position, event in enumerate(history.events):
        if event.operation != "register_hook" or not event.reads:
            continue
        hooked = event.reads[0]
        shapes = makers.get(event.detail.rpartition(".")[2], set())
        if hooked.shape not in shapes or not _on_the_way(history, tensor, hooked, reaching):
            continue
        site, name = history.site_of(event), history.name_of(tensor)
        yield Finding(
            slug="gradient-zero",
            severity="warning",
            subject=name,
            site=site,
            operation=event.operation,
            message=(
                f"`{name}` got a gradient of exactly zero at every step: most likely the hook"
                f" `{event.detail}` replaces the gradient on its way."
            ),
            evidence=(Evidence("hook", site, "the hook is registered here"),),
            assumes=("the hook returns the tensor that it makes",),
            fix=Fix(f"Let the hook return None, or do without it (line {site.line})."),
            count=history.times(position),
            tensors=(tensor,),
        )
        return


def _makers_in_backward(history: History) -> dict[str, set[tuple[int, ...]]]:
    """Return for each function that ran inside a backward pass the shapes of what it made."""
    made: dict[str, set[tuple[int, ...]]] = defaultdict(set)
    for event in history.events:
        if event.results and history.inside(event, "backward") >= 0:
            function = history.site_of(event).function.rpartition(".")[2]
            made[function].update(one.shape for one in event.results)
    return made


def _on_the_way(history: History, tensor: int, hooked: Operand, reaching: list[Paths]) -> bool:
    """Whether the hooked tensor is the parameter, or computed from it in some pass."""
    if hooked.tensor == tensor:
        return True
    maker = history.made_at(hooked.tensor)
    if maker < 0:
        return False
    behind = {*history.flow.behind(maker, most=20_000), maker}
    return bool(reaching) and any(
        edge.operand is not None and edge.operand.tensor == tensor
        for at in behind
        for edge in history.flow.edges[at]
    )


VERDICT = Verdict(
    slug="gradient-zero",
    severity="warning",
    summary="a gradient is exactly zero: its only paths go through a step function, here",
    page=PAGE,
    check=check,
    damage="lost training",
    examples=(
        Example(
            "Rounding without a straight-through estimator",
            """import torch

w = torch.tensor([1.3, 2.6], requires_grad=True)
b = torch.zeros(2, requires_grad=True)
opt = torch.optim.SGD([w, b], lr=0.1)
for _ in range(3):
    opt.zero_grad()
    loss = (torch.round(w) + b).pow(2).sum()
    loss.backward()
    opt.step()
""",
            (Expected("gradient-zero", "w", 8),),
        ),
        Example(
            "A straight-through estimator",
            """import torch

w = torch.tensor([1.3, 2.6], requires_grad=True)
opt = torch.optim.SGD([w], lr=0.1)
for _ in range(3):
    opt.zero_grad()
    loss = (w + (torch.round(w) - w).detach()).pow(2).sum()
    loss.backward()
    opt.step()
""",
        ),
    ),
)
