"""Learning rates that no step, or hardly one, used: part of `values-lost`."""

from __future__ import annotations

from collections.abc import Iterator

from tether.analysis.history import History
from tether.analysis.surroundings import Surroundings
from tether.analysis.training.rates import (
    RateLost,
    RateUndone,
    ScheduleInVain,
    rates_lost,
    rates_undone,
    schedules_in_vain,
)
from tether.finding import At, Claim, Repair, Step, say


def claims(history: History) -> Iterator[Claim]:
    """Give one claim for each learning rate that no step, or hardly one, used."""
    yield from (_rate(history, one) for one in rates_lost(history))
    yield from (_undone(history, one) for one in rates_undone(history))
    yield from (_scheduled(history, one) for one in schedules_in_vain(history))


def _rate(history: History, found: RateLost) -> Claim:
    loaded, replaced = found.loaded.site, found.replaced.site
    kind = history.trace.optimizers[found.replaced.optimizer].kind
    parts = {
        "kind": found.replaced.kind, "before": f"{found.before:.3g}", "after": f"{found.after:.3g}"
    }  # fmt: skip
    return Claim(
        tensors=(),
        subject=f"learning rate of {kind}",
        cause=("rate", replaced),
        site=replaced,
        operation=found.replaced.kind,
        severity="note",
        message=say(
            "The learning rate {before}, which {loaded} loads, is lost before any step uses it:"
            " {kind} at {line} starts with {after}.",
            loaded=At(loaded), line=At(replaced), **parts,
        ),
        story=(
            Step("made", loaded, say("the optimizer loads its state, with the rate {before}",
                 **parts)),
            Step("written", replaced, say("{kind} sets the rate {after} as it is made", **parts)),
        ),
        repair=Repair(say("Make the scheduler first and then load both states; or tell it by"
                          " last_epoch at which step it goes on.")),
        count=0,
    )  # fmt: skip


def _undone(history: History, found: RateUndone) -> Claim:
    fact, made = found.fact, found.made
    optimizer = history.trace.optimizers[fact.optimizer]
    given = optimizer.added[fact.group] if fact.group < len(optimizer.added) else optimizer.site
    parts = {
        "kind": optimizer.kind, "group": fact.group, "scheduler": fact.kind,
        "rate": f"{fact.rate:.3g}", "line": At(fact.site), "n": found.used, "m": found.steps,
    }  # fmt: skip
    return Claim(
        tensors=tuple(one for one, group in optimizer.members() if group == fact.group),
        cause=("undone", fact.site, fact.optimizer),
        site=fact.site,
        operation=fact.kind,
        message=say(
            "The learning rate {rate} of {subject}, parameter group {group} of {kind}, is lost:"
            " {scheduler} had set it to zero, and its step at {line} sets zero again. {n} steps had"
            " the rate, and the {m} after them have zero.",
            **parts,
        ),
        story=(
            Step("held", given, say("{kind} gets the group", **parts)),
            *(() if made is None else
              (Step("made", made.site, say("{scheduler} takes its rate of zero to start from",
                    **parts)),)),
            *history.get(Surroundings).rates_stored(),
            Step("rate", fact.site, say("{scheduler} sets zero again", **parts)),
        ),
        repair=Repair(say("Give the group the rate that it is to have before {scheduler} is made,"
                          " and keep the group back by the schedule, or by requires_grad; or set"
                          " the scheduler's base_lrs with the rate.", **parts)),
        count=0,
    )  # fmt: skip


_IN_VAIN = {
    "never": (
        (
            "Nothing steps the {kind} that {line} makes: the learning rate of {optimizer} is the"
            " same in all of its {n} steps."
        ),
        "the optimizer steps, at one rate",
        "Call its step() once an epoch, or once a batch: what its numbers count.",
    ),
    "other": (
        (
            "The {kind} that {line} makes sets the learning rate of an optimizer that never steps:"
            " {n} steps at {stepped} are those of the {optimizer} made at {made}, of the same"
            " parameters."
        ),
        "the other optimizer steps, at a rate of its own",
        "Give {kind} the optimizer that steps.",
    ),
    "anew": (
        (
            "{line} makes a new {kind} for each of its steps, {n} times: each begins at the rate"
            " that the first began with, and none comes further than its first step."
        ),
        "the optimizer steps",
        "Make {kind} once, before the loop.",
    ),
    "short": (
        (
            "The {kind} that {line} makes has a course of {planned} steps and is given {taken}: it"
            " is {stepped} that runs {n} times, so most of the course never comes."
        ),
        "it runs {n} times",
        (
            "Step {kind} as often as it was planned for, or plan for as many steps as it is given:"
            " a plan in batches is stepped after each batch, one in epochs once an epoch."
        ),
    ),
    "again": (
        (
            "The {kind} that {line} makes lets the learning rate fall and rise again {n} times in"
            " {taken} steps: its course is shorter than the training."
        ),
        "the optimizer steps",
        (
            "If the rate is to fall once, plan for as many steps as {kind} is given: a plan in"
            " epochs is stepped once an epoch, one in batches is given their number."
        ),
    ),
}
"""What is said of a scheduler in vain, of the steps, and what to do."""


def _scheduled(history: History, found: ScheduleInVain) -> Claim:
    schedule, message = found.schedule, _IN_VAIN[found.why]
    optimizer = history.trace.optimizers[found.other]
    parts = {
        "kind": schedule.kind, "line": At(schedule.site), "n": found.steps,
        "optimizer": optimizer.kind, "made": At(optimizer.site), "stepped": At(found.stepped),
        "planned": schedule.planned, "taken": schedule.steps,
    }  # fmt: skip
    steps = [schedule.stepped] if schedule.stepped >= 0 else []
    return Claim(
        tensors=(),
        subject=schedule.kind,
        cause=("scheduled", schedule.site),
        site=schedule.site,
        operation=schedule.kind,
        severity="warning" if found.why in ("other", "short") else "note",
        message=say(message[0], **parts),
        story=(
            Step("made", schedule.site, say("{kind} is made", **parts)),
            *(Step("rate", one, say("it is stepped here")) for one in steps),
            Step("step", found.stepped, say(message[1], **parts)),
        ),
        repair=Repair(say(message[2], **parts)),
        assumes=(say("no line of the program that did not run steps it"),)
        if found.why == "never" else (),
        count=0,
    )  # fmt: skip
