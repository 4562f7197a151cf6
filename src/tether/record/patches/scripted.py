"""Calls into TorchScript, of which no function mode hears: each is one event.

What runs inside is PyTorch's own interpreter, on the program's text of some time ago. What it was
given is known, and what its module holds, what came out and what was written; a gap says, once for
modules and once for functions, that the rest is not.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from tether.facts import RAISED, SCRIPTED_FUNCTION, SCRIPTED_MODULE
from tether.record.identity import Snapshot
from tether.record.listener import Listener
from tether.record.mode_stack import muted
from tether.record.patches.replacing import Original, Replacements
from tether.record.sites import here

__tracebackhide__ = True

_CALL = "__call__"
_EVENT = "scripted"

_Holds = Callable[[Any], Iterator[torch.Tensor]]


def install(replacements: Replacements) -> None:
    """Hear what Python calls of TorchScript: a method of a module, and a function."""
    told = set[str]()
    kinds = {
        "ScriptMethod": (_held_by, SCRIPTED_MODULE),
        "ScriptFunction": (_none, SCRIPTED_FUNCTION),
    }
    for name, (holds, what) in kinds.items():
        owner = getattr(torch._C, name, None)
        if owner is None:
            replacements.unknown(f"torch._C.{name}")
            continue
        note = _Noting(replacements, told, holds, what)
        replacements.replace(owner, _CALL, note.around)


class _Noting:
    """Notes the calls of one kind of scripted code."""

    def __init__(
        self, replacements: Replacements, told: set[str], holds: _Holds, what: str
    ) -> None:
        self._replacements, self._tape = replacements, replacements.tape
        self._told, self._holds, self._what = told, holds, what

    def around(self, original: Original) -> Original:
        """Return what calls the original, and notes the call."""

        @functools.wraps(original)
        def scripted(called: Any, /, *args: Any, **kwargs: Any) -> Any:
            listener = self._replacements.listener()
            if listener is None:
                return original(called, *args, **kwargs)
            tensors, before = list[torch.Tensor](), tuple[Snapshot, ...]()
            with muted(listener):
                tensors = listener.tensors_in(args, kwargs, *self._holds(called))
                before = tuple(self._tape.who.snapshot(one) for one in tensors)
            try:
                result = original(called, *args, **kwargs)
            except Exception as error:
                with muted(listener):
                    place = self._tape.places.user_place(here(2))
                    event = listener.note(_EVENT, place, snapshots=before, flags=RAISED)
                    self._tape.error(error, place[0], event)
                raise
            with muted(listener):
                self._note(listener, called, tensors, before, result)
            return result

        return scripted

    def _note(
        self, listener: Listener, called: Any, tensors: Sequence[torch.Tensor],
        before: tuple[Snapshot, ...], result: Any,
    ) -> None:  # fmt: skip
        who, place = self._tape.who, self._tape.places.user_place(here(3))
        if self._what not in self._told:
            self._told.add(self._what)
            self._tape.gap("scripted", self._what, place[0])
        pairs = zip(tensors, before, strict=True)
        listener.note(
            _EVENT, place, results=listener.tensors_in(result), detail=str(called.name),
            writes=[one for one, seen in pairs if who.has_moved(one, seen)], snapshots=before,
        )  # fmt: skip


def _held_by(method: Any) -> Iterator[torch.Tensor]:
    """Yield the parameters and buffers of the module of a method, and of what is in it."""
    left = [method.owner]
    while left:
        module = left.pop()
        kinds: tuple[Any, ...] = (torch._C.ParameterDict, torch._C.BufferDict)
        for kind in kinds:
            yield from (one for _, one in kind(module).items() if isinstance(one, torch.Tensor))
        left += [inner for _, inner in torch._C.ModuleDict(module).items()]


def _none(_: Any) -> Iterator[torch.Tensor]:
    return iter(())
