"""Why a tensor shares memory: the calls from the memory's owner down to it, and what came then.

A chain is told from its beginning: who owns the memory, each call that handed it on, the writes
through other names after that, and the reads that met what was written. Tensors that came about by
the same calls at the same places are told together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tether.analysis.history import History
from tether.analysis.sharing.shared_memory import Sharing
from tether.facts import UNKNOWN, Event, Operand
from tether.operations import rule_for, say
from tether.operations.table import operation, shown
from tether.regions import overlaps
from tether.report.document.blocks import Block, Chain, Excerpt, Heading, Paragraph, Phrase
from tether.report.document.compose import excerpt
from tether.report.document.findings import Findings, counted

MANY_CHAINS = 4
MANY_PLACES = 4
"""Places of writes, and of reads, that one chain shows."""


class Tie(NamedTuple):
    """One call by which a tensor came to the memory of another."""

    at: int  # position of the call
    tensor: int
    source: int  # the tensor that was there before
    through: int = UNKNOWN  # position of the export, where the memory went through an array


def ties(history: History, tensor: int) -> list[Tie]:
    """Return the calls by which a tensor shares, the last one first; [] when it owns its memory."""
    found: list[Tie] = []
    while len(found) < 64:
        tie = _moved(history, tensor) or _linked(history, tensor) or _bridged(history, tensor)
        if tie is None or tie.source in {one.tensor for one in found}:
            break
        found.append(tie)
        tensor = tie.source
    # What a library made a parameter of has no name, and says nothing.
    while found and not history.names_of(found[-1].source) and _by_library(history, found[-1]):
        if not history.names_of(found[-1].tensor):
            break
        found.pop()
    return found


def _by_library(history: History, tie: Tie) -> bool:
    event = history.events[tie.at]
    return event.inner != event.site


def _moved(history: History, tensor: int) -> Tie | None:
    now = history.operand_of(tensor)
    if now is None:
        return None
    memory = history.flow.memory
    for at in reversed(history.get(Rebound).at.get(tensor, ())):
        source = history.events[at].reads[1]
        if source.tensor != tensor and memory(source) == memory(now):
            return Tie(at, tensor, source.tensor)
    return None


class Rebound:
    """For each tensor the calls that put it on the memory of another."""

    def __init__(self, history: History) -> None:
        self.at: dict[int, list[int]] = defaultdict(list)
        for at, event in enumerate(history.events):
            if operation(event.operation).rebinds and len(event.reads) == 2:
                self.at[event.reads[0].tensor].append(at)


def _linked(history: History, tensor: int) -> Tie | None:
    link = history.get(Sharing).links.get(tensor)
    return None if link is None else Tie(link.at, tensor, link.source)


def _bridged(history: History, tensor: int) -> Tie | None:
    """Find the array that a tensor was made of, where that array was a tensor's."""
    made = history.made_at(tensor)
    own = history.operand_of(tensor)
    if made == UNKNOWN or own is None:
        return None
    for out in _exits(history).get(made, ()):
        for source in history.events[out].reads[:1]:
            if history.flow.memory(source) == history.flow.memory(own):
                return Tie(made, tensor, source.tensor, out)
    return None


def _exits(history: History) -> dict[int, list[int]]:
    """For each call that took an array in, the calls that had handed it out; certain ones only."""
    if "report.ties exits" not in history.memo:
        exits: dict[int, list[int]] = defaultdict(list)
        for bridge in history.trace.bridges:
            out = history.position(bridge.exit)
            if bridge.certain and out >= 0:
                exits[history.position(bridge.entry)].append(out)
        history.memo["report.ties exits"] = exits
    found: dict[int, list[int]] = history.memo["report.ties exits"]
    return found


# -- told ------------------------------------------------------------------------------------------


def upward(tensors: set[int], about: Findings) -> Iterator[Block]:
    """Tell from where the tensors share memory, what was written since, and what read it."""
    history = about.history
    groups: dict[tuple[int, ...], list[list[Tie]]] = defaultdict(list)
    for tensor in sorted(tensors):
        chain = ties(history, tensor)
        if chain and not tensors >= {one.source for one in chain}:
            groups[tuple(history.events[one.at].site for one in chain)].append(chain)
    if not groups:
        return
    yield Heading("why it shares memory")
    for chains in list(groups.values())[:MANY_CHAINS]:
        yield Chain(tuple(_told(chains, tensors, about)))
    if len(groups) > MANY_CHAINS:
        text = f"... and {counted(len(groups) - MANY_CHAINS, 'more way')}"
        yield Paragraph((Phrase(text, "dim"),))


def downward(tensors: set[int], about: Findings) -> Iterator[Block]:
    """Tell which tensors with names share memory because of a call on one of these."""
    history = about.history
    own = {name for one in tensors for name in history.names_of(one)}
    places: dict[tuple[int, str], list[str]] = defaultdict(list)
    for tensor in sorted({fact.tensor for fact in about.trace.names} - tensors):
        for tie in ties(history, tensor):
            name = history.name_of(tensor)
            if tie.source in tensors and name not in own:
                event = history.events[tie.at]
                places[event.site, _operation(event)].append(name)
                break
    if not places:
        return
    yield Heading("what shares its memory")
    links = [
        _excerpt(site, f"{_names(names)} by {operation}", about)
        for (site, operation), names in list(places.items())[:MANY_PLACES]
    ]
    yield Chain(tuple(links))
    if len(places) > MANY_PLACES:
        text = f"... and {counted(len(places) - MANY_PLACES, 'more call')}"
        yield Paragraph((Phrase(text, "dim"),))


def _told(chains: list[list[Tie]], tensors: set[int], about: Findings) -> Iterator[Excerpt]:
    """Yield the links of chains that went the same way, from the owner to the reads."""
    history, events = about.history, about.history.events
    roots = [chain[-1].source for chain in chains]
    made = history.made_at(roots[0])
    if made != UNKNOWN:
        role = f"{_called(history, roots)} made here by {_operation(events[made])}"
        yield _excerpt(events[made].site, role, about)
    for step in range(len(chains[0]) - 1, -1, -1):
        tie = chains[0][step]
        source = _called(history, (chain[step].source for chain in chains))
        name = _called(history, (chain[step].tensor for chain in chains))
        if tie.through != UNKNOWN:
            out = events[tie.through]
            yield _excerpt(out.site, f"{source} handed out by {_operation(out)}", about)
        yield _excerpt(events[tie.at].site, f"{name} {_way(events[tie.at], source)}", about)
    yield from _since(chains, tensors, about)


def _way(event: Event, source: str) -> str:
    """Say how a call put one tensor on the memory of another."""
    call = _operation(event)
    if operation(event.operation).rebinds:
        return f"put on the memory of {source} by {call}"
    said = say(event) if event.results and rule_for(event.operation) is not None else ""
    return f"made of {source} by {call} ({said or 'shares its memory'})"


_Places = dict[tuple[int, str], list[int]]  # site and words -> tensors


def _since(chains: list[list[Tie]], tensors: set[int], about: Findings) -> Iterator[Excerpt]:
    """Yield the writes through other names since the memory is shared, and the reads after them."""
    history, found = about.history, about.history.get(Sharing)
    memory = history.flow.memory
    writes: _Places = defaultdict(list)
    reads: _Places = defaultdict(list)
    for chain in chains:
        last = history.operand_of(chain[0].tensor)
        if last is None:
            continue
        through = [
            (at, operand)
            for at, operand in found.writes.get(memory(last))
            if at > chain[0].at
            and found.family(operand.tensor) not in tensors
            and _seen(operand, last)
        ]
        for at, operand in through:
            event = history.events[at]
            writes[event.site, _by(event)].append(operand.tensor)
        family = found.family(chain[0].tensor)
        for at, operand in found.reads_of(memory(last)):
            if through and at > through[0][0] and found.family(operand.tensor) == family:
                event = history.events[at]
                reads[event.site, _operation(event)].append(operand.tensor)
    yield from _done(history, writes, reads, about)


def _done(history: History, writes: _Places, reads: _Places, about: Findings) -> Iterator[Excerpt]:
    for places, done in ((writes, "written"), (reads, "read")):
        for (site, call), touched in list(places.items())[:MANY_PLACES]:
            times = len(touched) // max(1, len(set(touched)))
            said = f"{_called(history, touched)} {done} by {call}"
            yield _excerpt(site, said + (f", {times:,} times" if times > 1 else ""), about)


def _seen(written: Operand, read: Operand) -> bool:
    if written.storage != read.storage or written[3:6] == read[3:6]:
        return True
    return overlaps(written, read)


def _by(event: Event) -> str:
    if event.operation == "step" and event.detail:
        return f"the step of {event.detail}"
    return _operation(event)


def _operation(event: Event) -> str:
    return shown(event.operation)


def _called(history: History, tensors: Iterable[int]) -> str:
    return _names([history.name_of(one) for one in dict.fromkeys(tensors)])


def _names(names: list[str]) -> str:
    """Say ```a```, ```a` and `b```, or ```a`, `b` and 5 more``."""
    told = [one if one.startswith("`") else f"`{one}`" for one in dict.fromkeys(names)]
    if len(told) > 3:
        return f"{told[0]}, {told[1]} and {len(told) - 2} more"
    return " and ".join(filter(None, (", ".join(told[:-1]), told[-1])))


def _excerpt(site: int, role: str, about: Findings) -> Excerpt:
    if site < 0:
        return Excerpt("(place not known)", role)
    return excerpt(about.trace.sites[site], role, about)
