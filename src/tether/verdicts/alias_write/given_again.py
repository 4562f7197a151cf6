"""Memory from which a training begins, and from which another one begins again.

``vector_to_parameters(start, model.parameters())`` puts parameters on the memory of `start`, and
``Embedding.from_pretrained(torch.from_numpy(table), freeze=False)`` on that of `table`: the steps
write both. Where the same source is given to parameters again, and the training begins anew (the
optimizers from before are done, one that is made later steps), it begins from what the earlier one
left.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from tether.analysis.history import History
from tether.analysis.sharing.shared_memory import Sharing
from tether.facts import Event, Operand, SiteId
from tether.finding import At, CallOf, Claim, Code, Repair, Step, Tensor, say
from tether.operations.table import operation


class _Giving(NamedTuple):
    """A call that puts a parameter on memory which it is given."""

    at: int
    parameter: int
    value: Operand
    chain: tuple[int, ...]  # what is given, and what that is a view of

    @property
    def source(self) -> int:
        """The tensor that owns the memory, or the first that showed an array's."""
        return self.chain[-1]


class GivenAgain(NamedTuple):
    """Memory that a training began from, and that another one is to begin from."""

    first: _Giving
    again: _Giving
    step: int  # the last step of the first training that wrote it


def _found(history: History) -> Iterator[GivenAgain]:
    """Yield the first such memory of each line that gives it again."""
    told, places = set[SiteId](), _givings(history)
    every = [one for givings in places.values() for one in givings]
    for givings in places.values():
        for first, again in pairwise(givings):
            site = history.events[again.at].site
            step = None if site in told else _step_between(history, first, again)
            if step is None or not _begins_anew(history, first, again):
                continue
            between = (one for one in every if first.at < one.at < again.at)
            if not any(_in_turn(history, one, again) for one in between):
                told.add(site)
                yield GivenAgain(first, again, step)


def _givings(history: History) -> dict[tuple[int, int], list[_Giving]]:
    """Return the calls by the memory that they give and where in it, in order."""
    found: dict[tuple[int, int], list[_Giving]] = defaultdict(list)
    chosen = history.events.where(lambda name: operation(name).rebinds or operation(name).wraps)
    for at, event in chosen:
        giving = _giving(history, at, event)
        if giving is not None:
            place = history.flow.memory(giving.value), giving.value.offset
            found[place].append(giving)
    return found


def _giving(history: History, at: int, event: Event) -> _Giving | None:
    """Return what a call gives; None where that is a parameter's own, or of no one's before."""
    if event.raised or not event.reads:
        return None
    value = event.reads[-1]
    wraps = operation(event.operation).wraps
    parameter = event.results[0].tensor if wraps and event.results else event.reads[0].tensor
    sharing = history.get(Sharing)
    chain = (value.tensor, *(int(link.source) for link in sharing.chain(value.tensor)))
    own = any(history.is_parameter(one) or one in history.held for one in chain)
    if own or not history.is_parameter(parameter) or len(event.reads) > 2 - wraps:
        return None
    return _Giving(at, parameter, value, chain)


def _step_between(history: History, first: _Giving, again: _Giving) -> int | None:
    """Return the last step between two givings of one source that wrote its memory."""
    one, other = history.made_at(first.source), history.made_at(again.source)
    entered = all(at >= 0 and operation(history.events[at].operation).enters for at in (one, other))
    if first.source != again.source and not entered:
        return None
    writes = (at for at in history.writes_to(first.value, first.at) if at < again.at)
    steps = [at for at in writes if history.events[at].operation == "step"]
    return steps[-1] if steps else None


def _begins_anew(history: History, first: _Giving, again: _Giving) -> bool:
    """Whether no optimizer that had stepped in between steps later, and one made later does."""
    stepped = [(history.position(one.at), one.optimizer) for one in history.steps]
    before = {number for at, number in stepped if first.at < at < again.at}
    after = {number for at, number in stepped if at > again.at}
    made = [history.position(history.trace.optimizers[number].at) for number in after]
    return bool(after) and before.isdisjoint(after) and min(made) > again.at


def _in_turn(history: History, one: _Giving, other: _Giving) -> bool:
    """Whether one call gave other memory, of the same shape, at the line of another.

    Who keeps a weight for each of several trains them all.
    """
    lines = {history.events[giving.at].site for giving in (one, other)}
    memories = {history.flow.memory(giving.value) for giving in (one, other)}
    return len(lines) == 1 and len(memories) > 1 and one.value.shape == other.value.shape


def given_again(history: History) -> Iterator[Claim]:
    """Yield one claim for each line that gives such memory again."""
    for found in _found(history):
        yield _claim(history, found)


def _claim(history: History, found: GivenAgain) -> Claim:
    first, again, step = (history.events[at] for at in (found.first.at, found.again.at, found.step))
    source, array = found.first.source, found.first.source != found.again.source
    parts = {
        "x": Tensor(source), "p": Tensor(found.again.parameter), "line": At(again.site),
        "before": At(first.site), "step": CallOf(found.step), "at": At(step.site),
    }  # fmt: skip
    text = "torch.tensor(...)` of the array." if array else "{x!s}.clone()`."
    return Claim(
        tensors=(found.again.parameter, *found.first.chain),
        cause=("given again", again.site),
        site=again.site,
        operation=again.operation,
        message=say(
            "{line} gives {p} the memory of {x} to begin from, as {before} did for the training"
            " before: {step} at {at} has written it since, so this one begins with what the earlier"
            " one left.", **parts,
        ),
        story=(
            *_entered(history, found.first),
            Step("shared", first.site, say("the memory of {x} becomes that of {first}", **parts,
                 first=Tensor(found.first.parameter))),
            Step("written", step.site, say("{step} writes it", **parts)),
            Step("read", again.site, say("it becomes that of {p}", **parts)),
        ),
        repair=Repair(say("Give {p} a copy of its own: `" + text, **parts)),
    )  # fmt: skip


def _entered(history: History, giving: _Giving) -> Iterator[Step]:
    """Yield the line that showed an array's memory as a tensor."""
    made = history.made_at(giving.source)
    if made >= 0 and operation(history.events[made].operation).enters:
        site = history.events[made].site
        yield Step("made", site, say("{code} shows the array's own memory", code=Code(site)))
