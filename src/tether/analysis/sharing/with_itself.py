"""Calls that compare a tensor with itself by two names, again and again as it is written.

What one name was given to keep is the very object that the other names, so the two can never
differ. Comparing an object with itself once is how many loops begin; where it was written between
two such comparisons, one of the names was to hold what it had been.

Which name: the one that was assigned the object as it is, in the text (or what a call gave back
that had not made it); or, where the places of the
tensor were looked at, the slot of a container, of a tensor that one module has under one name. Tied
parameters have two, and are compared to see that they still are.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from tether.analysis.history import History
from tether.analysis.sharing.holding import Holding
from tether.analysis.surroundings import WaysThere
from tether.facts import Event, SiteId
from tether.operations.table import operation
from tether.source.filling import Fill
from tether.source.syntax import expression


class WithItself(NamedTuple):
    """A line that compares a tensor with itself."""

    call: int  # the last time
    tensor: int
    kept: str  # the name that was to hold something else
    other: str
    filled: Fill | None  # where it was given the object
    times: int


def with_itself(history: History) -> Iterator[WithItself]:
    """Yield the lines that compared a tensor with itself before and after a write to it."""
    versions: dict[SiteId, dict[int, set[int]]] = defaultdict(lambda: defaultdict(set))
    last: dict[SiteId, tuple[int, Event]] = {}
    for at, event in history.events.where(lambda name: operation(name).compares):
        if len(event.reads) < 2 or event.raised or event.reads[0] != event.reads[1]:
            continue
        versions[event.site][event.reads[0].tensor].add(event.reads[0].version)
        last[event.site] = at, event
    for site, (at, event) in last.items():
        times = sum(map(len, versions[site].values()))
        if any(len(seen) > 1 for seen in versions[site].values()):
            names = kept(history, event) or _kept_in_container(history, event)
            if names is not None:
                yield WithItself(at, event.reads[0].tensor, *names, times)


def kept(history: History, event: Event) -> tuple[str, str, Fill] | None:
    """Return which operand was assigned the object as it is, the other one, and where.

    None where both operands are written alike, or where no assignment of the text gave one of them
    what was there.
    """
    site = history.site_of(event)
    names = operands_of(site.expression)
    if names is None or names[0] == names[1] or event.inner != event.site:
        return None
    for name, other in (names, names[::-1]):
        for fill in reversed(history.get(Holding).fillings.of(*site.scope, name)):
            how = "stored" if name.endswith("]") else "assigned"
            given = expression(fill.site.expression)
            if fill.how != how:
                continue
            if _may_be_place(given) or _was_there(history, event.reads[0].tensor, given, fill):
                return name, other, fill
    return None


def _was_there(history: History, tensor: int, given: ast.expr | None, fill: Fill) -> bool:
    """Whether a tensor was made neither by a call that a name is given the result of, nor in it."""
    made = history.get(WaysThere).of_what_made(tensor)
    return isinstance(given, ast.Call) and bool(made) and fill.site.row not in [
        one.row for one in made
    ]  # fmt: skip


def _kept_in_container(history: History, event: Event) -> tuple[str, str, Fill | None] | None:
    """Return the slot that shows a module's parameter, the parameter, and what filled the slot."""
    names = operands_of(history.site_of(event).expression)
    tensor = event.reads[0].tensor
    holders = [one for one in history.trace.holders if one.tensor == tensor]
    slots = [one for one in holders if one.kind == "slot"]
    owners = list({one.name for one in holders if one.kind == "attribute"})
    if names is None or names[0] == names[1] or not slots or len(owners) != 1:
        return None
    fills = [fill for slot in slots for fill in history.get(Holding).filled(slot)]
    filled = [one for one in fills if one.how in {"assigned", "stored"}]
    return slots[0].name, owners[0], filled[0] if filled else None


def operands_of(text: str) -> tuple[str, str] | None:
    """Return the texts of the two operands of an operator or a call."""
    node = expression(text)
    if isinstance(node, ast.BinOp):
        return ast.unparse(node.left), ast.unparse(node.right)
    if not isinstance(node, ast.Call):
        return None
    given = [ast.unparse(one) for one in node.args]
    if len(given) == 1 and isinstance(node.func, ast.Attribute):
        given.insert(0, ast.unparse(node.func.value))
    return (given[0], given[1]) if len(given) > 1 else None


def _may_be_place(node: ast.expr | None) -> bool:
    """Whether an expression names an object that is there, and makes none, on one of its ways."""
    ways = [node.body, node.orelse] if isinstance(node, ast.IfExp) else [node]
    return any(isinstance(one, (ast.Name, ast.Attribute, ast.Subscript)) for one in ways)
