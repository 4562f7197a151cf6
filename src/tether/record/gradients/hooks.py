"""Hooks that the program registers: from which lines, which stay, and what they read.

A handle to remove a hook by is made at each registration. At the next one of the same line the
module's or tensor's own table of hooks is asked which of the earlier ones are still there, and a
variable around their function what it holds by now: functions that are made in a loop may all read
one variable of it.
"""

from __future__ import annotations

import dis
import types
import weakref
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import torch

from tether.facts import UNKNOWN, Hooked, Moment, SiteId, TensorId
from tether.record.gradients.given_gradients import GivenGradients
from tether.record.tape import Tape

MOST_ON_ONE = 64
"""Hooks of a line on one module or tensor that are followed."""

MOST_LINES = 1_000

_PLAIN = (int, float, str, bool, type(None))


class _Registered(NamedTuple):
    hooks: weakref.ref[Any]  # the table
    number: int  # its key there
    at: int

    def function(self) -> types.FunctionType | None:
        """Return the function, while it is registered."""
        table = self.hooks()
        found = table.get(self.number) if table is not None else None
        found = getattr(found, "__func__", found)
        return found if isinstance(found, types.FunctionType) else None

    def is_on_its_own(self) -> bool:
        """Whether a variable around the function holds the tensor that the hook is on."""
        for _, cell in _cells(self.function()):
            with suppress(ValueError):  # a variable that holds nothing by now
                value = cell.cell_contents
                if isinstance(value, torch.Tensor) and value._backward_hooks is self.hooks():
                    return True
        return False


class _HookLine:
    """The hooks of one line."""

    def __init__(self) -> None:
        self.lasts: tuple[_Registered, ...] = ()  # the last two
        self.on: dict[int, list[_Registered]] = defaultdict(list)  # by the table
        self.facts: dict[int, Hooked] = {}  # by the table
        self.held: dict[int, Any] = {}  # what the variables of the last but one hook held
        self.variable = ""
        self.own = False  # a hook holds the very tensor that it is on


class HookLog:
    """All registrations of the program's own lines."""

    def __init__(self, tape: Tape, given: GivenGradients) -> None:
        self._tape = tape
        self.given = given  # who is told of functions that are given gradients
        self._lines: dict[int, _HookLine] = {}

    def registered(self, site: int, owner: Any, table: Any, number: int) -> None:
        """Note a hook that a line of the program has just registered."""
        if site == UNKNOWN or (site not in self._lines and len(self._lines) >= MOST_LINES):
            return
        line = self._lines.setdefault(site, _HookLine())
        self._compare(line)
        line.own = line.own or any(one.is_on_its_own() for one in line.lasts[-1:])
        some = line.on[id(table)]
        some[:] = [one for one in some if one.function() is not None]
        new = _Registered(weakref.ref(table), number, self._tape.now())
        line.lasts = (*line.lasts[-1:], new)
        if len(some) < MOST_ON_ONE:
            some.append(new)
        known = line.facts.get(id(table))
        if known is None or len(some) > len(known.at):
            tensor = self._tape.who.serial(owner) if isinstance(owner, torch.Tensor) else UNKNOWN
            line.facts[id(table)] = Hooked(
                SiteId(site), type(owner).__name__, TensorId(tensor),
                tuple(Moment(one.at) for one in some),
            )  # fmt: skip

    def _compare(self, line: _HookLine) -> None:
        """Find a variable that the last two hooks of a line both read, and that changed since.

        Both are there, so their variable is: its number is nobody else's by now.
        """
        *before, last = [dict(_cells(one.function())) for one in line.lasts] or [{}]
        earlier = {id(cell) for one in before for cell in one.values()}
        for name, cell in last.items():
            changed = id(cell) in earlier and line.held.get(id(cell)) != _content(cell)
            if changed and not line.variable and not _sets(line.lasts[-1].function(), name):
                line.variable = name
        line.held = {id(cell): _content(cell) for cell in last.values()}

    def facts(self) -> list[Hooked]:
        """Return the hooks, by line and by what they are on."""
        return [
            fact._replace(variable=line.variable, own=line.own)
            for line in self._lines.values()
            for fact in line.facts.values()
        ]


def _cells(function: types.FunctionType | None) -> Iterator[tuple[str, Any]]:
    """Yield the variables around a function."""
    if function is not None and function.__closure__:
        yield from zip(function.__code__.co_freevars, function.__closure__, strict=True)


def _sets(function: types.FunctionType | None, name: str) -> bool:
    """Whether a function itself gives a variable around it another value."""
    steps = dis.get_instructions(function.__code__) if function is not None else ()
    return any(one.opname == "STORE_DEREF" and one.argval == name for one in steps)


def _content(cell: Any) -> Any:
    """Return what a variable holds, to be compared; an object by its number alone."""
    try:
        value = cell.cell_contents
    except ValueError:
        return None
    return value if type(value) in _PLAIN else id(value)
