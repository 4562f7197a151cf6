"""What the recording cannot tell of a copy: others that may see or write its memory."""

from __future__ import annotations

import math
from bisect import bisect_right
from functools import cached_property

import numpy as np

from tether.analysis.copies.already_there import Copied, copied_on
from tether.analysis.copies.memory_lives import MAY
from tether.analysis.copies.needs.answers import WhyNeeded
from tether.analysis.copies.needs.index import CopyIndex
from tether.analysis.copies.needs.readers import CopyReaders
from tether.analysis.copies.needs.words import CopyQuestion
from tether.analysis.copies.other_processes import OtherProcesses
from tether.analysis.history import following
from tether.analysis.sharing.odd_writes import OddWrite, OddWrites
from tether.facts import UNKNOWN, Event, Operand, Span

CLOSED = {
    "function": "inside an autograd.Function",
    "hook": "inside a hook",
    "backward": "inside a backward pass",
    "step": "inside an optimizer's step",
    "compiled": "inside a compiled region",
    "transform": "inside a torch.func transform",
    "checkpoint": "inside a checkpointed block, which runs twice",
}
"""Spans in which a copy plays a part that the facts do not tell."""


class SeenByOthers(CopyQuestion):
    """Why nothing can be said of a copy: processes, threads, arrays, spans."""

    def __init__(self, index: CopyIndex, readers: CopyReaders) -> None:
        super().__init__(index)
        self._readers = readers

    def reason(self, copied: Copied, event: Event) -> WhyNeeded | None:
        """Give what the recording cannot tell of this execution."""
        if self._history.in_part:
            return WhyNeeded("unknown", "not all of the run is in the recording")
        if copied.part and not self._readers.heard(copied):
            return WhyNeeded("unknown", "nothing was heard to read it, in one piece or in parts")
        return (
            self.of_others(copied)
            or self._lost(copied)
            or self._inside(copied, event)
            or self._opaque(copied)
            or self._elsewhere(copied, event.thread)
        )

    def of_others(self, copied: Copied) -> WhyNeeded | None:
        """Ask for other processes: those that show the same memory, and those forked off."""
        others, doubt = self._history.get(OtherProcesses), ""
        if others.write(copied.source) or others.write(copied.copy):
            doubt = "another process shows its memory, and may write it"
        elif others.sent(copied.source) and not self._index.never_written(copied):
            doubt = "who sent its source may see what is written to it"
        elif others.sent(copied.source) and self._kept_for_long(copied):
            doubt = "it lets memory go that another process shows"
        doubt = doubt or others.use(copied, self._lives)
        return WhyNeeded("unknown", doubt) if doubt else None

    def _lost(self, copied: Copied) -> WhyNeeded | None:
        """Ask for writes that went into another copy: put right, they write one of the two."""
        memories = {self._lives.memory(one) for one in (copied.source, copied.copy)}
        for one in self._lost_writes:
            meant = self._history.operand_of(one.tensor)
            if meant is not None and self._lives.memory(meant) in memories:
                line = self._words.line(one.write, copied)
                text = f"what {line} writes was meant for it, or for its source"
                return WhyNeeded("unknown", text, one.write)
        return None

    @cached_property
    def _lost_writes(self) -> list[OddWrite]:
        return [one for one in self._history.get(OddWrites).all if one.kind == "lost"]

    def _kept_for_long(self, copied: Copied) -> bool:
        """Whether a copy lived on when its line made the one after the next."""
        runs = [one.position for one in self._index.runs[self._index.event(copied).site]]
        after = bisect_right(runs, copied.position) + 1
        return after < len(runs) and self._lives.until(copied.copy) > runs[after]

    def _inside(self, copied: Copied, event: Event) -> WhyNeeded | None:
        """Ask for spans in which a copy plays a part that the facts do not tell."""
        number = event.span
        while number != UNKNOWN:
            span = self._trace.spans[number]
            open_ = self._stepped_apart(span, copied) or self._kept_by_function(span, copied)
            if span.kind in CLOSED and not open_:
                return WhyNeeded("unknown", CLOSED[span.kind])
            number = span.parent
        return None

    def _opaque(self, copied: Copied) -> WhyNeeded | None:
        """Ask for memory that others may write unheard, and tensors that are more than elements."""
        at_once = self._copied_on_at_once(copied)
        for one in (copied.source, copied.copy):
            kind = self._index.kind(one)
            if kind not in ("Tensor", "Parameter", "Buffer"):
                return WhyNeeded("unknown", f"a {kind} may be more than its elements")
            if at_once:
                continue
            if self._lives.memory(one) in self._lives.exported and self._unwatched(one):
                return WhyNeeded("unknown", "an array on its memory may have been written unheard")
            if self._lives.memory(one) in self._lives.addressed:
                return WhyNeeded("unknown", "what is done with its address is not heard")
        if not at_once and self._outlived_by_array(copied):
            return WhyNeeded(
                "unknown", "the array behind its source may have been written later on"
            )
        if copied.copy.dtype.startswith("complex"):
            return WhyNeeded("unknown", "a complex tensor may be conjugated in name only")
        if copied.source.version == UNKNOWN != copied.copy.version:
            return WhyNeeded("yes", "its source is an inference tensor, and it is none")
        return None

    def _elsewhere(self, copied: Copied, thread: int) -> WhyNeeded | None:
        """Ask for other threads, and for transfers that nobody waited for."""
        for tensor in (copied.source.tensor, copied.copy.tensor):
            threads, transfers = self._readers.by_thread(tensor)
            others = [found for one, found in threads.items() if one != thread]
            later = [following(found, copied.position) for found in others]
            if any(at != UNKNOWN for at in later) and not self._index.never_written(copied):
                first = min(at for at in later if at != UNKNOWN)
                return WhyNeeded("unknown", "another thread reads it", first)
            at = following(transfers, copied.position)
            if at != UNKNOWN:
                text = f"the transfer of {self._words.line(at, copied)} may read it for longer"
                return WhyNeeded("unknown", text, at)
        return None

    def _stepped_apart(self, span: Span, copied: Copied) -> bool:
        """Whether a span is a step that writes neither: a closure's copies, as of any other code.

        What a step writes is known when it has ended; when in the step that was is not.
        """
        if span.kind != "step" or span.event == UNKNOWN:
            return False
        ended, own = self._history.position(span.event), self._index.own_step(copied)
        return not any(
            write.at == ended and not (own == ended and write.verb == MAY)
            for one in (copied.source, copied.copy)
            for write in self._lives.unheard.get(self._lives.memory(one), [])
        )

    def _kept_by_function(self, span: Span, copied: Copied) -> bool:
        """Whether a custom Function made a copy for itself: it gives none of its memory.

        A graph of gradients would lead back to a saved argument, and not to a saved copy of it.
        """
        if span.kind != "function" or span.event == UNKNOWN:
            return False
        given = self._history.events[self._history.position(span.event)].results
        if any(one.storage in (copied.copy.storage, copied.source.storage) for one in given):
            return False
        return not any(event.create_graph for event in self._backwards())

    def _backwards(self) -> list[Event]:
        return [self._history.events[at] for at in self._history.backwards]

    def _unwatched(self, operand: Operand) -> bool:
        """Whether writes through an array on this memory could have gone unnoticed."""
        fact = self._trace.storages[operand.storage]
        return fact.device != "cpu" or fact.nbytes > 16 << 20 or self._history.arrays_unchecked

    def _copied_on_at_once(self, copied: Copied) -> bool:
        """Whether a copy was copied again by its own line or the next one, and that was all.

        No other line ran in between: nothing wrote its source unheard, whoever shows that memory.
        """
        then = copied_on(self._history, copied.position, copied.copy)
        if then < 0 or self._lives.until(copied.copy) == math.inf:
            return False
        made, read = (
            self._history.site_of(self._history.events[at]) for at in (copied.position, then)
        )
        near = made.function == read.function and 0 <= read.line - made.end_line <= 1
        if made.row != read.row and not near:
            return False
        sites = self._history.events.column("site")[copied.position : then + 1]
        lines = {self._history.site(one).row for one in np.unique(sites).tolist()}
        return lines <= {made.row, read.row}

    def _outlived_by_array(self, copied: Copied) -> bool:
        """Whether the source was made of an array, and gone before the copy was.

        Its memory is the array's, which may live on: bytes are compared only while a tensor shows
        them.
        """
        fact = self._trace.storages[copied.source.storage]
        if fact.memory == UNKNOWN or fact.freed == UNKNOWN:
            return False
        return self._history.position(fact.freed) < self._lives.until(copied.copy)
