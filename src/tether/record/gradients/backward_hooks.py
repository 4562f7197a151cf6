"""Hooks on modules that are told of gradients, and the views that PyTorch makes for them.

A module with such a hook takes its inputs and gives its outputs as a Function returns them: as
views, into which nobody may write. Which hooks these are is kept for the last of those calls, and
becomes a fact when an error says that one of the views was written.
"""

from __future__ import annotations

import sys
import types
import weakref
from collections import deque
from typing import Any, NamedTuple

import torch

from tether.facts import BackwardHooked, EventId, SiteId
from tether.record.names.naming import Naming
from tether.record.objects import locals_of
from tether.record.tape import Tape

__tracebackhide__ = True

LAST = 64
"""Calls of the Function that are remembered."""

MOST = 256
"""Facts that are noted."""

_modules = torch.nn.modules.module
_TABLES = ("_backward_hooks", "_backward_pre_hooks")
_FOR_ALL = ("_global_backward_hooks", "_global_backward_pre_hooks")
_NAMES = (
    "register_full_backward_hook", "register_full_backward_pre_hook",
    "register_module_full_backward_hook", "register_module_full_backward_pre_hook",
)  # fmt: skip
_REGISTERING = frozenset(
    one.__code__
    for owner in (torch.nn.Module, _modules)
    for name in _NAMES
    if (one := getattr(owner, name, None)) is not None
)
FUNCTION = torch.nn.modules._functions.BackwardHookFunction
"""What a hooked module's inputs and outputs go through."""

_SAID = (FUNCTION.__name__, "created inside a custom Function")  # of a view of such a view


class _Applied(NamedTuple):
    event: int
    module: weakref.ref[torch.nn.Module]


class BackwardHookLog:
    """The registrations, and the last calls that were made for them."""

    def __init__(self, tape: Tape, naming: Naming) -> None:
        self._tape = tape
        self._naming = naming
        # By the table: it, and the lines by the numbers of hooks in it.
        self._tables: dict[int, tuple[weakref.ref[Any], dict[int, int]]] = {}
        self._last: deque[_Applied] = deque(maxlen=LAST)
        self._noted: list[tuple[BackwardHooked, int]] = []  # and the number of the module
        tape.on_error = self._raised

    def registered(self, frame: types.FrameType, table: Any, number: int) -> None:
        """Note a hook that a method of PyTorch's, with this frame, is about to register."""
        if frame.f_code not in _REGISTERING:
            return
        site = self._tape.places.user_place(frame)[0]
        known = self._tables.get(id(table))
        if known is None or known[0]() is not table:
            known = self._tables[id(table)] = weakref.ref(table), {}
        known[1][number] = site

    def applied(self, event: int, frame: types.FrameType | None) -> None:
        """Note a call of the Function, made by the frame of an object that knows the module."""
        maker = dict(locals_of(frame)).get("self") if frame is not None else None
        module = getattr(maker, "module", None)
        if isinstance(module, torch.nn.Module):
            self._last.append(_Applied(event, weakref.ref(module)))

    def _raised(self, text: str) -> None:
        if not self._last or not any(one in text for one in _SAID):
            return
        found = [(one.event, module) for one in self._last if (module := one.module()) is not None]
        for event, module in found[: MOST - len(self._noted)]:
            self._note(event, module)
        self._last.clear()
        self._naming.search_now(sys._getframe(1))

    def _note(self, event: int, module: torch.nn.Module) -> None:
        number = self._naming.number(module)
        self._naming.paths.setdefault(number, "")
        kind = type(module).__name__
        for owner, names in ((module, _TABLES), (_modules, _FOR_ALL)):
            for site in (one for name in names for one in self._lines(getattr(owner, name, {}))):
                every = owner is _modules
                fact = BackwardHooked(EventId(event), SiteId(site), kind, "", every)
                self._noted.append((fact, number))

    def _lines(self, table: Any) -> list[int]:
        """Return the lines whose hooks are in a table by now."""
        known, hooks = self._tables.get(id(table)), dict(table or {})
        if known is None or known[0]() is not table:
            return []
        return [site for number, site in known[1].items() if number in hooks]

    def facts(self) -> list[BackwardHooked]:
        """Return the hooks for which views were made that an error spoke of."""
        paths = self._naming.paths
        return [fact._replace(module=paths.get(number, "")) for fact, number in self._noted]
