"""Writes into views that overlap themselves: in `expand` and its kin one element is many places."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import numpy as np

from tether.analysis.history import History
from tether.analysis.sharing.acts import Acts
from tether.analysis.sharing.shared_memory import Sharing, overlaps_itself
from tether.facts import UNKNOWN, Operand, SiteId
from tether.finding import At, Claim, Repair, Step, Tensor, say
from tether.store.numbers import Numbers
from tether.verdicts.alias_write.telling import written


def overlapping(history: History) -> Iterator[Claim]:
    """Give one claim for each line that writes into such a view, by the line that made it."""
    found = history.get(Sharing)
    groups: dict[tuple[SiteId, SiteId], list[_Overlapped]] = defaultdict(list)
    for one in _overlapped(history, found):
        maker = history.events[one.made].site
        if history.site(maker).user:
            groups[maker, history.events[one.at].site].append(one)
    for group in groups.values():
        yield _overlaps(history, min(group, key=lambda one: one.one_place))


def _overlapped(history: History, found: Sharing) -> Iterator[_Overlapped]:
    """Yield the writes to tensors of which several places are one element."""
    apart = {int(one.tensor) for one in history.trace.addressed_apart}
    indexed = history.events.called("__setitem__".__eq__)
    written = partial(_perhaps_overlapped, history, found)
    for _, (at, operand) in found.writes.of(lambda _, rows: written(rows)):
        given = history.events[at].all_of(operand) if indexed[at] else operand
        whole = _sharing_elements(history, found, at, given)
        if whole is None or history.events[at].operation == "step":
            continue
        made = history.made_at(whole.tensor)
        if made != UNKNOWN:
            piece = bool(indexed[at]) or whole is not operand
            yield _Overlapped(piece and whole.tensor not in apart, made, at, whole.tensor)


def _perhaps_overlapped(history: History, found: Sharing, rows: Numbers) -> Numbers:
    """Return which writes may be to a tensor, or a view of one, that showed an element twice."""
    tensors = history.events.operands.column("tensor")[rows]
    shown = _tensors_overlapping(history)
    some = [
        one
        for one in np.unique(tensors if shown else tensors[:0]).tolist()
        if one in shown or any(link.source in shown for link in found.chain(one))
    ]
    return np.isin(tensors, some)


def _tensors_overlapping(history: History) -> set[int]:
    """Return the tensors of which several places were one element of memory at some time."""
    operands = history.events.operands
    shapes, strides = operands.column("shape"), operands.column("strides")
    forms = shapes.astype(np.int64) * (int(strides.max(initial=0)) + 1) + strides
    _, first = np.unique(forms, return_index=True)
    overlap = [row for row in first.tolist() if overlaps_itself(operands[row])]
    shown = np.isin(forms, forms[overlap]) if overlap else np.zeros(len(forms), bool)
    return set(np.unique(operands.column("tensor")[shown]).tolist())


def _sharing_elements(
    history: History, found: Sharing, at: int, operand: Operand
) -> Operand | None:
    """Return what was written, or what it is a piece of, if several places of it are one element.

    Not what has windows that overlap and of which one was written: sums are made in them.
    """
    if overlaps_itself(operand):
        return operand
    for link in found.chain(operand.tensor):
        for whole in history.events[link.at].reads:
            repeated = any(n > 1 and not step for n, step in zip(whole[4], whole[5], strict=True))
            if whole.tensor == link.source and repeated:
                return whole if history.get(Acts).died(whole.tensor) > at else None
    return None


class _Overlapped(NamedTuple):
    """A write to a tensor of which several places are one element."""

    one_place: bool  # no other of those places was seen to be written: it may stand for all
    made: int
    at: int
    tensor: int


_MEANT = {False: "G", True: "If the write is to change one place alone, g"}


def _overlaps(history: History, found: _Overlapped) -> Claim:
    at, x = found.at, Tensor(found.tensor)
    maker, write = history.events[found.made], history.events[at]
    source = maker.reads[:1]
    base = say(", the memory of {y}", y=Tensor(source[0].tensor)) if source else ""
    return Claim(
        tensors=(found.tensor,),
        cause=("overlapping", maker.site, write.site),
        site=maker.site,
        operation=maker.operation,
        severity="note" if found.one_place else None,
        message=say(
            "{x} has several places on one element since {call} ({line}){base}: the write at"
            " {written} shows in all of them.",
            x=x, call=maker.operation, line=At(maker.site), base=base, written=At(write.site),
        ),
        story=(
            Step("shared", maker.site, say("its places overlap from here")),
            written(history, at),
        ),
        repair=Repair(
            say("{when}ive each place its own element at {line}: repeat(...), or"
                " {call}(...).clone().", when=_MEANT[found.one_place], line=At(maker.site),
                call=maker.operation)
        ),
        count=history.times(at),
        calls=(found.made,),
    )  # fmt: skip
