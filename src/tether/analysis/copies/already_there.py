"""Which calls made, in memory of their own, what was there already, element by element.

How a call is spelled does not matter: a clone, one tensor put into a list and joined, the parts of
a tensor put together again, a choice by an index that takes everything in order, elements said
several times over where they could be expanded, a number format there and back, an array or a list
that comes back, a factor of one, a permutation and its inverse. Each is given as the older memory's
own view that shows the same elements.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from tether.analysis.copies.gives_back import computes, leads_back
from tether.analysis.copies.layouts import remapped, same_strides
from tether.analysis.copies.other_processes import OtherProcesses
from tether.analysis.dataflow import values_read
from tether.analysis.history import History
from tether.analysis.sharing.shared_memory import Sharing
from tether.facts import OUT, RAISED, Event, Operand, Same, Taken
from tether.operations.table import operation
from tether.regions import element_size
from tether.store.numbers import Numbers

Ints = tuple[int, ...]

_FAR = 1_000
"""Calls behind a result that are looked through."""


class Copied(NamedTuple):
    """What one call made that was there already."""

    position: int
    source: Operand  # the older memory, as the view that shows the elements of `copy`
    copy: Operand  # what the call made, or a part of it
    since: int  # the event by which the elements were taken from the source
    part: bool = False  # `copy` is one of several parts
    taken: Taken | None = None  # the source is no tensor's: an array; then `source` is `copy`
    any_choice: bool = False  # whatever had been chosen, it would have been there
    equal: bool = False  # others than those in their places were chosen, which are equal


class AlreadyThere:
    """What each call made that was there already, by position."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._widened: dict[int, tuple[int, Operand]] = {}  # storage -> what it was converted from
        self._same = _came_back(history)
        self._taken = {history.position(fact.event): fact for fact in history.trace.taken}
        self.by_position: dict[int, list[Copied]] = {}
        events = history.events
        makes = ~events.flagged(RAISED | OUT)
        makes &= events.column("results") > 0
        candidates = makes & events.called(_may_give_what_was_there)
        compared = [at for at in (*self._same, *self._taken) if 0 <= at < len(events)]
        candidates[compared] = makes[compared]
        for position, event in events.at(np.flatnonzero(candidates)):
            if not _gives_itself(event):
                self._find(position, event)
        self._leave_out_few()
        self.unseen = self._sometimes(makes)

    def _find(self, position: int, event: Event) -> None:
        found = list(self._made(position, event)) or list(self._seen(position, event))
        if found:
            self.by_position[position] = found

    def _leave_out_few(self) -> None:
        """Leave out the lines of which no run took more than two of several places in order."""
        few = {at for at, one in self._same.items() if one.few}.intersection(self.by_position)
        lines = self._history.lines
        others = {int(lines[at]) for at in self.by_position.keys() - few}
        for at in few:
            if int(lines[at]) not in others:
                del self.by_position[at]

    def _sometimes(self, makes: Numbers) -> set[int]:
        """Return the calls that did not give what was there, on lines that did at other times."""
        lines = self._history.lines
        chosen = makes & np.isin(lines, lines[list(self.by_position)])
        events = self._history.events.at(np.flatnonzero(chosen))
        return {at for at, event in events if not _gives_itself(event)} - self.by_position.keys()

    def _made(self, position: int, event: Event) -> Iterator[Copied]:
        row, (result, *more) = operation(event.operation), event.results
        if more or not event.reads:
            return
        if row.copies:
            yield from self._converted(position, event, result)
        elif (row.joins or row.repeats) and all(self._alike(one, result) for one in event.reads):
            for source, copy in shown_by(event):
                part = copy is not result
                if part or not result.requires_grad or self._of_one_tensor(event.reads):
                    yield Copied(position, source, copy, position, part=part)

    def _of_one_tensor(self, parts: Sequence[Operand]) -> bool:
        """Whether the graph leads from all of some parts to one tensor that they are views of.

        The gradient of one view would go to where it comes from with all of its elements: not so
        where a part is of a tensor that is detached, or a leaf of its own, on the same memory.
        """
        first, *others = (self._viewed(one.tensor) for one in parts)
        return any(all(one in some for some in others) for one in first)

    def _viewed(self, tensor: int) -> list[int]:
        """Return a tensor and what it is a view of within the graph, one after the other."""
        found = [tensor]
        for at, source in self._history.get(Sharing).chain(tensor):
            made = self._history.events[at].results
            if not any(one.tensor == found[-1] and one.requires_grad for one in made):
                break
            found.append(source)
        return found

    def _alike(self, source: Operand, copy: Operand) -> bool:
        """Whether two operands lie in different memory of one device, and count alike."""
        return (
            self._history.flow.memory(source) != self._history.flow.memory(copy)
            and source.dtype == copy.dtype
            and _one_device(self._history, source, copy)
        )

    # -- one tensor ------------------------------------------------------------------------------

    def _converted(self, position: int, event: Event, result: Operand) -> Iterator[Copied]:
        pair = copied(self._history, position)
        if pair is not None:
            yield Copied(position, *pair, position)
            return
        source = event.reads[0]
        if event.writes or source.shape != result.shape or source.storage == result.storage:
            return
        before = self._widened.get(source.storage)
        if before is not None and self._is_as_made(before[0], position):
            at, wide = before
            narrow = self._history.events[at].reads[0]
            shown = remapped(source, wide, narrow)
            if shown is not None and self._alike(narrow, result):
                first = narrow._replace(offset=shown[3], shape=shown[4], strides=shown[5])
                yield Copied(position, first, result, at)
                return
        if _holds(source.dtype, result.dtype):
            self._widened[result.storage] = (position, result)

    def _is_as_made(self, at: int, position: int) -> bool:
        """Whether nothing wrote what a call made, or was shown its memory, before another read it.

        What writes through an array moves no version.
        """
        events, (made, *_) = self._history.events, self._history.events[at].results
        read = [one for one in events[position].reads if one.storage == made.storage]
        if not read or read[0].version != made.version:
            return False
        if self._history.get(OtherProcesses).write(made):
            return False
        memory = self._history.flow.memory(made)
        between = (events[one] for one in self._history.on_storage(made) if at < one < position)
        return not any(
            operation(event.operation).lends
            or any(self._history.flow.memory(one) == memory for one in event.writes)
            for event in between
        )

    def _seen(self, position: int, event: Event) -> Iterator[Copied]:
        """Give what was compared while the program ran."""
        result, fact, taken = event.results[0], self._same.get(position), self._taken.get(position)
        if fact is None:
            if taken is not None:
                yield Copied(position, result, result, position, taken=taken)
            return
        taken_by = self._taken_by(position, fact)
        if taken_by is not None and self._alike(taken_by[1], result):
            since, one = taken_by
            shown = one._replace(offset=fact.offset, shape=result.shape, strides=fact.strides)
            yield Copied(
                position, shown, result, since, any_choice=fact.any_choice, equal=fact.equal
            )

    def _taken_by(self, position: int, fact: Same) -> tuple[int, Operand] | None:
        """Return the call that took the elements which came back, and what it was given.

        Of those compared with what the call was not given, only where each call in between gives
        elements as they are, or each one of its own.
        """
        history = self._history
        since = history.position(fact.since)
        if since < 0:
            return None
        if by_way(history, since, position) and not self._is_as_made(since, position):
            return None
        for one in history.events[since].reads:
            if one.tensor == fact.source:
                return since, one
        behind = history.flow.behind(position, _FAR) if since == position else []
        for at in reversed(behind):
            for one in history.events[at].reads:
                if one.tensor == fact.source:
                    leads = leads_back(history, position, at, behind)
                    return (at, one) if leads else None
        return None


def by_way(history: History, since: int, position: int) -> bool:
    """Whether a call converts, or copies, what another one made of what it was given."""
    made = history.events[since].results
    if since >= position or len(made) != 1 or not operation(history.events[since].operation).copies:
        return False
    return any(one.storage == made[0].storage for one in history.events[position].reads)


def by_values(history: History, copied: Copied) -> bool:
    """Whether elements were converted there and back, by a format that has not all of them."""
    if not by_way(history, copied.since, copied.position):
        return False
    way = history.events[copied.since].results[0].dtype
    return not _holds(copied.source.dtype, way)


def may_differ(history: History, copied: Copied) -> bool:
    """Whether the values decide if a call gives what was there: in other runs it may not."""
    return computes(history.events[copied.position]) or by_values(history, copied)


def _may_give_what_was_there(name: str) -> bool:
    row = operation(name)
    return bool(row.copies or row.joins or row.repeats)


def _gives_itself(event: Event) -> bool:
    """Whether a call that copies only where it must had nothing to do."""
    alone = operation(event.operation).copies and len(event.reads) == 1 and not event.writes
    return bool(alone) and event.results[0].storage == event.reads[0].storage


def copied_on(history: History, at: int, copy: Operand) -> int:
    """Return the call that copies all that is read of a copy, and was all that read it.

    -1 where there is none, or more is done with the copy: it would have been given the source.
    """
    events, memory = history.events, history.flow.memory(copy)
    later = [one for one in history.on_storage(copy) if one > at]
    read = [one for one in later if not _only_shows(history, events[one], memory)]
    if len(read) != 1 or events[read[0]].raised:
        return -1
    event, row = events[read[0]], operation(events[read[0]].operation)
    given = {history.flow.memory(one) for one in (*event.results, *event.writes)}
    copies = row.copies or row.joins or row.places
    return read[0] if given and memory not in given and copies else -1


def _only_shows(history: History, event: Event, memory: int) -> bool:
    """Whether a call shows a memory as it is, takes it away, or asks for its gradient."""
    row = operation(event.operation)
    shows = bool(event.results) and {history.flow.memory(one) for one in event.results} == {memory}
    return bool(row.gradients or row.replaces or (shows and not event.writes and not row.leaves))


def _came_back(history: History) -> dict[int, Same]:
    """Return what was seen to be there already, by position.

    What is only equal, and not known to have come from there, may be out of a file.
    """
    came = {(one.exit, one.entry) for one in history.trace.bridges}
    facts = history.trace.same
    return {
        history.position(one.event): one
        for one in facts
        if one.sure or (one.since, one.event) in came
    }


def nbytes(operand: Operand) -> int:
    """Return the bytes of a tensor's elements."""
    return math.prod(operand.shape) * element_size(operand.dtype)


def copied(history: History, position: int) -> tuple[Operand, Operand] | None:
    """Return (source, copy) when an event gave a tensor as it is in memory of its own."""
    event = history.events[position]
    row = operation(event.operation)
    read = values_read(event)
    if not row.copies or event.raised or not read or not event.results:
        return None
    if event.writes or row.writes:
        pair = _filled(history, position)
    else:
        pair = (event.reads[read[0]], event.results[0])
    return pair if pair is not None and _as_it_is(history, *pair) else None


def _as_it_is(history: History, source: Operand, copy: Operand) -> bool:
    """Whether two tensors of one kind lie in different memory of one device."""
    kinds = {(one.dtype, one.shape) for one in (source, copy)}
    return source.storage != copy.storage and len(kinds) == 1 and _one_device(history, source, copy)


def _one_device(history: History, source: Operand, copy: Operand) -> bool:
    storages = history.trace.storages
    one, other = storages.get(source.storage), storages.get(copy.storage)
    return one is not None and other is not None and one.device == other.device


def _filled(history: History, position: int) -> tuple[Operand, Operand] | None:
    """Return the pair of ``torch.zeros_like(x).copy_(x)``: what fills new memory first."""
    event = history.events[position]
    if len(event.reads) < 2 or not event.results:
        return None
    target, source = event.reads[0], event.reads[1]
    at = history.made_at(target.tensor)
    made = history.events[at]
    if at < 0 or not operation(made.operation).blank or made.thread != event.thread:
        return None
    met = [one for one in history.on_storage(target) if one <= position]
    if met != [at, position] or made.results[0][3:] != target[3:]:
        return None
    return source, event.results[0]


def within_one(history: History, position: int) -> bool:
    """Whether new memory that a call fills was made in the same expression."""
    event = history.events[position]
    at = history.made_at(event.reads[0].tensor)
    here, there = history.site_of(event), history.site_of(history.events[at])
    return here[:3] == there[:3]


def shown_by(event: Event) -> Iterator[tuple[Operand, Operand]]:
    """Yield (view, what it shows) for a call that repeated a tensor, or put several side by side.

    One view of one memory that shows the whole result, or else each tensor and its part of it.
    """
    row, result = operation(event.operation), event.results[0]
    if row.repeats and len(event.reads) == 1:
        strides = _expanded(event.reads[0], result.shape)
        if strides is not None:
            yield event.reads[0]._replace(shape=result.shape, strides=strides), result
    # A part without elements was none this time alone: a cache that is filled later.
    if row.joins and not any(0 in one.shape for one in event.reads):
        yield from _side_by_side(event, event.reads, result)


def _side_by_side(
    event: Event, sources: Sequence[Operand], result: Operand
) -> Iterator[tuple[Operand, Operand]]:
    dimension = _dimension(event, sources, result)
    parts = _parts(sources, result, dimension) if dimension is not None else []
    if not parts or dimension is None:
        return
    whole = _together(parts, result, dimension)
    if whole is not None:
        yield whole, result
    elif len(parts) > 1:
        yield from ((one.source, one.region) for one in parts)


# -- shapes ----------------------------------------------------------------------------------------


_FLOATS = {"bfloat16": (8, 8), "float16": (5, 11), "float32": (8, 24), "float64": (11, 53)}
"""Bits of the exponent and of the significand (IEEE 754, and 8 and 8 of bfloat16)."""


def _holds(narrow: str, wide: str) -> bool:
    """Whether every value of a type is one of another type, and comes back as it was."""
    if narrow == wide:
        return True
    if narrow in _FLOATS:
        return wide in _FLOATS and all(
            a <= b for a, b in zip(_FLOATS[narrow], _FLOATS[wide], strict=True)
        )
    own = _magnitude(narrow)
    if not own:
        return False
    if wide in _FLOATS:
        return own <= _FLOATS[wide][1]
    return own <= _magnitude(wide) and (not narrow.startswith("int") or wide.startswith("int"))


def _magnitude(dtype: str) -> int:
    """Return the bits of a whole number beside its sign; 0 for any other type."""
    if dtype == "bool":
        return 1
    if not dtype.startswith(("int", "uint")):
        return 0
    return 8 * element_size(dtype) - dtype.startswith("int")


def _expanded(source: Operand, shape: Ints) -> Ints | None:
    """Return the strides by which a tensor can be expanded to a shape; None where it cannot."""
    ahead = len(shape) - len(source.shape)
    if ahead < 0:
        return None
    strides = [0] * ahead
    for own, size, stride in zip(source.shape, shape[ahead:], source.strides, strict=True):
        if own not in (1, size):
            return None
        strides.append(stride if own == size else 0)
    return tuple(strides)


class _Part(NamedTuple):
    """One of the tensors that were joined."""

    source: Operand
    region: Operand  # of the result, that shows it
    at: int  # where it begins along the dimension


def _parts(sources: Sequence[Operand], whole: Operand, dimension: int) -> list[_Part]:
    """Return each tensor that was joined with the part of the result that shows it."""
    placed, at = [], 0
    step, new = whole.strides[dimension], len(sources[0].shape) < len(whole.shape)
    for source in sources:
        strides = tuple(s for d, s in enumerate(whole.strides) if not (new and d == dimension))
        region = whole._replace(
            offset=whole.offset + at * step, shape=source.shape, strides=strides
        )
        placed.append(_Part(source, region, at))
        at += 1 if new else source.shape[dimension]
    return placed if at == whole.shape[dimension] else []


def _dimension(event: Event, parts: Sequence[Operand], whole: Operand) -> int | None:
    """Return the dimension along which tensors were joined; None where it cannot be told."""
    shape, first = whole.shape, parts[0].shape
    if len(first) + 1 == len(shape):
        alike = all(one.shape == first for one in parts)
        return _new_dimension(event, len(parts), first, shape) if alike else None
    if len(first) != len(shape):
        return None
    longer = [d for d, (a, b) in enumerate(zip(first, shape, strict=True)) if a != b]
    if len(parts) == 1:
        return 0 if shape and not longer else None
    return longer[0] if len(longer) == 1 else None


def _new_dimension(event: Event, count: int, part: Ints, whole: Ints) -> int | None:
    """Return the dimension of a result that its parts have not."""
    if event.detail:
        return int(event.detail) % len(whole)
    fitting = [d for d, n in enumerate(whole) if n == count and whole[:d] + whole[d + 1 :] == part]
    certain = 1 in (count, len(fitting)) or operation(event.operation).notes == "dimension"
    return fitting[0] if fitting and certain else None


def _together(parts: Sequence[_Part], whole: Operand, dimension: int) -> Operand | None:
    """Return the one view that shows all that was joined, where it lies in one memory in order."""
    first = parts[0].source
    new, step = len(first.shape) < len(whole.shape), whole.strides[dimension]
    if len(parts) > 1:
        step, rest = divmod(parts[1].source.offset - first.offset, parts[1].at - parts[0].at)
        if rest or step < 0:
            return None
    for one, _, at in parts:
        strides = _with(one.strides, step, dimension, new=new)
        if one.storage != first.storage or one.offset != first.offset + at * step:
            return None
        if not new and one.shape[dimension] > 1 and one.strides[dimension] != step:
            return None
        if not same_strides(whole.shape, strides, _with(first.strides, step, dimension, new=new)):
            return None
    return first._replace(shape=whole.shape, strides=_with(first.strides, step, dimension, new=new))


def _with(strides: Ints, step: int, dimension: int, *, new: bool) -> Ints:
    return (*strides[:dimension], step, *strides[dimension + (not new) :])
