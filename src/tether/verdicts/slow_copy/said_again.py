"""The lines that write elements several times over for what takes them expanded as well.

Part of `slow-copy`. Of a call that computes the same bit for bit `needless-copy` tells.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tether.analysis.already_there import nbytes, shown_by
from tether.facts import GRAD_ON, Operand
from tether.operations.rows import SAME_AS
from tether.operations.table import operation
from tether.source.calls import takes_tensors_alone
from tether.verdicts.slow_copy.on_device import (
    LARGE,
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
    fix = f"Expand it: {lines.text(most.at)}.expand(...) shows the elements as often, unwritten."
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
