"""`values-lost`: values that were computed to be written somewhere, and are nowhere."""

from __future__ import annotations

from collections.abc import Iterator

from tether.analysis.derived_in_vain import DerivedInVain, derived_in_vain
from tether.analysis.from_itself import FromItself, from_itself
from tether.analysis.history import History
from tether.analysis.holding import Holding
from tether.analysis.surroundings import at_line
from tether.analysis.written_in_vain import (
    BoundInVain,
    GivenInVain,
    HandedInVain,
    WrittenInVain,
    bound_in_vain,
    given_in_vain,
    handed_in_vain,
    rebound_in_vain,
    written_in_vain,
)
from tether.facts import UNKNOWN, Collision, Event, Site
from tether.finding import At, CallOf, Claim, Code, Repair, Segment, Step, Tensor, say
from tether.operations.table import operation
from tether.source.vain_stores import BoundAgain
from tether.verdicts.base import Example, Expected, Verdict
from tether.verdicts.values_lost.rates import of_rates
from tether.verdicts.values_lost.states import of_states

PAGE = """
# values-lost

## What it says
Values were computed, or brought, to be written somewhere, and are nowhere:

- An assignment through an index was given several values for one element. Each element kept one of
  them: the index names some elements more than once.
- The values lie in the memory that is written, as in `x[:, 1:] = x[:, :-1]`, and some were
  overwritten before they were read.
- A call changes a tensor in place by a part of itself, as in `x -= x[:, :1]`: that part changed
  while it was read.
- A loop's variable is given new values, and nothing reads them: the name is bound to another
  tensor, and the parameter that the loop gave keeps its values.
- A view is put on other memory by `.data = ...`, and nothing reads it after that: what it was a
  view of keeps its values.
- A weight that is computed of a parameter for each pass (pruned, normalised) is written, and
  nothing reads it before it is computed anew: the parameter keeps its values.
- Entries are written into the dict that `state_dict()` has just made, which nothing but these lines
  gets to see.
- A module was called with tensors for its parameters (`functional_call`), and has none of the names
  that they were given by: it computes with its own.
- A training goes on from saved parameters, and the state of the optimizer, or the scheduler, that
  was handed out with them is not loaded: momentum, averages and counts begin anew. Or a file got
  the parameters without any state of the optimizer (a note).
- An optimizer loads a state, and before it steps another one is made of the same parameters, which
  has none: it is a note where the other has another learning rate.
- The state of an optimizer is handed out, to be saved, that never steps: another one of its kind
  steps its parameters, and nothing asks for what that one keeps.
- A model loads a state, and the first step writes copies of the parameters over it that the
  optimizer steps, and that were made before the load.
- A model loads a state, and a line of the program writes other values over it before anything has
  read it (a note).
- Parameters are given other values for an evaluation, made of their own earlier ones, no copy of
  the trained ones is there, and the training goes on from the others (a note).
- Parameters are copied, given other values for an evaluation, such as an average, and trained on
  from those: nothing ever reads the copies.
- A line gives tensors the values that they have: a network loads its own `state_dict`, or is
  blended with itself by two names. It is a note where an optimizer trains them.
- The program sets the learning rate of a parameter group, and a scheduler, whose own rate of that
  group is zero, sets zero again at its next step: once and for all.
- An optimizer loaded a state, and a scheduler that was made after it replaced the learning rate
  before any step used it (a note).
- A scheduler sets no learning rate that the training uses: nothing steps it, or it is made anew for
  each of its steps (notes), or the optimizer that it was given never steps, and another one steps
  the same parameters. Or its course is as long as the optimizer's steps are many, or the passes of
  a line, and it is stepped far less often; or the rate comes down and up again several times, since
  the course is shorter than the training (a note).

## Why it matters
`total[index] += values` reads the old values, adds, and writes the sums back. Where two values fall
on one element the second sum replaces the first, so a part is missing from the result, and its
gradient is zero. After `p = p - rate * p.grad` the parameter is what it was. Nothing raises.

## Known problems
It is a warning where the values that were written are an update of those that the same index read:
then each of them was to count. Elsewhere it is a note, since the last value may be the one that is
meant. Looked at are the 1st, 2nd, 4th, 8th... write of a line, on the CPU. A loop's variable is
spoken of if no run of the line made values that anything read or kept; it is a warning where they
were computed from what requires grad. Of a module that has some of the names it was given a note
speaks. Of a state that was not loaded it is a warning where the training goes on with the same
data, once; an optimizer that is made with other settings, or steps on other values, is a new one.
Of copies that are not put back it is a warning where it came about three times, of all that an
optimizer holds: a program may put them back only if the others do worse.

## Example
```python
total[index] += values
```

## Use instead
```python
total.index_add_(0, index, values)
```

## Fix safety
It changes the result: never applied by itself.
"""

MOST_MADE = 3
"""Lines that made what was handed over in vain that one finding names."""


def check(history: History) -> Iterator[Claim]:
    """Give one claim for each line that lost values."""
    for fact in history.trace.collisions:
        at = history.position(fact.event)
        reads = history.events[at].reads if 0 <= at < len(history.events) else ()
        if reads:
            within = reads[0].storage == reads[-1].storage
            yield _overlapping(history, at, fact) if within else _claim(history, at, fact)
    for bound in bound_in_vain(history):
        yield _bound(history, bound)
    for site, again in rebound_in_vain(history):
        yield _rebound(site, again)
    yield from _never_used(history)


def _never_used(history: History) -> Iterator[Claim]:
    """Give one claim for each place that what was handed over, loaded or kept never reached."""
    yield from (_given(history, one) for one in given_in_vain(history))
    yield from (_derived(history, one) for one in derived_in_vain(history))
    yield from of_rates(history)
    yield from (_handed(history, one) for one in handed_in_vain(history))
    yield from (_written(history, one) for one in written_in_vain(history))
    yield from of_states(history)
    yield from (_own(history, one) for one in from_itself(history))


def _claim(history: History, at: int, fact: Collision) -> Claim:
    event = history.events[at]
    written = event.reads[0]
    update = _updates(history, at)
    return Claim(
        tensors=(written.tensor,),
        cause=(event.site,),
        site=event.site,
        operation=event.operation,
        severity="warning" if update >= 0 else "note",
        message=say(
            "{lost} of the {given} values that {call} writes to {subject} are lost: the index names"
            " some elements more than once, and each keeps one value.",
            lost=str(fact.lost), given=str(fact.given), call=CallOf(at),
        ),
        story=(
            *_before(history, at, update),
            Step("written", event.site, say("{call} writes one value to each element",
                 call=CallOf(at))),
        ),
        repair=Repair(
            say("Use index_add_ or scatter_reduce_, which take every value into account:"
                " `{x!s}.index_add_(0, index, values)`.", x=Tensor(written.tensor))
            if update >= 0
            else say("Let the index name each element once, or say what becomes of several values:"
                     " index_add_ and scatter_reduce_ take all of them into account.")
        ),
    )  # fmt: skip


def _overlapping(history: History, at: int, fact: Collision) -> Claim:
    event = history.events[at]
    values = "the values are a view of {x}"
    message = (
        "{lost} of the {given} values that {call} writes to {subject} are lost: they lie in the"
        " memory that it writes, and were overwritten before they were read."
    )
    if operation(event.operation).pointwise:
        values = "what it reads lies in the memory of {x}"
        message = (
            "{lost} of the {given} values that {call} gives {subject} are wrong: it reads elements"
            " that it writes as well, and some were overwritten before they were read."
        )
    written, made = event.reads[0].tensor, history.made_at(event.reads[-1].tensor)
    viewed = () if made < 0 else (
        Step("shared", history.events[made].site,
             say(values, x=Tensor(written))),
    )  # fmt: skip
    return Claim(
        tensors=(written,),
        cause=(event.site,),
        site=event.site,
        operation=event.operation,
        message=say(
            message,
            lost=str(fact.lost), given=str(fact.given), call=CallOf(at),
        ),
        story=(
            *viewed,
            Step("written", event.site, say("{call} reads and writes places that overlap",
                 call=CallOf(at))),
        ),
        repair=Repair(say("Copy the values first, with .clone() at the end of the right side, or"
                          " make a new tensor: by the operator without =, torch.roll, torch.cat.")),
    )  # fmt: skip


def _updates(history: History, at: int) -> int:
    """Return the call that read at the same index what the written values are an update of.

    Between the two lie calls that compute each element from the elements in its place.
    """
    event = history.events[at]
    waiting = [edge.source for edge in history.flow.edges[at] if edge.operand == event.reads[-1]]
    seen: set[int] = set()
    while waiting:
        maker = waiting.pop()
        if maker < 0 or maker in seen:
            continue
        seen.add(maker)
        made = history.events[maker]
        if operation(made.operation).picks:
            if made.reads[0].storage == event.reads[0].storage and _same_index(
                history, made, event
            ):
                return maker
        elif operation(made.operation).pointwise:
            waiting += [edge.source for edge in history.flow.edges[maker]]
    return -1


def _same_index(history: History, read: Event, written: Event) -> bool:
    """Whether a read and a write have the same tensors as index, or are one `x[...] += y`."""
    index = _index(read)
    one = history.site_of(read).position == history.site_of(written).position
    return index == _index(written) and (bool(index) or one)


def _index(event: Event) -> tuple[int, ...]:
    """Return the tensors that are the index of a call."""
    last = -1 if operation(event.operation).places else None
    return tuple(one.tensor for one in event.reads[1:last])


def _before(history: History, at: int, update: int) -> Iterator[Step]:
    """Yield where the old values were read, or else where the new ones were computed."""
    written, values = history.events[at].reads[0], history.events[at].reads[-1]
    made = history.made_at(values.tensor)
    if update >= 0:
        said = say("{call} reads {x} at the same index", call=CallOf(update),
                   x=Tensor(written.tensor))  # fmt: skip
        yield Step("read", history.events[update].site, said)
    elif made >= 0:
        yield Step("made", history.events[made].site, say("the values are computed here"))


def _bound(history: History, found: BoundInVain) -> Claim:
    event = history.events[found.at]
    loop = at_line(history.site_of(event), found.loop)
    return Claim(
        tensors=(),
        subject=found.variable,
        cause=("bound", event.site),
        site=event.site,
        operation=event.operation,
        severity="warning" if found.trained else "note",
        message=say(
            f"Nothing reads the values that {{line}} gives to `{found.variable}`, in any of {{n}}"
            " runs: the name is bound to a new tensor, and the one that the loop gave keeps its"
            " values.",
            line=At(event.site), n=found.runs,
        ),
        story=(
            Step("read", loop, say(f"the loop gives `{found.variable}` here")),
            Step("made", event.site, say(f"`{found.variable}` is bound to a new tensor")),
        ),
        repair=Repair(say(f"Write into the tensor: `{found.variable}.copy_(...)` or another method"
                          " whose name ends in `_`, under torch.no_grad().")),
        count=found.runs,
    )  # fmt: skip


def _rebound(site: Site, found: BoundAgain) -> Claim:
    name = f"`{found.variable}`"
    return Claim(
        tensors=(),
        subject=found.variable,
        cause=("rebound", site),
        site=site,
        operation="",
        message=say(
            f"What {{line}} gives to {name} reaches nothing: the name is bound to another tensor,"
            " nothing reads it after that, and the parameter that the loop gave keeps its values.",
            line=At(site),
        ),
        story=(
            Step("read", at_line(site, found.loop), say(f"the loop gives {name} here")),
            Step("made", site, say(f"{name} is bound to another tensor")),
        ),
        repair=Repair(say(f"Write into the parameter: `{found.variable}.copy_(...)` under"
                          " torch.no_grad(). To compute with other tensors in its place, call the"
                          " module by torch.func.functional_call.")),
        count=0,
    )  # fmt: skip


def _derived(history: History, found: DerivedInVain) -> Claim:
    event, made = history.events[found.at], history.events[found.made]
    parts = {"p": Tensor(found.parameter), "line": At(event.site), "again": CallOf(found.again)}
    return Claim(
        tensors=(found.parameter,),
        subject=history.name_of(found.parameter).strip("`"),
        cause=("derived", event.site),
        site=event.site,
        operation=event.operation,
        message=say(
            "What {line} writes is nowhere{runs}: it goes into what {call} computes of {p} for each"
            " pass, and {again} computes it anew before anything reads it.",
            runs=f", in any of {found.runs:,} runs" if found.runs > 1 else "",
            call=CallOf(found.made), **parts,
        ),
        story=(
            Step("made", made.site, say("{call} computes what is written, of {p}",
                 call=CallOf(found.made), **parts)),
            Step("written", event.site, say("{call} writes it", call=CallOf(found.at))),
            Step("made", history.events[found.again].site,
                 say("{again} computes it anew", **parts)),
        ),
        repair=Repair(say("Write into the parameter that it is computed of, {p}, under"
                          " torch.no_grad(). A parametrization that can be turned back takes an"
                          " assignment to the module's attribute.", **parts)),
        count=found.runs,
    )  # fmt: skip


def _given(history: History, found: GivenInVain) -> Claim:
    event, taken, read = (history.events[one] for one in (found.at, found.taken, found.read))
    parts = {"x": Tensor(found.owner), "line": At(event.site)}
    return Claim(
        tensors=(found.owner,),
        cause=("given", event.site),
        site=event.site,
        operation=event.operation,
        message=say(
            "What {line} gives to a view of {x} is nowhere: {call} puts the view on other memory,"
            " nothing reads the view after that, and {x} keeps its values.",
            call=CallOf(found.at), **parts,
        ),
        story=(
            Step("shared", taken.site, say("{call} makes a view of {x}", call=CallOf(found.taken),
                 **parts)),
            Step("written", event.site, say("the view is given other memory, and {x} is not"
                 " written", **parts)),
            Step("read", read.site, say("{x} is read, as it was", **parts)),
        ),
        repair=Repair(say("Write into the memory that the view shows: .copy_(...) instead of an"
                          " assignment to .data.")),
        count=found.runs,
    )  # fmt: skip


def _handed(history: History, found: HandedInVain) -> Claim:
    fact = found.fact
    keys = ", ".join(repr(one) for one in fact.keys)
    made = dict.fromkeys(
        history.events[at].site for at in map(history.made_at, found.tensors) if at >= 0
    )
    module = Segment(f"`{fact.module}`", "name")
    return Claim(
        tensors=found.tensors,
        cause=("handed", fact.site),
        site=fact.site,
        operation="functional_call",
        severity="warning" if len(fact.tensors) == fact.given else "note",
        message=say(
            "Nothing in this call reads {subject}: {module} has no parameter or buffer of the"
            " name {keys}, and computes with its own.",
            module=module, keys=Segment(keys, "name"),
        ),
        story=(
            *(Step("made", site, say("what it is given is made here"))
              for site in list(made)[:MOST_MADE]),
            Step("used", fact.site, say("{module} is called, and reads none of it",
                 module=module)),
        ),
        repair=Repair(say("Give the names that {module} says in named_parameters(): those of a part"
                          " of it begin with the name of the part. With strict=True such a call"
                          " raises.", module=module)),
        count=found.times,
    )  # fmt: skip


def _written(history: History, found: WrittenInVain) -> Claim:
    made = history.site(found.made)
    lines = [at_line(made, line) for line in found.lines]
    load = "the result" if made.target == "" else f"`{made.target}`"
    return Claim(
        tensors=(),
        subject=made.expression,
        cause=("written", found.made),
        site=lines[0],
        operation="state_dict",
        message=say(
            "What {line} writes into the dict that {call} made reaches nothing: each call makes a"
            f" dict of its own, and the {found.owner} keeps what it has.",
            line=At(lines[0]), call=Code(found.made),
        ),
        story=(
            Step("made", found.made, say("{call} makes a new dict", call=Code(found.made))),
            *(Step("written", one, say("an entry of this dict is written, and nothing takes it"))
              for one in lines[:MOST_MADE]),
        ),
        repair=Repair(
            say(f"Write into the tensors ({{call}}[name].copy_(value)), or hand {load} to"
                " load_state_dict() once it is changed.", call=Segment(made.expression, "code"))
            if found.owner == "module"
            else say("Write into the optimizer's own param_groups, or hand the changed dict to"
                     " load_state_dict().")
        ),
        count=0,
    )  # fmt: skip


def _own(history: History, found: FromItself) -> Claim:
    event = history.events[found.write]
    parts = {"call": Code(event.site), "line": At(event.site), "n": found.times}
    message = say(
        "{call} at {line} changes nothing of {subject}: what it copies there, {n} times in all, is"
        " that very memory.", **parts,
    ) if not found.blended else say(
        "What {call} at {line} writes into {subject} is computed from the same memory alone, by"
        " another name: no value of another tensor comes in, at any of {n} times.", **parts,
    )  # fmt: skip
    parted = found.before != UNKNOWN
    if parted:
        message = say(
            "{call} at {line} copies {subject} to itself, {n} times up to the end. Before, it"
            " copied between two: they have become one since.", **parts,
        )  # fmt: skip
    taken = [history.events[found.taken].site] if found.taken >= 0 else []
    stepped = [history.events[found.stepped].site] if found.stepped >= 0 else []
    trained = not history.held.isdisjoint(found.tensors)
    return Claim(
        tensors=found.tensors,
        cause=("own", event.site),
        site=event.site,
        operation=event.operation,
        severity="warning" if stepped and (parted or not trained) else "note",
        message=message,
        story=(
            *(_made_one(history, event) if parted else ()),
            *(Step("read", one, say("what is written is taken from {x} itself",
                   x=Tensor(found.tensors[0]))) for one in taken),
            Step("written", event.site, say("{x} is given its own values",
                 x=Tensor(found.tensors[0]))),
            *(Step("step", one, say("between two of these calls this step trains others"))
              for one in stepped if not trained),
        ),
        repair=Repair(say("Keep two: {call} copies the values, and no assignment is wanted."
                          if parted else
                          "Take the values from what {subject} is to follow; or leave {call} out.",
                          **parts)),
        count=found.times,
    )  # fmt: skip


def _made_one(history: History, event: Event) -> Iterator[Step]:
    """Yield the line that gave what a load is called on the name of another object."""
    called_on, loads, _ = history.site_of(event).expression.partition(".load_state_dict")
    filled = history.get(Holding).fillings.anywhere(called_on) if loads else []
    plain = [one for one in filled if one.site.expression.replace(".", "").isidentifier()]
    if len(plain) == 1:
        said = say("from {code} on `{name}` is the other one", code=Code(plain[0].site),
                   name=called_on)  # fmt: skip
        yield Step("shared", plain[0].site, said)


VERDICT = Verdict(
    slug="values-lost",
    severity="warning",
    summary="values that were computed to be written somewhere are nowhere",
    page=PAGE,
    check=check,
    damage="wrong result",
    examples=(
        Example(
            "Messages summed up by +=",
            """import torch

total = torch.zeros(3)
index = torch.tensor([0, 0, 2])
values = torch.tensor([1.0, 2.0, 3.0])
total[index] += values
print(total)
""",
            (Expected("values-lost", "total", 6),),
        ),
        Example(
            "Weights written into the tensors of a state, or loaded when it is changed",
            """import torch
from torch import nn

net = nn.Linear(3, 2)
net.state_dict()["bias"].copy_(torch.zeros(2))
net.state_dict()["bias"] += 1
state = net.state_dict()
state["weight"] = state["weight"] * 0.5
net.load_state_dict(state)
kept = net.state_dict()
kept["epoch"] = 3
torch.save(kept, "/dev/null")
""",
        ),
    ),
)
