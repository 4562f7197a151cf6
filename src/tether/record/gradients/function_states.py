"""Plain values that a custom Function's forward keeps on its class, or in a variable of its module.

They are one for all calls. Asked is a Function whose backward names what its forward sets: after
each call, when it shows another value than after the call before.
"""

from __future__ import annotations

import dis
from collections.abc import Callable, Sequence
from typing import Any

import torch

from tether.facts import (
    UNKNOWN,
    EventId,
    FunctionPass,
    FunctionState,
    Moment,
    SiteId,
    StorageId,
    TensorId,
)
from tether.record.arrays.contents import span_of
from tether.record.sites import code_of
from tether.record.tape import Tape

MOST = 4096
_PLAIN = (int, float, str, bool)
_STORES = ("STORE_ATTR", "STORE_GLOBAL")
_LOADS = ("LOAD_ATTR", "LOAD_GLOBAL")
_MISSING = object()


class FunctionStates:
    """What custom Functions kept outside of their ctx."""

    def __init__(self) -> None:
        self.facts: list[FunctionState] = []
        self._names: dict[type, tuple[str, ...]] = {}
        self._last: dict[tuple[type, str], Any] = {}

    def called(self, function: type, event: int) -> None:
        """Look at a Function after a call of it."""
        names = self._names.get(function)
        if names is None:
            names = self._names[function] = _set_and_named(function)
        for name in names:
            value = _value(function, name)
            known = self._last.get((function, name), _MISSING)
            if type(value) in _PLAIN and value != known and len(self.facts) < MOST:
                self._last[function, name] = value
                self.facts.append(FunctionState(EventId(event), name, repr(value)[:40]))


def _set_and_named(function: type) -> tuple[str, ...]:
    """Return the names that a Function's forward sets, of a class or module, and backward uses."""
    forwards = [_code(function, name) for name in ("forward", "setup_context")]
    stored = {name for code in forwards for name in _beside_ctx(code, _STORES)}
    return tuple(one for one in _beside_ctx(_code(function, "backward"), _LOADS) if one in stored)


def _beside_ctx(code: Any, operations: tuple[str, ...]) -> dict[str, None]:
    """Return the names that instructions of some kinds use, but for the attributes of ctx."""
    if code is None:
        return {}
    found, before = dict[str, None](), None
    for one in dis.get_instructions(code):
        owner = before[-1] if isinstance(before, tuple) and before else before
        attribute = not one.opname.endswith("GLOBAL")
        if one.opname in operations and not (attribute and owner in code.co_varnames[:1]):
            found[one.argval] = None
        before = one.argval
    return found


def _code(function: type, name: str) -> Any:
    return getattr(getattr(function, name, None), "__code__", None)


def _value(function: type, name: str) -> Any:
    """Return what a name shows: the attribute of the class, or the variable of its module."""
    if name in vars(function):
        return vars(function)[name]
    backward = getattr(function, "backward", None)
    return getattr(backward, "__globals__", {}).get(name, _MISSING)


# -- passes ----------------------------------------------------------------------------------------
# What the backward of a custom Function is given, and what it returns: at ever fewer of its runs.


_Spans = list[tuple[float, float] | None]


class FunctionPasses:
    """What custom Functions' backwards made of what they were given."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape
        self.facts: list[FunctionPass] = []
        self._runs: dict[type, int] = {}

    def looks(self, function: type) -> bool:
        """Count a run of a Function's backward, and say whether it is to be looked at."""
        self._runs[function] = runs = self._runs.get(function, 0) + 1
        return runs & (runs - 1) == 0

    def begins(self, function: type, given: Sequence[Any]) -> Callable[[Any], None] | None:
        """Look at what a backward is given; what is returned is to be told what it gives back."""
        place, now, who = self._defined(function), Moment(self._tape.now()), self._tape.who
        tensors = _tensors(given)
        spans: _Spans = [span_of(one) for one in tensors]
        if place == UNKNOWN or not tensors or None in spans:
            return None
        before = [who.snapshot(one)[:2] for one in tensors]
        varied = any(one is not None and one[0] != one[1] for one in spans)
        numbers = () if varied else tuple(one[0] for one in spans if one is not None)

        def ended(value: Any) -> None:
            back = _tensors(value if isinstance(value, tuple) else (value,))
            spans: _Spans = [span_of(one) for one in back]
            if not back or None in spans or set(spans) == {(0.0, 0.0)}:
                return
            after = [who.snapshot(one)[:2] for one in back]
            self.facts.append(FunctionPass(
                now, Moment(self._tape.now()), place, function.__name__,
                tuple(TensorId(one) for one, _ in before), tuple(TensorId(one) for one, _ in after),
                tuple(StorageId(one) for _, one in (*before, *after)), varied,
                all(one is not None and one[0] == one[1] for one in spans), numbers,
            ))  # fmt: skip

        return ended

    def _defined(self, function: Any) -> SiteId:
        """Return where a Function's backward is defined, if it is the user's."""
        return SiteId(self._tape.places.add_beginning(code_of(function.backward)))


def _tensors(values: Sequence[Any]) -> list[torch.Tensor]:
    return [one for one in values if isinstance(one, torch.Tensor)]
