"""`gradient-unused`: a parameter that an optimizer holds and no loss ever saw."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from tether.analysis.history import History
from tether.analysis.surroundings import Surroundings
from tether.analysis.ungraded import in_how_many, missing, steps_of, without_backward
from tether.analysis.wording import place
from tether.facts import UNKNOWN, Site
from tether.finding import Evidence, Finding, Fix
from tether.operations.table import operation
from tether.verdicts.base import Example, Expected, Verdict
from tether.verdicts.parameter_stale import stale

PAGE = """
# gradient-unused

## What it says
An optimizer holds this parameter, and its value never took part in the loss: not in any of the
steps recorded. One finding speaks for a whole module.

## Why it matters
It never trains. Often a layer that was made and then forgotten in `forward`, an output that the
loss ignores, or a backward pass that never ran.

## Known problems
Many models have such parameters by design: a pooler that a head does not use, dropped layers,
experts that were not chosen in these steps. A module of a library that was never called is
therefore only a note.

## Example
```python
self.norm = nn.LayerNorm(8)      # never used in forward
```

## Use instead
Use the module, or do not make it; to keep it without training it, leave it out of the optimizer.

## Fix safety
It changes what is trained: never applied by itself.
"""


def check(history: History) -> Iterator[Finding]:
    """Give one finding for each module whose parameters no loss saw."""
    found = missing(history)
    yield from _no_backward(history)
    if not history.backwards:
        return
    elsewhere = {tensor for one in stale(history) for tensor in one.tensors}
    groups: dict[str, list[int]] = defaultdict(list)
    for tensor in found.none:
        if without_backward(history, tensor) or tensor in elsewhere or _left(history, tensor):
            continue
        if not found.reaching(tensor) and _had_a_chance(history, tensor):
            fact = history.facts_of_name(tensor)
            groups[fact.module if fact and fact.module else history.name_of(tensor)].append(tensor)
    for module, tensors in groups.items():
        yield _finding(history, module, tensors)


def _left(history: History, tensor: int) -> bool:
    """Whether another tensor took the place of one that the optimizer still holds, and trains.

    So it is where weights are tied after the optimizer was made: what it steps in vain is dead.
    """
    bearers: dict[str, int] = {}
    for fact in history.trace.names:
        bearers[fact.name] = fact.tensor
    names = history.names_of(tensor)
    now = {bearers[name] for name in names}
    return bool(now) and tensor not in now and now <= history.held & history.had_gradient


def _had_a_chance(history: History, tensor: int) -> bool:
    """Whether the absence of a gradient says anything: a step that held the tensor has finished.

    A program that died on its way there, or whose steps raised, says nothing of what it would have
    used. Where the program itself asked for the gradient after a backward pass, it expected one.
    """
    return steps_of(history, tensor) > 0 or tensor in history.asked


def _finding(history: History, module: str, tensors: list[int]) -> Finding:
    names = [history.name_of(tensor) for tensor in tensors]
    fact = history.facts_of_name(tensors[0])
    used = any(tensor in _used(history) for tensor in tensors)
    by_design = fact is not None and not fact.owner_user
    site, made = _places(history, tensors[0])
    text = "the optimizer is made here and holds it"
    facts = [Evidence("made", made, "it is made here")] if made.line else []
    facts.append(Evidence("held", site, text))
    where = f"`{module}`" if len(tensors) > 1 else f"`{names[0]}`"
    how = "its values were used, but not for the loss" if used else _nothing(history)
    backward = history.events[history.backwards[-1]]
    facts.append(Evidence("loss", history.site_of(backward), "this loss does not depend on it"))
    around = history.get(Surroundings)
    for used_at in _uses(history, tensors):
        facts.append(Evidence("read", used_at, "its values are used here"))
        facts += around.deciding(used_at)
    if not used and fact is not None:
        facts += around.mentioned(made, module)
    facts += around.loss(history.backwards[-1])
    return Finding(
        slug="gradient-unused",
        severity="note" if by_design else "warning",
        subject=names[0],
        site=made if made.line else site,
        operation=fact.owner if fact else "",
        message=f"{where} got no gradient {in_how_many(history, tensors[0])}: {how}.",
        also=tuple(names[1:]),
        evidence=tuple(facts),
        fix=Fix(
            f"Use {where} on the way to the loss, or leave it out of the optimizer ({place(site)})."
        ),
        tensors=tuple(tensors),
    )


def _uses(history: History, tensors: list[int]) -> list[Site]:
    """Return the first few lines that read one of some tensors outside the optimizer."""
    wanted = set(tensors)
    first = min((history.position(one.at) for one in history.trace.optimizers), default=0)
    numbers = dict.fromkeys(
        event.site
        for at, event in enumerate(history.events)
        if at >= first and history.flow.carries[at] and event.results
        if any(one.tensor in wanted for one in event.reads)
    )
    return [history.site(number) for number in numbers if number >= 0][:2]


def _nothing(history: History) -> str:
    kept = "in the calls that were kept" if history.trace.dropped else "ever"
    return f"nothing {kept} used it"


def _used(history: History) -> set[int]:
    """Return the tensors whose values went into something else, once an optimizer held them.

    To be initialised, or sent to the other ranks as it is, is no use.
    """
    if "used values" not in history.memo:
        first = min((history.position(one.at) for one in history.trace.optimizers), default=0)
        history.memo["used values"] = {
            one.tensor
            for at, event in enumerate(history.events)
            if at >= first and history.flow.carries[at]
            if event.results or operation(event.operation).leaves
            for one in event.reads
            if all(one.tensor != made.tensor for made in (*event.results, *event.writes))
        }
    found: set[int] = history.memo["used values"]
    return found


def _places(history: History, tensor: int) -> tuple[Site, Site]:
    """Return where the optimizer that holds a tensor was made, and where the tensor was."""
    holder = next((one for one in history.trace.optimizers if tensor in one.tensors), None)
    position = history.made_at(tensor)
    made = history.site_of(history.events[position]) if position != UNKNOWN else history.site(-1)
    return history.site(holder.site if holder else -1), made


def _no_backward(history: History) -> Iterator[Finding]:
    groups: dict[int, list[int]] = defaultdict(list)
    for tensor in history.without_gradient:
        if without_backward(history, tensor):
            first = next(fact for fact in history.steps if tensor in fact.status)
            groups[first.site].append(tensor)
    for number, tensors in groups.items():
        names = [history.name_of(tensor) for tensor in tensors]
        site = history.site(number)
        yield Finding(
            slug="gradient-unused",
            severity="warning",
            subject=names[0],
            site=site,
            operation="step",
            message=(
                f"`{names[0]}` got no gradient {in_how_many(history, tensors[0])}:"
                " no backward pass ran."
            ),
            also=tuple(names[1:]),
            evidence=(
                Evidence("step", site, "the optimizer steps without any gradient"),
                *_closure(history, number),
            ),
            fix=Fix("Call loss.backward() before the optimizer steps."),
            tensors=tuple(tensors),
        )


def _closure(history: History, step: int) -> Iterator[Evidence]:
    """Yield what the closure of a step computed last: where its backward pass is missing."""
    for number, span in enumerate(history.trace.spans):
        above = history.trace.spans[span.parent] if span.parent >= 0 else None
        if span.kind == "closure" and above is not None and above.site == step:
            inside = [one for one in history.events if one.span == number and one.site >= 0]
            if inside:
                place = history.site(inside[-1].site)
                yield Evidence("loss", place, "the closure computes this and calls no backward")
            return


VERDICT = Verdict(
    slug="gradient-unused",
    severity="warning",
    summary="a parameter never took part in the loss, in none of the steps",
    page=PAGE,
    check=check,
    damage="lost training",
    examples=(
        Example(
            "A layer that forward forgot",
            """import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.used = nn.Linear(3, 1)
        self.forgotten = nn.Linear(3, 3, bias=False)

    def forward(self, x):
        return self.used(x)


net = Net()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(2):
    opt.zero_grad()
    net(torch.ones(2, 3)).sum().backward()
    opt.step()
""",
            (Expected("gradient-unused", "net.forgotten.weight", 9),),
        ),
        Example(
            "Everything is used",
            """import torch

w = torch.ones(3, requires_grad=True)
opt = torch.optim.SGD([w], lr=0.1)
w.sum().backward()
opt.step()
""",
        ),
    ),
)
