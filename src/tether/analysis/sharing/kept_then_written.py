"""Records that follow: a line keeps a tensor itself, and a later call writes it in place.

A forward hook that appends `output` to a list keeps the tensor that the next layer, a
`ReLU(inplace=True)`, writes: who reads the list finds what that layer left. Told are records alone:
what was computed of other tensors, was kept before the write, and was written by who did not come
by it through the place that keeps it. An object that updates its own attribute has no record of it.
A gradient that was kept is read as zeros where `zero_grad` has cleared it in place.
"""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

from tether.analysis.history import History
from tether.analysis.sharing.fillings import puts_others
from tether.analysis.sharing.holding import Holding, may_train
from tether.analysis.sharing.shared_memory import fills_anew
from tether.analysis.surroundings import Surroundings, WaysThere
from tether.facts import Holder, Site, SiteId
from tether.operations.table import operation
from tether.source.filling import Fill
from tether.source.names import last_word, steps_in
from tether.source.syntax import expression
from tether.source.taken_from import TakenFrom, taken_from, words_in

_MOST_READS = 200
_ASIDE = ("step", "backward", "hook", "function", "closure")


class KeptRecord(NamedTuple):
    """A place that kept a tensor, and the write that changed what it shows."""

    tensor: int
    holder: Holder
    by: str  # the variable by which it was written; "": it had none
    write: int  # position
    last: int  # of the last write before the read
    kept: tuple[Site, ...]  # the lines that may have put it there
    read: int  # position of the first read by the place
    all_read: bool  # a loop over the container read this place and one that got the tensor later

    @property
    def place(self) -> str:
        """The attribute or variable that keeps it: ``self.features`` of ``self.features[0]``."""
        return self.holder.name.partition("[")[0]


class KeptThenWritten:
    """The records of a history that a write changed before they were read, by that write."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._fillings = history.get(Holding).fillings
        self.all = list(self._records())
        self.writes = {(one.tensor, one.write) for one in self.all}

    def _records(self) -> Iterator[KeptRecord]:
        for at, holders in self._history.get(Holding).looks():
            yield from self._kept_at(at, holders)

    def _kept_at(self, at: int, holders: Sequence[Holder]) -> Iterator[KeptRecord]:
        """Yield the records that a write changed, one for each tensor."""
        event = self._history.events[at]
        clears = event.operation == "zero_grad"  # then it writes gradients
        if (fills_anew(event) and not clears) or self._history.inside(event, *_ASIDE) >= 0:
            return
        for tensor in dict.fromkeys(one.tensor for one in event.writes):
            same = [one for one in holders if one.tensor == tensor]
            if clears or (self._is_a_result(at, tensor) and not self._is_worked_on(at, tensor)):
                places = (one for one in same if one.kind in ("slot", "attribute"))
                found = (self._record(at, one, same) for one in places)
                yield from itertools.islice(filter(None, found), 1)

    # -- what may be a record ----------------------------------------------------------------

    def _is_a_result(self, at: int, tensor: int) -> bool:
        """Whether a tensor was computed of others, and the write gives it other values."""
        history, made = self._history, self._history.made_at(tensor)
        name = history.facts_of_name(tensor)
        if made < 0 or self._trains(tensor) or (name is not None and name.module):
            return False
        maker = history.events[made]
        row = operation(maker.operation)
        if row.fresh or row.copies or row.enters or not maker.reads:
            return False  # a total, or a copy that was made to be written
        # Once more is as good as once: relu of what relu has made.
        return maker.operation.rstrip("_") != history.events[at].operation.rstrip("_")

    def _trains(self, tensor: int) -> bool:
        operand = self._history.operand_of(tensor)
        leaf = operand is not None and operand.leaf and operand.requires_grad
        return leaf or may_train(self._history, tensor)

    def _is_worked_on(self, at: int, tensor: int) -> bool:
        """Whether one line writes a tensor again and again: a state that it brings forward."""
        history, operand = self._history, self._history.operand_of(tensor)
        writes = [] if operand is None else list(history.writes_to(operand))
        return sum(history.events[one].site == history.events[at].site for one in writes) > 1

    def _record(self, at: int, holder: Holder, same: Sequence[Holder]) -> KeptRecord | None:
        """Return what a write did to a place, if it was kept there, and is read by it later."""
        kept, words = self._lines_that_keep(holder)
        if not kept or self._is_written_by_place(at, words, same):
            return None
        alone = all(one.kind != "variable" for one in same)
        seen = self._reads(at, holder, words | self._words_for(holder), alone=alone)
        if not seen:
            return None
        last = max([at, *(one for one in self._writes_after(at, holder) if one < seen[0][0])])
        beside = self._is_under_two_keys(holder) and self._read_twice(at, seen)
        by = next((one.name for one in same if one.kind == "variable" and not one.depth), "")
        return KeptRecord(int(holder.tensor), holder, by, at, last, kept, seen[0][0], beside)

    # -- the lines that keep it --------------------------------------------------------------

    def _lines_that_keep(self, holder: Holder) -> tuple[tuple[Site, ...], set[str]]:
        """Return the lines of the text that put something into a place, and the word it has there.

        Of ``self.record[0].value`` it is the attribute that is filled, or else the list.
        """
        steps = steps_in(holder.name)
        for place in reversed(range(len(steps))):
            if steps[place].startswith("["):
                continue
            word, slot = steps[place].lstrip("."), "".join(steps[place + 1 : place + 2])
            fills = [one for one in self._fills(word, holder, root=not place) if one.may_fill(slot)]
            stored = [one for one in fills if one.how == "stored"]
            sites = tuple(dict.fromkeys(one.site for one in stored or fills))
            if sites:
                return sites, {word}
        return (), set()

    def _fills(self, word: str, holder: Holder, *, root: bool) -> list[Fill]:
        """Return what puts tensors into an attribute of any object, or into a variable."""
        if not root:
            found = self._fillings.of_any(word)
        else:
            found = [one for one in self._fillings.of_all() if one.target == word]
        return [
            one for one in found
            if one.how in ("stored", "assigned") and not _is_empty(one.site.expression)
            and not puts_others(self._history, one.site, holder.tensor)
        ]  # fmt: skip

    # -- who writes it -----------------------------------------------------------------------

    def _is_written_by_place(self, at: int, words: set[str], same: Sequence[Holder]) -> bool:
        """Whether who writes came by the tensor through the place that keeps it.

        The line or one that called it names the place, or a variable that shows the tensor there is
        given what is in the place.
        """
        history = self._history
        event = history.events[at]
        above = [history.site(one) for one in history.get(WaysThere).above(at)]
        texts = [one.expression for one in (history.site_of(event), *above)]
        for one in same:
            if one.kind == "variable":
                file = history.site(one.site).file
                fills = self._fillings.of(file, one.function, one.name)
                texts += [fill.site.expression for fill in fills if fill.how != "stored"]
        return any(_mentions(text, word) for text in texts for word in words)

    # -- who reads it ------------------------------------------------------------------------

    def _words_for(self, holder: Holder) -> set[str]:
        """Return the words of all places that were seen to have a tensor since it was written.

        A plain variable is no place: it may be what the call that wrote has returned.
        """
        since, history = self._history.position(holder.event), self._history
        names = [one.name for one in history.facts_of_names(holder.tensor)]
        looks = (one for one in history.trace.holders if one.tensor == holder.tensor)
        names += [one.name for one in looks if history.position(one.event) >= since]
        return {word for one in names if len(steps_in(one)) > 1 and (word := last_word(one))}

    def _is_under_two_keys(self, holder: Holder) -> bool:
        """Whether some tensor was seen in a container under the key of a place, and another one."""
        key, word = steps_in(holder.name)[-1], last_word(holder.name)
        return holder.kind == "slot" and any(
            len(keys) > 1 and key in keys for keys in self._keys.get(word, {}).values()
        )

    @cached_property
    def _keys(self) -> dict[str, dict[int, set[str]]]:
        """Return the word of a container -> tensor -> the keys that it was seen under."""
        found: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
        trace = self._history.trace
        named = [(one.name, one.tensor) for one in trace.holders]
        for name, tensor in (*named, *((one.name, one.tensor) for one in trace.names)):
            if name.endswith("]"):
                found[last_word(name)][tensor].add(steps_in(name)[-1])
        return found

    def _writes_after(self, write: int, holder: Holder) -> list[int]:
        operand = self._history.operand_of(holder.tensor)
        return [] if operand is None else list(self._history.writes_to(operand, write))

    def _reads(
        self, write: int, holder: Holder, words: set[str], *, alone: bool
    ) -> list[tuple[int, TakenFrom]]:
        """Return the reads of a tensor after a write that come to it by a place that keeps it.

        The calls of the line that wrote hand it on among themselves. Where no variable had it and
        one of these has taken it up, whoever reads it later has it from the place.
        """
        history, found, taken_up = self._history, list[tuple[int, TakenFrom]](), False
        line, clears = history.events[write].site, history.events[write].operation == "zero_grad"
        # A gradient is as it was cleared until the next pass: later it is one to look at again.
        filled = (at for at in self._writes_after(write, holder)
                  if clears or fills_anew(history.events[at]))  # fmt: skip
        until = next(filled, len(history.events))
        for at, made in sorted(history.get(Holding).reads_of(holder.tensor))[:_MOST_READS]:
            if not write < at <= until or made <= write:
                continue
            if history.events[at].site == line:
                taken_up = True
                continue
            how = self._taken(at, words)
            if how.named or (alone and taken_up):
                found.append((at, how))
        return found

    def _taken(self, at: int, words: set[str]) -> TakenFrom:
        history = self._history
        site = history.site_of(history.events[at])
        above = (history.site(one) for one in history.get(WaysThere).above(at))
        lines = [site, *(one for one in above if one.file == site.file)]
        return taken_from(history.get(Surroundings).source(site.file), lines, words)

    def _read_twice(self, write: int, seen: Sequence[tuple[int, TakenFrom]]) -> bool:
        """Whether a loop over a container read one tensor twice, right after each other.

        Before the line that wrote ran again: later reads are of another turn of the program's.
        """
        events, first = self._history.events, seen[0][0]
        looped = {events[at].site for at, how in seen if how.looped}
        before = dict[SiteId, tuple[int, ...]]()
        for at in range(first, len(events)):
            site = events[at].site
            if site == events[write].site:
                return False
            if site in looped:
                read = tuple(one.tensor for one in events[at].reads)
                if before.get(site) == read:
                    return True
                before[site] = read
        return False


def _is_empty(text: str) -> bool:
    """Whether what is assigned names nothing: a constant, an empty container, what makes one."""
    node = expression(text)
    return node is not None and not words_in(node)


def _mentions(text: str, word: str) -> bool:
    """Whether a text reads a variable or attribute; not where it calls what has the name."""
    return re.search(rf"(?<!\w){re.escape(word)}(?![\w(])", text) is not None
