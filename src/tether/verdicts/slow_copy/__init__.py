"""`slow-copy`: the same ties can be had in a cheaper way.

Found from facts, here; how much cheaper is not recited but measured, on the machine that ran the
program and at the sizes it used, by `tether.measure.speedups`.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from tether.analysis.history import History, shortened
from tether.analysis.surroundings import WaysThere
from tether.facts import UNKNOWN, Event, Operand
from tether.finding import At, Claim, Finding, Repair, Step, named, say
from tether.operations.table import operation
from tether.source.calls import copied_text, deep_copied
from tether.verdicts.base import Example, Expected, Verdict
from tether.verdicts.slow_copy.again import Repeats, repeated
from tether.verdicts.slow_copy.between_devices import transfers
from tether.verdicts.slow_copy.by_elements import by_elements
from tether.verdicts.slow_copy.by_numbers import by_numbers
from tether.verdicts.slow_copy.by_rows import by_rows
from tether.verdicts.slow_copy.filled_in_graph import filled_in_graph
from tether.verdicts.slow_copy.in_vain import vain, windows
from tether.verdicts.slow_copy.kept_again import kept_again
from tether.verdicts.slow_copy.kept_seldom import kept_seldom
from tether.verdicts.slow_copy.lent import lent
from tether.verdicts.slow_copy.made_again import arrays_again, made_again
from tether.verdicts.slow_copy.moved_along import moved_along
from tether.verdicts.slow_copy.on_device import Lines, Slow, Spec, ways
from tether.verdicts.slow_copy.overwritten import never_read, overwritten
from tether.verdicts.slow_copy.padding import no_padding
from tether.verdicts.slow_copy.put_again import put_again
from tether.verdicts.slow_copy.put_elsewhere import put_elsewhere
from tether.verdicts.slow_copy.said_again import repeated_for_products, said_again
from tether.verdicts.slow_copy.saved_apart import saved_apart
from tether.verdicts.slow_copy.stacked_to_add import stacked_to_add
from tether.verdicts.slow_copy.through_streams import through_streams
from tether.verdicts.slow_copy.widened import widened
from tether.verdicts.slow_copy.worked_again import worked_again

PAGE = """
# slow-copy

## What it says
What this line does could be had for less, with the same values, memory of the same kind and the
same gradient: fewer bytes, no node that is made for the gradient graph and dropped, no new memory
at each step, one call instead of one for each element. `tether run` times both ways when the
program has ended, at the sizes that the program used, and names the factor, and the time that all
recorded calls would have saved. The finding is not given where the cheaper way turns out less than
a tenth faster on this machine, or saves less than a tenth of a second and less than one in a
hundred of the run's time.

| what the line does | cheaper |
|---|---|
| `torch.tensor(t)`, `x.new_tensor(t)` of many small tensors | `t.detach().clone()` |
| `t.clone().detach()` of many small tensors | `t.detach().clone()`: no node is made |
| a number, or an array of a row, taken out of a tensor at a time | `t.tolist()`, `t.numpy()` |
| `torch.tensor` of a list of arrays | `torch.from_numpy(np.stack(arrays))` |
| `torch.tensor` of the lists that tensors became | the tensors, joined |
| `torch.tensor(array.tolist())`, run after run | `torch.tensor(array)`, `torch.from_numpy` |
| `torch.tensor(struct.unpack(...))`, run after run | `torch.frombuffer`, `numpy.frombuffer` |
| the same bytes converted or laid out again, run after run | once, and kept |
| the same made again of numbers alone: tables, masks, grids | once, and kept |
| an array of NumPy's made anew with the same bytes, run after run | once, and kept |
| overlapping parts of an array converted, each time anew | the whole, once |
| the same call of the same elements, run after run | once, and kept |
| the same copied into a place that holds it already | when it has changed |
| weights copied each time, of which few copies are kept | copied where they are kept |
| a copy that is given other values before anything reads it | memory without values |
| a model or a state copied to be zeroed or filled, time after time | one made once, and filled |
| weights put aside while others are read in their place | `torch.func.functional_call` |
| the parts of a tensor assigned one by one within a graph | a list of them, stacked |
| sequences of one length packed | the batch as it is |
| a result that nothing reads, such as the weights of attention | a call that leaves it out |
| the same calls of what nothing writes, for what does change | once, and kept |
| the same computed of the same at each time step | once, while nothing of it changes |
| the same calls for each row, and the results joined | one call along a dimension |
| elements of a tensor taken one by one and stacked | `gather`, or an index of tensors |
| calls on single elements, one by one | one call for all elements, or `.tolist()` |
| a whole tensor compared with one number at a time | `searchsorted`, or a new dimension |
| small tensors kept one by one, and joined for each batch | rows of one tensor, and an index |
| rows of a tensor or an array taken one by one for each batch | one index for all of a batch |
| elements of a tensor counted up one by one | `bincount`, `index_put_(..., accumulate=True)` |
| numbers put into a tensor one by one | `torch.tensor` of lists, `pad_sequence` |
| many tensors joined, of which a part is taken | the part first, then joined |
| tensors stacked, and taken apart again by what reads them | the list of them |
| the rows of a tensor assigned one by one | one assignment of a slice |
| a tensor that grows by `cat` at each step, and is read at the end | a list, joined once |
| the same, read at each step, without a graph | one memory, filled part by part |
| a history moved along at each step, and seldom read | an index that goes round |
| a few elements put by `index_copy`, `scatter`, the old tensor let go | `index_copy_`, `scatter_` |
| a window that moves on by `cat` at each step | a slice of a memory of twice the size |
| a cache converted from its beginning at each step | what is new alone, or the type it is read in |
| a whole tensor converted, copied or computed, of which a part is used | the part first |
| channels-last laid out anew for a call that lays it back | the tensor as it lies |
| the same for a convolution, which takes either order | the tensor as it lies |
| a model copied, and converted at once, run after run | one made once, and filled |
| a copy of an expanded tensor, that is only read | copy first, then expand |
| elements repeated for a call that takes them expanded | `expand` |
| a cache repeated for the queries that share its heads | these as more rows of one product |
| large tensors stacked, and added up | each added into one memory |
| the same elements kept many times: stacked frames, windows, heads | once, joined when read |
| a large copy made anew at each step | a buffer and `copy_`, or `tether.Snapshot` |
| a state saved to a stream in memory and read back at once | `copy.deepcopy`, a clone |
| many small tensors of one shape saved or pickled one by one | one tensor, joined |
| what a small operand of a wider type widens, and a conversion narrows | one type |
| tensors joined, then converted to a narrower type | converted, then joined |
| `t.clone().cpu()` | `t.cpu()`: it is a copy already |
| `t.float().to(device)` from a narrower type | `t.to(device).float()`: fewer bytes cross |
| `to(device, non_blocking=True)` from pageable memory | pinned memory; it waits otherwise |
| many small moves between devices | one large one |

## Why it matters
The forms look alike. Which is slower depends on the size, on the machine and on what is kept, and
is easily got wrong from memory: of a large tensor `clone().detach()` costs what `detach().clone()`
does.

## Known problems
A factor is that of the copy alone, with its operands at hand; how much of the whole run that is
depends on the program. A report made later from a saved recording runs nothing: its findings say
that they were not timed. Those for which no other way can be run by itself count the bytes alone.
What reads a copy of an expanded tensor may be slower, or round in another way, without it; what is
computed of all rows at once may be rounded in another way than row by row.
Memory counts as pinned wherever it was not heard to be made.
Other values count as put in a copy's place by what leaves nothing of the old ones, also part by
part and by `out=`; not by an index of tensors or lists, which may name some places alone. Nothing
is said of a model's copy that is of use beside the next one, since it gives that its structure, nor
of layers that chance fills; of one whose statistics are read as they were copied, from 1 MiB on.
What is kept several times over is judged by a sample of neighbours, at looks that come with every
doubling of the calls: its figures are about right, and those of that moment.

## Example
```python
values = [t.item() for t in scores]              # one call, and one wait, for each element
best = copy.deepcopy(model.state_dict())         # new memory each time it is made
```

## Use instead
```python
values = scores.tolist()
best = tether.Snapshot(model)                    # once; then, each time:
best.update()
```

## Fix safety
The values are the same. Not applied by itself: whether the copy is needed at all comes first, and a
copy that was not is told as `needless-copy` instead.
"""

NOT_TIMED = "it was not timed; `tether run` times it where the program runs"
NOT_COMPARED = "the bytes are counted; what they cost in time is not measured"
"""Of what has no other way at the program's own sizes that could be run in turn with it."""

WAYS = (
    ways, transfers, vain, by_rows, by_elements, by_numbers, put_again, never_read,
    filled_in_graph, no_padding, through_streams, said_again, overwritten, lent,
    moved_along, put_elsewhere, windows, saved_apart, stacked_to_add, repeated_for_products,
    widened, kept_seldom,
)  # fmt: skip
"""What is asked of the lines of a program, each for itself."""

Place = tuple[str, int, int, int, int]


def check(history: History) -> Iterator[Claim]:
    """Give each of the user's lines that copies, moves or reads in a slow way."""
    specs: dict[tuple[Place, str], Spec] = history.memo.setdefault("slow-copy", {})
    lines = Lines(history)
    again = Repeats(lines)
    found = [way(lines) for way in WAYS]
    same = [*repeated(again), *made_again(again)]
    known = {history.events[one.at].site for one in same}
    yield from kept_again(lines)
    yield from arrays_again(history, known)
    told: set[object] = set()
    for one in chain(*found, same, worked_again(again, known)):
        event = history.events[one.at]
        keys = {event[:2], _read_at(history, one)}
        if keys & told:
            continue
        told |= keys - {None}
        if one.spec is not None:
            specs[history.site_of(event)[:5], event.operation] = one.spec
        yield _claim(history, one)


def _read_at(history: History, one: Slow) -> object:
    """Return the line of the text at which a memory is read by parts: told once for all its calls.

    None for what is not told of the memory that is read.
    """
    site = history.site_of(history.events[one.at])
    return (site.file, site.line, one.operand.storage) if one.done == "read" else None


def spec_of(history: History, finding: Finding) -> Spec | None:
    """Return what to time for a finding that `check` gave."""
    specs: dict[tuple[Place, str], Spec] = history.memo.get("slow-copy", {})
    return specs.get((finding.site[:5], finding.operation))


def _claim(history: History, one: Slow) -> Claim:
    event = history.events[one.at]
    target = history.site_of(event).target if one.done in ("copied", "made") else ""
    subject = target or _name(history, one)  # the copy, before what it is made of
    told = event.results[0] if target or one.done == "made" else one.operand
    wholes = ((_whole(history, each), each.tensor) for each in one.others)
    also = dict.fromkeys(own if whole == UNKNOWN else whole for whole, own in wholes)
    return Claim(
        tensors=(told.tensor, *also),
        cause=(one.at, one.done),
        site=event.site,
        operation=event.operation,
        message=say(
            "{name}{more} ({line}) {are} {done} in a slow way: {what}.",
            name=named(subject), line=At(event.site), done=one.done, what=one.what,
            more=_and_others(len(also)), are="are" if also else "is",
        ),
        story=tuple(_story(history, one)),
        repair=Repair(say("{fix}", fix=one.fix)),
        subject=subject,
        assumes=(say(NOT_COMPARED if one.spec is None else NOT_TIMED),),
        count=_runs(history, one),
        bytes=one.nbytes or None,
    )  # fmt: skip


def _story(history: History, one: Slow) -> Iterator[Step]:
    """Say where it is made, from where that was asked for, and what is done with it then."""
    event = history.events[one.at]
    deep = deep_copied(history.site_of(event).expression)
    call = "deepcopy" if deep else event.operation
    made = say("{call} here, {times}", call=call, times=_times(_runs(history, one)))
    yield Step("made", event.site, made)
    if one.done == "made":
        yield from history.get(WaysThere).asked_from(event.site, (one.at,))
    if one.also != UNKNOWN:
        then = history.events[one.also]
        yield Step("used", then.site, say(_then(history, event, then), call=then.operation))


def _then(history: History, event: Event, then: Event) -> str:
    """Say what a later call does with what one made."""
    memory = history.flow.memory
    if {memory(one) for one in event.results} & {memory(one) for one in then.writes}:
        return "{call} puts other values there"
    return (
        "{call} copies it again" if operation(then.operation).copies else "{call} is given it here"
    )


def _runs(history: History, one: Slow) -> int:
    """Return how often the named call ran: one that gives many parts less often than they are."""
    events, event = history.events, history.events[one.at]
    at_line = events.column("site") == event.site
    ran = int((at_line & events.called(event.operation.__eq__)).sum())
    return min(one.times, ran)


def _and_others(count: int) -> str:
    return f" and {count} other tensor{'s' if count > 1 else ''}" if count else ""


def _whole(history: History, part: Operand) -> int:
    """Return the tensor as which a memory was made, of which a part is read; -1 for none."""
    first = history.events[history.on_storage(part)[0]]
    return next((one.tensor for one in first.results if one.storage == part.storage), UNKNOWN)


def _name(history: History, one: Slow) -> str:
    """Return what the program calls the tensor: of one read by elements, that they are part of."""
    if one.done == "read" and (whole := _whole(history, one.operand)) != UNKNOWN:
        return history.name_of(whole).strip("`")
    event = history.events[one.at]
    expression = history.site_of(event).expression
    if one.done == "made" and expression:
        return shortened(expression)
    names = history.names_of(one.operand.tensor)
    if deep := deep_copied(expression):
        return shortened(deep)  # all that is copied, not the tensor that is shown
    text = copied_text(event.operation, expression)
    return names[0] if names else text or history.name_of(one.operand.tensor).strip("`")


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"


VERDICT = Verdict(
    slug="slow-copy",
    severity="note",
    summary="the same ties can be had in a cheaper way; the factor is measured here",
    page=PAGE,
    check=check,
    past="some",
    damage="cost",
    examples=(
        Example(
            "An element at a time",
            """import torch

scores = torch.randn(200)
values = [one.item() for one in scores]
""",
            (Expected("slow-copy", "scores", 4),),
        ),
        Example(
            "Few and small, large but kept, expanded but written",
            """import torch

w = torch.nn.Parameter(torch.zeros(600, 1024))
optimizer = torch.optim.SGD([w], lr=0.1)
kept = [torch.tensor(w[:2, :2].detach())]
for step in range(4):
    kept.append(w.detach().clone())
    w.sum().backward()
    optimizer.step()
print([one.item() for one in torch.ones(8)])
table = torch.randn(1000).expand(1000, 1000).clone()
table[0, 0] = 1
print(table.sum())
""",
        ),
    ),
)
