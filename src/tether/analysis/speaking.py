"""Puts sentences into words: tensors by their names, places by their lines."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any

from tether.analysis.history import History, shortened
from tether.facts import UNKNOWN, Site
from tether.finding import (
    At,
    Bytes,
    CallOf,
    Code,
    Said,
    Segment,
    Sentence,
    Tensor,
    Tensors,
    Where,
    named,
    typed,
)
from tether.operations.table import shown
from tether.source.calls import as_operand, is_target
from tether.source.syntax import source_of
from tether.source.visible import is_visible


class Speaker:
    """Puts the sentences of one finding into words; `home` is the file that it is about."""

    def __init__(self, history: History, home: Site) -> None:
        self._history = history
        self._home = home

    def said(self, sentence: Sentence, parts: Mapping[str, Any] | None = None) -> Said:
        """Return a sentence in words; `parts` are more of its places."""
        known = {**sentence.parts, **(parts or {})}
        segments: list[Segment] = []
        fields = [*sentence.fields, ("", None, False)]
        for (text, name, in_code), (behind, _, _) in itertools.pairwise(fields):
            if text:
                segments.append(Segment(text))
            if name is not None and in_code:
                line = next((one.site for one in known.values() if isinstance(one, At)), self._home)
                segments.append(self._in_code(self._seen_from(line, known[name]), parts, behind))
            elif name is not None:
                found = self._part(known[name], parts)
                if text.endswith(". "):
                    found = [_begun(found[0]), *found[1:]]
                segments += found
        return Said(segments)

    def _seen_from(self, line: Where, part: Any) -> Any:
        """Return a tensor by a name that a line can use, where it has one; anything else as it is.

        The function that is called has another name for what its caller gave it.
        """
        numbers = part.numbers if isinstance(part, Tensors) else part[:1]
        if not isinstance(part, Tensor | Tensors) or not numbers:
            return part
        history, site = self._history, self._history.site(line)
        source = source_of(site.file, history.trace.sources.get(site.file, ""))
        if is_visible(source, site, self.name(numbers[0]).text):
            return part
        names = filter(None, self._names_at(site, numbers[0]))
        found = (one for one in names if is_visible(source, site, one))
        return next((Segment(one, "name") for one in found), part)

    def _names_at(self, site: Site, tensor: int) -> Iterator[str]:
        """Yield the other names of a tensor, and what the function of a line calls it."""
        history, shown = self._history, self._history.operand_of(tensor)
        yield from (one for one in history.names_of(tensor) if "." not in one)
        for one in history.trace.holders:
            if one.tensor == tensor and one.kind == "variable" and one.function == site.function:
                yield one.name
        if shown is not None:
            yield history.read_as(shown, UNKNOWN, site)

    def _in_code(self, part: Any, more: Mapping[str, Any] | None, behind: str) -> Segment:
        """Return what stands in a piece of code before some text: bare, and an operand of it."""
        text = self._history.site(part.site).expression if isinstance(part, Code) else ""
        whole = " ".join(text.split())
        if whole:
            found = Segment(whole if len(whole) <= _LONGEST else "...", "code")
        else:
            found = _bare(self._part(part, more)[0])
        if found.kind == "name":
            return found
        if behind.startswith(" = ") and not is_target(found.text):
            return Segment("x")  # what has no name yet is given one
        return found._replace(text=as_operand(found.text)) if behind.startswith(".") else found

    def message(self, sentence: Sentence, parts: Mapping[str, Any] | None = None) -> Said:
        """Return a sentence in words that stands by itself: it begins with a capital letter."""
        first, *others = self.said(sentence, parts).segments
        return Said([_begun(first), *others])

    def _part(self, part: Any, more: Mapping[str, Any] | None) -> list[Segment]:
        if isinstance(part, Segment):
            return [part]
        if isinstance(part, Said):
            return list(part.segments)
        if isinstance(part, Sentence):
            return list(self.said(part, more).segments)
        if isinstance(part, Tensor):
            return [self.name(part.number)]
        if isinstance(part, Tensors):
            return self._names(part.numbers)
        if isinstance(part, Code):
            text = shortened(self._history.site(part.site).expression)
            return [typed(text) if text else Segment(self._line(part.site))]
        return [Segment(self._plain(part))]

    def _plain(self, part: Any) -> str:
        if isinstance(part, At):
            return self._line(part.site)
        if isinstance(part, CallOf):
            return call_of(self._history, part.position)
        if isinstance(part, Bytes):
            return bytes_text(part.number)
        return f"{part:,}" if isinstance(part, int) else str(part)

    def name(self, tensor: int) -> Segment:
        """Return what a tensor is called: its name, the text that makes it, or where that is."""
        history = self._history
        name = history.given_name(tensor) or history.called_in_text(tensor)
        if name:
            return named(name)
        position = history.made_at(tensor)
        if position < 0:
            return Segment("a tensor")
        site = history.events[position].site
        text = history.expression_of(tensor)
        return typed(text) if text else Segment(f"a tensor of {self._line(site)}")

    def _names(self, tensors: tuple[int, ...]) -> list[Segment]:
        found = list(dict.fromkeys(self.name(one) for one in tensors))
        if not found:
            return [Segment("the tensor")]
        if len(found) == 1:
            return found
        return [found[0], Segment(f" and {len(found) - 1:,} more")]

    def _line(self, site: Where) -> str:
        place = self._history.site(site)
        if not place.line:
            return "an unknown line"
        if place.file in (self._home.file, ""):
            return f"line {place.line}"
        return f"{PurePath(place.file).name}:{place.line}"


_LONGEST = 100
"""Characters of an expression that stands in a piece of code: of a longer one nobody reads on."""

_WORDS = ("line ", "the ", "a ", "an ")


def _begun(segment: Segment) -> Segment:
    """Return what begins a sentence: a line, or words, with a capital; an operation as it is."""
    if segment.kind != "words" or not segment.text.startswith(_WORDS):
        return segment
    return segment._replace(text=segment.text[0].upper() + segment.text[1:])


def _bare(segment: Segment) -> Segment:
    """Return a name as it stands in code."""
    return segment._replace(text=segment.text.strip("`"))


def call_of(history: History, position: int) -> str:
    """Return how a reader calls what an event did: ``add_``, ``the step of Adam``."""
    event = history.events[position]
    if event.operation == "step":
        return f"the step of {event.detail}" if event.detail else "the optimizer's step"
    if event.operation == "apply" and event.detail:
        return f"{event.detail}.apply"
    return shown(event.operation)


def bytes_text(number: int) -> str:
    """Return a number of bytes as people read it: 512 B, 4.0 KiB, 1.5 GiB."""
    if number < 1024:
        return f"{number} B"
    size = float(number)
    for unit in ("KiB", "MiB", "GiB"):
        size /= 1024
        if size < 1024:
            return f"{size:.1f} {unit}"
    return f"{size / 1024:.1f} TiB"
