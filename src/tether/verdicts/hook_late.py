"""`hook-late`: hooks made in a loop all read the loop's variable, which has moved on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from tether.analysis.history import History
from tether.facts import UNKNOWN, Hooked, SiteId
from tether.finding import At, Claim, Repair, Step, say
from tether.verdicts.base import Example, Expected, Verdict

PAGE = """
# hook-late

## What it says
A line registered several hooks, and their function reads a variable that was given other values
between the registrations. A function reads a variable when it runs, so all of these hooks see what
the variable held last.

## Why it matters
Each layer was to get its own factor, name or index, and all get that of the last one. Nothing
raises.

## Known problems
A variable of the program's top level (no function around the loop) is not followed, nor are fewer
than three hooks.

## Example
```python
for name, layer in model.named_children():
    layer.register_forward_hook(lambda module, given, result: keep(name, result))
```

## Use instead
```python
for name, layer in model.named_children():
    layer.register_forward_hook(lambda module, given, result, name=name: keep(name, result))
```

## Fix safety
It changes what the hooks do: never applied by itself.
"""


def check(history: History) -> Iterator[Claim]:
    """Give one claim for each line."""
    lines: dict[SiteId, list[Hooked]] = defaultdict(list)
    for fact in history.trace.hooks:
        if fact.variable:
            lines[fact.site].append(fact)
    for site, facts in lines.items():
        yield _claim(site, facts)


def _claim(site: SiteId, facts: list[Hooked]) -> Claim:
    variable = facts[0].variable
    return Claim(
        tensors=tuple(one.tensor for one in facts if one.tensor != UNKNOWN),
        subject=variable,
        cause=site,
        site=site,
        operation="register_hook",
        message=say(
            f"The {{n}} hooks that {{line}} registered read one variable, `{variable}`, which was"
            " given other values between: each hook sees the last one.",
            n=sum(len(one.at) for one in facts), line=At(site),
        ),
        story=(Step("made", site, say("each hook is registered here, with the same variable")),),
        repair=Repair(say(f"Bind the value as the hook is made: a default argument"
                          f" (`{variable}={variable}`), or functools.partial.")),
        count=0,
    )  # fmt: skip


VERDICT = Verdict(
    slug="hook-late",
    severity="warning",
    summary="hooks made in a loop all read the loop's variable, which has moved on",
    page=PAGE,
    check=check,
    damage="wrong result",
    examples=(
        Example(
            "A factor for each layer",
            """import torch

layers = torch.nn.ModuleList(torch.nn.Linear(3, 3) for _ in range(3))

def slow_down(layers):
    for depth, layer in enumerate(layers):
        factor = 0.5 ** depth
        layer.weight.register_hook(lambda gradient: gradient * factor)

slow_down(layers)
x = torch.ones(2, 3)
for layer in layers:
    x = layer(x)
x.sum().backward()
""",
            (Expected("hook-late", "factor", 8),),
        ),
        Example(
            "Bound as they are made, and a count that they share",
            """import torch

layers = torch.nn.ModuleList(torch.nn.Linear(3, 3) for _ in range(3))

def slow_down(layers):
    calls = 0

    def counted(gradient):
        nonlocal calls
        calls += 1

    for depth, layer in enumerate(layers):
        layer.weight.register_hook(lambda gradient, factor=0.5 ** depth: gradient * factor)
        layer.bias.register_hook(counted)

slow_down(layers)
x = torch.ones(2, 3)
for layer in layers:
    x = layer(x)
x.sum().backward()
""",
        ),
    ),
)
