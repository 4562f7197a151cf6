"""Modules of a list of which the steps chose some: others of the same list trained.

So a net grows block by block, a head is chosen for a task, an expert for a sample.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from tether.analysis.history import History

FEWEST = 2
"""Modules of a list that are left out where some are chosen: a single one an index may miss."""


class LeftOut(NamedTuple):
    """The modules of one list that got no gradient, while others of the list did."""

    name: str  # of the list
    modules: int  # that got none
    of: int
    tensors: list[int]


def left_out(history: History, unused: list[int]) -> Iterator[LeftOut]:
    """Yield the lists that some of the unused tensors are in, the outermost list of each."""
    members = _members(history)
    found: dict[str, list[int]] = defaultdict(list)
    for tensor in unused:
        lists = (one for one, key in _lists_around(history, tensor) if key in members[one])
        of = next((one for one in lists if _are_chosen(history, members[one])), None)
        if of is not None:
            found[of].append(tensor)
    for of, tensors in found.items():
        yield LeftOut(of, _without(history, members[of]), len(members[of]), tensors)


def _members(history: History) -> dict[str, dict[str, set[int]]]:
    """Return for each list the tensors that an optimizer holds, by the module that has them."""
    members: dict[str, dict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
    for tensor in history.held:
        for of, key in _lists_around(history, tensor):
            members[of][key].add(tensor)
    return members


def _lists_around(history: History, tensor: int) -> Iterator[tuple[str, str]]:
    """Yield the lists that a tensor's module is in, or is, and its number there, from outside."""
    fact = history.facts_of_name(tensor)
    parts = fact.module.split(".") if fact is not None else []
    for depth, part in enumerate(parts):
        if depth and part.isdigit():
            yield ".".join(parts[:depth]), part


def _are_chosen(history: History, members: dict[str, set[int]]) -> bool:
    """Whether several modules of a list got no gradient, and others did."""
    return FEWEST <= _without(history, members) < len(members)


def _without(history: History, members: dict[str, set[int]]) -> int:
    """Count the modules of a list of which no tensor had a gradient."""
    return sum(tensors.isdisjoint(history.had_gradient) for tensors in members.values())
