"""Writes that tell of a tie by themselves: no other place needs to be known.

A copy whose source and target overlap; an operand that was changed before its own call read it;
one object given twice to a call; one gradient assigned to several parameters; elements that overlap
one another; a write into memory that nobody reads afterwards.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Literal, NamedTuple

import numpy as np

from tether.analysis.copies.already_there import AlreadyThere
from tether.analysis.gradients.graph import Graph
from tether.analysis.history import History
from tether.analysis.sharing.acts import Acts
from tether.analysis.sharing.holding import first_word, written_text
from tether.analysis.sharing.shared_memory import Sharing, fills_anew, overlaps_itself, same_place
from tether.analysis.timelines import Timeline
from tether.facts import OUT, UNKNOWN, Event, Operand, Site
from tether.operations.table import operation
from tether.regions import may_overlap
from tether.source.filling import mentions
from tether.source.handing import returns
from tether.source.syntax import source_of
from tether.store.numbers import Numbers

Kind = Literal["overlap", "result", "operand", "twice", "gradient", "elements", "lost", "handed"]


_UNHEARD = ("function", "backward", "hook", "transform", "compiled")
"""Spans in which what is returned goes to PyTorch, which is not heard reading it."""


MOST_BACK = 8
"""Calls between a value and what it was computed from."""


class OddWrite(NamedTuple):
    """A write that tells of a tie by itself."""

    kind: Kind
    tensor: int  # that shows the change
    through: int  # that was written
    since: tuple[int, ...]  # positions
    write: int
    read: int  # position; UNKNOWN: none


class OddWrites:
    """All of them, in order."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._found = history.get(Sharing)
        wrote, rows = history.events.touched("writes")
        self._writes = Timeline(history.events.operands.column("tensor")[rows], wrote)
        self._assigned: dict[int, dict[int, int]] = defaultdict(dict)
        self._apart: dict[tuple[str, int, int], list[OddWrite]] = defaultdict(list)
        self._reached: Counter[tuple[str, int, int]] = Counter()  # writes through a view, by line
        self.all: list[OddWrite] = []
        for at, event in history.events.at(np.flatnonzero(self._may_tell())):
            if not event.raised:
                self.all += self._at(at, event)
        for line, found in self._apart.items():
            # A line that loses what it writes whenever what it writes to is no view.
            lost = len(found) + self._reached[line]
            self.all += found if lost == history.times(found[0].write) else ()

    def _may_tell(self) -> Numbers:
        """Whether each call writes and is no step, sets a gradient, or reads one tensor twice."""
        events = self._history.events
        at, rows = events.touched("reads")
        tensors = events.operands.column("tensor")[rows]
        order = np.lexsort((tensors, at))
        again = (np.diff(tensors[order]) == 0) & (np.diff(at[order]) == 0)
        found: Numbers = (events.column("writes") > 0) & ~events.called("step".__eq__)
        found |= events.called("grad.__set__".__eq__)
        found[at[order][1:][again]] = True
        return found

    def _at(self, at: int, event: Event) -> Iterator[OddWrite]:
        if len(event.reads) > 1:
            yield from self._read_twice(at, event)
        if event.operation == "grad.__set__" and len(event.reads) == 2:
            parameter, gradient = event.reads
            self._assigned[gradient.tensor].setdefault(parameter.tensor, at)
        if event.writes and event.operation != "step":
            yield from self._overlaps(at, event)
            yield from self._over_operands(at, event)
            yield from self._gradients(at, event)
            yield from self._handed(at, event)
            yield from self._lost(at, event)

    # -- overlap -----------------------------------------------------------------------------

    def _overlaps(self, at: int, event: Event) -> Iterator[OddWrite]:
        """Find a call that writes elements which it also reads, in another place."""
        target = event.writes[0]
        made = self._history.made_at(target.tensor)
        if made >= 0 and overlaps_itself(event.all_of(target)):
            read = self._next_read(target, at)
            yield OddWrite("elements", target.tensor, target.tensor, (made,), at, read)
        for source in event.reads[1:] if operation(event.operation).copies else ():
            if source.storage == target.storage != UNKNOWN and _moves(source, target):
                made = max(self._history.made_at(source.tensor), 0)
                read = self._next_read(target, at)
                yield OddWrite("overlap", source.tensor, target.tensor, (made,), at, read)

    def _over_operands(self, at: int, event: Event) -> Iterator[OddWrite]:
        """Find a result that is written onto an operand which the call has still to read.

        What goes element by element reads each before it is written, and so does a call that has
        a form that writes in place. A function of Python's, which the table does not know, may
        write only when all has been read.
        """
        row = operation(event.operation)
        if not event.flags & OUT or not row.known or row.pointwise:
            return
        if operation(f"{event.operation}_").known:
            return
        target = event.writes[0]
        rest = list(event.reads)
        rest.remove(next((one for one in rest if one.tensor == target.tensor), target))
        for source in rest:
            if source.storage == target.storage != UNKNOWN and may_overlap(source, target):
                yield OddWrite("result", source.tensor, target.tensor, (at,), at, at)

    def _next_read(self, operand: Operand, at: int) -> int:
        reads = self._found.reads_of(self._history.flow.memory(operand))
        return next((one.at for one in reads if one.at > at), UNKNOWN)

    # -- one object twice --------------------------------------------------------------------

    def _read_twice(self, at: int, event: Event) -> Iterator[OddWrite]:
        times = Counter(one.tensor for one in event.reads)
        for tensor, count in times.items():
            writes = self._written(tensor, at) if count > 1 else []
            if not writes:
                continue
            last = writes[-1]
            if _within(self._history, last, at):
                yield OddWrite("operand", tensor, tensor, (last,), last, at)
            elif len(event.reads) == count and self._meant_two(writes, event):
                made = self._history.made_at(tensor)
                yield OddWrite("twice", tensor, tensor, (max(made, 0),), last, at)

    def _written(self, tensor: int, before: int) -> list[int]:
        """Return the writes to a tensor before a call, in order."""
        return [at for _, at in self._writes.back(tensor, before)][::-1]

    def _meant_two(self, writes: list[int], event: Event) -> bool:
        """Whether a call that reads one object twice may take it for two.

        A line wrote it several times, or the call names it and what a write in place of it gave.
        What is put on its own memory is one (``p.data = p.data``, as `.to()` has it).
        """
        events, last, row = self._history.events, writes[-1], operation(event.operation)
        if event.writes or row.replaces or not row.known:
            return False
        same = [one for one in writes if events[one].site == events[last].site]
        return len(same) > 1 or self._by_both_names(last, event)

    def _by_both_names(self, write: int, event: Event) -> bool:
        """Whether a call names what was written, and what that write's result is assigned to."""
        done = self._history.events[write]
        site, text = self._history.site_of(done), self._history.site_of(event).expression
        names = {site.target, written_text(site, done)}
        return len(names) == 2 and all(name and mentions(text, name) for name in names)

    def _gradients(self, at: int, event: Event) -> Iterator[OddWrite]:
        """Find a write to one gradient that several parameters were given."""
        for one in event.writes:
            given = self._assigned.get(one.tensor, {})
            if len(given) > 1:
                places = sorted(given.values())
                yield OddWrite("gradient", one.tensor, one.tensor, (places[-1],), at, UNKNOWN)

    def _handed(self, at: int, event: Event) -> Iterator[OddWrite]:
        """Find a write to a gradient that the engine handed to the program's own backward."""
        history = self._history
        if event.inner != event.site or history.inside(event, "backward") < 0:
            return
        for one in event.writes[:1]:
            unheard = history.made_at(one.tensor) in (UNKNOWN, at)
            if unheard and one.tensor not in self._found.links:
                yield OddWrite("handed", one.tensor, one.tensor, (at,), at, UNKNOWN)

    # -- a write that nobody reads -----------------------------------------------------------

    def _lost(self, at: int, event: Event) -> Iterator[OddWrite]:
        """Find a write into a copy that its own line made, and that is gone after it.

        One that an earlier line made counts if it is of elements that were there already, and if
        every run of the writing line is lost: a state may go unread in the last turn of a loop. A
        run that writes to a view, made as the copies are, says what was meant.
        """
        history = self._history
        written = event.writes[0]
        whole = self._whole(written)  # a piece is of the copy that it is a view of
        made = history.made_at(whole)
        line = (event.operation, event.site, event.inner)
        if not 0 <= made < at or not self._is_of_its_own(made, whole):
            self._reached[line] += self._is_regrouped(written)
        elif history.inside(event, *_UNHEARD) < 0:
            yield from self._lost_in(at, event, made, whole)

    def _lost_in(self, at: int, event: Event, made: int, whole: int) -> Iterator[OddWrite]:
        """Yield a write into a copy of its own memory if nothing reads it; one apart is kept."""
        history = self._history
        maker = history.events[made]
        if operation(maker.operation).indices:
            return  # they are the sparse tensor's own, which shows the memory of its values alone
        # At an earlier turn of a loop the line made what has a name by now: a sum.
        near = _one_line(history.site_of(maker), history.site_of(event))
        near = near and _within(history, made, at)
        if not near and not self._may_stand_for_source(at, event, made):
            return
        if not self._is_lost(at, made, whole, near=near) or self._is_own(at, event, made):
            return
        tensor = event.writes[0].tensor
        found = OddWrite("lost", self._source(maker), tensor, (made,), at, UNKNOWN)
        if not near:  # another run of the line may be read
            self._apart[event.operation, event.site, event.inner].append(found)
        else:
            yield found

    def _may_stand_for_source(self, at: int, event: Event, made: int) -> bool:
        """Whether a copy of an earlier line may be taken for its source.

        It is elements that were there, or the writing line's own text has just had it made.
        """
        maker = self._history.events[made]
        text = written_text(self._history.site_of(event), event)
        just_made = made >= at - 3 and not operation(maker.operation).regroups
        return self._was_there(maker, made) or (just_made and not text.isidentifier())

    def _is_lost(self, at: int, made: int, whole: int, *, near: bool) -> bool:
        """Whether nothing reads what a call wrote into a copy."""
        if self._gone_unread(at, self._history.events[at].writes[0], within=2 if near else 1):
            return True
        regroups = operation(self._history.events[made].operation).regroups
        return not near and regroups and self._meant_for_another(at, whole)

    def _is_own(self, at: int, event: Event, made: int) -> bool:
        """Whether a copy is written for itself: a library's own, or one that is returned."""
        maker = self._history.events[made]
        if all(one.inner not in (UNKNOWN, one.site) for one in (maker, event)):
            return True
        site = self._history.site_of(event)
        name = first_word(written_text(site, event))
        if _within(self._history, made, at):
            # The line has it made, and no name shows it: a name on the left is another tensor's.
            name = "" if event.operation == "__setitem__" else site.target
        source = source_of(site.file, self._history.trace.sources.get(site.file, ""))
        return returns(source, site, name)

    def _whole(self, written: Operand) -> int:
        """Return the tensor that made the memory: what a piece that is written is a view of."""
        return next((link.source for link in reversed(self._found.chain(written.tensor))),
                    int(written.tensor))  # fmt: skip

    def _is_regrouped(self, written: Operand) -> bool:
        """Whether what is written is a view that a call made which copies at other times."""
        links = self._found.chain(written.tensor)
        return any(operation(self._history.events[one.at].operation).regroups for one in links)

    def _gone_unread(self, at: int, written: Operand, *, within: int) -> bool:
        """Whether a tensor went within some calls after a write, and nothing touched it."""
        memory = self._history.flow.memory(written)
        if self._history.get(Acts).died(written.tensor) > at + within:
            return False
        if self._touched_after(memory, at) or self._is_saved(memory):
            return False
        return not self._has_left(memory)

    def _is_saved(self, memory: int) -> bool:
        """Whether a graph kept something on a memory: a backward pass reads what is there then."""
        history, graph = self._history, self._history.get(Graph)
        calls = history.on_memory(memory)
        kept = (one for at in calls for one in graph.saved(at, unchecked=True))
        return any(history.flow.memory(one) == memory for one in kept)

    def _meant_for_another(self, at: int, whole: int) -> bool:
        """Whether the program's own line writes to what might have been a view, and none reads it.

        Then the write was meant for its source, however long the copy lives.
        """
        history, event = self._history, self._history.events[at]
        if event.inner != event.site or history.get(Acts).died(whole) >= len(history.events):
            return False
        memory = history.flow.memory(event.writes[0])
        positions = history.on_memory(memory)
        later = positions[bisect_right(positions, at) :]
        read = any(not self._only_writes_or_shows(history.events[one], memory) for one in later)
        return not (read or self._has_left(memory) or self._is_saved(memory))

    def _only_writes_or_shows(self, event: Event, memory: int) -> bool:
        """Whether a call writes into a memory or makes a view of it, and tells nothing of it."""
        number = self._history.flow.memory
        if any(number(one) == memory for one in event.writes):
            return True
        return bool(event.results) and all(number(one) == memory for one in event.results)

    def _has_left(self, memory: int) -> bool:
        """Whether a memory was handed to who is not heard reading it: an array, an address."""
        names = {self._history.events[at].operation for at in self._history.on_memory(memory)}
        return any(operation(name).lends for name in names)

    def _was_there(self, maker: Event, made: int) -> bool:
        """Whether what a call made is elements that were there already, in its own memory."""
        there = self._history.get(AlreadyThere).by_position
        return operation(maker.operation).regroups or made in there

    def _source(self, maker: Event) -> int:
        """Return what a copy was made of: what regroups shows the whole, by a view or a copy."""
        source: int = maker.reads[0].tensor
        return self._found.family(source) if operation(maker.operation).regroups else source

    def _is_of_its_own(self, made: int, tensor: int) -> bool:
        """Whether a call made a tensor of others, on memory of its own."""
        maker = self._history.events[made]
        storages = {one.storage for one in maker.results if one.tensor == tensor}
        shared = any(one.storage in storages for one in maker.reads)
        row = operation(maker.operation)  # the gradient that `.grad` gives was there before
        return bool(maker.reads) and not shared and row.carries and not row.fresh

    def _touched_after(self, memory: int, at: int) -> bool:
        positions = self._history.on_memory(memory)
        return bisect_right(positions, at) < len(positions)


def _moves(source: Operand, target: Operand) -> bool:
    """Whether a copy would write elements that it has to read for another place."""
    other = not same_place(source, target) and source[3:6] != target[3:6]
    return other and may_overlap(source, target)


def _one_line(a: Site, b: Site) -> bool:
    return a.row == b.row and a.line > 0


def _within(history: History, inner: int, outer: int) -> bool:
    """Whether the text of one call stands inside that of another, on its line."""
    one, other = (history.site_of(history.events[at]) for at in (inner, outer))
    if history.events[outer].inner != history.events[outer].site:
        return False  # a library's own calls: where they stand says nothing of what is an operand
    if one.file != other.file or not one.column or not other.column or one == other:
        return False
    start, end = (other.line, other.column), (other.end_line, other.end_column)
    return start <= (one.line, one.column) and (one.end_line, one.end_column) <= end


def goes_on(history: History, at: int, event: Event) -> bool:
    """Whether a line of the user's own writes what it computed from what was there."""
    row = operation(event.operation)
    if event.inner != event.site or event.operation == "step" or event.raised or row.bounds:
        return False  # to bound what is within the bounds changes nothing
    if not fills_anew(event) and not row.part:
        return True
    return _is_computed_of(history, at, history.flow.memory(event.writes[0]))


def _is_computed_of(history: History, at: int, memory: int) -> bool:
    """Whether what a call writes was computed from a memory, a few calls before."""
    waiting = list(history.events[at].reads[1:])
    for _ in range(MOST_BACK):
        made = history.made_at(waiting.pop(0).tensor) if waiting else UNKNOWN
        reads = history.events[made].reads if 0 <= made < at else ()
        if any(history.flow.memory(one) == memory for one in reads):
            return True
        waiting += reads
    return False
