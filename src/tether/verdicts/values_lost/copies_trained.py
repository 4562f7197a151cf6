"""Copies of a model's parameters that an optimizer trains, where the model itself is used.

`torch.func.stack_module_state(models)` makes new leaves of the parameters of several models. What
an optimizer makes of them is nowhere else: a model that is called afterwards computes with what it
had. Nothing is said where anything reads the copies after the last step (to write them back, to
compute with them, to save them), or where the originals are used only before that, are written or
trained themselves, or where the copies are another module's parameters.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tether.analysis.copies.other_processes import OtherProcesses
from tether.analysis.history import History
from tether.facts import UNKNOWN, Event, OptimizerFact
from tether.finding import At, Claim, Code, Repair, Step, Tensor, Tensors, say
from tether.operations.table import operation

MOST_CALLS = 8
"""Calls between a parameter and a copy of it: stack, detach, a conversion."""


class _TrainedCopies(NamedTuple):
    """An optimizer of copies, and the first use of the originals after its last step."""

    optimizer: OptimizerFact
    copies: tuple[int, ...]
    originals: tuple[int, ...]
    made: int  # the call that read the first originals
    steps: int
    used: int


def claims(history: History) -> Iterator[Claim]:
    """Give one claim for each such optimizer."""
    for number, optimizer in enumerate(history.trace.optimizers if history.whole else ()):
        found = _trained_copies(history, number, optimizer)
        if found is not None:
            yield _claim(history, found)


def _trained_copies(
    history: History, number: int, optimizer: OptimizerFact
) -> _TrainedCopies | None:
    """Return the copies that an optimizer trains, if the originals are used in their place."""
    steps = [history.position(one.at) for one in history.steps if one.optimizer == number]
    made = _all_made(history, optimizer) if steps else {}
    if not made or any(_read_after(history, one, steps[-1]) for one in made):
        return None
    originals = dict.fromkeys(one for at in made.values() for one in _parameters(history, at))
    first, moved = min(made.values()), (_moves(history, one, made) for one in originals)
    used = UNKNOWN if any(moved) else _used(history, tuple(originals), steps[-1])
    if used == UNKNOWN:
        return None
    return _TrainedCopies(optimizer, tuple(made), tuple(originals), first, len(steps), used)


def _all_made(history: History, optimizer: OptimizerFact) -> dict[int, int]:
    """Return for each tensor of an optimizer the call that made it of parameters.

    Nothing where one was not made so, or has become a module's parameter itself.
    """
    made = {int(one): _made_of(history, one) for one in optimizer.tensors}
    other = any(at == UNKNOWN or _in_module(history, one) for one, at in made.items())
    return {} if other else made


def _made_of(history: History, tensor: int) -> int:
    """Return the call that took a tensor's values from parameters of modules; or -1."""
    at = history.made_at(tensor)
    for _ in range(MOST_CALLS):
        if at < 0 or not _keeps_values(history.events[at]):
            return UNKNOWN
        if _parameters(history, at):
            return at
        at = history.made_at(history.events[at].reads[0].tensor)
    return UNKNOWN


def _keeps_values(event: Event) -> bool:
    """Whether a call gives the elements that it is given, all of them or side by side."""
    row = operation(event.operation)
    kept = row.copies or row.joins or row.outside or row.rebuilds or row.own_counter
    return bool(kept) and bool(event.reads) and not event.writes


def _parameters(history: History, at: int) -> list[int]:
    """Return what a call reads, if all of it is parameters of modules."""
    reads = [int(one.tensor) for one in history.events[at].reads]
    return reads if all(_in_module(history, one) for one in reads) else []


def _in_module(history: History, tensor: int) -> bool:
    """Whether a tensor is a parameter of a module."""
    named = any(one.module for one in history.facts_of_names(tensor))
    return named and history.is_parameter(tensor)


def _read_after(history: History, tensor: int, last: int) -> bool:
    """Whether anything reads a copy after a step, or may save it."""
    operand = history.operand_of(tensor)
    for at in history.on_storage(operand) if operand is not None else ():
        row = operation(history.events[at].operation)
        if at > last and (row.carries or row.leaves) and history.events[at].reads:
            return True
    saves = history.events.where("save".__eq__)
    return operand is None or any(at > last for at, _ in saves)


def _moves(history: History, tensor: int, made: dict[int, int]) -> bool:
    """Whether a parameter is trained itself, or given other values after copies were made."""
    operand = history.operand_of(tensor)
    replaced = any(tensor in (one.old, one.new) for one in history.trace.reassigned)
    if operand is None or replaced or tensor in history.held:
        return True
    unseen = any(one.storage == operand.storage for one in history.trace.unseen)
    return unseen or history.get(OtherProcesses).written(operand, min(made.values()))


def _used(history: History, tensors: tuple[int, ...], last: int) -> int:
    """Return the first call after a step that computes with one of some parameters; or -1."""
    reads = {at for one in tensors for at in history.reads_of(one) if at > last}
    return next((at for at in sorted(reads) if _computes(history.events[at])), UNKNOWN)


def _computes(event: Event) -> bool:
    """Whether a call makes other values of what it is given."""
    carries = operation(event.operation).carries and not event.raised
    return carries and not _keeps_values(event) and not event.shows(event.reads[0])


def _claim(history: History, found: _TrainedCopies) -> Claim:
    made, used = history.events[found.made], history.events[found.used]
    parts = {
        "kind": found.optimizer.kind, "line": At(found.optimizer.site), "code": Code(made.site),
        "made": At(made.site), "x": Tensors(found.originals), "used": At(used.site),
        "n": f"{found.steps:,}", "one": Tensor(found.originals[0]),
    }  # fmt: skip
    return Claim(
        tensors=found.copies,
        cause=("copies trained", found.optimizer.site),
        site=made.site,
        operation=made.operation,
        severity="note",
        message=say(
            "{kind} ({line}) trains copies that {code} ({made}) makes of {x}. After the last of its"
            " {n} steps nothing reads the copies, and {used} computes with the originals, which"
            " have the values that they had before the training.",
            **parts,
        ),
        story=(
            Step("made", made.site, say("copies of {one} and others are made here", **parts)),
            Step("step", found.optimizer.site, say("an optimizer is given the copies", **parts)),
            Step("used", used.site, say("{one} is used, as it was", **parts)),
        ),
        repair=Repair(say("After the training write the copies back into the parameters, under"
                          " torch.no_grad(): parameter.copy_(copy). Or compute with the copies.")),
        count=found.steps,
        calls=(found.made,),
    )  # fmt: skip
