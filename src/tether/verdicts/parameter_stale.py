"""`parameter-stale`: the optimizer and the model do not hold the same tensors."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator

from tether.analysis.history import History, shortened
from tether.analysis.ungraded import in_how_many, missing
from tether.analysis.wording import and_more, place
from tether.facts import UNKNOWN, OptimizerFact, TensorId
from tether.finding import Evidence, Finding, Fix
from tether.verdicts.base import Example, Expected, Verdict

PAGE = """
# parameter-stale

## What it says
The optimizer and the model hold different tensors. Either the optimizer steps a tensor that the
model has replaced, or it steps one model while the loss is computed with its twin (a deepcopy), or
a parameter of the model gets gradients and no optimizer holds it, since it was made after the
optimizer, stands where `parameters()` does not look (a plain Python list), is a plain tensor, or is
made anew at each call.

## Why it matters
Everything runs without an error, and the part concerned never trains.

## Known problems
A parameter that was left out of the optimizer on purpose, though it existed when the optimizer was
made and `parameters()` lists it, is not reported.

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


def check(history: History) -> Iterator[Finding]:
    """Give the replaced tensors, and those that no optimizer ever got."""
    yield from stale(history)
    yield from unheld(history)
    yield from _made_anew(history)


def stale(history: History) -> list[Finding]:
    """Find tensors that an optimizer steps while others train in their place; computed once."""
    if "stale" not in history.memo:
        history.memo["stale"] = [*_replaced(history), *_twins(history)]
    found: list[Finding] = history.memo["stale"]
    return found


def unheld(history: History) -> list[Finding]:
    """Find parameters that get a gradient and that no optimizer holds; computed once."""
    if "unheld" not in history.memo:
        history.memo["unheld"] = list(_unheld(history))
    found: list[Finding] = history.memo["unheld"]
    return found


def _replaced(history: History) -> Iterator[Finding]:
    found = missing(history)
    bearers: dict[str, list[int]] = {}
    for fact in sorted(history.trace.names, key=lambda one: one.at):
        bearers.setdefault(fact.name, []).append(fact.tensor)
    read = {
        one.tensor
        for event in history.events
        for one in event.reads
        if event.operation not in ("step", "zero_grad")
    }
    trained = history.had_gradient
    groups: dict[tuple[int, str], list[tuple[int, int, str]]] = {}
    for tensor in found.none:
        if tensor not in history.held:
            continue
        reaching = bool(found.reaching(tensor))
        for name in history.names_of(tensor):
            others = [one for one in bearers[name] if one != tensor and one in read]
            new = next((one for one in reversed(others) if one not in history.held), None)
            if new is None or (reaching and (len(others) > 1 or new not in trained)):
                continue  # replaced at every step by what is made of it: that is a cut
            position = history.made_at(new)
            number = history.events[position].site if position != UNKNOWN else UNKNOWN
            module = name.rpartition(".")[0] if number == UNKNOWN else ""
            groups.setdefault((number, module), []).append((tensor, new, name))
            break
    for (site_number, _), members in groups.items():
        holder = _holder(history, members[0][0])
        optimizer, site = history.site(holder.site), history.site(site_number)
        names = [name for _, _, name in members]
        yield Finding(
            slug="parameter-stale",
            severity="warning",
            subject=names[0],
            site=site if site.line else optimizer,
            operation="Parameter",
            message=(
                f"{holder.kind} steps the old {and_more(names)}, which got no gradient"
                f" {in_how_many(history, members[0][0])}: the model uses another tensor by that"
                f" name, made at {place(site)}."
            ),
            also=tuple(names[1:]),
            evidence=(
                Evidence("held", optimizer, f"{holder.kind} takes the tensor that was there then"),
                Evidence("made", site, "the tensor that the model uses now is made here"),
            ),
            fix=Fix(f"Make the optimizer ({place(optimizer)}) after {place(site)}."),
            tensors=tuple(tensor for tensor, _, _ in members),
        )


def _twins(history: History) -> Iterator[Finding]:
    """Find models that an optimizer steps while the loss is computed with another of their make.

    The other's parameters have the same names below its own, the same shapes and classes; they get
    the gradients, and no optimizer holds them.
    """
    twins: dict[tuple[str, tuple[int, ...]], list[int]] = defaultdict(list)
    for tensor in sorted(history.had_gradient - history.held):
        make = _make(history, tensor)
        if make is not None:
            twins[make].append(tensor)
    groups: dict[tuple[int, str, str], list[tuple[int, int]]] = defaultdict(list)
    for tensor in missing(history).none:
        make = _make(history, tensor)
        if make is None or tensor not in history.held:
            continue
        root, _, below = history.name_of(tensor).partition(".")
        for twin in twins.get(make, ()):
            other = history.name_of(twin).removesuffix(f".{below}")
            if other not in (root, history.name_of(twin)):
                groups[_holder(history, tensor).site, root, other].append((tensor, twin))
                break
    for (number, _, other), pairs in groups.items():
        yield _twin(history, number, other, pairs)


def _twin(history: History, number: int, other: str, pairs: list[tuple[int, int]]) -> Finding:
    (tensor, twin), site = pairs[0], history.site(number)
    kind = _holder(history, tensor).kind
    names = [history.name_of(one) for one, _ in pairs]
    position = history.made_at(twin)
    made = history.site_of(history.events[position]) if position != UNKNOWN else history.site(-1)
    return Finding(
        slug="parameter-stale",
        severity="warning",
        subject=names[0],
        site=site,
        operation="Parameter",
        message=(
            f"{kind} steps {and_more(names)}, which got no gradient"
            f" {in_how_many(history, tensor)}: the loss is computed with"
            f" `{history.name_of(twin)}`, made at {place(made)}, which no optimizer holds."
        ),
        also=tuple(names[1:]),
        evidence=(
            Evidence("held", site, f"{kind} takes `{names[0]}` here"),
            Evidence("made", made, f"`{history.name_of(twin)}`, which gets the gradient, is made"),
        ),
        fix=Fix(f"Give the optimizer at {place(site)} the parameters of `{other}`."),
        tensors=tuple(one for one, _ in pairs),
    )


def _make(history: History, tensor: int) -> tuple[str, tuple[int, ...]] | None:
    """Return the class of the module that holds a parameter, and its shape."""
    fact, operand = history.facts_of_name(tensor), history.operand_of(tensor)
    if fact is None or operand is None or not fact.module:
        return None
    return fact.owner, operand.shape


def _holder(history: History, tensor: int) -> OptimizerFact:
    return next(one for one in history.trace.optimizers if tensor in one.tensors)


def _unheld(history: History) -> Iterator[Finding]:
    """Find parameters with a gradient that no optimizer holds, though it holds their model's."""
    if not history.steps:
        return
    roots = _roots(history)
    explained = {name for one in stale(history) for name in (one.subject, *one.also)}
    groups: dict[tuple[str, int], list[int]] = {}
    for number in sorted(history.had_gradient - history.held):
        tensor = TensorId(number)
        fact = history.facts_of_name(tensor)
        if fact is None or (fact.listed and not fact.module) or fact.name in explained:
            continue
        if not _is_parameter(history, tensor) and not _looks_trained(history, tensor):
            continue
        holder = roots.get(fact.name.split(".")[0])
        if holder is None:
            continue
        if fact.listed and not _made_after(history, tensor, holder):
            continue
        if not _is_parameter(history, tensor) and _asked_later(history, tensor, holder):
            continue  # switched on while the program runs: it is differentiated by, not trained
        position = history.made_at(tensor)
        if position != UNKNOWN and any(one.requires_grad for one in history.events[position].reads):
            continue  # made of a trained value, each time anew: that is a cut, and told as one
        site = history.events[position].site if position != UNKNOWN else holder.site
        groups.setdefault((holder.kind, site), []).append(tensor)
    for (kind, number), tensors in groups.items():
        yield _left_out(history, kind, number, tensors)


def _roots(history: History) -> dict[str, OptimizerFact]:
    """Return the models that optimizers hold parameters of, by name, with the first optimizer."""
    roots: dict[str, OptimizerFact] = {}
    for optimizer in history.trace.optimizers:
        for tensor in optimizer.tensors:
            fact = history.facts_of_name(tensor)
            if fact is not None and fact.module:
                roots.setdefault(fact.name.split(".")[0], optimizer)
    return roots


def _is_parameter(history: History, tensor: int) -> bool:
    return history.trace.tensors[tensor].kind != "Tensor"


def _looks_trained(history: History, tensor: int) -> bool:
    """Whether a plain tensor of a module is there to be trained, as far as anyone can tell.

    It was made once, and the program does nothing with its gradient: an input that is made anew
    for each step, or one that an attack or a physical loss differentiates by, is none.
    """
    at = history.made_at(tensor)
    return tensor not in history.asked and at != UNKNOWN and history.times(at) == 1


def _made_after(history: History, tensor: int, holder: OptimizerFact) -> bool:
    fact = history.trace.tensors.get(tensor)
    return fact is not None and fact.born >= holder.at


def _asked_later(history: History, tensor: int, holder: OptimizerFact) -> bool:
    """Whether a tensor was first asked to require grad when its model's optimizer was there."""
    at = history.position(holder.at)
    return not any(
        one.tensor == tensor and one.requires_grad
        for event in history.events[: max(at, 0)]
        for one in (*event.reads, *event.results, *event.writes)
    )


# -- made anew at each call ------------------------------------------------------------------------


def _made_anew(history: History) -> Iterator[Finding]:
    """Find parameters that each call makes anew: they get a gradient, and then they are gone."""
    if not history.steps:
        return
    by_site: dict[int, list[int]] = defaultdict(list)
    for tensor in sorted(history.had_gradient - history.held):
        if not _is_parameter(history, tensor) or history.names_of(tensor):
            continue
        at = history.made_at(tensor)
        if at < 0 or tensor in history.asked or _goes_on(history, tensor):
            continue
        event = history.events[at]
        if event.operation == "Parameter" and not _of_trained_values(history, at):
            by_site[event.site].append(tensor)
    for number, tensors in by_site.items():
        if number >= 0 and len(_passes(history, tensors)) > 1:
            yield _anew(history, number, tensors, len(_passes(history, _made_on(history, number))))


def _of_trained_values(history: History, at: int) -> bool:
    """Whether a parameter was made of the values of another: a copy, told as a cut if it is one."""
    return any(
        edge.operand is not None and edge.operand.requires_grad
        for one in (*history.flow.behind(at, most=1000), at)
        for edge in history.flow.edges[one]
    )


def _made_on(history: History, number: int) -> list[int]:
    """Return the parameters made on a line that got a gradient and that no optimizer holds."""
    free = history.had_gradient - history.held
    made = {one: history.made_at(one) for one in free if _is_parameter(history, one)}
    return [one for one, at in made.items() if at >= 0 and history.events[at].site == number]


def _passes(history: History, tensors: list[int]) -> set[int]:
    """Return before which backward passes some tensors were made."""
    return {bisect_left(history.backwards, history.made_at(one)) for one in tensors}


def _goes_on(history: History, tensor: int) -> bool:
    """Whether anything but the next making of such a tensor came after its backward pass."""
    operand, made = history.operand_of(tensor), history.made_at(tensor)
    if operand is None or history.trace.tensors[tensor].died == UNKNOWN:
        return True
    after = next((at for at in history.backwards if at > made), len(history.events))
    return any(
        at > after and any(one.tensor == tensor for one in history.events[at].reads)
        for at in history.on_storage(operand)
    )


def _anew(history: History, number: int, tensors: list[int], passes: int) -> Finding:
    site, step = history.site(number), history.site(history.steps[0].site)
    subject = shortened(site.expression) or history.name_of(tensors[0])
    return Finding(
        slug="parameter-stale",
        severity="warning",
        subject=subject,
        site=site,
        operation="Parameter",
        message=(
            f"`{subject}` makes new parameters before each of {passes} backward passes. They get"
            " gradients, no optimizer holds them, and the next call starts from new ones."
        ),
        evidence=(
            Evidence("made", site, "made anew each time"),
            Evidence("held", step, "the optimizer steps without them"),
        ),
        fix=Fix(
            f"Make it once, before the optimizer: move it from {place(site)} to __init__, as"
            " self.name = ..."
        ),
        count=passes,
        tensors=tuple(tensors),
    )


def _left_out(history: History, kind: str, number: int, tensors: list[int]) -> Finding:
    names = [history.name_of(tensor) for tensor in tensors]
    fact = history.facts_of_name(tensors[0])
    root = names[0].split(".")[0]
    holder = next(
        one
        for one in history.trace.optimizers
        if one.kind == kind
        and any(history.name_of(tensor).split(".")[0] == root for tensor in one.tensors)
    )
    site, optimizer = history.site(number), history.site(holder.site)
    why = f"it was made after the optimizer ({place(optimizer)})"
    fix = f"Make the optimizer after it, or add it with add_param_group ({place(optimizer)})."
    if not _is_parameter(history, tensors[0]):
        why = "parameters() does not list it, since it is a plain tensor or a buffer"
        fix = f"Make it a parameter at {place(site)}: self.name = nn.Parameter(...)."
    elif fact is not None and not fact.listed and fact.module:
        why = "parameters() does not list it: its module stands in a plain container"
        fix = "Keep the modules in nn.ModuleList or nn.ModuleDict."
    elif fact is not None and not fact.listed:
        why = "parameters() does not list it: it stands in a plain container"
        fix = "Keep the parameters in nn.ParameterList or nn.ParameterDict."
    return Finding(
        slug="parameter-stale",
        severity="warning",
        subject=names[0],
        site=site,
        operation="Parameter",
        message=f"`{names[0]}` gets a gradient and no optimizer holds it: {why}.",
        also=tuple(names[1:]),
        evidence=(
            Evidence("made", site, "it is made here"),
            Evidence(
                "held", optimizer, f"{kind} takes the parameters of `{root}` here, without it"
            ),
        ),
        fix=Fix(fix),
        tensors=tuple(tensors),
    )


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
            "Layers in a plain list",
            """import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = [nn.Linear(3, 3, bias=False)]
        self.out = nn.Linear(3, 1)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.out(x)


net = Net()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(2):
    opt.zero_grad()
    net(torch.ones(2, 3)).sum().backward()
    opt.step()
""",
            (Expected("parameter-stale", "net.layers.0.weight", 8),),
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
