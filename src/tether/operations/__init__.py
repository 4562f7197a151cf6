"""What every way of copying, converting, viewing, wrapping or writing a tensor does.

The rulebook is data (`rule`, `rules_*`), `RULES` holds all of it and `rule_for` finds the rule of
one recorded operation. Nothing here imports torch; `tether.measure.experiments` tries every rule on
the installed PyTorch.
"""

from tether.operations.rule import Case, Effect, Given, Rule, When
from tether.operations.rulebook import BY_SLUG, RULES, rule_for, say

__all__ = ["BY_SLUG", "RULES", "Case", "Effect", "Given", "Rule", "When", "rule_for", "say"]
