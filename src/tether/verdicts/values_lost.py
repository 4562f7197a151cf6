"""`values-lost`: an index that names an element several times kept one of the values for it."""

from __future__ import annotations

from collections.abc import Iterator

from tether.analysis.history import History
from tether.facts import Collision, Event
from tether.finding import CallOf, Claim, Repair, Step, Tensor, say
from tether.operations.table import operation
from tether.verdicts.base import Example, Expected, Verdict

PAGE = """
# values-lost

## What it says
An assignment through an index was given several values for one element. Each element kept one of
them, and the others are nowhere: the index names some elements more than once.

## Why it matters
`total[index] += values` reads the old values, adds, and writes the sums back. Where two values fall
on one element the second sum replaces the first, so a part is missing from the result, and its
gradient is zero. Nothing raises.

## Known problems
It is a warning where the values that were written are an update of those that the same index read:
then each of them was to count. Elsewhere it is a note, since the last value may be the one that is
meant. Looked at are the 1st, 2nd, 4th, 8th... write of a line, on the CPU.

## Example
```python
total[index] += values
```

## Use instead
```python
total.index_add_(0, index, values)
```

## Fix safety
It changes the result: never applied by itself.
"""


def check(history: History) -> Iterator[Claim]:
    """Give one claim for each line that lost values."""
    for fact in history.trace.collisions:
        at = history.position(fact.event)
        if 0 <= at < len(history.events) and history.events[at].reads:
            yield _claim(history, at, fact)


def _claim(history: History, at: int, fact: Collision) -> Claim:
    event = history.events[at]
    written = event.reads[0]
    update = _updates(history, at)
    return Claim(
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
            else say("Let the index name each element once, or say what becomes of several values:"
                     " index_add_ and scatter_reduce_ take all of them into account.")
        ),
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
            if made.reads[0].storage == event.reads[0].storage and _same_index(
                history, made, event
            ):
                return maker
        elif operation(made.operation).pointwise:
            waiting += [edge.source for edge in history.flow.edges[maker]]
    return -1


def _same_index(history: History, read: Event, written: Event) -> bool:
    """Whether a read and a write have the same tensors as index, or are one `x[...] += y`."""
    index = _index(read)
    one = history.site_of(read).position == history.site_of(written).position
    return index == _index(written) and (bool(index) or one)


def _index(event: Event) -> tuple[int, ...]:
    """Return the tensors that are the index of a call."""
    last = -1 if operation(event.operation).places else None
    return tuple(one.tensor for one in event.reads[1:last])


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


VERDICT = Verdict(
    slug="values-lost",
    severity="warning",
    summary="an index that names an element several times kept one of the values for it",
    page=PAGE,
    check=check,
    damage="wrong result",
    examples=(
        Example(
            "Messages summed up by +=",
            """import torch

total = torch.zeros(3)
index = torch.tensor([0, 0, 2])
values = torch.tensor([1.0, 2.0, 3.0])
total[index] += values
print(total)
""",
            (Expected("values-lost", "total", 6),),
        ),
        Example(
            "A list as index: an update, and values from other elements",
            """import torch

total, other = torch.zeros(3), torch.arange(3.0)
total[[0, 0, 2]] += torch.tensor([1.0, 2.0, 3.0])
other[[0, 0]] = other[[1, 2]] * 2
print(total, other)
""",
            (Expected("values-lost", "total", 4), Expected("values-lost", "other", 5)),
        ),
        Example(
            "The last of several values",
            """import torch

latest = torch.zeros(3)
index = torch.tensor([0, 0, 2])
latest[index] = torch.tensor([1.0, 2.0, 3.0])
print(latest)
""",
            (Expected("values-lost", "latest", 5),),
        ),
        Example(
            "Each element once, one value for all, and sums that are meant as such",
            """import torch

total, seen = torch.zeros(3), torch.zeros(3)
values = torch.tensor([1.0, 2.0, 3.0])
total[torch.tensor([2, 0, 1])] += values
total[torch.tensor([0, 0, 2])] = 1.0
seen[torch.tensor([0, 0, 2])] = torch.ones(3)
total.index_add_(0, torch.tensor([0, 0, 2]), values)
total.index_put_((torch.tensor([0, 0, 2]),), values, accumulate=True)
total.scatter_(0, torch.tensor([[2, 1, 0]])[0], values)
grid = torch.zeros(2, 3, 3)
grid[0, :, torch.tensor([1, 0, 2])] = torch.arange(9.0).view(3, 3)
""",
        ),
    ),
)
