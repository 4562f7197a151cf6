"""A parameter with two places that is refused: by an optimizer, or by a call of its module."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tether.analysis.history import History
from tether.analysis.surroundings import Surroundings, at_line
from tether.facts import Operand, Raised
from tether.finding import Step, Tensor, say
from tether.source.reading import gathered


def given_twice(history: History, fact: Raised, at: int) -> tuple[Operand, ...]:
    """Return the parameters of a refused group that are in it twice, or in one given before it."""
    event = history.events[at]
    if event.operation != "add_param_group" or not event.raised:
        return ()
    twice = {
        tensor
        for one in history.trace.given_twice
        if one.site == fact.site and one.at <= fact.at
        for tensor in one.tensors
    }
    return tuple({one.tensor: one for one in event.reads if one.tensor in twice}.values())


_TIED = re.compile(r"multiple values for keys \[(.+?)\], which are tied")
_KEY = re.compile(r"'([^']+)'")


def tied_by_names(history: History, fact: Raised) -> tuple[Operand, ...]:
    """Return the parameter that has all the names of which `functional_call` says it is tied."""
    said = _TIED.search(fact.message)
    keys = _KEY.findall(said[1]) if said is not None else []
    for tensor in dict.fromkeys(one.tensor for one in history.trace.names):
        names = history.names_of(tensor)
        operand = history.operand_of(tensor)
        if keys and operand and all(any(_ends(name, key) for name in names) for key in keys):
            return (operand,)
    return ()


def _ends(name: str, key: str) -> bool:
    return name == key or name.endswith(f".{key}")


def told_of_groups(history: History, operand: Operand) -> Iterator[Step]:
    """Yield the lines by which several modules came to have a parameter."""
    x = Tensor(operand.tensor)
    for one in history.trace.reassigned:
        if one.new == operand.tensor:
            yield Step("shared", one.site, say("a second place is given {x} here", x=x))


def told_of_gathering(history: History, at: int) -> Iterator[Step]:
    """Yield the lines that gather what an optimizer is given at a call."""
    place = history.site_of(history.events[at])
    for line in gathered(history.get(Surroundings).source(place.file), place):
        yield Step(
            "held", at_line(place, line), say("what the optimizer is given is gathered here")
        )
