"""The copies that others' values replace before anything reads them: part of `slow-copy`.

A model copied to be given other weights at once, a clone that is filled anew. Of models, what
chance fills is left out: that is how they are begun.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

import numpy as np

from tether.analysis.copies.already_there import Copied, nbytes
from tether.analysis.copies.needs import Need, needs, read_unseen
from tether.analysis.copies.other_processes import OtherProcesses
from tether.analysis.copies.replaced import fate_of
from tether.analysis.gradients.graph import Graph
from tether.analysis.history import History
from tether.facts import UNKNOWN, Operand
from tether.operations.table import Spared, operation
from tether.regions import may_overlap
from tether.verdicts.slow_copy.on_device import LARGE, NODE, STEPS, Lines, Slow

DEEP = "__deepcopy__"


def overwritten(lines: Lines) -> Iterator[Slow]:
    """Give each of the user's lines whose copies nothing reads before they have other values."""
    history = lines.history
    if read_unseen(history):
        return
    for (_, inner, name), need in needs(history).items():
        if inner != UNKNOWN or need.needed == "no" or need.bytes < NODE:
            continue
        found = _replaced_models(lines, need) if name == DEEP else _replaced(lines, need)
        if found is not None:
            yield found


def runs_of(name: str, need: Need) -> int:
    """Return how often a line ran: a copy of a model is one of each of its tensors."""
    if name != DEEP:
        return need.count
    return max(Counter(one.source.storage for one in need.executions).values(), default=0)


def _replaced(lines: Lines, need: Need) -> Slow | None:
    """Find copies of single tensors half of whose bytes and more were put there for nothing."""
    ends = [(one, fate_of(lines.history, one, drawn=True)) for one in need.executions]
    lost = [(one, fate.at) for one, fate in ends if fate.at != UNKNOWN]
    total = sum(nbytes(one.copy) for one, _ in lost)
    often = need.count >= STEPS or total >= LARGE
    if total < max(NODE, need.bytes / 2) or not often:
        return None
    fix = "Make it without these values: torch.empty_like(...), or zeros_like(...), full_like(...)"
    return _slow(lost[0], total, need.count, f"{fix} where one value is put there.")


def _replaced_models(lines: Lines, need: Need) -> Slow | None:
    """Find copies of models, or of states, each of which gets other values and goes in time.

    What is filled by chance was begun so. One that is still of use when the next is made needs
    memory of its own, and is what gives it the right structure.
    """
    runs = each_run(lines, need.executions)
    if not (len(runs) >= STEPS and _alike(runs) and _one_at_a_time(lines, runs)):
        return None
    ends = [(one, fate_of(lines.history, one, drawn=False)) for one in need.executions]
    lost = [(one, fate.at) for one, fate in ends if fate.at != UNKNOWN]
    total = sum(nbytes(one.copy) for one, _ in lost)
    rest = any(fate.read for _, fate in ends)
    if not lost or total < (max(LARGE, need.bytes / 2) if rest else NODE):
        return None
    given = _are_given(lines, [at for _, at in lost])
    return _slow(lost[0], total, len(runs), _once(rest=rest, given=given))


def _are_given(lines: Lines, calls: Sequence[int]) -> bool:
    """Whether some calls that put other values into tensors took them from tensors."""
    return any(len(lines.events[at].reads) > 1 for at in calls)


_OF_TENSORS = (
    "Make each tensor without these values: torch.zeros_like(...), or full_like(...) of a value"
    " that is not zero. Or, of a whole model, make"
)


def _once(*, rest: bool, given: bool) -> str:
    """Say how one copy is filled each time; of other values that are tensors, another way."""
    fix = "Make" if given else _OF_TENSORS
    fix += " the copy once, before, and fill that each time: none is used when the next one is"
    fix += " made. A model's mode, and what it has beside tensors, stays as it was left."
    if rest:
        fix += " What else is read of it, as buffers, is to be copied still."
    if given:
        fix += " Or compute with the other values: torch.func.functional_call(model, values, args)."
    return fix


def _alike(runs: Sequence[Sequence[Copied]]) -> bool:
    """Whether each run of a line copied tensors of the same sizes and types."""
    return len({tuple((one.copy.shape, one.copy.dtype) for one in run) for run in runs}) == 1


def each_run(lines: Lines, executions: Sequence[Copied]) -> list[list[Copied]]:
    """Return the copies that each run of a line made: others ran in between, or it began anew."""
    runs: list[list[Copied]] = []
    for one in executions:
        last = runs[-1] if runs else []
        anew = any(each.source.storage == one.source.storage for each in last)
        if not last or anew or _others_between(lines, last[-1].position, one.position):
            runs.append([])
        runs[-1].append(one)
    return runs


def _others_between(lines: Lines, since: int, until: int) -> bool:
    """Whether any line but that of a call itself made calls before another of that line."""
    sites = np.unique(lines.events.column("site")[since : until + 1]).tolist()
    return len({lines.history.site(one).row for one in sites}) > 1


def _one_at_a_time(lines: Lines, runs: Sequence[Sequence[Copied]]) -> bool:
    """Whether each copy was gone soon after the next one was made, and used by nothing from then.

    But by the copying itself, where the last copy is what is copied.
    """
    history, end = lines.history, len(lines.events)
    begins = [run[0].position for run in runs] + [end]
    for run, then, after in zip(runs, runs[1:], begins[2:], strict=False):
        copying = {one.position for one in then}
        for one in run:
            freed = history.trace.storages[one.copy.storage].freed
            used = (at for at in history.on_storage(one.copy) if at > then[0].position)
            gone = freed != UNKNOWN and history.position(freed) <= after
            if not gone or any(at not in copying for at in used):
                return False
    return True


def _slow(lost: tuple[Copied, int], total: int, runs: int, fix: str) -> Slow:
    """Say what one line copies in vain."""
    first, then = lost
    times = "1 run" if runs == 1 else f"{runs:,} runs"
    what = f"{total:,} bytes in {times} are replaced by others before anything reads them"
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
    """Whether a call read elements of a tensor, and did not only show them as another.

    Another that an object keeps may yet be read.
    """
    event, memory = history.events[at], history.flow.memory
    touched = [one for one in (*event.reads, *event.writes) if may_overlap(one, rest)]
    given = [one for one in touched if one.storage == rest.storage]
    shows = bool(event.results) and not event.writes
    shows = shows and all(
        memory(one) == memory(rest) and _is_dropped(history, one) for one in event.results
    )
    return bool(given) and not shows


def _is_dropped(history: History, made: Operand) -> bool:
    """Whether a result went, or only a variable has it: what an object keeps may yet be read."""
    if history.trace.tensors[made.tensor].died != UNKNOWN:
        return True
    names = history.names_of(made.tensor)
    return bool(names) and all(one.isidentifier() for one in names)
