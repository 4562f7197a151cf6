"""Parameters on one memory that a conversion puts on memory of their own: part of `tie-lost`.

``b.data = a.data`` ties two Parameter objects by their memory alone, which `module.double()` or
`module.to(...)` does not know of: it converts each by itself.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from tether.analysis.history import History
from tether.facts import UNKNOWN, Operand
from tether.finding import At, CallOf, Claim, Code, Repair, Step, Tensor, say
from tether.operations.table import operation
from tether.regions import overlaps
from tether.verdicts.tie_lost.parted import read_after


class _Move(NamedTuple):
    """A call that put other memory under a tensor."""

    at: int
    before: Operand
    given: Operand


class _Pair(NamedTuple):
    """Two tensors that a line parted."""

    one: _Move
    other: _Move
    tied: int  # the call by which they came to share; UNKNOWN: it was not recorded


def converted_apart(history: History) -> Iterator[Claim]:
    """Find parameters that one conversion parted and that are trained apart: a note.

    To assign `.data` may also have been meant as a copy of the values, to begin with.
    """
    lines: dict[int, dict[int, list[_Move]]] = defaultdict(lambda: defaultdict(list))
    memory, tied = history.flow.memory, dict[int, int]()
    pairs: dict[int, list[_Pair]] = defaultdict(list)
    for at, event in history.events.where(lambda name: operation(name).rebinds):
        if len(event.reads) != 2 or event.raised:
            continue
        move = _Move(at, *event.reads)
        if event.inner == event.site:
            tied[move.before.tensor] = at
            continue
        here = lines[event.site][memory(move.before)]
        for earlier in here:
            if _parted(history, earlier, move):
                ends = [one.before.tensor for one in (earlier, move)]
                since = max(tied.get(one, _wrapped(history, one)) for one in ends)
                pairs[event.site].append(_Pair(earlier, move, since))
        here.append(move)
    for found in pairs.values():
        yield _claim(history, found)


def _parted(history: History, one: _Move, other: _Move) -> bool:
    """Whether two tensors had elements in common, have none now, and are both trained since."""
    a, b = one.before, other.before
    if a.tensor == b.tensor or not overlaps(a, b) or one.given.storage == other.given.storage:
        return False
    since = max(one.at, other.at)
    return all(
        any(step > since for step in history.steps_of(move.before.tensor))
        and read_after(history, move.given._replace(tensor=move.before.tensor), since)
        for move in (one, other)
    )


def _wrapped(history: History, tensor: int) -> int:
    """Return the program's own call that made a Parameter on memory that was there; or -1."""
    made = history.made_at(tensor)
    event = history.events[made] if made >= 0 else None
    own = event is not None and operation(event.operation).wraps and event.inner == event.site
    return made if own else UNKNOWN


def _claim(history: History, found: list[_Pair]) -> Claim:
    one, other, tied = found[0]
    parted = history.events[other.at]
    a, b, since = Tensor(one.before.tensor), Tensor(other.before.tensor), At(parted.site)
    story = [Step("parted", parted.site, say("{code} converts each by itself",
                  code=Code(parted.site)))]  # fmt: skip
    if tied != UNKNOWN:
        said = say("{call} puts both on one memory", call=CallOf(tied))
        story.insert(0, Step("shared", history.events[tied].site, said))
    return Claim(
        tensors=tuple({pair.other.before.tensor: None for pair in found}),
        cause=("converted", parted.site),
        site=parted.site,
        operation=parted.operation,
        severity="note",
        message=say(
            "{a} and {b} were two parameters on one memory, and have memory of their own since"
            " {since}: the steps train them apart.",
            a=a, b=b, since=since,
        ),
        story=tuple(story),
        repair=Repair(
            say("If they are to stay one, assign the Parameter itself ({b} = {a}), or tie them"
                " after {since}.", a=a, b=b, since=since)
        ),
        count=0,
        calls=(other.at,),
    )  # fmt: skip
