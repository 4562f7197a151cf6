"""`alias-write`: a write through one name changed what another name reads."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from tether.analysis.acts import Acts
from tether.analysis.history import History
from tether.analysis.shared_memory import Sharing, Touch, overlaps_itself, same_place
from tether.facts import UNKNOWN, Operand, SiteId
from tether.finding import At, CallOf, Claim, Repair, Sentence, Step, Tensor, say
from tether.operations.table import operation
from tether.regions import overlaps
from tether.store.columns import Numbers
from tether.verdicts.alias_write.follower import follows, set_beside, written_for
from tether.verdicts.alias_write.kept import SILENT, kept_values
from tether.verdicts.alias_write.numpy_views import followers, written_by_arrays
from tether.verdicts.alias_write.telling import called, copied, with_more_lines, written
from tether.verdicts.base import Example, Expected, Verdict

PAGE = """
# alias-write

## What it says
Two names share one memory, since a call that looks like a copy was none. A write through one of
them changed what the other one reads. The finding names the line from which they share, the line
of the write, and the line that read the changed values.

Beside names that share by a call: one tensor in several places of a container, filled at different
times or by `[t] * n`; a cached value that its caller changed; an argument that a function changed
and returned, where the caller goes on to read both; two places of one memory that a later call
compares; pieces of `unfold` or `expand` that overlap, written one after the other; a copy onto
elements it has still to read; one gradient assigned to several parameters, or taken twice; two
optimizers on one state; one tensor as the learning rate of groups that are to have different ones;
a vector whose pieces became the memory of parameters; a write into a tensor that is gone after its
line, or into a copy that was to be a view; one array in many places that NumPy code goes on to
fill, whether PyTorch is given it or not; an item that a data set changes each time it is asked for;
a buffer that is another attribute of its module as well, and is loaded; a buffer that a producer
hands out each time and writes for the next; one model that is averaged with itself; a mean that is
written into one of its summands, which a line reads beside the others; one summand added twice
since two names of the sum are one memory; results that are all computed from the last of many
writes; two lists of the same tensors, one filled before a write and one after it; a buffer of two
modules that have weights of their own; a container that a hook fills with a layer's output, which
the next layer writes in place, and with what that layer gives; a part that a target network has in
common with the one that trains, so that each step moves it, while the rest of the target moves only
where it is copied; a gradient that the backward of an `autograd.Function`, or a hook on a tensor,
is given and writes in place (`grad.mul_(scale)`) while PyTorch holds that tensor for another part
of the graph: an addition gives one tensor to all its summands; a module or parameter that a default
argument made (`heads=(Head(32),)`), and that two objects train along with parameters of their own;
a second name that a function gives a tensor (`labels = ids`) before it writes that by its first
name and uses both (a note, where it writes by the second name).
Where the facts
leave open whether it was meant the finding is a note: a module's tensor was put on another's memory
once and is read in turn with its writes, what is written by one name is read through the other
alone, an array that a tensor shows is written, one module stands in several places, an optimizer
steps one memory as two parameters, a file is written over whenever a line opens it as an array, a
constant that a function computes once is changed by who was given it, several optimizers step the
same parameters in turn, a function or module writes what it is handed and its caller reads that
again or hands it in again, a function writes what a conversion that had nothing to do gave back of
an optimizer's or an object's own state, a line takes a view in some runs and a copy in others and
both are written, a line hands a parameter to a function that writes it between two steps and whose
result is used (`grid = make_grid(conv.weight.data, normalize=True)`), a line keeps a tensor itself
(`self.features.append(output)` in a hook), a later call writes it in place and what is kept is read
after that, of the places of an expanded tensor that are one element the program writes no second
one.

Nothing is said of:

SILENT

## Why it matters
"Best weights" that go on changing, a replay buffer whose entries are all the last one, two towers
that are one table: nothing raises, and the numbers look plausible.

## Known problems
Reads of a NumPy array are not recorded: one that follows a tensor is reported where a line that
names it ran after the write, and an array that was returned or passed on is not followed. One
tensor at several places of a list (`[t] * n`, one buffer appended again and again) is found where
a variable that is alive at a write to it, at a step or at the end names the list. By which names a
memory is reached is looked up at the 1st, 2nd, 4th, 8th... write of a line; of a library's lines
below it, each by itself. Every such write that another name shows is in the report's list of ties,
also where nothing is said here. Who else holds a gradient is asked of PyTorch, of tensors on the
CPU, at the 1st, 2nd, 4th... run: not in passes with `create_graph=True`, nor, for a Function, once
the program has put hooks on nodes of the graph. Memory shared
on purpose under one object (tied weights) and views used as windows are not reported.

## Example
```python
best = model.state_dict()            # detached tensors on the model's own memory
train_one_more_epoch(model)          # changes best as well
model.load_state_dict(best)          # restores nothing
```

## Use instead
```python
best = copy.deepcopy(model.state_dict())   # or tether.copy(model.state_dict())
```

## Fix safety
A copy needs memory and freezes the values at that line: never applied by itself.
""".replace("SILENT", "\n".join(f"- {use}: {why}." for use, why in SILENT.items()))


class SharedThenWritten(NamedTuple):
    """Shared from here, written there, read there."""

    shared: int
    write: int
    read: int
    reader: int  # the tensor that reads what it did not write
    writer: int


def check(history: History) -> Iterator[Claim]:
    """Give one claim for each place from which memory is shared, with all its readers."""
    told: set[int] = set()
    for claim in _by_calls(history):
        told.update(claim.tensors)
        yield with_more_lines(history, claim)
    for claim in kept_values(history, told):
        yield with_more_lines(history, claim)


def _by_calls(history: History) -> Iterator[Claim]:
    """Find what calls that look like a copy, definitions, arrays and the text put in one memory."""
    found = history.get(Sharing)
    groups: dict[int, list[SharedThenWritten]] = defaultdict(list)
    for story in (*_records(history, found), *_parameters(history, found)):
        groups[history.events[story.shared].site].append(story)
    for group in groups.values():
        yield _claim(history, found, group)
    yield from _overlapping(history, found)
    yield from written_by_arrays(history, {one.reader for some in groups.values() for one in some})
    yield from followers(history)


# -- records ---------------------------------------------------------------------------------


def _records(history: History, found: Sharing) -> Iterator[SharedThenWritten]:
    """Find records whose memory was written through another name before they were read."""
    for memory, records in found.records.items():
        writes = found.writes.get(memory)
        reads = found.reads_of(memory)
        if not writes:
            continue
        written = {*map(found.family, writes.tensors())}
        for record in records:
            at = found.links[record].at
            kept = _kept(history, record, at)
            story = _read_after(history, found, record, at, writes, reads) if kept else None
            if story is None and record in written:
                story = _written_through(history, found, record, at, writes, reads)
                passed = story is None or kept or _passed_on(history, story)
                story = story if passed else None
            if story is not None:
                yield story


def _kept(history: History, record: int, at: int) -> bool:
    """Whether the program keeps the record under a name, or in its own line at the least."""
    event = history.events[at]
    if history.names_of(record) or history.held_by(record):
        return True
    return event.inner == event.site and bool(history.site_of(event).target)


def _passed_on(history: History, story: SharedThenWritten) -> bool:
    """Whether another function than the one that made a record wrote it, and not by its name."""
    if history.get(Acts).died(story.writer) <= story.shared + 3:
        return False
    made, wrote = (history.site_of(history.events[at]) for at in (story.shared, story.write))
    return made.function != wrote.function and not wrote.function.endswith("_")


def _read_after(
    history: History,
    found: Sharing,
    record: int,
    at: int,
    writes: Sequence[Touch],
    reads: Sequence[Touch],
) -> SharedThenWritten | None:
    """Find a write through another name, and a read of the record that was not filled anew."""
    shown = _as_made(history, record, at)
    own = [one for one in writes if found.family(one.operand.tensor) == record and one.at > at]
    others = [
        one
        for one in writes
        if one.at > at
        and found.record_of(one.operand.tensor) != record
        and not _by_its_own_line(history, found, record, one)
        and overlaps(shown, one.operand._replace(storage=shown.storage))
    ]
    if not others or own:
        return None
    read = _next_read(history, found, reads, record, others[0].at)
    if read == UNKNOWN:
        return None
    last = max((one for one in others if one.at < read), key=lambda one: one.at)
    writer = last.operand.tensor
    return SharedThenWritten(max(at, _handed(history, writer, last)), last.at, read, record, writer)


def _by_its_own_line(history: History, found: Sharing, record: int, write: Touch) -> bool:
    """Whether a line writes a record through what it takes from it itself: ``x.data.copy_(y)``."""
    line = history.site_of(history.events[write.at])
    taken = (
        history.site_of(history.events[link.at])
        for link in found.chain(write.operand.tensor)
        if link.source == record
    )
    return any(one.row == line.row for one in taken)


def _handed(history: History, tensor: int, write: Touch) -> int:
    """Return the last call before a write that put the tensor on the memory it wrote; or -1."""
    memory, events = history.flow.memory, history.events
    calls = history.get(GivenMemory).calls.get(tensor, [])
    for at in reversed(calls[: bisect_left(calls, write.at)]):
        given = events[at].reads[1:2]
        if given and given[0].tensor != tensor and memory(given[0]) == memory(write.operand):
            return at
    return UNKNOWN


class GivenMemory:
    """When each tensor was given the memory of another."""

    def __init__(self, history: History) -> None:
        self.calls: dict[int, list[int]] = defaultdict(list)  # tensor -> positions, in order
        for at, event in history.events.where(lambda name: operation(name).rebinds):
            if event.reads:
                self.calls[event.reads[0].tensor].append(at)


def _next_read(
    history: History, found: Sharing, reads: Sequence[Touch], reader: int, after: int
) -> int:
    """Return the first read of a tensor, or of a view of it, after a call; or -1."""
    own = (one.at for one in reads
           if one.at > after and found.family(one.operand.tensor) == reader)  # fmt: skip
    return next((at for at in own if not _in_passing(history, at)), UNKNOWN)


def _written_through(
    history: History,
    found: Sharing,
    record: int,
    at: int,
    writes: Sequence[Touch],
    reads: Sequence[Touch],
) -> SharedThenWritten | None:
    """Find a write to part of the record by the user's own line, and a read of its source."""
    event = history.events[at]
    if event.operation == "data.__get__" or event.inner != event.site:
        return None
    for write in writes:
        done = history.events[write.at]
        if write.at <= at or found.family(write.operand.tensor) != record:
            continue
        if operation(done.operation).overwrites or done.inner != done.site:
            continue
        read = _source_read(history, found, record, write, reads)
        if read is not None:
            return SharedThenWritten(at, write.at, read.at, read.operand.tensor, record)
    return None


def _source_read(
    history: History, found: Sharing, record: int, write: Touch, reads: Sequence[Touch]
) -> Touch | None:
    """Return the first read of a record's source after a write to the record.

    What was put on the memory after the write has what was written on purpose.
    """
    for read in reads:
        if read.at > write.at and _shows_source(history, found, record, read):
            since = history.get(GivenMemory).calls.get(read.operand.tensor, [])
            if bisect_right(since, write.at) == bisect_left(since, read.at):
                return read
    return None


def _shows_source(history: History, found: Sharing, record: int, read: Touch) -> bool:
    """Whether the user's line reads a record's memory by a name that is not the record's.

    A view made of the record shows the record.
    """
    other = found.family(read.operand.tensor)
    if other == record or any(link.source == record for link in found.chain(other)):
        return False
    user = history.site_of(history.events[read.at]).user
    return user and not _in_passing(history, read.at)


def _as_made(history: History, tensor: int, at: int) -> Operand:
    return next(one for one in history.events[at].results if one.tensor == tensor)


def _in_passing(history: History, at: int) -> bool:
    """Whether a read is an optimizer's own, or lies inside a backward pass."""
    return history.inside(history.events[at], "step", "backward", "hook") >= 0


# -- parameters on one storage -----------------------------------------------------------------


def _parameters(history: History, found: Sharing) -> Iterator[SharedThenWritten]:
    """Find leaves of different objects on the same elements, one written, the other one read."""
    joined: dict[int, dict[int, tuple[int, Operand]]] = defaultdict(dict)
    memory = history.flow.memory
    for at, event in history.events.where(("Parameter", "data.__set__").__contains__):
        if event.operation == "Parameter" and event.reads and event.results:
            source, made = event.reads[0], event.results[0]
            here = joined[memory(made)]
            here.setdefault(source.tensor, (at, source))
            here.setdefault(made.tensor, (at, made))
        elif event.operation == "data.__set__" and len(event.reads) == 2:
            target, source = event.reads
            if target.tensor == source.tensor:
                continue
            here = joined[memory(source)]
            source = _owner(history, found, source)
            here.setdefault(source.tensor, (at, source))
            moved = source._replace(tensor=target.tensor)
            if target.tensor not in here or not same_place(here[target.tensor][1], moved):
                here[target.tensor] = (at, moved)
    for where, members in joined.items():
        yield from _pairs(history, found, where, members)


def _owner(history: History, found: Sharing, operand: Operand) -> Operand:
    """Return what a tensor was made of where that is on its memory, else the tensor itself."""
    link = found.links.get(operand.tensor)
    reads = () if link is None else history.events[link.at].reads
    return reads[0] if reads else operand


def _pairs(
    history: History, found: Sharing, memory: int, members: dict[int, tuple[int, Operand]]
) -> Iterator[SharedThenWritten]:
    for reader, (since, shown) in members.items():
        for writer, (also, other) in members.items():
            if same_place(shown, other) and _called_apart(history, reader, writer):
                pair = SharedThenWritten(max(since, also), UNKNOWN, UNKNOWN, reader, writer)
                story = _acted(history, found, memory, pair)
                if story is not None:
                    yield story
                    break


def _called_apart(history: History, one: int, other: int) -> bool:
    """Whether each of two tensors has names, and none in common with the other."""
    mine, theirs = set(history.names_of(one)), set(history.names_of(other))
    return bool(mine and theirs) and mine.isdisjoint(theirs)


def _acted(
    history: History, found: Sharing, memory: int, pair: SharedThenWritten
) -> SharedThenWritten | None:
    """Return the story with a write through one of a pair and a read of the other, if there is."""
    writes = [one for one in found.writes.get(memory) if one.at > pair.shared]
    done = [one.at for one in writes if one.operand.tensor == pair.writer]
    if not done or any(one.operand.tensor == pair.reader for one in writes):
        return None
    reads = found.reads_of(memory)
    for group in _between(done, history.get(GivenMemory).calls.get(pair.reader, [])):
        read = _next_read(history, found, reads, pair.reader, group.writes[0])
        if UNKNOWN < read < group.until:
            return pair._replace(write=max(at for at in group.writes if at < read), read=read)
    return None


class _Stay(NamedTuple):
    """Writes while a tensor stayed on one memory, and when it was given other memory."""

    writes: list[int]
    until: float


def _between(writes: list[int], rebound: list[int]) -> Iterator[_Stay]:
    """Yield the writes between the moments at which a tensor was given memory."""
    for first, last in pairwise((UNKNOWN, *rebound, math.inf)):
        some = [at for at in writes if first < at < last]
        if some:
            yield _Stay(some, last)


# -- telling -----------------------------------------------------------------------------------


def _claim(history: History, found: Sharing, group: list[SharedThenWritten]) -> Claim:
    first = group[0]
    readers = list(dict.fromkeys(one.reader for one in group))
    shared, write, read = (history.events[at] for at in (first.shared, first.write, first.read))
    subject, line = called(history, readers), At(shared.site)
    call, writer = CallOf(first.write), Tensor(first.writer)
    story = [Step("shared", shared.site, _how(history, found, first))]
    for link in found.chain(first.reader)[1:]:
        made = history.events[link.at]
        site, results = made.site, {one.tensor for one in made.results}
        if site != shared.site and first.writer not in results:
            story.append(Step("shared", site, say("made by {call}", call=CallOf(link.at))))
    meant = all(_is_meant(history, found, one) for one in group)
    same = _did_nothing(history, first.reader, first.shared)
    if same != UNKNOWN:
        text = say("{call} returned the same tensor", call=CallOf(same))
        story.append(Step("shared", history.events[same].site, text))
    return Claim(
        tensors=tuple(readers),
        cause=("shared", shared.site),
        site=shared.site,
        operation=shared.operation,
        severity="note" if meant else None,
        subject=subject,
        message=say(
            "`{name}` shares its memory with {writer} since {line}. The write at {written} ({call})"
            " changed what {read} reads from `{name}`.",
            name=subject, writer=writer, line=line, written=At(write.site), call=call,
            read=At(read.site),
        ),
        story=(
            *story,
            Step("written", write.site, say("{x} is written by {call}", x=writer, call=call)),
            Step("read", read.site, say("{x} is read here, with what was written",
                 x=Tensor(first.reader))),
        ),
        repair=copied(history, first.shared, subject),
        count=len({one.write for one in group}),
    )  # fmt: skip


def _is_meant(history: History, found: Sharing, one: SharedThenWritten) -> bool:
    return (
        follows(history, found, one.shared, one.reader)
        or written_for(history, found, one.reader, one.shared)
        or set_beside(history, one.reader, one.shared, one.write, one.read)
    )


def _how(history: History, found: Sharing, story: SharedThenWritten) -> Sentence:
    event = history.events[story.shared]
    if event.operation == "Parameter":
        return say("nn.Parameter(t) makes a second object on the memory of t")
    if event.operation == "data.__set__":
        return say("assigning .data hands over the memory itself, not its values")
    if event.inner != event.site and "state_dict" in history.site_of(event).expression:
        return say("state_dict() holds detached tensors on the model's own memory")
    call, link = CallOf(story.shared), found.links.get(story.reader)
    if link is None:
        return say("{call} shares memory", call=call)
    return say("{call} shares the memory of {x}", call=call, x=Tensor(link.source))


def _did_nothing(history: History, tensor: int, since: int) -> int:
    """Find a call that was asked for a copy elsewhere and gave the same tensor back; or -1."""
    for at in range(since, min(since + 2001, len(history.events))):
        event = history.events[at]
        ends = [one.tensor for one in (*event.reads[:1], *event.results[:1])]
        if ends == [tensor, tensor] and operation(event.operation).records:
            return at
    return UNKNOWN


# -- views that overlap themselves ---------------------------------------------------------------


def _overlapping(history: History, found: Sharing) -> Iterator[Claim]:
    """Find writes into `expand` and its kin, where one element stands for many."""
    groups: dict[tuple[SiteId, SiteId], list[_Overlapped]] = defaultdict(list)
    for one in _overlapped(history, found):
        maker = history.events[one.made].site
        if history.site(maker).user:
            groups[maker, history.events[one.at].site].append(one)
    for group in groups.values():
        yield _overlaps(history, min(group, key=lambda one: one.one_place))


def _overlapped(history: History, found: Sharing) -> Iterator[_Overlapped]:
    """Yield the writes to tensors of which several places are one element."""
    apart = {int(one.tensor) for one in history.trace.addressed_apart}
    indexed = history.events.called("__setitem__".__eq__)
    written = partial(_perhaps_overlapped, history, found)
    for _, (at, operand) in found.writes.of(lambda _, rows: written(rows)):
        given = history.events[at].all_of(operand) if indexed[at] else operand
        whole = _sharing_elements(history, found, at, given)
        if whole is None or history.events[at].operation == "step":
            continue
        made = history.made_at(whole.tensor)
        if made != UNKNOWN:
            piece = bool(indexed[at]) or whole is not operand
            yield _Overlapped(piece and whole.tensor not in apart, made, at, whole.tensor)


def _perhaps_overlapped(history: History, found: Sharing, rows: Numbers) -> Numbers:
    """Return which writes may be to a tensor, or a view of one, that showed an element twice."""
    tensors = history.events.operands.column("tensor")[rows]
    shown = _tensors_overlapping(history)
    some = [
        one
        for one in np.unique(tensors if shown else tensors[:0]).tolist()
        if one in shown or any(link.source in shown for link in found.chain(one))
    ]
    return np.isin(tensors, some)


def _tensors_overlapping(history: History) -> set[int]:
    """Return the tensors of which several places were one element of memory at some time."""
    operands = history.events.operands
    shapes, strides = operands.column("shape"), operands.column("strides")
    forms = shapes.astype(np.int64) * (int(strides.max(initial=0)) + 1) + strides
    _, first = np.unique(forms, return_index=True)
    overlap = [row for row in first.tolist() if overlaps_itself(operands[row])]
    shown = np.isin(forms, forms[overlap]) if overlap else np.zeros(len(forms), bool)
    return set(np.unique(operands.column("tensor")[shown]).tolist())


def _sharing_elements(
    history: History, found: Sharing, at: int, operand: Operand
) -> Operand | None:
    """Return what was written, or what it is a piece of, if several places of it are one element.

    Not what has windows that overlap and of which one was written: sums are made in them.
    """
    if overlaps_itself(operand):
        return operand
    for link in found.chain(operand.tensor):
        for whole in history.events[link.at].reads:
            repeated = any(n > 1 and not step for n, step in zip(whole[4], whole[5], strict=True))
            if whole.tensor == link.source and repeated:
                return whole if history.get(Acts).died(whole.tensor) > at else None
    return None


class _Overlapped(NamedTuple):
    """A write to a tensor of which several places are one element."""

    one_place: bool  # no other of those places was seen to be written: it may stand for all
    made: int
    at: int
    tensor: int


_MEANT = {False: "G", True: "If the write is to change one place alone, g"}


def _overlaps(history: History, found: _Overlapped) -> Claim:
    at, x = found.at, Tensor(found.tensor)
    maker, write = history.events[found.made], history.events[at]
    source = maker.reads[:1]
    base = say(", the memory of {y}", y=Tensor(source[0].tensor)) if source else ""
    return Claim(
        tensors=(found.tensor,),
        cause=("overlapping", maker.site, write.site),
        site=maker.site,
        operation=maker.operation,
        severity="note" if found.one_place else None,
        message=say(
            "{x} has several places on one element since {call} ({line}){base}: the write at"
            " {written} shows in all of them.",
            x=x, call=maker.operation, line=At(maker.site), base=base, written=At(write.site),
        ),
        story=(
            Step("shared", maker.site, say("its places overlap from here")),
            written(history, at),
        ),
        repair=Repair(
            say("{when}ive each place its own element at {line}: repeat(...), or"
                " {call}(...).clone().", when=_MEANT[found.one_place], line=At(maker.site),
                call=maker.operation)
        ),
        count=history.times(at),
    )  # fmt: skip


VERDICT = Verdict(
    slug="alias-write",
    severity="warning",
    summary="a write here changed what this other name reads, since they share memory from there",
    page=PAGE,
    check=check,
    past="some",
    examples=(
        Example(
            "The best weights that go on changing",
            """import torch
from torch import nn

model = nn.Linear(3, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
best = model.state_dict()
for _ in range(2):
    opt.zero_grad()
    model(torch.ones(2, 3)).sum().backward()
    opt.step()
model.load_state_dict(best)
""",
            (Expected("alias-write", "best", 6),),
        ),
        Example(
            "A state_dict that is copied, and one that is loaded at once",
            """import copy
import torch
from torch import nn

model, other = nn.Linear(3, 1), nn.Linear(3, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
best = copy.deepcopy(model.state_dict())
for _ in range(2):
    other.load_state_dict(model.state_dict())
    opt.zero_grad()
    model(torch.ones(2, 3)).sum().backward()
    opt.step()
model.load_state_dict(best)
""",
        ),
    ),
)
