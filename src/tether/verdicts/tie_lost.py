"""`tie-lost`: two names that were one memory are two since here."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from tether.analysis.history import History
from tether.analysis.wording import evidence, place
from tether.facts import UNKNOWN, Name, Operand
from tether.finding import Evidence, Finding, Fix
from tether.source.names import root_of, steps_in
from tether.verdicts.base import Example, Expected, Verdict

PAGE = """
# tie-lost

## What it says
Two parameters of one model were one tensor, or lay on one memory, and stand for two separate ones
later, while both go on being used.

## Why it matters
Tied weights (an embedding and its output layer) drift apart without a word; the model has more
parameters than it should, and a checkpoint of it does not load as it was.

## Known problems
Names are looked for at the first steps and at the end: a tie that came and went between is not
seen. Unties that the program means are reported as well.

## Example
```python
model.head.weight = model.embed.weight
model.load_state_dict(state, assign=True)   # two tensors in `state`: the tie is gone
```

## Use instead
```python
model.load_state_dict(state)                # writes into the tied tensor
```

## Fix safety
What is trained changes: never applied by itself.
"""


def check(history: History) -> Iterator[Finding]:
    """Give each pair of names that parted, the names of one module tree together."""
    groups: dict[int, list[tuple[str, str, int, Operand]]] = defaultdict(list)
    for one, other, since, new in _parted(history):
        groups[history.made_at(new.tensor)].append((one, other, since, new))
    for made, members in groups.items():
        yield _finding(history, made, members)


def _lives(history: History) -> dict[str, list[Name]]:
    """Return for each place of a module, by its best name, the tensors that stood there, in order.

    A place is an attribute of one object: ``self.weight`` is another one in each object's method.
    """
    places: dict[tuple[object, str], list[Name]] = defaultdict(list)
    for fact in sorted(history.trace.names, key=lambda one: one.at):
        if fact.module:
            whose: object = fact.module if fact.holder == UNKNOWN else fact.holder
            places[whose, steps_in(fact.name)[-1]].append(fact)
    return {_best(history, facts): facts for facts in places.values()}


def _best(history: History, facts: list[Name]) -> str:
    """Return the best of the names of a place."""
    own = {fact.name for fact in facts}
    ranked = history.names_of(facts[-1].tensor)
    return next((name for name in ranked if name in own), facts[-1].name)


def _parted(history: History) -> Iterator[tuple[str, str, int, Operand]]:
    lives = _lives(history)
    together: dict[tuple[int, int, tuple[int, ...]], list[str]] = defaultdict(list)
    first: dict[str, Operand] = {}
    for name, facts in lives.items():
        operand = _first_seen(history, facts[0].tensor)
        if operand is not None and operand.storage != UNKNOWN:
            first[name] = operand
            together[operand.storage, operand.offset, operand.shape].append(name)
    for names in together.values():
        for name in names[1:]:
            one, other = names[0], name
            if root_of(one) != root_of(other):
                continue
            last = [_last_seen(history, lives[each][-1].tensor) for each in (one, other)]
            if last[0] is None or last[1] is None:
                continue
            if last[0].storage == last[1].storage or last[0].tensor == last[1].tensor:
                continue
            moved = [
                (each, now)
                for each, now in zip((one, other), last, strict=True)
                if now is not None and now.storage != first[each].storage
            ]
            new = max((now for _, now in moved), key=lambda now: history.made_at(now.tensor))
            since = history.made_at(new.tensor)
            if (
                since != UNKNOWN
                and all(_lives_on(history, each) for each in last)
                and all(_read_after(history, each, since) for each in last)
            ):
                yield one, other, since, new


def _first_seen(history: History, tensor: int) -> Operand | None:
    first = history.first_seen(tensor)
    if first == UNKNOWN:
        return None
    event = history.events[first]
    operands = (*event.results, *event.reads, *event.writes)
    return next((one for one in operands if one.tensor == tensor), None)


def _last_seen(history: History, tensor: int) -> Operand | None:
    return history.operand_of(tensor)


def _lives_on(history: History, operand: Operand | None) -> bool:
    """Whether a tensor was there to the end: one put in a place for a while unties nothing."""
    if operand is None:
        return False
    died = history.trace.tensors[operand.tensor].died
    return died == UNKNOWN or history.position(died) >= len(history.events)


def _read_after(history: History, operand: Operand | None, since: int) -> bool:
    """Whether a call used the tensor after the two had parted."""
    if operand is None:
        return False
    return any(
        at > since
        and history.events[at].operation not in ("step", "zero_grad")
        and any(one.tensor == operand.tensor for one in history.events[at].reads)
        for at in history.on_storage(operand)
    )


def _finding(history: History, made: int, members: list[tuple[str, str, int, Operand]]) -> Finding:
    one, other, _, new = members[0]
    event = history.events[made]
    site = history.site_of(event)
    facts = [evidence(history, "parted", event, f"{event.operation} makes a tensor of its own")]
    tied = _lives(history)[other][0]
    before = history.made_at(tied.tensor)
    if before != UNKNOWN:
        was = history.site_of(history.events[before])
        facts.insert(
            0, Evidence("shared", was, f"`{one}` and `{other}` were one memory, from here")
        )
    return Finding(
        slug="tie-lost",
        severity="warning",
        subject=other,
        site=site,
        operation=event.operation,
        message=(
            f"`{one}` and `{other}` were one memory, and are separate since {place(site)}"
            f" ({event.operation}), while both go on being used."
        ),
        also=tuple(dict.fromkeys([one, *(each[1] for each in members[1:])])),
        evidence=tuple(facts),
        fix=Fix(
            f"Tie them again after {place(site)}: {other} = {one}; load_state_dict without"
            " assign=True writes into the tied tensor and keeps it."
        ),
        tensors=(new.tensor,),
    )


VERDICT = Verdict(
    slug="tie-lost",
    severity="warning",
    summary="two tensors that shared memory there are separate since here (tied weights)",
    page=PAGE,
    check=check,
    past="some",
    examples=(
        Example(
            "Tied weights, and a Parameter made anew",
            """import torch
from torch import nn


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(5, 3)
        self.head = nn.Linear(3, 5, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids):
        return self.head(self.embed(ids))


model = Tied()
ids = torch.tensor([0, 1])
opt = torch.optim.SGD(model.parameters(), lr=0.1)
model(ids).sum().backward()
opt.step()
model.embed.weight = nn.Parameter(torch.randn(5, 3))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
model(ids).sum().backward()
opt.step()
""",
            (Expected("tie-lost", "model.head.weight", 21),),
        ),
        Example(
            "Tied weights that stay tied through load_state_dict",
            """import copy
import torch
from torch import nn

model = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False))
model[1].weight = model[0].weight
opt = torch.optim.SGD(model.parameters(), lr=0.1)
saved = copy.deepcopy(model.state_dict())
for _ in range(2):
    opt.zero_grad()
    model(torch.ones(2, 3)).sum().backward()
    opt.step()
model.load_state_dict(saved)
model(torch.ones(2, 3)).sum().backward()
""",
        ),
    ),
)
