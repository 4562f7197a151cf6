"""What the claims of `alias-write` have in common: the line of the write, and the places' lines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tether.analysis.fillings import put_at
from tether.analysis.history import History
from tether.analysis.holding import HeldAct, Holding, root_of
from tether.analysis.shared_memory import container
from tether.facts import Site
from tether.finding import At, CallOf, Claim, Code, Repair, Step, say
from tether.operations.table import operation
from tether.source.handing import given_back
from tether.source.names import steps_in
from tether.source.syntax import source_of

_LOOKED_AT = 8
"""Tensors of a claim whose lines are looked for: those of a loop come from one line or two."""


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


def with_more_lines(history: History, claim: Claim) -> Claim:
    """Add the lines that keep a tensor of a claim in a container, or returned it from inside one.

    A story tells which call shares; the line to change may be one that passed the tensor on.
    """
    told = {history.site(one.site) if isinstance(one.site, int) else one.site
            for one in claim.story}  # fmt: skip
    steps = [*_returning(history, claim), *_keeping(history, claim)]
    steps = [one for one in steps if one.site not in told]
    return replace(claim, story=(*claim.story, *steps)) if steps else claim


def _keeping(history: History, claim: Claim) -> Iterator[Step]:
    """Give the lines that put a tensor of a claim into a container."""
    sites = (put_at(history, one) for one in claim.tensors[:_LOOKED_AT])
    for site in dict.fromkeys(one for one in sites if one is not None):
        yield Step("kept", site, say("put into a container here"))


def _returning(history: History, claim: Claim) -> Iterator[Step]:
    """Give the lines that return the shared tensor from an attribute by which it was reached."""
    attributes = _attributes(history, claim.tensors)
    text = history.trace.sources if attributes else {}
    sources = {file: source_of(file, text[file]) for file in text}
    found: dict[Site, None] = {}
    for step in claim.story if attributes else ():
        if step.role == "shared":
            line = history.site(step.site) if isinstance(step.site, int) else step.site
            found.update(dict.fromkeys(given_back(sources, line, attributes)))
    for one in found:
        yield Step("shared", one, say("the tensor itself is returned here"))


def _attributes(history: History, tensors: tuple[int, ...]) -> set[str]:
    """Return the attributes by which some tensors were reached."""
    names = [name for one in tensors for name in history.names_of(one)]
    names += [one.name for one in history.trace.holders if one.tensor in tensors]
    return {_attribute(name) for name in names} - {""}


def _attribute(name: str) -> str:
    """Return the attribute that a name ends with, whatever part of it is taken."""
    steps = [one for one in steps_in(name) if not one.startswith("[")]
    return steps[-1].removeprefix(".") if steps and steps[-1].startswith(".") else ""


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
