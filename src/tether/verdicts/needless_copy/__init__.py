"""`needless-copy`: a copy that could have been its source, in every execution that was seen."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal

from tether.analysis.copies.already_there import Copied, by_way, copied_on
from tether.analysis.copies.gives_back import computes
from tether.analysis.copies.needs import Key, Need, needs
from tether.analysis.history import History, shortened
from tether.analysis.wording import place
from tether.facts import LEAST_OF_A_LIST, UNKNOWN, Event, Site, SiteId
from tether.finding import At, CallOf, Claim, Repair, Segment, Sentence, Step, say
from tether.operations.table import operation, shown
from tether.source.calls import copied_text, operand_text
from tether.source.syntax import source_of
from tether.verdicts.base import Example, Expected, Verdict
from tether.verdicts.needless_copy.arrays import of_arrays
from tether.verdicts.needless_copy.other_runs import of_other_runs

PAGE = """
# needless-copy

## What it says
What this line made was there already, element by element: every time the line ran, neither the copy
nor what it was made of was written while the other lived, nothing was done to the copy that its
source could not have been used for, and the gradient graph says the same without it. Or the copy
was written, and nothing used its source again, whose memory did not outlive the copy's. Or nothing
in the whole run read the copy, or took a view of it.

A copy also counts as gone once the text cannot read it: a function's variable that is read in the
statements behind its assignment alone, in the same block, and that nothing else holds. So a model
that is copied for each evaluation was not needed where the next step comes after the last line that
reads the copy, which was put into no other mode.

How the copy is spelled does not matter: `clone`, `deepcopy`, `torch.tensor(x.numpy())`,
`torch.cat([x])`, the parts of a tensor stacked again, an index or a mask that takes everything in
order, `repeat` where broadcasting does, a number format there and back, a product with ones, a
`masked_fill` of nothing, `flip` twice. A state that was just read for one optimizer is a source as
well: `load_state_dict` takes its tensors over.

Nor does it matter how NumPy is told to copy what becomes a tensor: `x[i:j].copy()`, `np.array(x)`,
`x.astype(np.float32)` of what has that format, `np.ascontiguousarray` before a call that takes any
strides, `deepcopy`; an array that is widened, and narrowed again by all that reads its tensor; one
that is copied for a call which makes a copy anyway. The text of the call, and what its variables
were given before, lead to the array that it was made of. That the elements were the same, in memory
of their own, and were not written, is seen in memory; and the calls in between are tried once with
other values, so that `np.clip`, `np.nan_to_num` or a sort that found nothing to do is none.

An array need not meet PyTorch at all: `copy`, `astype`, `flatten`, `np.array`, `np.copy` and
`deepcopy` are heard where a line of the program calls them. A copy of the same format and layout
was for nothing where neither it nor what it was made of was written while both lived; the bytes of
both say so, whoever writes. Bytes that `tobytes` makes are for nothing where they go at once to
what takes an array's own memory: a file's `write`, a hash, `zlib`, a socket.

## Why it matters
The copy is read and written once, and lives beside its source: the bytes are named, for the whole
run.

## Known problems
It speaks of this run: a line of the program that did not run may write either of the two. Where the
source of the last run is there when the program ends, and was written before it was copied, it says
so only of sources that were made anew for each run, of which earlier ones have gone. It takes
for granted that no code asks whether the two are one object (`is`, `data_ptr()`), or is a
C extension that writes a tensor without telling PyTorch. `tether run --prove` runs the program
again without the copies, and compares every result bit for bit.

Of other processes it asks what they can reach. A forked one, as a data loader's worker, has all
memory as its own from then on, so it counts only if it uses the copy; that is heard in it. Nothing
is said where another process shows the memory and may write it: memory that was sent, a mapped
file, a batch of a worker that fills a buffer again or was not forked. Copies that a process makes
itself, in a dataset or in `collate_fn`, are judged where it is recorded (`--children`).

Of a library's line more is asked, since other programs call it in another order: that it does not
keep both, and that nothing writes its source at any time after it was filled.

A join counts as read in parts by what asks each element, and then whether all or any is so, or for
the largest: where its parts have 4,096 elements on average, and no gradient. A norm, or a place, is
one of the whole. Gradients that a clearing lets go (`zero_grad(set_to_none=True)`) are written by
no pass that comes after it, and by the step of a program's own optimizer only where that says so.

Whether a sum, a matrix product or attention needs the layout of a copy is asked of PyTorch: the
call is made again with the source, and what it gives is compared bit for bit; where it is trained,
so are the gradients and how they lie. Of a program that trains, nothing is said where two calls
read the copy that may each lay out the source for themselves.

It says nothing, on purpose, of a layout that a later call may rely on (`.contiguous()` before
`.view()`, or before a product that rounds otherwise); of copies by which a much larger memory goes;
of gradients that would be added up in another order; of a checkpointed block or a compiled region;
of memory whose address was asked for. Where values decide what an index takes, or data that were
drawn, read, handed in or put into a list, it says nothing, however often the numbers were in order:
a slice would take the place of numbers that are a range by how they were made (`torch.arange`), and
a mask may be a guard that met nothing. It speaks of numbers by which other elements were taken, all
of them equal, where these rows were made by a repetition (`repeat_interleave`, a copied `expand`),
in each of eight runs or more, and there is no gradient. A join of one tensor may have more for
other data, unless the text writes its list out, and no loop fills that; or a loop joins list after
list, and each of eight and more had one. An embedding is told of where numbers in order asked it
for rows several times, one kept index or one that is counted off (`torch.arange`), without padding,
bounds on norms or sparse gradients. It says nothing of a padding, a roll or a pool by an amount
that the text does not write out, nor of a join of which a part was empty: the call stands there for
other sizes. The same goes for a factor, a number of repetitions or a format that stands in a
variable or an object (`d * self.eps`, where `eps` is 1.0), for elements that are turned round or
added up along a dimension of one, and for a list into which a branch puts what is joined: a replay
buffer that is not full yet. Of a choice by an index, and of whole numbers that come back out of a
floating-point format which does not have all of them, it speaks only where every run of the line
was looked at; of many arrays that became tensors it says how many it looked at. The report's table
of copies gives the reason for each.

Of what NumPy copies for itself it hears only what a line of the program gives PyTorch, of 4 KiB and
more, and what the same expression copies of an array that PyTorch has just given
(`x.numpy().copy()`), or a variable that nothing else in the function reads, off memory that nothing
uses again. It says nothing where a function of the program stands between the two arrays, or a
statement that may have written the copy; where the array could not be shown by a tensor (it may not
be written, its steps are negative, a tensor or a file has its memory), or runs of one line differ.

## Example
```python
keys = torch.clone(self.k_cache[: t + 1])     # only read, and gone before the cache is written
weights = (keys @ query).softmax(0)
```

## Use instead
```python
keys = self.k_cache[: t + 1]
```

## Fix safety
Safe where it was proven by a re-run (`tether run --prove`); by itself it is not applied.
"""

TELLING = 16 << 20
"""Bytes in a run from which a needless copy in a library's code is told: about a millisecond.

The program cannot leave such a copy out: to tell of less helps nobody."""

FEW = 4 << 10
"""Bytes in a run from which a join is told whose parts would have done, or copies of single
numbers: less costs what any call costs, and may read easier."""


def check(history: History) -> Iterator[Claim]:
    """Give each line whose copies were all needless, of tensors and of arrays."""
    known = list(_of_tensors(history))
    yield from known
    yield from of_arrays(history, known)


def _of_tensors(history: History) -> Iterator[Claim]:
    """Give the lines that copy tensors; lines of libraries where they led from."""
    libraries: dict[int, list[tuple[Key, Need]]] = {}
    for key, need in needs(history).items():
        if need.needed != "no":
            continue
        site, inner, _ = key
        if inner != UNKNOWN:
            libraries.setdefault(site, []).append((key, need))
        elif need.bytes >= FEW or not all(map(_is_small, need.executions)):
            yield _claim(history, key, need)
    for found in libraries.values():
        if sum(need.bytes for _, need in found) >= TELLING:
            yield _in_library(history, found)


def _is_small(copied: Copied) -> bool:
    """Whether a copy is of a single number, or joins what would have done by itself."""
    return bool(copied.part) or math.prod(copied.copy.shape) == 1


def _claim(history: History, key: Key, need: Need) -> Claim:
    site = history.site(key[0])
    first = next(
        (one for one in need.executions if history.names_of(one.copy.tensor)), need.executions[0]
    )
    subject = history.target_of(first.copy.tensor) or history.name_of(first.copy.tensor).strip("`")
    if site.expression and copied_on(history, first.position, first.copy) != UNKNOWN:
        subject = shortened(site.expression)  # what it is assigned to is the copy of it
    unread = need.unread == len(need.executions)
    return Claim(
        tensors=tuple(dict.fromkeys(one.copy.tensor for one in need.executions)),
        cause=key,
        site=key[0],
        operation=need.operation,
        message=say(
            "{name} ({line}) is {what} that nothing {why}{times}{end}",
            name=_code(subject, "name"), line=At(key[0]), what=_what(history, need, first),
            why="reads" if unread else "needed", times=_times(need),
            end="." if unread else f": {_why(need, first)}.",
        ),
        story=tuple(_story(history, first, need)),
        repair=_repair(history, need, first, unread=unread),
        subject=subject,
        assumes=tuple(_assumes(history, need, first, unread=unread)),
        count=need.count,
        bytes=need.bytes,
    )  # fmt: skip


def _times(need: Need) -> str:
    """Say how many copies it is about; those that were too small to be looked at are none."""
    least = f" of {LEAST_OF_A_LIST:,} bytes and more" if need.passed_over else ""
    return f" (all {need.count:,} copies{least})" if need.count > 1 else ""


def _why(need: Need, first: Copied) -> str:
    """Say why copies that were read were not needed."""
    if need.replaces:
        return (
            "nothing uses what it is a copy of again, so what is written to the copy may be written"
            " there"
        )
    if need.lingers:
        return "nothing reads it any more when what it is a copy of is written"
    both = "neither is" if first.taken is None else "neither it nor the array is"
    while_ = "the other lives" if first.taken is None else "both live"
    seen = f" in each of the {need.looked:,} runs that were looked at" if need.looked else ""
    return f"{both} written while {while_}{seen}"


def _assumes(history: History, need: Need, copied: Copied, *, unread: bool) -> Iterator[Sentence]:
    read = "reads it" if unread else "writes either of them"
    if need.lingers:
        read = "writes either of them, or has kept the copy"
    yield say(f"no line of the program that did not run {read}")
    yield from of_other_runs(history, need, copied, unread=unread)
    if need.operation == "__deepcopy__" != history.events[copied.position].operation and not unread:
        yield say("nothing but the tensors of what was copied is used or changed")
    for site, _, name in sorted(need.rests_on):
        yield say("the copy that {call} makes at {line} goes too", call=shown(name), line=At(site))


def _what(history: History, need: Need, copied: Copied) -> Sentence:
    """Say what was copied: the text of it, or the tensor that had the same elements."""
    event = history.events[copied.position]
    origin = copied_text(need.operation, history.site_of(event).expression)
    if copied.part:
        return say("a copy of tensors of which each could be used by itself,")
    plain = not (computes(event) or event.writes)
    if plain and copied.since == copied.position and origin and _is_first(event, copied):
        return say("a copy of {it}", it=_code(origin))
    name = _name(history, need, copied)
    some = {"all": "", "none": "a part of "}.get(_taken_whole(history, need), "all or a part of ")
    if _renamed(history, copied):
        first = history.events[copied.since]
        return say(
            "what {call} was given at {line}, element by element, a copy",
            call=shown(first.operation), line=At(first.site),
        )  # fmt: skip
    if not computes(event):
        known = say("a copy of {some}{it}, element by element,", it=_code(name), some=some)
        return known if name else say("a copy")
    if name in ("", history.name_of(copied.copy.tensor).strip("`")):
        given = shown(event.operation)
        return say("what {call} was given, element by element, a copy", call=given)
    text = "{some}{it} over again, element by element, a copy"
    return say(text, it=_code(name), some=some)


def _is_first(event: Event, copied: Copied) -> bool:
    """Whether what a copying call is given first is what it is a copy of, or a list of that."""
    first = event.reads[:1]
    joins = operation(event.operation).joins
    return bool(joins) or all(one.tensor == copied.source.tensor for one in first)


def _name(history: History, need: Need, copied: Copied) -> str:
    """Return what the source of a copy is called, by the line itself where that names it.

    "" for one that is known as another's gradient alone: that name may have none by then.
    """
    written = _as_written(history, need, copied)
    if written is not None:
        return written.text.strip("`")
    name = history.name_of(copied.source.tensor).strip("`")
    return "" if _is_outdated(history, copied, name) else name


def _is_outdated(history: History, copied: Copied, name: str) -> bool:
    """Whether a name is a gradient's, which the copying line does not say: it may be cleared."""
    text = history.site_of(history.events[copied.position]).expression
    return name.endswith(".grad") and name not in text


def _renamed(history: History, copied: Copied) -> bool:
    """Whether elements came back by a way of the same name as their source."""
    if not by_way(history, copied.since, copied.position):
        return False
    way = history.events[copied.since].results[0].tensor
    return history.name_of(copied.source.tensor) == history.name_of(way)


def _code(text: str, kind: Literal["name", "code"] = "code") -> Segment:
    return Segment(f"`{shortened(text) if kind == 'code' else text}`", kind)


def _repair(history: History, need: Need, copied: Copied, *, unread: bool) -> Repair:
    """Say what to write instead, with the edit where leaving the call out is all there is to it."""
    if unread:
        return Repair(say("Leave the copy out: no line that ran reads it."), "by hand")
    if copied.part:
        return Repair(say("Use the tensors that it was made of, each by itself."), "by hand")
    if copied.taken is not None:
        return Repair(say("Show the array itself: torch.from_numpy(...)."), "by hand")
    left_out = _left_out(history, need, copied)
    if left_out is not None:
        return left_out
    return Repair(_instead(history, need, copied), "by hand")


def _instead(history: History, need: Need, copied: Copied) -> Sentence:
    """Say what has the elements of a copy already."""
    row = operation(need.operation)
    it = _as_written(history, need, copied) or _called(history, copied)
    if need.single:
        return say("Where the list has one tensor, use that itself.")
    if _renamed(history, copied):
        first = history.events[copied.since]
        text = "Use what {call} is given at {line}: that has the same elements already."
        return say(text, call=shown(first.operation), line=At(first.site))
    whole = _taken_whole(history, need) == "all"
    several = whole and row.joins and len({_origin(history, one) for one in need.executions}) > 1
    if it is None or several:
        return say("Use what it was made of: that has the same elements already.")
    if row.repeats:
        text = "Use a view that shows the elements again and again: {it!s}.expand(...)."
        return say(text, it=it)
    return say(_all_of(history, copied) if whole else _PARTS if row.joins else _SLICE, it=it)


def _all_of(history: History, copied: Copied) -> str:
    return _AS_LONG if _is_numbered(history, copied) else _ITSELF


_ITSELF = "Use {it} itself: it has the same elements already."
_SLICE = "Use a slice of {it}: it has the same elements already."
_PARTS = "Use the tensor that these are the parts of, or a slice of it."
_AS_LONG = (
    "Use a slice of {it}, as long as the numbers that take it are: in the runs that were seen, that"
    " is all of it."
)


def _as_written(history: History, need: Need, copied: Copied) -> Segment | None:
    """Return what the line itself calls the source of its copy, where its call was given that."""
    event = history.events[copied.position]
    places = [n for n, one in enumerate(event.reads) if one.tensor == copied.source.tensor]
    if operation(need.operation).joins or copied.since != copied.position or not places:
        return None
    site = history.site_of(event)
    text = operand_text(site.expression, places[0], len(event.reads))
    if places[0] == 0:
        text = text or copied_text(need.operation, site.expression)
    source = source_of(site.file, history.trace.sources.get(site.file, ""))
    return _code(text) if text and text not in source.imported else None


def _left_out(history: History, need: Need, copied: Copied) -> Repair | None:
    """Say that the call is to be left out; of a copied model no edit does that by itself."""
    site = history.site_of(history.events[copied.position])
    alone = copied.since == copied.position and not need.rests_on
    if alone and operation(need.operation).copies and not need.bound:
        return Repair(_without(need.operation, site))
    deep = need.operation == "__deepcopy__" and copied_text(need.operation, site.expression)
    return Repair(_without(need.operation, site, "original"), "by hand") if alone and deep else None


def _origin(history: History, copied: Copied) -> tuple[str, int]:
    """Return what the source of a copy is called, and the line that made it."""
    made, name = history.made_at(copied.source.tensor), history.name_of(copied.source.tensor)
    return name, history.events[made].site if made >= 0 else UNKNOWN


def _called(history: History, copied: Copied) -> Segment | None:
    """Return what the program calls a source; None if it was neither named nor seen to be made."""
    tensor = copied.source.tensor
    if not history.names_of(tensor) and history.made_at(tensor) == UNKNOWN:
        return None
    name = history.name_of(tensor).strip("`")
    return None if _is_outdated(history, copied, name) else _code(name)


def _is_numbered(history: History, copied: Copied) -> bool:
    """Whether numbers say what is taken: how many there are may hang on a size."""
    event = history.events[copied.position]
    others = (one for one in event.reads if one.tensor != copied.source.tensor)
    chosen = operation(event.operation).chooses and not (copied.any_choice or copied.equal)
    return bool(chosen) and any(one.whole and one.dtype != "bool" for one in others)


def _taken_whole(history: History, need: Need) -> Literal["all", "some", "none"]:
    """Return whether the runs of a line copied all of what they copied."""
    whole = {_is_whole(history, one) for one in need.executions}
    return "some" if len(whole) > 1 else "all" if whole == {True} else "none"


def _is_whole(history: History, copied: Copied) -> bool:
    """Whether a copy has as many elements as what it is a copy of."""
    return math.prod(copied.copy.shape) == math.prod(_shape_of(history, copied))


def _shape_of(history: History, copied: Copied) -> tuple[int, ...]:
    """Return the shape that the source had when it was copied."""
    for one in history.events[copied.since].reads:
        if one.tensor == copied.source.tensor:
            return one.shape
    return copied.source.shape


def _story(history: History, copied: Copied, need: Need) -> Iterator[Step]:
    """Where it is made, where it is read, and where the source is read beside it."""
    position = copied.position
    if copied.since != position:
        taken = history.events[copied.since]
        text = say("{call} takes the elements that come back", call=shown(taken.operation))
        yield Step("used", taken.site, text)
    made = say("{call} copies here", call=shown(need.operation))
    yield Step("made", history.events[position].site, made)
    # Where the source is an array, nobody hears who reads it.
    sides = {copied.copy.tensor: "the copy"} | (
        {copied.source.tensor: "its source"} if copied.taken is None else {}
    )
    unread = need.unread == len(need.executions)
    for tensor, who in sides.items():
        for site, at in _uses_behind(history, position, tensor).items():
            written = any(one.tensor == tensor for one in history.events[at].writes)
            alone = unread and tensor == copied.copy.tensor
            does = "writes" if written or alone else "reads"
            yield Step("read", site, say("{call} " + does + " {who}", call=CallOf(at), who=who))


_FAR, _TOLD = 5_000, 2


def _uses_behind(history: History, position: int, tensor: int) -> dict[SiteId, int]:
    """Return the first lines behind a call that use the values of a tensor, each with its call."""
    lines: dict[SiteId, int] = {}
    for at in range(position + 1, min(position + _FAR, len(history.events))):
        event = history.events[at]
        used = not operation(event.operation).clears
        if used and any(one.tensor == tensor for one in event.reads):
            lines.setdefault(event.site, at)
            if len(lines) == _TOLD:
                break
    return lines


def _without(name: str, site: Site, what: str = "tensor") -> Sentence:
    """Say what to write instead, as far as the text of the call is known."""
    typed = {"__deepcopy__": "copy.deepcopy", "tensor": "torch.tensor"}.get(name, name)
    start = "Use the {what} itself: leave {typed} out"
    if not site.expression:
        return say(start + ".", what=what, typed=typed)
    text = Segment(site.expression, "code")
    return say(start + " of {text}.", what=what, typed=typed, text=text)


def _in_library(history: History, found: list[tuple[Key, Need]]) -> Claim:
    """Tell of a library's copies at the user's line that led there."""
    number = found[0][0][0]
    site = history.site(number)
    found = sorted(found, key=lambda one: -one[1].bytes)
    total, count = sum(one.bytes for _, one in found), sum(one.count for _, one in found)
    makes = "{call} copies {bytes} bytes in {runs}"
    return Claim(
        tensors=(),
        cause=number,
        site=number,
        operation=found[0][1].operation,
        message=say(
            "The library called at {line} makes {copies} that nothing needed, of {bytes} bytes"
            " together.",
            line=At(number), copies="1 copy" if count == 1 else f"{count:,} copies", bytes=total,
        ),
        story=tuple(
            Step("made", inner, say(makes, call=shown(name), bytes=need.bytes,
                                     runs="1 run" if need.count == 1 else f"{need.count:,} runs"))
            for (_, inner, name), need in found[:8]
        ),
        subject=site.target or site.function or place(site),
        assumes=(say("no line that did not run writes either of them"),),
        count=count,
        bytes=total,
    )  # fmt: skip


VERDICT = Verdict(
    slug="needless-copy",
    severity="note",
    summary="a copy that could have been its source: nothing was written while both lived",
    page=PAGE,
    check=check,
    past="all",
    damage="cost",
    examples=(
        Example(
            "A residual connection: the clone of an input that nothing writes",
            """import torch
from torch import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(4, 4, 3, padding=1)

    def forward(self, x):
        identity = x.clone()
        out = self.conv(x).relu()
        return out + identity


block = Block()
block(torch.randn(2, 4, 8)).sum().backward()
""",
            (Expected("needless-copy", "identity", 11),),
        ),
        Example(
            "The same with a ReLU in place on the input: the clone is needed",
            """import torch
from torch import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(4, 4, 3, padding=1)

    def forward(self, x):
        identity = x.clone()
        out = self.conv(torch.relu_(x))
        return out + identity


block = Block()
block(torch.randn(2, 4, 8)).sum().backward()
""",
        ),
    ),
)
