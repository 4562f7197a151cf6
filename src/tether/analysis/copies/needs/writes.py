"""Whether a copy or its source was written while the other lived."""

from __future__ import annotations

import math

from tether.analysis.copies.already_there import Copied
from tether.analysis.copies.layouts import is_expanded, remapped
from tether.analysis.copies.lingering import Lingering
from tether.analysis.copies.memory_lives import MAY, MemoryWrite
from tether.analysis.copies.needs.answers import WhyNeeded
from tether.analysis.copies.needs.words import CopyQuestion
from tether.analysis.copies.replaced import fate_of
from tether.analysis.copies.sparse_changes import SparseChanges
from tether.facts import UNKNOWN
from tether.operations.table import operation
from tether.regions import may_overlap


class CopyWrites(CopyQuestion):
    """The writes by which a copy and its source came apart."""

    def of_source(self, copied: Copied) -> WhyNeeded | None:
        """Find a write to the source while the copy lived."""
        source, copy, own = copied.source, copied.copy, self._index.own_step(copied)
        for write in self._lives.written(source, copied.since, self._lives.until(copy)):
            written, line = write.written, self._words.line(write.at, copied)
            if write.at == copied.position or self._put_back(copied, write.at):
                continue
            if (write.at == own and write.verb == MAY) or self._is_past(copied, write):
                continue
            if written is None or written.storage != source.storage or may_overlap(written, source):
                text = f"{line} {write.verb} {self._words.written(copied, written)}"
                return WhyNeeded("yes", f"{text} while {self._words.name(copy)} lives", write.at)
            if self._index.saves(copy, copied.position, write.at):
                text = f"{line} writes beside {self._words.source(copied)}"
                return WhyNeeded("yes", f"{text}, which the backward pass would refuse", write.at)
            if self._is_moved_along(copied, write.at):
                text = f"{line} puts it beside {self._words.source(copied)}"
                return WhyNeeded("unknown", f"{text}: longer parts would overlap", write.at)
        return None

    def _is_moved_along(self, copied: Copied, at: int) -> bool:
        """Whether a call puts a copy of a stretch of some memory into that memory: ``x[1:] = ...``.

        How long the stretch is decides whether it reaches into what it is put on. One row that is
        put on another one never does.
        """
        events, taken = self._history.events, self._history.made_at(copied.source.tensor)
        if at >= len(events) or taken < 0:
            return False
        read = any(one.tensor == copied.copy.tensor for one in events[at].reads)
        of = events[taken].reads[:1]
        return read and any(len(one.shape) == len(copied.source.shape) for one in of)

    def _is_past(self, copied: Copied, write: MemoryWrite) -> bool:
        """Whether a variable still has a copy as its source is written, which no line can read."""
        if self._index.library:
            return False
        return self._history.get(Lingering).is_past(copied, write, self._lives.until(copied.copy))

    def lingers(self, copied: Copied) -> bool:
        """Whether the source of a copy is written while it lives, when no line can read it."""
        until = self._lives.until(copied.copy)
        return any(
            write.at != copied.position and self._is_past(copied, write)
            for write in self._lives.written(copied.source, copied.since, until)
        )

    def _put_back(self, copied: Copied, at: int) -> bool:
        """Whether a write gave the source what the copy held, and so what was there already.

        Neither was written before: a backup of what nobody changed is restored. The call itself
        still moves the version, so nothing may have saved the copy for backward.
        """
        event = self._history.events[at] if at < len(self._history.events) else None
        if event is None or event.operation != "copy_" or len(event.reads) != 2:
            return False
        target, given = event.reads
        if given.storage != copied.copy.storage or target.storage != copied.source.storage:
            return False
        shown = remapped(given, copied.copy, copied.source)
        if shown is None or shown[3:7] != target[3:7]:
            return False
        written = any(True for _ in self._lives.written(copied.copy, copied.position, at))
        return not written and not self._index.saves(copied.copy, copied.position, at)

    def of_copy(self, copied: Copied) -> WhyNeeded | None:
        """Find a write to the copy while the source lived, or to what cannot be written at all."""
        if (changed := self._changed(copied)) is not None:
            return changed
        source, copy = copied.source, copied.copy
        doubled = is_expanded(source)
        until = math.inf if doubled else self._lives.until(source)
        if not doubled and self.replaces_source(copied):
            return None
        for write in self._lives.written(copy, copied.position, until):
            return WhyNeeded("yes", self._told(copied, write, doubled=doubled), write.at)
        return None

    def _told(self, copied: Copied, write: MemoryWrite, *, doubled: bool) -> str:
        """Say why a copy that was written was needed: for its memory, or for its values as well."""
        name, source = self._words.name(copied.copy), self._words.source(copied)
        text = f"{self._words.line(write.at, copied)} {write.verb} {name}"
        if doubled:
            return f"{text} of which several elements would be one"
        others = fate_of(self._history, copied, drawn=True).at
        if others == UNKNOWN:
            return f"{text} while {source} lives"
        line = self._words.line(others, copied)
        return f"{line} writes {name} anew before anything reads it, while {source} lives"

    def is_written(self, copied: Copied) -> bool:
        """Whether a copy is written while its source lives."""
        until = self._lives.until(copied.source)
        return any(True for _ in self._lives.written(copied.copy, copied.position, until))

    def replaces_source(self, copied: Copied) -> bool:
        """Whether nothing used the source's memory again, and it did not outlive the copy's.

        A write to the copy could then have been one to the source: nobody would have seen it.
        """
        source, lives = copied.source, self._lives
        memory, gone = lives.memory(source), lives.until(source)
        if self._index.blind or gone == math.inf or gone > lives.until(copied.copy):
            return False
        elsewhere = lives.exported | lives.addressed | self._index.stand_in
        if source.requires_grad or memory in elsewhere:
            return False
        used = self._history.on_storage(source)
        again = bool(used) and used[-1] > copied.position
        return not again and not self._index.saves(source, UNKNOWN, copied.position)

    def compared(self, copied: Copied) -> WhyNeeded | None:
        """Find a call that says how the copy differs from its source: a guard, or a distance."""
        source, copy = copied.source, copied.copy
        for at in self._index.reads[copy.tensor]:
            event = self._history.events[at]
            row = operation(event.operation)
            if at > copied.position and (row.compares or row.selects == "comparison"):
                beside = [one for one in event.reads if one.tensor != copy.tensor]
                if any(one.storage == source.storage for one in beside):
                    line, other = self._words.line(at, copied), self._words.source(copied)
                    return WhyNeeded("yes", f"{line} compares it with {other}", at)
        return None

    def _changed(self, copied: Copied) -> WhyNeeded | None:
        """Find a change of a copy or its source that the memory of their values does not show."""
        changes = self._history.get(SparseChanges)
        for one, name in (copied.copy, "it"), (copied.source, self._words.source(copied)):
            found = changes.after(one.tensor, copied.position)
            if found is not None:
                line = self._words.line(found.at, copied)
                what = (
                    f"writes the indices of {name}"
                    if found.indices
                    else f"gives {name} other values"
                )
                return WhyNeeded("yes", f"{line} {what}", found.at)
        return None
