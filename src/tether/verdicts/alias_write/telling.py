"""What the claims of `alias-write` have in common: the line of the write, and the places' lines."""

from __future__ import annotations

import keyword
from collections.abc import Iterator
from dataclasses import replace

from tether.analysis.history import History
from tether.analysis.libraries import hands_out_state, takes_state_in
from tether.analysis.sharing.fillings import put_at
from tether.analysis.sharing.holding import HeldAct, Holding, first_word
from tether.facts import Holder, Site
from tether.finding import Action, At, CallOf, Claim, Code, Repair, Segment, Step, Tensor, say
from tether.operations.table import operation
from tether.source.handing import given_back
from tether.source.names import steps_in
from tether.source.syntax import source_of

_LOOKED_AT = 8
"""Tensors of a claim whose lines are looked for: those of a loop come from one line or two."""


def written(history: History, write: int) -> Step:
    """Return the step of a story at which the shared memory is written."""
    return Step("written", history.events[write].site, say("written by {call}", call=CallOf(write)))


def module_of(history: History, at: int) -> str:
    """Return the class of the library's module whose forward made a call; "" for none."""
    event = history.events[at]
    inner = history.site(event.inner) if event.inner >= 0 else Site("", 0)
    owner, _, method = inner.function.rpartition(".")
    return owner if method == "forward" and not inner.user else ""


def second_name(history: History, act: HeldAct) -> tuple[Step, ...]:
    """Return the line that gave what was written the name by which it was written, if there is."""
    name = "" if act.by is None else first_word(act.by.name)
    return tuple(
        Step("shared", fill.site, say("from {code} on `{name}` is the same tensor",
             code=Code(fill.site), name=name))
        for fill in history.get(Holding).bound(act)
    )  # fmt: skip


def with_more_lines(history: History, claim: Claim) -> Claim:
    """Add the lines that keep a tensor of a claim in a container, or returned it from inside one.

    And, before the others, the lines that gave it a second plain name. A story tells which call
    shares; the line to change may be one that passed the tensor on.
    """
    told = {history.site(one.site) if isinstance(one.site, int) else one.site
            for one in claim.story}  # fmt: skip
    first = [one for one in _naming(history, claim) if one.site not in told]
    steps = [*_returning(history, claim), *_keeping(history, claim)]
    steps = [one for one in steps if one.site not in told]
    return replace(claim, story=(*first, *claim.story, *steps)) if first or steps else claim


def _naming(history: History, claim: Claim) -> Iterator[Step]:
    """Give the lines that made a variable, of which a claim speaks, a second name: ``raw = x``."""
    spoken = _spoken_of(history, claim)
    seen: dict[tuple[str, str], Holder] = {}
    for one in history.trace.holders:
        if one.kind == "variable" and one.tensor in claim.tensors and one.name in spoken:
            seen.setdefault((one.function, one.name), one)
    for one in seen.values():
        fill = _only_fill(history, one)
        if fill is not None and _is_name(history, one, fill.expression):
            said = say("from here on `{name}` is the same tensor as {code}", name=one.name,
                       code=Code(fill))  # fmt: skip
            yield Step("shared", fill, said)


def _spoken_of(history: History, claim: Claim) -> set[str]:
    """Return the names that a claim uses: in its message, or for its subject."""
    parts = claim.message.parts.values()
    names = [history.name_of(one.number) for one in parts if isinstance(one, Tensor)]
    names += [one for one in parts if isinstance(one, str)]
    return {one.strip("`") for one in (*names, claim.subject, *claim.also)}


def _only_fill(history: History, held: Holder) -> Site | None:
    """Return what the text assigns to a variable, if nothing else does but constants."""
    filled = history.get(Holding).filled(held)
    found = [one for one in filled if one.target == held.name and one.how != "closure"
             and not keyword.iskeyword(one.site.expression)]  # fmt: skip
    return found[0].site if len(found) == 1 and found[0].how == "assigned" else None


def _is_name(history: History, held: Holder, text: str) -> bool:
    """Whether a text is a variable, or an attribute by which a tensor was seen to be reached."""
    paths = (one.name for one in history.trace.holders
             if (one.tensor, one.function) == (held.tensor, held.function))  # fmt: skip
    return text.isidentifier() or text in paths


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


def copied(history: History, shared: int, subject: str) -> Repair:
    """Return the repair of a call that shares memory: a copy, in the way that fits the call."""
    event = history.events[shared]
    row = operation(event.operation)
    action: Action = ""
    if takes_state_in(history, event):
        text = (
            "With assign=True the parameters are made on the memory of what is loaded: leave it"
            " out at {line}, or load a copy, copy.deepcopy(...) of the state."
        )
    elif hands_out_state(history, event):
        action = "deep copy"
        text = "Copy it at {line}: `copy.deepcopy({code!s})`, or `tether.copy({code!s})`."
    elif row.wraps:
        text = (
            "Start from a copy at {line}: `nn.Parameter(t.detach().clone())`; to tie the two on"
            " purpose, assign the same Parameter object to both."
        )
    elif event.operation == "data.__set__" and event.inner != event.site:
        text = "Hand over a copy at {line}: `{name!s}.clone()`."
    elif event.operation == "data.__set__":
        text = "Copy the values at {line}: `target.data.copy_(source.data)`, or load_state_dict."
    elif row.enters and row.own_counter:
        text = "Copy at {line}: `torch.tensor(...)`, or `{code!s}.clone()`."
    elif row.leaves == "array":
        text = "Copy at {line}: `{code!s}.copy()`, or `tether.copy({name!s}, to='numpy')`."
    else:
        text = "Copy at {line}: `{code!s}.clone()`, or tether.copy(...)."
    name = Segment(subject, "name")
    code = Code(event.site) if history.site_of(event).expression else name
    return Repair(say(text, line=At(event.site), code=code, name=name), action)
