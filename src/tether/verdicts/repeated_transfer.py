"""`repeated-transfer`: the same unchanged bytes are moved to the same device again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from tether.analysis.copies.already_there import nbytes
from tether.analysis.copies.other_processes import OtherProcesses
from tether.analysis.history import History
from tether.facts import UNKNOWN, Event, Operand
from tether.finding import At, CallOf, Claim, Repair, Step, say
from tether.operations.table import operation
from tether.regions import extent, may_overlap
from tether.verdicts.base import Example, Expected, Verdict

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
same, since keeping it is the repair: it costs memory on that device for as long as it is kept. Less
than 64 KiB moved again from one line in a run is not told, nor anything whose bytes may have been
written unheard.

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

_COMPARED = 16 << 20
"""Bytes of a storage up to which the recorder compares its contents to find what others wrote."""


def _exports(name: str) -> bool:
    """Whether others than PyTorch come to write a memory by such a call."""
    known = operation(name)
    return known.memory == "shares" and bool(known.leaves or known.enters)


class _Moved(NamedTuple):
    """A transfer of certain bytes, and until when they are known to be as they were."""

    at: int
    until: int
    version: int  # at that time
    made: int  # storage on the other device; -1: Python numbers


class _Again(NamedTuple):
    """A transfer of bytes that had been moved before."""

    first: _Moved
    at: int
    source: Operand
    device: str


class _Transfers:
    """The transfers of a history, and what they moved that had been moved."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.memory = history.flow.memory
        self.writes: dict[int, list[tuple[int, Operand]]] = defaultdict(list)  # by memory
        self.followed: dict[int, bool] = {}

    def again(self) -> dict[int, list[_Again]]:
        """Return what was moved again, by site."""
        before: dict[tuple[int, tuple[int, int], str, str], _Moved] = {}
        found: dict[int, list[_Again]] = defaultdict(list)
        calls = self.history.events.where(lambda name: operation(name).moves)
        if not any(True for _, event in calls for _ in self._moved(event)):
            return found
        for at, event in enumerate(self.history.events):
            moves = operation(event.operation).moves and not event.raised
            for source, device, made in self._moved(event) if moves else ():
                key = (source.storage, extent(source), source.dtype, device)
                first = before.get(key)
                if first is not None and self._unchanged(first, at, source):
                    found[event.site].append(_Again(first, at, source, device))
                    before[key] = first._replace(until=at, version=source.version)
                else:
                    before[key] = _Moved(at, at, source.version, made)
            for written in event.writes:
                self.writes[self.memory(written)].append((at, written))
        return found

    def _moved(self, event: Event) -> Iterator[tuple[Operand, str, int]]:
        """Yield (source, device, storage there) of what an event moved to another device."""
        into = event.operation == "copy_"
        if len(event.reads) <= into:
            return
        source = event.reads[1 if into else 0]
        made = event.results[0].storage if event.results else UNKNOWN
        here = self._device(source.storage)
        there = "cpu" if event.operation == "tolist" else self._device(made)
        if source.version == UNKNOWN or here == there:
            return
        if here and there and "meta" not in (here, there):
            yield source, there, made

    def _device(self, storage: int) -> str:
        """Return where a storage lies; "" when that is not known."""
        fact = self.history.trace.storages.get(storage)
        return fact.device if fact is not None else ""

    def _unchanged(self, first: _Moved, at: int, source: Operand) -> bool:
        """Whether nothing wrote the bytes since they were moved, heard or unheard."""
        memory = self.memory(source)
        if not self._followed(source):
            return False
        heard = 0
        for position, written in reversed(self.writes.get(memory, ())):
            if position <= first.until:
                break
            if written.storage != source.storage or may_overlap(source, written):
                return False
            heard += 1
        # Each write beside the bytes moves the version by one: more than that came unheard.
        return 0 <= source.version - first.version <= heard and not any(
            self.history.flow.memory_of(one.storage) == memory
            and self.history.position(one.after) < at
            and self.history.position(one.before) > first.until
            for one in self.history.trace.unseen
        )

    def _followed(self, source: Operand) -> bool:
        """Whether every write to a memory would have been heard, or found by comparing."""
        memory = self.memory(source)
        if memory not in self.followed:
            events = [self.history.events[at] for at in self.history.on_storage(source)]
            operations = {event.operation for event in events}
            made = any(one.storage == source.storage for one in events[0].results)
            shared = "share_memory_" in operations
            shared = shared or self.history.get(OtherProcesses).write(source)
            exported = memory != source.storage or any(map(_exports, operations))
            fact = self.history.trace.storages[source.storage]
            compared = fact.nbytes <= _COMPARED and fact.device == "cpu"
            compared = compared and not self.history.arrays_unchecked
            self.followed[memory] = made and not shared and (compared or not exported)
        return self.followed[memory]

    def written_there(self, found: list[_Again]) -> bool:
        """Whether what an earlier transfer made was written, and so holds these bytes no more."""
        return any(
            position > one.first.at
            for one in found
            for position, _ in self.writes.get(self.history.flow.memory_of(one.first.made), ())
        )


def check(history: History) -> Iterator[Claim]:
    """Give each line that moves bytes which are there already, or were."""
    transfers = _Transfers(history)
    for site, found in transfers.again().items():
        if sum(nbytes(one.source) for one in found) >= LEAST:
            yield _claim(history, site, found, written=transfers.written_there(found))


def _claim(history: History, site: int, found: list[_Again], *, written: bool) -> Claim:
    first, at, _, device = found[0]
    tensors = tuple(dict.fromkeys(one.source.tensor for one in found))
    total = sum(nbytes(one.source) for one in found)
    keep = "Move {subject} once and keep what came of it on {device}"
    if written:
        keep += "; where it is written there, write a clone, which crosses no bus"
    return Claim(
        tensors=tensors,
        cause=site,
        site=site,
        operation=history.events[at].operation,
        message=say(
            "Moved to {device} again, {times} at {here}: {subject}, {total} bytes that nothing"
            " wrote since they were moved before.",
            here=At(site), device=device, total=total,
            times="once" if len(found) == 1 else f"{len(found):,} times",
        ),
        story=(
            Step("made", history.events[first.at].site,
                 say("moved to {device} here before", device=device)),
            Step("used", site, say("and again here by {call}", call=CallOf(at))),
        ),
        repair=Repair(say(f"{keep}.", device=device)),
        count=len(found),
        bytes=total,
    )  # fmt: skip


VERDICT = Verdict(
    slug="repeated-transfer",
    severity="note",
    summary="the same unchanged bytes are moved to the same device again",
    page=PAGE,
    check=check,
    past="some",
    damage="cost",
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
