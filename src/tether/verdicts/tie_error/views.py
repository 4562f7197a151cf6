"""Views that nobody may write: of backward hooks, of custom Functions, of several views at once."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from tether.analysis.history import History
from tether.facts import GRAD_ON, UNKNOWN, BackwardHooked, Operand, Raised
from tether.finding import At, CallOf, Repair, Segment, Sentence, Step, Tensor, named, say

_VIEW = re.compile(r"is a view and is being modified inplace|view was created")
_OF_A_FUNCTION = re.compile(r"created inside a custom Function")
_OFF = re.compile(r"created in no_grad mode")
_MOST_VIEWS = 16  # one of another, that are followed
_SEVERAL = re.compile(r"returns multiple views|unbind|iterat")


def made_in_no_grad(fact: Raised) -> bool:
    """Whether an error says that a view was made while gradients were off."""
    return _OFF.search(fact.message) is not None


def hooks_of(history: History, fact: Raised, operand: Operand) -> list[BackwardHooked]:
    """Return the hooks on modules for which PyTorch had made the view that was to be written."""
    at = _function(history, fact, operand)
    hooks = history.trace.backward_hooks
    return [one for one in hooks if at >= 0 and history.position(one.event) == at]


def _function(history: History, fact: Raised, operand: Operand) -> int:
    """Return the call of a custom Function that returned a view, or what it is a view of; or -1."""
    if not _OF_A_FUNCTION.search(fact.message):
        return UNKNOWN
    tensor, until = operand.tensor, history.position(fact.at)
    applied = [
        at
        for at in history.on_storage(operand)
        if at < until and history.events[at].operation == "apply"
    ]
    for _ in range(_MOST_VIEWS):
        found = [at for at in applied if _among(tensor, history.events[at].results)]
        at = history.made_at(tensor)
        if found or at < 0:
            return found[-1] if found else UNKNOWN
        shown = (one for one in history.events[at].reads if one.storage == operand.storage)
        tensor = next((one.tensor for one in shown if one.tensor != tensor), tensor)
    return UNKNOWN


def _among(tensor: int, operands: Iterable[Operand]) -> bool:
    return any(one.tensor == tensor for one in operands)


def told_of_hooks(history: History, fact: Raised, operand: Operand) -> Iterator[Step]:
    """Yield the lines that registered those hooks."""
    for one in hooks_of(history, fact, operand):
        said = say("this line registers a backward hook on {module}", module=_hooked(one))
        yield Step("hooked", one.registered, said)


def why_view(
    history: History, fact: Raised, operand: Operand | None
) -> tuple[Sentence, Repair] | None:
    """Say which view it was that could not be written, and what to do; None for other errors."""
    if operand is None or not _VIEW.search(fact.message):
        return None
    if made_in_no_grad(fact):
        return _of_no_grad(history, operand)
    hooks = hooks_of(history, fact, operand)
    if hooks:
        return _of_a_hook(hooks[0])
    at = _function(history, fact, operand)
    if at >= 0:
        return _of_a_function(history, at)
    return _of_several(history, operand) if _SEVERAL.search(fact.message) else None


def _hooked(one: BackwardHooked) -> Segment:
    if one.every:
        return Segment("every module")
    return named(one.module) if one.module else Segment(f"a {one.on}", "name")


def _of_a_hook(one: BackwardHooked) -> tuple[Sentence, Repair]:
    hooked, line = _hooked(one), At(one.registered)
    why = say(
        "for the backward hook on {module} (registered at {line}) PyTorch passed the values of"
        " {subject} on as a view, and no call may write that in place.", module=hooked, line=line,
    )  # fmt: skip
    fix = say(
        "Write out of place (`inplace=False` where a module writes); or hook the tensor instead of"
        " the module: call `output.register_hook(...)` in a forward hook."
    )
    return why, Repair(fix)


def _of_a_function(history: History, at: int) -> tuple[Sentence, Repair]:
    event = history.events[at]
    function = named(event.detail)
    why = say(
        "{subject} shows a view that {function} returned at {line}, and a write in place would go"
        " past the backward of {function}.", function=function, line=At(event.site),
    )  # fmt: skip
    fix = say(
        "Write out of place, or into `{subject!s}.clone()`; or let the forward of {function}"
        " return a clone.", function=function,
    )  # fmt: skip
    return why, Repair(fix)


def _of_no_grad(history: History, operand: Operand) -> tuple[Sentence, Repair]:
    at = _base(history, operand)
    where = say("") if at < 0 else say(" at {line}", line=At(history.events[at].site))
    why = say(
        "{subject} is a view that was made{where} while gradients were off, and the call writes it"
        " while they are on.", where=where,
    )  # fmt: skip
    fix = say(
        "Make the view with gradients on, or write under torch.no_grad() as well: both belong on"
        " one side."
    )
    return why, Repair(fix)


def _base(history: History, operand: Operand) -> int:
    """Return the call that made a tensor while gradients were off, or -1."""
    at = history.made_at(operand.tensor)
    return at if at >= 0 and history.events[at].grad_mode != GRAD_ON else -1


def _of_several(history: History, operand: Operand) -> tuple[Sentence, Repair] | None:
    at = history.made_at(operand.tensor)
    several = at >= 0 and len(history.events[at].results) > 1
    if not several:
        return None
    whole = next((one for one in history.events[at].reads if one.storage == operand.storage), None)
    if whole is None:
        return None
    why = say(
        "{subject} is one of several views that {call} gave at {line}, and none of those may be"
        " written in place.", call=CallOf(at), line=At(history.events[at].site),
    )  # fmt: skip
    fix = say(
        "Write out of place, or take each part by an index of its own (`{whole!s}[...]`): such a"
        " view may be written.", whole=Tensor(whole.tensor),
    )  # fmt: skip
    return why, Repair(fix)
