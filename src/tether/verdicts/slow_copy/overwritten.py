"""The copies that others' values replace before anything reads them: part of `slow-copy`.

A model copied to be given other weights at once, a clone that is filled anew. What chance fills is
left out: that is how memory is initialised.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from tether.analysis.already_there import Copied, nbytes
from tether.analysis.copy_needs import Need, needs, read_unseen
from tether.analysis.graph import Graph
from tether.analysis.history import History
from tether.analysis.other_processes import OtherProcesses
from tether.facts import UNKNOWN, Event, Operand
from tether.operations.table import Spared, operation
from tether.regions import may_overlap
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


# -- never read ------------------------------------------------------------------------------------
# The calls that make a large result which nothing reads, and need not: part of `slow-copy`. Which
# result another call leaves out, and how that is written, is a column of the operations; that
# nothing read it is a fact. Of a result that could be made shorter it is asked for what is beyond.


def never_read(lines: Lines) -> Iterator[Slow]:
    """Give each line whose calls all made what nothing read, and what need not be made."""
    calls: dict[tuple[int, int, str], list[int]] = defaultdict(list)
    for at, event in lines.events.where(lambda name: bool(operation(name).spares)):
        if not event.raised:
            calls[event.site, event.inner, event.operation].append(at)
    if not calls or read_unseen(lines.history):
        return
    for (_, _, name), places in calls.items():
        for spared in operation(name).spares:
            found = _spared(lines, places, spared)
            if found is not None:
                yield found


def _spared(lines: Lines, places: Sequence[int], spared: Spared) -> Slow | None:
    """Return what one line makes for nothing, where none of its runs made it for anybody."""
    total = 0
    for at in places:
        unread = _unread(lines.history, at, spared)
        if unread is None:
            return None
        total += nbytes(unread)
    if total < LARGE:
        return None
    at, event = places[0], lines.events[places[0]]
    made = event.results[spared.result]
    what = f"{event.operation} makes a result of {_size(made.shape)}"
    if spared.dimension:
        shape = list(made.shape)
        shape[spared.dimension] = min(event.reads[0].shape[-2:])
        what += f", of which nothing reads more than {_size(shape)}"
    else:
        what += " that nothing reads"
    what += f": {total:,} bytes for nothing in {len(places):,} runs"
    fix = f"Ask for less: {spared.way}."
    return Slow(at, made, len(places), total, None, "made", what, fix)


def _size(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape))


def _unread(history: History, at: int, spared: Spared) -> Operand | None:
    """Return the part of a result that need not be made, if nothing read any of it."""
    event = history.events[at]
    if len(event.results) <= spared.result or not event.reads:
        return None
    made = event.results[spared.result]
    saved = not spared.dimension and any(
        one.tensor == made.tensor for one in history.get(Graph).saved(at)
    )
    rest = _beyond(event.reads[0], made, spared.dimension)
    if (
        rest is None
        or saved
        or not _is_dropped(history, made)
        or _read_elsewhere(history, at, made)
    ):
        return None
    later = (one for one in history.on_storage(made) if one > at)
    return None if any(_reads(history, one, rest) for one in later) else rest


def _read_elsewhere(history: History, at: int, made: Operand) -> bool:
    """Whether another process may have read what a call made, while it was there."""
    freed = history.trace.storages[made.storage].freed
    until = math.inf if freed == UNKNOWN else history.position(freed)
    return history.get(OtherProcesses).read(made, at, until)


def _beyond(given: Operand, made: Operand, dimension: int) -> Operand | None:
    """Return what of a result lies beyond the shorter side of the matrix; all, for no dimension."""
    if not dimension:
        return made
    least, strides, shape = min(given.shape[-2:]), made.strides, list(made.shape)
    shape[dimension] -= least
    if shape[dimension] <= 0:
        return None
    return made._replace(offset=made.offset + least * strides[dimension], shape=tuple(shape))


def _reads(history: History, at: int, rest: Operand) -> bool:
    """Whether a call read elements of a tensor, and did not only show them as another."""
    event, memory = history.events[at], history.flow.memory
    touched = [one for one in (*event.reads, *event.writes) if may_overlap(one, rest)]
    given = [one for one in touched if one.storage == rest.storage]
    shows = bool(event.results) and not event.writes
    shows = shows and all(memory(one) == memory(rest) for one in event.results)
    return bool(given) and not shows


def _is_dropped(history: History, made: Operand) -> bool:
    """Whether a result went, or only a variable has it: what an object keeps may yet be read."""
    if history.trace.tensors[made.tensor].died != UNKNOWN:
        return True
    names = history.names_of(made.tensor)
    return bool(names) and all(one.isidentifier() for one in names)
