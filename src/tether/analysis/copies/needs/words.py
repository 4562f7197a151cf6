"""What a reason calls lines, a copy and its source."""

from __future__ import annotations

from pathlib import Path

from tether.analysis.copies.already_there import Copied
from tether.analysis.copies.needs.index import CopyIndex
from tether.analysis.copies.needs.lines import own_line
from tether.facts import UNKNOWN, Operand
from tether.source.calls import copied_text


class CopyWords:
    """The words for the copies of one history."""

    def __init__(self, index: CopyIndex) -> None:
        self._index = index
        self._history = index.history

    def line(self, position: int, copied: Copied) -> str:
        """Return the line of an event, with its file where the copy stands in another.

        For a library's copy the library's own.
        """
        if not 0 <= position < len(self._history.events):
            return "the end of the recording"
        event = self._history.events[position]
        site = self._history.site_of(event)
        inside = self._index.library and event.inner not in (UNKNOWN, event.site)
        place = self._history.site(event.inner) if inside else site
        if inside or place.file != self._index.line_of(copied).file:
            return f"{Path(place.file).name}:{place.line}" if place.line else "an unknown line"
        return f"line {site.line}" if site.line else "an unknown line"

    def source(self, copied: Copied) -> str:
        """Return what the copying line calls its source, else its name."""
        event, site = self._index.event(copied), self._index.line_of(copied)
        named = self._index.library or own_line(self._history, event)
        text = copied_text(event.operation, site.expression) if named else ""
        found = f"`{text}`" if text else self.name(copied.source, "its source")
        return "its source" if found == self.name(copied.copy) else found  # x = x.clone()

    def written(self, copied: Copied, written: Operand | None) -> str:
        """Return the name of the source, or that by which it was written: a state dict has many."""
        called = self._history.names_of
        if written is not None and not called(copied.source.tensor) and called(written.tensor):
            found = self.name(written)
            return "its source" if found == self.name(copied.copy) else found
        return self.source(copied)

    def name(self, operand: Operand, otherwise: str = "the copy") -> str:
        """Return a tensor's name; a library's line that gives it none has no other to show."""
        name = self._history.name_of(operand.tensor)
        if self._index.library and not self._history.names_of(operand.tensor):
            return otherwise
        return name if name.startswith("`") else f"`{name}`"


class CopyQuestion:
    """A question about single copies, asked of what is known of all."""

    def __init__(self, index: CopyIndex) -> None:
        self._index = index
        self._words = CopyWords(index)
        self._history, self._trace = index.history, index.trace
        self._flow, self._lives = index.flow, index.lives
