"""The slow ways of moving bytes between devices: part of `slow-copy`.

What a transfer costs: a call, some ten microseconds however few the bytes; the bus, by the byte;
and, from a device to the host, a wait until the device has done all that was asked of it before.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from tether.analysis.copies.already_there import nbytes
from tether.facts import GRAD_ON, UNKNOWN, Event, Operand
from tether.operations.table import operation
from tether.regions import element_size
from tether.verdicts.slow_copy.on_device import COUNT, LARGE, Lines, Slow, Spec, converts

FEW = 16 << 10
"""Bytes of a transfer that take less of its time than the call does (10 GB/s against 10 us)."""


def transfers(lines: Lines) -> Iterator[Slow]:
    """Give each of the user's lines that moves bytes in a slow way."""
    for (_, name), places in lines.by_line.items():
        found = next(filter(None, (way(lines, places) for way in _ways(name))), None)
        if found is not None and not (found.done == "copied" and lines.needless(found.at)):
            yield found


def _ways(name: str) -> tuple[Callable[[Lines, Sequence[int]], Slow | None], ...]:
    """Return the slow ways that an operation may be used in, the first that counts first."""
    row = operation(name)
    if name == "clone":
        return (_cloned_first,)
    if converts(name):
        return _widened_first, _pageable, _many_small
    if name == "copy_":
        return _pageable, _many_small
    return (_many_small,) if row.exports and row.waits else ()


def _moves(lines: Lines, at: int) -> tuple[Operand, str, str] | None:
    """Return (source, from, to) when an event moved a tensor to another device."""
    event = lines.events[at]
    if len(event.reads) < (2 if event.operation == "copy_" else 1):
        return None
    source = event.reads[1 if event.operation == "copy_" else 0]
    here = lines.device(source)
    there = lines.device(event.results[0]) if event.results else "cpu"
    if here == there or "meta" in (here, there) or source.storage == UNKNOWN:
        return None
    return source, here, there


def _then_moved(lines: Lines, at: int) -> int:
    """Position of the only call that a result was given to, if that moves it; else -1."""
    made = lines.events[at].results[0]
    then = lines.after(made.tensor, at)
    if len(then) != 1 or not converts(lines.events[then[0]].operation):
        return UNKNOWN
    if lines.events[then[0]].non_blocking or _moves(lines, then[0]) is None:
        return UNKNOWN  # a transfer under way may read what is written meanwhile
    return then[0]


def _cloned_first(lines: Lines, places: Sequence[int]) -> Slow | None:
    """Find ``x.clone().cpu()``: two copies, where the second is one already."""
    found = []
    for at in places:
        event = lines.events[at]
        if event.reads and event.results:
            move = _then_moved(lines, at)
            if move != UNKNOWN:
                found.append((at, move, event.reads[0]))
    total = sum(nbytes(source) for _, _, source in found)
    if total < LARGE or len(found) < len(places):
        return None
    at, move, source = max(found, key=lambda one: nbytes(one[2]))
    here, there = lines.device(source), lines.device(lines.events[move].results[0])
    grad = lines.events[at].grad_mode == GRAD_ON
    spec = Spec("x.clone().to(there)", "x.to(there)", (source,), here, there, grad=grad)
    what = f"clone takes {nbytes(source):,} bytes on {here}, and the move to {there} copies again"
    fix = f"Leave the clone out: what is moved from {here} to {there} is a copy already."
    return Slow(at, source, len(found), total, spec, "copied", what, fix, move)


def _widened_first(lines: Lines, places: Sequence[int]) -> Slow | None:
    """Find a conversion to a wider dtype just before a move: more bytes cross than need to.

    The other order moves the narrow elements and widens them where they arrive. A single
    ``.to(device, dtype)`` is no better from the host: it converts there first (ATen's Copy.cu).
    """
    found = []
    for at in places:
        event = lines.events[at]
        if not event.reads or not event.results:
            continue
        source, made = event.reads[0], event.results[0]
        if element_size(made.dtype) <= element_size(source.dtype) or _moves(lines, at):
            continue
        move = _then_moved(lines, at)
        if move != UNKNOWN:
            found.append((at, move, source, made))
    more = sum(nbytes(made) - nbytes(source) for _, _, source, made in found)
    if more < LARGE or len(found) < len(places):
        return None
    at, move, source, made = max(found, key=lambda one: nbytes(one[3]))
    here, there = lines.device(source), lines.device(lines.events[move].results[0])
    spec = Spec(
        "x.to(dtype).to(there)", "x.to(there).to(dtype)", (source,), here, there, made.dtype,
        grad=lines.events[at].grad_mode == GRAD_ON,
    )  # fmt: skip
    what = (
        f"it is widened from {source.dtype} to {made.dtype} before it is moved to {there}, so"
        f" {more:,} bytes more cross"
    )
    fix = f"Move first, then convert: .to({there!r}).to(torch.{made.dtype})."
    return Slow(at, source, len(found), more, spec, "moved", what, fix, move)


def _pageable(lines: Lines, places: Sequence[int]) -> Slow | None:
    """Find ``non_blocking=True`` from memory that is not pinned: the call waits all the same."""
    found = []
    for at in places:
        moved = _moves(lines, at)
        if moved is None or not lines.events[at].non_blocking or moved[1] != "cpu":
            continue
        if _known_pageable(lines, moved[0]):
            found.append((at, moved[0], moved[2]))
    total = sum(nbytes(source) for _, source, _ in found)
    if total < LARGE:
        return None
    at, source, there = max(found, key=lambda one: nbytes(one[1]))
    slow = "x.to(there, non_blocking=True)"
    spec = Spec(slow, "pinned.to(there, non_blocking=True)", (source,), "cpu", there)
    what = f"non_blocking from memory that is not pinned: the host waits while {total:,} bytes"
    what += " pass through a staging buffer"
    fix = (
        "Pin what it is moved from, once: DataLoader(pin_memory=True), or a buffer that is filled"
        " again at each step."
    )
    return Slow(at, source, len(found), total, spec, "moved", what, fix)


def _known_pageable(lines: Lines, source: Operand) -> bool:
    """Whether a memory was heard to be made by a call that makes none that is pinned."""
    touched = lines.history.on_storage(source)
    if not touched:
        return False
    event = lines.events[touched[0]]
    made = [one.storage for one in event.results[:1]]
    if made != [source.storage] or source.storage in (one.storage for one in event.reads):
        return False  # it came about unheard
    row = operation(event.operation)
    if row.fresh or (row.enters and row.memory == "owns"):
        return _asks_for_no_pinning(lines, event)
    heard = event.operation != "pin_memory" and bool(event.reads)
    return heard and all(lines.device(one) == "cpu" for one in event.reads)


def _asks_for_no_pinning(lines: Lines, event: Event) -> bool:
    """Whether a call that may be asked to pin what it makes is seen not to be."""
    text = lines.history.site_of(event).expression
    own = event.inner in (UNKNOWN, event.site)
    return own and bool(text) and "pin_memory" not in text and "**" not in text


def _many_small(lines: Lines, places: Sequence[int]) -> Slow | None:
    """Find a line that moves a few bytes at a time, many times."""
    found = []
    for at in places:
        moved = _moves(lines, at)
        if moved is not None and not lines.events[at].non_blocking:
            if nbytes(moved[0]) > FEW:
                return None
            found.append((at, *moved))
    if len(found) < COUNT:
        return None
    at, source, here, there = found[0]
    total = sum(nbytes(one) for _, one, _, _ in found)
    name = lines.events[at].operation
    part = max(_by_memory(found), key=len)
    parts = {(one.offset, one.shape) for _, one in part}
    text = f"{len(found):,} transfers of {total // len(found):,} bytes from {here} to {there}"
    if there == "cpu":
        text += f", and in each {name} waits until {here} has done all before it"
    spec = None
    if len(parts) >= COUNT:
        like = source._replace(
            shape=(len(parts), math.prod(source.shape)), strides=(math.prod(source.shape), 1)
        )
        way = "to(there)" if converts(name) else "tolist()"
        spec = Spec(f"[one.{way} for one in x]", f"x.{way}", (like,), here, there, calls=len(parts))
        fix = "They are parts of one tensor: move it whole, once, and take it apart there."
    elif there == "cpu":
        fix = (
            f"Add up or collect on {here} (total += value.detach()), and fetch once every some"
            " steps."
        )
    else:
        fix = "Collect them on the host (torch.stack) and move them together."
    return Slow(at, source, len(found), 0, spec, "moved", text, fix)


def _by_memory(
    found: list[tuple[int, Operand, str, str]],
) -> list[list[tuple[int, Operand]]]:
    """Group the transfers by the memory, as it was at one time, that they took a part of."""
    groups: dict[tuple[int, int], list[tuple[int, Operand]]] = {}
    for at, source, _, _ in found:
        groups.setdefault((source.storage, source.version), []).append((at, source))
    return list(groups.values())
