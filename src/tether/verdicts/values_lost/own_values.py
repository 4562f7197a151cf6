"""Tensors that a line writes with their own values."""

from __future__ import annotations

from collections.abc import Iterator

from tether.analysis.history import History
from tether.analysis.sharing.holding import Holding
from tether.analysis.training.from_itself import FromItself, from_itself
from tether.facts import UNKNOWN, Event
from tether.finding import At, Claim, Code, Repair, Step, Tensor, say


def _claim(history: History, found: FromItself) -> Claim:
    event = history.events[found.write]
    parts = {"call": Code(event.site), "line": At(event.site), "n": found.times}
    message = say(
        "{call} at {line} changes nothing of {subject}: what it copies there, {n} times in all, is"
        " that very memory.", **parts,
    ) if not found.blended else say(
        "What {call} at {line} writes into {subject} is computed from the same memory alone, by"
        " another name: no value of another tensor comes in, at any of {n} times.", **parts,
    )  # fmt: skip
    parted = found.before != UNKNOWN
    if parted:
        message = say(
            "{call} at {line} copies {subject} to itself, {n} times up to the end. Before, it"
            " copied between two: they have become one since.", **parts,
        )  # fmt: skip
    taken = [history.events[found.taken].site] if found.taken >= 0 else []
    stepped = [history.events[found.stepped].site] if found.stepped >= 0 else []
    trained = not history.held.isdisjoint(found.tensors)
    return Claim(
        tensors=found.tensors,
        cause=("own", event.site),
        site=event.site,
        operation=event.operation,
        severity="warning" if stepped and (parted or not trained) else "note",
        message=message,
        story=(
            *(_made_one(history, event) if parted else ()),
            *(Step("read", one, say("what is written is taken from {x} itself",
                   x=Tensor(found.tensors[0]))) for one in taken),
            Step("written", event.site, say("{x} is given its own values",
                 x=Tensor(found.tensors[0]))),
            *(Step("step", one, say("between two of these calls this step trains others"))
              for one in stepped if not trained),
        ),
        repair=Repair(say("Keep two: {call} copies the values, and no assignment is wanted."
                          if parted else
                          "Take the values from what {subject} is to follow; or leave {call} out.",
                          **parts)),
        count=found.times,
    )  # fmt: skip


def _made_one(history: History, event: Event) -> Iterator[Step]:
    """Yield the line that gave what a load is called on the name of another object."""
    called_on, loads, _ = history.site_of(event).expression.partition(".load_state_dict")
    filled = history.get(Holding).fillings.anywhere(called_on) if loads else []
    plain = [one for one in filled if one.site.expression.replace(".", "").isidentifier()]
    if len(plain) == 1:
        said = say("from {code} on `{name}` is the other one", code=Code(plain[0].site),
                   name=called_on)  # fmt: skip
        yield Step("shared", plain[0].site, said)


def claims(history: History) -> Iterator[Claim]:
    """Give one claim for each such line."""
    for found in from_itself(history):
        yield _claim(history, found)
