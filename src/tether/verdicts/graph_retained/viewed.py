"""Graphs that are held by views which have none: taken where no gradient was recorded.

What `x[0]` gives under `torch.no_grad()` requires no grad, and is a view all the same: its `_base`
is `x`, with the graph of `x`. `x.detach()` has no base (seen of torch 2.9 to 2.13).
"""

from __future__ import annotations

from dataclasses import replace

from tether.analysis.history import History
from tether.analysis.sharing.fillings import put_at
from tether.analysis.sharing.shared_memory import Sharing
from tether.facts import GRAD_ON, UNKNOWN
from tether.finding import At, Bytes, Claim, Code, Repair, Step, say
from tether.operations.table import operation


def held_by_views(history: History, claim: Claim) -> Claim:
    """Return a claim about graphs that nothing named holds: of the views that do, if they do."""
    views = _views(history, set(claim.tensors))
    if len(views) < len(claim.tensors) - 1:  # the variable of the last step holds its own
        return claim
    view, at = views[0]
    taken, put = history.events[at].site, put_at(history, view)
    name = history.name_of(view).strip("`")
    size = claim.bytes or 0
    kept = () if put is None else (Step("grows", put, say("each view is kept here")),)
    return replace(
        claim,
        message=say(
            "`{name}` of {steps} steps is still alive with its graphs, {size} or {each} more each"
            " time: `{view}` is a view of it, taken under no_grad at {line}, and a view holds all"
            " of what it is a view of.",
            name=claim.subject, steps=claim.count, size=Bytes(size),
            each=Bytes(size // max(claim.count, 1)), view=name, line=At(taken),
        ),
        story=(
            *claim.story,
            Step("shared", taken, say("{code} is a view of it, graph and all", code=Code(taken))),
            *kept,
        ),
        repair=Repair(
            say("Copy what is kept at {line}: `{code!s}.clone()`. A copy holds neither graph nor"
                " base.", line=At(taken), code=Code(taken)),
        ),
    )  # fmt: skip


def _views(history: History, tensors: set[int]) -> list[tuple[int, int]]:
    """Return each living tensor whose base is one of some tensors, and the call that took it."""
    found, held = [], set[int]()
    for tensor, life in history.trace.tensors.items():
        if life.died != UNKNOWN or tensor in tensors:
            continue
        for link in history.get(Sharing).chain(tensor):
            event = history.events[link.at]
            if operation(event.operation).outside or event.grad_mode == GRAD_ON:
                break
            if link.source in tensors - held:
                held.add(link.source)
                found.append((tensor, link.at))
                break
    return found
