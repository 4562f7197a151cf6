"""One tensor as the learning rate of several groups, or of several optimizers: of `alias-write`.

A scheduler is given one optimizer and writes the rate of each of its groups in place. Nothing is
said where all groups were to have the same, where the program writes the tensor itself and no
scheduler does, or where each optimizer's own scheduler comes to the rate that it steps with.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator

from tether.analysis.history import History
from tether.facts import RateOfAnother, SharedRate, SiteId
from tether.finding import At, Claim, Repair, Sentence, Step, Tensor, say

_ALIKE = 1e-6
"""Factors of a rate that differ by less, relatively, are one."""


def one_rate(history: History) -> Iterator[Claim]:
    """Yield one claim for each optimizer, and for each line that makes a rate of several."""
    for fact in history.trace.shared_rates:
        yield _of_groups(history, fact)
    of_one: dict[tuple[SiteId, ...], list[RateOfAnother]] = defaultdict(list)
    for other in history.trace.rates_of_others:
        of_one[_made(history, other), *sorted(_sites(history, other))].append(other)
    told = set[SiteId]()
    for (made, *_), facts in of_one.items():
        if made not in told:
            told.add(made)
            yield _of_optimizers(history, made, facts)


# -- groups of one optimizer -----------------------------------------------------------------------


def _of_groups(history: History, fact: SharedRate) -> Claim:
    optimizer = history.trace.optimizers[fact.optimizer]
    made, since, first = At(optimizer.site), At(fact.site), [f"{one:.3g}" for one in fact.before]
    factor = _factor(fact)
    words = (
        "Groups {groups} of {kind} ({made}) have one tensor as their learning rate: the scheduler"
        " writes {rates} to it at {since}, one for each group, and the last is what all of them"
        " have."
        if factor is None
        else "Groups {groups} of {kind} ({made}) have one tensor as their learning rate: the"
        " scheduler multiplies it by {factor} at {since}, once for each group, and so takes it from"
        " {first} to {last}."
    )
    return Claim(
        tensors=(),
        cause=("rate", optimizer.site),
        site=optimizer.site,
        operation="lr",
        subject=f"{optimizer.kind}.param_groups",
        message=say(
            words,
            groups=", ".join(map(str, fact.groups)), kind=optimizer.kind, made=made, since=since,
            rates=", ".join(f"{one:.3g}" for one in fact.rates), factor=f"{factor or 0:.3g}",
            first=(first or [""])[0], last=f"{fact.rates[-1]:.3g}",
        ),
        story=(
            Step("shared", optimizer.site, say("each group is given the same tensor")),
            Step("written", fact.site, say("written once for each group")),
        ),
        repair=Repair(say("Give each group a learning rate of its own at {made}: a number, or"
                          " \"lr\": rate.clone().", made=made)),
    )  # fmt: skip


def _factor(fact: SharedRate) -> float | None:
    """Return by what each write multiplied what the one before had left; None: they did not."""
    went_on = all(
        math.isclose(left, found, rel_tol=_ALIKE)
        for left, found in zip(fact.rates, fact.before[1:], strict=False)
    )
    if not fact.before or not went_on or not all(fact.before):
        return None
    factors = [rate / before for rate, before in zip(fact.rates, fact.before, strict=True)]
    alike = all(math.isclose(one, factors[0], rel_tol=_ALIKE) for one in factors)
    return factors[0] if alike else None


# -- several optimizers ----------------------------------------------------------------------------


def _made(history: History, fact: RateOfAnother) -> SiteId:
    """Return the line that made the tensor; that of the optimizer, where it was not heard."""
    made = history.made_at(fact.tensor)
    return history.events[made].site if made >= 0 else _sites(history, fact)[0]


def _sites(history: History, fact: RateOfAnother) -> tuple[SiteId, SiteId]:
    mine, theirs = (history.trace.optimizers[one] for one in (fact.optimizer, fact.of))
    return mine.site, theirs.site


def _of_optimizers(history: History, made: SiteId, facts: list[RateOfAnother]) -> Claim:
    fact, rate = facts[0], Tensor(facts[0].tensor)
    both = sorted({one for each in facts for one in _sites(history, each)})
    wrote = dict.fromkeys(each.site for each in facts)
    return Claim(
        tensors=(fact.tensor,),
        cause=("rate of several", made),
        site=made,
        operation="lr",
        severity="note" if _written_by_program(history, fact) else None,
        message=say(
            "{rate} ({line}) is the learning rate of {both}, one tensor for both: {told}, and"
            " {other} steps with {given} instead of {without}{end}.",
            rate=rate, line=At(made), both=_both(history, fact), told=_told(history, facts),
            other="the other" if len(both) == 1 else "the second", end=_at_last(fact),
            without=f"{fact.rates[0]:.3g}", given=f"{fact.rates[1]:.3g}",
        ),
        story=(
            Step("made", made, say("{rate} is made here", rate=rate)),
            *(Step("shared", one, say("an optimizer is given {rate} itself, and no copy",
                   rate=rate)) for one in both),
            *(Step("written", one, say("a scheduler writes {rate} in place", rate=rate))
              for one in wrote),
        ),
        repair=Repair(say("Give each optimizer a learning rate of its own: a number, or"
                          " `lr={rate!s}.clone()`.", rate=rate)),
    )  # fmt: skip


def _both(history: History, fact: RateOfAnother) -> Sentence:
    """Return what the optimizers are called: the one whose scheduler writes before the other."""
    mine, theirs = (history.trace.optimizers[one] for one in (fact.optimizer, fact.of))
    if mine.site == theirs.site:
        return say("two optimizers ({line})", line=At(mine.site))
    return say(
        "{one} ({line}) and of {other} ({place})",
        one=theirs.kind, line=At(theirs.site), other=mine.kind, place=At(mine.site),
    )  # fmt: skip


def _told(history: History, facts: list[RateOfAnother]) -> Sentence:
    """Return who writes the rate."""
    write, sites = At(facts[0].site), _sites(history, facts[0])
    if facts[0].scheduled or len({one.of for one in facts}) > 1:
        return say("the schedulers of both write it ({write})", write=write)
    whose = "the one" if sites[0] == sites[1] else "the first"
    return say(f"the scheduler of {whose} writes it at {{write}}", write=write)


def _at_last(fact: RateOfAnother) -> Sentence:
    """Return what the optimizer's last step had, if that is another rate."""
    _, given, last = fact.rates
    return say(", at last with {last}", last=f"{last:.3g}") if last != given else say("")


def _written_by_program(history: History, fact: RateOfAnother) -> bool:
    """Whether lines of the program's own write the tensor too, which knows that it is one."""
    operand, made = history.operand_of(fact.tensor), history.made_at(fact.tensor)
    writes = () if operand is None else history.writes_to(operand, made)
    return any(history.events[at].inner == history.events[at].site for at in writes)
