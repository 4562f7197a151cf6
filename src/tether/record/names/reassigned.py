"""Which tensors gave up their place in a module to which: ``layer.weight = other``.

A module that gives up its place to another takes its parameters with it: those that the other one
has by the same name come to their places.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator
from typing import Any

import torch

from tether.facts import Moment, NameId, Reassigned, SiteId, TensorId
from tether.record.names.naming import Naming
from tether.record.objects import modules_of, registered
from tether.record.tape import Tape

TIMES = 4
"""Replacements of one place by one line that are noted: the first ones."""

MOST = 64
"""Parameters of a module that is replaced, which are noted."""


class ReassignedLog:
    """The replacements so far."""

    def __init__(self, tape: Tape, naming: Naming) -> None:
        self._tape = tape
        self._naming = naming
        self._times: collections.Counter[tuple[int, int, str]] = collections.Counter()
        self.facts: list[Reassigned] = []

    def given(self, owner: torch.nn.Module, name: str, old: Any, new: Any, site: int) -> None:
        """Take note that a place is about to be given another tensor, or another module."""
        if all(issubclass(type(one), torch.Tensor) for one in (old, new)):
            self._note(owner, name, old, new, site)
        elif all(issubclass(type(one), torch.nn.Module) for one in (old, new)):
            theirs = dict(_parameters(new))
            for path, tensor in _parameters(old):
                if theirs.get(path, tensor) is not tensor:
                    self._note(owner, f"{name}{path}", tensor, theirs[path], site)

    def _note(
        self, owner: torch.nn.Module, name: str, old: torch.Tensor, new: torch.Tensor, site: int
    ) -> None:
        holder, who = self._naming.number(owner), self._tape.who
        place = site, holder, name
        self._times[place] += 1
        if self._times[place] <= TIMES:
            ends = TensorId(who.serial(old)), TensorId(who.serial(new))
            now, named = Moment(self._tape.now()), NameId(len(self._naming.facts))
            self.facts.append(Reassigned(now, SiteId(site), holder, name, *ends, named))


def _parameters(module: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the first parameters of a module by their paths; no method of the program's is run."""
    waiting, left = collections.deque([("", module)]), MOST
    while waiting and left > 0:
        path, one = waiting.popleft()
        for name, tensor in registered(one).parameters.items():
            if tensor is not None:
                yield f"{path}.{name}", tensor
                left -= 1
        waiting += modules_of(path, one)
