"""Objects that work on after a shallow copy, each on the tensors of the other: of `alias-write`.

``copy.copy(cache)`` makes a second object with the tensors of the first. Where both write them in
place, the elements are those that the methods of one and then of the other wrote. That neither was
to meet the other is told by their places: both write the same ones in the same order, and the first
goes on and is read. Nothing is said of copies that are only read or of which one alone writes, of
memory that each fills before it reads, and of places that each takes for itself.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from functools import cached_property
from itertools import islice, pairwise
from typing import Literal, NamedTuple

from tether.analysis.history import History
from tether.analysis.sharing.shared_memory import fills_anew, onto_itself
from tether.facts import UNKNOWN, Event, Operand, ShallowCopy
from tether.finding import At, CallOf, Claim, Code, Repair, Step, Tensor, say
from tether.operations.table import operation
from tether.regions import overlaps
from tether.verdicts.alias_write.telling import written

_LEAST = 2
"""Places that both objects write in one order: one alone may be where each writes what it has."""

_MOST = 256
"""Places of one tensor, and reads of one, that are looked at."""

_MOST_WRITES = 4096
"""Writes to one tensor that are looked at, the first since it was shared."""

_Place = tuple[int, tuple[int, ...], tuple[int, ...]]
"""Offset, shape and strides of some elements of a tensor's memory."""


_How = Literal["sets", "adds", "some"]
"""All of the elements anew, by what was in each of them, or some of them that are not known."""


class _CopysWrite(NamedTuple):
    """A write to a tensor that several objects hold."""

    at: int
    place: _Place
    written: Operand
    how: _How
    holder: int  # the object whose method wrote; UNKNOWN: not known


class _Meeting(NamedTuple):
    """What one object wrote, another one changed, and the first relied on."""

    tensor: int
    first: _CopysWrite
    second: _CopysWrite  # by the other object
    read: int


def shallow_copies(history: History) -> Iterator[Claim]:
    """Yield one claim for each line that copies such an object."""
    copies = _Copies(history)
    found: dict[tuple[int, str], list[_Meeting]] = defaultdict(list)
    for tensor in copies.tensors:
        for met in copies.met(tensor):
            fact = copies.made(met)
            if fact is not None:
                found[fact.site, met.second.how].append(met)
                break
    told = {site for site, how in found if how == "sets"}
    for (site, how), some in found.items():
        if how == "sets" or site not in told:
            fact = copies.made(some[0])
            if fact is not None:
                yield _claim(history, fact, some)


class _Copies:
    """The objects that were copied, and the writes to what they have in common."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._facts = history.trace.shallow_copies
        self.tensors = list(dict.fromkeys(one for fact in self._facts for one in fact.tensors))
        self._since = {fact.made: history.position(fact.at) for fact in self._facts}

    @cached_property
    def _through(self) -> dict[int, int]:
        """Return the object through which a call wrote, by the call's position."""
        facts = self._history.trace.written_through
        found = {self._history.position(one.event): one.holder for one in facts}
        return {at: holder for at, holder in found.items() if at >= 0}

    @cached_property
    def _turns(self) -> list[tuple[int, int]]:
        """Return when each of the objects wrote anything, in order."""
        return sorted(self._through.items())

    def made(self, met: _Meeting) -> ShallowCopy | None:
        """Return the copying by which the later one of two objects came to be."""
        both = met.first.holder, met.second.holder
        made = [one for one in self._facts if one.made in both and met.tensor in one.tensors]
        return max(made, key=lambda one: one.at, default=None)

    # -- what met --------------------------------------------------------------------------------

    def met(self, tensor: int) -> Iterator[_Meeting]:
        """Yield where objects met in a tensor: what was set first, then what was added up."""
        writes = self._writes(tensor)
        places: dict[_Place, list[_CopysWrite]] = defaultdict(list)
        for one in writes:
            if one.holder != UNKNOWN:
                places[one.place].append(one)
        for some in list(places.values())[:_MOST]:
            yield from self._overwritten(tensor, writes, some)
        for some in list(places.values())[:_MOST]:
            yield from self._added(tensor, writes, some)

    def _writes(self, tensor: int) -> list[_CopysWrite]:
        """Return the writes to a tensor since it was first shared."""
        history, operand = self._history, self._history.operand_of(tensor)
        since = min(history.position(one.at) for one in self._facts if tensor in one.tensors)
        found: list[_CopysWrite] = []
        writes = () if operand is None else history.writes_to(operand, since - 1)
        for at in islice(writes, _MOST_WRITES):
            event = history.events[at]
            for one in () if onto_itself(history, at) else event.writes:
                if operand is not None and one.storage == operand.storage:
                    through = self._through.get(at, UNKNOWN)
                    found.append(_CopysWrite(at, one[3:6], one, _how(event), through))
        return found

    def _overwritten(
        self, tensor: int, writes: list[_CopysWrite], some: list[_CopysWrite]
    ) -> Iterator[_Meeting]:
        """Yield a place that two objects set, where both took the same places in the same order."""
        sets = [one for one in some if one.how == "sets"]
        second = next((one for one in sets if one.holder != sets[0].holder), None)
        if second is not None and self._in_step(writes, sets[0], second):
            read = self._relied_on(writes, sets[0], second)
            if read != UNKNOWN:
                yield _Meeting(tensor, sets[0], second, read)

    def _relied_on(self, writes: list[_CopysWrite], first: _CopysWrite, second: _CopysWrite) -> int:
        """Return a read in the next turn of who wrote first, which has not written that anew."""
        mine, _ = self._families(first.holder, second.holder)
        turns = [(at, who in mine) for at, who in self._turns if at > second.at]
        turn = next((at for at, own in turns if own), None)
        if turn is None:
            return UNKNOWN
        ends = [at for at, own in turns if at > turn and not own][:1]
        for one in writes:
            if one.holder == UNKNOWN and one.at > turn:
                ends.append(one.at)
            elif one.holder in (*mine, UNKNOWN) and one.at > second.at:
                ends += [one.at] if overlaps(one.written, first.written) else []
        return self._read(first.written, turn, min(ends, default=self._end(writes)))

    def _in_step(self, writes: list[_CopysWrite], first: _CopysWrite, second: _CopysWrite) -> bool:
        """Whether two objects took the same places one after the other.

        Of two copies of one object each begins where that was; of an object and its copy, both
        where the copy was made.
        """
        since = self._begun(first, second)
        mine, theirs = (
            list(dict.fromkeys(one.place for one in writes if one.at >= begun
                               and one.holder in family and one.how == "sets"))
            for family, begun in zip(
                self._families(first.holder, second.holder), since, strict=True
            )
        )  # fmt: skip
        both = min(len(mine), len(theirs))
        return first.at >= since[0] and both >= _LEAST and mine[:both] == theirs[:both]

    def _families(self, first: int, second: int) -> tuple[set[int], set[int]]:
        """Return two objects, each with the copies that go on in its place: a beam's hypotheses.

        Where one is a copy of the other, each alone.
        """
        mine, theirs = (self._going_on.get(one, {one}) for one in (first, second))
        return (mine, theirs) if mine.isdisjoint(theirs) else ({first}, {second})

    @cached_property
    def _going_on(self) -> dict[int, set[int]]:
        """Return each object that was copied with its copies, and the copies of these."""
        found: dict[int, set[int]] = {}
        for fact in reversed(self._facts):  # a copy is made before it is copied itself
            found.setdefault(fact.of, {fact.of}).update(found.get(fact.made, {fact.made}))
        return found

    @cached_property
    def _copied_of(self) -> dict[int, int]:
        """Return of each copy the object that it was made of."""
        return {fact.made: fact.of for fact in self._facts}

    def _begun(self, first: _CopysWrite, second: _CopysWrite) -> tuple[int, int]:
        """Return since when each of two objects goes its own way, from the same beginning."""
        one, other = (self._copied_of.get(write.holder) for write in (first, second))
        if one is not None and one == other:
            return self._since[first.holder], self._since[second.holder]
        since = self._both_since(first, second)
        return since, since

    def _added(
        self, tensor: int, writes: list[_CopysWrite], some: list[_CopysWrite]
    ) -> Iterator[_Meeting]:
        """Yield a place to which two objects add in turns, and which nothing begins anew."""
        adds = [one for one in some if one.how == "adds" and not one.written.requires_grad]
        for first, second in pairwise(adds):
            again = [one for one in adds if one.at > second.at and one.holder == first.holder]
            apart = second.holder != first.holder and first.at >= self._both_since(first, second)
            if again and apart and not _anew(writes, first, again[0].at):
                read = self._read(first.written, again[0].at, self._end(writes))
                if read != UNKNOWN:
                    yield _Meeting(tensor, first, second, read)
                    return

    def _both_since(self, first: _CopysWrite, second: _CopysWrite) -> int:
        """Return when the later of two objects was made."""
        return max(self._since.get(one.holder, 0) for one in (first, second))

    def _end(self, writes: list[_CopysWrite]) -> int:
        """Return until when all writes to a tensor are known."""
        return writes[-1].at if len(writes) >= _MOST_WRITES else len(self._history.events)

    def _read(self, place: Operand, since: int, until: int) -> int:
        """Return the first call between two that looks at some elements and writes none; or -1."""
        history = self._history
        for at in [one for one in history.on_storage(place) if since < one < until][:_MOST]:
            event = history.events[at]
            if any(overlaps(one, place) for one in event.reads) and _looks(event):
                return at
        return UNKNOWN


def _anew(writes: list[_CopysWrite], first: _CopysWrite, until: int) -> bool:
    """Whether some of what was written is set between that write and another one."""
    return any(
        one.how == "sets" and first.at < one.at < until and overlaps(one.written, first.written)
        for one in writes
    )


def _how(event: Event) -> _How:
    """Return what a write does to the elements that it is said to have written."""
    if event.operation == "__setitem__":
        return "sets" if event.named else "some"
    row = operation(event.operation)
    if row.part or row.places or row.writes == "shape":
        return "some"
    return "sets" if fills_anew(event) else "adds"


def _looks(event: Event) -> bool:
    """Whether a call looks at what it is given: none that writes, or takes a view."""
    return (
        not event.writes and operation(event.operation).carries and not event.shows(event.reads[0])
    )


def _claim(history: History, fact: ShallowCopy, some: list[_Meeting]) -> Claim:
    first = some[0]
    adds = first.second.how == "adds"
    write, read = history.events[first.second.at], history.events[first.read]
    parts = {
        "x": Tensor(first.tensor), "since": At(fact.site), "code": Code(fact.site),
        "owner": fact.owner, "call": CallOf(first.second.at), "write": At(write.site),
        "read": At(read.site),
    }  # fmt: skip
    words = (
        "{code} ({since}) copies the `{owner}` and none of its tensors: {x} is one tensor for both."
        " At {write} {call} changes it through one of them and through another in turn, and {read}"
        " reads what they have made of it."
        if adds
        else "{code} ({since}) copies the `{owner}` and none of its tensors: {x} is one tensor for"
        " both. At {write} {call} overwrites through one of them what was written through another,"
        " which goes on, and {read} reads it."
    )
    return Claim(
        tensors=tuple(dict.fromkeys(one.tensor for one in some)),
        cause=("shallow copy", fact.site),
        site=fact.site,
        operation="copy",
        severity="note" if adds else None,
        message=say(words, **parts),
        story=(
            Step("shared", fact.site, say("the object is copied, and none of its tensors")),
            written(history, first.second.at),
            Step("read", read.site, say("{x} is read, with what the other has written", **parts)),
        ),
        repair=Repair(say("Copy the tensors too: copy.deepcopy(...), or .clone() each.")),
    )  # fmt: skip
