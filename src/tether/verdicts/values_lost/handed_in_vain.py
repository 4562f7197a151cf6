"""Tensors handed to a call for the parameters of a module, and read by nothing in it.

A name that the module does not have is passed over, or becomes a plain attribute for the length of
the call. Nothing is said of a tensor that some call within read, whatever name it came by.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tether.analysis.history import History
from tether.facts import SiteId, Unmatched
from tether.finding import Claim, Repair, Segment, Step, named, say

MOST_MADE = 3
"""Lines that made what was handed over in vain that one finding names."""


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


def claims(history: History) -> Iterator[Claim]:
    """Give one claim for each such line."""
    for found in handed_in_vain(history):
        yield _claim(history, found)


def _claim(history: History, found: HandedInVain) -> Claim:
    fact = found.fact
    keys = ", ".join(repr(one) for one in fact.keys)
    made = dict.fromkeys(
        history.events[at].site for at in map(history.made_at, found.tensors) if at >= 0
    )
    module = named(fact.module)
    return Claim(
        tensors=found.tensors,
        cause=("handed", fact.site),
        site=fact.site,
        operation="functional_call",
        severity="warning" if len(fact.tensors) == fact.given else "note",
        message=say(
            "Nothing in this call reads {subject}: {module} has no parameter or buffer of the"
            " name {keys}, and computes with its own.",
            module=module, keys=Segment(keys, "name"),
        ),
        story=(
            *(Step("made", site, say("what it is given is made here"))
              for site in list(made)[:MOST_MADE]),
            Step("used", fact.site, say("{module} is called, and reads none of it",
                 module=module)),
        ),
        repair=Repair(say("Give the names that {module} says in named_parameters(): those of a part"
                          " of it begin with the name of the part. With strict=True such a call"
                          " raises.", module=module)),
        count=found.times,
    )  # fmt: skip
