"""Sums that go wrong by the memory they are put together in: part of `alias-write`.

``mean = states[0]; for one in states[1:]: mean += one`` makes no third thing: the first summand is
the sum. Where a later line reads it beside the others, it was to be itself. And where two names of
what is summed are one memory (tied weights in a ``state_dict``), a line that goes through the names
adds the one summand twice.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tether.analysis.history import History
from tether.analysis.sharing.acts import Acts
from tether.analysis.sharing.holding import first_word, written_text
from tether.analysis.sharing.shared_memory import Sharing, Touch, fills_anew
from tether.facts import Event, Operand, SiteId
from tether.finding import At, CallOf, Claim, Repair, Step, Tensor, say
from tether.operations.table import operation
from tether.verdicts.alias_write.telling import written

_ASIDE = ("step", "backward", "hook", "function", "closure")


class _Addition(NamedTuple):
    """A call of the program's own that adds one tensor to another, in place."""

    at: int
    target: Operand
    summand: Operand


def summands(history: History) -> Iterator[Claim]:
    """Yield the claims, one function for each law."""
    lines: dict[SiteId, list[_Addition]] = defaultdict(list)
    for at, event in history.events.where(lambda name: operation(name).blends):
        own = event.inner == event.site and not event.raised
        if own and len(event.reads) > 1 and history.inside(event, *_ASIDE) < 0:
            lines[event.site].append(_Addition(at, *event.reads[:2]))
    for added in lines.values():
        yield from _added_twice(history, added)
        yield from _sum_in_a_summand(history, added)


# -- one summand, added twice ----------------------------------------------------------------------


def _added_twice(history: History, added: list[_Addition]) -> Iterator[Claim]:
    """Find a line that adds one memory to another by two pairs of tensors that live together."""
    known: dict[tuple[object, ...], _Addition] = {}
    for one in added:
        before = known.setdefault((*_elements(one.target), *_elements(one.summand)), one)
        if _is_same_sum(history, before, one):
            yield _added_twice_claim(history, before, one)
            return
        known[(*_elements(one.target), *_elements(one.summand))] = one


def _elements(one: Operand) -> tuple[object, ...]:
    return (one.storage, *one[3:6])


def _is_same_sum(history: History, before: _Addition, now: _Addition) -> bool:
    """Whether two sums are of four tensors on two memories, of which the summand did not change."""
    if before.target.tensor == now.target.tensor or before.summand.tensor == now.summand.tensor:
        return False
    died, memory = history.get(Acts).died, history.flow.memory
    if min(died(before.target.tensor), died(before.summand.tensor)) <= now.at:
        return False
    if max(history.made_at(one.tensor) for one in (now.target, now.summand)) > before.at:
        return False  # made for the second sum: a window that is taken again
    of_summand = history.get(Sharing).writes.get(memory(now.summand))
    of_target = history.get(Sharing).writes.get(memory(now.target))
    between = [one for one in (*of_summand, *of_target) if before.at < one.at < now.at]
    return not between and memory(now.summand) != memory(now.target)


def _added_twice_claim(history: History, before: _Addition, now: _Addition) -> Claim:
    event = history.events[now.at]
    x, y = Tensor(before.target.tensor), Tensor(now.target.tensor)
    made = history.made_at(now.target.tensor)
    shared = () if made < 0 else (
        Step("shared", history.events[made].site, say("{x} and {y} are one memory from here on",
             x=x, y=y)),
    )  # fmt: skip
    return Claim(
        tensors=(before.target.tensor, now.target.tensor),
        cause=("added twice", event.site),
        site=event.site,
        operation=event.operation,
        message=say(
            "{x} and {y} are one memory, and so are the two that {call} at {line} adds to them:"
            " the same values are added to it twice, once by each name.",
            x=x, y=y, call=CallOf(now.at), line=At(event.site),
        ),
        story=(*shared, written(history, before.at), written(history, now.at)),
        repair=Repair(say("Begin with copies, .clone(), so that each name has a sum of its own; or"
                          " leave out the second name.")),
        calls=(now.at,),
    )  # fmt: skip


# -- a sum in one of its summands ------------------------------------------------------------------


class _SumInSummand(NamedTuple):
    """A sum that lies in one of its summands, and a line that reads that beside another one."""

    target: Operand
    summand: Operand
    last: int  # the last call that made the sum
    mean: bool  # it was divided, or scaled, after that
    read: int


def _sum_in_a_summand(history: History, added: list[_Addition]) -> Iterator[Claim]:
    """Find the first summand, made as the others were, that has become the sum of all."""
    targets: dict[tuple[object, ...], list[_Addition]] = defaultdict(list)
    for one in added:
        if _are_alike(history, one):
            targets[one.target.tensor, *_elements(one.target)].append(one)
    found = [each for some in targets.values() if (each := _read_as_summand(history, some))]
    if found:
        yield _sum_claim(history, found)


def _are_alike(history: History, one: _Addition) -> bool:
    """Whether a line made both of what a call adds, the target first, neither of the other.

    Where it calls both by an index of one thing, it says what it writes.
    """
    events, memory = history.events, history.flow.memory
    first, other = (history.made_at(each.tensor) for each in (one.target, one.summand))
    if not 0 <= first < other < one.at or memory(one.target) == memory(one.summand):
        return False
    alike = events[first].site == events[other].site
    of_it = any(memory(each) == memory(one.target) for each in events[other].reads)
    site = history.site_of(events[one.at])
    target = written_text(site, events[one.at])
    summand = site.expression.partition("=")[2] if "=" in site.expression else ""
    return alike and not of_it and (first_word(target) != first_word(summand.strip()))


def _read_as_summand(history: History, added: list[_Addition]) -> _SumInSummand | None:
    """Return a sum of several whose first summand a line reads, and another one likewise."""
    last, target = added[-1].at, added[0].target
    scaled = _scaled(history, target, last)
    several = {one.summand.tensor for one in added}
    if len(several) < 2 and scaled < 0:
        return None
    done = max(last, scaled)
    mine = _reads_until_filled(history, target, done)
    for one in added:
        theirs = _reads_until_filled(history, one.summand, done)
        common = [at for site, at in mine.items() if site in theirs and at not in theirs.values()]
        if common:
            return _SumInSummand(target, one.summand, done, scaled >= 0, min(common))
    return None


def _scaled(history: History, target: Operand, since: int) -> int:
    """Return the next write to a sum, where it goes on from it and reads no other; or -1."""
    at = next((at for at in history.writes_to(target, since) if at > since), -1)
    event: Event | None = history.events[at] if at >= 0 else None
    if event is None or event.inner != event.site or fills_anew(event) or len(event.reads) > 1:
        return -1
    return at


def _reads_until_filled(history: History, shown: Operand, since: int) -> dict[SiteId, int]:
    """Return the lines that read some memory after a moment, until it is filled anew."""
    found, memory = history.get(Sharing), history.flow.memory(shown)
    until = _filled_anew(history, found.writes.get(memory), since)
    touches, sites = found.reads_of(memory), dict[SiteId, int]()
    for one in touches[bisect_right(touches, since, key=lambda each: each.at) :]:
        event = history.events[one.at]
        if one.at >= until:
            break
        if history.inside(event, *_ASIDE) < 0:
            sites.setdefault(event.site, one.at)
    return sites


def _filled_anew(history: History, writes: Sequence[Touch], since: int) -> int:
    later = (one.at for one in writes if one.at > since)
    return next((at for at in later if fills_anew(history.events[at])), len(history.events))


def _owner(history: History, tensor: int) -> int:
    """Return what a tensor shows the memory of, where that has a name of its own."""
    shown = (tensor, *(link.source for link in history.get(Sharing).chain(tensor)))
    return next((one for one in reversed(shown) if history.names_of(one)), tensor)


def _sum_claim(history: History, found: list[_SumInSummand]) -> Claim:
    one = min(found, key=lambda each: each.read)
    event, read = history.events[one.last], history.events[one.read]
    owner, another = (_owner(history, each.tensor) for each in (one.target, one.summand))
    x, other = Tensor(owner), Tensor(another)
    made = history.events[history.made_at(one.target.tensor)].site
    return Claim(
        tensors=tuple(dict.fromkeys((owner, one.target.tensor))),
        cause=("sum in a summand", event.site),
        site=event.site,
        operation=event.operation,
        severity=None if one.mean else "note",
        message=say(
            "{x} is one of the summands and the {sum} of all: {call} at {line} writes the {sum}"
            " into it. {read} reads it as it reads {other}, which the sum has left as it was.",
            x=x, other=other, sum="mean" if one.mean else "sum", call=CallOf(one.last),
            line=At(event.site), read=At(read.site),
        ),
        story=(
            Step("shared", made, say("the sum begins with {x} itself", x=x)),
            written(history, one.last),
            Step("read", read.site, say("{x} is read, as it is now", x=x)),
        ),
        repair=Repair(say("Begin with a copy: `{x!s}.clone()`; of a model's, copy.deepcopy(...)"
                          " of its state_dict().", x=x)),
        count=len(found),
        calls=(one.last,),
    )  # fmt: skip
