"""Whether a copy had something of its own as an object: a hook, a place in an optimizer, a name."""

from __future__ import annotations

from tether.analysis.copies.already_there import Copied, nbytes
from tether.analysis.copies.lingering import Lingering
from tether.analysis.copies.needs.answers import WhyNeeded
from tether.analysis.copies.needs.index import CopyIndex
from tether.analysis.copies.needs.lines import is_deep
from tether.analysis.copies.needs.readers import CopyReaders
from tether.analysis.copies.needs.words import CopyQuestion
from tether.analysis.copies.needs.writes import CopyWrites
from tether.analysis.training.rates import LOADS
from tether.facts import UNKNOWN, Operand
from tether.operations.table import ALL, operation


class AsObject(CopyQuestion):
    """What was done to a copy as such, for which its source is another object."""

    def __init__(self, index: CopyIndex, readers: CopyReaders, writes: CopyWrites) -> None:
        super().__init__(index)
        self._readers = readers
        self._writes = writes
        self._last = range(0)  # the calls of the deep copy that was last asked about
        self._last_apart = False

    def reason(self, copied: Copied) -> WhyNeeded | None:
        """Find something of its own that the copy has as an object."""
        kind = self._index.kind(copied.copy)
        if kind != "Tensor":
            return WhyNeeded("yes", f"it is a {kind} of its own")
        if self._is_held(copied):
            return WhyNeeded("yes", "an optimizer holds it")
        if self._is_module(copied):
            return self._parts_go_apart(copied)
        return self._asked_for_itself(copied) or self._named(copied) or self._parts_go_apart(copied)

    def _asked_for_itself(self, copied: Copied) -> WhyNeeded | None:
        """Find a call for which the copy is another object than its source."""
        source, copy = copied.source, copied.copy
        alone = self._alone(copied.position, source)
        for at in self._index.reads[copy.tensor]:
            row = operation(self._history.events[at].operation)
            own = self._replaced(at, copy) or ("" if alone else row.own)
            if at > copied.position and own:
                return WhyNeeded("yes", f"at {self._words.line(at, copied)} it {own}", at)
            if at > copied.position and row.name == "save" and self._saved_apart(at, source, copy):
                return WhyNeeded(
                    "yes", f"{self._words.line(at, copied)} saves it as memory of its own", at
                )
        return None

    def _parts_go_apart(self, copied: Copied) -> WhyNeeded | None:
        """Ask whether some of what one deep copy made went before the rest.

        What is no tensor is copied as well: where its parts are replaced in turn, as in a cache
        that grows, nothing writes a tensor, and yet the copy is another object by then.
        """
        if not is_deep(self._history, self._index.event(copied)):
            return None
        if copied.position not in self._last:  # once for all that one deep copy made
            self._last = self._beside(copied)
            self._last_apart = self._went_apart(self._last)
        if not self._last_apart:
            return None
        text = "it is a part of an object that was copied, whose parts went one after another"
        return WhyNeeded("unknown", text + ": the object itself may have been changed")

    def _went_apart(self, calls: range) -> bool:
        """Whether of what some calls made, and what was there after them, some went first."""
        made = {one.tensor for at in calls for one in self._history.events[at].results}
        died = {self._trace.tensors[one].died for one in made if one in self._trace.tensors}
        done = self._trace.event_id(calls[-1])
        return sum(one == UNKNOWN or one > done + 1 for one in died) > 1  # others are on the way

    def _beside(self, copied: Copied) -> range:
        """Return the calls of the one deep copy that made a copy, this one among them."""
        first = last = copied.position
        while self._is_of(copied, first - 1):
            first -= 1
        while self._is_of(copied, last + 1):
            last += 1
        return range(first, last + 1)

    def _is_of(self, copied: Copied, at: int) -> bool:
        """Whether a call is a deep copy at the line of another one."""
        events = self._history.events
        same = 0 <= at < len(events) and events[at].site == self._index.event(copied).site
        return same and is_deep(self._history, events[at])

    def _is_held(self, copied: Copied) -> bool:
        """Whether an optimizer has a copy, or loaded it into its state: its steps write it.

        A load takes over the very tensors that it is given, where they have the format of their
        parameters. It could have taken over the source where nothing else has that any more.
        """
        later = self._index.afterwards(copied)
        loaded = any(one.operation == LOADS and one.results for one in later)
        return (loaded and not self._is_given_up(copied)) or copied.copy.tensor in self._index.held

    def _is_given_up(self, copied: Copied) -> bool:
        """Whether nothing used a source again, and it was gone before anything wrote the copy."""
        return self._writes.replaces_source(copied) and not self._writes.is_written(copied)

    def _replaced(self, at: int, copy: Operand) -> str:
        """Say what becomes of the memory behind a copy; nothing of one that is handed on."""
        event = self._history.events[at]
        row = operation(event.operation)
        handed = row.rebinds and event.reads[0].tensor != copy.tensor
        return "" if handed else row.replaces

    def _is_module(self, copied: Copied) -> bool:
        """Whether a copied model could have been the other: none of its tensors was asked for."""
        deep = is_deep(self._history, self._index.event(copied))
        return deep and (
            self._of_module(copied) or self._only_saved(copied) or self._only_read(copied)
        )

    def _only_read(self, copied: Copied) -> bool:
        """Whether a copied model was only computed with, for no gradient, until it was written.

        In the mode that the other one is in.
        """
        if not self._writes.lingers(copied) or self._history.get(Lingering).is_switched(copied):
            return False
        here, memory = self._index.event(copied).site, self._flow.memory(copied.copy)
        later = [one for one in self._index.afterwards(copied) if one.site != here]
        return all(self._readers.only_computes(one, memory) for one in later)

    def _of_module(self, copied: Copied) -> bool:
        """Whether a copied model only took the place of another, which is not used any more.

        No gradient is computed for the copy: it would be added to that of the other.
        """
        here = self._index.event(copied).site
        copy = self._flow.memory(copied.copy)
        for operand in (copied.source, copied.copy):
            memory = self._flow.memory(operand)
            for at in self._history.on_storage(operand):
                event = self._history.events[at]
                if at <= copied.position or event.site == here:
                    continue
                if memory != copy or not self._readers.only_computes(event, copy):
                    return False
        return True

    def _only_saved(self, copied: Copied) -> bool:
        """Whether a copied model was there for its state to be saved, and for nothing else.

        A state has tensors only, where a model that is saved has its modes and attributes as well.
        """
        memory, saves = self._flow.memory(copied.copy), 0
        for at in self._history.on_storage(copied.copy):
            event = self._history.events[at]
            if at <= copied.position or operation(event.operation).template == ALL:
                continue
            if event.operation == "save":
                given = (one for one in self._history.saved(at) if self._flow.memory(one) == memory)
                apart = self._saved_apart(at, copied.source, copied.copy)
                if apart or any(self._index.kind(one) != "Tensor" for one in given):
                    return False
                saves += 1
            elif not self._readers.reads_nothing(event, memory):
                return False
        return saves > 0

    def _named(self, copied: Copied) -> WhyNeeded | None:
        """Ask for modules that hold the copy: they may write it, and register a Parameter."""
        source, copy = copied.source, copied.copy
        name = self._history.facts_of_name(copy.tensor)
        if name is not None and name.module:
            return WhyNeeded("unknown", f"as `{name.name}` a module holds it, and may write it")
        if self._history.is_parameter(source.tensor):
            for held in self._history.names_of(copy.tensor):
                if "." in held or "[" in held:
                    return WhyNeeded("unknown", f"as `{held}` a Parameter would be registered")
        return self._writes.compared(copied)

    def _alone(self, position: int, source: Operand) -> bool:
        """Whether the source object was there for this copy only, and is as good an object."""
        fact = self._trace.tensors.get(source.tensor)
        return (
            fact is not None
            and not (source.leaf and source.requires_grad)
            and fact.died != UNKNOWN
            and self._history.position(fact.died) <= position + 1
            and all(at >= position for at in self._index.reads[source.tensor])
        )

    def _saved_apart(self, at: int, source: Operand, copy: Operand) -> bool:
        """Whether one file would hold the source's whole memory, or both as one."""
        fact = self._trace.storages[source.storage]
        beside = any(one.storage == source.storage for one in self._history.events[at].reads)
        return beside or fact.nbytes > nbytes(copy)
