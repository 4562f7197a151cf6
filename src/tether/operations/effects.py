"""The effects that recur in the rulebook, and short ways to write a rule down."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tether.operations.rule import ANY, Case, Effect, Rule, When

GRAD = When(requires_grad=True)
LEAF = When(requires_grad=True, leaf=True)
INNER = When(requires_grad=True, leaf=False)
FREE = When(requires_grad=False)

SAME = Effect("same", layout="source", version="shared", grad="same", hooks="same")
"""The very same tensor comes back: every tie, and `.grad` and hooks, are simply its own."""

VIEW = Effect("share", version="shared")
"""A differentiable view."""

ALIAS = Effect("share", "cut", version="shared", layout="source")
"""The same memory outside the graph: `detach`."""

CLONE = Effect("own", layout="source", allocations=1)
"""A copy inside the graph."""

FRESH = Effect("own", "cut", layout="source", allocations=1)
"""A copy outside the graph."""

NEW = Effect("own", layout="contiguous", allocations=1)
"""A contiguous result inside the graph."""

WRITE = Effect("same", layout="source", version="shared", writes="seen", grad="same", hooks="same")
"""A write that the version counter tells of."""

ARRAY = Effect("bridge", "cut", version="none", layout="source", leaf="yes")
"""A NumPy array on the tensor's own bytes."""

VALUES = Effect("values", "cut", waits=True, leaf="yes", version="none")
"""Numbers that no tie leads back from."""

LEAF_WRITE = Case(
    LEAF,
    Effect("same", raises="RuntimeError: a leaf Variable that requires grad is being used in an"),
)
"""Grad mode being on, a leaf that requires grad refuses in-place writes."""


def but(effect: Effect, **changes: Any) -> Effect:
    """Return `effect` with some fields changed."""
    return replace(effect, **changes)


def when(condition: When, effect: Effect) -> Case:
    """Make a case."""
    return Case(condition, effect)


def raises(text: str, condition: When = ANY) -> Case:
    """Make a case that raises; `text` is ``Type: part of the message``, or ``One|Other: part``."""
    return Case(condition, Effect("values", raises=text))


def rule(
    slug: str, call: str, sentence: str, *cases: Effect | Case, names: str = "", **more: Any
) -> Rule:
    """Write a rule down; an effect by itself holds for every source; spaces part `names`."""
    listed = tuple(c if isinstance(c, Case) else Case(ANY, c) for c in cases)
    return Rule(slug, call, listed, sentence, names=tuple(names.split()), **more)


def family(name: str, *rules: Rule) -> tuple[Rule, ...]:
    """Put rules under one heading."""
    return tuple(replace(r, family=name) for r in rules)
