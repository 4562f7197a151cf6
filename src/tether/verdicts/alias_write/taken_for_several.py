"""One thing that a program takes for several: part of `alias-write`.

Clients that are to train a copy each and have one model, whose parameters are averaged with
themselves; as many optimizers of one set of parameters as there are clients.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

from tether.analysis.history import History
from tether.analysis.holding import Holding
from tether.analysis.shared_memory import Sharing
from tether.facts import Event, Site
from tether.finding import At, CallOf, Claim, Code, Repair, Step, Tensor, say
from tether.operations.table import operation
from tether.source.syntax import expression
from tether.verdicts.alias_write.telling import written

_Comprehension = (ast.ListComp, ast.GeneratorExp)


def taken_for_several(history: History) -> Iterator[Claim]:
    """Yield the claims, one function for each law."""
    yield from _joined(history)
    yield from _in_turn(history)


# -- joined with itself --------------------------------------------------------------------------


def _joined(history: History) -> Iterator[Claim]:
    """Find a line that joins what a loop over several things gives, and that is one memory.

    It was written while the things were there: else they may well be equal.
    """
    told: set[int] = set()
    for at, event in history.events.where(lambda name: operation(name).joins == "new"):
        if event.site in told or event.raised or not _are_one(event):
            continue
        memory = history.flow.memory(event.reads[0])
        writes = [
            one.at for one in history.get(Sharing).writes.get(memory, ())
            if one.at < at and history.events[one.at].operation == "step"
        ]  # fmt: skip
        if len(writes) > 1 and _over_several(history.site_of(event)):
            told.add(event.site)
            yield _joined_claim(history, at, writes[-1])


def _are_one(event: Event) -> bool:
    """Whether all that a call joins are the same elements."""
    first = event.reads[0] if len(event.reads) > 1 else None
    return first is not None and all(
        one.storage == first.storage and one[3:6] == first[3:6] for one in event.reads
    )


def _over_several(site: Site) -> bool:
    """Whether what is joined is computed from the variable of a loop: of each thing another."""
    call = expression(site.expression)
    given = call.args[:1] if isinstance(call, ast.Call) else []
    for one in given:
        if isinstance(one, _Comprehension):
            target = {n.id for n in ast.walk(one.generators[0].target) if isinstance(n, ast.Name)}
            return any(isinstance(n, ast.Name) and n.id in target for n in ast.walk(one.elt))
    return False


def _joined_claim(history: History, at: int, write: int) -> Claim:
    event, done = history.events[at], history.events[write]
    tensor = event.reads[0].tensor
    shown = (tensor, *(link.source for link in history.get(Sharing).chain(tensor)))
    owner = next((one for one in reversed(shown) if history.names_of(one)), shown[-1])
    return Claim(
        tensors=(owner,),
        cause=("joined", event.site),
        site=event.site,
        operation=event.operation,
        message=say(
            "{call} at {line} joins {n} tensors that are all {x}: what it takes them from has one"
            " tensor, which {step} at {write} trains for all.",
            call=CallOf(at), line=At(event.site), n=len(event.reads), x=Tensor(owner),
            step=CallOf(write), write=At(done.site),
        ),
        story=(
            *_put_at(history, owner),
            written(history, write),
            Step("read", event.site, say("{code} reads the same elements {n} times",
                 code=Code(event.site), n=len(event.reads))),
        ),
        repair=Repair(say("Give each its own: copy.deepcopy(...) of the model, or of the state that"
                          " is kept.")),
    )  # fmt: skip


def _put_at(history: History, tensor: int) -> Iterator[Step]:
    """Yield the line that put a tensor, or what it is in, into one of many places."""
    for one in history.trace.holders:
        if one.tensor == tensor and one.kind != "variable" and any(c.isdigit() for c in one.name):
            filled = history.get(Holding).filled(one)
            if filled:
                text = say("`{name}` is filled here", name=filled[-1].target)
                yield Step("shared", filled[-1].site, text)
                return


# -- stepped in turn -----------------------------------------------------------------------------


def _in_turn(history: History) -> Iterator[Claim]:
    """Find optimizers that one line made of the same parameters, and that step them in turn."""
    groups: dict[tuple[int, frozenset[int]], list[int]] = defaultdict(list)
    for number, fact in enumerate(history.trace.optimizers):
        groups[fact.site, frozenset(fact.tensors)].append(number)
    for (_, tensors), numbers in groups.items():
        steps = [one for one in history.steps if one.optimizer in numbers]
        order = [one.optimizer for one in steps]
        again = any(a != b and a in order[n + 2 :] for n, (a, b) in enumerate(pairwise(order)))
        if again and tensors:
            yield _in_turn_claim(history, numbers, sorted(tensors), steps[0].site)


def _in_turn_claim(history: History, numbers: list[int], tensors: list[int], step: int) -> Claim:
    made = history.trace.optimizers[numbers[0]]
    names = [history.name_of(one).strip("`") for one in tensors[:2]]
    return Claim(
        tensors=tuple(tensors),
        cause=("in turn", made.site),
        site=made.site,
        operation="step",
        severity="note",
        subject=names[0],
        message=say(
            "{line} made {n} optimizers of one and the same parameters, {name} and the others, and"
            " {step} steps with one after the other: each begins with what the one before left.",
            line=At(made.site), n=len(numbers), name=f"`{names[0]}`", step=At(step),
        ),
        story=(
            *_put_at(history, tensors[0]),
            Step("made", made.site, say("an optimizer for each, of the same parameters")),
            Step("written", step, say("stepped by one after the other")),
        ),
        repair=Repair(say("If each is to train weights of its own, give each a copy of the model:"
                          " copy.deepcopy(model).")),
        count=0,
    )  # fmt: skip
