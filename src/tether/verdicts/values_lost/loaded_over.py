"""Loaded parameters over which other values are written, unused: part of `values-lost`."""

from __future__ import annotations

from collections.abc import Iterator

from tether.analysis.history import History
from tether.analysis.training.loaded_over import (
    LoadedOver,
    LoadedUnused,
    loaded_over,
    loaded_unused,
)
from tether.finding import At, Claim, Repair, Step, Tensor, say


def claims(history: History) -> Iterator[Claim]:
    """Give one claim for each state that never reached what it was for, or was written over."""
    for over in loaded_over(history):
        yield _over(history, over)
    for unused in loaded_unused(history):
        yield _unused(history, unused)


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
