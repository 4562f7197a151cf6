"""Which tensors should have trained and did not, and the paths from them to the losses.

Computed once for the verdicts that share it. A tensor counts only if an optimizer holds it or the
program read its gradient; it is missing only if it had no gradient at any step.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from dataclasses import dataclass, field

from tether.analysis.gradient_paths import Paths, follow
from tether.analysis.history import History, losses_of


@dataclass
class Missing:
    """The tensors without a gradient, sorted by what the facts say of them."""

    none: list[int] = field(default_factory=list)  # None at every step, though it requires grad
    zero: list[int] = field(default_factory=list)  # exactly zero whenever it was looked into
    frozen: list[int] = field(default_factory=list)  # held, but does not require grad
    cleared: list[int] = field(default_factory=list)  # had one after backward, none at any step
    stopped: list[int] = field(default_factory=list)  # a backward raised: its loss had no graph
    paths: list[Paths] = field(default_factory=list)  # of none, zero and stopped, by backward
    stepped_by: dict[int, set[int]] = field(default_factory=dict)  # tensor -> lines of passes
    sites: dict[int, int] = field(default_factory=dict)  # of the passes of `paths`

    def reaching(self, tensor: int) -> list[Paths]:
        """Return the paths on which the value of a tensor reaches the loss, its own losses first.

        Its own are those of the passes that the steps of its optimizer came right after.
        """
        if not self.paths or tensor not in self.paths[0].tensors:
            return []
        bit = 1 << self.paths[0].tensors.index(tensor)
        own = self.stepped_by.get(tensor, set())
        reached = [one for one in self.paths if one.reaches & bit]
        return sorted(reached, key=lambda one: self.sites[one.backward] not in own)


def missing(history: History) -> Missing:
    """Sort the tensors that should have trained; computed once for a history."""
    if "missing" not in history.memo:
        history.memo["missing"] = _sorted(history)
    found: Missing = history.memo["missing"]
    return found


def _sorted(history: History) -> Missing:
    found = Missing()
    for tensor in history.without_gradient:
        operand = history.operand_of(tensor)
        if operand is not None and not operand.requires_grad:
            found.frozen.append(tensor)
        elif tensor in history.had_gradient and tensor in history.held:
            found.cleared.append(tensor)
        else:
            found.none.append(tensor)
    for tensor, seen in history.trained.items():
        if "zero" in seen and "some" not in seen:
            found.zero.append(tensor)
    failed = [
        position
        for position in history.backwards
        if history.events[position].raised
        and not any(one.requires_grad for one in losses_of(history.events[position]))
    ]
    if failed:
        known = {*found.none, *found.zero}
        found.stopped = [
            tensor
            for tensor in sorted(history.held, key=lambda one: history.order.get(one, 0))
            if tensor not in known and tensor not in found.frozen
        ]
    tensors = [*found.none, *found.zero, *found.stopped]
    if tensors:
        chosen = list(dict.fromkeys([*failed[:1], *representative(history)]))
        found.paths = [follow(history, tensors, position) for position in chosen]
        found.sites = {one: history.events[one].site for one in chosen}
        found.stepped_by = {
            tensor: {history.events[one].site for one in passes_of_steps(history, tensor)}
            for tensor in tensors
        }
    return found


def representative(history: History) -> list[int]:
    """Choose a few finished backward passes that stand for all: by line, second, last and first.

    The first pass of a run sees initialisation, so it is asked last; the cost stays linear for a
    run of a million steps.
    """
    by_site: dict[int, list[int]] = defaultdict(list)
    for position in history.backwards:
        if not history.events[position].raised:
            by_site[history.events[position].site].append(position)
    chosen: list[int] = []
    for positions in list(by_site.values())[:12]:
        chosen += [positions[min(1, len(positions) - 1)], positions[-1], positions[0]]
    return list(dict.fromkeys(chosen))


def passes_of_steps(history: History, tensor: int) -> list[int]:
    """Return the last backward pass before each step that held a tensor: what it stepped by.

    Each lies after the step before of the same optimizer, or after it was made.
    """
    made = {number: history.position(one.at) for number, one in enumerate(history.trace.optimizers)}
    found: list[int] = []
    for fact in history.steps:
        if tensor not in fact.status:
            continue
        if history.trace.optimizers[fact.optimizer].site == fact.site:
            made.pop(fact.optimizer, None)  # first met as it stepped: it is older than that
        at = history.position(fact.at)
        before = history.backwards[: bisect_left(history.backwards, at)]
        if before and before[-1] >= made.get(fact.optimizer, 0):
            found.append(before[-1])
        made[fact.optimizer] = at
    return found


def without_backward(history: History, tensor: int) -> bool:
    """Whether steps held a tensor and no backward pass ran before any of them."""
    return steps_of(history, tensor) > 0 and not passes_of_steps(history, tensor)


def steps_of(history: History, tensor: int) -> int:
    """Count the steps at which a tensor was held by the stepping optimizer."""
    return sum(tensor in fact.status for fact in history.steps)


def in_how_many(history: History, tensor: int) -> str:
    """Say over how many steps it was missing, in words."""
    steps = steps_of(history, tensor)
    if steps == 0:
        return "in the backward pass" if len(history.backwards) == 1 else "in any backward pass"
    return "in the one step" if steps == 1 else f"in any of {steps} steps"
