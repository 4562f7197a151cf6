"""A second name that was to keep the old values, as claims: part of `alias-write`.

``labels = ids`` copies nothing. A write in place through one of the two names changes what the
other one shows, and where both are used below it they were meant to be two.
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
    for new, old in ((other, by), (by, other)):
        fill = _given(history, act, new)
        if fill is not None and fill.site.expression == old.name:
            severity: Severity = "warning" if old is by else "note"
            yield _claim(history, act, (new.name, old.name, fill), severity)


def _goes_on(history: History, act: HeldAct, name: str) -> bool:
    """Whether the function goes on with a name below the write, or calls a method that reads it."""
    line = history.site_of(history.events[act.write])
    if used_below(history.get(Surroundings).source(line.file), line, name):
        return True
    reads = history.get(Holding).reads_of(act.tensor)
    sites = (history.site_of(history.events[at]) for at, _ in reads if at > act.write)
    return any(
        one.scope == line.scope and one.line > line.line and one.expression.startswith(f"{name}.")
        for one in sites
    )


def _given(history: History, act: HeldAct, new: Holder) -> Fill | None:
    """Return the line above a write that gave a variable what it is."""
    write = history.site_of(history.events[act.write])
    above = [
        one
        for one in history.get(Holding).fillings.of(write.file, new.function, new.name)
        if one.target == new.name and one.how != "closure" and one.site.line < write.line
    ]
    last = max(above, key=lambda one: one.site.line, default=None)
    return last if last is not None and last.how == "assigned" else None


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
