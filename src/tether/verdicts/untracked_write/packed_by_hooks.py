"""Values that a hook on saved tensors kept without a copy, written before backward asked for them.

Without such a hook PyTorch would have refused the pass. With it nothing is checked: ``unpack``
gives what was written, and the gradient is computed with that.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple

from tether.analysis.gradients.graph import Graph
from tether.analysis.history import History
from tether.facts import UNKNOWN, KeptByHook, Moment, Operand, SiteId, TensorId
from tether.finding import At, CallOf, Claim, Repair, Step, Tensor, say
from tether.regions import may_overlap

_NESTED = 8
"""Events that may be recorded between the packing and the call that it happened in."""


class _WrittenWhilePacked(NamedTuple):
    """A saved value that was written while a hook kept its memory."""

    at: int  # the call that saved it
    tensor: TensorId
    write: int
    backward: int
    hook: SiteId


def packed_by_hooks(history: History) -> Iterator[Claim]:
    """Yield one claim for each line that wrote what a line had saved."""
    groups: dict[tuple[SiteId, SiteId], list[_WrittenWhilePacked]] = {}
    for fact in history.trace.kept_by_hooks:
        found = _found(history, fact, history.get(_EndedPasses).at(fact.unpacked))
        if found is not None:
            sites = tuple(history.events[one].site for one in (found.write, found.at))
            groups.setdefault((sites[0], sites[1]), []).append(found)
    for group in groups.values():
        yield _claim(history, group[0], len({one.write for one in group}))


def _found(history: History, fact: KeptByHook, backward: int) -> _WrittenWhilePacked | None:
    saver = _saver(history, fact) if backward != UNKNOWN else None
    if saver is None or saver[0] not in history.get(Graph).behind(backward):
        return None
    at, saved = saver
    until = history.position(fact.unpacked)
    for write in history.writes_to(saved, at):
        if write >= until:
            return None
        if any(_reaches(one, saved, fact) for one in history.events[write].writes):
            return _WrittenWhilePacked(at, saved.tensor, write, backward, fact.hook)
    return None


def _reaches(written: Operand, saved: Operand, fact: KeptByHook) -> bool:
    """Whether a write is one that PyTorch would have refused the pass for.

    Running statistics are saved and written with no new version: no backward reads them.
    """
    counted = 0 <= fact.version < written.version
    return counted and written.storage == saved.storage and may_overlap(written, saved)


class _EndedPasses:
    """The backward passes that came to their end."""

    def __init__(self, history: History) -> None:
        spans = (one for one in history.trace.spans if one.kind == "backward")
        self._history = history
        self._spans = sorted(spans, key=lambda one: one.first)
        self._firsts = [one.first for one in self._spans]

    def at(self, moment: Moment) -> int:
        """Return the pass that a moment was in; -1: in none, or in one that raised."""
        number = bisect_right(self._firsts, moment) - 1
        span = self._spans[number] if number >= 0 else None
        if span is None or span.event == UNKNOWN or not span.first <= moment <= span.last:
            return UNKNOWN
        at = self._history.position(span.event)
        return UNKNOWN if at < 0 or self._history.events[at].raised else at


def _saver(history: History, fact: KeptByHook) -> tuple[int, Operand] | None:
    """Return the call that saved a value, and the value as that had it."""
    first = history.position(fact.packed)
    for at in range(first, min(first + _NESTED, len(history.events))) if first >= 0 else ():
        event = history.events[at]
        shown = [one for one in (*event.results, *event.reads) if one.storage == fact.storage]
        if shown and event.kind >= 0:
            return at, shown[0]._replace(
                offset=fact.offset, shape=fact.shape, strides=fact.strides, dtype=fact.dtype
            )
    return None


def _claim(history: History, found: _WrittenWhilePacked, count: int) -> Claim:
    saver, write = (history.events[at].site for at in (found.at, found.write))
    name = history.site(found.hook).function.rpartition(".")[2]
    name = "the hook" if name == "<lambda>" else f"the hook `{name}`"
    used = history.events[found.backward].site
    parts = {
        "x": Tensor(found.tensor), "saver": CallOf(found.at), "saved": At(saver),
        "call": CallOf(found.write), "write": At(write), "name": name,
        "hook": At(found.hook), "used": At(used),
    }  # fmt: skip
    return Claim(
        tensors=(found.tensor,),
        cause=("packed", write, saver),
        site=write,
        operation=history.events[found.write].operation,
        severity="warning",
        message=say(
            "The backward at {used} was computed with overwritten values: {saver} at {saved} saved"
            " {x} for it, {name} at {hook} keeps its memory and no copy, and {call} at"
            " {write} wrote it in between. PyTorch does not check what a hook keeps.",
            **parts,
        ),
        story=(
            Step("saved", saver, say("{saver} saves {x} for backward", **parts)),
            Step("shared", found.hook, say("{name} packs it, and makes no copy", **parts)),
            Step("written", write, say("written by {call}", **parts)),
            Step("used", used, say("backward is given the written values")),
        ),
        repair=Repair(
            say("Let {name} keep a copy (`tensor.detach().clone()`; of an array `.copy()`), or"
                " use a call that makes a new tensor at {write}.", **parts)
        ),
        count=count,
        calls=(found.write,),
    )  # fmt: skip
