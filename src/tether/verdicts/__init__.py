"""The verdicts: a file or a folder each, with its page, its examples and its check.

A verdict is a pure function from a `History` to findings; of one that several things lead to, each
detector is a file with what it finds and how it says so. To add one, write its file and list it
here, in the import and in `VERDICTS`; its tests and its page in the documentation are made from it.
Their order is that of the documentation. It decides nothing: findings are ordered by what they say,
and who gives way to whom is in `Verdict.after`.
"""

from __future__ import annotations

from collections.abc import Iterable

from tether.analysis.history import History
from tether.finding import Finding
from tether.verdicts import (
    alias_write,
    batch_crossed,
    buffer_stale,
    gradient_accumulated,
    gradient_cut,
    gradient_discarded,
    gradient_lost,
    gradient_misdirected,
    gradient_on_non_leaf,
    gradient_stale,
    gradient_unused,
    gradient_zero,
    graph_retained,
    hook_late,
    hook_repeated,
    hook_shared,
    mode_kept,
    needless_copy,
    parameter_frozen,
    parameter_moved,
    parameter_stale,
    parameter_unmoved,
    repeated_transfer,
    rerun_differs,
    saved_overwritten,
    slow_copy,
    storage_pinned,
    tie_error,
    tie_lost,
    unsynchronized_read,
    untracked_write,
    values_lost,
)
from tether.verdicts.base import Verdict
from tether.verdicts.judging import Turns, judged

VERDICTS: tuple[Verdict, ...] = (
    gradient_cut.VERDICT,
    gradient_zero.VERDICT,
    gradient_unused.VERDICT,
    parameter_frozen.VERDICT,
    parameter_moved.VERDICT,
    mode_kept.VERDICT,
    buffer_stale.VERDICT,
    parameter_stale.VERDICT,
    parameter_unmoved.VERDICT,
    gradient_discarded.VERDICT,
    gradient_lost.VERDICT,
    gradient_accumulated.VERDICT,
    gradient_stale.VERDICT,
    gradient_on_non_leaf.VERDICT,
    batch_crossed.VERDICT,
    gradient_misdirected.VERDICT,
    saved_overwritten.VERDICT,
    rerun_differs.VERDICT,
    hook_repeated.VERDICT,
    hook_late.VERDICT,
    hook_shared.VERDICT,
    values_lost.VERDICT,
    alias_write.VERDICT,
    graph_retained.VERDICT,
    storage_pinned.VERDICT,
    tie_error.VERDICT,
    tie_lost.VERDICT,
    unsynchronized_read.VERDICT,
    untracked_write.VERDICT,
    needless_copy.VERDICT,
    slow_copy.VERDICT,
    repeated_transfer.VERDICT,
)


def judge(
    history: History, verdicts: Iterable[Verdict] = VERDICTS, turns: Turns = iter
) -> list[Finding]:
    """Return all findings: the gravest first, by damage within a severity, then by line."""
    return judged(history, verdicts, turns)
