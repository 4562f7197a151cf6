"""`repeated-transfer`: the same unchanged bytes are moved to the same device again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from tether.dataflow import extent
from tether.facts import UNKNOWN, Operand
from tether.finding import Finding, Fix
from tether.history import History
from tether.verdicts.base import Example, Expected, Verdict, evidence, place
from tether.verdicts.needs import nbytes

PAGE = """
# repeated-transfer

## What it says
The same bytes, which nothing wrote in between, were moved from one device to the same other device
more than once: a mask made on the host and sent at each step, a table copied back for each batch.

## Why it matters
A transfer takes the bus for as long as its bytes need and, from pageable memory, the host's time as
well. What is there already need not come again.

## Known problems
A result of an earlier transfer that is no longer alive had to be made again: it is told all the
same, since keeping it is the repair. Less than 64 KiB moved again in a run is not told.

## Example
```python
for batch in loader:
    scores = model(batch.to("cuda"), mask.to("cuda"))   # mask never changes
```

## Use instead
```python
mask = mask.to("cuda")
for batch in loader:
    scores = model(batch.to("cuda"), mask)
```

## Fix safety
The values are the same; memory on the device is held for longer. Not applied by itself.
"""

LEAST = 64 << 10
"""Bytes that are moved again in a run before it is told."""

_MOVES = frozenset(
    {"to", "cpu", "cuda", "copy_", "numpy", "tolist", "type", "as_tensor", "tensor", "asarray"}
)


def check(history: History) -> Iterator[Finding]:
    """Give each line that moves bytes which are there already, or were."""
    moved: dict[tuple[int, str, tuple[int, int], str], list[int]] = defaultdict(list)
    again: dict[int, list[tuple[int, int, Operand]]] = defaultdict(list)
    for at, event in enumerate(history.events):
        if event.operation not in _MOVES or event.note == "raised":
            continue
        for source, device in _transfers(history, at):
            key = (history.flow.memory(source), device, extent(source), source.dtype)
            before = moved[key]
            if before and not any(one <= at for one in history.writes_to(source, before[-1])):
                again[event.site].append((before[0], at, source))
            else:
                before.clear()
            before.append(at)
    for found in again.values():
        if sum(nbytes(source) for _, _, source in found) >= LEAST:
            yield _finding(history, found)


def _transfers(history: History, at: int) -> Iterator[tuple[Operand, str]]:
    """Yield what an event moved, and to which device."""
    event = history.events[at]
    sources = event.reads[1:] if event.operation == "copy_" else event.reads[:1]
    for source in sources:
        here = _device(history, source)
        if event.operation in ("numpy", "tolist"):
            there = "cpu"
        elif event.results:
            there = _device(history, event.results[0])
        else:
            continue
        if source.storage != UNKNOWN and "meta" not in (here, there) and here != there:
            yield source, there


def _device(history: History, operand: Operand) -> str:
    fact = history.trace.storages.get(operand.storage)
    return fact.device if fact is not None else "cpu"


def _finding(history: History, found: list[tuple[int, int, Operand]]) -> Finding:
    first, at, source = found[0]
    event = history.events[at]
    site = history.site_of(event)
    name = history.name_of(source.tensor).strip("`")
    device = next(there for _, there in _transfers(history, at))
    total = sum(nbytes(one) for _, _, one in found)
    times = "once" if len(found) == 1 else f"{len(found):,} times"
    return Finding(
        slug="repeated-transfer",
        severity="note",
        subject=name,
        site=site,
        operation=event.operation,
        message=(
            f"`{name}` is moved to {device} again {times} at {place(site)}, {total:,} bytes that"
            " nothing had written since they were moved before."
        ),
        evidence=(
            evidence(history, "made", history.events[first], f"moved to {device} here before"),
            evidence(history, "used", event, f"and again here by {event.operation}"),
        ),
        fix=Fix(f"Move `{name}` once, before the loop, and use what came of it."),
        count=len(found),
        bytes=total,
        tensors=(source.tensor,),
    )


VERDICT = Verdict(
    slug="repeated-transfer",
    severity="note",
    summary="the same unchanged bytes are moved to the same device again",
    page=PAGE,
    check=check,
    examples=(
        Example(
            "On one device nothing is moved",
            """import torch

mask = torch.ones(200, 200)
for _ in range(4):
    print(mask.to("cpu").sum().item())
""",
        ),
        Example(
            "A mask that is sent at each step",
            """import torch

mask = torch.ones(200, 200)
for _ in range(4):
    there = mask.to("cuda")
    print(there.sum().item())
""",
            (Expected("repeated-transfer", "mask", 5),),
            needs="cuda",
        ),
    ),
)
