"""Terms that are cut off from what they were to teach, though they give gradients to something."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tether.analysis.cut_words import described
from tether.analysis.drawn_apart import DrawnApart, drawn_apart
from tether.analysis.history import History
from tether.analysis.vain_terms import VainTerm, vain_terms
from tether.facts import UNKNOWN
from tether.finding import At, Claim, Code, Repair, Step, Tensor, Tensors, say


def in_vain(history: History) -> Iterator[Claim]:
    """Give one claim for each term whose gradients no step uses.

    What an optimizer holds that never steps is not spoken of: the step is what is missing there.
    """
    for found in vain_terms(history):
        unstepped = [one for one in found.reached if not history.steps_of(one)]
        if history.held.isdisjoint(unstepped):
            yield _in_vain(history, found, certain=found.alone and not unstepped)


def _in_vain(history: History, found: VainTerm, *, certain: bool) -> Claim:
    cut = history.events[found.cut]
    return Claim(
        tensors=(found.tensor,),
        cause=("in vain", history.events[found.term.joined].site, found.term.place),
        site=cut.site,
        calls=(found.cut,),
        operation=cut.operation,
        severity="warning" if certain else "note",
        message=say(
            "{subject} is a term of the loss of {loss} and changes nothing: it gives gradients"
            f" only to {{reached}}, and {_unused(found)}. {{call}} cuts it off from {{missed}},"
            " which the step after {loss} trains.",
            **_parts(history, found),
        ),
        story=tuple(_story(history, found)),
        repair=Repair(
            say(
                "Keep the graph at {cut} where {x} is to train {missed}; where not, leave {x} out"
                " of the loss.",
                **_parts(history, found),
            )
        ),
        count=0,
    )


def _unused(found: VainTerm) -> str:
    if found.cleared == UNKNOWN:
        return "no step uses these gradients"
    return "{cleared} clears these gradients before a step uses them"


def _parts(history: History, found: VainTerm) -> dict[str, Any]:
    calls = {
        "cut": found.cut, "made": history.made_at(found.tensor), "used": found.term.joined,
        "loss": found.backward, "cleared": found.cleared,
    }  # fmt: skip
    sites = {name: history.events[at].site for name, at in calls.items() if at >= 0}
    return {
        **{name: At(site) for name, site in sites.items()},
        "x": Tensor(found.tensor),
        "call": Code(sites["cut"]),
        "reached": Tensors(found.reached),
        "missed": Tensors(found.missed),
    }


_TOLD = {
    "cut": "{call} gives values without a graph",
    "made": "{x} is computed from these values",
    "used": "{x} becomes a term of the loss",
    "loss": "backward starts from that loss",
    "cleared": "the gradients that {x} gave are cleared, unused",
}


def _story(history: History, found: VainTerm) -> Iterator[Step]:
    parts = _parts(history, found)
    for role, text in _TOLD.items():
        if role in parts:
            yield Step(role, parts[role].site, say(text, **parts))


def drawn(history: History) -> Iterator[Claim]:
    """Give one claim for each line whose draw teaches what it was drawn from nothing."""
    for found in drawn_apart(history):
        yield _drawn(history, found)


def _drawn(history: History, found: DrawnApart) -> Claim:
    events, cut = history.events, described(history, found.draw)
    site, loss = events[found.draw].site, events[found.loss].site
    return Claim(
        tensors=found.tensors,
        cause=("drawn", site),
        site=site,
        calls=(found.draw,),
        operation=events[found.draw].operation,
        severity="note",
        message=say(
            "{call} at {line} draws from {subject} without a graph. What the loss of {loss} makes"
            " of the drawn values gives {subject} no gradient; only its other terms do.",
            call=Code(site), line=At(site), loss=At(loss),
        ),
        story=(
            *cut.story,
            Step("used", events[found.entered].site, say("the drawn values go into the loss")),
            Step("loss", loss, say("backward starts from that loss")),
        ),
        repair=Repair(cut.fix._replace(template=f"{cut.fix.template}.")),
        count=history.times(found.draw),
    )  # fmt: skip
