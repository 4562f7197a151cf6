"""What the claims of `alias-write` have in common: the line of the write, and the places' lines."""

from __future__ import annotations

from tether.analysis.history import History
from tether.analysis.holding import HeldAct, Holding, root_of
from tether.finding import CallOf, Code, Step, say


def written(history: History, write: int) -> Step:
    """Return the step of a story at which the shared memory is written."""
    return Step("written", history.events[write].site, say("written by {call}", call=CallOf(write)))


def second_name(history: History, act: HeldAct) -> tuple[Step, ...]:
    """Return the line that gave what was written the name by which it was written, if there is."""
    name = "" if act.by is None else root_of(act.by.name)
    return tuple(
        Step("shared", fill.site, say("from {code} on `{name}` is the same tensor",
             code=Code(fill.site), name=name))
        for fill in history.get(Holding).bound(act)
    )  # fmt: skip
