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
from tether.facts import SiteId
from tether.finding import At, Claim, Repair, Sentence, Step, Tensor, say

MOST_LINES = 3
"""Lines that write over what was loaded which one claim names."""


def claims(history: History) -> Iterator[Claim]:
    """Give one claim for each state that never reached what it was for, or was written over."""
    for over in loaded_over(history):
        yield _over(history, over)
    for unused in loaded_unused(history):
        yield _unused(history, unused)


_ONE = (
    "{lines} writes",
    "{lines} is to run for new modules alone, keep whether it has run",
)
_MANY = (
    "{lines} write",
    "{lines} are to run for new modules alone, keep whether they have run",
)


def _unused(history: History, found: LoadedUnused) -> Claim:
    loaded, lines = history.events[found.loaded].site, _lines(history, found.written)
    write, run = _ONE if len(lines) == 1 else _MANY
    parts = {"loaded": At(loaded), "lines": _named(lines)}
    return Claim(
        tensors=found.tensors,
        cause=("unused", loaded, lines[0]),
        site=lines[0],
        operation=history.events[found.written[0]].operation,
        severity="note",
        message=say(
            f"What {{loaded}} loads into {{subject}} is lost: {write} other values over it before"
            " anything has read it.",
            **parts,
        ),
        story=(
            Step("loaded", loaded, say("the values are loaded")),
            *(Step("written", one, say("others are written over them")) for one in lines),
        ),
        repair=Repair(say(f"Nothing, if the loaded values were not wanted. If {run} in a buffer,"
                          " which the state has with it.", **parts)),
        count=0,
        calls=found.written,
    )  # fmt: skip


def _lines(history: History, calls: tuple[int, ...]) -> list[SiteId]:
    """Return the sites of some calls, one for each line, in the order in which they ran."""
    sites = [history.events[at].site for at in calls]
    rows = {history.site(one).row: one for one in reversed(sites)}
    return list(reversed(rows.values()))[:MOST_LINES]


def _named(lines: list[SiteId]) -> Sentence:
    """Return some lines in words: "line 3, line 4 and line 5"."""
    parts = {f"n{number}": At(one) for number, one in enumerate(lines)}
    names = [f"{{{one}}}" for one in parts]
    return say(" and ".join([", ".join(names[:-1]), names[-1]] if names[1:] else names), **parts)


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
        calls=(found.loaded,),
    )  # fmt: skip
