"""`gradient-discarded`: a gradient was there, and was gone when the optimizer stepped."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from tether.analysis.history import History
from tether.analysis.wording import place
from tether.facts import UNKNOWN, Gradients, TensorId
from tether.finding import Evidence, Finding, Fix
from tether.verdicts.base import Example, Expected, Verdict

PAGE = """
# gradient-discarded

## What it says
After backward this parameter had a gradient; when the optimizer stepped it was None or zero, since
the line named cleared or overwrote it in between. So it was at every step.

## Why it matters
The optimizer steps on nothing: the loss stays where it is, and there is no error.

## Known problems
Only what happens at every recorded step is reported; clearing once is taken as meant (a skipped
step, a gradient that was not finite).

## Example
```python
loss.backward()
opt.zero_grad()
opt.step()
```

## Use instead
```python
opt.zero_grad()
loss.backward()
opt.step()
```

## Fix safety
It changes what is trained: never applied by itself.
"""

_ZEROING = ("zero_", "_foreach_zero_", "fill_", "mul_", "_foreach_mul_")


def check(history: History) -> Iterator[Finding]:
    """Give one finding for each line that clears gradients at every step."""
    groups: dict[int, list[int]] = defaultdict(list)
    where: dict[int, tuple[int, Gradients]] = {}
    for tensor in sorted(history.held, key=lambda one: history.order.get(one, 0)):
        found = _always_cleared(history, TensorId(tensor))
        if found is not None:
            position, step = found
            site = int(history.events[position].site)
            groups[site].append(tensor)
            where.setdefault(site, (position, step))
    for number, tensors in groups.items():
        yield _finding(history, tensors, *where[number])


def _always_cleared(history: History, tensor: TensorId) -> tuple[int, Gradients] | None:
    """Position of the first clearing call, when every step found the gradient cleared."""
    steps = [fact for fact in history.steps if tensor in fact.status]
    filled = {fact.status.get(tensor, "none") for fact in history.after_backward}
    used = {fact.status[tensor] for fact in steps}
    if "zero" in filled and "some" not in filled and "none" not in used:
        return None  # backward gave it zeros, and they are what the step used
    if not steps or any(fact.status[tensor] == "some" for fact in steps):
        return None
    first: tuple[int, Gradients] | None = None
    since = 0
    for step in steps:
        at = history.position(step.at)
        if step.status[tensor] == "unchecked":
            since = at
            continue  # not looked into: the other steps speak
        had = any(
            since <= history.position(fact.at) <= at and fact.status.get(tensor, "none") != "none"
            for fact in history.after_backward
        )
        if not had and first is None and not any(one < at for one in history.backwards):
            since = at
            continue  # before the first backward pass: there was nothing yet to clear
        cleared = _clearing(history, tensor, since, at) if had else UNKNOWN
        if cleared == UNKNOWN:
            return None
        first = first or (cleared, step)
        since = at
    return first


def _clearing(history: History, tensor: int, since: int, until: int) -> int:
    """Position of the last call in a stretch that took the gradient away after a backward."""
    gradients: set[int] = set()
    after_backward = False
    found = UNKNOWN
    for position in range(max(0, since), min(until, len(history.events))):
        event = history.events[position]
        reads = event.reads
        if event.operation == "backward":
            after_backward, found = True, UNKNOWN
        elif event.operation == "grad.__get__" and reads and reads[0].tensor == tensor:
            gradients.update(one.tensor for one in event.results)
        elif after_backward and event.operation in ("zero_grad", "grad.__set__"):
            named = [one.tensor for one in (reads if event.operation == "zero_grad" else reads[:1])]
            if tensor in named:
                found = position
        elif (
            after_backward
            and event.operation in _ZEROING
            and any(one.tensor in gradients for one in event.writes)
        ):
            found = position
    return found


def _finding(history: History, tensors: list[int], position: int, step: Gradients) -> Finding:
    names = [history.name_of(tensor) for tensor in tensors]
    event = history.events[position]
    site, stepped = history.site_of(event), history.site(step.site)
    since = history.backwards[0] if history.backwards else 0
    count = sum(
        tensors[0] in fact.status and history.position(fact.at) > since for fact in history.steps
    )
    every = "the one step" if count == 1 else f"each of {count} steps"
    backward = next(
        (one for one in reversed(history.backwards) if one < position), history.backwards[0]
    )
    return Finding(
        slug="gradient-discarded",
        severity="warning",
        subject=names[0],
        site=site,
        operation=event.operation.removesuffix(".__set__"),
        message=(
            f"The gradient of `{names[0]}` was cleared between backward and step, before {every}:"
            " the optimizer had nothing to use."
        ),
        also=tuple(names[1:]),
        evidence=(
            Evidence(
                "made", history.site_of(history.events[backward]), "backward fills the gradient"
            ),
            Evidence("cleared", site, "it is cleared here"),
            Evidence("step", stepped, "the optimizer steps without it"),
        ),
        fix=Fix(f"Clear gradients before backward, not at {place(site)}."),
        count=count,
        tensors=tuple(tensors),
    )


VERDICT = Verdict(
    slug="gradient-discarded",
    severity="warning",
    summary="a gradient was there and was cleared, here, before the optimizer used it",
    page=PAGE,
    check=check,
    damage="lost training",
    examples=(
        Example(
            "zero_grad between backward and step",
            """import torch

w = torch.ones(3, requires_grad=True)
opt = torch.optim.SGD([w], lr=0.1)
for _ in range(3):
    w.pow(2).sum().backward()
    opt.zero_grad()
    opt.step()
""",
            (Expected("gradient-discarded", "w", 7),),
        ),
        Example(
            "zero_grad where it belongs",
            """import torch

w = torch.ones(3, requires_grad=True)
opt = torch.optim.SGD([w], lr=0.1)
for _ in range(3):
    opt.zero_grad()
    w.pow(2).sum().backward()
    opt.step()
""",
        ),
    ),
)
