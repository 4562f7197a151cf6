"""Entries written into the dict that ``state_dict()`` has just made, which nothing gets to see.

It is made anew by each call: the module and the optimizer keep what they have. Who made it is told
by what was recorded: the tensors in it were handed out by PyTorch's own line, or by its optimizer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from tether.analysis.history import History
from tether.analysis.shared_memory import Sharing
from tether.analysis.surroundings import Surroundings
from tether.facts import UNKNOWN, Event, Site, SiteId, Unmatched
from tether.operations.table import operation
from tether.source.reading import loop_of
from tether.source.vain_stores import BoundAgain, rebound, stores_in_vain
from tether.store.columns import Numbers

STATE = "state_dict"
_HANDS_OUT = "Module._save_to_state_dict"


class WrittenInVain(NamedTuple):
    """A line that made a dict, and those that write into it alone."""

    made: SiteId
    owner: str  # "module", "optimizer"
    lines: tuple[int, ...]
    tensors: tuple[int, ...]  # the first few that the dict holds


def written_in_vain(history: History) -> Iterator[WrittenInVain]:
    """Yield the lines that made such a dict."""
    seen = set[SiteId]()
    for _, event in history.events.where({"detach", STATE}.__contains__):
        of_module = event.operation != STATE
        handed = not of_module or history.site(event.inner).function == _HANDS_OUT
        if event.site in seen or not handed:
            continue
        seen.add(event.site)
        site = history.site(event.site)
        source = history.get(Surroundings).source(site.file)
        lines = tuple(stores_in_vain(source, site, STATE))
        if lines:
            owner = "module" if of_module else "optimizer"
            shown = tuple(int(one.tensor) for one in event.reads[:1])
            yield WrittenInVain(event.site, owner, lines, shown)


# -- unmatched -------------------------------------------------------------------------------------
# Tensors handed to a call for the parameters of a module, and read by nothing in it. A name that
# the module does not have is passed over, or becomes a plain attribute for the length of the call.
# Nothing is said of a tensor that some call within read, whatever name it came by.


class HandedInVain(NamedTuple):
    """A line that hands tensors to a module which nothing in the call reads."""

    fact: Unmatched  # its first
    tensors: tuple[int, ...]
    times: int  # calls that were looked at


def handed_in_vain(history: History) -> Iterator[HandedInVain]:
    """Yield each line of which no call that was looked at read what it was given by wrong names."""
    lines: dict[SiteId, list[Unmatched]] = {}
    for fact in history.trace.unmatched:
        if history.position(fact.at) >= 0 and fact.tensors:
            lines.setdefault(fact.site, []).append(fact)
    for facts in lines.values():
        unread = [_unread(history, one) for one in facts]
        if all(unread):
            yield HandedInVain(facts[0], unread[0], len(facts))


def _unread(history: History, fact: Unmatched) -> tuple[int, ...]:
    """Return what a call was given by names that the module does not have, and did not read."""
    first, last = history.position(fact.at), history.position(fact.until)
    read = {one.storage for at in range(first, last) for one in history.events[at].reads}
    found = []
    for tensor in fact.tensors:
        operand = history.operand_of(tensor)
        if operand is not None and operand.storage not in read:
            found.append(int(tensor))
    return tuple(found)


# -- bound in vain ---------------------------------------------------------------------------------
# Lines that give a loop's variable a new tensor which nothing reads. The variable is bound to the
# new one, and what the loop had given keeps its values: the line was to write them. Found by what
# is read and how long it lives; the text says only that the name is a loop's.


LEAST_RUNS = 2


class BoundInVain(NamedTuple):
    """A line whose new values nobody sees."""

    at: int  # its first call
    variable: str
    loop: int  # the line of the loop
    runs: int
    trained: bool  # it read what requires grad


def bound_in_vain(history: History) -> Iterator[BoundInVain]:
    """Yield the lines none of whose results was read, each with its first call."""
    read = _read(history)
    lines: dict[SiteId, list[int]] = defaultdict(list)
    targets = _loop_targets(history)
    events = history.events
    chosen = np.isin(events.column("site"), list(targets))
    chosen &= (events.column("inner") == events.column("site")) & (events.column("writes") == 0)
    for at, event in events.at(np.flatnonzero(chosen & (events.column("results") > 0))):
        if _is_new(event):
            lines[event.site].append(at)
    for site, calls in lines.items():
        made: list[int] = [history.events[at].results[0].tensor for at in calls]
        if (
            len(calls) >= LEAST_RUNS
            and not read[np.array(made) + 1].any()
            and _gone(history, made[:-1])
        ):
            variable, loop = targets[site]
            line = history.site(site).line
            trained = any(_trains(history, at, line) for at in calls)
            yield BoundInVain(calls[0], variable, loop, len(calls), trained)


def rebound_in_vain(history: History) -> Iterator[tuple[Site, BoundAgain]]:
    """Yield statements of functions that ran which bind a loop's variable to what was there."""
    ran: dict[str, set[int]] = defaultdict(set)
    for site in history.trace.sites:  # of calls, and of what led to them
        if site.user:
            ran[site.file].add(site.line)
    for file, lines in ran.items():
        for one in rebound(history.get(Surroundings).source(file)):
            if any(one.first <= line <= one.last for line in lines):
                yield Site(file, one.line, end_line=one.line), one


def _read(history: History) -> Numbers:
    """Return by the number of each tensor, from -1 on, whether calls read it.

    To clear a gradient that is not there reads nothing.
    """
    at_of, operands = history.events.touched("reads")
    aside = [at for at, event in history.events.where("grad.__set__".__eq__) if event.none]
    operands = operands[~np.isin(at_of, aside)]
    tensors = history.events.operands.column("tensor")
    found = np.zeros(int(tensors.max(initial=0)) + 2, bool)
    found[tensors[operands] + 1] = True
    return found


def _loop_targets(history: History) -> dict[int, tuple[str, int]]:
    """Return the sites whose value a loop's variable is given, with it and the loop's line."""
    found: dict[int, tuple[str, int]] = {}
    around = history.get(Surroundings)
    for number, site in enumerate(history.trace.sites):
        if site.user and site.target.isidentifier():
            source = around.source(site.file)
            loop = loop_of(source, site) if site.target in source.loop_variables else 0
            if loop:
                found[number] = site.target, loop
    return found


def _is_new(event: Event) -> bool:
    """Whether a call gave one tensor on memory that it did not read."""
    storages = {one.storage for one in event.reads}
    return len(event.results) == 1 and event.results[0].storage not in storages


def _gone(history: History, tensors: Sequence[int]) -> bool:
    """Whether tensors died while the program ran: nothing kept them."""
    lives = history.trace.tensors
    return all(one in lives and lives[one].died != UNKNOWN for one in tensors)


def _trains(history: History, at: int, line: int) -> bool:
    """Whether a call, or one of its line that it took a value of, read what requires grad."""
    waiting, seen = [at], set[int]()
    while waiting:
        one = waiting.pop()
        if one < 0 or one in seen or history.site_of(history.events[one]).line != line:
            continue
        seen.add(one)
        if any(read.requires_grad and read.leaf for read in history.events[one].reads):
            return True
        waiting += history.flow.edges.sources(one)
        waiting += [history.made_at(read.tensor) for read in history.events[one].reads]
    return False


# -- given in vain ---------------------------------------------------------------------------------
# Views that are given other memory, by ``.data = ...``, and not looked at again. The values were to
# be written into what the view shows, which keeps its own. Told is a line of which every run is so,
# where the memory that was left is read afterwards.


class GivenInVain(NamedTuple):
    """A line that gives views memory which nobody sees."""

    at: int  # its first call
    owner: int  # the tensor whose memory the view showed
    taken: int  # the call that made the view
    read: int  # the first call that reads the old memory afterwards
    runs: int


def given_in_vain(history: History) -> Iterator[GivenInVain]:
    """Yield the lines."""
    at_of, operands = history.events.touched("reads")
    tensors = history.events.operands.column("tensor")
    last = np.full(int(tensors.max(initial=0)) + 2, UNKNOWN, np.int32)
    last[tensors[operands] + 1] = at_of  # in order: the last one counts
    lines: dict[SiteId, list[GivenInVain | None]] = defaultdict(list)
    for at, event in history.events.where(lambda name: operation(name).rebinds):
        unseen = bool(event.reads) and last[event.reads[0].tensor + 1] == at
        lines[event.site].append(_given(history, at, event) if unseen else None)
    for runs in lines.values():
        found = [one for one in runs if one is not None]
        read = next((one for one in found if one.read >= 0), None)
        if read is not None and len(found) == len(runs):
            yield read._replace(runs=len(runs))


def _given(history: History, at: int, event: Event) -> GivenInVain | None:
    """Return what a call gives to a view that goes without being read again."""
    view, *values = event.reads
    chain, life = history.get(Sharing).chain(view.tensor), history.trace.tensors.get(view.tensor)
    gone = life is not None and life.died != UNKNOWN
    if not chain or not gone or [one.shape for one in values] != [view.shape]:
        return None
    owner = int(chain[-1].source)
    if values[0].storage == view.storage or history.made_at(values[0].tensor) < chain[0].at:
        return None
    later = (
        one for one in history.on_storage(view)
        if one > at and any(read.tensor == owner for read in history.events[one].reads)
    )  # fmt: skip
    return GivenInVain(at, owner, chain[0].at, next(later, UNKNOWN), 1)
