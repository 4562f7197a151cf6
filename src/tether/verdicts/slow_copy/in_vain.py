"""The lines that copy more than is used, or the same again: part of `slow-copy`."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from tether.analysis.copies.already_there import Copied, copied_on, nbytes
from tether.analysis.copies.layouts import channels_last, contiguous, same_layout, same_strides
from tether.analysis.copies.needs import Need, needs
from tether.analysis.copies.other_processes import OtherProcesses
from tether.analysis.gradients.graph import Graph
from tether.facts import GRAD_ON, UNKNOWN, Event, Operand
from tether.operations.table import operation
from tether.store.numbers import Numbers
from tether.verdicts.slow_copy.on_device import LARGE, STEPS, Lines, Slow, Spec, converts

PART = 4
"""How many times more is copied than is used, from which it is told."""

FILLED_ON = (
    "Make the whole memory once, write each part into its place, and read the slice that is filled"
    " so far; where its size is not known, double it when it is full."
)
"""What to do instead of joining all anew, where what there is so far is read at each step."""


def vain(lines: Lines) -> Iterator[Slow]:
    """Give each of the user's lines that copies for nothing."""
    for (_, name), places in lines.by_line.items():
        found = None
        if operation(name).joins:
            found = (
                _grown(lines, places) or _lists_grown(lines, places) or _partly_taken(lines, places)
            )
        elif _copies(name) or operation(name).exact:
            found = _partly_used(lines, places)
        if found is not None and not lines.needless(found.at):
            yield found
    yield from _taken_apart(lines)
    yield from _laid_back(lines)
    yield from _copied_on(lines)


def _copied_on(lines: Lines) -> Iterator[Slow]:
    """Give the deep copies whose memory was copied again before anything else had read it.

    A copied module is an object of its own: it could be there once, and be filled each time.
    """
    for (_, inner, name), need in needs(lines.history).items():
        if name != "__deepcopy__" or inner != UNKNOWN or need.needed == "no":
            continue
        sources = {one.source.storage: one.source for one in need.executions}
        if need.count < STEPS * len(sources) or need.bytes < LARGE:
            continue
        then = [_then(lines, one) for one in need.executions]
        if UNKNOWN not in then:
            yield _filled_anew(lines, need, list(sources.values()), then[0])


def _filled_anew(lines: Lines, need: Need, sources: list[Operand], then: int) -> Slow:
    """Say of a model that is copied to be converted how another is filled with its values."""
    at, reader = need.executions[0].position, lines.events[then]
    made, source = reader.results[0], max(sources, key=nbytes)
    what = f"it copies {need.count:,} tensors, {need.bytes:,} bytes, which {reader.operation}"
    what += " copies again, and nothing else reads what was copied first"
    fix = "Make the other model once, and fill it each time: load_state_dict() converts what it"
    fix += " copies. Where only its state is used, convert that: {name: t.to(dtype) for name, t in"
    fix += " model.state_dict().items()}."
    slow = "{key: x.clone().to(dtype) for key, x in xs.items()}"
    here, spec = lines.device(source), None
    if here == lines.device(made) and made.dtype != source.dtype:
        fast = slow.replace(".clone()", "")
        spec = Spec(slow, fast, tuple(sources), here, dtype=made.dtype)
    return Slow(at, source, need.count, need.bytes, spec, "copied", what, fix, then)


def _then(lines: Lines, one: Copied) -> int:
    """Return the call that copied a copy again, if it could have been given its source."""
    then = copied_on(lines.history, one.position, one.copy)
    written = lines.written(one.source, one.position, then)
    return UNKNOWN if written or not same_layout(one.source, one.copy) else then


def _laid_back(lines: Lines) -> Iterator[Slow]:
    """Give the copies of channels-last tensors in another layout that their readers lay back."""
    for (_, inner, name), need in needs(lines.history).items():
        rounds = need.needed == "unknown" and need.rounds and inner == UNKNOWN
        laid = all(channels_last(one.source) and not channels_last(one.copy)
                   for one in need.executions)  # fmt: skip
        if not (rounds and laid) or need.bytes < LARGE:
            continue
        either = operation(lines.events[need.at].operation).either_order
        spec = _in_either_order(lines, need) if either else None
        if spec is not None or not either:
            yield _relaid(lines, need, name, spec)


def _relaid(lines: Lines, need: Need, name: str, spec: Spec | None) -> Slow:
    """Say in which order a call computes what was laid out anew for it."""
    first, reader = need.executions[0], lines.events[need.at].operation
    what = f"{name} lays its elements out in another order, and {reader} "
    what += "takes either" if spec is not None else "computes in the one that they had"
    what += f", {need.bytes:,} bytes in {need.count:,} runs"
    fix = f"Leave {name} out: {reader} takes the tensor as it lies (and may round in another way)."
    return Slow(first.position, first.source, need.count, need.bytes, spec, "copied", what, fix,
                need.at)  # fmt: skip


def _in_either_order(lines: Lines, need: Need) -> Spec | None:
    """Say what to time: a convolution of images laid out anew, and of them as they lie.

    None where a copy is made seldom, or for more than one call.
    """
    event, source = lines.events[need.at], need.executions[0].source
    weight, made = event.reads[1], event.results[0]
    readers = {len(_read_by(lines, one.position, one.copy)) for one in need.executions}
    if readers != {1} or need.count < STEPS or len(made.shape) != len(source.shape):
        return None
    sizes = zip(source.shape[2:], made.shape[2:], weight.shape[2:], strict=True)
    pairs = [_steps_of(*one) for one in sizes]
    strides, pads = [one[0] for one in pairs], [one[1] for one in pairs]
    if 0 in strides:
        return None
    groups, call = source.shape[1] // weight.shape[1], f"torch.{event.operation}"
    rest = f"xs['1'], None, {strides}, {pads}, 1, {groups})"
    grad = event.grad_mode == GRAD_ON
    return Spec(f"{call}(x.contiguous(), {rest}", f"{call}(x, {rest}", (source, weight),
                lines.device(source), grad=grad, runs=True)  # fmt: skip


def _steps_of(size: int, made: int, window: int) -> tuple[int, int]:
    """Return a step and a margin with which a window gives as many places; 0, 0 if none does."""
    for step in range(1, size + 1):
        for margin in range(window + 1):
            if (size + 2 * margin - window) // step + 1 == made:
                return step, margin
    return 0, 0


def _taken_apart(lines: Lines) -> Iterator[Slow]:
    """Give the joins of tensors of which each is used by itself, or none is.

    Where nothing but the rounding of what is computed of the parts could tell them apart.
    """
    for (_, inner, name), need in needs(lines.history).items():
        parts = [one for one in need.executions if one.part]
        rounds = need.needed == "unknown" and need.rounds and inner == UNKNOWN
        if not rounds or len(parts) < len(need.executions) or need.bytes < LARGE:
            continue
        first = parts[0]
        whole = lines.events[first.position]
        what = f"{name} puts {len(whole.reads):,} tensors together, and what reads the result takes"
        what += f" them apart again, {need.bytes:,} bytes in {need.count:,} runs"
        fix = "Hand on the tensors that it was made of, in a list."
        at, made = first.position, whole.results[0]
        yield Slow(at, made, need.count, need.bytes, None, "copied", what, fix)


def _partly_taken(lines: Lines, places: Sequence[int]) -> Slow | None:
    """Find joins of many tensors of which a choice is all that is used."""
    parts = [_part(lines, at) for at in places]
    found = [one for one in parts if one is not None]
    if len(found) < max(STEPS, len(parts)):
        return None
    total = sum(nbytes(one.made) for one in found)
    if total < LARGE:
        return None
    first = lines.events[places[0]]
    taken = sum(nbytes(one.taken) for one in found)
    what = f"{first.operation} puts {len(first.reads):,} tensors together, and a part is all that"
    what += f" is used: {total:,} bytes in {len(places):,} runs for {taken:,}"
    fix = "Choose first, and join only what was chosen."
    return Slow(places[0], found[0].made, len(places), total, None, "copied", what, fix)


class _Growth(NamedTuple):
    """A tensor that was joined with more at each step, as it was after the last."""

    at: int
    made: Operand
    rounds: int = 0
    again: int = 0  # bytes that had been joined before, and were copied again
    read: bool = False  # something read what it was in between


def _grown(lines: Lines, places: Sequence[int]) -> Slow | None:
    """Find tensors that grow by being joined anew: all that they have is copied at each step."""
    found = [one for one in _growths(lines, places) if one.rounds >= STEPS]
    again, whole = sum(one.again for one in found), sum(nbytes(one.made) for one in found)
    mostly = 2 * sum(one.rounds for one in found) >= len(places)
    if not mostly or again < max(LARGE, PART * whole):
        return None
    last = max(found, key=lambda one: one.again)
    name = lines.events[last.at].operation
    what = f"{name} copies all that was joined before at each of {last.rounds:,} steps, {again:,}"
    what += f" bytes for {whole:,}"
    fix = f"Append the parts to a list, and join them once at the end: {name}(parts)."
    if any(one.read for one in found):
        fix = FILLED_ON
    return Slow(last.at, last.made, len(places), again, None, "copied", what, fix)


def _lists_grown(lines: Lines, places: Sequence[int]) -> Slow | None:
    """Find lists that grow and are joined anew at each step, of what nothing wrote meanwhile."""
    events = [lines.events[at] for at in places]
    if len(events) < STEPS or any(len(one.results) != 1 for one in events):
        return None
    others = lines.history.get(OtherProcesses)
    if any(map(others.write, events[-1].reads)):
        return None
    pairs = [(a, b) for a, b in pairwise(events) if _is_begun_by(b, a)]
    again, whole = sum(nbytes(a.results[0]) for a, _ in pairs), nbytes(events[-1].results[0])
    mostly = 2 * len(pairs) >= len(events)
    if not mostly or again < max(LARGE, PART * whole):
        return None
    if any(_needs_its_own(lines, _Growth(at, lines.events[at].results[0])) for at in places):
        return None
    name = events[-1].operation
    what = f"{name} copies all that it had joined before at each of {len(pairs):,} steps, {again:,}"
    what += f" bytes for {whole:,}"
    at, made = places[-1], events[-1].results[0]
    return Slow(at, made, len(places), again, None, "copied", what, FILLED_ON)


def _is_begun_by(event: Event, earlier: Event) -> bool:
    """Whether a join was given what an earlier one was given, unwritten, and more after that."""
    before, now = earlier.reads, event.reads
    if not 0 < len(before) < len(now):
        return False
    return all(
        (one.tensor, one.version) == (other.tensor, other.version)
        for one, other in zip(before, now[: len(before)], strict=True)
    )


def _growths(lines: Lines, places: Sequence[int]) -> list[_Growth]:
    """Follow all that one line joined with more: the caches of several layers are as many."""
    found: dict[int, _Growth] = {}  # by the storage of what was joined last
    for at in places:
        event = lines.events[at]
        if len(event.results) != 1:
            continue
        made, grown = event.results[0], _Growth(at, event.results[0])
        for one in event.reads:
            old = found.get(one.storage)
            if old is None or math.prod(old.made.shape) != math.prod(one.shape):
                continue
            read = _read_by(lines, old.at, old.made) != [at]
            if not (read and _needs_its_own(lines, old)):
                del found[one.storage]
                grown = _Growth(at, made, old.rounds + 1, old.again + nbytes(one), old.read or read)
                break
        found[made.storage] = grown
    return list(found.values())


def _needs_its_own(lines: Lines, grown: _Growth) -> bool:
    """Whether what was read in between cannot be a slice of one memory that is filled on.

    Autograd refuses a later write to what a call saved; what is written would be written for all.
    """
    made = grown.made
    return made.requires_grad or lines.written(made, grown.at)


def _read_by(lines: Lines, at: int, made: Operand) -> list[int]:
    """Return the later events that touched what a call made, by whatever view."""
    return [one for one in lines.history.on_storage(made) if one > at]


def _partly_used(lines: Lines, places: Sequence[int]) -> Slow | None:
    """Find results of which one small part is taken, and nothing else is ever used.

    One line may serve several that use what it gives: each is asked for itself.
    """
    by_user: dict[tuple[tuple[int, int], ...], list[int]] = defaultdict(list)
    for at in places if len(_with_one_user(lines, places)) >= STEPS else ():
        by_user[_users(lines, at)].append(at)
    found = [one for runs in by_user.values() for one in _always_small(lines, runs)]
    more = sum(nbytes(one.made) - nbytes(one.taken) for one in found)
    if len(found) < STEPS or more < LARGE:
        return None
    most = max(found, key=lambda one: nbytes(one.made))
    at, copy, source = most.at, most.made, lines.events[most.at].reads[0]
    times = math.prod(copy.shape) // max(1, math.prod(most.taken.shape))
    name = lines.events[at].operation
    copies = _copies(name)
    what = f"{name} gives {math.prod(copy.shape):,} elements at a time, of which one in"
    what += f" {times:,} is used"
    if len(found) < len(places):
        what += f" in {len(found):,} of its {len(places):,} runs"
    fix = f"Take the part first, and give {name} that."
    if not copies:
        return Slow(at, source, len(found), more, None, "made", what, fix, most.then)
    fix = f"Take the part first, and copy that: `{lines.text(at)}[...]` before the call."
    spec = _whole_or_part(lines, at, source, copy, times)
    return Slow(at, source, len(found), more, spec, "copied", what, fix, most.then)


def _with_one_user(lines: Lines, places: Sequence[int]) -> Numbers:
    """Return those of some calls whose one result was given to one later call, which took less."""
    events, history = lines.events, lines.history
    at, column = np.array(places), events.column
    at = at[(column("results")[at] == 1) & (column("reads")[at] > 0) & (column("writes")[at] == 0)]
    made = events.rows[events.starts[at] + column("reads")[at]]
    count, then = history.users(events.operands.column("tensor")[made], at)
    at, made, then = at[count == 1], made[count == 1], then[count == 1]
    one = (column("results")[then] == 1) & (column("writes")[then] == 0)
    at, made, then = at[one], made[one], then[one]
    taken = events.rows[events.starts[then] + column("reads")[then]]
    found: Numbers = at[history.sizes(made) >= PART * history.sizes(taken)]
    return found


def _users(lines: Lines, at: int) -> tuple[tuple[int, int], ...]:
    """Return the lines that were given what a call made."""
    made = lines.events[at].results
    later = (lines.events[user] for one in made for user in lines.after(one.tensor, at))
    return tuple(sorted({(user.site, user.inner) for user in later}))


def _always_small(lines: Lines, runs: list[int]) -> list[_SmallPart]:
    """Return the parts taken of what some runs gave; none where a run's was used whole."""
    parts = [_part(lines, at) for at in runs]
    found = [one for one in parts if one is not None and _is_whole(lines, one)]
    return found if len(found) == len(runs) else []


def _copies(name: str) -> bool:
    """Whether a call gives what it was given in other memory, perhaps of another type."""
    return converts(name) or operation(name).copies == "clone" or name == "contiguous"


class _SmallPart(NamedTuple):
    """A result of which a small part was taken, and no more was done with it."""

    at: int  # the call that made it
    made: Operand
    then: int  # the call that took the part
    taken: Operand


def _part(lines: Lines, at: int) -> _SmallPart | None:
    """Return what a call made, if it was given to one call only, which took a small part of it."""
    event = lines.events[at]
    if not event.reads or len(event.results) != 1 or event.writes:
        return None
    made = event.results[0]
    later = lines.after(made.tensor, at)
    then = lines.events[later[0]] if len(later) == 1 else None
    if then is None or then.writes or len(then.results) != 1:
        return None
    taken = then.results[0]
    first = then.reads[0].tensor == made.tensor
    small = nbytes(made) >= PART * nbytes(taken)
    return _SmallPart(at, made, later[0], taken) if first and small and _shows(then, made) else None


def _shows(then: Event, made: Operand) -> bool:
    """Whether a call gives elements of what it was given: the one-armed where gives places."""
    taken, row = then.results[0], operation(then.operation)
    chosen = row.picks and not row.pools and taken.dtype == made.dtype
    return taken.storage == made.storage or chosen


def _is_whole(lines: Lines, part: _SmallPart) -> bool:
    """Whether a result is all of what the call was given, in other memory."""
    source = lines.events[part.at].reads[0]
    return source.storage != part.made.storage and source.shape == part.made.shape


def _whole_or_part(
    lines: Lines, at: int, source: Operand, copy: Operand, times: int
) -> Spec | None:
    """Say what to time: rows of the whole, before it is copied and after."""
    rows, device = source.shape[0], lines.device(source)
    if rows < PART or device != lines.device(copy):
        return None
    count, call = max(1, rows // times), "to(dtype)" if source.dtype != copy.dtype else "clone()"
    return Spec(
        f"x.{call}[:{count}]", f"x[:{count}].{call}", (source,), device, dtype=copy.dtype,
        grad=lines.events[at].grad_mode == GRAD_ON,
    )  # fmt: skip


# -- windows ---------------------------------------------------------------------------------------
# Windows that move on by a join of what they had, without its begin, and more: of `slow-copy`. All
# that stays is copied at each step. In a memory of twice the size it stays where it is: each new
# part is written behind the last, and the window is a slice, which lies in one piece as before.


PART_OF_WINDOWS = 4
"""How many times more is moved than the window has, from which it is told."""

FIX = (
    "Make a memory of twice the size once, write each new part behind the last, and read the slice"
    " that is the window; copy that to the front when the memory is full."
)


def windows(lines: Lines) -> Iterator[Slow]:
    """Give each of the user's lines that joins a window anew at each step."""
    for (_, name), places in lines.by_line.items():
        if operation(name).joins and len(places) > STEPS:
            found = _moved(lines, places)
            if found is not None and not lines.needless(found.at):
                yield found


def _moved(lines: Lines, places: Sequence[int]) -> Slow | None:
    """Return a line of which nearly each run was given a part of what the run before had made."""
    stays = [one for before, at in pairwise(places) if (one := _stays(lines, before, at))]
    last = places[-1]
    made = lines.events[last].results
    if len(stays) < STEPS or 2 * len(stays) < len(places) or not made:
        return None
    total = sum(map(nbytes, stays))
    if total < max(LARGE, PART_OF_WINDOWS * nbytes(made[0])):
        return None
    name = lines.events[last].operation
    what = f"{name} copies what stays of the window, as it moves on, at each of {len(stays):,}"
    what += f" steps, {total:,} bytes for {nbytes(made[0]):,}"
    return Slow(last, made[0], len(places), total, None, "copied", what, FIX)


def _stays(lines: Lines, before: int, at: int) -> Operand | None:
    """Return the part of what one run made that the next begins with, if no more was done with it.

    What is written, has a gradient or is read later on needs memory of its own.
    """
    old, new = lines.events[before], lines.events[at]
    if len(old.results) != 1 or len(new.results) != 1 or len(new.reads) < 2:
        return None
    window, part, made = old.results[0], new.reads[0], new.results[0]
    if part.storage != window.storage or window[4:7] != made[4:7] or made.requires_grad:
        return None
    return part if _is_end(part, window) and _is_done_with(lines, window, before, at) else None


def _is_end(part: Operand, window: Operand) -> bool:
    """Whether a part is what is left of a window without its begin, in one piece."""
    if part.offset <= window.offset or len(part.shape) != len(window.shape):
        return False
    shorter = [a < b for a, b in zip(part.shape, window.shape, strict=True) if a != b]
    whole = same_strides(part.shape, part.strides, contiguous(part.shape))
    return shorter == [True] and whole


def _is_done_with(lines: Lines, window: Operand, before: int, at: int) -> bool:
    """Whether a window was only read, until the next one was made, and went then."""
    history = lines.history
    touched = history.on_storage(window)
    freed = history.trace.storages[window.storage].freed
    if touched[-1] > at or freed == UNKNOWN or lines.written(window, before):
        return False
    if any(operation(lines.events[one].operation).lends for one in touched):
        return False
    # Autograd refuses a later write to what a call saved, as long as that may be asked for.
    graph = history.get(Graph)
    saved = any(one.storage == window.storage for each in touched for one in graph.saved(each))
    return not saved or history.position(freed) <= at + 1
