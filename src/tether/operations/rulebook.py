"""The whole rulebook, and the ways to look something up in it."""

from __future__ import annotations

from tether.facts import Event
from tether.operations.rule import GRADIENT, MEMORY, Rule
from tether.operations.rules_bridge import BRIDGE_RULES
from tether.operations.rules_copy import COPY_RULES
from tether.operations.rules_graph import GRAPH_RULES
from tether.operations.rules_module import MODULE_RULES
from tether.operations.rules_view import VIEW_RULES
from tether.operations.rules_write import WRITE_RULES

RULES: tuple[Rule, ...] = (
    *COPY_RULES,
    *VIEW_RULES,
    *WRITE_RULES,
    *BRIDGE_RULES,
    *GRAPH_RULES,
    *MODULE_RULES,
)
"""Every rule. Of several for one operation, the first speaks for the call in general."""

BY_SLUG: dict[str, Rule] = {rule.slug: rule for rule in RULES}


def _by_operation() -> dict[str, Rule]:
    found: dict[str, Rule] = {}
    for rule in RULES:
        for name in (rule.operation, *rule.names):
            if name:
                found.setdefault(name, rule)
    return found


_BY_OPERATION = _by_operation()


def rule_for(operation: str) -> Rule | None:
    """Find the rule of a recorded operation (`Event.operation`); None when it is unknown."""
    return _BY_OPERATION.get(operation)


def say(event: Event) -> str:
    """Say what one recorded call did, this time, as seen; "" when it took or gave no tensor.

    The words are the rulebook's, the facts the event's own: a call whose effect depends on its
    source ("varies") is told as it went.
    """
    if not event.results or not event.reads:
        return ""
    source, result = event.reads[0], event.results[0]
    if result.tensor == source.tensor:
        return MEMORY["same"]
    memory = MEMORY["share" if result.storage == source.storage else "own"]
    if not source.requires_grad:
        return memory
    return f"{memory} and {GRADIENT['keep' if result.requires_grad else 'cut']}"
