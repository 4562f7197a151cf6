"""Large memory of which a small view is kept, run after run: no call uses more of it again.

A line makes memory and takes a small view of it, and does so again while the view of each run
before is there. What is made first and cut later may be held for other uses: it does not count.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from tether.analysis.copies.already_there import nbytes as bytes_of
from tether.analysis.copies.idle import LEAST_BYTES, LEAST_RUNS
from tether.analysis.history import History
from tether.analysis.sharing.shared_memory import Sharing
from tether.facts import UNKNOWN, Event, Operand, SiteId
from tether.finding import At, Bytes, Claim, Code, Repair, Segment, Step, say
from tether.operations.table import operation
from tether.regions import element_size, extent
from tether.store.lives import storages_of, tensors_of

LARGE = 64 << 10
"""Bytes of a storage that is worth a copy of what is used of it."""

FACTOR = 8
"""Times that a storage is larger than what is shown of it."""


class CutOff(NamedTuple):
    """A storage, and the small views of it that live as long as it does."""

    views: tuple[Operand, ...]
    nbytes: int
    made: int  # position
    cut: int  # position of the call that took the view
    large: int  # position of the last call that used more of it
    freed: int


class CutsOff:
    """Those of lines whose runs each left one, by line. Empty for what did not finish."""

    def __init__(self, history: History) -> None:
        self.by_line: dict[SiteId, list[CutOff]] = {}
        if not history.whole:
            return
        lines: dict[SiteId, list[CutOff]] = defaultdict(list)
        for storage, operands in _lasting(history).items():
            found = _cut_off(history, storage, operands)
            if found is not None:
                lines[history.events[found.cut].site].append(found)
        for site, some in lines.items():
            kept = _left(sorted(some, key=lambda one: one.made))
            if len(kept) >= LEAST_RUNS and sum(one.nbytes for one in kept) >= LEAST_BYTES:
                self.by_line[site] = kept


def bytes_spanned(operand: Operand) -> int:
    """Return the bytes from the first element of an operand to its last."""
    first, last = extent(operand)
    return (last - first) * element_size(operand.dtype)


def bytes_shown(operand: Operand) -> int:
    """Return the bytes of memory that an operand shows: of a column, none of those between."""
    return min(bytes_of(operand), bytes_spanned(operand))


def view_of(history: History, tensor: int) -> int:
    """Position of the call that narrowed the tensor to what it shows, or -1."""
    for link in history.get(Sharing).chain(tensor):
        event = history.events[link.at]
        before = next(one for one in event.reads if one.tensor == link.source)
        if bytes_shown(before) > bytes_shown(event.results[0]):
            return link.at
    return UNKNOWN


def _lasting(history: History) -> dict[int, list[Operand]]:
    """Return large storage -> the tensors on it that live as long as it does."""
    storages = storages_of(history.trace.storages)
    many = storages.column("serial")[storages.column("nbytes") >= LARGE].tolist()
    large = {one: storages[one] for one in many}
    found: dict[int, list[Operand]] = defaultdict(list)
    lives, seen = tensors_of(history.trace.tensors), history.last_on(many)
    serials = lives.column("serial")
    for tensor in serials[np.isin(serials, seen)].tolist():
        operand, life = history.operand_of(tensor), lives[tensor]
        fact = None if operand is None else large.get(operand.storage)
        if operand is not None and fact is not None and _end(life.died) >= _end(fact.freed):
            found[operand.storage].append(operand)
    return found


def _end(moment: int) -> float:
    return float("inf") if moment == UNKNOWN else moment


def _cut_off(history: History, storage: int, operands: list[Operand]) -> CutOff | None:
    """Return a storage of which only small views last, beside what those are views of."""
    chain = history.get(Sharing).chain
    bases = {link.source for one in operands for link in chain(one.tensor)}
    views = tuple(one for one in operands if one.tensor not in bases)
    fact = history.trace.storages[storage]
    cut = view_of(history, views[0].tensor) if views else UNKNOWN
    if cut == UNKNOWN or not _small(views, fact.nbytes):
        return None
    positions = history.on_storage(views[0])
    using = [at for at in positions if _uses_more(history, at, storage)]
    if _is_held(history, positions, using):
        return None
    large = max(using, default=UNKNOWN)
    freed = len(history.events) + 1 if fact.freed < 0 else history.position(fact.freed)
    return CutOff(views, fact.nbytes, positions[0], cut, large, freed)


def _is_held(history: History, positions: Iterable[int], using: Iterable[int]) -> bool:
    """Whether something else may keep a memory, of which all calls on it and those of more are."""
    return any(_holds(history, at) for at in using) or any(_sent(history, at) for at in positions)


def _holds(history: History, at: int) -> bool:
    """Whether a call may have let something else keep what it was given: a graph, an array."""
    event = history.events[at]
    return event.kind >= 0 or operation(event.operation).lends


def _sent(history: History, at: int) -> bool:
    """Whether a call gave the memory to another process, which has all of it."""
    return operation(history.events[at].operation).leaves == "process"


def _uses_more(history: History, at: int, storage: int) -> bool:
    """Whether a call was given, or gave, more than a small part of a storage."""
    event, nbytes = history.events[at], history.trace.storages[storage].nbytes
    operands = (*event.reads, *event.results, *event.writes)
    return any(one.storage == storage and not _small((one,), nbytes) for one in operands)


def _small(operands: Iterable[Operand], nbytes: int) -> bool:
    """Whether some views show little of a storage: of a column, what lies in it."""
    return sum(map(bytes_shown, operands)) * FACTOR <= nbytes


def _left(group: list[CutOff]) -> list[CutOff]:
    """Return those that were there, with nothing large to come, as the last one was made."""
    last = group[-1].made
    return [
        one for one, following in itertools.pairwise(group)
        if one.freed > last and max(one.large, one.cut) < following.made
    ]  # fmt: skip


def claims(history: History, told: set[int]) -> Iterator[Claim]:
    """Give one claim for each line that took such views, but of tensors that were told of."""
    for kept in history.get(CutsOff).by_line.values():
        if told.isdisjoint(one.tensor for cut in kept for one in cut.views):
            yield _claim(history, kept)


def _claim(history: History, kept: list[CutOff]) -> Claim:
    """Say what the small views that a line took run after run keep alive: a note."""
    last = kept[-1]
    cut, made = history.events[last.cut], history.events[last.made]
    views = [one for each in kept for one in each.views]
    nbytes = sum(one.nbytes for one in kept)
    return Claim(
        tensors=tuple(one.tensor for one in views),
        cause=("cut off", cut.site),
        site=cut.site,
        operation=cut.operation,
        severity="note",
        message=say(
            "{code} ({line}) gives small views, of which {n} are kept at one time: they show"
            " {shown}, and {size} are kept of which no call uses more.",
            code=Code(cut.site), line=At(cut.site), n=len(views),
            shown=Bytes(sum(map(bytes_of, views))), size=Bytes(nbytes),
        ),
        story=(
            Step("made", made.site, say("the memory is made here, run after run")),
            Step("kept", cut.site, say("a small view of it is kept")),
        ),
        repair=copied(history, cut, "the view"),
        count=len(kept),
        bytes=nbytes,
    )  # fmt: skip


def copied(history: History, cut: Event, name: str) -> Repair:
    """Say how to keep a part alone: of a call that gives several, the part that is kept."""
    line, written = At(cut.site), history.site_of(cut).expression
    code = Code(cut.site) if written else Segment(name)
    if len(cut.results) > 1:
        return Repair(
            say(
                "Keep a copy of the part that is kept, of those which {code} ({line})"
                " gives: .clone() of it.",
                line=line,
                code=code,
            )
        )
    return Repair(
        say("Give it memory of its own at {line}: `{code!s}.clone()`.", line=line, code=code),
        "clone",
    )
