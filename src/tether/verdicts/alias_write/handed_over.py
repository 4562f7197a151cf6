"""Pieces of a kept tensor that others were given as their memory: part of `alias-write`.

`vector_to_parameters` gives each parameter a piece of the vector itself, and no copy. A line of the
program's own that assigns `.data` may well be meant so: it gets a note.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from tether.analysis.history import History
from tether.analysis.sharing.shared_memory import Sharing, Touch
from tether.facts import UNKNOWN, Operand
from tether.finding import At, CallOf, Claim, Code, Repair, Step, Tensor, say
from tether.operations.table import operation
from tether.verdicts.alias_write.telling import written


class _Given(NamedTuple):
    """A piece of a kept tensor that another tensor was given as its memory."""

    at: int
    target: Operand  # as it was before
    piece: Operand
    whole: int


class _Reached(NamedTuple):
    """What was written through the one, and what then read the other."""

    given: _Given
    write: int
    read: int


def handed_over(history: History) -> Iterator[Claim]:
    """Find a kept tensor that was handed out in pieces, written there, and is read again."""
    pieces = _Pieces(history)
    groups: dict[int, list[_Reached]] = defaultdict(list)
    for given in pieces.all:
        reached = pieces.reached(given)
        if reached is not None:
            groups[history.events[given.at].site].append(reached)
    for found in groups.values():
        yield _claim(history, min(found, key=lambda one: one.read), found)


class _Pieces:
    """The pieces that were handed out, and when what they are pieces of was used."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._found = history.get(Sharing)
        self._again: dict[int, list[int]] = defaultdict(list)  # whole -> when it was handed out
        self._calls: dict[int, list[int]] = defaultdict(list)  # target -> when it was given memory
        self.all: list[_Given] = []
        for at, event in history.events.where(lambda name: operation(name).rebinds):
            if len(event.reads) != 2 or event.raised:
                continue
            target, piece = event.reads
            self._calls[target.tensor].append(at)
            chain = self._found.chain(piece.tensor)
            if chain and target.tensor != piece.tensor:
                whole = chain[-1].source
                self._again[whole].append(at)
                if not self._is_laid_flat(at, target, whole):
                    self.all.append(_Given(at, target, piece, whole))

    def _is_laid_flat(self, at: int, target: Operand, whole: int) -> bool:
        """Whether a tensor is given what it has: its values were laid out there to be shared."""
        history = self._history
        made = history.made_at(whole)
        reads = history.events[made].reads if made >= 0 else ()
        if whole == target.tensor or all(one.storage != target.storage for one in reads):
            return whole == target.tensor
        return not any(made < one < at for one in history.writes_to(target, made))

    def reached(self, given: _Given) -> _Reached | None:
        """Return the first read of the whole after a write through who was given a piece."""
        history, whole = self._history, given.whole
        if not history.names_of(whole):
            return None
        memory = history.flow.memory(given.piece)
        writes = self._found.writes.get(memory)
        if any(one.at > given.at and self._is_of(one, whole) for one in writes):
            return None  # both write it: it was made to be shared
        until = self._until(given)
        through = [one.at for one in writes if given.at < one.at < until
                   and self._found.family(one.operand.tensor) == given.target.tensor]  # fmt: skip
        read = self._read(whole, memory, through[0]) if through else UNKNOWN
        if read == UNKNOWN:
            return None
        return _Reached(given, max(at for at in through if at < read), read)

    def _until(self, given: _Given) -> int:
        """Return when a tensor was given memory the next time."""
        calls = self._calls[given.target.tensor]
        later = bisect_right(calls, given.at)
        return calls[later] if later < len(calls) else len(self._history.events)

    def _read(self, whole: int, memory: int, after: int) -> int:
        """Return the first call after a moment that reads the whole, or hands it out again."""
        reads = (
            one.at
            for one in self._found.reads_of(memory)
            if one.at > after and self._is_of(one, whole)
            and self._history.inside(self._history.events[one.at], "step", "backward", "hook") < 0
        )  # fmt: skip
        again = (at for at in self._again[whole] if at > after)
        found = [at for at in (next(reads, UNKNOWN), next(again, UNKNOWN)) if at != UNKNOWN]
        return min(found, default=UNKNOWN)

    def _is_of(self, touch: Touch, whole: int) -> bool:
        """Whether a call was given the whole itself, or a view that is nobody's memory."""
        tensor = touch.operand.tensor
        return tensor == whole or any(one.source == whole for one in self._found.chain(tensor))


def _claim(history: History, first: _Reached, found: list[_Reached]) -> Claim:
    given, write, read = first
    shared, done, reading = (history.events[at] for at in (given.at, write, read))
    whole, x = Tensor(given.whole), Tensor(given.target.tensor)
    return Claim(
        tensors=(given.whole,),
        cause=("handed over", shared.site),
        severity="note" if shared.inner == shared.site else None,
        site=shared.site,
        operation=shared.operation,
        message=say(
            "{x} is a piece of {whole} since {line}, and no copy of it: {call} at {written} changed"
            " {whole} too, which {read} reads.",
            x=x, whole=whole, line=At(shared.site), call=CallOf(write), written=At(done.site),
            read=At(reading.site),
        ),
        story=(
            Step("shared", shared.site, say("{code} hands over the memory of {whole} itself",
                 code=Code(shared.site), whole=whole)),
            written(history, write),
            Step("read", reading.site, say("{whole} is read, with what was written", whole=whole)),
        ),
        repair=Repair(say("Hand over a copy at {line}: `{whole!s}.clone()`.", line=At(shared.site),
                          whole=whole)),
        count=len({one.given.target.tensor for one in found}),
        calls=(given.at,),
    )  # fmt: skip
