"""Views that keep a memory of which they show little, at the end or in a file."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from tether.analysis.copies.idle import LEAST_BYTES
from tether.analysis.history import History
from tether.analysis.sharing.holding import Holding
from tether.analysis.sharing.shared_memory import Sharing
from tether.facts import UNKNOWN, Operand
from tether.finding import At, Claim, Sentence, Step, Tensor, named, say
from tether.source.names import common_place, steps_in
from tether.verdicts.storage_pinned.cut_off import FACTOR, LARGE, bytes_shown, copied, view_of

SMALL = 4 << 10
"""Bytes of a storage that is told of, as a note, where a container or an object keeps the view."""


def _large(history: History, operand: Operand, shown: int, least: int = LARGE) -> int:
    """Return the bytes of the storage when it is large beside what is shown of it, else 0."""
    fact = history.trace.storages.get(operand.storage)
    if fact is None or fact.nbytes < least or shown * FACTOR > fact.nbytes:
        return 0
    return fact.nbytes


def saved(history: History) -> Iterator[Claim]:
    """Find views that `torch.save` wrote with all that lies behind them."""
    for at, _ in history.events.where("save".__eq__):
        yield from _saved(history, at)


def _saved(history: History, at: int) -> Iterator[Claim]:
    saved = history.events[at].site
    for operands in _by_storage(history.events[at].reads).values():
        nbytes = _large(history, operands[0], sum(map(bytes_shown, operands)))
        cut = view_of(history, operands[0].tensor)
        if nbytes:
            yield _claim(
                history, [(operands, nbytes)], at if cut == UNKNOWN else cut,
                say("torch.save ({line}) writes the whole storage behind it", line=At(saved)),
                Step("saved", saved, say("torch.save writes all {all} bytes of it", all=nbytes)),
            )  # fmt: skip


def _by_storage(operands: Iterable[Operand]) -> dict[int, list[Operand]]:
    found: dict[int, list[Operand]] = defaultdict(list)
    for one in operands:
        found[one.storage].append(one)
    return found


def pinned(history: History, told: set[int]) -> Iterator[Claim]:
    """Find storages alive at the end on which only small views are left."""
    groups: dict[int, list[tuple[list[Operand], int]]] = defaultdict(list)
    for operands in _by_storage(_alive(history)).values():
        named = [one for one in operands if history.names_of(one.tensor)]
        cut = view_of(history, named[0].tensor) if named else UNKNOWN
        if cut == UNKNOWN or not told.isdisjoint(one.tensor for one in operands):
            continue
        least = SMALL if _is_put_away(history, named) else LARGE
        shown = sum(map(bytes_shown, _holders(history, operands)))
        nbytes = _large(history, operands[0], shown, least)
        if nbytes and _is_left_alone(history, named[0]) and not _is_of_a_loop(history, named):
            groups[history.events[cut].site].append((named, nbytes))
    for found in groups.values():
        yield _pinned(history, found)


def _pinned(history: History, found: Sequence[tuple[list[Operand], int]]) -> Claim:
    """Say what keeps some storages of which little is shown: of less than 1 MiB a note."""
    said = say("nothing else is left of {them}", them="it" if len(found) == 1 else "them")
    claim = _claim(history, found, view_of(history, found[0][0][0].tensor), said)
    return replace(claim, severity="note") if (claim.bytes or 0) < LEAST_BYTES else claim


def _is_put_away(history: History, named: Sequence[Operand]) -> bool:
    """Whether some tensors are kept in a container or an object: no variable of the moment."""
    return all(
        len(steps_in(name)) > 1 for one in named for name in history.names_of(one.tensor)[:1]
    )


def _is_left_alone(history: History, named: Operand) -> bool:
    """Whether the program made a call after all that showed more of a memory had gone.

    What the last turn of a loop leaves, as the program ends, keeps nothing from anyone.
    """
    events = (history.events[at] for at in history.on_storage(named))
    seen = {
        one.tensor
        for event in events
        for one in (*event.reads, *event.results, *event.writes)
        if one.storage == named.storage
    }
    lives = (history.trace.tensors.get(one) for one in seen)
    return all(life is None or life.died < history.trace.ended for life in lives)


def _is_of_a_loop(history: History, named: Sequence[Operand]) -> bool:
    """Whether only variables of loops have some tensors: the last turn left them there."""
    site = history.site_of(history.events[view_of(history, named[0].tensor)])
    fillings = history.get(Holding).fillings
    names = [name.strip("`") for one in named for name in history.names_of(one.tensor)]
    return all(
        name.isidentifier() and {one.how for one in fillings.of(*site.scope, name)} == {"loop"}
        for name in names
    )


def _alive(history: History) -> Iterator[Operand]:
    """Yield the tensors alive at the end whose memory was seen."""
    for tensor in history.left:
        operand = history.operand_of(tensor)
        if operand is not None and operand.storage != UNKNOWN:
            yield operand


def _holders(history: History, operands: list[Operand]) -> list[Operand]:
    """Leave out the bases of named views: those live on by their views alone."""
    named = [one.tensor for one in operands if history.names_of(one.tensor)]
    sharing = history.get(Sharing)
    bases = {link.source for one in named for link in sharing.chain(one)}.difference(named)
    return [one for one in operands if one.tensor not in bases]


def _claim(
    history: History,
    found: Sequence[tuple[list[Operand], int]],
    made: int,
    why: Sentence,
    *further: Step,
) -> Claim:
    """Say what some views show of their storages, which a call at a line made them of."""
    operands = [one for named, _ in found for one in named]
    names = [history.name_of(one.tensor) for one in operands]
    common = common_place(names) if len(found) > 1 else ""
    subject = common or names[0]
    maker, nbytes = history.events[made], sum(each for _, each in found)
    shows = say(
        "{name} shows {shown} bytes of a storage of {bytes}"
        if len(found) == 1
        else "{name} shows {shown} bytes of {storages} storages of {bytes} together",
        name=named(common) if common else Tensor(operands[0].tensor),
        shown=sum(map(bytes_shown, operands)),
        storages=len(found),
        bytes=nbytes,
    )
    return Claim(
        tensors=tuple(one.tensor for one in operands),
        cause=(maker.site, *(one.site for one in further)),
        site=maker.site,
        operation=maker.operation,
        subject=subject,
        message=say("{shows} since {line}, and {why}.", shows=shows, line=At(maker.site), why=why),
        story=(Step("made", maker.site, shows), *further),
        repair=copied(history, maker, subject),
        count=len(found),
        bytes=nbytes,
    )  # fmt: skip
