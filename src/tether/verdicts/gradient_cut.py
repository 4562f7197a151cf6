"""`gradient-cut`: every path from a parameter to the loss is cut."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from tether.analysis.cut_words import Cut, described
from tether.analysis.gradient_paths import Paths
from tether.analysis.history import History
from tether.analysis.surroundings import Surroundings
from tether.analysis.ungraded import in_how_many, missing, without_backward
from tether.analysis.wording import and_more, listed, place
from tether.facts import GRAD_ON
from tether.finding import Evidence, Finding, Fix
from tether.verdicts.base import Example, Expected, Verdict
from tether.verdicts.parameter_stale import stale, unheld

PAGE = """
# gradient-cut

## What it says
This tensor should train, its value reaches the loss, and no gradient can come back: every path
from it to the loss is cut, at the line named. Nothing deleted its gradient; the path was never
built.

## Why it matters
The optimizer skips a parameter whose `.grad` is None without a word. The loss may still go down,
since the rest of the model trains.

## Known problems
Values that pass through Python numbers or new NumPy arrays are followed through the source text;
such a finding says "likely" and lists what it assumes. A tensor that no optimizer holds counts only
if the program reads its `.grad`.

## Example
```python
features = encoder(x).detach()   # encoder never trains
loss = head(features).sum()
```

## Use instead
```python
features = encoder(x)
```
Where the cut is meant (a fixed feature extractor), leave its parameters out of the optimizer.

## Fix safety
Removing a cut changes what is trained: never applied by itself.
"""


def check(history: History) -> Iterator[Finding]:
    """Give one finding for each place that cuts, with all tensors it cuts off."""
    found = missing(history)
    groups: dict[tuple[str, int, int, str], list[int]] = defaultdict(list)
    told: dict[tuple[str, int, int, str], tuple[Paths, Cut, list[Cut]]] = {}
    elsewhere = {tensor for one in stale(history) for tensor in one.tensors}
    # Values that went into new parameters: what is wrong is that the optimizer lacks those.
    remade = {one.site for one in unheld(history)}
    for tensor in [*found.none, *found.stopped]:
        if tensor in elsewhere or without_backward(history, tensor):
            continue
        story = _story(history, found.reaching(tensor), tensor)
        if story is None or (story[1].site in remade and tensor in history.held):
            continue
        cut = story[1]
        key = (cut.site.file, cut.site.line, cut.site.column, cut.operation)
        groups[key].append(tensor)
        told.setdefault(key, story)
    for key, tensors in groups.items():
        yield _finding(history, tensors, *told[key])


def _story(
    history: History, reaching: list[Paths], tensor: int
) -> tuple[Paths, Cut, list[Cut]] | None:
    """Find the cut to tell, and those that remain, on the first path that has any.

    It is the one nearest to the tensor among those that every way passes: whoever opens it, and
    what every way passes after it, has the gradient, though other ways stay cut (an action that is
    sampled, beside its log-probability). Where each way has a cut of its own, all are to be opened.
    """
    for paths in reaching:
        bit = 1 << paths.tensors.index(tensor)
        if paths.live & bit:
            continue
        positions = paths.of(paths.cuts, tensor)
        if positions:
            later = [at for at in paths.of(paths.later, tensor) if at > positions[0]]
            cuts = sorted({*positions, *later})
            always = set(paths.of(paths.always, tensor))
            cuts = [at for at in cuts if at in always] or cuts
            positions, rest = cuts[:1], cuts[1:]
            return paths, described(history, positions[0]), _distinct(history, rest)
    if reaching and all(one.live & 1 << one.tensors.index(tensor) for one in reaching):
        # The graph was whole, and yet no gradient came: a custom backward kept it.
        for paths in reaching:
            functions = paths.of(paths.functions, tensor)
            if functions:
                return paths, described(history, functions[-1]), []
    return None


def _distinct(history: History, positions: list[int]) -> list[Cut]:
    cuts: dict[tuple[str, int, str], Cut] = {}
    for position in positions[:50]:
        cut = described(history, position)
        cuts.setdefault((cut.site.file, cut.site.line, cut.operation), cut)
    return list(cuts.values())


def _finding(
    history: History, tensors: list[int], paths: Paths, cut: Cut, others: list[Cut]
) -> Finding:
    names = [history.name_of(tensor) for tensor in tensors]
    aliases = [name for tensor in tensors for name in history.names_of(tensor)[1:]]
    bit = 1 << paths.tensors.index(tensors[0])
    likely = bool(paths.likely & bit) or bool(paths.live & bit)
    event = history.events[paths.backward]
    loss = history.site_of(event)
    facts = list(cut.evidence)
    shown = {(one.site.file, one.site.line) for one in cut.evidence}
    facts += [
        Evidence("also cut", other.site, f"and again: {other.what}")
        for other in others
        if (other.site.file, other.site.line) not in shown
    ]
    if cut.at >= 0 and history.events[cut.at].grad_mode != GRAD_ON:
        facts += history.get(Surroundings).entering(cut.at, paths.backward)
    facts.append(Evidence("loss", loss, "backward starts from the loss here"))
    whole = and_more(names)
    when = in_how_many(history, tensors[0])
    if paths.live & bit:
        message = f"{whole} got no gradient {when}. Most likely {cut.what}."
    elif event.raised:
        message = f"backward failed, since the loss is not connected to {whole}: {cut.what}."
    else:
        path = "The path" if len(names) == 1 else "Every path"
        sure = "is most likely cut" if likely else "is cut"
        message = f"{whole} got no gradient {when}. {path} to the loss {sure} here: {cut.what}."
    fix = cut.fix
    elsewhere = [one for one in others if (one.site.file, one.site.line) not in shown]
    if elsewhere:
        fix += f"; then also at {listed([place(one.site) for one in elsewhere])}"
    assumes = ("the value was followed through Python numbers or arrays in the source",)
    return Finding(
        slug="gradient-cut",
        severity="warning",
        subject=names[0],
        site=cut.site,
        operation=cut.operation,
        message=message,
        also=tuple(dict.fromkeys([*names[1:], *aliases])),
        evidence=tuple(facts),
        count=history.times(cut.at) if cut.at >= 0 else 1,
        assumes=assumes if likely else (),
        fix=Fix(_capital(fix) + "."),
        tensors=tuple(tensors),
    )


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


VERDICT = Verdict(
    slug="gradient-cut",
    severity="warning",
    summary="a parameter got no gradient: every path from it to the loss is cut, here",
    page=PAGE,
    check=check,
    damage="lost training",
    examples=(
        Example(
            "A detach between two layers",
            """import torch
from torch import nn

first, second = nn.Linear(3, 3, bias=False), nn.Linear(3, 1)
opt = torch.optim.SGD([*first.parameters(), *second.parameters()], lr=0.1)
for _ in range(2):
    opt.zero_grad()
    loss = second(first(torch.randn(4, 3)).detach()).mean()
    loss.backward()
    opt.step()
""",
            (Expected("gradient-cut", "first.weight", 8),),
        ),
        Example(
            "A detach beside a path that is open",
            """import torch

w = torch.ones(3, requires_grad=True)
opt = torch.optim.SGD([w], lr=0.1)
loss = (w * w.detach()).sum()
loss.backward()
opt.step()
""",
        ),
        Example(
            "Computed under no_grad",
            """import torch

w = torch.ones(3, requires_grad=True)
b = torch.zeros(1, requires_grad=True)
opt = torch.optim.SGD([w, b], lr=0.1)
with torch.no_grad():
    scaled = w * 2
loss = (scaled + b).sum()
loss.backward()
opt.step()
""",
            (Expected("gradient-cut", "w", 6),),
        ),
        Example(
            "Through a Python number",
            """import torch

w = torch.tensor(2.0, requires_grad=True)
b = torch.zeros(1, requires_grad=True)
opt = torch.optim.SGD([w, b], lr=0.1)
scale = w.item()
loss = (torch.tensor(scale) * 3 + b).sum()
loss.backward()
opt.step()
""",
            (Expected("gradient-cut", "w", 6),),
        ),
    ),
)
