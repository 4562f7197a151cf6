"""Elements that are taken out of a tensor, or put into it, one call for each: part of `slow-copy`.

Reads that give numbers are told by `on_device`; here are those that stay tensors and are joined
again, and the writes of numbers.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise

import numpy as np

from tether.analysis.copies.already_there import nbytes
from tether.analysis.copies.layouts import contiguous
from tether.facts import RAISED, UNKNOWN, Event, Operand
from tether.operations.table import operation
from tether.store.numbers import Numbers, concatenated_ranges
from tether.verdicts.slow_copy.by_rows import CALLS
from tether.verdicts.slow_copy.on_device import COUNT, SMALL, Lines, Slow, Spec

FILLED = 2
"""Writes for each place along the longest dimension, from which they are of single elements."""

LOOKED = 8
"""Writes of a line of which is asked what their numbers were computed of."""

LOADED = 10_000
"""Rows, of some ten microseconds each to take and to join, from which a loader takes a tenth of a
second longer: to hand it batches is more to write than to call something else."""

AGAIN = 4
"""How many times more tensors are joined than there are, from which it is told."""

FAR = 200
"""Calls behind a number that are looked through."""


def by_elements(lines: Lines) -> Iterator[Slow]:
    """Give each of the user's lines that takes or puts single elements of one tensor."""
    for (_, name), places in lines.by_line.items():
        row = operation(name)
        if row.joins:
            found = (
                _taken(lines, name, places)
                or _kept_apart(lines, places)
                or _of_array(lines, places)
            )
        elif row.part and row.writes:
            found = _put(lines, places)
        elif row.writes and row.pointwise:
            found = _counted(lines, places)
        else:
            continue
        if found is not None and not lines.needless(found.at):
            yield found
    yield from _loaded(lines)


def _loaded(lines: Lines) -> Iterator[Slow]:
    """Give the user's lines that take single rows, of which a library joins a batch: a loader."""
    for places in _library_joins(lines):
        tensors = _tensors(lines, _given(lines, places))
        if len(tensors) < LOADED:
            continue
        if not _only_joined(lines, tensors):
            yield from _kept_apart_by_kind(lines, places)
            continue
        sources = [one for at in places if (one := _source(lines, at, 1)) is not None]
        taken = lines.history.made_at(int(tensors[0]))
        if len(sources) == len(places):
            yield _batches(lines, taken, places, len({one.tensor for one in sources}))
        else:
            found = (_of_array(lines, some) for some in _by_kind(lines, places))
            yield from [one for one in found if one is not None][:1]


def _library_joins(lines: Lines) -> Collection[list[int]]:
    """Return where a library's line joined tensors, for each of the user's that it worked for."""
    found: dict[tuple[int, int], list[int]] = defaultdict(list)
    column = lines.events.column
    joins = lines.events.called(lambda name: bool(operation(name).joins))
    joins &= (column("inner") != UNKNOWN) & (column("inner") != column("site"))
    at = np.flatnonzero(joins & ~lines.events.flagged(RAISED))
    columns = (one.tolist() for one in (column("site")[at], column("inner")[at], at))
    for site, inner, position in zip(*columns, strict=True):
        found[site, inner].append(position)
    return found.values()


def _given(lines: Lines, places: Sequence[int]) -> Numbers:
    """Return the operands that calls were given, by their rows."""
    events, at = lines.events, np.array(places, np.int64)
    return events.rows[concatenated_ranges(events.starts[at], events.column("reads")[at])[1]]


def _tensors(lines: Lines, rows: Numbers) -> Numbers:
    found: Numbers = lines.events.operands.column("tensor")[rows]
    return found


def _only_joined(lines: Lines, tensors: Numbers) -> bool:
    """Whether nothing was done with any row but to join it with others, once."""
    counts, _ = lines.history.users(tensors, np.full(len(tensors), UNKNOWN))
    return bool((counts == 1).all())


def _batches(lines: Lines, taken: int, places: Sequence[int], tensors: int) -> Slow:
    """Say of how many tensors rows were taken one by one, and how to take all of a batch."""
    join, source = lines.events[places[0]], lines.events[taken].reads[0]
    name, size, count = join.operation, len(join.reads), len(_given(lines, places))
    more = f" and {tensors - 1} more" if tensors > 1 else ""
    what = f"{name} joins batches of rows that were taken out of it{more} by one call each,"
    what += f" {count:,} in {len(places):,} runs"
    fix = "Take all rows of a batch by one index: a DataLoader with sampler=BatchSampler(...) and"
    fix += " batch_size=None asks for them at once."
    slow, fast = f"torch.stack([x[n] for n in range({size})])", f"x[torch.arange({size})]"
    spec = Spec(slow, fast, (source,), lines.device(source), calls=size)
    return Slow(taken, source, count, 0, spec, "read", what, fix)


def _taken(lines: Lines, name: str, places: Sequence[int]) -> Slow | None:
    """Find joins of single elements, or rows, that calls took out of one tensor."""
    joins = [(at, source) for at in places if (source := _source(lines, at)) is not None]
    count = len(_given(lines, [at for at, _ in joins]))
    if len(joins) < len(places) or count < CALLS:
        return None
    at, source = joins[0]
    parts, way = "rows", "an index of all their numbers, index_select"
    if not lines.events[at].reads[0].shape:
        parts, way = "elements", "gather, or an index with a tensor for each dimension"
    others = len({one.tensor for _, one in joins}) - 1
    more = f" and {others:,} more" if others else ""
    what = f"{name} joins {parts} that were taken out of it{more} by one call each, {count:,} in"
    what += f" {len(joins):,} runs"
    fix = f"Take them by one call: {way}."
    return Slow(at, source, count, 0, None, "read", what, fix)


def _kept_apart_by_kind(lines: Lines, places: Sequence[int]) -> list[Slow]:
    """Ask of a loader's line, which joins all that the items have: one kind of them is told."""
    found = (_kept_apart(lines, some) for some in _by_kind(lines, places))
    return [one for one in found if one is not None][:1]


def _by_kind(lines: Lines, places: Sequence[int]) -> Collection[list[int]]:
    """Return the runs of a line apart by how the first tensor that each was given is laid out."""
    kinds: dict[object, list[int]] = defaultdict(list)
    for at in places:
        kinds[lines.events[at].reads[0][4:7]].append(at)
    return kinds.values()


def _of_array(lines: Lines, places: Sequence[int]) -> Slow | None:
    """Find joins of tensors that were made one by one of the rows of one array."""
    rows = _given(lines, places)
    if len(rows) < max(CALLS, COUNT * len(places)):
        return None
    tensors, first = _tensors(lines, rows), lines.events.operands[int(rows[0])]
    made = lines.history.makers(tensors)
    if nbytes(first) > SMALL or made.min() < 0:
        return None
    looked = _rows_of_one_array(lines, made)
    if looked < COUNT or not _only_joined(lines, tensors) or lines.needless(int(made[0])):
        return None
    return _rows_made(lines, places, int(made[0]), looked)


def _rows_made(lines: Lines, places: Sequence[int], made: int, looked: int) -> Slow:
    """Say of how many rows of an array tensors were made one by one, and how to take a batch."""
    first, count = lines.events[places[0]], len(_given(lines, places))
    size, name, join = len(first.reads), lines.events[made].operation, first.operation
    what = f"{name} is called for each row of an array, and {join} joins what it makes: {count:,}"
    what += (
        f" rows in {len(places):,} runs ({looked:,} of them were seen to be parts of that array)"
    )
    fix = "Make a tensor of the whole array once, torch.from_numpy(...), and take all rows of a"
    fix += " batch by one index: with a DataLoader, sampler=BatchSampler(...) and batch_size=None."
    row = first.reads[0]
    shape = (size, *row.shape)
    table = row._replace(offset=0, shape=shape, strides=contiguous(shape))
    slow = f"torch.stack([torch.{name}(array[n]) for n in range({size})])"
    spec = Spec(
        slow, f"x[torch.arange({size})]", (table,), lines.device(row), runs=True, calls=size
    )
    return Slow(made, row, count, 0, spec, "made", what, fix, places[0])


def _rows_of_one_array(lines: Lines, made: Numbers) -> int:
    """Return how many calls of one line were seen to be given a part of one array, unwritten then.

    0 where any was seen to be given another, or all of one.
    """
    first, column = lines.events[int(made[0])], lines.events.column
    same = [len(np.unique(column(name)[made])) == 1 for name in ("operation", "site")]
    if not operation(first.operation).enters or first.reads or not all(same):
        return 0
    history, calls = lines.history, set(made.tolist())
    taken = [one for one in history.trace.taken if history.position(one.event) in calls]
    arrays = {one.memory for one in taken}
    parts = all(one.beside and one.changed != "yes" for one in taken)
    return len(taken) if parts and len(arrays) == 1 and UNKNOWN not in arrays else 0


def _kept_apart(lines: Lines, places: Sequence[int]) -> Slow | None:
    """Find joins of small tensors, the same ones over and over, in another choice each time."""
    rows = _given(lines, places)
    if len(rows) < LOADED:
        return None
    once = np.unique(rows)  # a tensor has several, where it was seen by more than one view
    operands = lines.events.operands
    versions = [operands.column(one)[once] for one in ("tensor", "version")]
    row, kept = operands[int(rows[0])], np.unique(np.stack(versions), axis=1).T
    if len(rows) < AGAIN * len(kept) or row.requires_grad or nbytes(row) > SMALL:
        return None
    joins = [lines.events[at] for at in places]
    size = _size_of(joins)
    if size < COUNT:
        return None
    name = joins[0].operation
    what = f"{name} joins {len(rows):,} small tensors in {len(joins):,} runs, and they are the same"
    what += f" {len(kept):,} over and over"
    fix = "Keep them as the rows of one tensor, each written there as it comes, and take a batch by"
    fix += " one index: rows[numbers]. A number that is kept beside each goes into a tensor too."
    shape = (size, *row.shape)
    table = row._replace(offset=0, shape=shape, strides=contiguous(shape))
    spec = Spec(f"torch.{name}(rows)", f"x[torch.arange({size})]", (table,), lines.device(row))
    done = "made" if lines.own(joins[0]) else "read"
    return Slow(places[0], row, len(joins), 0, spec, done, what, fix)


def _size_of(joins: Sequence[Event]) -> int:
    """Return how many tensors the least of some joins was given; 0 where they are not alike.

    Nor where most were given what the one before was: then one of them would have done.
    """
    given = [{one.tensor for one in event.reads} for event in joins]
    same = sum(one == other for one, other in pairwise(given))
    kinds = {one[4:7] for event in joins for one in event.reads}
    plain = len(kinds) == 1 and 2 * same <= len(joins)
    return min(len(event.reads) for event in joins) if plain else 0


def _source(lines: Lines, at: int, least: int = COUNT) -> Operand | None:
    """Return the tensor of which a join was given elements or rows, one call for each."""
    reads = lines.events[at].reads
    if len(reads) < least or nbytes(reads[0]) > SMALL:
        return None
    makers = {lines.history.made_at(one.tensor) for one in reads}
    makers = {_chosen_at(lines, one) for one in makers}
    taken, picked_of = [one for one in makers if one >= 0], lines.picked_of
    if len(taken) < len(reads) or len({picked_of[one] for one in taken}) > 1:
        return None
    return _one_source(lines, taken[0], {one.shape for one in reads})


def _chosen_at(lines: Lines, made: int) -> int:
    """Return the call that chose what another only copied, if nothing else was done with that."""
    if made < 0 or not lines.clones[made]:
        return made
    given = lines.events[made].reads[0]
    alone = len(lines.after(given.tensor, UNKNOWN)) == 1 and not given.requires_grad
    return lines.history.made_at(given.tensor) if alone else made


def _one_source(lines: Lines, taken: int, shapes: set[tuple[int, ...]]) -> Operand | None:
    """Return the tensor of which a call, as others like it, took an element or a row."""
    if lines.picked_of[taken] == UNKNOWN:
        return None
    source = lines.events[taken].reads[0]
    return source if len(shapes) == 1 and shapes <= {(), source.shape[1:]} else None


def _put(lines: Lines, places: Sequence[int]) -> Slow | None:
    """Find writes of numbers to more places of a tensor than it has along any dimension."""
    events = [(at, lines.events[at]) for at in places]
    numbers = [(at, one) for at, one in events if one.writes and _is_number(one)]
    if len(numbers) < max(CALLS, len(places)):
        return None
    times = Counter(one.writes[0].tensor for _, one in numbers)
    at, largest = max(numbers, key=lambda one: math.prod(one[1].reads[0].shape))
    written = largest.reads[0]
    if len(written.shape) < 2 or times[written.tensor] < FILLED * max(written.shape):
        return None
    if any(_hangs_on(lines, one) for one, _ in numbers[:: len(numbers) // LOOKED]):
        return None
    count = len(numbers)
    what = f"one call for each number that is put into it, {count:,} of {len(times):,} tensors"
    fix = "Make it of lists, by one torch.tensor(...), or join rows: pad_sequence fills them up."
    if len(largest.reads) > 1:
        fix = "Compute them all by one call, along dimensions of the tensors that they are made of."
    return Slow(at, written, count, 0, None, "written", what, fix, UNKNOWN)


def _counted(lines: Lines, places: Sequence[int]) -> Slow | None:
    """Find places of a tensor changed by numbers one by one, where nothing else asks for it."""
    groups: dict[int, list[int]] = defaultdict(list)
    for at in places:
        if _is_place(lines, lines.events[at]):
            groups[lines.events[at].writes[0].storage].append(at)
    runs = [some for some in groups.values() if len(some) >= COUNT and _is_alone(lines, some)]
    count = sum(map(len, runs))
    if count < max(CALLS, len(places)):
        return None
    most = max(runs, key=len)
    at, name = most[0], lines.events[most[0]].operation
    what = f"{name} changes one of its elements by one number at a time, {len(most):,} times, and"
    what += " nothing else reads them meanwhile"
    if len(runs) > 1:
        what += f"; so it does with {len(runs) - 1:,} more, {count - len(most):,} times"
    fix = "Do it by one call: torch.bincount counts, and index_put_(..., accumulate=True) adds"
    fix += " values up, each at its place."
    return Slow(at, lines.events[at].writes[0], count, 0, None, "written", what, fix)


def _is_place(lines: Lines, event: Event) -> bool:
    """Whether a call changes one element of a larger memory, by no more than one number."""
    if len(event.writes) != 1 or len(event.reads) > 2:
        return False
    single = all(math.prod(one.shape) == 1 for one in (*event.reads, *event.writes))
    (written,) = event.writes
    large = lines.history.trace.storages[written.storage].nbytes > nbytes(written)
    return single and large and not written.requires_grad


def _is_alone(lines: Lines, runs: Sequence[int]) -> bool:
    """Whether, between the first and the last run of a line, only that line touches the memory."""
    touching = lines.history.on_storage(lines.events[runs[0]].writes[0])
    within = touching[bisect_left(touching, runs[0]) : bisect_right(touching, runs[-1])]
    return len({lines.history.site_of(lines.events[at]).row for at in within}) == 1


def _is_number(event: Event) -> bool:
    """Whether a call was given one number to write: Python's, or one that a call computed."""
    return len(event.reads) == 1 or (len(event.reads) == 2 and not event.reads[1].shape)


def _hangs_on(lines: Lines, at: int) -> bool:
    """Whether a number that is written was computed of the tensor that it is put into."""
    event, flow = lines.events[at], lines.history.flow
    made = lines.history.made_at(event.reads[1].tensor) if len(event.reads) > 1 else UNKNOWN
    if made < 0:
        return False
    memory = flow.memory(event.reads[0])
    behind = (lines.events[one] for one in (made, *flow.behind(made, FAR)))
    return any(flow.memory(one) == memory for each in behind for one in each.reads)
