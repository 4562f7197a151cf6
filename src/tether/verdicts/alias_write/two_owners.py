"""A part that a network has in common with the one that it follows by copies: of `alias-write`.

``target = Net(trunk)`` beside ``online = Net(trunk)``: each step of the optimizer moves the trunk
of both, and ``target.load_state_dict(online.state_dict())`` copies it onto itself. That line tells
that the target was to move by it alone. Nothing is said of a part that no step moves, of what
trains in both, or of a target that is not used while the part is ahead.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from typing import NamedTuple

from tether.analysis.history import History
from tether.analysis.sharing.holding import Holding
from tether.analysis.surroundings import WaysThere
from tether.facts import Site
from tether.finding import At, CallOf, Claim, Repair, Step, named, say
from tether.source.filling import Fill
from tether.source.names import common_place, steps_in
from tether.verdicts.alias_write.common_parts import TwoOwners
from tether.verdicts.alias_write.common_parts import two_owners as found_in


class _Owners(NamedTuple):
    """What the program calls the two modules, and their part in each of them."""

    target: str
    online: str
    part: str  # in the target
    other: str  # in the online one


def two_owners(history: History) -> Iterator[Claim]:
    """Yield one claim for each line that copies a part onto itself, beside the rest."""
    for found in found_in(history):
        owners = _owners(history, found)
        if owners is not None:
            yield _claim(history, found, owners)


def _owners(history: History, found: TwoOwners) -> _Owners | None:
    """Return the modules, each by the longest path that it and the shared part have in common."""
    shared = history.names_of(found.shared[0])
    pair = [_around(history.names_of(one), shared) for one in (found.follower, found.leader)]
    (target, part), (online, other) = pair
    if not target or not online or target == online or part == other:
        return None
    return _Owners(target, online, part, other)


def _was_put_there(history: History, found: TwoOwners) -> bool:
    """Whether the program put the part into a module that had another one: it may be meant."""
    return any(one.new in found.shared for one in history.trace.reassigned)


def _around(names: list[str], shared: list[str]) -> tuple[str, str]:
    """Return the module that has two tensors, and the path in it to the second one's part."""
    places = [(common_place(pair), pair[1]) for pair in product(names, shared)]
    place, name = max(places, key=lambda one: len(steps_in(one[0])), default=("", ""))
    return place, "".join(steps_in(name)[: len(steps_in(place)) + 1])


def _claim(history: History, found: TwoOwners, owners: _Owners) -> Claim:
    step, read = (history.events[at] for at in (found.step, found.read))
    copy = history.events[found.copies[-1]]
    parts = {
        "target": named(owners.target), "online": named(owners.online), "part": named(owners.part),
        "other": named(owners.other), "call": CallOf(found.step), "step": At(step.site),
        "copy": At(copy.site), "read": At(read.site),
    }  # fmt: skip
    callers = history.get(WaysThere).callers(read.site, (found.read,))
    lines = _given_at(history, found, owners)
    return Claim(
        tensors=found.shared,
        cause=("two owners", copy.site),
        site=lines[0].site if lines else copy.site,
        operation=step.operation,
        severity=None if found.again and not _was_put_there(history, found) else "note",
        subject=owners.target,
        also=(owners.online,),
        message=say(
            "{part} is {other} itself, and no copy of it: {call} at {step} changes both, while the"
            " rest of {target} changes only where it is copied ({copy}). In between, {read}"
            " computes with both.",
            **parts,
        ),
        story=(
            *lines,
            Step("written", step.site, say("{call} changes {part}", **parts)),
            Step("read", read.site, say("{target} is used, with what was changed", **parts)),
            *(Step("called", one, say("the call came from here")) for one in callers[:1]),
            Step("copied", copy.site, say("{part} is copied onto itself here", **parts)),
        ),
        repair=Repair(say("Give {target} a copy of {other}, made by copy.deepcopy(). If both are to"
                          " share it, copy only the rest at {copy}.", **parts)),
        count=0,
    )  # fmt: skip


def _given_at(history: History, found: TwoOwners, owners: _Owners) -> list[Step]:
    """Return the lines by which the second module was given the part, the one to name first."""
    there = history.get(WaysThere)
    way, other = (there.of_what_made(one) for one in (found.follower, found.leader))
    tied, kept = _handed_over(history, way, owners.part)
    apart = ([one for one in way if one not in other] or way)[:1]
    until = way.index(apart[0]) if apart else 0
    made = say("{target} is made here", target=named(owners.target))
    ways = [Step("made", one, made) for one in dict.fromkeys((*apart, *way[1:until]))]
    given = say("what is handed over is kept itself, and no copy of it")
    steps = [Step("shared", one, given) for one in (tied or kept)[-1:]]
    return [*steps, *ways] if tied else [*ways, *steps]


def _handed_over(history: History, way: Sequence[Site], part: str) -> tuple[list[Site], list[Site]]:
    """Return the lines that give one module its part; those that do in what makes any module."""
    fillings, attribute = history.get(Holding).fillings, steps_in(part)[-1]
    tied = _taken(one for one in fillings.of_any(attribute[1:]) if _ties(one, part))
    inside = (fill for one in way for fill in fillings.attributes(*one.scope))
    return tied, _taken(one for one in inside if one.target == f"self{attribute}")


def _taken(filled: Iterable[Fill]) -> list[Site]:
    """Return the lines that hand over what is there, and no copy of it."""
    return [
        one.site for one in filled
        if one.how == "assigned"
        and all(step.lstrip(".").isidentifier() for step in steps_in(one.site.expression))
    ]  # fmt: skip


def _ties(fill: Fill, part: str) -> bool:
    """Whether a line gives just this module its part, or one what another has by the same name."""
    ends = [
        [step.lstrip(".") for step in steps_in(one)[-2:]]
        for one in (fill.target, part, fill.site.expression)
    ]
    return ends[0] == ends[1] or (len(ends[2]) > 1 and ends[0][-1] == ends[2][-1])
