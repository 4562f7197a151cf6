"""States that were saved, loaded or put in place for a while, and lost: part of `values-lost`."""

from __future__ import annotations

from collections.abc import Iterator

from tether.analysis.history import History
from tether.analysis.loaded_over import LoadedOver, LoadedUnused, loaded_over, loaded_unused
from tether.analysis.never_put_back import NeverKept, NeverPutBack, never_kept, never_put_back
from tether.analysis.states_left import (
    LeftBehind,
    LoadedInVain,
    StateOfNone,
    left_behind,
    loaded_in_vain,
    states_of_none,
)
from tether.finding import At, Claim, Repair, Step, Tensor, say

SEVERAL = 3
"""Evaluations after which it is no accident that what was copied was not put back."""


def of_states(history: History) -> Iterator[Claim]:
    """Give one claim for each state that never reached what it was for, or was written over."""
    yield from (_left(history, one) for one in left_behind(history))
    yield from (_of_none(one) for one in states_of_none(history))
    yield from (_loaded(history, one) for one in loaded_in_vain(history))
    yield from (_over(history, one) for one in loaded_over(history))
    yield from (_unused(history, one) for one in loaded_unused(history))
    yield from (_kept(history, one) for one in never_put_back(history))
    yield from (_averaged(history, one) for one in never_kept(history))


def _left(history: History, found: LeftBehind) -> Claim:
    fact = found.fact
    scheduler = fact.kind != history.trace.optimizers[fact.optimizer].kind
    parts = {"kind": fact.kind, "line": At(fact.site), "saved": At(fact.saved), "n": fact.steps}
    missing = "the state which {saved} handed out with them, after {n} steps, was not loaded"
    saved, repair = "the state of {kind} after {n} steps is handed out", "Load it"
    if fact.filed:
        missing = "{saved} saved them after {n} steps, without what {kind} had kept for them"
        saved = "the parameters are saved after {n} steps, without the state of {kind}"
        repair = "Save the state_dict() of the optimizer too, and load it"
    given = () if found.given < 0 else (
        Step("written", found.given, say("the parameters get the values that they had then")),
    )  # fmt: skip
    return Claim(
        tensors=(),
        subject=f"state of {fact.kind}",
        cause=("left", fact.site, fact.kind),
        site=fact.site,
        operation="load_state_dict",
        severity="warning" if found.goes_on and not fact.filed else "note",
        message=say(
            "{kind}, made at {line}, begins anew for parameters that have the values of a saved"
            f" training: {missing}.",
            **parts,
        ),
        story=(
            Step("saved", fact.saved, say(saved, **parts)),
            *given,
            Step("made", fact.site, say("{kind} is made, as the other was, and given no state",
                 **parts)),
        ),
        repair=Repair(say(f"{repair}: {{what}}.load_state_dict(...), once the {{what}} is made.",
                          what="scheduler" if scheduler else "optimizer")),
        count=0,
    )  # fmt: skip


def _of_none(found: StateOfNone) -> Claim:
    given, idle, stepped = found.given.site, found.idle.site, found.stepped.site
    parts = {"kind": found.idle.kind, "given": At(given), "idle": At(idle), "made": At(stepped),
             "step": At(found.step), "n": found.steps}  # fmt: skip
    return Claim(
        tensors=(),
        subject=f"state of {found.idle.kind}",
        cause=("of none", given),
        site=given,
        operation="state_dict",
        message=say(
            "The state of {kind} that {given} hands out is empty: the one made at {idle} never"
            " steps, and {n} steps were those of another, made at {made} of the same parameters,"
            " whose state nothing asks for.",
            **parts,
        ),
        story=(
            Step("held", idle, say("{kind} is made, and never steps", **parts)),
            Step("held", stepped, say("another {kind} of the same parameters is made", **parts)),
            Step("step", found.step, say("the other one steps")),
            Step("saved", given, say("the state of the first is handed out")),
        ),
        repair=Repair(say("Hand out the state of the {kind} that steps.", **parts)),
        count=0,
    )  # fmt: skip


def _loaded(history: History, found: LoadedInVain) -> Claim:
    fact, made = found.loaded, found.made
    steps = [one for one in history.steps if one.optimizer == found.number]
    parts = {"kind": made.kind, "loaded": At(fact.site), "made": At(made.site),
             "step": At(steps[0].site)}  # fmt: skip
    return Claim(
        tensors=(),
        subject=f"state of {made.kind}",
        cause=("loaded", fact.site, made.site),
        site=fact.site,
        operation="load_state_dict",
        severity="warning" if found.alike else "note",
        message=say(
            "The state that {loaded} loads into {kind} is lost: before a step used it, {made} makes"
            " another {kind} of the same parameters, which steps at {step} and was given no state.",
            **parts,
        ),
        story=(
            Step("loaded", fact.site, say("the state is loaded")),
            Step("made", made.site, say("another {kind} of these parameters is made", **parts)),
            Step("step", steps[0].site, say("the other one steps, from no state")),
        ),
        repair=Repair(say("Load the state into the optimizer that steps: after {made}.", **parts)),
        count=0,
    )  # fmt: skip


def _unused(history: History, found: LoadedUnused) -> Claim:
    loaded, written = (history.events[at].site for at in (found.loaded, found.written))
    parts = {"loaded": At(loaded), "written": At(written)}
    return Claim(
        tensors=found.tensors,
        cause=("unused", loaded, written),
        site=written,
        operation=history.events[found.written].operation,
        severity="note",
        message=say(
            "What {loaded} loads into {subject} is lost: {written} writes other values over it"
            " before anything has read it.",
            **parts,
        ),
        story=(
            Step("loaded", loaded, say("the values are loaded")),
            Step("written", written, say("others are written over them")),
        ),
        repair=Repair(say("Nothing, if the loaded values were not wanted. If {written} is to run"
                          " for new modules alone, keep whether it has run in a buffer, which the"
                          " state has with it.", **parts)),
        count=0,
    )  # fmt: skip


def _over(history: History, found: LoadedOver) -> Claim:
    loaded, copied, step, written = (
        history.events[at].site for at in (found.loaded, found.copied, found.step, found.written)
    )
    parts = {"loaded": At(loaded), "copied": At(copied), "step": At(step), "written": At(written)}
    return Claim(
        tensors=found.tensors,
        cause=("over", loaded, written),
        site=loaded,
        operation="load_state_dict",
        message=say(
            "What {loaded} loads into {subject} is lost: {step} steps a copy that was made of it"
            " before the load, at {copied}, and {written} writes that copy over what was loaded.",
            **parts,
        ),
        story=(
            Step("made", copied, say("{x} is copied, before the load", x=Tensor(found.tensors[0]))),
            Step("loaded", loaded, say("the state is loaded into {x}, and not into the copy",
                 x=Tensor(found.tensors[0]))),
            Step("step", step, say("the copy is stepped")),
            Step("written", written, say("the copy is written over what was loaded")),
        ),
        repair=Repair(say("Load the state before the copies are made, or give them the loaded"
                          " values right after the load: copy.copy_(parameter).")),
        count=0,
    )  # fmt: skip


def _averaged(history: History, found: NeverKept) -> Claim:
    written, evaluated = (history.events[at].site for at in (found.written, found.evaluated))
    parts = {"written": At(written), "step": At(found.step), "n": found.times}
    return Claim(
        tensors=found.tensors,
        cause=("averaged", written),
        site=written,
        operation=history.events[found.written].operation,
        severity="note",
        message=say(
            "The trained values of {subject} are lost, {n} times: {written} writes others over"
            " them, made of earlier ones, to compute without gradients, no copy of them is there,"
            " and the step at {step} goes on from the others.",
            **parts,
        ),
        story=(
            Step("written", written, say("other values are written over the trained ones")),
            Step("used", evaluated, say("a call without gradients computes with the others")),
            Step("step", found.step, say("the training goes on from the others")),
        ),
        repair=Repair(say("Copy the trained values before {written}, and write them back after the"
                          " evaluation; or evaluate another model, with the others loaded.",
                          **parts)),
        count=found.times,
    )  # fmt: skip


def _kept(history: History, found: NeverPutBack) -> Claim:
    copied, written, evaluated = (
        history.events[at].site for at in (found.copied, found.written, found.evaluated)
    )
    parts = {"copied": At(copied), "written": At(written), "step": At(found.step)}
    return Claim(
        tensors=found.tensors,
        cause=("kept", copied, written),
        site=written,
        operation=history.events[found.written].operation,
        severity="warning" if found.whole and found.times >= SEVERAL else "note",
        message=say(
            "The trained values of {subject}, which {copied} copies, are lost: {written} writes"
            " others over them to compute without gradients, nothing ever reads a copy, and the"
            " step at {step} goes on from the others.",
            **parts,
        ),
        story=(
            Step("saved", copied, say("the trained values are copied")),
            Step("written", written, say("other values are written over them")),
            Step("used", evaluated, say("a call without gradients computes with the others")),
            Step("step", found.step, say("the training goes on from the others")),
        ),
        repair=Repair(say("Write the copies back into the parameters after the evaluation, before"
                          " {step}.", **parts)),
        assumes=(say("no line of the program that did not run puts them back"),),
        count=found.times,
    )  # fmt: skip
