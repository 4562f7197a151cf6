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
from tether.analysis.sharing.odd_writes import OddWrite, OddWrites
from tether.analysis.sharing.rewritten import RewrittenArrays
from tether.analysis.sharing.shared_memory import Sharing
from tether.analysis.sharing.standing import Standing, TieReason
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
    standing: Standing  # why it is told, and how it stands among others
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
        self._sharing = history.get(Sharing)
        self._written: dict[frozenset[tuple[str, str]], tuple[Site, ...]] = {}
        self.found = self._all() if found is None else list(found)

    def _all(self) -> list[ActedTie]:
        """Return the ties, joined by their cause, the first of them with all their lines."""
        groups: dict[object, list[ActedTie]] = {}
        for cause, tie in (
            *self._between_tensors(), *self._of_one_object(), *self._by_themselves(),
            *self._rewritten(), *self._kept(),
        ):  # fmt: skip
            groups.setdefault(cause, []).append(tie)
        joined = [_joined(some) for some in groups.values()]
        joined.sort(key=_rank)
        return [*map(self._with_keeping, joined[:_READ]), *joined[_READ:]]

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
            read = events[act.read] if act.read >= 0 else None
            array = act.place.array != UNKNOWN or act.through == UNKNOWN
            cause = (since[:1], act.place.array != UNKNOWN, act.through == UNKNOWN)
            yield (
                cause,
                ActedTie(
                    "array" if array else "tensor",
                    (self._name_of(act),),
                    history.name_of(act.through) if act.through != UNKNOWN else "the array",
                    (act.place.tensor,),
                    since,
                    _sites(history, [act.write] if act.through != UNKNOWN else []),
                    (history.site_of(read),) if read is not None else (),
                    self._how(act),
                    act.write,
                    1,
                    self._standing(act),
                    self._perhaps(act) if act.through == UNKNOWN else (),
                ),
            )

    def _name_of(self, act: Act) -> str:
        """Return what is called what shows a change: a tensor, an array of it, or what was sent."""
        history, name = self._history, self._history.name_of(act.place.tensor)
        if act.place.array == UNKNOWN:
            return name
        taken = history.events[act.place.array]
        sent = operation(taken.operation).leaves == "process"
        what = "what was sent of" if sent else "an array of"
        return history.site_of(taken).target or f"{what} {name.strip('`')}"

    def _perhaps(self, act: Act) -> tuple[Site, ...]:
        """Return the statements that may have written an array that a call gave, by its variables.

        Those of the function that made the call, and of those that it returned the array to.
        """
        if not act.since:
            return ()
        made = self._history.events[act.since[0]].site
        ways = self._history.get(WaysThere).callers(made, act.since[:1])
        sites = (self._history.site(made), *ways)
        names = frozenset((one.function, one.target) for one in sites if one.target)
        if names not in self._written:
            self._written[names] = self._history.get(RewrittenArrays).written_as(names)
        return self._written[names]

    def _how(self, act: Act) -> str:
        """Return the operation that wrote; "" where no call did."""
        write = self._writer(act)
        return write.operation if write is not None else ""

    def _writer(self, act: Act) -> Event | None:
        """Return the call that wrote; None where no call of PyTorch did, as after the last one."""
        return self._history.events[act.write] if act.through != UNKNOWN else None

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

    def _standing(self, act: Act) -> Standing:
        """Say how much two objects look like ones that were not meant to share.

        What a library wrote, what replaced values that nobody had seen, and what was written to a
        piece, to change the whole, was meant.
        """
        events = self._history.events
        write = self._writer(act)
        read = events[act.read] if act.read >= 0 and not act.filled else None
        pieces = {link.source for link in self._sharing.chain(act.through)}
        copied = any(_looks_like_a_copy(events[at]) for at in act.since)
        by_library = write is not None and write.inner != write.site and write.operation != "step"
        in_piece = not copied and act.place.tensor in pieces and not self._was_handed(act)
        return Standing(
            self._reason(act, copied=copied),
            read=read is not None and read.inner == read.site,
            meant=by_library or in_piece or _unseen_before(self._history, act),
        )

    def _was_handed(self, act: Act) -> bool:
        """Whether another function than the one that writes it took the piece that is written.

        Not where an object keeps the piece: it has it to write it.
        """
        write, made = self._writer(act), self._history.made_at(act.through)
        kept = any(len(steps_in(one)) > 1 for one in self._history.names_of(act.through))
        if write is None or made < 0 or kept:
            return False
        lines = (self._history.site_of(one) for one in (write, self._history.events[made]))
        return len({one.scope for one in lines}) > 1

    def _reason(self, act: Act, *, copied: bool) -> TieReason:
        if act.place.array != UNKNOWN or act.through == UNKNOWN:
            return TieReason.ARRAY
        return TieReason.COPY if copied else TieReason.VIEW

    # -- one object in several places --------------------------------------------------------

    def _of_one_object(self) -> Iterator[tuple[object, ActedTie]]:
        history = self._history
        holding, kept = history.get(Holding), history.get(KeptThenWritten)
        for act in holding.all:
            standing = self._held_standing(holding, act)
            if standing.nothing or (act.tensor, act.write) in kept.writes:
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
                    standing,
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
                    Standing(TieReason.KEPT, read=True),
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
                    Standing(
                        TieReason.AGAIN if before == read else TieReason.ALTERNATING, read=True
                    ),
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
                    self._odd_standing(one),
                ),
            )

    def _odd_standing(self, one: OddWrite) -> Standing:
        """Say what a write tells of a tie; where a library wrote by itself, that was meant."""
        users = self._history.site_of(self._history.events[one.write]).user
        return Standing(_ODD[one.kind], read=users and one.read >= 0, meant=not users)

    def _held_standing(self, holding: Holding, act: HeldAct) -> Standing:
        """Say how much the places of one object look like ones that were not meant to be one.

        A function whose name ends in "_", and ``out=``, say that they write what they are given.
        """
        history = self._history
        write = history.events[act.write]
        named = history.site_of(write).says_it_writes
        unseen = not _seen_before(history, act.tensor, act.write)
        return Standing(
            self._held_reason(holding, act),
            read=act.read >= 0,
            meant=named or bool(write.flags & OUT) or unseen,
        )

    def _held_reason(self, holding: Holding, act: HeldAct) -> TieReason:
        states = [one for one in act.others if one.kind == "state"]
        if len(states) > 1 or len(in_one_container(act.others)) > 1:
            return TieReason.SLOTS
        step = self._history.events[act.write].operation == "step"
        if step and act.tensor in self._history.held:
            # Its module, its optimizer and lists of parameters hold it; one module may do so twice.
            holders = act.others if act.by is None else (*act.others, act.by)
            if are_two_names(holders):
                return TieReason.TWO_NAMES
            twice = are_alike(holders) or are_of_one_module(holders)
            return TieReason.PARAMETER if twice else TieReason.OWN
        return min(_reason_of(holding, act, one) for one in act.others)


_ODD = {
    "lost": TieReason.LOST, "operand": TieReason.OPERAND, "overlap": TieReason.OVERLAP,
    "result": TieReason.RESULT, "gradient": TieReason.GRADIENT, "elements": TieReason.ELEMENTS,
    "twice": TieReason.TWICE, "handed": TieReason.HANDED,
}  # fmt: skip

_REASONS = {
    "cache": TieReason.CACHE, "default": TieReason.DEFAULT, "closure": TieReason.CLOSURE,
    "state": TieReason.STATE, "slot": TieReason.SLOT, "attribute": TieReason.ATTRIBUTE,
}  # fmt: skip

_BESIDE = {
    ("slot", ""): TieReason.VIEW, ("attribute", ""): TieReason.VIEW,
    ("attribute", "attribute"): TieReason.ATTRIBUTES,
}  # fmt: skip
"""Reasons by what the place was written through as well; "": through what has no name."""


def _reason_of(holding: Holding, act: HeldAct, other: Holder) -> TieReason:
    """Say why a place that shows a write is told of."""
    if other.tensor == UNKNOWN:
        return TieReason.ARRAY
    if other.kind in ("slot", "attribute", "variable") and holding.in_a_loop(act):
        return TieReason.VIEW  # the elements of a list, one after the other
    if other.kind == "variable":
        return _of_variable(holding, other)
    by = "" if act.by is None else act.by.kind
    return _BESIDE.get((other.kind, by), _REASONS[other.kind])


def _of_variable(holding: Holding, other: Holder) -> TieReason:
    if not other.depth:
        return TieReason.VARIABLE
    target = holding.target_of(other)
    given = target and first_word(target) == first_word(other.name)
    return TieReason.GIVEN if given else TieReason.CALLER


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


def _rank(tie: ActedTie) -> tuple[tuple[bool, TieReason, bool], bool, int]:
    """Order ties: by how they stand, of many tensors before of one, as they were written."""
    return tie.standing.rank, len(tie.tensors) < 2, tie.write


def _joined(ties: list[ActedTie]) -> ActedTie:
    best = min(ties, key=_rank)
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
    )


def _all(parts: Iterable[tuple[Item, ...]]) -> tuple[Item, ...]:
    return tuple(dict.fromkeys(itertools.chain.from_iterable(parts)))


def _sites(history: History, positions: Iterable[int]) -> tuple[Site, ...]:
    found = (history.events[at].site for at in positions)
    return tuple(dict.fromkeys(history.site(one) for one in found if one >= 0))
