"""Values written to what is computed of parameters for each pass: a pruned or normalised weight.

The next pass computes it anew of the parameter, which never got them. Told is a line of which every
write was lost so, where the next run of what computes reads the very same tensors, or all that goes
in is a module's own: no data.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from tether.analysis.history import History
from tether.facts import BACKWARDS, UNKNOWN, Event, Operand, SiteId
from tether.finding import At, CallOf, Claim, Repair, Step, Tensor, say
from tether.operations.table import operation

MOST_BEHIND = 16
"""Calls by which a weight is computed of its parameters."""


class DerivedInVain(NamedTuple):
    """A line that writes to what is computed anew before anything reads it."""

    at: int  # its first call
    written: int  # the tensor
    made: int  # the call that computed it
    parameter: int  # of which it is computed
    again: int  # the next call that computes it
    runs: int


def derived_in_vain(history: History) -> Iterator[DerivedInVain]:
    """Yield the lines."""
    lines: dict[SiteId, list[DerivedInVain]] = defaultdict(list)
    seen: set[SiteId] = set()
    column, passes = history.events.column, history.events.called(BACKWARDS.__contains__)
    own = (column("inner") == UNKNOWN) | (column("inner") == column("site"))
    calls = np.flatnonzero((column("writes") > 0) & own & ~passes)
    for at, site in zip(calls.tolist(), column("site")[calls].tolist(), strict=True):
        found = None if site in seen else _lost(history, at, history.events[at])
        if found is None:
            seen.add(site)  # one that was not lost answers for its line
        elif found.again != UNKNOWN:
            lines[site].append(found)
    for site, runs in lines.items():
        if site not in seen:
            yield runs[0]._replace(runs=len(runs))


def _lost(history: History, at: int, event: Event) -> DerivedInVain | None:
    """Return what a write is, if it was to such a tensor and nothing saw it.

    Of what the program ends with it is not known whether it would have been computed again.
    """
    written, made = event.writes[0], history.on_storage(event.writes[0])[0]
    of = history.events[made]
    computed = of.reads and not operation(of.operation).gradients
    if len(event.writes) > 1 or not computed or _seen(history, at, written):
        return None
    again = _next_run(history, made, at)
    parameter = _computed_of(history, made, again) if again != UNKNOWN else UNKNOWN
    if again != UNKNOWN and parameter == UNKNOWN:
        return None
    return DerivedInVain(at, written.tensor, made, parameter, again, 1)


def _computed_of(history: History, made: int, again: int) -> int:
    """Return the trained parameter of which a call computes a weight; UNKNOWN if data goes in."""
    of = history.events[made]
    trained = [one.tensor for one in of.reads if one.leaf and one.requires_grad]
    same = _tensors(history.events[again]) == _tensors(of)
    return trained[0] if trained and same else _parameter_behind(history, made)


def _tensors(event: Event) -> set[int]:
    return {one.tensor for one in event.reads}


def _seen(history: History, at: int, written: Operand) -> bool:
    """Whether anything may have read a memory after a write, or it was handed out."""
    life = history.trace.storages.get(written.storage)
    freed = history.position(life.freed) if life is not None and life.freed >= 0 else math.inf
    if history.next_pass(at) < min(freed, len(history.events)):
        return True  # a graph may go back through it
    touching = history.on_storage(written)
    handed = any(operation(history.events[one].operation).leaves for one in touching)
    return handed or any(history.events[one].reads for one in touching if one > at)


def _parameter_behind(history: History, made: int) -> int:
    """Return a trained parameter of which a call computes; UNKNOWN if data goes in as well."""
    waiting, seen, found = [made], {made}, UNKNOWN
    while waiting:
        edges = history.flow.edges[waiting.pop()]
        if not edges:
            return UNKNOWN  # drawn, or made of numbers: data as well
        for edge in edges:
            one = edge.operand
            if one is not None and _is_own(history, one):
                found = one.tensor if one.leaf and one.requires_grad else found
            elif edge.source < 0 or len(seen) > MOST_BEHIND:
                return UNKNOWN
            elif edge.source not in seen:
                seen.add(edge.source)
                waiting.append(edge.source)
    return found


def _is_own(history: History, operand: Operand) -> bool:
    """Whether a tensor is a parameter or a buffer of a module."""
    parameter = operand.leaf and operand.requires_grad
    return parameter or any(one.module for one in history.facts_of_names(operand.tensor))


def _next_run(history: History, made: int, after: int) -> int:
    """Return the next call of a line, on the same parameter; UNKNOWN where there is none."""
    event = history.events[made]
    for tensor in _tensors(event):
        operand = history.operand_of(tensor)
        for at in history.readers(operand, after + 1) if operand is not None else ():
            one = history.events[at]
            if (one.operation, one.inner) == (event.operation, event.inner):
                return at
    return UNKNOWN


def claims(history: History) -> Iterator[Claim]:
    """Give one claim for each such line."""
    for found in derived_in_vain(history):
        yield _claim(history, found)


def _claim(history: History, found: DerivedInVain) -> Claim:
    event, made = history.events[found.at], history.events[found.made]
    parts = {"p": Tensor(found.parameter), "line": At(event.site), "again": CallOf(found.again)}
    return Claim(
        tensors=(found.parameter,),
        subject=history.name_of(found.parameter).strip("`"),
        cause=("derived", event.site),
        site=event.site,
        operation=event.operation,
        message=say(
            "What {line} writes is nowhere{runs}: it goes into what {call} computes of {p} for each"
            " pass, and {again} computes it anew before anything reads it.",
            runs=f", in any of {found.runs:,} runs" if found.runs > 1 else "",
            call=CallOf(found.made), **parts,
        ),
        story=(
            Step("made", made.site, say("{call} computes what is written, of {p}",
                 call=CallOf(found.made), **parts)),
            Step("written", event.site, say("{call} writes it", call=CallOf(found.at))),
            Step("made", history.events[found.again].site,
                 say("{again} computes it anew", **parts)),
        ),
        repair=Repair(say("Write into the parameter that it is computed of, {p}, under"
                          " torch.no_grad(). A parametrization that can be turned back takes an"
                          " assignment to the module's attribute.", **parts)),
        count=found.runs,
        calls=(found.at,),
    )  # fmt: skip
