"""`unsynchronized-read`: memory of a non_blocking copy was read before the copy was done."""

from __future__ import annotations

from collections.abc import Iterator

from tether.analysis.history import History
from tether.facts import NON_BLOCKING, UNKNOWN, Event, Operand
from tether.finding import At, Claim, Repair, Step, say
from tether.operations.table import operation
from tether.verdicts.base import Example, Expected, Verdict

PAGE = """
# unsynchronized-read

## What it says
A copy from a device to host memory was started with `non_blocking=True`, and the host read that
memory before anything waited for the copy.

## Why it matters
What is read may be the old bytes, all of them or some: garbage that differs from run to run.

## Known problems
A wait that PyTorch does not know of (another library's) is not seen. Only copies out of a device
are concerned: a later call on the device waits for copies into it by itself.

## Example
```python
host = loss.to("cpu", non_blocking=True)
print(host.item())                   # may print anything
```

## Use instead
```python
host = loss.to("cpu", non_blocking=True)
torch.cuda.synchronize()
print(host.item())
```

## Fix safety
A wait costs time and changes no value that was right: never applied by itself.
"""

WAITS = frozenset({"synchronize", "wait_stream", "wait_event"})
"""Calls that wait for a device."""


def check(history: History) -> Iterator[Claim]:
    """Give the first host read of each copy that nothing waited for, once per place."""
    pending: dict[int, int] = {}  # memory of the host -> position of the copy
    told: set[tuple[int, int]] = set()
    memory = history.flow.memory
    if not history.events.flagged(NON_BLOCKING).any():
        return
    for at, event in enumerate(history.events):
        if _waits(history, event):
            pending.clear()
        elif event.non_blocking:
            pending |= {memory(one): at for one in _started(history, event)}
        else:
            for one in _values_read(event):
                copy = pending.pop(memory(one), UNKNOWN)
                key = (history.events[copy].site, event.site)
                if copy != UNKNOWN and key not in told:
                    told.add(key)
                    yield _claim(history, copy, at, one)


def _started(history: History, event: Event) -> list[Operand]:
    """Return what a call that does not block starts to copy to the host."""
    if all(_device(history, one) == "cpu" for one in event.reads):
        return []
    return [one for one in event.results if _device(history, one) == "cpu"]


def _values_read(event: Event) -> list[Operand]:
    """Return the operands whose values a call reads: not the target of `copy_`."""
    target = event.reads[:1] if event.operation == "copy_" else ()
    return [one for one in event.reads if one not in target]


def _device(history: History, operand: Operand) -> str:
    fact = history.trace.storages.get(operand.storage)
    return fact.device if fact is not None else "cpu"


def _waits(history: History, event: Event) -> bool:
    if event.operation in WAITS:
        return True
    return (
        operation(event.operation).waits
        and not event.non_blocking
        and any(_device(history, one) != "cpu" for one in event.reads)
    )


def _claim(history: History, copy: int, read: int, operand: Operand) -> Claim:
    copying, reading = history.events[copy].site, history.events[read]
    return Claim(
        tensors=(operand.tensor,),
        cause=(copying, reading.site),
        site=reading.site,
        operation=reading.operation,
        message=say(
            "{subject} is read at {here} while the non_blocking copy of {copying} may still be"
            " under way.",
            here=At(reading.site), copying=At(copying),
        ),
        story=(
            Step("copied", copying, say("the copy to the host is only started here")),
            Step("read", reading.site, say("read with no wait in between")),
        ),
        repair=Repair(
            say("Wait before {here}: torch.cuda.synchronize(), or an event recorded after the copy"
                " and event.synchronize(); or leave non_blocking out.", here=At(reading.site))
        ),
        count=history.times(read),
    )  # fmt: skip


VERDICT = Verdict(
    slug="unsynchronized-read",
    severity="error",
    summary="memory of a non_blocking copy was read before the copy was known to be done",
    page=PAGE,
    check=check,
    examples=(
        Example(
            "A number printed before the copy is waited for",
            """import torch

x = torch.ones(1 << 22, device="cuda")
host = torch.empty(1 << 22, pin_memory=True)
host.copy_(x, non_blocking=True)
print(host.sum().item())
torch.cuda.synchronize()
print(host.sum().item())
""",
            (Expected("unsynchronized-read", "host", 6),),
            needs="cuda",
        ),
        Example(
            "On one device nothing is under way",
            """import torch

x = torch.ones(3)
print(x.to("cpu", non_blocking=True).sum().item())
""",
        ),
    ),
)
