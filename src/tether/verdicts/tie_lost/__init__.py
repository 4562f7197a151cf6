"""`tie-lost`: two names that were one memory are two since here."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import zip_longest
from typing import NamedTuple

from tether.analysis.gradients.graph import Graph
from tether.analysis.history import History
from tether.facts import UNKNOWN, Moment, Name, Operand, TensorId
from tether.finding import At, Claim, Repair, Severity, Step, say
from tether.source.names import root_of, steps_in
from tether.verdicts.base import Example, Expected, Verdict
from tether.verdicts.tie_lost.converted import converted_apart
from tether.verdicts.tie_lost.for_a_while import Place, parted_for_a_while, put_back
from tether.verdicts.tie_lost.gradients import gradients_apart
from tether.verdicts.tie_lost.outdated import outdated
from tether.verdicts.tie_lost.parted import copied_apart, left_behind, read_after
from tether.verdicts.tie_lost.replaced import replaced_apart

PAGE = """
# tie-lost

## What it says
Two parameters of one model were one tensor, or lay on one memory, and stand for two separate ones
later, while both go on being used. So do copies of one tied parameter that stand in the same two
places of another model and are trained apart, and parameters that were windows of a flat tensor
until a conversion gave them memory of their own, while the flat tensor goes on being written. So
do two parameters that `.data` put on one memory until a conversion (a note), and a buffer that was
converted or is replaced, where another place goes on with the tensor that it was. So does a tied
parameter one of whose places is given another tensor for a while, and calls in between that read
both (a note where the line replaces that one parameter alone). So does a tied parameter whose
module is replaced by another one that was given its values (a note where it has its shape alone).

So does memory of the program's own that `.grad` was given: a slice, row or bucket of a buffer, one
tensor of a list. A call lets go of it (`zero_grad()`, `.grad = None`, `del x.grad`, a conversion),
backward passes make new gradients elsewhere, and the buffer is read on. That is a warning where no
pass ever wrote the buffer, or where nothing uses the new gradients. It is a note after one pass
alone, where an optimizer or another call uses them, and where `.grad` is given the buffer again.

## Why it matters
Tied weights (an embedding and its output layer) drift apart without a word; the model has more
parameters than it should, and a checkpoint of it does not load as it was. A step that reads memory
that gradients have left goes by zeros, or by one old gradient again and again.

## Known problems
Names are looked for at the first steps, at the end, and when a line first replaces a parameter or
a module: a tie that came and went between is not seen, but for what is assigned to a place of a
module, of which each line's first four times are known. Unties that the program means are reported
as well: as a note where one of the two was frozen since, and the other alone goes on being trained.
A buffer that gradients left is not reported where other values came into it since, nor where the
line that reads it did not read it before `.grad` let go of it: an old gradient may be kept.

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


_When = tuple[Moment, float]
"""A moment, and how many names had been found: they tell what came first at one moment."""


class _Shows(NamedTuple):
    """A place of a module while it showed one tensor."""

    names: dict[str, str]  # by the variable that each begins with, the best first
    key: Place
    shown: Operand
    since: _When
    until: _When  # when it was first seen with another one; `_NEVER`: it was not
    last: Operand  # what it shows at last


class _Came(NamedTuple):
    """A tensor that a place was found with, or given."""

    by: _When
    not_before: _When  # when the tensor before it may have gone
    tensor: TensorId


_NEVER = Moment(1 << 62), 0.0


def check(history: History) -> Iterator[Claim]:
    """Give one claim for each pair of names that parted."""
    together: dict[tuple[object, ...], list[_Shows]] = defaultdict(list)
    for one in _places(history):
        shown = one.shown
        together[shown.storage, shown.offset, shown.shape].append(one)
    for one, *others in together.values():
        for other in others:
            root = next((name for name in one.names if name in other.names), None)
            new = UNKNOWN if root is None else _parted(history, one, other)
            if root is None or new == UNKNOWN:
                continue
            names = one.names[root], other.names[root]
            back = _was_put_back(history, one) or _was_put_back(history, other)
            if not back and not _of_one_module(history, one, names):
                meant = _was_frozen(one) != _was_frozen(other)
                yield _claim(history, (one, other), names, new, "note" if meant else None)
    yield from copied_apart(history)
    yield from left_behind(history)
    yield from converted_apart(history)
    yield from outdated(history)
    yield from parted_for_a_while(history)
    yield from replaced_apart(history)
    yield from gradients_apart(history)


def _places(history: History) -> Iterator[_Shows]:
    """Yield the places of modules in which memory was seen, once for each tensor there.

    A place is an attribute of one object: ``self.weight`` is another one in each object's method.
    """
    places, named = _given(history), defaultdict[Place, list[tuple[int, Name]]](list)
    for number, fact in sorted(enumerate(history.trace.names), key=lambda one: one[1].at):
        if fact.module:
            whose = fact.module if fact.holder == UNKNOWN else int(fact.holder)
            place = whose, steps_in(fact.name)[-1].removeprefix(".")
            places[place].append(_Came((fact.at, number), (fact.at, UNKNOWN), fact.tensor))
            named[place].append((number, fact))
    best = {
        tuple(_by_root(history, kept).items()): place
        for place, facts in named.items()
        if (kept := _left_to(history, facts, places[place]))
    }
    for names, place in best.items():
        came = _each_once(places[place])
        last = history.operand_of(came[-1].tensor)
        for one, then in zip_longest(came, came[1:]):
            shown = _first_seen(history, one.tensor)
            if shown is not None and last is not None and shown.storage != UNKNOWN:
                until = _NEVER if then is None else then.not_before
                yield _Shows(dict(names), place, shown, one.by, until, last)


def _left_to(history: History, names: list[tuple[int, Name]], came: list[_Came]) -> list[Name]:
    """Return the names of a place but for those that its module lost to the one replacing it."""
    shown = {one.tensor for one in came}
    lost = [one for one in history.trace.reassigned if "." in one.name and one.old in shown]
    return [
        fact
        for number, fact in names
        if not any(number < one.named and fact.name.endswith(f".{one.name}") for one in lost)
    ]


def _given(history: History) -> dict[Place, list[_Came]]:
    """Return which parameters places of modules were given in place of others, and when."""
    places: dict[Place, list[_Came]] = defaultdict(list)
    for fact in history.trace.reassigned:
        when = fact.at, fact.named - 0.5
        if all(map(history.is_parameter, (fact.old, fact.new))):
            came = (_Came(when, when, one) for one in (fact.old, fact.new))
            places[fact.holder, fact.name].extend(came)
    return places


def _each_once(came: list[_Came]) -> list[_Came]:
    """Return the tensors of a place in the order in which they came, each as it came first."""
    first: dict[TensorId, _Came] = {}
    for one in sorted(came, key=lambda each: each.by):
        first.setdefault(one.tensor, one)
    return list(first.values())


def _by_root(history: History, facts: list[Name]) -> dict[str, str]:
    """Return the best of the names of a place for each variable that names of it begin with."""
    own = dict.fromkeys(fact.name for fact in reversed(facts))
    ranked = [name for name in history.names_of(facts[-1].tensor) if name in own]
    best: dict[str, str] = {}
    for name in (*ranked, *own):
        best.setdefault(root_of(name), name)
    return best


def _first_seen(history: History, tensor: int) -> Operand | None:
    first = history.first_seen(tensor)
    if first == UNKNOWN:
        return None
    event = history.events[first]
    operands = (*event.results, *event.reads, *event.writes)
    return next((one for one in operands if one.tensor == tensor), None)


def _parted(history: History, *pair: _Shows) -> int:
    """Return the tensor that parted two places, the later one if both show another; or -1."""
    a, b = (place.last for place in pair)
    tied = max(one.since for one in pair)
    if a.storage == b.storage or a.tensor == b.tensor or tied >= min(one.until for one in pair):
        return UNKNOWN
    moved = [one.last.tensor for one in pair if one.last.storage != one.shown.storage]
    new = max(moved, key=history.made_at)
    since = history.made_at(new)
    # Names are looked for as the new one takes its place, which is after the call that made it.
    came = since + 1 >= history.position(tied[0]) >= 0
    return new if came and _go_on(history, since, a, b) else UNKNOWN


def _go_on(history: History, since: int, *tensors: Operand) -> bool:
    """Whether tensors are used apart from one another after a call, to the end."""
    used = (_lives_on(history, one) and read_after(history, one, since) for one in tensors)
    return all(used) and not _follows(history, since, *tensors)


def _follows(history: History, made: int, *tensors: Operand) -> bool:
    """Whether a call computed one tensor from another, anew for each pass: a weight is normed."""
    graph = history.get(Graph)
    if made < 0 or graph.kind(made) is None:
        return False
    return not graph.leaves_behind(made).isdisjoint(one.tensor for one in tensors)


def _was_put_back(history: History, one: _Shows) -> bool:
    """Whether a place was given the tensor again that it had shown: it had another for a while."""
    return put_back(history, one.key, one.shown.tensor, one.last.tensor)


def _was_frozen(one: _Shows) -> bool:
    """Whether a tensor that was to be trained was frozen later: the other alone moves."""
    return one.shown.requires_grad and not one.last.requires_grad


def _of_one_module(history: History, one: _Shows, names: tuple[str, str]) -> bool:
    """Whether both are buffers of one module: a state that begins with the values of another."""
    modules = {name.rpartition(".")[0] for name in names}
    return not history.is_parameter(one.shown.tensor) and len(modules) == 1


def _lives_on(history: History, operand: Operand) -> bool:
    """Whether a tensor was there to the end: one put in a place for a while unties nothing."""
    died = history.trace.tensors[operand.tensor].died
    return died == UNKNOWN or history.position(died) >= len(history.events)


def _tied_at(history: History, places: tuple[_Shows, ...]) -> Iterator[Step]:
    """Yield the line that gave a place the tensor of another; else the one that made it."""
    shown = places[0].shown.tensor
    for fact in history.trace.reassigned:
        if fact.new == shown and (fact.holder, fact.name) in [one.key for one in places]:
            yield Step("shared", fact.site, say("tied here"))
            return
    made = history.made_at(shown)
    if made != UNKNOWN:
        yield Step("shared", history.events[made].site, say("the one memory of both is made here"))


_INSTEAD = {
    "Module._load_from_state_dict": "; load_state_dict without assign=True writes into the tied"
    " tensor and keeps it",
    "Module._apply": "; this call makes a Parameter for each place, so that ties are to be made"
    " after it",
}
"""What to do instead, by the function of PyTorch's that made the tensor."""


def _claim(
    history: History, places: tuple[_Shows, ...], pair: tuple[str, str], new: int,
    severity: Severity | None,
) -> Claim:  # fmt: skip
    made = history.made_at(new)
    event = history.events[made]
    since, names = At(event.site), {"one": pair[0], "other": pair[1]}
    story = [
        *_tied_at(history, places),
        Step("parted", event.site, say("{call} makes a tensor of its own", call=event.operation)),
    ]
    return Claim(
        tensors=(new,),
        cause=made,
        site=event.site,
        operation=event.operation,
        severity=severity,
        subject=pair[1],
        also=(pair[0],),
        message=say(
            "`{one}` and `{other}` were one memory, and are separate since {since} ({call}), while"
            " both go on being used.",
            since=since, call=event.operation, **names,
        ),
        story=tuple(story),
        repair=Repair(
            say("Tie them again after {since}: {other} = {one}{instead}.", since=since,
                instead=_INSTEAD.get(history.site(event.inner).function, ""), **names)
        ),
        count=0,
        calls=(made,),
    )  # fmt: skip


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
