"""Constants that a function computes once and keeps, changed by who was given them.

``if n not in masks: masks[n] = ...; return masks[n]`` is a cache made by hand. That its value is a
constant is told by the facts: it was computed of plain numbers. A state that is kept in the same
way begins with zeros, or with values of data.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from tether.analysis.history import History
from tether.analysis.sharing.holding import Holding, first_word, written_text
from tether.analysis.sharing.odd_writes import goes_on
from tether.analysis.sharing.shared_memory import Sharing
from tether.analysis.surroundings import Surroundings
from tether.facts import Site, SiteId
from tether.finding import At, CallOf, Claim, Repair, Step, Tensor, say
from tether.operations.table import operation
from tether.source.filling import Fill
from tether.source.reading import deciders
from tether.source.syntax import called, expression
from tether.verdicts.alias_write.telling import written

MOST_BEHIND = 64
"""Calls behind a value that are asked whether it is a constant."""


def computed_once(history: History) -> Iterator[Claim]:
    """Yield a note for each line that changes again and again what a function computed once."""
    lines: dict[tuple[SiteId, int], list[int]] = defaultdict(list)
    column = history.events.column
    own = (column("writes") > 0) & (column("inner") == column("site"))
    steps = history.events.called("step".__eq__)
    for at, event in history.events.at(np.flatnonzero(own & ~steps)):
        if goes_on(history, at, event):
            lines[event.site, history.get(Sharing).owner(event.writes[0].tensor)].append(at)
    for (_, owner), writes in lines.items():
        given = _given(history, owner, writes) if len(writes) > 1 else None
        if given is not None and _is_constant(history, owner):
            yield _claim(history, owner, writes, given)


def _given(history: History, owner: int, writes: list[int]) -> Fill | None:
    """Return the line that is given a tensor, before each write, by the function that made it."""
    made, event = history.made_at(owner), history.events[writes[0]]
    site = history.site_of(event)
    if made < 0 or not site.user:
        return None
    maker = history.site_of(history.events[made])
    name, variable = maker.function.rpartition(".")[2], first_word(written_text(site, event))
    if not variable or variable == "self" or maker.function == site.function:
        return None
    for fill in history.get(Holding).fillings.of(*site.scope, variable):
        value = expression(fill.site.expression)
        asks = isinstance(value, ast.Call) and called(value.func) == name
        if asks and fill.how == "assigned" and _asked_again(history, writes, site, maker, fill):
            source = history.get(Surroundings).source(maker.file)
            return fill if deciders(source, maker.line) else None
    return None


def _asked_again(history: History, writes: list[int], site: Site, maker: Site, fill: Fill) -> bool:
    """Whether between two writes the function was asked once more, as far as calls tell."""
    for first, second in pairwise(writes[:4]):
        between = (history.site_of(history.events[at]) for at in range(first + 1, second))
        if not any(
            one.function == maker.function
            or (one.function == site.function and one.line <= fill.site.line)
            for one in between
        ):
            return False
    return True


def _is_constant(history: History, tensor: int) -> bool:
    """Whether a tensor has values that its function computed of plain numbers alone."""
    made, operand = history.made_at(tensor), history.operand_of(tensor)
    function = history.site_of(history.events[made]).function
    row = operation(history.events[made].operation)
    fills = [
        at for at in (history.writes_to(operand) if operand is not None else ())
        if history.site_of(history.events[at]).function == function
    ]  # fmt: skip
    if row.enters or (row.blank and not fills):
        return False
    behind = {made, *fills}.union(*(history.flow.behind(at, MOST_BEHIND) for at in (made, *fills)))
    return len(behind) < MOST_BEHIND and all(
        history.site_of(history.events[at]).function == function
        and not operation(history.events[at].operation).random
        and all(edge.source >= 0 for edge in history.flow.edges[at])
        for at in behind
    )


def _claim(history: History, tensor: int, writes: list[int], given: Fill) -> Claim:
    event, made = history.events[writes[0]], history.events[history.made_at(tensor)]
    function = history.site_of(made).function
    return Claim(
        tensors=(tensor,),
        cause=("computed once", made.site),
        site=event.site,
        operation=event.operation,
        severity="note",
        message=say(
            "`{function}` computes {x} once and gives the same tensor to whoever asks: {call} at"
            " {line} changes it each time, {n} times so far.",
            function=function, x=Tensor(tensor), call=CallOf(writes[0]), line=At(event.site),
            n=len(writes),
        ),
        story=(
            Step("made", made.site, say("computed once, and kept")),
            Step("shared", given.site, say("from here on it is the very tensor that is kept")),
            written(history, writes[0]),
        ),
        repair=Repair(say("Use the call that makes a new tensor, or write into a copy: .clone().")),
        count=len(writes),
        calls=(writes[0],),
    )  # fmt: skip
