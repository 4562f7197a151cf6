"""Whether one copy was needed: all questions in their order, the first reason decides."""

from __future__ import annotations

from collections.abc import Sequence

from tether.analysis.copies.already_there import Copied, within_one
from tether.analysis.copies.gives_back import computes
from tether.analysis.copies.layouts import contiguous, same_layout
from tether.analysis.copies.needs.answers import Key, Needed, WhyNeeded
from tether.analysis.copies.needs.arrays import MadeOfArray
from tether.analysis.copies.needs.index import CopyIndex
from tether.analysis.copies.needs.lines import is_deep, key_of
from tether.analysis.copies.needs.memory import MemoryKept
from tether.analysis.copies.needs.objects import AsObject
from tether.analysis.copies.needs.order import GradientOrder
from tether.analysis.copies.needs.readers import CopyReaders
from tether.analysis.copies.needs.unseen import CLOSED, SeenByOthers
from tether.analysis.copies.needs.values import DecidedByValues
from tether.analysis.copies.needs.words import CopyQuestion
from tether.analysis.copies.needs.writes import CopyWrites
from tether.analysis.copies.relied_layout import ReliedLayout
from tether.analysis.history import History
from tether.facts import UNKNOWN
from tether.operations.table import operation, shown


class Judge(CopyQuestion):
    """The judgement of one execution."""

    def __init__(self, history: History, made: Sequence[Copied]) -> None:
        index = CopyIndex(history, made)
        super().__init__(index)
        self.index = index
        self._asked: set[int] = set()
        self._readers = CopyReaders(index)
        self.unseen = SeenByOthers(index, self._readers)
        self.values = DecidedByValues(index)
        self.writes = CopyWrites(index)
        self.arrays = MadeOfArray(index)
        self._objects = AsObject(index, self._readers, self.writes)
        self._memory = MemoryKept(index)
        self._order = GradientOrder(index)

    def rests_on(self, copied: Copied) -> set[Key]:
        """Return the lines that have to go as well: while they copy, this copy is needed."""
        source, without = self._index.resolved(copied.source)
        found = set[Key]()
        if without and (self.layout(copied) or self._memory.size(copied)):
            found = {key_of(self._history, self._history.events[at]) for at in without}
        if self._memory.released(copied._replace(source=source), by_line=True):
            beside = self._memory.beside(copied._replace(source=source))
            found |= {key_of(self._history, self._index.event(one)) for one in beside}
        return found - {key_of(self._history, self._index.event(copied))}

    def reason(self, copied: Copied) -> WhyNeeded | None:
        """Return why the copy was needed or why that is unknown; None when it was not needed."""
        event = self._index.event(copied)
        if copied.taken is not None:
            return self.unseen.reason(copied, event) or self.arrays.reason(copied, copied.taken)
        copied = copied._replace(source=self._index.resolved(copied.source)[0])
        return (
            self.unseen.reason(copied, event)
            or self.values.guards(copied, event)
            or self.values.computed(copied, event)
            or self.writes.of_source(copied)
            or self.writes.of_copy(copied)
            or self._objects.reason(copied)
            or self._memory.size(copied)
            or self._memory.kept(copied)
            or self._order.reason(copied)
            or self.layout(copied)
        )

    def unread(self, copied: Copied) -> bool | None:
        """Say of a copy that nothing in the whole program read whether it was written.

        None for any other. A call that writes nothing but it has read nothing for anybody else. One
        that gives a view of it, or the copy itself, makes use of it: who was handed that may have
        it still, and may be no code that is heard. All the more a view that its source could not
        give.
        """
        memory = self._flow.memory(copied.copy)
        event = self._index.event(copied)
        if self._history.inside(event, *CLOSED) >= 0:
            return None  # the engine reads what a backward or a hook returns
        if self._index.library or self._index.blind or memory in self._lives.exported:
            return None
        if self.unseen.of_others(copied):
            return None
        if self._readers.was_read(copied) or self._readers.was_handed_on(copied):
            return None
        layout = self.layout(copied._replace(source=self._index.resolved(copied.source)[0]))
        if layout is not None and layout.needed == "yes":
            return None
        later = self._index.afterwards(copied)
        return any(self._flow.memory(one) == memory for event in later for one in event.writes)

    def bound(self, copied: Copied) -> bool:
        """Whether more than the call itself would have to go, were the copy left out."""
        event = self._index.event(copied)
        row = operation(event.operation)
        filled = bool(row.writes) and not within_one(self._history, copied.position)
        module = is_deep(self._history, event) and event.operation != "__deepcopy__"
        outside = not event.reads and not row.copies  # no function mode hears `from_numpy`
        more = filled or module or outside or computes(event)
        return copied.part or copied.taken is not None or more

    def layout(self, copied: Copied) -> WhyNeeded | None:
        """Find a call for which it may matter how the elements lie."""
        parts = self._index.parts[copied.position] if copied.part else [copied]
        if parts[0].copy is not copied.copy and copied.part:
            return None  # asked with the first of them
        if not copied.part and copied.source.strides == copied.copy.strides:
            return None
        relied = ReliedLayout(self._history, parts, self._must_stay)
        at, text = relied.run()
        if text:
            return self._relied(parts, at, text, rounds=relied.rounding != UNKNOWN)
        if not (relied.used or copied.part or same_layout(copied.source, copied.copy)):
            return WhyNeeded("unknown", "its layout is another, and nothing was seen to read it")
        return self._taken_whole(copied)

    def _taken_whole(self, copied: Copied) -> WhyNeeded | None:
        """Ask whether a library was handed tensors in one piece: the program cannot part them."""
        for at in self._index.reads[copied.copy.tensor] if copied.part else ():
            event = self._history.events[at]
            inside = event.inner not in (UNKNOWN, event.site)
            owner, _, _ = self._history.site(event.inner).function.rpartition(".")
            if at > copied.position and inside and owner != "Tensor":  # whose parts a line unpacks
                return WhyNeeded("unknown", "a library's function takes it in one piece", at)
        return None

    def _relied(self, parts: Sequence[Copied], at: int, text: str, *, rounds: bool) -> WhyNeeded:
        """Say which call relies on how the elements lie, or may."""
        certain = text.startswith(("would copy", "would answer", "could not", "needs"))
        whole = all(one.source.strides == contiguous(one.source.shape) for one in parts)
        call = shown(self._history.events[at].operation)
        text = f"{call} at {self._words.line(at, parts[0])} {text}"
        needed: Needed = "yes" if certain else "unknown"
        return WhyNeeded(needed, text, at, rounds=rounds or (whole and not certain))

    def _must_stay(self, copied: Copied) -> str:
        """Say why a later copy would have to stay, which would be made no more."""
        if copied.position in self._asked:
            return "it is asked already"
        self._asked.add(copied.position)
        found = self.reason(copied)
        self._asked.discard(copied.position)
        return found.text if found is not None else ""
