"""What a definition holds, and what a shallow copy of a model does: part of `alias-write`.

A default argument and an attribute of a class are made once; each call, each instance has the same
tensor. `copy.copy` of a module makes a second object with the parameters of the first.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator

from tether.analysis.history import History
from tether.analysis.holding import HeldAct, Holding, root_of
from tether.facts import UNKNOWN, Holder, Name
from tether.finding import At, Claim, Code, Repair, Step, say
from tether.operations.table import operation
from tether.source.filling import Fill
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
            found[act.tensor] = act, max(defaults, key=lambda one: "." in one.name)
    for tensor, (act, default) in found.items():
        of_class = "." in default.name
        writes = list(_writes(history, tensor, default.name if of_class else ""))
        needed = 1 if of_class and act.read >= 0 else 2
        if history.made_at(tensor) < 0 or len(writes) < needed:
            continue
        if not of_class or _of_two(history, tensor):
            yield _made_once(history, act, default, writes[-1])


def _writes(history: History, tensor: int, name: str) -> Iterator[int]:
    """Yield the writes to a tensor, those left out that call it by the name of its class."""
    operand, made = history.operand_of(tensor), history.made_at(tensor)
    meant = re.compile(rf"\b(?:{re.escape(root_of(name))}|cls|__class__)\.") if name else None
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


def _made_once(history: History, act: HeldAct, default: Holder, write: int) -> Claim:
    made, of_class = history.events[history.made_at(act.tensor)], "." in default.name
    names = [one for one in history.names_of(act.tensor) if "." in one]
    subject = max(names, key=lambda one: (one.count("."), names.index(one))) if of_class else ""
    return Claim(
        tensors=(act.tensor,),
        cause=("default", made.site),
        site=made.site,
        operation="default",
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
                     name=default.name, code=Code(made.site))
        ),
        count=1,
    )  # fmt: skip


# -- two models that are one ---------------------------------------------------------------------


def _shallow_models(history: History) -> Iterator[Claim]:
    """Find two module objects that have each parameter in common, and were trained."""
    for act in history.get(Holding).all:
        if history.events[act.write].operation != "step":
            continue
        roots = sorted({root_of(one.name) for one in (*act.others, *([act.by] if act.by else []))})
        for other in roots:
            for one in roots:
                copied = _copied(history, act, one, other)
                if copied is not None:
                    yield _one_model(history, act, one, other, copied)


def _copied(history: History, act: HeldAct, one: str, other: str) -> Fill | None:
    """Return the line that made a variable's module of another's, with all of its parameters."""
    mine, theirs = _parameters(history, one), _parameters(history, other)
    pairs = [(fact, theirs.get(path)) for path, fact in mine.items()]
    common = all(b is not None and a.tensor == b.tensor for a, b in pairs)
    if one == other or not common or len(mine) != len(theirs):
        return None
    if act.tensor not in {fact.tensor for fact, _ in pairs}:
        return None
    # Where modules are inside, those are in both: then the call says that the outer one is another.
    apart = all(b is not None and UNKNOWN != a.holder != b.holder for a, b in pairs)
    places = (place for place in act.others if root_of(place.name) in (one, other))
    filled = history.get(Holding).filled(next(places)._replace(name=one))
    texts = (f"copy.copy({other})", f"copy({other})")
    for fill in filled:
        text = fill.site.expression
        if fill.how == "assigned" and (text in texts or (apart and text.endswith(f"({other})"))):
            return fill
    return None


def _parameters(history: History, variable: str) -> dict[str, Name]:
    """Return the parameters of a variable's module: path -> its name."""
    found: dict[str, dict[str, Name]] = history.memo.setdefault("parameters by variable", {})
    if not found:
        groups: dict[str, dict[str, Name]] = defaultdict(dict)
        for name in history.trace.names:
            root = root_of(name.name)
            if name.module:
                groups[root].setdefault(name.name.removeprefix(root), name)
        found.update(groups)
    return found.get(variable, {})


def _one_model(history: History, act: HeldAct, one: str, other: str, fill: Fill) -> Claim:
    write = history.events[act.write]
    tensors = tuple(fact.tensor for fact in _parameters(history, one).values())
    return Claim(
        tensors=tensors,
        cause=("one model", one, other),
        site=fill.site,
        operation="copy",
        subject=one,
        message=say(
            "`{one}` is a shallow copy of `{other}` ({line}): their {count} parameters and buffers"
            " are the same tensors, and {write} writes them.",
            one=one, other=other, line=At(fill.site), count=str(len(tensors)), write=At(write.site),
        ),
        story=(
            Step("shared", fill.site, say("the object is copied, and none of its tensors")),
            written(history, act.write),
        ),
        repair=Repair(say("Copy the tensors too: {one} = copy.deepcopy({other}).", one=one,
                          other=other)),
    )  # fmt: skip
