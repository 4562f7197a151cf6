"""Elements that one call writes several times: an index with repetitions, a view with overlaps."""

from __future__ import annotations

from collections.abc import Iterator

from tether.analysis.history import History
from tether.facts import Collision
from tether.finding import CallOf, Claim, Repair, Step, Tensor, say
from tether.operations.table import operation
from tether.verdicts.values_lost.samples import is_drawn_index, puts_back, same_index


def claims(history: History) -> Iterator[Claim]:
    """Give one claim for each such line."""
    for fact in history.trace.collisions:
        at = history.position(fact.event)
        reads = history.events[at].reads if 0 <= at < len(history.events) else ()
        if reads:
            within = reads[0].storage == reads[-1].storage
            yield from [_overlapping(history, at, fact)] if within else _claim(history, at, fact)


def _claim(history: History, at: int, fact: Collision) -> Iterator[Claim]:
    event = history.events[at]
    written, update, drawn = event.reads[0], _updates(history, at), is_drawn_index(history, at)
    if drawn and puts_back(history, at, update):
        return
    yield Claim(
        tensors=(written.tensor,),
        cause=(event.site,),
        site=event.site,
        operation=event.operation,
        severity="warning" if update >= 0 else "note",
        message=say(
            "{lost} of the {given} values that {call} writes to {subject} are lost: the index names"
            " some elements more than once, and each keeps one value.",
            lost=str(fact.lost), given=str(fact.given), call=CallOf(at),
        ),
        story=(
            *_before(history, at, update),
            Step("written", event.site, say("{call} writes one value to each element",
                 call=CallOf(at))),
        ),
        repair=Repair(
            say("Use index_add_ or scatter_reduce_, which take every value into account:"
                " `{x!s}.index_add_(0, index, values)`.", x=Tensor(written.tensor))
            if update >= 0
            else say("Nothing, if any one of the values will do: the index is drawn at random, and"
                     " names some elements twice. torch.randperm(n)[:k] names none twice.")
            if drawn
            else say("Let the index name each element once, or say what becomes of several values:"
                     " index_add_ and scatter_reduce_ take all of them into account.")
        ),
        calls=(at,),
    )  # fmt: skip


def _overlapping(history: History, at: int, fact: Collision) -> Claim:
    event = history.events[at]
    values = "the values are a view of {x}"
    message = (
        "{lost} of the {given} values that {call} writes to {subject} are lost: they lie in the"
        " memory that it writes, and were overwritten before they were read."
    )
    if operation(event.operation).pointwise:
        values = "what it reads lies in the memory of {x}"
        message = (
            "{lost} of the {given} values that {call} gives {subject} are wrong: it reads elements"
            " that it writes as well, and some were overwritten before they were read."
        )
    written, made = event.reads[0].tensor, history.made_at(event.reads[-1].tensor)
    viewed = () if made < 0 else (
        Step("shared", history.events[made].site,
             say(values, x=Tensor(written))),
    )  # fmt: skip
    return Claim(
        tensors=(written,),
        cause=(event.site,),
        site=event.site,
        operation=event.operation,
        message=say(
            message,
            lost=str(fact.lost), given=str(fact.given), call=CallOf(at),
        ),
        story=(
            *viewed,
            Step("written", event.site, say("{call} reads and writes places that overlap",
                 call=CallOf(at))),
        ),
        repair=Repair(say("Copy the values first, with .clone() at the end of the right side, or"
                          " make a new tensor: by the operator without =, torch.roll, torch.cat.")),
        calls=(at,),
    )  # fmt: skip


def _updates(history: History, at: int) -> int:
    """Return the call that read at the same index what the written values are an update of.

    Between the two lie calls that compute each element from the elements in its place.
    """
    event = history.events[at]
    waiting = [edge.source for edge in history.flow.edges[at] if edge.operand == event.reads[-1]]
    seen: set[int] = set()
    while waiting:
        maker = waiting.pop()
        if maker < 0 or maker in seen:
            continue
        seen.add(maker)
        made = history.events[maker]
        if operation(made.operation).picks:
            if made.reads[0].storage == event.reads[0].storage and same_index(history, made, event):
                return maker
        elif operation(made.operation).pointwise:
            waiting += [edge.source for edge in history.flow.edges[maker]]
    return -1


def _before(history: History, at: int, update: int) -> Iterator[Step]:
    """Yield where the old values were read, or else where the new ones were computed."""
    written, values = history.events[at].reads[0], history.events[at].reads[-1]
    made = history.made_at(values.tensor)
    if update >= 0:
        said = say("{call} reads {x} at the same index", call=CallOf(update),
                   x=Tensor(written.tensor))  # fmt: skip
        yield Step("read", history.events[update].site, said)
    elif made >= 0:
        yield Step("made", history.events[made].site, say("the values are computed here"))
