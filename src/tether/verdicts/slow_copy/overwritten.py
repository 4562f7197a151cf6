"""The copies that others' values replace before anything reads them: part of `slow-copy`.

A model copied to be given other weights at once, a clone that is filled anew. What chance fills is
left out: that is how memory is initialised.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tether.analysis.already_there import Copied, nbytes
from tether.analysis.copy_needs import Need, needs, read_unseen
from tether.analysis.history import History
from tether.analysis.other_processes import OtherProcesses
from tether.facts import UNKNOWN, Event, Operand
from tether.operations.table import operation
from tether.verdicts.slow_copy.on_device import LARGE, STEPS, Lines, Slow


def overwritten(lines: Lines) -> Iterator[Slow]:
    """Give each of the user's lines whose copies nothing reads before they have other values."""
    history = lines.history
    if read_unseen(history):
        return
    for (_, inner, name), need in needs(history).items():
        if inner != UNKNOWN or need.bytes < LARGE or runs_of(name, need) < STEPS:
            continue
        ends = [(one, _replaced_at(history, one)) for one in need.executions]
        lost = [(one, at) for one, at in ends if at != UNKNOWN]
        total = sum(nbytes(one.copy) for one, _ in lost)
        if total >= max(LARGE, need.bytes / 2):
            yield _slow(lost[0], name, total, runs_of(name, need))


def runs_of(name: str, need: Need) -> int:
    """Return how often a line ran: a copy of a model is one of each of its tensors."""
    if name != "__deepcopy__":
        return need.count
    return max(Counter(one.source.storage for one in need.executions).values(), default=0)


def _replaced_at(history: History, copied: Copied) -> int:
    """Return where a copy is given other values, if nothing was done with its own before."""
    if copied.part or copied.taken is not None:
        return UNKNOWN
    for at in history.on_storage(copied.copy):
        event = history.events[at]
        row = operation(event.operation)
        if at <= copied.position or (row.makes and not event.writes):
            continue
        seen = history.get(OtherProcesses).read(copied.copy, copied.position, at)
        return at if _replaces(event, copied.copy) and not seen else UNKNOWN
    return UNKNOWN


def _replaces(event: Event, copy: Operand) -> bool:
    """Whether a call puts other values in the place of all that a memory holds, and reads none."""
    row = operation(event.operation)
    if event.raised or row.random or not event.reads or event.reads[0].storage != copy.storage:
        return False
    if any(one.storage == copy.storage for one in event.reads[1:]):
        return False
    return row.rebinds or (row.overwrites and nbytes(event.reads[0]) == nbytes(copy))


def _slow(lost: tuple[Copied, int], name: str, total: int, runs: int) -> Slow:
    """Say what one line copies in vain."""
    first, then = lost
    what = f"{total:,} bytes in {runs:,} runs are replaced by others before anything reads them"
    fix = "Make it without these values: torch.empty_like(...)."
    if name == "__deepcopy__":
        fix = "Make the copy once, and fill that each time; or compute with the other values:"
        fix += " torch.func.functional_call(model, values, args)."
    return Slow(first.position, first.source, runs, total, None, "copied", what, fix, then)
