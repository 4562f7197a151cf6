"""Results that a custom Function keeps on its own ctx: part of `graph-retained`."""

from __future__ import annotations

from collections.abc import Iterator

from tether.analysis.copies.already_there import nbytes
from tether.analysis.gradients.on_ctx import results_on_ctx
from tether.analysis.history import History
from tether.analysis.sharing.holding import Holding
from tether.facts import Operand, Site
from tether.finding import At, Bytes, Claim, Repair, Step, say

LARGE = 1 << 20
"""Bytes of all results from which it is a warning: less is seldom missed before it is collected."""

MOST_CALLS = 1_000
"""Calls before a Function's that are looked through for the one of its forward."""


def on_ctx(history: History) -> Iterator[Claim]:
    """Yield one claim for each line that calls such a Function."""
    for calls in results_on_ctx(history).values():
        at, result = calls[0]
        event, size = history.events[at], sum(nbytes(one) for _, one in calls)
        kept = _assigned(history, at, result)
        where = kept if kept is not None else event.site
        yield Claim(
            tensors=(result.tensor,),
            cause=("on ctx", event.site),
            site=where,
            operation="apply",
            severity="warning" if size >= LARGE else "note",
            message=say(
                "The result {subject} is kept on the ctx of the call that made it ({line}), each"
                " of {n} times: the result holds its graph, the graph holds the ctx, and the ctx"
                " holds the result. {size} of results, and what their graphs saved, stay until"
                " Python's garbage collector runs.",
                line=At(where), n=len(calls), size=Bytes(size),
            ),
            story=(
                Step("kept", where, say("the result is an attribute of its own ctx")),
                Step("made", event.site, say("the Function is called here")),
            ),
            repair=Repair(say("Keep it by ctx.save_for_backward(...), which makes no circle.")),
            count=len(calls),
            bytes=size,
        )  # fmt: skip


def _assigned(history: History, at: int, result: Operand) -> Site | None:
    """Return the line of a Function's forward that puts the result on its ctx; None: not known."""
    maker = next(
        (
            history.site_of(history.events[before])
            for before in range(at - 1, max(-1, at - MOST_CALLS), -1)
            if history.inside(history.events[before], "function") >= 0
            and any(one.storage == result.storage for one in history.events[before].results)
        ),
        None,
    )
    if maker is None:
        return None
    fills = history.get(Holding).fillings.attributes(*maker.scope)
    named = [one for one in fills if one.site.expression == maker.target]
    return (named or fills)[0].site if len(named or fills) == 1 else None
