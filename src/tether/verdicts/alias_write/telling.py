"""What the claims of `alias-write` have in common: the line of the write, and the places' lines."""

from __future__ import annotations

from tether.analysis.history import History
from tether.analysis.holding import HeldAct, Holding, root_of
from tether.analysis.shared_memory import container
from tether.finding import At, CallOf, Code, Repair, Step, say
from tether.operations.table import operation


def written(history: History, write: int) -> Step:
    """Return the step of a story at which the shared memory is written."""
    return Step("written", history.events[write].site, say("written by {call}", call=CallOf(write)))


def second_name(history: History, act: HeldAct) -> tuple[Step, ...]:
    """Return the line that gave what was written the name by which it was written, if there is."""
    name = "" if act.by is None else root_of(act.by.name)
    return tuple(
        Step("shared", fill.site, say("from {code} on `{name}` is the same tensor",
             code=Code(fill.site), name=name))
        for fill in history.get(Holding).bound(act)
    )  # fmt: skip


def called(history: History, tensors: list[int]) -> str:
    """Return what several tensors lie in, by one name; the first one's, where that is nothing."""
    names = [history.name_of(one) for one in tensors]
    return (container(names) or names[0]).strip("`")


def copied(history: History, shared: int, subject: str) -> Repair:
    """Return the repair of a call that shares memory: a copy, in the way that fits the call."""
    event = history.events[shared]
    code = " ".join(history.site_of(event).expression.split())
    row = operation(event.operation)
    if "load_state_dict" in code:
        text = (
            "With assign=True the parameters are made on the memory of what is loaded: leave it"
            " out at {line}, or load a copy, copy.deepcopy(...) of the state."
        )
    elif "state_dict" in code:
        text = "Copy it at {line}: copy.deepcopy({code}), or tether.copy({code})."
    elif event.operation == "Parameter":
        text = (
            "Start from a copy at {line}: nn.Parameter(t.detach().clone()); to tie the two on"
            " purpose, assign the same Parameter object to both."
        )
    elif event.operation == "data.__set__" and event.inner != event.site:
        text = "Hand over a copy at {line}: {name}.clone()."
    elif event.operation == "data.__set__":
        text = "Copy the values at {line}: target.data.copy_(source.data), or load_state_dict."
    elif row.enters and row.own_counter:
        text = "Copy at {line}: torch.tensor(...), or {code}.clone()."
    elif row.leaves == "array":
        text = "Copy at {line}: {code}.copy(), or tether.copy({name}, to='numpy')."
    else:
        text = "Copy at {line}: {code}.clone(), or tether.copy(...)."
    return Repair(say(text, line=At(event.site), code=code or subject, name=subject))
