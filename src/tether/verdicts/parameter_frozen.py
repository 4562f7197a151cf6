"""`parameter-frozen`: asked to train, but it does not require grad."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from tether.analysis.history import History, common_module
from tether.analysis.surroundings import Surroundings
from tether.analysis.ungraded import missing
from tether.analysis.wording import listed, place
from tether.facts import UNKNOWN
from tether.finding import Evidence, Finding, Fix
from tether.verdicts.base import Example, Expected, Verdict

PAGE = """
# parameter-frozen

## What it says
As a warning: an optimizer holds this tensor, but it never required grad, and no line says that it
should not. As a note: parameters were frozen at this line, or made frozen, and an optimizer holds
them all the same; or nothing trains them. The modules are listed, so that you see whether the line
froze what you meant.

## Why it matters
A frozen parameter never changes, and neither backward nor the optimizer says so. A name prefix such
as `layer1` freezes `layer10` as well.

## Known problems
Freezing is often meant: the note is there to be read once, then ignored.

## Example
```python
for name, p in model.named_parameters():
    if name.startswith("layer1"):
        p.requires_grad_(False)
```

## Use instead
Compare whole module names, or call `model.layer1.requires_grad_(False)`.

## Fix safety
It changes what is trained: never applied by itself.
"""

_SWITCHES = ("requires_grad_", "requires_grad.__set__")


def check(history: History) -> Iterator[Finding]:
    """Give a warning for what an optimizer holds, and a note for each line that froze the rest."""
    frozen_at = _frozen_at(history)
    held = [tensor for tensor in missing(history).frozen if tensor in history.held]
    by_site: dict[int, list[int]] = defaultdict(list)
    for tensor in held:
        position = frozen_at.get(tensor, UNKNOWN)
        by_site[history.events[position].site if position != UNKNOWN else UNKNOWN].append(tensor)
    for site, tensors in by_site.items():
        yield _warning(history, site, tensors)
    yield from _notes(history, frozen_at)


def _frozen_at(history: History) -> dict[int, int]:
    """Return for each tensor that ended frozen the position of the call that froze it last."""
    frozen: dict[int, int] = {}
    for position, event in enumerate(history.events):
        if event.operation in _SWITCHES and event.reads:
            tensor = event.reads[0].tensor
            if not event.on:
                frozen[tensor] = position
            else:
                frozen.pop(tensor, None)
    return frozen


def _warning(history: History, site_number: int, tensors: list[int]) -> Finding:
    names = [history.name_of(tensor) for tensor in tensors]
    holder = next(one for one in history.trace.optimizers if tensors[0] in one.tensors)
    optimizer = history.site(holder.site)
    site = history.site(site_number) if site_number != UNKNOWN else optimizer
    facts = [Evidence("held", optimizer, f"{holder.kind} is asked to train it here")]
    if site_number != UNKNOWN:
        facts.insert(0, Evidence("frozen", site, "requires_grad is switched off here"))
        facts += history.get(Surroundings).calls(site)
    elif history.made_at(tensors[0]) >= 0:
        made = history.site_of(history.events[history.made_at(tensors[0])])
        facts.insert(0, Evidence("made", made, "it is made here, and does not require grad"))
    since = f" since {place(site)}" if site_number != UNKNOWN else " and never did"
    meant = site_number != UNKNOWN or all(_made_frozen(history, tensor) for tensor in tensors)
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return Finding(
        slug="parameter-frozen",
        severity="note" if meant else "warning",
        subject=names[0],
        site=site,
        operation="requires_grad_",
        message=f"{holder.kind} holds `{names[0]}`{more}, which does not require grad{since}.",
        also=tuple(names[1:]),
        evidence=tuple(facts),
        fix=Fix(
            f"Nothing, if it is meant to stay as it is: {holder.kind} passes over it."
            if meant
            else "Let it train with requires_grad_(True), or leave it out of the optimizer at"
            f" {place(optimizer)}."
        ),
        tensors=tuple(tensors),
    )


def _made_frozen(history: History, tensor: int) -> bool:
    """Whether a parameter was made so: a Parameter requires grad unless its call says otherwise."""
    life = history.trace.tensors.get(tensor)
    return life is not None and life.kind == "Parameter"


def _notes(history: History, frozen_at: dict[int, int]) -> Iterator[Finding]:
    roots = {history.name_of(tensor).split(".")[0] for tensor in history.held}
    by_site: dict[int, list[int]] = defaultdict(list)
    for tensor, position in frozen_at.items():
        fact = history.facts_of_name(tensor)
        kind = history.trace.tensors.get(tensor)
        known = (
            fact is not None
            and fact.module
            and fact.name.split(".")[0] in roots
            and (kind is None or kind.kind not in ("Tensor", "Buffer"))  # a buffer never trains
        )
        if known and tensor not in history.held and _by_the_user(history, position):
            by_site[history.events[position].site].append(tensor)
    for number, tensors in by_site.items():
        site = history.site(number)
        names = [history.name_of(tensor) for tensor in tensors]
        modules = list(dict.fromkeys(name.rpartition(".")[0] for name in names))
        root = common_module(modules)
        cut = len(root) + 1 if root and len(modules) > 1 else 0
        shown = [module[cut:] or module for module in modules]
        yield Finding(
            slug="parameter-frozen",
            severity="note",
            subject=names[0],
            site=site,
            operation="requires_grad_",
            message=(
                f"{len(names)} parameters of `{root.split('.')[0] or names[0]}` were frozen here"
                f" and nothing trains them: {listed(shown, 6)}."
            ),
            also=tuple(names[1:]),
            evidence=(Evidence("frozen", site, f"frozen here: {listed(shown, 12)}"),),
            fix=Fix("Nothing, if these are the modules you meant to freeze."),
            tensors=tuple(tensors),
        )


def _by_the_user(history: History, position: int) -> bool:
    """Whether the user's own line freezes, not a library that was asked for something else."""
    event = history.events[position]
    written = history.site_of(event).expression
    return history.site(event.inner).user or "requires_grad_" in written


VERDICT = Verdict(
    slug="parameter-frozen",
    severity="warning",
    summary="an optimizer holds a parameter that does not require grad, since here",
    page=PAGE,
    check=check,
    damage="lost training",
    examples=(
        Example(
            "Frozen, then given to the optimizer",
            """import torch
from torch import nn

net = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 1))
net[0].requires_grad_(False)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(2):
    opt.zero_grad()
    net(torch.ones(2, 3)).sum().backward()
    opt.step()
""",
            (Expected("parameter-frozen", "net.0.weight", 5),),
        ),
        Example(
            "Nothing is frozen",
            """import torch

w = torch.ones(3, requires_grad=True)
opt = torch.optim.SGD([w], lr=0.1)
w.sum().backward()
opt.step()
""",
        ),
    ),
)
