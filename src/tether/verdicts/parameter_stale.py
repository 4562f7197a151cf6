"""`parameter-stale`: the optimizer and the model do not hold the same tensors."""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from tether.analysis.gradients.ungraded import in_how_many
from tether.analysis.history import History, shortened
from tether.analysis.surroundings import Surroundings, at_line
from tether.analysis.training.made_anew import LinesAnew, MadeAnew, made_anew
from tether.analysis.training.misplaced import Misplaced, Replaced, Unheld
from tether.facts import UNKNOWN
from tether.finding import At, Claim, Code, Repair, Step, Tensor, say
from tether.source.reading import containers_called
from tether.verdicts.base import Example, Expected, Verdict

MOST_LINES = 3
"""Lines of one constructor that are named."""

PAGE = """
# parameter-stale

## What it says
The optimizer and the model hold different tensors. Either the optimizer steps a tensor that the
model has replaced, or it steps one model while the loss is computed with its twin (a deepcopy), or
a parameter of the model gets gradients and no optimizer holds it, since it was made after the
optimizer, stands where `parameters()` does not look (a plain Python list), is a plain tensor, or is
made anew at each call. Or the optimizer steps what a new parameter was made of, which no optimizer
holds: a weight norm that is taken out of a model in the midst of its training.

## Why it matters
Everything runs without an error, and the part concerned never trains.

## Known problems
A parameter that was left out of the optimizer on purpose, though it existed when the optimizer was
made and `parameters()` lists it, is not reported. Of parameters made anew it is a note where they
change nothing that was computed with what trains, and the model also runs without them or the
program gives them values itself: a random change of the data is made so.

## Example
```python
opt = torch.optim.SGD(model.parameters(), lr=0.1)
model.head = nn.Linear(8, 2)        # the optimizer still holds the old head
```

## Use instead
Make the optimizer when the model is complete; keep modules in `nn.ModuleList` and `nn.ModuleDict`.

## Fix safety
It changes what is trained: never applied by itself.
"""


def check(history: History) -> Iterator[Claim]:
    """Give the replaced tensors, and those that no optimizer ever got."""
    found = history.get(Misplaced)
    for one in found.replaced:
        if history.steps_of(one.tensor):  # an optimizer that never steps may be there for another
            yield _replaced(history, found, one)
    anew = list(made_anew(history))
    lines, left = {one.site for one in anew}, history.get(LinesAnew).left
    for other in found.unheld:
        if left.get(other.tensor) not in lines:
            yield _unheld(history, found, other)
    for made in anew:
        yield _anew(history, made)


def _replaced(history: History, found: Misplaced, one: Replaced) -> Claim:
    holder, made = found.holder(one.tensor), found.made_on(one.new)
    module = one.name.rpartition(".")[0] if made == UNKNOWN else ""
    message = (
        "{kind} steps the old {subject}, which got no gradient {when}: `{name}` is now another"
        " tensor, made at {made}."
    )
    fix, cause = "Make the optimizer ({held}) after {made}.", (made, module)
    if not one.name:
        message = (
            "{kind} steps {subject}, which got no gradient {when}: the model computes with {new}"
            " since, which was made of its values at {made}, and which no optimizer holds."
        )
        fix = "Make the optimizer ({held}) anew after {made}, or change a copy of the model there."
    if one.twin:
        message = (
            "{kind} steps {subject}, which got no gradient {when}: the loss is computed with {new},"
            " made at {made}, which no optimizer holds."
        )
        fix = "Give the optimizer at {held} the parameters of `{twin}`."
        cause = (holder.site, one.twin)
    parts = {"held": At(holder.site), "made": At(made), "kind": holder.kind}
    return Claim(
        tensors=(one.tensor,),
        cause=(bool(one.twin), *cause),
        site=holder.site if one.twin or made == UNKNOWN else made,
        operation="Parameter",
        subject=one.name or history.name_of(one.tensor),
        message=say(
            message,
            when=_when(history, one), name=one.name, new=Tensor(one.new), **parts,
        ),
        story=(
            Step("held", holder.site, say("{kind} takes {subject}", subject=Tensor(one.tensor),
                 **parts)),
            Step("made", made, say("{new}, which the loss is computed with, is made here",
                 new=Tensor(one.new))),
        ),
        repair=Repair(say(fix, twin=one.twin, **parts)),
        count=0,
    )  # fmt: skip


def _when(history: History, one: Replaced) -> str:
    since = one.since
    return f"in the last {since} steps" if since else in_how_many(history, one.tensor)


def _unheld(history: History, found: Misplaced, one: Unheld) -> Claim:
    fact, parts = history.facts_of_name(one.tensor), {"held": At(one.holder.site)}
    made = history.site(one.site)
    place: Hashable = made.definition  # that makes it too late
    why = "made after the optimizer ({held})"
    fix = "Make the optimizer after it, or add it with add_param_group ({held})."
    if not found.is_of_modules(one.tensor):
        why = "parameters() lists neither plain tensors nor buffers"
        fix, place = "Make it a parameter at {made}: self.name = nn.Parameter(...).", one.site
    elif fact is not None and not fact.listed:
        what, kept = ("its module", "modules") if fact.module else ("it", "parameters")
        why = f"parameters() does not list it: {what} stands in a plain container"
        several = "nn.ModuleList or nn.ModuleDict"
        if not fact.module:
            several = "nn.ParameterList or nn.ParameterDict"
        fix, place = f"Keep the {kept} in {several}.", one.site
    container = None if fact is None or fact.listed else _container(history, one, fact.name)
    if container is not None:
        place = container.site
    return Claim(
        tensors=(one.tensor,),
        cause=("unheld", one.holder.kind, place),
        site=one.site,
        operation="Parameter",
        message=say("No optimizer holds {subject}, which got a gradient: {why}.",
                    why=say(why, **parts)),
        story=(
            *((container,) if container else ()),
            Step("made", one.site, say("it is made here")),
            Step("held", one.holder.site, say(
                "{kind} takes the parameters of `{root}` here, without it", kind=one.holder.kind,
                root=history.name_of(one.tensor).split(".")[0])),
        ),
        repair=Repair(say(fix, made=At(one.site), **parts)),
        count=0,
    )  # fmt: skip


def _container(history: History, one: Unheld, name: str) -> Step | None:
    """Return where the text makes the container that a parameter's module stands in."""
    made = history.site(one.site)
    source = history.get(Surroundings).source(made.file)
    for part in name.split(".")[1:]:
        lines = containers_called(source, part.partition("[")[0])
        if len(lines) == 1:
            said = say(f"`{part.partition('[')[0]}` is a plain container, made here")
            return Step("made", at_line(made, lines[0]), said)
    return None


def _anew(history: History, found: MadeAnew) -> Claim:
    meant, make = "", "Make it once"
    if found.deliberate:
        make = "If it is to train, make it once"
        meant = (
            " What they change was not computed with what trains, and {also}: they may well be"
            " meant, as a random change of the data."
        )
    also = say("{line} gives them values of its own", line=At(found.drawn))
    if found.without >= 0:
        also = say("{line} also ran without them", line=At(found.without))
    return Claim(
        tensors=(),
        cause=("anew", found.site),
        site=found.site,
        operation="Parameter",
        subject=shortened(history.site(found.site).expression),
        severity="note" if found.deliberate else None,
        message=say(
            "{made} makes new parameters before each of {passes} backward passes. They get"
            f" gradients, no optimizer holds them, and the next call starts from new ones.{meant}",
            made=Code(found.site), passes=found.passes, also=also,
        ),
        story=(
            Step("made", found.site, say("made anew each time")),
            *(Step("made", one, say("its parameters are made here"))
              for one in found.lines[:MOST_LINES]),
            Step("held", history.steps[0].site, say("the optimizer steps without them")),
        ),
        repair=Repair(
            say(f"{make}, before the optimizer: move it from {{here}} to __init__, as"
                " self.name = ...", here=At(found.site))
        ),
        count=found.passes,
    )  # fmt: skip


VERDICT = Verdict(
    slug="parameter-stale",
    severity="warning",
    summary="the optimizer and the model do not hold the same tensors (made before or after, here)",
    page=PAGE,
    check=check,
    damage="lost training",
    examples=(
        Example(
            "A head replaced after the optimizer was made",
            """import torch
from torch import nn

net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2, bias=False))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
net[1] = nn.Linear(3, 1, bias=False)
for _ in range(2):
    opt.zero_grad()
    net(torch.ones(2, 3)).sum().backward()
    opt.step()
""",
            (Expected("parameter-stale", "net.1.weight", 6),),
        ),
        Example(
            "A backbone left out on purpose",
            """import torch
from torch import nn

net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 1))
opt = torch.optim.SGD(net[1].parameters(), lr=0.1)
for _ in range(2):
    opt.zero_grad()
    net(torch.ones(2, 3)).sum().backward()
    opt.step()
""",
        ),
    ),
)
