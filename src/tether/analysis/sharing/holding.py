"""One object, or one memory, in several places as it was written: who held it, who read it next.

The recording says by which names the program reached a tensor right after a write to it
(`facts.Holder`). The place that the writing line itself names is the one written through; the
others show what it wrote.
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
from tether.analysis.sharing.shared_memory import Sharing
from tether.facts import UNKNOWN, Event, Holder, Site, TensorId
from tether.operations.table import operation
from tether.source.filling import Fill, Fillings, mentions
from tether.source.names import container_of, steps_in

_ROOT = re.compile(r"[^\W\d]\w*")
_NUMBER = re.compile(r"\d+")
_MOST_READS = 200
_UPDATED = re.compile(r"(.+?)\s*(?:\+|-|\*\*?|//?|@|%|&|\||\^|<<|>>)=(?!=)", re.DOTALL)

Position = tuple[str, int, int, int, int]


class HeldAct(NamedTuple):
    """A write to what several places hold."""

    tensor: int  # that was written
    write: int  # position
    by: Holder | None  # the place that the writing line names, where it names one
    others: tuple[Holder, ...]  # the places that show it as well
    read: int  # position of the first read that does not go through `by`; UNKNOWN: none


def may_train(history: History, tensor: int) -> bool:
    """Whether a tensor is a Parameter, or one that an optimizer holds."""
    return history.is_parameter(tensor) or tensor in history.held


class Holding:
    """The acts between places of one object, by the writes at which its places were looked for."""

    def __init__(self, history: History) -> None:
        self._history = history
        self.fillings = Fillings(history.trace.sources)
        self._reads: dict[int, list[tuple[int, int]]] = {}
        self._same: dict[int, list[int]] | None = None  # tensor -> calls that gave it back
        self.all = list(self._acts())

    def looks(self) -> Iterator[tuple[int, list[Holder]]]:
        """Yield the places that were found at each event whose writes were looked into.

        Not those of arrays that it wrote nothing to, and that were looked for when it was over.
        """
        by_event: dict[int, list[Holder]] = defaultdict(list)
        for fact in self._history.trace.holders:
            if fact.sought == "written":
                by_event[fact.event].append(fact)
        for number, holders in by_event.items():
            at = self._history.position(number)
            if 0 <= at < len(self._history.events):
                yield at, holders

    def _acts(self) -> Iterator[HeldAct]:
        history = self._history
        for at, holders in self.looks():
            event = history.events[at]
            for tensor in dict.fromkeys(one.tensor for one in event.writes):
                same = [one for one in holders if one.tensor == tensor]
                if event.operation == "step" and len(same) < 2:
                    continue
                arrays = [one for one in holders if one.tensor == UNKNOWN]
                act = self._act(at, event, tensor, same, arrays)
                if act is not None:
                    yield act

    def _act(
        self, at: int, event: Event, tensor: int, same: list[Holder], arrays: list[Holder]
    ) -> HeldAct | None:
        by = self._written_by(event, same) or self._named_after(at, event, tensor)
        others = [one for one in same if one is not by and not _same_name(one, by)]
        others += self._returned_as(at, event, tensor, by)
        if len(event.writes) == 1:
            others += arrays
        lasting = any(one.kind in ("default", "cache") for one in others)
        within = not operation(event.operation).carries  # .grad, an optimizer's state
        unnamed = by is None and not within and not lasting
        if not others or (unnamed and len(others) < 2):
            return None
        return HeldAct(tensor, at, by, tuple(others), self._read(at, tensor, by, others))

    def _written_by(self, event: Event, holders: Sequence[Holder]) -> Holder | None:
        """Return the place that the writing line names."""
        site = self._history.site_of(event)
        inside = [one for one in holders if one.depth == 0 and one.kind != "cache"]
        target = written_text(site, event)
        for one in inside:
            if one.name == target:
                return one
        root = _ROOT.match(target)
        for one in inside:
            if root is not None and mentions(root[0], first_word(one.name)):
                return one
        for one in inside:
            if one.kind == "variable" and mentions(site.expression, one.name):
                return one
        return None

    def _named_after(self, at: int, event: Event, tensor: int) -> Holder | None:
        """Return the place that a library's write in passing is put: ``y`` of ``y = act(x)``.

        What a line assigns is what its last call returned: the counter that ``y = norm(x)`` writes
        on the way is not ``y``.
        """
        history = self._history
        site, later = history.site_of(event), history.events[at + 1 : at + 2]
        if event.inner == event.site or not site.target:
            return None
        if all(one.tensor != tensor for one in event.results):
            return None
        if any(one.site == event.site and one.inner != event.inner for one in later):
            return None
        number = self._history.trace.event_id(at)
        return Holder(
            number, TensorId(tensor), site.target, "variable", site.function, event.site, 0
        )

    def _returned_as(
        self, at: int, event: Event, tensor: int, by: Holder | None
    ) -> Iterator[Holder]:
        """Yield the other name that a write in place is given: ``y`` of ``y = x.relu_()``."""
        site = self._history.site_of(event)
        given = any(one.tensor == tensor for one in event.results)
        if by is None or not given or event.inner != event.site or not site.target.isidentifier():
            return
        if site.target != first_word(by.name):
            number = self._history.trace.event_id(at)
            yield Holder(
                number, TensorId(tensor), site.target, "variable", site.function, event.site, 0
            )

    def _read(self, write: int, tensor: int, by: Holder | None, others: Sequence[Holder]) -> int:
        """Return the first read after a write that need not go through the place it went through.

        A read whose line names that place and no other, in its own function, is one of it.
        """
        history = self._history
        done = history.site_of(history.events[write])
        for at, made in self.reads_of(tensor)[:_MOST_READS]:
            if at <= write or made <= write:
                continue
            site = history.site_of(history.events[at])
            if by is None or site.function != done.function or self._many_times(at, tensor):
                return at
            named = {first_word(one.name) for one in others} - {first_word(by.name)}
            if any(mentions(site.expression, name) for name in named):
                return at
            if not mentions(site.expression, first_word(by.name)):
                return at
        return UNKNOWN

    def _many_times(self, at: int, tensor: int) -> bool:
        """Whether a call reads an object more than once: from several places."""
        return sum(one.tensor == tensor for one in self._history.events[at].reads) > 1

    def reads_of(self, tensor: int) -> list[tuple[int, int]]:
        """Return the reads of a tensor, each with the position of the view it was read through."""
        known = self._reads.get(tensor)
        if known is None:
            known = self._reads[tensor] = list(self._reads_through(tensor))
        return known

    def _reads_through(self, tensor: int) -> Iterator[tuple[int, int]]:
        """Yield the reads of a tensor and of its views, memory by memory as these were first read.

        What a step, a backward pass or a hook reads is left out.
        """
        history, found, end = self._history, self._history.get(Sharing), len(self._history.events)
        views = found.views(tensor)
        memories = {number for one in views for number in history.memories_of(one)}
        read = sorted(filter(None, map(found.reads_of, memories)), key=lambda some: some[0].at)
        for at, operand in itertools.chain.from_iterable(read):
            event = history.events[at]
            if operation(event.operation).clears:
                continue
            if operand.tensor in views and history.inside(event, "step", "backward", "hook") < 0:
                if operand.tensor == tensor:
                    yield at, end
                for link in found.chain(operand.tensor):
                    if link.source == tensor:
                        yield at, link.at

    def came_by(self, act: HeldAct) -> list[int]:
        """Return the calls that gave a tensor back as it was, or made it of an array's memory."""
        history = self._history
        found = self.gave_back(act.tensor, act.write)
        made = history.made_at(act.tensor)
        if made >= 0 and operation(history.events[made].operation).enters:
            found.append(made)
        return found

    def gave_back(self, tensor: int, before: int) -> list[int]:
        """Return the last calls before one that could have copied a tensor, and gave it back."""
        if self._same is None:
            self._same = defaultdict(list)
            for at, event in self._history.events.where(_may_copy):
                if event.reads and event.results and _gives_back(event):
                    self._same[event.results[0].tensor].append(at)
        return [at for at in self._same.get(tensor, ()) if at < before][-3:]

    def in_a_loop(self, act: HeldAct) -> bool:
        """Whether the place that was written through is the variable of a loop."""
        return act.by is not None and any(one.how == "loop" for one in self.filled(act.by))

    def target_of(self, holder: Holder) -> str:
        """Return what the call that a place's function was making is assigned to."""
        return self._history.site(holder.site).target

    def bound(self, act: HeldAct) -> list[Fill]:
        """Return the line that gave what was written the name it was written by; none: several may.

        A line whose call made other tensors is not it.
        """
        if act.by is None:
            return []
        name, site = first_word(act.by.name), self._history.site(act.by.site)
        found = [
            one
            for one in self.fillings.of(site.file, act.by.function, name)
            if one.how == "assigned" and one.target == name
            and act.tensor in self._made_by.get(one.site.position, {act.tensor})
        ]  # fmt: skip
        return found if len(found) == 1 else []

    @cached_property
    def _made_by(self) -> dict[Position, set[int]]:
        """Return the position of a call in the text -> the tensors that it made."""
        made: dict[Position, set[int]] = defaultdict(set)
        for event in self._history.events:
            made[self._history.site_of(event).position] |= {one.tensor for one in event.results}
        return made

    def filled(self, holder: Holder) -> list[Fill]:
        """Return the lines that put something into a place, but for those that put others there."""
        site = self._history.site(holder.site)
        found = self.fillings.of(site.file, holder.function, holder.name)
        fit = [one for one in found if not puts_others(self._history, one.site, holder.tensor)]
        return fit or found


def _same_name(one: Holder, by: Holder | None) -> bool:
    return by is not None and (one.name, one.function, one.depth) == (
        by.name,
        by.function,
        by.depth,
    )


def _may_copy(name: str) -> bool:
    row = operation(name)
    return bool(row.copies or row.regroups or row.same)


def _gives_back(event: Event) -> bool:
    """Whether a call that could have copied gave back the tensor that it was given."""
    return event.reads[0].tensor == event.results[0].tensor and not event.writes


def written_text(site: Site, event: Event) -> str:
    """Return the text of what a write at a site is made to: ``x`` of ``x -= 1``, ``x.mul_(2)``."""
    text = site.expression
    updated = _UPDATED.match(text)
    if updated is not None:
        return updated[1]
    if event.operation.startswith("__"):  # an assignment to an index
        return site.target or text.split("=", 1)[0].rstrip()
    out = re.search(r"\bout\s*=\s*([\w.\[\]]+)", text)
    if out is not None:
        return out[1]
    receiver = re.match(r"(.*)\.\w+\s*\($", text.split("(", 1)[0] + "(", re.DOTALL)
    return receiver[1] if receiver else ""


def first_word(text: str) -> str:
    """Return the variable or function that the text of an expression begins with; or the text."""
    found = _ROOT.match(text)
    return found[0] if found else text


def in_one_container(holders: Sequence[Holder]) -> list[Holder]:
    """Return the holders that are slots of the container with most of them; fewer than two: []."""
    groups: dict[tuple[str, str], list[Holder]] = defaultdict(list)
    for one in holders:
        if one.kind == "slot":
            groups[one.function, container_of(one.name)].append(one)
    best = max(groups.values(), key=len, default=[])
    return best if len(best) > 1 else []


def are_alike(holders: Sequence[Holder]) -> bool:
    """Whether two names differ in a number alone: ``layers.0.weight`` and ``layers.3.weight``."""
    names = {one.name for one in holders}
    return len({_NUMBER.sub("#", name) for name in names}) < len(names)


def are_of_one_module(holders: Sequence[Holder]) -> bool:
    """Whether one module has two names beside each other: ``heads.a.weight``, ``heads.b.weight``.

    Not a parameter that two modules share, as tied embeddings do.
    """
    steps = [steps_in(one.name) for one in holders]
    if len({len(one) for one in steps}) > 1 or not any(one.kind == "slot" for one in holders):
        return False
    return sum(len(set(at)) > 1 for at in zip(*steps, strict=True)) == 1


def are_two_names(holders: Sequence[Holder]) -> bool:
    """Whether two variables of one function lead to one place: ``net.weight``, ``best.weight``."""
    places = {(one.function, one.depth, one.name) for one in holders}
    found = {(*around, name.removeprefix(first_word(name))) for *around, name in places}
    return len(found) < len(places)
