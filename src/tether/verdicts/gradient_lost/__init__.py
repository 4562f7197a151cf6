"""`gradient-lost`: a part of the loss gives nothing back, though other parts do."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from tether.analysis.cancelled_terms import CancelledTerms, cancelled_terms
from tether.analysis.cut_runs import CutRuns, PartedRuns, cut_runs, parted_runs
from tether.analysis.frozen import taken_off
from tether.analysis.graph import Graph
from tether.analysis.history import History, losses_of
from tether.analysis.holding import Holding
from tether.analysis.incoming import Ignored, incoming_ignored
from tether.analysis.leaving import left_the_graph
from tether.analysis.own_backward import never_called
from tether.analysis.second_order import (
    FirstOrder,
    LastDerivative,
    OnlyTheChange,
    TakenForConstant,
    first_order,
    last_derivatives,
    only_the_change,
    taken_for_constant,
)
from tether.analysis.surroundings import Surroundings
from tether.facts import Event, Operand, OwnBackward, SiteId
from tether.finding import At, CallOf, Claim, Repair, Sentence, Step, Tensor, say
from tether.operations.table import flat_inputs, operation
from tether.source.filling import Fill
from tether.source.handing import saved_at
from tether.source.names import steps_in
from tether.verdicts.base import Example, Expected, Verdict
from tether.verdicts.gradient_lost.cut_terms import drawn, in_vain

PAGE = """
# gradient-lost

## What it says
The parameters get gradients, and yet a part of the loss gives none back: a term that was added to
it has no graph, though it was computed from parameters; or a value's every way to the loss leads
through arguments whose derivative is zero everywhere, such as the mean of `torch.normal`; or of a
line that runs several times for one loss the last run alone gets a gradient, since what each run
gives to the next is cut off, or each run gets a gradient of its own part of the loss alone; or
tensors are changed, inside a loss, by gradients that have no graph (`autograd.grad` without
`create_graph=True`), or by gradients that have one while the tensors themselves are taken without
(`p.data - rate * gradient`). A second derivative lacks a part, where it goes through the backward
of an `autograd.Function` that uses what forward had computed from its inputs and kept: forward has
no graph, so that is a constant there. Where a value is taken from itself, computed twice from the
same values and with a graph both times, what comes back over one way undoes what comes back over
the other. Or the backward of an `autograd.Function` returns what was made without the gradient that
it is given (numbers of both signs, or several in one pass, where each is the same number
throughout). Or two terms of a loss use one value, and what comes back to it from both adds up to
zero: a temperature's loss that goes back into the policy whose entropy it weighs. Or a derivative
of a derivative that goes into the loss was asked for without a graph, or a derivative by an input
that meets what it is a derivative of. Or a term gives gradients only to parameters whose gradients
are cleared before a step uses them, and a call cut the term off from what the next step trains: a
generator's loss that takes what a discriminator says of a detached value. Or values are drawn from
a distribution without a graph (`posterior.sample()`), and no term of the loss that uses them leads
back to what the distribution was computed from, though other terms do. Or a module has a method
`backward` of its own, by which gradients were to be computed: PyTorch never calls it.

## Why it matters
What that part was to teach is never learned, and the loss that is printed contains it all the same.

## Known problems
A term is meant sometimes, to print a loss that is whole; and of many steps the gradient of the last
may be all that is wanted. So it is a note. A second derivative that lacks a part is a warning, and
so is a value that is taken from itself: it is found in the first backward passes of a line, by what
the two graphs have saved. So is an `autograd.Function` whose backward does not use the gradient
that it is given, where that was looked at in three runs with different elements. A term whose
gradients are cleared is a warning where that is so in every pass that has the term, where other
passes train the parameters that it reaches, and where no other term leads through them to what is
trained; else it is a note. Of a draw it is a note: a model may be meant to learn from its samples
alone. Nothing is said where the drawn values meet the distribution's parameters, as in `log_prob`,
where they became numbers or arrays, or where the program's own line leaves the graph.

## Example
```python
z = torch.normal(mean, std)                  # the gradient of a sample is zero
```

## Use instead
```python
z = mean + std * torch.randn_like(std)
```

## Fix safety
It changes what is trained: never applied by itself.
"""


MOST_BETWEEN = 4
"""Lines between a cut and a term that are told."""


def check(history: History) -> Iterator[Claim]:
    """Give one claim for each line of a lost term, and for each line that gives only zeros back."""
    graph = history.get(Graph)
    for backward in history.backwards:
        if graph.leaves(backward) and not history.events[backward].raised:
            yield from _terms(history, backward)
            yield from _flat(history, backward)
    yield from _undone(history)
    for runs in cut_runs(history):
        yield _cut_off(history, runs)
    for parted in parted_runs(history):
        yield _parted(history, parted)
    yield from _of_derivatives(history)
    for cancelled in cancelled_terms(history):
        yield _cancelled(history, cancelled)
    for ignored in incoming_ignored(history):
        yield _ignored(ignored)
    yield from in_vain(history)
    yield from drawn(history)
    for method in never_called(history):
        yield _never_called(method)


def _of_derivatives(history: History) -> Iterator[Claim]:
    """Give what derivatives of derivatives lack."""
    for update in first_order(history):
        yield _constant(history, update)
    for change in only_the_change(history):
        yield _without_its_start(history, change)
    for last in last_derivatives(history):
        yield _last(history, last)
    for kept in taken_for_constant(history):
        yield _second(history, kept)


def _never_called(found: OwnBackward) -> Claim:
    return Claim(
        tensors=(),
        cause=("own backward", found.site),
        site=found.site,
        operation="backward",
        severity="note",
        message=say(
            f"No operation ran in `{found.owner}.backward`: PyTorch computes a module's gradients"
            " by what its forward did, and calls the backward of an autograd.Function only.",
        ),
        subject=f"`{found.owner}.backward`",
        story=(Step("made", found.site, say("the method that never runs")),),
        repair=Repair(
            say("Move it, and what forward computes, into a torch.autograd.Function, and let"
                " forward call its apply.")
        ),
        count=0,
    )  # fmt: skip


def _cancelled(history: History, found: CancelledTerms) -> Claim:
    made, backward = (history.events[at].site for at in (found.made, found.backward))
    value = history.events[found.made].results[0].tensor
    used = dict.fromkeys(history.events[at].site for at in found.users)
    return Claim(
        tensors=(value,),
        cause=("cancelled", made),
        site=history.events[found.users[-1]].site,
        operation=history.events[found.users[-1]].operation,
        severity="warning",
        message=say(
            "What comes back to {subject} from {n} terms of the loss of {loss} adds up to zero,"
            " element by element, in each of {passes} passes that were looked at: the terms undo"
            " each other, and none of them moves what {subject} is computed from.",
            n=len(found.users), loss=At(backward), passes=found.passes,
        ),
        story=(
            Step("made", made, say("{call} makes it", call=CallOf(found.made))),
            *(Step("used", one, say("a term of the loss uses it here")) for one in used),
            Step("backward", backward, say("one pass goes back through both")),
        ),
        repair=Repair(say("Take the value for a constant in the term that is there for another"
                          " factor: `{x!s}.detach()`.", x=Tensor(value))),
        count=found.passes,
    )  # fmt: skip


def _ignored(found: Ignored) -> Claim:
    fact = found.fact
    return Claim(
        tensors=(),
        subject=fact.name,
        cause=("ignored", fact.site),
        site=fact.site,
        operation="apply",
        message=_of_numbers(found) if found.numbers else say(
            "The backward of {name} makes nothing of the gradient that it is given: in {n} runs"
            " that were looked at no value of it came into what is returned, at {made}, so what"
            " comes before {name} follows no loss.",
            name=fact.name, n=found.runs, made=At(found.made),
        ),
        story=(
            Step("made", fact.site, say("the backward of {name}", name=fact.name)),
            Step("made", found.made, say("what it returns is made here, of other values")),
        ),
        repair=Repair(say("Return the incoming gradient times the derivative: for one that passes"
                          " straight through, the incoming gradient itself.")),
        count=0,
    )  # fmt: skip


def _of_numbers(found: Ignored) -> Sentence:
    one, other = (f"{number:.4g}" for number in found.numbers)
    return say(
        "The backward of {name} makes nothing of the gradient that it is given: one run was given"
        " {one} throughout and another {other}, and in {n} runs that were looked at no value of it"
        " came into what is returned, at {made}. So {name} hands on neither its sign nor its size.",
        name=found.fact.name, one=one, other=other, n=found.runs, made=At(found.made),
    )  # fmt: skip


def _terms(history: History, backward: int) -> Iterator[Claim]:
    """Find numbers without a graph that joined a loss, and were computed from what is trained."""
    for term, at in _terms_of(history, backward):
        made = history.made_at(term.tensor)
        left = left_the_graph(history, made) if made >= 0 and _is_real(term) else set()
        left = {one for one in left if _reads_trained(history, one)}
        if left:
            # A tensor that was taken off the graph itself says more than values that were taken.
            cut = max(left, key=lambda one: (taken_off(history.events[one]) is not None, one))
            yield _term(history, term, at, cut, backward)


def _terms_of(history: History, backward: int) -> Iterator[tuple[Operand, int]]:
    """Yield the numbers without a graph that are terms of a loss, each with the call that took it.

    A term is what backward needs nothing of: of a factor or an exponent something is saved. So the
    way from the loss leads back through calls on numbers that saved none of their operands.
    """
    graph, events = history.get(Graph), history.events
    waiting = [(one, backward) for one in losses_of(events[backward])]
    seen: set[int] = set()
    while waiting:
        number, before = waiting.pop()
        for at in graph.makers_of(number, before):
            kind, reads = graph.kind(at), events[at].reads
            if at in seen or kind is None or not kind.known or [*graph.saved(at, unchecked=True)]:
                continue
            seen.add(at)
            if any(one.shape for one in reads):
                continue
            yield from ((one, at) for one in reads if not one.requires_grad)
            waiting += [(one, at) for one in reads if one.requires_grad]


def _is_real(operand: Operand) -> bool:
    return "float" in operand.dtype


def _reads_trained(history: History, at: int) -> bool:
    """Whether a leaf that is trained is behind a call."""
    return not history.get(Graph).leaves_behind(at).isdisjoint(history.held)


def _term(history: History, term: Operand, at: int, cut: int, backward: int) -> Claim:
    site, loss = history.events[cut].site, history.events[backward].site
    name, way = Tensor(term.tensor), _between(history, cut, term)
    return Claim(
        tensors=(term.tensor,),
        cause=("term", site, history.events[at].site),
        site=site,
        calls=(cut,),
        operation=history.events[cut].operation,
        severity="note",
        message=say(
            "{subject} is a term of the loss of {loss} and gives no gradient back: what {call}"
            " returns at {cut} has no graph.",
            loss=At(loss), call=CallOf(cut), cut=At(site),
        ),
        story=(
            Step("cut", site, say("{call} gives values without a graph", call=CallOf(cut))),
            *_kept(history, way, backward),
            *(Step("through", one, say("the value goes through this line"))
              for one in _lines_between(history, way)),
            Step("used", history.events[at].site, say("{x} becomes a term of the loss", x=name)),
            Step("loss", loss, say("backward starts from that loss")),
        ),
        repair=Repair(say("Keep the graph at {cut} (for autograd.grad: create_graph=True); or leave"
                          " {x} out of the loss.", cut=At(site), x=name)),
        count=0,
    )  # fmt: skip


def _kept(history: History, way: list[int], backward: int) -> Iterator[Step]:
    """Yield the line that kept what a call gave, where an earlier pass came after the call.

    `way`: the calls from that one on to the term.
    """
    if not any(way[0] < one < backward for one in history.backwards):
        return
    for at in way:
        for one in history.events[at].results:
            names = [name for name in history.names_of(one.tensor) if not name.isidentifier()]
            lines = _keeping(history, at, names[0]) if names else []
            if len(lines) == 1:
                said = say("{name} keeps these values, also for later losses", name=f"`{names[0]}`")
                yield Step("kept", lines[0].site, said)
                return


def _keeping(history: History, at: int, name: str) -> list[Fill]:
    """Return what fills a place, or what it lies in, in the function of a call."""
    site = history.site_of(history.events[at])
    place = next(step for step in reversed(steps_in(name)) if not step.startswith("["))
    filled = history.get(Holding).fillings.of_function(site.file, site.function)
    return [one for one in filled if steps_in(one.target)[-1:] == [place]]


def _between(history: History, cut: int, term: Operand) -> list[int]:
    """Return the calls that lead from a call to a number, in order, with the call itself."""
    edges = history.flow.edges
    waiting = [history.made_at(term.tensor)]
    behind = set(waiting)
    while waiting:
        fresh = {one for one in edges.sources(waiting.pop()) if one > cut} - behind
        behind |= fresh
        waiting += fresh
    reached = {cut}
    for at in sorted(behind):
        if not reached.isdisjoint(edges.sources(at)):
            reached.add(at)
    return sorted(reached)


def _lines_between(history: History, way: list[int]) -> list[SiteId]:
    """Return the lines of a way of calls, the last ones, without those of its ends."""
    ends = {history.events[at].site for at in (way[0], way[-1])}
    sites = dict.fromkeys(history.events[at].site for at in way)
    return [one for one in sites if one not in ends][-MOST_BETWEEN:]


def _flat(history: History, backward: int) -> Iterator[Claim]:
    """Find values that enter the graph of a loss only where the derivative is zero everywhere."""
    graph = history.get(Graph)
    calls: dict[int, list[tuple[int, bool]]] = defaultdict(list)  # of a value; gives it zeros
    for at in sorted(graph.behind(backward)):
        for tensor, flat in _entries(history, at):
            calls[tensor].append((at, flat))
    for tensor, given in calls.items():
        made = history.made_at(tensor)
        if made < 0 or not all(flat for _, flat in given) or graph.kind(made) is None:
            continue
        if _reads_trained(history, made) and not _all_zero(history, made):
            yield _lost(history, tensor, given[0][0], backward)


def _entries(history: History, at: int) -> Iterator[tuple[int, bool]]:
    """Give the tensors that enter the graph at a call, and whether each gets zeros from it."""
    kind, event = history.get(Graph).kind(at), history.events[at]
    if kind is None:
        return
    keeps = not operation(event.operation).overwrites
    for node, place, target in kind.edges:
        if 0 <= -1 - target < len(event.reads):
            flat = place in flat_inputs(kind.nodes[node])
            yield event.reads[-1 - target].tensor, keeps and flat


def _all_zero(history: History, made: int) -> bool:
    """Whether leaves behind a value got nothing but zeros: then they are what is told."""
    trained = history.get(Graph).leaves_behind(made) & history.trained.keys()
    return any("some" not in history.trained[one] for one in trained)


def _lost(history: History, tensor: int, at: int, backward: int) -> Claim:
    site, loss = history.events[at].site, history.events[backward].site
    made = history.events[history.made_at(tensor)].site
    return Claim(
        tensors=(tensor,),
        cause=("flat", site),
        site=site,
        calls=(at,),
        operation=history.events[at].operation,
        severity="note",
        message=say(
            "{call} at {line} gives only zeros back to {subject}, and no other way leads from there"
            " to the loss of {loss}.",
            call=CallOf(at), line=At(site), loss=At(loss),
        ),
        story=(
            Step("made", made, say("{x} is computed here", x=Tensor(tensor))),
            Step("cut", site, say("the derivative of {call} is zero everywhere", call=CallOf(at))),
            Step("loss", loss, say("backward starts from the loss here")),
        ),
        repair=Repair(say("Use a call whose derivative is not zero (for a sample of a normal"
                          " distribution: mean + std * torch.randn_like(std)), or detach what is"
                          " not to learn.")),
        count=0,
    )  # fmt: skip


def _undone(history: History) -> Iterator[Claim]:
    """Find calls that take a value from itself: both ways lead to the same leaves, alike.

    Of a line of backward passes, in each that was followed: the first may begin with equal values.
    A call that was given one tensor does so by its own formula: a correlation with itself is 1.
    """
    graph = history.get(Graph)
    passes: dict[SiteId, list[dict[SiteId, tuple[int, int]]]] = defaultdict(list)
    for fact in history.trace.followed:
        loss = history.position(fact.event)
        if loss >= 0 and not history.events[loss].raised:
            calls = [graph.call_of(fact.thread, node) for node in fact.undone]
            calls = [at for at in calls if at >= 0 and len(_in_graph(history.events[at])) > 1]
            lines = {history.events[at].site: (at, loss) for at in calls}
            passes[history.events[loss].site].append(lines)
    for found in passes.values():
        for line in sorted(set(found[0]).intersection(*found[1:])):
            yield _from_itself(history, *found[0][line])


def _in_graph(event: Event) -> tuple[int, ...]:
    """Return the tensors of a call that require grad, each once."""
    return tuple(dict.fromkeys(int(one.tensor) for one in event.reads if one.requires_grad))


def _from_itself(history: History, at: int, backward: int) -> Claim:
    event, loss = history.events[at], history.events[backward].site
    tensors = _in_graph(event)
    makers = [history.made_at(one) for one in tensors]
    return Claim(
        tensors=tensors,
        cause=("from itself", event.site),
        site=event.site,
        operation=event.operation,
        severity="warning",
        message=say(
            "{call} at {line} takes {y} from {x}. The same calls computed both of the same values,"
            " each with a graph: what comes back from the loss of {loss} over one of them undoes"
            " what comes back over the other.",
            call=CallOf(at), line=At(event.site), loss=At(loss), x=Tensor(tensors[0]),
            y=Tensor(tensors[-1]),
        ),
        story=(
            *(Step("made", history.events[one].site, say("{x} is computed here",
              x=Tensor(tensor))) for tensor, one in zip(tensors, makers, strict=True) if one >= 0),
            Step("zero", event.site, say("{call} gives opposite gradients to both",
                 call=CallOf(at))),
            Step("loss", loss, say("backward starts from the loss here")),
        ),
        repair=Repair(say("Compute the one that is to stay as it was under torch.no_grad(), or"
                          " detach it.")),
        count=history.times(at),
    )  # fmt: skip


def _cut_off(history: History, found: CutRuns) -> Claim:
    cut, entered, loss = (history.events[at].site for at in (found.cut, found.entered, found.loss))
    return Claim(
        tensors=found.tensors,
        cause=("runs", cut),
        site=cut,
        calls=(found.cut,),
        operation=history.events[found.cut].operation,
        severity="note",
        message=say(
            "Of {n} runs of {call} at {line} backward at {loss} goes through the last {k} alone:"
            " {cut} cuts off what {subject} gave in the runs before.",
            n=found.runs, k=found.reached, call=CallOf(found.entered), line=At(entered),
            loss=At(loss), cut=CallOf(found.cut),
        ),
        story=(
            Step("made", entered, say("each run makes a graph")),
            Step("cut", cut, say("{call} gives the values of a run without its graph",
                 call=CallOf(found.cut))),
            Step("used", entered, say("the next run uses them")),
            Step("loss", loss, say("backward goes through what was made after the last cut")),
        ),
        repair=Repair(say("Detach where a backward pass has gone through what came before, not"
                          " between runs that one loss is to train.")),
        count=0,
    )  # fmt: skip


def _parted(history: History, found: PartedRuns) -> Claim:
    cut, loss = (history.events[at].site for at in (found.cut, found.loss))
    return Claim(
        tensors=found.tensors,
        cause=("parted", cut),
        site=cut,
        operation=history.events[found.cut].operation,
        severity="note",
        message=say(
            "{call} at {cut} cuts {n} times within the loss of {loss}, each time off what a round"
            " hands to the next: no gradient of {subject} goes through more than one round.",
            n=found.rounds, loss=At(loss), call=CallOf(found.cut), cut=At(cut),
        ),
        story=(
            Step("cut", cut, say("{call} gives the values of a round without its graph",
                 call=CallOf(found.cut))),
            Step("loss", loss, say("one backward pass goes through all rounds")),
        ),
        repair=Repair(say("Where what a later round makes of it is to give a round gradients,"
                          " detach once for each backward pass, after it, and not between the"
                          " rounds of one loss.")),
        count=0,
    )  # fmt: skip


def _constant(history: History, found: FirstOrder) -> Claim:
    events = history.events
    asked, update, loss = (events[at].site for at in (found.gradient, found.update, found.loss))
    return Claim(
        tensors=found.tensors,
        cause=("first order", asked),
        site=asked,
        operation="autograd.grad",
        severity="note",
        message=say(
            "{line} asks for the gradient of {subject} without create_graph=True, and {update}"
            " changes {subject} by it: backward at {loss} takes the change for a constant"
            " (first-order; that may be meant).",
            line=At(asked), update=At(update), loss=At(loss),
        ),
        story=(
            Step("cut", asked, say("the gradient has no graph")),
            Step("used", update, say("{call} uses it, and the graph goes on",
                 call=CallOf(found.update))),
            Step("loss", loss, say("backward starts from the loss here")),
        ),
        repair=Repair(say("Where the change itself is to be differentiated: autograd.grad(...,"
                          " create_graph=True).")),
        count=history.times(found.gradient),
    )  # fmt: skip


def _without_its_start(history: History, found: OnlyTheChange) -> Claim:
    events = history.events
    asked, cut, update, loss = (
        events[at].site for at in (found.gradient, found.cut, found.update, found.loss)
    )
    return Claim(
        tensors=(found.tensor,),
        cause=("only the change", cut),
        site=cut,
        calls=(found.cut,),
        operation=events[found.cut].operation,
        severity="note",
        message=say(
            "{update} changes {subject} by a gradient that has a graph, and takes {subject} itself"
            " without one ({call} at {cut}): what backward at {loss} gives back to it comes through"
            " the gradient alone, and the next step uses that.",
            update=At(update), call=CallOf(found.cut), cut=At(cut), loss=At(loss),
        ),
        story=(
            Step("asked", asked, say("the gradient is asked for, with its graph")),
            Step("cut", cut, say("the values are taken here, without their graph")),
            Step("used", update, say("{call} joins both", call=CallOf(found.update))),
            Step("loss", loss, say("backward starts from the loss here")),
        ),
        repair=Repair(say("Start from the tensor itself, as autograd.grad was asked to make a"
                          " graph: without .data or detach at {cut}.", cut=At(cut))),
        count=history.times(found.cut),
    )  # fmt: skip


def _last(history: History, found: LastDerivative) -> Claim:
    asked, used, loss = (history.events[at].site for at in (found.gradient, found.used, found.loss))
    tensor = history.events[found.gradient].results[0].tensor
    return Claim(
        tensors=(tensor,),
        cause=("last", asked),
        site=asked,
        calls=(found.gradient,),
        operation="autograd.grad",
        severity="note",
        message=say(
            "{line} asks for a derivative{of} without create_graph=True, so {subject}"
            " has no graph: the loss of {loss}, which it goes into, takes it for a constant.",
            line=At(asked), loss=At(loss), of=" of a derivative" if found.second else "",
        ),
        story=(
            Step("cut", asked, say("the derivative has no graph")),
            Step("used", used, say("{call} joins it with what has one", call=CallOf(found.used))),
            Step("loss", loss, say("backward starts from the loss here")),
        ),
        repair=Repair(say("Where it is to be learned from: autograd.grad(..., create_graph=True);"
                          " where not, say so with detach().")),
        count=history.times(found.gradient),
    )  # fmt: skip


def _second(history: History, found: TakenForConstant) -> Claim:
    events = history.events
    made, used, first, second = (
        events[at].site for at in (found.made, found.used, found.first, found.second)
    )
    site = history.site(made)
    saved = saved_at(history.get(Surroundings).source(site.file), site)
    parts = {
        "name": found.name, "made": At(made), "used": At(used), "first": At(first),
        "second": At(second), "x": Tensor(found.tensor),
    }  # fmt: skip
    return Claim(
        tensors=(found.tensor,),
        cause=("second", made),
        site=saved or made,
        operation="apply",
        message=say(
            "The derivative at {second} lacks a part: {used} in the backward of {name} uses"
            " {subject}, which its forward computes from its input at {made}, as a constant.",
            **parts,
        ),
        story=(
            Step("made", made, say("{x} is computed from the input; forward makes no graph",
                 **parts)),
            *([] if saved is None else [Step("saved", saved, say("{x} is kept", **parts))]),
            Step("used", used, say("backward uses it, in a pass that makes a graph", **parts)),
            Step("asked", first, say("create_graph=True: this gradient has a graph")),
            Step("loss", second, say("this pass differentiates it, and {x} has no graph", **parts)),
        ),
        repair=Repair(say("Keep the input of {name} in place of {x}, and compute {x} from it in"
                          " backward; or mark backward with once_differentiable, so that a second"
                          " derivative raises.", **parts)),
        count=0,
    )  # fmt: skip


VERDICT = Verdict(
    slug="gradient-lost",
    severity="warning",
    summary="a term of the loss, or a value on the way to it, gives no gradient back",
    page=PAGE,
    check=check,
    damage="lost training",
    after=("gradient-cut", "gradient-zero", "gradient-unused"),
    examples=(
        Example(
            "A sample of a normal distribution",
            """import torch

w = torch.ones(3, requires_grad=True)
opt = torch.optim.SGD([w], lr=0.1)
std = torch.exp(w)
z = torch.normal(torch.zeros(3), std)
(z.pow(2).sum() + w.pow(2).sum()).backward()
opt.step()
""",
            (Expected("gradient-lost", "std", 6),),
        ),
        Example(
            "A value that is taken from itself as it was, and one of other values",
            """import torch

policy = torch.nn.Linear(2, 2)
opt = torch.optim.SGD(policy.parameters(), lr=0.1)
x = torch.ones(3, 2)
for _ in range(3):
    with torch.no_grad():
        old = policy(x).log_softmax(1)
    new = policy(x).log_softmax(1)
    better = policy(x + 1) - policy(x)
    loss = -(new - old).exp()[:, 0].sum() - better.sigmoid().sum()
    opt.zero_grad()
    loss.backward()
    opt.step()
""",
        ),
    ),
)
