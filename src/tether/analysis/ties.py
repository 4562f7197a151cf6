"""Every tie that acted, grouped by cause, with what a person looks for among the first.

Who changed my tensor? Each row says what shows the change, since which line, through what it was
written and where, and where it was read. Rows are listed whether or not a verdict was given.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple, TypeVar

from tether.analysis.history import History
from tether.analysis.sharing.acts import Act, Acts
from tether.analysis.sharing.fillings import put_at
from tether.analysis.sharing.holding import (
    HeldAct,
    Holding,
    are_alike,
    are_of_one_module,
    are_two_names,
    first_word,
    in_one_container,
)
from tether.analysis.sharing.kept_then_written import KeptRecord, KeptThenWritten
from tether.analysis.sharing.odd_writes import OddWrites
from tether.analysis.sharing.rewritten import RewrittenArrays
from tether.analysis.sharing.shared_memory import Sharing
from tether.analysis.surroundings import WaysThere
from tether.facts import OUT, UNKNOWN, Event, Holder, Site
from tether.operations import rule_for
from tether.operations.table import operation
from tether.source.names import steps_in

Kind = Literal[
    "tensor", "array", "object", "overlap", "result", "operand", "twice", "gradient", "elements",
    "lost", "handed", "again", "kept",
]  # fmt: skip

Item = TypeVar("Item")

MOST_SITES = 4
"""Lines of writes, and of reads, that a row names."""


class ActedTie(NamedTuple):
    """Acts of one cause."""

    kind: Kind
    shows: tuple[str, ...]  # names of what shows the change
    through: str  # name of what was written
    tensors: tuple[int, ...]
    since: tuple[Site, ...]  # where they came to share, the line to name first
    writes: tuple[Site, ...]
    reads: tuple[Site, ...]
    operation: str  # that wrote
    write: int  # position of the first write
    times: int  # that it acted
    score: int  # the higher, the less likely it was meant
    perhaps: tuple[Site, ...] = ()  # lines that may have written an array: the text names it there

    @property
    def sites(self) -> tuple[Site, ...]:
        """The lines that a row names."""
        groups = (self.since, self.writes, self.perhaps, self.reads)
        return tuple(site for sites in groups for site in sites[:MOST_SITES])


_READ = 20
"""Ties that are told with all their lines: the first ones, which are read."""


class Ties:
    """The ties of a history: those that look least meant first."""

    def __init__(self, history: History, found: Iterable[ActedTie] | None = None) -> None:
        """Find the ties, or take those that were `found` before."""
        self._history = history
        if found is not None:
            self.found = list(found)
            return
        self._found = history.get(Sharing)
        groups: dict[object, list[ActedTie]] = {}
        for cause, tie in (
            *self._between_tensors(), *self._of_one_object(), *self._by_themselves(),
            *self._rewritten(), *self._kept(),
        ):  # fmt: skip
            groups.setdefault(cause, []).append(tie)
        joined = [_joined(some) for some in groups.values()]
        joined.sort(key=lambda one: (-one.score, one.write))
        self.found = [*map(self._with_keeping, joined[:_READ]), *joined[_READ:]]

    def _with_keeping(self, tie: ActedTie) -> ActedTie:
        """Add the line that puts what shows the change into a container, after those that share."""
        put = [put_at(self._history, one) for one in tie.tensors[:1]]
        return tie._replace(since=_all((tie.since, tuple(one for one in put if one is not None))))

    # -- two objects on one memory -----------------------------------------------------------

    def _between_tensors(self) -> Iterator[tuple[object, ActedTie]]:
        history, events = self._history, self._history.events
        for act in history.get(Acts).all:
            if self._is_inside(act):
                continue
            since = _sites(history, act.since)
            write, read = events[act.write], events[act.read] if act.read >= 0 else None
            array = act.place.array != UNKNOWN or act.through == UNKNOWN
            name = history.name_of(act.place.tensor)
            if act.place.array != UNKNOWN:
                taken = events[act.place.array]
                sent = operation(taken.operation).leaves == "process"
                what = "what was sent of" if sent else "an array of"
                name = history.site_of(taken).target or f"{what} {name.strip('`')}"
            cause = (since[:1], act.place.array != UNKNOWN, act.through == UNKNOWN)
            yield (
                cause,
                ActedTie(
                    "array" if array else "tensor",
                    (name,),
                    history.name_of(act.through) if act.through != UNKNOWN else "the array",
                    (act.place.tensor,),
                    since,
                    _sites(history, [act.write] if act.through != UNKNOWN else []),
                    (history.site_of(read),) if read is not None else (),
                    write.operation,
                    act.write,
                    1,
                    self._score(act),
                ),
            )

    def _is_inside(self, act: Act) -> bool:
        """Whether a library alone has a tensor: it shares, writes and reads, or an optimizer steps.

        What is seen of it then, as under `fully_shard`, are the insides of that library.
        """
        if act.place.array != UNKNOWN or act.through == UNKNOWN or not act.since:
            return False
        events = self._history.events
        calls = [*act.since, *(one for one in (act.read,) if one >= 0)]
        if events[act.write].operation != "step":
            calls.append(act.write)
        by_library = all(events[at].inner not in (events[at].site, UNKNOWN) for at in calls)
        return by_library and not self._history.names_of(act.place.tensor)

    def _score(self, act: Act) -> int:
        history, events = self._history, self._history.events
        write = events[act.write]
        score = self._way_score(act)
        if act.read >= 0 and not act.filled:
            read = events[act.read]
            score += 20 if read.inner == read.site else 12
        if act.place.array != UNKNOWN or act.through == UNKNOWN:
            score += 20
        if write.operation == "step" and history.names_of(act.place.tensor):
            score += 5
        if write.inner != write.site and write.operation != "step":
            score -= 8
        if _unseen_before(history, act):
            score -= 15
        return score

    def _way_score(self, act: Act) -> int:
        """Say how much the calls by which two places share look like ones that share nothing."""
        events = self._history.events
        if any(_looks_like_a_copy(events[at]) for at in act.since):
            return 25
        pieces = {link.source for link in self._found.chain(act.through)}
        return -15 if act.place.tensor in pieces else 0  # a piece was written to change the whole

    # -- one object in several places --------------------------------------------------------

    def _of_one_object(self) -> Iterator[tuple[object, ActedTie]]:
        history = self._history
        holding, kept = history.get(Holding), history.get(KeptThenWritten)
        for act in holding.all:
            score = self._held_score(holding, act)
            if score < 0 or (act.tensor, act.write) in kept.writes:
                continue
            apart = [one for one in act.others if not self._is_one_place(act, one)]
            if not apart:
                continue
            others = in_one_container(apart) or apart
            since = self._filled_at(holding, act, others)
            write = history.events[act.write]
            names = tuple(dict.fromkeys(one.name for one in others))
            read = (history.site_of(history.events[act.read]),) if act.read >= 0 else ()
            by = act.by.name if act.by is not None else history.name_of(act.tensor)
            cause = (since[0] if since else write.site, first_word(by), first_word(names[0]))
            yield (
                cause,
                ActedTie(
                    "array" if others[0].tensor == UNKNOWN else "object",
                    names[:8],
                    by,
                    (act.tensor,),
                    tuple(dict.fromkeys(since)),
                    (history.site_of(write),),
                    read,
                    write.operation,
                    act.write,
                    1,
                    score,
                ),
            )

    def _is_one_place(self, act: HeldAct, other: Holder) -> bool:
        """Whether a place is that which was written, and two names lead to what it is in.

        Not where one module is in several places of a container, on purpose or by mistake; nor
        where an optimizer trains it under two names.
        """
        written = () if act.by is None else (act.by,)
        if other.kind == "state":  # of an optimizer, whose own line may name the dictionary alone
            beside = [one for one in act.others if one.kind == "state"]
            return bool(written) and len(beside) == 1 and _ends(written) == _ends(beside)
        stepped = self._history.events[act.write].operation == "step"
        if (stepped and not written) or not self._are_of_one_module(act.tensor, (*written, other)):
            return False
        slots = [one for one in (*written, *act.others) if one.kind == "slot"]
        return not (are_alike(slots) or are_of_one_module(slots))

    def _are_of_one_module(self, tensor: int, places: Sequence[Holder]) -> bool:
        """Whether places are that of a tensor in the one module that has it.

        Two variables, a method's own object, or two modules around that one lead to it.
        """
        modules = {one.holder for one in self._history.facts_of_names(tensor)}
        if len(modules) != 1 or UNKNOWN in modules:
            return False
        own = steps_in(self._history.names_of(tensor)[0])[-1]
        kinds = {one.kind for one in places}
        return _ends(places) == {own} and kinds <= {"attribute", "variable", "slot"}

    def _filled_at(self, holding: Holding, act: HeldAct, others: list[Holder]) -> list[Site]:
        """Return the lines that put an object into some places."""
        history = self._history
        fills = [fill for one in others[:3] for fill in holding.filled(one)]
        stored = [fill for fill in fills if fill.how == "stored"]  # not where the list was made
        since = [fill.site for fill in stored or fills]
        callers = [one for one in others if one.depth > 0 and one.kind == "variable"]
        since += [history.site(one.site) for one in callers]
        since += [fill.site for fill in holding.bound(act)]
        return [*since, *_sites(history, holding.came_by(act))]

    # -- records that a later call wrote -------------------------------------------------------

    def _kept(self) -> Iterator[tuple[object, ActedTie]]:
        history = self._history
        for one in history.get(KeptThenWritten).all:
            write = history.events[one.write]
            yield (
                ("kept", write.site, one.kept[0], one.place),
                ActedTie(
                    "kept",
                    self._shown_by(one),
                    one.by or one.holder.name,
                    (one.tensor,),
                    one.kept,
                    (history.site_of(write),),
                    (history.site_of(history.events[one.read]),),
                    write.operation,
                    one.write,
                    1,
                    _KEPT,
                ),
            )

    def _shown_by(self, record: KeptRecord) -> tuple[str, ...]:
        """Return the names of a record, the one that it had as it was written first."""
        names = (one for one in self._history.names_of(record.tensor) if len(steps_in(one)) > 1)
        return tuple(dict.fromkeys((record.holder.name, *names)))[:8]

    # -- arrays that NumPy code wrote between two reads ----------------------------------------

    def _rewritten(self) -> Iterator[tuple[object, ActedTie]]:
        history, above = self._history, self._history.get(WaysThere)
        for one in history.get(RewrittenArrays).all:
            before, read = (history.site_of(history.events[at]) for at in (one.before, one.read))
            tensor = history.events[one.read].results[0].tensor
            yield (
                ("rewritten", before, read),
                ActedTie(
                    "again",
                    one.names[:8] or (history.name_of(tensor),),
                    "the array",
                    (tensor,),
                    (before, *above.callers(history.events[one.before].site, (one.before,))),
                    (),
                    (read, *above.callers(history.events[one.read].site, (one.read,))),
                    history.events[one.read].operation,
                    one.read,
                    one.times,
                    _AGAIN if before == read else _AGAIN + _BY_ANOTHER_LINE,
                    one.perhaps,
                ),
            )

    # -- writes that tell of a tie by themselves ---------------------------------------------

    def _by_themselves(self) -> Iterator[tuple[object, ActedTie]]:
        history, events = self._history, self._history.events
        for one in history.get(OddWrites).all:
            write = events[one.write]
            yield (
                (one.kind, write.site),
                ActedTie(
                    one.kind,
                    (history.name_of(one.tensor),),
                    history.name_of(one.through),
                    (one.tensor, one.through),
                    _sites(history, one.since),
                    (history.site_of(write),),
                    (history.site_of(events[one.read]),) if one.read >= 0 else (),
                    write.operation,
                    one.write,
                    1,
                    _ODD[one.kind] - (0 if history.site_of(write).user else 30),
                ),
            )

    def _held_score(self, holding: Holding, act: HeldAct) -> int:
        history = self._history
        write = history.events[act.write]
        score = self._places_score(holding, act)
        if act.read >= 0:
            score += 20
        function = history.site_of(write).function.rpartition(".")[2]
        if function.endswith("_") or write.flags & OUT:
            score -= 10
        if operation(write.operation).overwrites:
            score -= 5
        if write.inner != write.site:
            score -= 5
        if not _seen_before(history, act.tensor, act.write):
            score -= 25
        return score

    def _places_score(self, holding: Holding, act: HeldAct) -> int:
        """Say how much the places of an object look like ones that were not meant to be one."""
        states = [one for one in act.others if one.kind == "state"]
        if len(states) > 1 or len(in_one_container(act.others)) > 1:
            return 45
        step = self._history.events[act.write].operation == "step"
        if step and act.tensor in self._history.held:
            # Its module, its optimizer and lists of parameters hold it; one module may do so twice.
            holders = act.others if act.by is None else (*act.others, act.by)
            if are_two_names(holders):
                return -10
            return 10 if are_alike(holders) or are_of_one_module(holders) else -30
        return max(_weight(holding, act, one) for one in act.others)


_ODD = {
    "lost": 65, "operand": 65, "overlap": 60, "result": 60, "gradient": 60, "elements": 55,
    "twice": 25, "handed": 35,
}  # fmt: skip

_KEPT = 58
"""A record that is not what was kept is seldom meant."""

_AGAIN = 18
"""An array that is read anew after each write is mostly a buffer."""

_BY_ANOTHER_LINE = 12
"""Two lines that read one array in turn are to see the same more often than one line."""

_WEIGHTS = {"cache": 40, "default": 35, "closure": 25, "state": 15, "slot": 18, "attribute": 8}


def _weight(holding: Holding, act: HeldAct, other: Holder) -> int:
    """Say how much a place that shows a write looks like one that was not meant to."""
    if other.tensor == UNKNOWN:
        return 30
    if other.kind in ("slot", "attribute", "variable") and holding.in_a_loop(act):
        return 0  # the elements of a list, one after the other
    if other.kind == "variable":
        return _variable_weight(holding, other)
    by = "" if act.by is None else act.by.kind
    return _BESIDE.get((other.kind, by), _WEIGHTS[other.kind])


_BESIDE = {("slot", ""): 0, ("attribute", ""): 0, ("attribute", "attribute"): 25}
"""Weights by what the place was written through as well."""


def _variable_weight(holding: Holding, other: Holder) -> int:
    if not other.depth:
        return 30
    target = holding.target_of(other)
    return 5 if target and first_word(target) == first_word(other.name) else 25


def _ends(holders: Iterable[Holder]) -> set[str]:
    """Return the last steps to some places: ``.weight`` of ``net.0.weight``."""
    return {steps_in(one.name)[-1] for one in holders}


# -- facts that weigh -----------------------------------------------------------------------


def _looks_like_a_copy(event: Event) -> bool:
    """Whether a call reads as if its result had memory of its own, or may have had."""
    row, rule = operation(event.operation), rule_for(event.operation)
    varies = rule is not None and rule.varies("memory")
    return bool(varies or row.copies or row.own_counter or row.replaces or row.records)


def _unseen_before(history: History, act: Act) -> bool:
    """Whether nobody had looked at the values that a write replaced."""
    if act.through == UNKNOWN:
        return False
    return not _seen_before(history, act.place.tensor, act.write) and not _seen_before(
        history, act.through, act.write
    )


def _seen_before(history: History, tensor: int, write: int) -> bool:
    """Whether a tensor held values that were somebody's: made of data, written, or read before."""
    owner = tensor
    for link in history.get(Sharing).chain(tensor):
        owner = link.source
    made = history.made_at(owner)
    if made < 0 or not operation(history.events[made].operation).fresh:
        return True
    return any(at < write for at, _ in history.get(Holding).reads_of(owner)[:1])


# -- joining --------------------------------------------------------------------------------


def _joined(ties: list[ActedTie]) -> ActedTie:
    best = max(ties, key=lambda one: (one.score, -one.write))
    ordered = [best, *(one for one in ties if one is not best)]
    tensors = _all(one.tensors for one in ordered)
    return best._replace(
        shows=_all(one.shows for one in ordered),
        tensors=tensors,
        since=_all(one.since for one in ordered),
        writes=_all(one.writes for one in ordered),
        reads=_all(one.reads for one in ordered),
        write=min(one.write for one in ties),
        times=max(len({one.write for one in ties}), best.times),
        score=best.score + (10 if len(tensors) > 1 else 0),
    )


def _all(parts: Iterable[tuple[Item, ...]]) -> tuple[Item, ...]:
    return tuple(dict.fromkeys(itertools.chain.from_iterable(parts)))


def _sites(history: History, positions: Iterable[int]) -> tuple[Site, ...]:
    found = (history.events[at].site for at in positions)
    return tuple(dict.fromkeys(history.site(one) for one in found if one >= 0))
