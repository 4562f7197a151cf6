"""Memory of which NumPy arrays that show little of it are all that is left."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from tether.analysis.copies.idle import LEAST_BYTES, LEAST_RUNS
from tether.analysis.history import History
from tether.analysis.sharing.fillings import growth_of
from tether.facts import ArrayKept
from tether.finding import At, Bytes, Claim, Code, Repair, Step, say
from tether.source.names import joint_name


def claims(history: History) -> Iterator[Claim]:
    """Find memory of which NumPy arrays that show little of it are all that is left."""
    lines: dict[int, list[ArrayKept]] = defaultdict(list)
    for fact in history.trace.arrays_kept:
        at = history.position(fact.event)
        if at >= 0 and (fact.until > fact.since or _at_the_end(history, fact)):
            lines[history.events[at].site].append(fact)
    for found in lines.values():
        if len(found) >= LEAST_RUNS or any(_at_the_end(history, one) for one in found):
            yield _arrays(history, found)


def _at_the_end(history: History, fact: ArrayKept) -> bool:
    """Whether an array was there at the end, after further calls."""
    ended = history.trace.ended
    return history.whole and fact.until == ended > fact.event + 1


def _arrays(history: History, found: list[ArrayKept]) -> Claim:
    """Say what the arrays of one line keep, and which line puts them into their container."""
    exports = [history.events[history.position(one.event)] for one in found]
    event, names = exports[0], [one.name for one in found]
    tensors = tuple(int(one.reads[0].tensor) for one in exports if one.reads)
    name = joint_name(names)
    nbytes = sum(one.nbytes for one in found)
    return Claim(
        tensors=tensors,
        cause=("arrays", event.site),
        site=event.site,
        operation=event.operation,
        severity=None if nbytes >= LEAST_BYTES else "note",
        subject=name,
        message=say(
            _ARRAYS if len(found) > 1 else _ARRAY,
            name=name, shown=Bytes(sum(one.shown for one in found)), size=Bytes(nbytes),
            code=Code(event.site), n=len(found), line=At(event.site),
        ),
        story=(
            Step("made", event.site, say("the array made here has the whole memory of the tensor")),
            *_taking(history, name, tensors),
        ),
        repair=Repair(say("Keep a copy of the part that is used: .copy() of it.")),
        count=len(found),
        bytes=nbytes,
    )  # fmt: skip


_ARRAY = (
    "`{name}` is an array that shows {shown} of the memory of a tensor, {size}, that {code}"
    " ({line}) gave out, and nothing else is left of it."
)


_ARRAYS = (
    "`{name}` has arrays that show {shown} of the memory of {n} tensors, {size}, that {code}"
    " ({line}) gave out, and nothing else is left of them."
)


def _taking(history: History, name: str, tensors: Iterable[int]) -> Iterator[Step]:
    """Yield the line that puts an array into its container."""
    grows = growth_of(history, name, tensors) if "[" not in name else None
    if grows is not None:
        yield Step("grows", grows, say("`{name}` takes it here", name=name))
