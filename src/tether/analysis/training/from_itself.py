"""Lines that give tensors their own values: nothing, or nothing of another's, comes in.

A network that is to follow another is copied from itself, or blended with itself by two names: the
two that a loop gives are one. Told is a line whose every call does so, or each one from some on.
What was taken may have been changed before it is written back: then the tensor was written in
between, and it is no such line.
"""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import combinations
from typing import NamedTuple

from tether.analysis.history import History
from tether.analysis.sharing.holding import written_text
from tether.analysis.sharing.shared_memory import onto_itself
from tether.analysis.sharing.with_itself import operands_of
from tether.facts import UNKNOWN, Event, Operand, SiteId
from tether.operations.table import operation
from tether.source.syntax import expression

MOST_BACK = 8
"""Calls between a value and the tensor that it was computed from."""

LEAST_TIMES = 2
"""Times that each tensor is given its own values, where the line gave it another's before."""

MOST_OTHERS = 4096
"""Calls of a line that copy from another tensor, after which no more of it are looked at."""

LOADS = "Module._load_from_state_dict"


class FromItself(NamedTuple):
    """A line that gives tensors their own values."""

    write: int  # its last call
    taken: int  # that took what it writes; UNKNOWN: none did
    blended: bool  # with themselves; False: it writes what is there
    tensors: tuple[int, ...]
    times: int  # that each of them was written
    stepped: int  # a step between its first and its last call; UNKNOWN: none
    before: int = UNKNOWN  # the last call of the line before these, which copied from another


def from_itself(history: History) -> Iterator[FromItself]:
    """Yield the lines.

    One that copied from others at first counts where all of its later calls do not, through steps
    in between: what it copies to and from have become one.
    """
    lines, began = _runs_to_the_end(history)
    steps = [history.position(one.at) for one in history.steps]
    for site, calls in lines.items():
        last, source = calls[-1], history.events[calls[-1]].reads[1]
        times = Counter(_owner(history, history.events[at].reads[0]) for at in calls)
        stepped = next((at for at in steps if calls[0] < at < last), UNKNOWN)
        if site not in began or (stepped != UNKNOWN and min(times.values()) >= LEAST_TIMES):
            yield FromItself(
                last, history.made_at(source.tensor), not onto_itself(history, last),
                tuple(times), max(times.values()), stepped, began.get(site, UNKNOWN),
            )  # fmt: skip


def _runs_to_the_end(history: History) -> tuple[dict[SiteId, list[int]], dict[SiteId, int]]:
    """Return the last calls of each line that all take from what they write, and the one before."""
    lines: dict[SiteId, list[int]] = defaultdict(list)
    began: dict[SiteId, int] = {}
    others = Counter[SiteId]()
    for at, event in history.events.where(lambda name: name == "copy_" or operation(name).blends):
        if others[event.site] > MOST_OTHERS:
            continue
        if history.site_of(event).user and _from_itself(history, at, event):
            lines[event.site].append(at)
        else:
            others[event.site] += 1
            began[event.site] = at
            lines.pop(event.site, None)
    return lines, began


def _owner(history: History, target: Operand) -> int:
    """Return the tensor of which what a call writes is another object on the same memory."""
    made = history.made_at(target.tensor)
    outside = made >= 0 and operation(history.events[made].operation).outside
    return int(history.events[made].reads[0].tensor if outside else target.tensor)


def _from_itself(history: History, at: int, event: Event) -> bool:
    if event.raised or len(event.reads) != 2 or not event.writes:
        return False
    target, source = event.reads
    if event.operation == "copy_" and onto_itself(history, at):
        return _as_taken(history, at, target, source)
    if target.tensor == source.tensor:
        return False  # one object by two names is told of as such
    names = _named(history, source, at, target)
    if names is None:
        return False
    if event.inner == event.site:
        written = written_text(history.site_of(event), event), _taken_of(history, target)
        names.append({_plain(one) for one in written if one})
    known = filter(None, names)  # an operand may have no name in the text
    return any(not a & b for a, b in combinations(known, 2))


def _as_taken(history: History, at: int, target: Operand, source: Operand) -> bool:
    """Whether a copy writes what was taken from the very tensor, and not changed since."""
    event, made = history.events[at], history.made_at(source.tensor)
    if history.site(event.inner).function != LOADS:
        pair = operands_of(history.site_of(event).expression)
        if pair is None or _plain(pair[0]) == _plain(pair[1]) or not _is_place(pair[1]):
            return False
    elif made < 0 or _merges(history.site_of(event).expression):
        return False
    writes = history.writes_to(target, made) if source.tensor != target.tensor else ()
    return all(one >= at or onto_itself(history, one) for one in writes)


def _named(history: History, value: Operand, at: int, target: Operand) -> list[set[str]] | None:
    """Return by which names a value reads a tensor, if it is computed from that alone."""
    found: list[set[str]] = []
    waiting = [(value, at)]
    for _ in range(MOST_BACK):
        if not waiting:
            return found
        one, reader = waiting.pop()
        if one[1] == target[1] != UNKNOWN and one[3:6] == target[3:6]:
            if next(history.writes_to(target, reader), at) < at:
                return None  # what was read is not what is there
            found.append(_names_of(history, one, reader))
            continue
        made = history.made_at(one.tensor)
        event = history.events[made] if made >= 0 else None
        if event is None or not _by_elements(event):
            return None
        waiting += [(read, made) for read in event.reads]
    return None


def _by_elements(event: Event) -> bool:
    row, made = operation(event.operation), event.reads and event.results and not event.writes
    return bool(made) and row.pointwise and not row.random


def _names_of(history: History, operand: Operand, reader: int) -> set[str]:
    """Return what the text may call an operand of a call: itself, and what it was taken of."""
    text, taken = history.site_of(history.events[reader]).expression, _taken_of(history, operand)
    if taken and taken in text:
        return {_plain(taken)}
    return {_plain(one) for one in (*(operands_of(text) or ()), taken) if _is_place(one)}


def _taken_of(history: History, operand: Operand) -> str:
    """Return the text that took a tensor from another one: `p.data`."""
    made = history.made_at(operand.tensor)
    event = history.events[made] if made >= 0 else None
    if event is None or not operation(event.operation).outside or event.inner != event.site:
        return ""
    return history.site_of(event).expression


def _plain(text: str) -> str:
    """Return the text of a tensor without `.data` and `.detach()` behind it."""
    node = expression(text)
    while True:
        call = isinstance(node, ast.Call) and not node.args
        inner = node.func if call and isinstance(node, ast.Call) else node
        if not isinstance(inner, ast.Attribute) or inner.attr != ("detach" if call else "data"):
            return "" if node is None else ast.unparse(node)
        node = inner.value


def _merges(text: str) -> bool:
    """Whether a call is given a dict that it makes: what else goes in there may be empty once."""
    node = expression(text)
    given = node.args[0] if isinstance(node, ast.Call) and node.args else None
    return isinstance(given, (ast.Dict, ast.DictComp, ast.BinOp))


def _is_place(text: str) -> bool:
    return isinstance(expression(_plain(text)), (ast.Name, ast.Attribute, ast.Subscript))
