"""Lines that give a loop's variable a new tensor which nothing reads.

The variable is bound to the new one, and what the loop had given keeps its values: the line was to
write them. Found by what is read and how long it lives; the text says only that the name is a
loop's.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from tether.analysis.history import History
from tether.analysis.surroundings import Surroundings, at_line
from tether.facts import UNKNOWN, Event, Site, SiteId
from tether.finding import At, Claim, Repair, Step, say
from tether.source.reading import loop_of
from tether.source.vain_stores import BoundAgain, rebound
from tether.store.numbers import Numbers

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


def claims(history: History) -> Iterator[Claim]:
    """Give one claim for each such line."""
    for found in bound_in_vain(history):
        yield _bound(history, found)
    for site, again in rebound_in_vain(history):
        yield _rebound(site, again)


def _bound(history: History, found: BoundInVain) -> Claim:
    event = history.events[found.at]
    loop = at_line(history.site_of(event), found.loop)
    return Claim(
        tensors=(),
        subject=found.variable,
        cause=("bound", event.site),
        site=event.site,
        operation=event.operation,
        severity="warning" if found.trained else "note",
        message=say(
            f"Nothing reads the values that {{line}} gives to `{found.variable}`, in any of {{n}}"
            " runs: the name is bound to a new tensor, and the one that the loop gave keeps its"
            " values.",
            line=At(event.site), n=found.runs,
        ),
        story=(
            Step("read", loop, say(f"the loop gives `{found.variable}` here")),
            Step("made", event.site, say(f"`{found.variable}` is bound to a new tensor")),
        ),
        repair=Repair(say(f"Write into the tensor: `{found.variable}.copy_(...)` or another method"
                          " whose name ends in `_`, under torch.no_grad().")),
        count=found.runs,
        calls=(found.at,),
    )  # fmt: skip


def _rebound(site: Site, found: BoundAgain) -> Claim:
    name = f"`{found.variable}`"
    return Claim(
        tensors=(),
        subject=found.variable,
        cause=("rebound", site),
        site=site,
        operation="",
        message=say(
            f"What {{line}} gives to {name} reaches nothing: the name is bound to another tensor,"
            " nothing reads it after that, and the parameter that the loop gave keeps its values.",
            line=At(site),
        ),
        story=(
            Step("read", at_line(site, found.loop), say(f"the loop gives {name} here")),
            Step("made", site, say(f"{name} is bound to another tensor")),
        ),
        repair=Repair(say(f"Write into the parameter: `{found.variable}.copy_(...)` under"
                          " torch.no_grad(). To compute with other tensors in its place, call the"
                          " module by torch.func.functional_call.")),
        count=0,
    )  # fmt: skip
