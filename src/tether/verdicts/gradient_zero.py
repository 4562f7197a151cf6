"""`gradient-zero`: a gradient was there and exactly zero, by what it came through."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator

from tether.analysis.gradients.graph import Graph, graph_of
from tether.analysis.gradients.second_order import NoSecond, no_second
from tether.analysis.gradients.ungraded import Missing, zero_when
from tether.analysis.gradients.zeroed import Zeroed
from tether.analysis.history import History
from tether.analysis.training.unmoved import BY_VALUES, Reason, Training
from tether.facts import Operand
from tether.finding import At, CallOf, Claim, Code, Repair, Step, Tensor, say
from tether.operations.table import operation
from tether.verdicts.base import Example, Expected, Verdict

PAGE = """
# gradient-zero

## What it says
The gradient of this parameter was there and was exactly zero at every step that was looked into,
because its only paths to the loss go through a step function: round, sign, floor, ceil; or through
an argument whose derivative is zero whatever its values are, as the second one of `copysign`. Where
the values or the sizes of the run made it zero, and the parameter never changed, a note names the
call. And a note speaks of a row of an embedding that is taken for padding (`padding_idx`), where
indices name it that do not stand at an end of a row as padding does: such a lookup gives that row
no gradient, and where nothing else is computed with it, the row keeps what it began with. Or it is
the derivative of a derivative that goes into a loss and is zero each time: what is made of straight
pieces, as a network of ReLUs is, has no second derivative.

## Why it matters
A step function is flat wherever it has a derivative, so PyTorch gives zero and no error. The
optimizer steps, and nothing moves.

## Known problems
A softmax over one value, a weight norm of rows of one element, a dead ReLU, a factor of zero, terms
that cancel: whether such zeros are meant, nobody can see in the graph. The note is for those who
wonder why a parameter stays.

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


def check(history: History) -> Iterator[Claim]:
    """Give one claim for each parameter whose gradient was zero at each step."""
    told: set[int] = set()
    for claim in _of_structure(history):
        told.update(claim.tensors)
        yield claim
    for tensor, reason in history.get(Training).reasons.items():
        if reason.why in BY_VALUES and tensor not in told:
            yield _by_values(tensor, reason)
    yield from _padded(history)
    for second in no_second(history):
        yield _no_second(history, second)


def _no_second(history: History, found: NoSecond) -> Claim:
    events = history.events
    gradient, used, loss = (events[at].site for at in (found.gradient, found.used, found.loss))
    parts = {"n": found.looks, "line": At(gradient), "used": At(used)}
    name = events[found.gradient].results[0].tensor
    return Claim(
        tensors=(name,),
        cause=("second", gradient, used),
        site=used,
        operation="autograd.grad",
        message=say(
            "The derivative of a derivative that {used} takes into the loss, of {line}, was exactly"
            " zero in all of its elements each of the {n} times that it was looked at.",
            **parts,
        ),
        story=(
            Step("made", gradient, say("autograd.grad gives {x} here", x=Tensor(name))),
            Step("used", used, say("it goes into a loss here, as zeros")),
            Step("loss", loss, say("backward goes through it")),
        ),
        repair=Repair(
            say("Use functions that have a second derivative (Tanh, SiLU, Softplus): that of a"
                " network of linear pieces, as ReLU makes, is zero wherever there is one.")
        ),
        count=0,
        calls=(found.used,),
    )  # fmt: skip


def _of_structure(history: History) -> Iterator[Claim]:
    found = history.get(Missing)
    for tensor in found.zero:
        reaching = found.reaching(tensor)
        if any(paths.smooth & paths.bit(tensor) for paths in reaching):
            stops = list(history.get(Zeroed).stops(tensor))
            if stops and all(history.get(Zeroed).by_formula(*one) for one in stops):
                yield _nothing(history, tensor, min(at for at, _ in stops), *_BY_FORMULA)
            else:
                yield from _hooked(history, tensor)
            continue
        steps = [at for paths in reaching for at in paths.of(paths.steps, tensor)]
        if steps:
            yield _nothing(history, tensor, min(steps), *_FLAT)


_FLAT = (
    "its only paths to the loss go through {code}, which is flat wherever it has a derivative.",
    "{call} has a derivative of zero",
    "Pass the gradient straight through: x + (f(x) - x).detach().",
)
_BY_FORMULA = (
    "the derivative of {code} with respect to it is zero, whatever the values are.",
    "{call} gives zeros back to it",
    "Let {x} reach the loss by a call that has a derivative in it, too.",
)
"""Why nothing comes back from a call, what it does, and what to do."""


def _nothing(history: History, tensor: int, call: int, why: str, does: str, repair: str) -> Claim:
    event = history.events[call]
    return Claim(
        tensors=(tensor,),
        cause=event.site,
        site=event.site,
        calls=(call,),
        operation=event.operation,
        message=say(
            "{subject} got a gradient of exactly zero {when}: " + why,
            when=zero_when(history, tensor),
            code=Code(event.site),
        ),
        story=(Step("step", event.site, say(does, call=CallOf(call))),),
        repair=Repair(say(repair, x=Tensor(tensor))),
        count=0,
    )


def _by_values(tensor: int, reason: Reason) -> Claim:
    return Claim(
        tensors=(tensor,),
        cause=(reason.why, reason.site),
        site=reason.site,
        operation="step",
        severity="note",
        message=say("{subject} never changed: {why}.", why=reason.said),
        story=reason.steps,
        repair=Repair(
            say("Look at what goes in there, at the start and after some steps: at the values, and"
                " at the sizes, since what normalizes a single element gives none back to it.")
            if reason.why == "zero by values"
            else say("Nothing, if the loss is a difference in which {subject} is not to count; else"
                     " detach the way that was not meant to train it.")
        ),
        count=0,
    )  # fmt: skip


def _padded(history: History) -> Iterator[Claim]:
    """Yield the rows that are taken for padding, and asked for where nothing is padded."""
    told: set[int] = set()
    # Several looks at one embedding are one claim: the first of those that say most.
    for fact in sorted(history.trace.padded, key=lambda one: -one.between):
        at = history.position(fact.event)
        weight = _looked_up(history, at) if at >= 0 and _trains(history, at) else None
        if weight is None or not fact.between or weight.tensor in told:
            continue
        told.add(weight.tensor)
        used, made = history.events[at].site, history.made_at(weight.tensor)
        parts = {"row": fact.row, "n": fact.between, "all": fact.given, "line": At(used)}
        yield Claim(
            tensors=(weight.tensor,),
            cause=("padding", used, fact.row),
            site=used,
            calls=(at,),
            operation="embedding",
            severity="note",
            message=say(
                "No lookup at {line} gives row {row} of {subject} a gradient: padding_idx takes it"
                " for padding, and {line} asks for it {n} of {all} times in one call, not as"
                " padding at an end.",
                **parts,
            ),
            story=(
                *(() if made < 0 else (Step("made", history.events[made].site,
                                            say("the rows are made here")),)),
                Step("read", used, say("row {row} is asked for here", **parts)),
                *_used_besides(history, at, weight),
            ),
            repair=Repair(say("If {row} means an item like the others, leave out padding_idx, or"
                              " keep a number for padding that no item has.", **parts)),
            count=0,
        )  # fmt: skip


MOST_PASSES = 16
"""Backward passes after a lookup among which the one is looked for that goes through it."""


def _trains(history: History, at: int) -> bool:
    """Whether a backward pass goes back through a call."""
    later = history.backwards[bisect_left(history.backwards, at) :]
    return any(at in history.get(Graph).behind(one) for one in later[:MOST_PASSES])


def _looked_up(history: History, at: int) -> Operand | None:
    """Return what is trained and whose rows a lookup gives; they may be scaled or masked before."""
    given = [one for one in history.events[at].reads if one.requires_grad]
    while len(given) == 1 and given[0].tensor not in history.held:
        made = history.made_at(given[0].tensor)
        if made < 0:
            return None
        event = history.events[made]
        source = [one for one in event.reads if one.requires_grad]
        alike = len(source) == 1 and source[0].shape == given[0].shape
        given = source if alike and operation(event.operation).pointwise else []
    return given[0] if len(given) == 1 and given[0].leaf else None


def _used_besides(history: History, lookup: int, weight: Operand) -> Iterator[Step]:
    """Yield a line by which an embedding's rows may have a gradient all the same: tied weights."""
    graph, events = history.get(Graph), history.events
    own = {events[at].site for at in (lookup, *graph_of(history, lookup))}
    for at in history.on_storage(weight):
        event = events[at]
        read = any(one.requires_grad for one in event.reads if one.storage == weight.storage)
        if read and event.site not in own and graph.kind(at) is not None:
            yield Step("used", event.site, say("{call} here may give that row one all the same",
                       call=CallOf(at)))  # fmt: skip
            return


def _hooked(history: History, tensor: int) -> Iterator[Claim]:
    """Look for a hook on the way that makes tensors of the gradient's own shape."""
    makers = history.get(_makers_in_backward)
    for position, event in history.events.where("register_hook".__eq__):
        if not event.reads:
            continue
        hooked = event.reads[0]
        shapes = makers.get(event.detail.rpartition(".")[2], set())
        if hooked.shape not in shapes or not _on_the_way(history, tensor, hooked):
            continue
        yield Claim(
            tensors=(tensor,),
            cause=("hook", tensor),
            site=event.site,
            operation=event.operation,
            message=say(
                "{subject} got a gradient of exactly zero {when}: most likely the hook"
                " `{hook}` replaces the gradient on its way.",
                when=zero_when(history, tensor),
                hook=event.detail,
            ),
            story=(Step("hook", event.site, say("the hook is registered here")),),
            assumes=(say("the hook returns the tensor that it makes"),),
            repair=Repair(
                say("Let the hook return None, or do without it ({here}).", here=At(event.site))
            ),
            count=history.times(position),
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


def _on_the_way(history: History, tensor: int, hooked: Operand) -> bool:
    """Whether the hooked tensor is the parameter, or computed from it in some pass."""
    if hooked.tensor == tensor:
        return True
    maker = history.made_at(hooked.tensor)
    if maker < 0:
        return False
    behind = {*history.flow.behind(maker, most=20_000), maker}
    return any(
        edge.operand is not None and edge.operand.tensor == tensor
        for at in behind
        for edge in history.flow.edges[at]
    )


VERDICT = Verdict(
    slug="gradient-zero",
    severity="warning",
    summary="a gradient is exactly zero at each step, and the call that makes it so",
    page=PAGE,
    check=check,
    damage="lost training",
    after=(
        "parameter-stale",
        "parameter-frozen",
        "gradient-discarded",
        "gradient-cut",
        "gradient-unused",
    ),
    examples=(
        Example(
            "A sample that carries its gradient into its own probability",
            """import torch

mean = torch.zeros(3, requires_grad=True)
opt = torch.optim.SGD([mean], lr=0.1)
for _ in range(3):
    opt.zero_grad()
    policy = torch.distributions.Normal(mean * 2, 1.0)
    action = policy.rsample()
    loss = (policy.log_prob(action) * action.detach()).sum()
    loss.backward()
    opt.step()
""",
            (Expected("gradient-zero", "mean", 9),),
        ),
        Example(
            "A sample that does not",
            """import torch

mean = torch.zeros(3, requires_grad=True)
opt = torch.optim.SGD([mean], lr=0.1)
for _ in range(3):
    opt.zero_grad()
    policy = torch.distributions.Normal(mean * 2, 1.0)
    action = policy.sample()
    loss = (policy.log_prob(action) * action.detach()).sum()
    loss.backward()
    opt.step()
""",
        ),
    ),
)
