"""`untracked-write`: a write that autograd cannot see changed a value that a backward used."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from tether.analysis.history import History
from tether.analysis.saved_values import graph_of, saved
from tether.analysis.shared_memory import OWN_COUNTER, sharing, unheard
from tether.analysis.wording import evidence, place
from tether.facts import UNKNOWN, Operand, Site
from tether.finding import Evidence, Finding, Fix
from tether.regions import extent, may_overlap
from tether.verdicts.base import Example, Expected, Verdict

PAGE = """
# untracked-write

## What it says
A call saved a value for its backward pass; the value was then written in a way that moves no
version counter (`.data`, a NumPy array, DLPack, the storage itself); then backward used it. The
gradient is wrong and nothing raised.

## Why it matters
PyTorch refuses a backward whose saved values were written, by comparing version counters. These
writes are the ones it cannot see.

## Known problems
Which elements an assignment to an index wrote is not recorded: where only a part of the tensor was
saved, nothing is said.
Only operations of which it is known what they save are judged. A write through an array is found
by comparing bytes, of storages up to 16 MiB, for at most 2 % of the run's time.

## Example
```python
h = torch.exp(w)
h.data.clamp_(max=1.0)               # exp saved h
h.sum().backward()                   # the gradient of w is wrong
```

## Use instead
```python
h = torch.exp(w).clamp(max=1.0)
```

## Fix safety
What is computed changes: never applied by itself.
"""


_IN_PART = frozenset(
    {"__setitem__", "index_put_", "index_fill_", "index_copy_", "index_add_", "index_reduce_"}
    | {"masked_fill_", "masked_scatter_", "scatter_", "scatter_add_", "scatter_reduce_", "put_"}
    | {"fill_diagonal_"}
)
"""Writes of some elements of the tensor that they are called on."""


class _Write(NamedTuple):
    """A write without a version: between two positions, at a site."""

    after: int  # the value was saved before this position ...
    before: int  # ... and used after this one
    operand: Operand | None
    storage: int
    site: Site
    how: str
    export: int  # the call through which it could happen, -1


def check(history: History) -> Iterator[Finding]:
    """Give each unseen write to a saved value, once per place."""
    by_storage: dict[int, list[_Write]] = defaultdict(list)
    for write in (*_through_data(history), *_unheard(history)):
        by_storage[write.storage].append(write)
    if not by_storage or not history.backwards:
        return
    memory = history.flow.memory
    told: set[tuple[Site, int]] = set()
    for at, event in enumerate(history.events):
        for operand in saved(event):
            for write in by_storage.get(memory(operand), ()):
                if at > write.after or (write.site, event.site) in told:
                    continue
                if not _unseen_by(history, operand, write):
                    continue
                backward = _used(history, at, write)
                if backward != UNKNOWN:
                    told.add((write.site, event.site))
                    yield _finding(history, at, operand, write, backward)


def _through_data(history: History) -> Iterator[_Write]:
    """Yield the writes that the recorder heard, through an alias with a counter of its own."""
    found = sharing(history)
    for memory, touches in found.writes.items():
        for at, operand in touches:
            event = history.events[at]
            counter = found.counter(operand.tensor)
            made = history.made_at(counter)
            if event.operation == "step" or made == UNKNOWN:
                continue
            how = history.events[made].operation.removesuffix(".__get__")
            if history.events[made].operation in OWN_COUNTER:
                yield _Write(at - 1, at, operand, memory, history.site_of(event), how, made)


def _unheard(history: History) -> Iterator[_Write]:
    """Yield the writes that were found by comparing bytes, and those of storages."""
    flow = history.flow
    for fact in unheard(history):
        export = history.position(fact.event) if fact.event != UNKNOWN else UNKNOWN
        after, before = history.position(fact.after), history.position(fact.before)
        if export >= 0:
            site, how = history.site_of(history.events[export]), history.events[export].operation
        else:
            site, how = history.site(fact.site), "the storage"
        yield _Write(after, before - 1, None, flow.memory_of(fact.storage), site, how, export)


def _unseen_by(history: History, operand: Operand, write: _Write) -> bool:
    """Whether the write reached the saved value and moved no counter that it is checked against."""
    if write.operand is None:
        return True
    found = sharing(history)
    if found.counter(operand.tensor) == found.counter(write.operand.tensor):
        return False
    written = write.operand._replace(storage=operand.storage)
    if history.events[write.before].operation in _IN_PART and not _covers(operand, written):
        return False  # which elements it wrote is not recorded: perhaps the others
    return operand.dtype != written.dtype or may_overlap(operand, written)


def _covers(operand: Operand, written: Operand) -> bool:
    """Whether an operand has every element of the tensor that was written."""
    (first, last), (other_first, other_last) = extent(operand), extent(written)
    inside = first <= other_first and other_last <= last
    return inside and math.prod(operand.shape) >= math.prod(written.shape)


def _used(history: History, at: int, write: _Write) -> int:
    """Position of the first backward after the write that goes through the call at `at`, or -1."""
    freed = False
    for backward in history.backwards:
        if backward <= at or at not in graph_of(history, backward):
            continue
        if backward <= write.before:
            freed = True  # its values are gone, but for retain_graph
            continue
        return UNKNOWN if freed or history.events[backward].raised else backward
    return UNKNOWN


def _finding(history: History, at: int, operand: Operand, write: _Write, backward: int) -> Finding:
    saver = history.events[at]
    name = history.name_of(operand.tensor)
    loss = history.events[backward]
    facts = [evidence(history, "saved", saver, f"{saver.operation} saves `{name}` for backward")]
    if write.export >= 0 and history.site_of(history.events[write.export]) != write.site:
        shared = history.events[write.export]
        facts.append(evidence(history, "shared", shared, f"{write.how} shares its memory"))
    facts.append(Evidence("written", write.site, f"written through {write.how}, with no version"))
    facts.append(evidence(history, "used", loss, "backward uses what was written"))
    return Finding(
        slug="untracked-write",
        severity="error",
        subject=name,
        site=write.site,
        operation=write.how,
        message=(
            f"The gradient through `{name}` is wrong: {saver.operation}"
            f" ({place(history.site_of(saver))}) saved it for backward, then it was written through"
            f" {write.how} ({place(write.site)}), which autograd cannot see."
        ),
        evidence=tuple(facts),
        fix=Fix(
            f"Write into a copy ({name}.detach().clone()), or use a call that makes a new tensor."
        ),
        tensors=(operand.tensor,),
    )


VERDICT = Verdict(
    slug="untracked-write",
    severity="error",
    summary="a write that autograd cannot see changed a saved value: the gradient is wrong",
    page=PAGE,
    check=check,
    examples=(
        Example(
            "A write through .data",
            """import torch

w = torch.ones(3, requires_grad=True)
h = torch.exp(w)
h.data.zero_()
h.sum().backward()
""",
            (Expected("untracked-write", "h", 5),),
        ),
        Example(
            "A write through the NumPy array",
            """import torch

w = torch.ones(3, requires_grad=True)
h = torch.exp(w)
array = h.detach().numpy()
array[:] = 0
h.sum().backward()
""",
            (Expected("untracked-write", "h", 5),),
        ),
        Example(
            "A write through a tensor made from the array",
            """import torch

w = torch.ones(3, requires_grad=True)
h = torch.exp(w)
torch.from_numpy(h.detach().numpy()).zero_()
h.sum().backward()
""",
            (Expected("untracked-write", "h", 5),),
        ),
        Example(
            "A write through DLPack",
            """import torch

w = torch.ones(3, requires_grad=True)
h = torch.exp(w)
torch.from_dlpack(h.detach()).zero_()
h.sum().backward()
""",
            (Expected("untracked-write", "h", 5),),
        ),
        Example(
            "A write through the storage",
            """import torch

w = torch.ones(3, requires_grad=True)
h = torch.exp(w)
h.untyped_storage().fill_(0)
h.sum().backward()
""",
            (Expected("untracked-write", "h", 5),),
        ),
        Example(
            "An update by hand after the backward pass, and a value that nothing saved",
            """import torch

w = torch.ones(3, requires_grad=True)
for _ in range(3):
    h = w + 1
    h.data.clamp_(max=1.5)
    (h * w).sum().backward()
    w.data.sub_(0.1 * w.grad)
    w.grad = None
""",
        ),
    ),
)
