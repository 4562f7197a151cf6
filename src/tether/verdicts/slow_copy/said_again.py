"""The lines that write elements several times over for what takes them expanded as well.

Part of `slow-copy`. Of a call that computes the same bit for bit `needless-copy` tells.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tether.analysis.copies.already_there import nbytes, shown_by
from tether.analysis.copies.layouts import contiguous
from tether.facts import GRAD_ON, Operand
from tether.operations.rows import SAME_AS
from tether.operations.table import operation
from tether.source.calls import takes_tensors_alone
from tether.verdicts.slow_copy.on_device import (
    LARGE,
    NODE,
    STEPS,
    Lines,
    Slow,
    Spec,
    only_read_as_is,
    own_elements,
)


class _Repeated(NamedTuple):
    """What a call said several times over, and the call that was given it."""

    at: int
    source: Operand  # expanded
    copy: Operand
    reader: int


def said_again(lines: Lines) -> Iterator[Slow]:
    """Give each of the user's lines that repeats what a call reads that takes it expanded."""
    for (_, name), places in lines.by_line.items():
        if not operation(name).repeats:
            continue
        found = [one for at in places if (one := _repeated(lines, at)) is not None]
        large = sum(nbytes(one.copy) for one in found) >= LARGE
        if large and len(found) == len(places) and not lines.needless(places[0]):
            yield _slow(lines, found)


def _repeated(lines: Lines, at: int) -> _Repeated | None:
    """Return what a call repeated that is only read, and always by one operation of tensors."""
    shown = next(shown_by(lines.events[at]), None)
    if shown is None or not only_read_as_is(lines, at, shown[1]):
        return None
    readers = lines.after(shown[1].tensor, at)
    event = lines.events[readers[0]]
    text = lines.history.site(event.inner if event.inner >= 0 else event.site).expression
    alone = takes_tensors_alone(event.operation, text, len(event.reads))
    one = {lines.events[reader].operation for reader in readers} == {event.operation}
    return _Repeated(at, *shown, readers[0]) if alone and one else None


def _slow(lines: Lines, found: Sequence[_Repeated]) -> Slow:
    """Say what one line repeats, and for which call."""
    most = max(found, key=lambda one: nbytes(one.copy))
    reader, made = lines.events[most.reader].operation, lines.events[most.at].operation
    times = math.prod(most.copy.shape) // own_elements(most.source)
    total = sum(nbytes(one.copy) for one in found)
    what = (
        f"{made} writes each element {times:,} times, {total:,} bytes in {len(found):,} runs, and"
    )
    what += f" {reader} takes an expanded tensor as well"
    fix = f"Expand it: `{lines.text(most.at)}.expand(...)` shows the elements as often, unwritten."
    return Slow(
        most.at, most.source, len(found), total, _tried(lines, most), "copied", what, fix,
        most.reader,
    )  # fmt: skip


def _tried(lines: Lines, one: _Repeated) -> Spec:
    """Say what to time: the call that reads it, given a copy of the expanded tensor, or that."""
    reader, grad = lines.events[one.reader], lines.events[one.at].grad_mode == GRAD_ON
    operands, given = [one.source], []
    for read in reader.reads:
        repeated = read.tensor == one.copy.tensor
        operands += [] if repeated else [read]
        given.append("x" if repeated else f"xs['{len(operands) - 1}']")
    copied = [f"{text}.contiguous()" if text == "x" else text for text in given]
    name = SAME_AS.get(reader.operation, reader.operation)
    slow, fast = (f"torch.{name}({', '.join(some)})" for some in (copied, given))
    return Spec(slow, fast, tuple(operands), lines.device(one.source), grad=grad, runs=True)


# -- repeated for products -------------------------------------------------------------------------
# The lines that repeat keys and values for products, of a memory that stays: of `slow-copy`.
# Several queries share a head of a cache: each of its elements is written once for each of them,
# all of the cache at each step, and read once by a product. A product of more rows reads it as it
# lies; that was faster for each size that was tried, from 64 KB, and is timed at the program's own.


FIX = (
    "Leave the elements as they are, and give each product the rows of all that share a part (the"
    " queries of all heads that share keys) at once: q.unflatten(1, (heads, -1)).flatten(2, 3)"
    " @ keys.mT; or scaled_dot_product_attention(q, k, v, enable_gqa=True). It may round in"
    " another way."
)


class _ForProducts(NamedTuple):
    """What a call wrote several times over, and the product that read it."""

    at: int
    source: Operand
    copy: Operand
    product: int


def repeated_for_products(lines: Lines) -> Iterator[Slow]:
    """Give each of the user's lines that repeats what stays in memory, for products alone."""
    for (_, name), places in lines.by_line.items():
        row = operation(name)
        if not (row.repeats or row.regroups or row.copies) or len(places) <= STEPS:
            continue
        found = [one for at in places if (one := _for_products(lines, at)) is not None]
        total = sum(nbytes(one.copy) for one in found)
        told = len(found) == len(places) and total >= LARGE and _stays(lines, found)
        if told and not lines.needless(places[0]):
            yield _slow_products(lines, found, total)


def _for_products(lines: Lines, at: int) -> _ForProducts | None:
    """Return what a call wrote several times over, if products along it are all that reads it."""
    event = lines.events[at]
    if len(event.reads) != 1 or len(event.results) != 1 or event.writes:
        return None
    source, copy = event.reads[0], event.results[0]
    steps = _steps(source, copy)
    laid = copy.strides == contiguous(copy.shape) and nbytes(copy) >= NODE
    if steps is None or not laid or copy.requires_grad or source.dtype != copy.dtype:
        return None
    product = _product(lines, at, copy, steps)
    return _ForProducts(at, source, copy, product) if product is not None else None


def _steps(source: Operand, copy: Operand) -> range | None:
    """Return the steps by which the repeated parts lie apart, in a copy that has each of them."""
    own, size = own_elements(source), math.prod(copy.shape)
    if source.storage == copy.storage or not own or size < 2 * own or size % own:
        return None
    shape = source.shape
    more = [n for n, one in enumerate(source.strides) if not one and shape[n] > 1]
    if not more and len(shape) == len(copy.shape):
        shape = copy.shape
        more = [n for n, one in enumerate(source.shape) if one != shape[n]]
    if len(more) != 1:
        return None
    step = math.prod(shape[more[0] + 1 :])
    return range(step, step * shape[more[0]])


def _product(lines: Lines, at: int, copy: Operand, steps: range) -> int | None:
    """Return the call that multiplies matrices of a copy, one for each of the repeated parts.

    None where anything else reads it, or writes it: views of it are shown alone.
    """
    later = [one for one in lines.history.on_storage(copy) if one > at]
    found = [one for one in later if not lines.events[one].shows(copy)]
    event = lines.events[found[0]] if len(found) == 1 else None
    if event is None or event.writes or not operation(event.operation).multiplies:
        return None
    given = [one for one in event.reads if one.storage == copy.storage]
    mixed = event.reads[0] in given or not _is_one_for_each(given, copy, steps)
    return None if mixed else found[0]


def _is_one_for_each(given: Sequence[Operand], copy: Operand, steps: range) -> bool:
    """Whether a product is given all of a copy once, each of its matrices within one part."""
    if len(given) != 1 or math.prod(given[0].shape) != math.prod(copy.shape):
        return False
    sides = list(zip(given[0].shape, given[0].strides, strict=True))
    apart = (size * step <= steps.start or step >= steps.stop for size, step in sides[-2:])
    return len(sides) > 2 and all(apart)


def _stays(lines: Lines, found: Sequence[_ForProducts]) -> bool:
    """Whether most runs repeat a memory that an earlier run had repeated, or that one joined on."""
    runs: dict[int, int] = defaultdict(int)
    for one in found:
        runs[_root(lines, one.source)] += 1
    return 2 * sum(count for count in runs.values() if count > STEPS) > len(found)


def _root(lines: Lines, source: Operand) -> int:
    """Return the memory that joins began with that led to a memory."""
    memory, met = lines.history.flow.memory(source), set[int]()
    while memory not in met:
        met.add(memory)
        first = lines.events[lines.history.on_memory(memory)[0]]
        if not operation(first.operation).joins or not first.reads:
            return memory
        memory = lines.history.flow.memory(first.reads[0])
    return memory


def _slow_products(lines: Lines, found: Sequence[_ForProducts], total: int) -> Slow:
    """Say what one line repeats at each step, and which product reads it."""
    most = max(found, key=lambda one: nbytes(one.copy))
    event, reader = lines.events[most.at], lines.events[most.product]
    by = SAME_AS.get(reader.operation, reader.operation)
    times = math.prod(most.copy.shape) // own_elements(most.source)
    what = f"{event.operation} writes each element {times:,} times, {total:,} bytes in"
    what += f" {len(found):,} runs, of what stays in memory from run to run, and {by} is all that"
    what += " reads the copy"
    return Slow(
        most.at, most.source, len(found), total, _tried_products(lines, most, times), "copied",
        what, FIX, most.product,
    )  # fmt: skip


def _tried_products(lines: Lines, one: _ForProducts, times: int) -> Spec:
    """Say what to time: products of as many rows, with the copy and without it."""
    first, *rest = lines.events[one.product].reads
    read = next(each for each in rest if each.storage == one.copy.storage)
    height, width = sorted(read.shape[-2:], reverse=True)
    parts = own_elements(one.source) // (height * width)
    rows = max(1, math.prod(first.shape) // (parts * times * first.shape[-1]))
    cache, queries = (parts, height, width), (parts, times * rows, width)
    slow = f"xs['1'].reshape({parts * times}, {rows}, {width})"
    slow += f" @ x.repeat_interleave({times}, 0).mT"
    like = (one.source._replace(shape=size, strides=contiguous(size)) for size in (cache, queries))
    return Spec(slow, "xs['1'] @ x.mT", tuple(like), lines.device(read), runs=True)
