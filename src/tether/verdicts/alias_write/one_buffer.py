"""One tensor that several modules of a list have as a buffer, and each writes: of `alias-write`.

``nn.ModuleList(Observer(peak) for _ in range(4))`` registers the one `peak` four times. By which
name each write came is in the facts: of the modules that have the tensor, the names of all but the
one that wrote were found beside its own `self.peak`. A note, for a count of all may be meant.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from tether.analysis.history import History
from tether.analysis.sharing.holding import HeldAct, Holding
from tether.facts import UNKNOWN
from tether.finding import At, CallOf, Claim, Repair, Step, named, say
from tether.source.names import steps_in
from tether.verdicts.alias_write.telling import written

_PLACE = re.compile(r"(?P<container>.*[^\d.])[.\[](?P<number>\d+)\]?\.(?P<attribute>\w+)")


class _Places(NamedTuple):
    """The modules of one container that have a tensor by the same attribute."""

    container: str
    attribute: str
    numbers: frozenset[str]


def one_buffer(history: History) -> Iterator[Claim]:
    """Yield one claim for each tensor that several modules of a container write as their own."""
    acts: dict[int, list[HeldAct]] = defaultdict(list)
    for act in history.get(Holding).all:
        acts[act.tensor].append(act)
    for tensor, some in acts.items():
        places = None if history.is_parameter(tensor) else _places(history, tensor)
        if places is not None and len(_writers(places, some)) > 1:
            yield _claim(history, some[0], places)


def _places(history: History, tensor: int) -> _Places | None:
    """Return the container with the most modules that have a tensor; None where one has it."""
    numbers: dict[tuple[str, str], dict[str, int]] = defaultdict(dict)
    for one in history.facts_of_names(tensor):
        place = _PLACE.fullmatch(one.name) if one.module and one.holder != UNKNOWN else None
        if place is not None:
            numbers[place["container"], place["attribute"]][place["number"]] = one.holder
    several = [(key, some) for key, some in numbers.items() if len(set(some.values())) > 1]
    return next((_Places(*key, frozenset(some)) for key, some in several), None)


def _writers(places: _Places, acts: list[HeldAct]) -> set[str]:
    """Return the modules that wrote the tensor as their own, as far as that was looked at."""
    found = set[str]()
    for act in acts:
        if act.by is None or steps_in(act.by.name) != ["self", f".{places.attribute}"]:
            continue
        others = (_PLACE.fullmatch(one.name) for one in act.others)
        beside = {one["number"] for one in others if one and one["attribute"] == places.attribute}
        if len(places.numbers - beside) == 1:
            found |= places.numbers - beside
    return found


def _claim(history: History, act: HeldAct, places: _Places) -> Claim:
    event, made = history.events[act.write], history.made_at(act.tensor)
    fillings = history.get(Holding).fillings
    stored = [*fillings.of_any("_buffers"), *fillings.of_any(places.attribute)]
    since = history.events[made].site if made >= 0 else event.site
    parts = {
        "container": named(places.container), "attribute": named(places.attribute),
        "n": len(places.numbers), "call": CallOf(act.write), "write": At(event.site),
    }  # fmt: skip
    return Claim(
        tensors=(act.tensor,),
        cause=("one buffer", places.container, places.attribute),
        site=since,
        operation=event.operation,
        severity="note",
        message=say(
            "The {n} modules of {container} have one tensor as their {attribute}: {call} at"
            " {write} writes it for one of them after the other, and each time for all.",
            **parts,
        ),
        story=(
            Step("made", since, say("it is made here, once")),
            *(Step("shared", one.site, say("each module keeps the tensor itself"))
              for one in stored[:1]),
            written(history, act.write),
        ),
        repair=Repair(say("If each is to have its own, let each make it, or keep a copy: .clone()"
                          " of what it is given.")),
        count=0,
    )  # fmt: skip
