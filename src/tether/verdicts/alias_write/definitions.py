"""What a definition holds, and what a shallow copy of a model does: part of `alias-write`.

A default argument and an attribute of a class are made once; each call, each instance has the same
tensor. `copy.copy` of a module makes a second object with the parameters of the first.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from itertools import combinations
from typing import NamedTuple

from tether.analysis.history import History
from tether.analysis.sharing.holding import HeldAct, Holding, first_word, written_text
from tether.analysis.sharing.shared_memory import onto_itself
from tether.facts import UNKNOWN, Holder, Name, SiteId, TensorId
from tether.finding import At, Claim, Code, Repair, Step, Where, named, say
from tether.operations.table import operation
from tether.source.filling import Fill, mentions
from tether.source.names import container_of, steps_in
from tether.verdicts.alias_write.definition_owners import moved_at
from tether.verdicts.alias_write.telling import written


def definitions(history: History) -> Iterator[Claim]:
    """Yield the claims, one function for each law."""
    yield from _defaults(history)
    yield from _shallow_models(history)


# -- made once -----------------------------------------------------------------------------------


def _defaults(history: History) -> Iterator[Claim]:
    """Find tensors of a definition that were written in place by the code it was made for."""
    found: dict[int, tuple[HeldAct, Holder]] = {}
    for act in history.get(Holding).all:
        defaults = [one for one in act.others if one.kind == "default"]
        if defaults:  # a dataclass has it twice: in its __init__ as well
            found[act.tensor] = act, max(defaults, key=_of_class)
    for tensor, (act, default) in found.items():
        of_class = _of_class(default)
        writes = list(_writes(history, tensor, default.name if of_class else ""))
        needed = 1 if of_class and act.read >= 0 else 2
        if history.made_at(tensor) < 0 or len(writes) < needed:
            continue
        # One model may have a parameter that a function made: where two have it,
        # `shared_by_definition` tells.
        if _of_two(history, tensor) if of_class else not moved_at(history, tensor):
            yield _default_of_one(history, act, default, writes[-1])


def _of_class(default: Holder) -> bool:
    return any(step.startswith(".") for step in steps_in(default.name))


def _writes(history: History, tensor: int, name: str) -> Iterator[int]:
    """Yield the writes to a tensor, those left out that call it by the name of its class."""
    operand, made = history.operand_of(tensor), history.made_at(tensor)
    meant = re.compile(rf"\b(?:{re.escape(first_word(name))}|cls|__class__)\.") if name else None
    for at in () if operand is None else history.writes_to(operand, made):
        event = history.events[at]
        site = history.site_of(event)
        anew = operation(event.operation).overwrites and not event.reads[1:]
        if site.user and not anew and (meant is None or meant.search(site.expression) is None):
            yield at


def _of_two(history: History, tensor: int) -> bool:
    """Whether two instances hold the tensor of a class."""
    names = history.names_of(tensor)
    return len({name.rpartition(".")[0] for name in names if "." in name}) > 1


def _default_of_one(history: History, act: HeldAct, default: Holder, write: int) -> Claim:
    made, of_class = history.events[history.made_at(act.tensor)], _of_class(default)
    inside = container_of(default.name) if "[" in default.name else ""
    names = [one for one in history.names_of(act.tensor) if "." in one]
    subject = max(names, key=lambda one: (one.count("."), names.index(one))) if of_class else ""
    return Claim(
        tensors=(act.tensor,),
        cause=("default", made.site),
        site=made.site,
        operation="default",
        severity="note" if inside else None,  # a function may keep its state in one on purpose
        subject=subject or default.name,
        also=tuple(names),
        message=say(
            "The default `{name}` is one tensor for all {who}, and {line} writes it in place: later"
            " ones start from what earlier ones left.",
            name=default.name, who="instances" if of_class else "calls",
            line=At(history.events[write].site),
        ),
        story=(
            Step("shared", made.site, say("made once, when the definition is run")),
            written(history, write),
        ),
        repair=Repair(
            say("Make it for each instance: in __init__, or field(default_factory=lambda: {code}).",
                code=Code(made.site))
            if of_class
            else say("Use `{name}=None`, and make {code} inside the function.",
                     name=inside or default.name, code=Code(made.site))
        ),
        count=1,
        calls=(history.made_at(act.tensor),),
    )  # fmt: skip


# -- two models that are one ---------------------------------------------------------------------


class _Twins(NamedTuple):
    """Two names of modules, below which the same paths lead to the same parameters."""

    one: str
    other: str
    tensors: tuple[TensorId, ...]
    apart: bool  # the modules that hold them are other objects


def _shallow_models(history: History) -> Iterator[Claim]:
    """Find two names of modules that have each parameter in common, and were meant to be two.

    One was made as a copy of the other; or a line copies the values of one to the other.
    """
    seen: set[tuple[TensorId, ...]] = set()
    for tensor in sorted(history.held):
        for twins in _twins(history, tensor) if history.steps_of(tensor) else ():
            if twins.tensors in seen or tensor not in twins.tensors:
                continue
            claim = _meant_as_two(history, twins)
            if claim is not None:
                seen.add(twins.tensors)
                yield claim


def _meant_as_two(history: History, twins: _Twins) -> Claim | None:
    turned = twins._replace(one=twins.other, other=twins.one)
    for one in (twins, turned):
        fill = _copied(history, one)
        if fill is not None:
            return _one_model(history, one, fill, UNKNOWN)
    copy = _copies_nothing(history, twins)
    if copy == UNKNOWN:
        return None
    event = history.events[copy]
    written = written_text(history.site_of(event), event)
    return _one_model(history, turned if _ends_alike(written, twins.other) else twins, None, copy)


def _twins(history: History, tensor: int) -> Iterator[_Twins]:
    """Yield the pairs of modules that a parameter has two names through."""
    inside = {fact.name for fact in history.trace.names if fact.tensor == tensor and fact.module}
    names = [name for name in history.names_of(tensor) if name in inside]
    for first, second in combinations(names, 2):
        pair = _differ_once(first, second)
        if pair is None:
            continue
        mine, theirs = (_parameters(history, one) for one in pair)
        shared = tuple(_shown(mine).values())
        if _shown(mine) == _shown(theirs):
            holders = [(fact.holder, theirs[path].holder) for path, fact in mine.items()]
            yield _Twins(*pair, shared, all(UNKNOWN != x != y for x, y in holders))


def _shown(parameters: dict[str, Name]) -> dict[str, TensorId]:
    return {path: fact.tensor for path, fact in parameters.items()}


def _differ_once(first: str, second: str) -> tuple[str, str] | None:
    """Return what two names begin with, up to the one step in which they differ."""
    a, b = steps_in(first), steps_in(second)
    differ = [n for n, (x, y) in enumerate(zip(a, b, strict=False)) if x != y]
    if len(a) != len(b) or len(differ) != 1:
        return None
    last = differ[0] + 1
    return "".join(a[:last]), "".join(b[:last])


def _parameters(history: History, module: str) -> dict[str, Name]:
    """Return the parameters below the name of a module: path -> its first name."""
    found: dict[str, Name] = {}
    for name in history.trace.names:
        if name.module and name.name.startswith(f"{module}."):
            found.setdefault(name.name.removeprefix(module), name)
    return found


def _copied(history: History, twins: _Twins) -> Fill | None:
    """Return the line that made one of two modules of the other."""
    of = steps_in(twins.other)[-1].lstrip(".")
    copied = re.compile(rf"(?:copy\.)?copy\((?:[\w.]+\.)?{re.escape(of)}\)")
    # Where modules are inside, those are in both: then the call says that the outer one is another.
    called = re.compile(rf".*\((?:[\w.]+\.)?{re.escape(of)}\)")
    for fill in _filled(history, twins):
        text = fill.site.expression
        variable = twins.apart and len(steps_in(twins.one)) == 1
        if copied.fullmatch(text) or (variable and called.fullmatch(text)):
            return fill
    return None


def _filled(history: History, twins: _Twins) -> list[Fill]:
    """Return the lines that give the first of two modules its name."""
    fillings = history.get(Holding).fillings
    found = {
        fill
        for one in history.trace.sites
        if one.user
        for fill in fillings.of(*one.scope, twins.one)
        if fill.how == "assigned" and _ends_alike(fill.target, twins.one)
    }
    by_name = [one for one in found if _ends_alike(one.site.expression, twins.other)]
    return sorted(by_name or found)


def _ends_alike(target: str, name: str) -> bool:
    return steps_in(target)[-1].lstrip(".") == steps_in(name)[-1].lstrip(".")


def _copies_nothing(history: History, twins: _Twins) -> int:
    """Return a call whose line copies all the parameters that it copies onto themselves, or -1.

    It names the two apart, and does so after they were trained. Before that, when the name still
    led to a model of its own, it may have copied them into that.
    """
    stepped = _stepped(history, twins)
    copies: dict[SiteId, list[int]] = defaultdict(list)
    for at, event in history.events.where("copy_".__eq__):
        copies[event.site].append(at)
    for calls in copies.values() if len(steps_in(twins.one)) > 1 else ():
        theirs = any(one.tensor in twins.tensors for one in history.events[calls[-1]].writes)
        after = theirs and stepped < calls[-1]
        nothing = after and all(onto_itself(history, at) for at in calls if at > stepped)
        if nothing and _names_two(history, calls[-1]):
            return calls[-1]
    return UNKNOWN


def _stepped(history: History, twins: _Twins) -> int:
    """Return the first step of what two modules share."""
    return min(at for one in twins.tensors for at in history.steps_of(one)[:1])


def _names_two(history: History, copy: int) -> bool:
    """Whether the line of a copy calls target and source by two names, and keeps neither."""
    event = history.events[copy]
    site = history.site_of(event)
    receiver = written_text(site, event)
    if not receiver or mentions(site.expression.replace(receiver, "", 1), receiver):
        return False
    made = history.made_at(event.reads[1].tensor)
    return made < 0 or _one_statement(history, made, copy)


def _one_statement(history: History, one: int, other: int) -> bool:
    """Whether two calls stand in one statement: what was copied was not kept in between."""
    a, b = (history.site_of(history.events[at]) for at in (one, other))
    return a.file == b.file and b.line <= a.line <= (b.end_line or b.line)


def _one_model(history: History, twins: _Twins, fill: Fill | None, copy: int) -> Claim:
    write = history.events[_stepped(history, twins)]
    filled = [fill] if fill is not None else _filled(history, twins)
    since: Where = filled[0].site if filled else history.events[copy].site
    story = [Step("written", write.site, say("{one} is trained", one=named(twins.other)))]
    message = say(
        "`{one}` is a shallow copy of `{other}` ({line}): their {count} parameters and buffers"
        " are the same tensors, and {write} writes them.",
        one=twins.one, other=twins.other, line=At(since), count=str(len(twins.tensors)),
        write=At(write.site),
    )  # fmt: skip
    if fill is None:
        message = say(
            "The {count} parameters of `{one}` are those of `{other}`: {copy} copies them onto"
            " themselves, and {write} trains both.",
            one=twins.one, other=twins.other, count=str(len(twins.tensors)),
            copy=Code(history.events[copy].site), write=At(write.site),
        )  # fmt: skip
    if copy != UNKNOWN:
        at = history.events[copy].site
        story.append(Step("read", at, say("copied onto themselves: nothing changes")))
    return Claim(
        tensors=twins.tensors,
        cause=("one model", twins.one, twins.other),
        site=since,
        operation="copy",
        subject=twins.one,
        message=message,
        story=(
            Step("shared", since, say("the object is copied, and none of its tensors")
                 if fill is not None else say("from here on both names lead to the same tensors")),
            *story,
        ),
        repair=Repair(say("Copy the tensors too: {one} = copy.deepcopy({other}).", one=twins.one,
                          other=twins.other)),
    )  # fmt: skip
