"""Errors that another process had raised: what it had taken along that requires grad."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tether.analysis.history import History
from tether.analysis.surroundings import CALLED, WaysThere
from tether.facts import UNKNOWN, Inherited, Operand, Raised, TensorId
from tether.finding import At, Claim, Repair, Sentence, Step, Tensor, say
from tether.operations.table import operation
from tether.verdicts.tie_error.messages import GRAPHED, entry_of
from tether.verdicts.tie_error.story import MOST, Story

_LAST = re.compile(r"^.*?([^.]*)$", re.S)  # the last part of a name: `codes` of `self.codes`
_LOADER = "Caught "  # how the message begins that a data loader raises for its worker


def at_home(history: History, fact: Raised) -> Raised:
    """Return an error of a library's thread, by which a tensor was to be sent, at the line sending.

    A queue packs what it is given later, in a thread of its own.
    """
    at = history.position(fact.event)
    if at < 0 or fact.site == UNKNOWN or history.trace.sites[fact.site].user:
        return fact
    event = history.events[at]
    if operation(event.operation).leaves != "process":
        return fact
    sent = (
        other
        for one in event.reads
        for at in history.reads_of(one.tensor)
        if (other := history.events[at]).operation == event.operation and not other.raised
    )
    return next((fact._replace(site=one.site) for one in sent), fact)


class _TakenAlong:
    """A tensor that requires grad and that a forked process computed with, and where it did."""

    def __init__(self, operand: Operand, fact: Inherited) -> None:
        self.operand = operand
        self.site = fact.site


def claim_of_another(history: History, fact: Raised) -> Iterator[Claim]:
    """Explain an error about ties that another process had raised."""
    entry = entry_of(fact.elsewhere)
    if entry is None:
        return
    taken = _taken(history, fact) if entry.which in GRAPHED else []
    here = fact._replace(message=fact.elsewhere)
    story = Story(history, here, tuple(one.operand for one in taken))
    *made, raised = story.told()
    made += [step for one in taken for step in _asked_from(history, one.operand)]
    yield Claim(
        tensors=tuple(one.operand.tensor for one in taken),
        cause=(fact.site, fact.elsewhere),
        site=fact.site,
        operation="call",
        severity="error" if fact.fatal else "note",
        message=say(
            "{process} failed, and {line} got its error: {why}",
            process=_process(fact), line=At(fact.site), why=_why(fact, taken),
        ),
        story=(*made, *_steps(fact, taken), raised),
        repair=_repair(fact, taken),
        subject="" if taken else "the call",
    )  # fmt: skip


def _taken(history: History, raised: Raised) -> list[_TakenAlong]:
    """Return what forked processes had computed with: computed tensors, else leaves."""
    found = []
    for fact in history.trace.inherited:
        operand = _on(history, fact, raised.at) if fact.graded else None
        if operand is not None:
            found.append(_TakenAlong(operand, fact))
    computed = [one for one in found if not one.operand.leaf]
    return (computed or found)[:MOST]


def _on(history: History, fact: Inherited, until: int) -> Operand | None:
    """Return the tensor on a storage that was taken; else the first that was there to the end."""
    if fact.tensor != UNKNOWN:
        return history.operand_of(fact.tensor)
    lying = sorted(history.last_on([fact.storage]).tolist(), key=history.made_at)
    operands = (history.operand_of(one) for one in lying if _lives(history, one, until))
    return next((one for one in operands if one is not None and one.requires_grad), None)


def _lives(history: History, tensor: int, until: int) -> bool:
    life = history.trace.tensors.get(TensorId(tensor))
    return life is None or life.died == UNKNOWN or life.died >= until


def _asked_from(history: History, operand: Operand) -> Iterator[Step]:
    """Yield the line that keeps what a function of the user's made, else the one that called it."""
    above = history.get(WaysThere).above(max(history.made_at(operand.tensor), 0))
    name = _LAST.sub(r"\1", history.name_of(operand.tensor))
    keeps = [one for one in above if _LAST.sub(r"\1", history.site(one).target) == name]
    for one in (keeps or above)[:1]:
        yield Step("called", one, CALLED)


def _process(fact: Raised) -> str:
    loader = fact.message.startswith(_LOADER)
    return "a worker of the data loader" if loader else "another process"


def _why(fact: Raised, taken: list[_TakenAlong]) -> Sentence:
    text = _first(fact.elsewhere)
    if not taken:
        sample = say("a sample has a tensor that requires grad. " if _of_a_sample(fact) else "")
        return say('{sample}PyTorch says "{text}".', sample=sample, text=text)
    site = taken[0].site
    where = say("") if site == UNKNOWN else say(" at {line}", line=At(site))
    return say(
        'a forked process computed{where} with {x}, and {x} requires grad. PyTorch says "{text}".',
        x=Tensor(taken[0].operand.tensor), where=where, text=text,
    )  # fmt: skip


def _of_a_sample(fact: Raised) -> bool:
    """Whether a data loader's own lines met a tensor with a graph, and no line of the user's."""
    entry = entry_of(fact.elsewhere)
    graphed = entry is not None and entry.which in GRAPHED
    return graphed and fact.message.startswith(_LOADER) and not fact.lines


def _steps(fact: Raised, taken: list[_TakenAlong]) -> Iterator[Step]:
    """Yield the lines in the other process: of what it took along, and those of its traceback."""
    told = set()
    for one in taken:
        if one.site != UNKNOWN:
            told.add(one.site)
            x = Tensor(one.operand.tensor)
            yield Step("used", one.site, say("a forked process computes with {x}", x=x))
    for site in fact.lines[::-1]:
        if site not in told:
            yield Step("elsewhere", site, say("the other process was at this line"))


def _repair(fact: Raised, taken: list[_TakenAlong]) -> Repair | None:
    if not taken:
        said = say("Make samples under torch.no_grad(), or detach them.")
        return Repair(said) if _of_a_sample(fact) else None
    operand = taken[0].operand
    if operand.leaf:
        fix = say(
            "What is computed from {x} in another process needs no graph there: compute it under"
            " torch.no_grad(), or detach it.", x=Tensor(operand.tensor),
        )  # fmt: skip
    else:
        fix = say(
            "Compute {x} under torch.no_grad(), or keep `{x!s}.detach()` in its place.",
            x=Tensor(operand.tensor),
        )
    return Repair(fix)


def _first(text: str) -> str:
    line = text.split("\n", 1)[0].rstrip(".")
    return line if len(line) <= 160 else line[:159] + "…"
