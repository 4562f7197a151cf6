"""A second name that was to keep the old values, as claims: part of `alias-write`.

``labels = ids`` copies nothing. A write in place through one of the two names changes what the
other one shows, and where both are used below it they were meant to be two. So are two parameters
of a function that was handed one tensor for both: what works on its `query` in place changes its
`key`.
"""

from __future__ import annotations

from collections.abc import Iterator

from tether.analysis.history import History
from tether.analysis.sharing.holding import HeldAct, Holding
from tether.analysis.surroundings import Surroundings
from tether.facts import Holder
from tether.finding import At, CallOf, Claim, Repair, Severity, Step, named, say
from tether.source.filling import Fill
from tether.source.handing import used_below
from tether.verdicts.alias_write.telling import written


def second_names(history: History) -> Iterator[Claim]:
    """Yield a claim for each write through one of two names of a function that both go on."""
    for act in history.get(Holding).all:
        for other in act.others if act.by is not None and act.read >= 0 else ():
            if act.by is not None and _are_of_one_function(act.by, other):
                yield from _told(history, act, act.by, other)


def _are_of_one_function(by: Holder, other: Holder) -> bool:
    """Whether two places are variables of the function that wrote."""
    return all(one.kind == "variable" and one.depth == 0 for one in (by, other)) and (
        by.function == other.function and by.name != other.name
    )


def _told(history: History, act: HeldAct, by: Holder, other: Holder) -> Iterator[Claim]:
    if not all(_goes_on(history, act, one.name) for one in (by, other)):
        return
    fills = _last_fill(history, act, by), _last_fill(history, act, other)
    if all(fill is not None and fill.how == "parameter" for fill in fills):
        yield _claim_on_parameters(history, act, by, other)
    for fill, new, old in zip(fills, (by, other), (other, by), strict=True):
        if fill is not None and fill.how == "assigned" and fill.site.expression == old.name:
            severity: Severity = "warning" if old is by else "note"
            yield _claim(history, act, (new.name, old.name, fill), severity)


def _goes_on(history: History, act: HeldAct, name: str) -> bool:
    """Whether the function goes on with a name below the write, or calls a method that reads it."""
    line = history.site_of(history.events[act.write])
    if used_below(history.get(Surroundings).source(line.file), line, name):
        return True
    reads = history.get(Holding).reads_of(act.tensor)
    calls = {call for one in reads for call in one if act.write < call < len(history.events)}
    sites = (history.site_of(history.events[at]) for at in calls)
    return any(
        one.scope == line.scope and one.line > line.line and one.expression.startswith(f"{name}.")
        for one in sites
    )


def _last_fill(history: History, act: HeldAct, held: Holder) -> Fill | None:
    """Return the last line above a write that gave a variable what it is."""
    write = history.site_of(history.events[act.write])
    above = (
        one
        for one in history.get(Holding).fillings.of(write.file, held.function, held.name)
        if one.target == held.name and one.how != "closure" and one.site.line < write.line
    )
    return max(above, key=lambda one: one.site.line, default=None)


def _claim(
    history: History, act: HeldAct, names: tuple[str, str, Fill], severity: Severity
) -> Claim:
    """Say that a second name shows what was written; of the old one, in case it was meant."""
    (new, old, fill), write = names, history.events[act.write]
    parts = {"new": named(new), "old": named(old)}
    return Claim(
        tensors=(act.tensor,),
        cause=("second name", fill.site),
        site=fill.site,
        operation=write.operation,
        severity=severity,
        subject=new,
        message=say(
            "{new} is a second name of {old} since {since}, and no copy: {call} at {write} changed"
            " both, and both are used below it.",
            **parts, since=At(fill.site), call=CallOf(act.write), write=At(write.site),
        ),
        story=(
            Step("shared", fill.site, say("from here on both names show one tensor")),
            written(history, act.write),
            Step("read", history.events[act.read].site, say("what was written is read here")),
        ),
        repair=Repair(say("Keep a copy: `{new!s} = {old!s}.clone()`.", **parts)),
    )  # fmt: skip


def _claim_on_parameters(history: History, act: HeldAct, by: Holder, other: Holder) -> Claim:
    """Say that a function was handed one tensor twice: it may be known, so it is a note."""
    write = history.events[act.write]
    parts = {
        "one": named(by.name), "other": named(other.name), "function": named(by.function),
        "call": CallOf(act.write), "write": At(write.site),
    }  # fmt: skip
    return Claim(
        tensors=(act.tensor,),
        cause=("handed twice", by.function, *sorted((by.name, other.name))),
        site=write.site,
        operation=write.operation,
        severity="note",
        subject=by.name,
        also=(other.name,),
        message=say(
            "{function} was handed one tensor as {one} and as {other}: {call} at {write} changed"
            " both, and both are used below it.",
            **parts,
        ),
        story=(
            written(history, act.write),
            Step("read", history.events[act.read].site, say("what was written is read here")),
        ),
        repair=Repair(say("If {other} is to keep its values, hand in a copy, or use the call that"
                          " makes a new tensor at {write}.", **parts)),
    )  # fmt: skip
