"""Custom Functions whose backward makes nothing of the gradient that it is given.

By the chain rule each gradient that backward returns is what it was given times a derivative. Where
no value of what was given comes into it, all that lies before the Function is moved in a direction
that has nothing to do with the loss. Told of what is known to the last call: each returned tensor
was made in this run, by calls that were heard. Of a Function that is given one number
throughout, as the last call of a loss is, it cannot be told: what it returns may be right for that
number. It is not right for numbers of both signs, nor for two that it is given in one pass, for
what has one shape.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import combinations
from typing import NamedTuple

from tether.analysis.dataflow import values_read
from tether.analysis.history import History
from tether.facts import BACKWARDS, Event, FunctionPass, SiteId
from tether.finding import At, Claim, Repair, Sentence, Step, say
from tether.operations.table import operation

APART = 0.01
"""Of the greater of two numbers, by how much the other differs for more than rounding."""

LEAST = 3
"""Runs of a backward that were looked at: one may be of a loss that is a sum."""


class Ignored(NamedTuple):
    """A Function whose backward does not use what it is given."""

    fact: FunctionPass  # its last run of those looked at
    runs: int  # that were looked at
    made: SiteId  # the last line that made what is returned
    numbers: tuple[float, ...]  # two that it was given throughout; nothing: it was given others


def incoming_ignored(history: History) -> Iterator[Ignored]:
    """Yield them."""
    functions: dict[tuple[SiteId, str], list[FunctionPass]] = defaultdict(list)
    for fact in history.trace.function_passes:
        functions[fact.site, fact.name].append(fact)
    for facts in functions.values():
        told, numbers = [one for one in facts if one.varied], tuple[float, ...]()
        if len(told) < LEAST:
            told, numbers = facts, _numbers_apart(history, facts)
        if (numbers or told is not facts) and all(_ignores(history, one) for one in facts):
            makers = [one for one in calls_of(history, told[-1]) if _makes(one, told[-1])]
            yield Ignored(told[-1], len(facts), makers[-1].site, numbers)


def _numbers_apart(history: History, facts: list[FunctionPass]) -> tuple[float, ...]:
    """Return two numbers that runs were given, and for which no one result can be right."""
    for one, other in combinations(facts if len(facts) >= LEAST else (), 2):
        for a, b in zip(one.numbers, other.numbers, strict=False):
            if a * b < 0 or (
                abs(a - b) > APART * max(abs(a), abs(b)) and _alike(history, one, other)
            ):
                return a, b
    return ()


def _alike(history: History, one: FunctionPass, other: FunctionPass) -> bool:
    """Whether two runs were of one pass, and returned tensors of the same shapes."""
    passes, shapes = set[int](), set[tuple[tuple[int, ...], ...]]()
    for run in (one, other):
        passes.add(history.next_pass(history.position(run.until) - 1))
        back = [history.operand_of(tensor) for tensor in run.returned]
        shapes.add(tuple(of.shape for of in back if of is not None))
    return len(passes) == len(shapes) == 1


def calls_of(history: History, fact: FunctionPass) -> list[Event]:
    """Return the calls of a run of a backward."""
    first, last = (history.trace.first_after(at) for at in (fact.at, fact.until))
    return list(history.events[first:last])


def _makes(event: Event, fact: FunctionPass) -> bool:
    back = fact.memories[len(fact.given) :]
    return any(one.storage in back for one in (*event.results, *event.writes))


def _ignores(history: History, fact: FunctionPass) -> bool:
    """Whether nothing of what a run was given came into what it returned, as far as is heard."""
    given = {int(one) for one in fact.memories[: len(fact.given)]}
    made, lost = set[int](), set(given)  # of other values; of those, or of values that are unknown
    for event in calls_of(history, fact):
        read = {int(event.reads[at].storage) for at in values_read(event)}
        if _is_unheard(event) and read & lost:
            return False
        filled = {int(one.storage) for one in (*event.results, *event.writes)} - given
        others = all(one in made or _is_older(history, one, fact) for one in read)
        if others and not read & lost and not _may_be_filled(event, fact):
            made, lost = made | filled, lost - filled
        else:
            made, lost = made - filled, lost | filled
    return made.issuperset(fact.memories[len(fact.given) :])


def _is_unheard(event: Event) -> bool:
    """Whether values go another way than into the results of a call."""
    row = operation(event.operation)
    return bool(row.leaves or row.enters or not row.carries or event.operation in BACKWARDS)


def _may_be_filled(event: Event, fact: FunctionPass) -> bool:
    """Whether what a call made is empty, or of one number, and may be filled by what is unheard."""
    blank = operation(event.operation).blank and not event.writes and not fact.filled
    return blank or _is_unheard(event)


def _is_older(history: History, storage: int, fact: FunctionPass) -> bool:
    life = history.trace.storages.get(storage)
    return life is not None and life.born <= fact.at


def claims(history: History) -> Iterator[Claim]:
    """Give one claim for each such line."""
    for found in incoming_ignored(history):
        yield _claim(found)


def _claim(found: Ignored) -> Claim:
    fact = found.fact
    return Claim(
        tensors=(),
        subject=fact.name,
        cause=("ignored", fact.site),
        site=fact.site,
        operation="apply",
        message=_of_numbers(found) if found.numbers else say(
            "The backward of {name} makes nothing of the gradient that it is given: in {n} runs"
            " that were looked at no value of it came into what is returned, at {made}, so what"
            " comes before {name} follows no loss.",
            name=fact.name, n=found.runs, made=At(found.made),
        ),
        story=(
            Step("made", fact.site, say("the backward of {name}", name=fact.name)),
            Step("made", found.made, say("what it returns is made here, of other values")),
        ),
        repair=Repair(say("Return the incoming gradient times the derivative: for one that passes"
                          " straight through, the incoming gradient itself.")),
        count=0,
    )  # fmt: skip


def _of_numbers(found: Ignored) -> Sentence:
    one, other = (f"{number:.4g}" for number in found.numbers)
    return say(
        "The backward of {name} makes nothing of the gradient that it is given: one run was given"
        " {one} throughout and another {other}, and in {n} runs that were looked at no value of it"
        " came into what is returned, at {made}. So {name} hands on neither its sign nor its size.",
        name=found.fact.name, one=one, other=other, n=found.runs, made=At(found.made),
    )  # fmt: skip
