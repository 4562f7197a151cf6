"""Tensors that a line writes with their own values."""

from __future__ import annotations

from collections.abc import Iterator

from tether.analysis.history import History
from tether.analysis.libraries import hands_out_state
from tether.analysis.sharing.holding import Holding
from tether.analysis.training.from_itself import FromItself, from_itself
from tether.facts import UNKNOWN, Event
from tether.finding import At, Claim, Code, Repair, Step, Tensor, named, say
from tether.operations.table import operation


def _claim(history: History, found: FromItself) -> Claim:
    event = history.events[found.write]
    parts = {"call": Code(event.site), "line": At(event.site), "n": found.times}
    message = say(
        "{call} at {line} changes nothing of {subject}: what it copies there is that very"
        " memory, each time.", **parts,
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
        repair=_repair(history, found, trained=trained) if not parted else Repair(
            say("Keep two: {call} copies the values, and no assignment is wanted.", **parts)
        ),
        count=found.times,
        calls=(found.write,),
    )  # fmt: skip


def _repair(history: History, found: FromItself, *, trained: bool) -> Repair:
    """Say what to do: what to keep, where the program kept the module's own memory."""
    event = history.events[found.write]
    parts = {"call": Code(event.site)}
    taken = history.events[found.taken] if found.taken >= 0 else None
    if taken is not None and _is_kept(history, found, taken):
        kept = {
            "name": named(history.site_of(taken).target),
            "line": At(taken.site),
            "code": Code(taken.site),
        }
        return Repair(say("{name} holds the model's own memory, and no earlier values. If they are"
                          " to be put back, keep `copy.deepcopy({code!s})` at {line}.", **kept),
                      "deep copy", taken.site)  # fmt: skip
    if found.stepped >= 0 and not trained:
        return Repair(say("Take the values from the tensor that {subject} is to follow, and not"
                          " from {subject} itself; or leave {call} out.", **parts))  # fmt: skip
    copied = taken is None or operation(taken.operation).copies
    if taken is not None and hands_out_state(history, taken) and taken.site != event.site:
        return Repair(say("Leave {call} out; or, if it is to load other values, look why none of"
                          " them came in.", **parts))  # fmt: skip
    if not found.blended or copied:
        return Repair(say("Leave {call} out: nothing changes by it.", **parts))
    return Repair(say("Leave {call} out, or take the values from another tensor.", **parts))


def _is_kept(history: History, found: FromItself, taken: Event) -> bool:
    """Whether a variable got what `state_dict` handed out, and kept it while others were.

    Handed out by the same line more often than it is loaded: it is to be the best of them.
    """
    if not hands_out_state(history, taken) or not history.site_of(taken).target:
        return False
    if taken.site == history.events[found.write].site:
        return False
    times = sum(
        one.tensor == taken.reads[0].tensor
        for at in history.on_storage(taken.reads[0])
        if (event := history.events[at]).site == taken.site
        for one in event.reads[:1]
    )
    return times != found.times or bool(found.stepped < 0 and found.times == 1)


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
