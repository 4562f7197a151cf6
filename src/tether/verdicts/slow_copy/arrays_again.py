"""The arrays of NumPy that are made anew with the same bytes each time: part of `slow-copy`."""

from __future__ import annotations

from collections.abc import Container, Iterator

from tether.analysis.history import History
from tether.analysis.holding import Holding
from tether.facts import ArrayAgain
from tether.finding import At, Bytes, Claim, Repair, Segment, Step, Where, say
from tether.source.calls import copied_text
from tether.verdicts.slow_copy.on_device import LARGE, STEPS

FIX = (
    "Make it once and keep it, and take what is needed from that each time; astype(...,"
    " copy=False) copies only where the type is another."
)


def arrays_again(history: History, known: Container[object]) -> Iterator[Claim]:
    """Give each line of which the array behind what it has to do with is made again.

    Once for each array: it may be behind several. Not where that is known already, by sites.
    """
    told: set[object] = set()
    for fact in history.trace.arrays_again:
        at = history.position(fact.event)
        if at < 0 or fact.looked <= STEPS or fact.runs * fact.nbytes < LARGE:
            continue
        name = copied_text(
            history.events[at].operation, history.site_of(history.events[at]).expression
        )
        made = _assigned(history, at, name)
        if history.events[at].site not in known and made not in told:
            told |= {made} - {None}
            yield _claim(history, fact, at, name, made)


def _assigned(history: History, at: int, name: str) -> Where | None:
    """Return the one place of the text that gives a variable of a function its value."""
    site = history.site_of(history.events[at])
    if not name.isidentifier():
        return None
    fills = history.get(Holding).fillings.of(site.file, site.function, name)
    return fills[0].site if [one.how for one in fills] == ["assigned"] else None


def _claim(history: History, fact: ArrayAgain, at: int, name: str, made: Where | None) -> Claim:
    event = history.events[at]
    site: Where = event.site if made is None else made
    shown = (event.results or event.reads)[0]
    part = ", of which a part is taken," if fact.given < fact.nbytes else ""
    first = (
        []
        if made is None
        else [Step("made", made, say("it comes from here, in new memory each time"))]
    )
    used = "and {call} is given a part of it here" if part else "and {call} is given it here"
    return Claim(
        tensors=(shown.tensor,),
        cause=("array again", at),
        site=site,
        operation="" if made is not None else event.operation,
        message=say(
            "{name} ({line}) is made in a slow way: the array behind it{part} lies in new memory"
            " each time, and its {size} were the same each of the {looked} times that they were"
            " compared, {whole} in {runs} runs.",
            name=Segment(f"`{name}`", "name"), line=At(site), part=part, size=Bytes(fact.nbytes),
            looked=f"{fact.looked:,}", whole=Bytes(fact.nbytes * fact.runs), runs=f"{fact.runs:,}",
        ),
        story=(*first, Step("used", event.site, say(used, call=event.operation))),
        repair=Repair(say("{fix}", fix=FIX)),
        subject=name,
        count=fact.runs,
        bytes=fact.runs * fact.nbytes,
    )  # fmt: skip
