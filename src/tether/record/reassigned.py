"""Which tensors gave up their place in a module to which: ``layer.weight = other``."""

from __future__ import annotations

import collections

import torch

from tether.facts import Moment, Reassigned, SiteId, TensorId
from tether.record.naming import Naming
from tether.record.tape import Tape

TIMES = 4
"""Replacements of one place by one line that are noted: the first ones."""


class ReassignedLog:
    """The replacements so far."""

    def __init__(self, tape: Tape, naming: Naming) -> None:
        self._tape = tape
        self._naming = naming
        self._times: collections.Counter[tuple[int, int, str]] = collections.Counter()
        self.facts: list[Reassigned] = []

    def given(
        self, owner: torch.nn.Module, name: str, old: torch.Tensor, new: torch.Tensor, site: int
    ) -> None:
        """Take note that a place is about to be given another tensor."""
        holder, who = self._naming.number(owner), self._tape.who
        place = site, holder, name
        self._times[place] += 1
        if self._times[place] <= TIMES:
            ends = TensorId(who.serial(old)), TensorId(who.serial(new))
            self.facts.append(
                Reassigned(Moment(self._tape.now()), SiteId(site), holder, name, *ends)
            )
