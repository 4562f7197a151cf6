"""Which line and which variable allocates, holds and peaks tensor memory.

From births and deaths of storages alone, so that 4 bytes are seen as well as 4 GB: process memory
moves by pages and an allocator keeps what was freed, and neither tells who holds it.

What is counted is a **block**: one storage, or all storages that wrap one memory (an array and the
tensors made of it). A block lives from the call that made it until nothing holds its memory any
more, be it a variable, a container or the gradient graph. What PyTorch allocates and frees again
inside one operation, and gradients on their way through a backward pass, never become a tensor of
the program and are not counted here; `unseen` says how much that was where the device's allocator
knows.

Times are the facts' clock: so many events had been recorded by then. Sizes are bytes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np

from tether.analysis.history import History
from tether.analysis.log import same_lines
from tether.analysis.speaking import bytes_text
from tether.facts import GRAD_ON, UNKNOWN, Attached, Event, Site, StorageFact, TensorId
from tether.regions import element_size, extent
from tether.store.columns import Numbers

Kind = Literal[
    "parameter",
    "gradient",
    "optimizer state",
    "buffer",
    "activation",
    "input",
    "temporary",
    "other",
]  # fmt: skip
"""What a block is at one moment.

- activation: only the gradient graph keeps it, for backward: a backward pass itself freed it, or
  every tensor seen on it is gone and a call that autograd follows took part in it
- input: made from nothing that is a tensor (data, constants, noise)
- temporary: computed by a call, held by a variable, and freed before the end
- other: computed by a call and held to the end
"""

KINDS: tuple[Kind, ...] = (
    "parameter", "gradient", "optimizer state", "buffer", "activation", "input", "temporary",
    "other",
)  # fmt: skip

_NO_MEMORY = frozenset({"meta"})  # devices whose tensors have none


class Block(NamedTuple):
    """One piece of memory and its life."""

    nbytes: int
    device: str
    born: int
    freed: int  # -1: alive at the end
    site: int  # number of the site that made it, or where it was first met
    made: bool  # a recorded call made it; else it was there before or came unheard
    tensors: tuple[int, ...]  # serial numbers of the tensors seen on it, first to last
    released: bool = False  # a backward pass freed it: until then the gradient graph held it

    def held(self, at: int) -> bool:
        """Whether it is there at the height of moment `at`."""
        return self.born <= at and (self.freed < 0 or self.freed > at or self.freed == self.born)


@dataclass(frozen=True, slots=True)
class Line:
    """What one line of the program did to memory; `allocated` is `freed` plus `held_end`."""

    site: Site
    allocated: int
    freed: int  # of what it allocated
    held_end: int
    held_peak: int
    count: int  # blocks allocated


@dataclass(frozen=True, slots=True)
class Part:
    """One share of the peak."""

    kind: Kind
    variable: str
    site: Site  # of the line that made it
    nbytes: int
    count: int


class Tenant(NamedTuple):
    """A tensor on a block at one moment, and the bytes of the block that it spans."""

    tensor: int
    name: str
    first: int  # byte
    end: int  # the byte after its last


class Plot(NamedTuple):
    """One block as it is at one moment: the map's unit."""

    block: Block
    kind: Kind
    site: Site  # of the line that made it
    tenants: tuple[Tenant, ...]  # empty: no tensor of the program is left, the graph holds it


class More(NamedTuple):
    """A line that holds more at the last step than at the second."""

    site: Site
    nbytes: int


LEAST_GROWTH = 1 << 10
"""Bytes a step from which a growth is told unasked: a million steps add a gigabyte."""


class Growth(NamedTuple):
    """What is held as an optimizer begins each of its steps."""

    held: tuple[int, ...]  # at each step
    lines: tuple[More, ...]

    @property
    def per_step(self) -> float:
        """Bytes from the second step to the last; before it gradients and state come about."""
        steps = len(self.held) - 2
        return (self.held[-1] - self.held[1]) / steps if steps > 0 else 0.0

    def __str__(self) -> str:
        """Return it as the start of a sentence."""
        size, last = bytes_text(round(self.per_step)), len(self.held)
        return f"From optimizer step 2 to {last} the memory held grew by {size} a step"


class Memory:
    """The memory of one trace, on all devices or on one."""

    def __init__(self, history: History, device: str = "") -> None:
        self._history = history
        self._device = device
        attached = history.trace.attached
        self._attached = {fact.tensor: fact for fact in attached if fact.tensor >= 0}
        self._released = {fact.storage for fact in attached if fact.kind == "activation"}

    @classmethod
    def of(cls, history: History, device: str = "") -> Memory:
        """Return the memory of a history, made when it is first asked for."""
        made: Memory = history.memo.setdefault(f"memory of {device}", None) or cls(history, device)
        history.memo[f"memory of {device}"] = made
        return made

    # -- blocks ------------------------------------------------------------------------------

    @cached_property
    def blocks(self) -> list[Block]:
        """Every block, in the order in which they were first seen."""
        members: dict[int, list[tuple[int, StorageFact]]] = defaultdict(list)
        for serial, fact in self._history.trace.storages.items():
            if not self._counts(fact):
                continue
            members[-2 - fact.memory if fact.memory >= 0 else serial].append((serial, fact))
        blocks = [self._block(one) for one in members.values()]
        return sorted(blocks, key=lambda block: block.born)

    def _counts(self, fact: StorageFact) -> bool:
        return fact.device not in _NO_MEMORY and self._device in ("", fact.device)

    def _block(self, members: list[tuple[int, StorageFact]]) -> Block:
        facts = [fact for _, fact in members]
        first = min(members, key=lambda one: (one[1].born, one[0]))[0]
        # Several storages on one memory: as far as they reach, and no byte twice.
        start, end = min(f.start for f in facts), max(f.start + f.nbytes for f in facts)
        freed = UNKNOWN if any(f.freed < 0 for f in facts) else max(f.freed for f in facts)
        site, made = self._origins.get(first, (UNKNOWN, False))
        tensors = dict.fromkeys(t for serial, _ in members for t in self._on.get(serial, ()))
        born = min(fact.born for fact in facts)
        released = freed >= 0 and any(serial in self._released for serial, _ in members)
        return Block(
            end - start, facts[0].device, born, freed, site, made, tuple(tensors), released
        )

    @cached_property
    def _origins(self) -> dict[int, tuple[int, bool]]:
        """For each storage the site where it was first seen, and whether it was made there."""
        events = self._history.events
        at, operands = events.touched()
        storages = events.operands.table[operands, 2]
        first: Numbers = np.full(int(storages.max(initial=0)) + 2, UNKNOWN)  # from -1 on
        first[storages[::-1] + 1] = np.arange(len(storages))[::-1]
        seen = np.flatnonzero(first >= 0)
        calls = at[first[seen]]
        reads_end = events.starts[calls] + events.column("reads")[calls]
        made = first[seen] >= reads_end
        columns = (seen - 1, events.column("site")[calls], made, calls)
        rows = zip(*(one.tolist() for one in columns), strict=True)
        origins = {storage: (site, is_made, call) for storage, site, is_made, call in rows}
        attached = [*self._attached.values()][::-1]
        for storage, fact in {one.storage: one for one in attached}.items():  # the first of each
            call = origins.get(storage, (0, False, UNKNOWN))[2]
            if call < 0 or self._history.trace.event_id(call) >= fact.at:
                origins[storage] = (fact.site, True, UNKNOWN)
        return {storage: (site, is_made) for storage, (site, is_made, _) in origins.items()}

    @cached_property
    def _on(self) -> dict[int, dict[int, None]]:
        """For each storage the tensors seen on it, in order."""
        found: dict[int, dict[int, None]] = defaultdict(dict)
        _, operands = self._history.events.touched()
        both = self._history.events.operands.table[:, 1:3]
        pairs = same_lines(both[:, 0], both[:, 1])
        first = np.full(int(pairs.max(initial=UNKNOWN)) + 1, UNKNOWN, np.int64)
        first[pairs[operands[::-1]]] = np.arange(len(operands))[::-1]
        for tensor, storage in both[operands[np.sort(first[first >= 0])]].tolist():
            found[storage][tensor] = None
        for fact in self._attached.values():
            found[fact.storage][fact.tensor] = None
        return found

    @cached_property
    def devices(self) -> list[str]:
        """Devices with memory, the one with the most bytes allocated first."""
        total: Counter[str] = Counter()
        for block in self.blocks:
            total[block.device] += block.nbytes
        return [device for device, _ in total.most_common()]

    # -- over time ---------------------------------------------------------------------------

    @cached_property
    def timeline(self) -> list[tuple[int, int]]:
        """Bytes held from each moment on at which they changed: ``(at, bytes)``."""
        before: Counter[int] = Counter()  # freed as the moment begins
        born: Counter[int] = Counter()
        within: Counter[int] = Counter()  # made and freed between two events
        for block in self.blocks:
            born[block.born] += block.nbytes
            if block.freed >= 0:
                (within if block.freed == block.born else before)[block.freed] += block.nbytes
        line, held = [], 0
        for at in sorted({*before, *born}):
            held += born[at] - before[at]
            line.append((at, held))
            if within[at]:
                held -= within[at]
                line.append((at, held))
        return line

    @cached_property
    def peak(self) -> int:
        """The most bytes held at once."""
        return max((held for _, held in self.timeline), default=0)

    @property
    def whole(self) -> bool:
        """Whether all was counted: gradients and what optimizers hold were asked for, or none was.

        Else `peak` is the most held by what calls were given and returned.
        """
        history = self._history
        return bool(history.trace.attached) or not (history.backwards or history.steps)

    @cached_property
    def peak_at(self) -> int:
        """When that was first so; -1 when no memory was seen."""
        peak = self.peak
        return next((at for at, held in self.timeline if held == peak), UNKNOWN)

    @property
    def peak_site(self) -> Site:
        """Line of the last block that came before the peak."""
        at = self.peak_at
        sites = [block.site for block in self.blocks if block.born == at]
        return self._history.site(sites[-1] if sites else UNKNOWN)

    @property
    def held_end(self) -> int:
        """Bytes held when the recording ended."""
        return sum(block.nbytes for block in self.blocks if block.freed < 0)

    @property
    def allocated(self) -> int:
        """Bytes of all blocks together."""
        return sum(block.nbytes for block in self.blocks)

    # -- by line and by variable -------------------------------------------------------------

    @cached_property
    def lines(self) -> list[Line]:
        """What each line allocated, the largest share of the peak first."""
        peak_at = self.peak_at
        rows: dict[tuple[str, int], Line] = {}
        for block in self.blocks:
            site = self._history.site(block.site)
            freed, size = block.freed >= 0, block.nbytes
            old = rows.get((site.file, site.line)) or Line(site, 0, 0, 0, 0, 0)
            rows[site.file, site.line] = Line(
                old.site,
                old.allocated + size,
                old.freed + size * freed,
                old.held_end + size * (not freed),
                old.held_peak + size * block.held(peak_at),
                old.count + 1,
            )
        return sorted(rows.values(), key=lambda row: (-row.held_peak, -row.allocated))

    @cached_property
    def composition(self) -> list[Part]:
        """What the peak consists of, the largest share first."""
        at = self.peak_at
        shares: dict[tuple[Kind, str, str, int], Part] = {}
        for block in self.blocks:
            if not block.held(at):
                continue
            kind, name = self.kind(block, at), self.variable(block)
            site = self._history.site(block.site)
            key = (kind, name, site.file, site.line)
            old = shares.get(key) or Part(kind, name, site, 0, 0)
            shares[key] = replace(old, nbytes=old.nbytes + block.nbytes, count=old.count + 1)
        return sorted(shares.values(), key=lambda part: -part.nbytes)

    def map(self, at: int | None = None) -> list[Plot]:
        """Return every block held at a moment (at the peak unless told) and who is on it.

        The largest block comes first, tenants by their first byte. A tensor is placed where it was
        when it was last seen.
        """
        moment = self.peak_at if at is None else at
        plots = [
            Plot(
                block,
                self.kind(block, moment),
                self._history.site(block.site),
                tuple(sorted(self._tenants(block, moment), key=lambda one: (one[2], -one[3]))),
            )
            for block in self.blocks
            if block.held(moment)
        ]
        return sorted(plots, key=lambda plot: -plot.block.nbytes)

    def _tenants(self, block: Block, at: int) -> Iterator[Tenant]:
        trace = self._history.trace
        for tensor in block.tensors:
            life, operand = trace.tensors.get(tensor), self._history.operand_of(tensor)
            if life is None or life.born > at or 0 <= life.died <= at:
                continue
            name = self._history.name_of(tensor)
            if operand is None:
                yield Tenant(tensor, name, 0, block.nbytes)
                continue
            size = element_size(operand.dtype)
            start = trace.storages[operand.storage].start
            first, end = extent(operand)
            yield Tenant(tensor, name, start + first * size, start + end * size)

    def moment_of(self, file: str, line: int) -> int:
        """Return the time just after the last call that a line made. Raises `LookupError`."""
        trace = self._history.trace
        last = UNKNOWN
        for position, event in enumerate(trace.events):
            site = self._history.site(event.site)
            if site.line == line and (site.file == file or site.file.endswith(f"/{file}")):
                last = position
        if last == UNKNOWN:
            raise LookupError(f"no call was recorded at {file}:{line}")
        return trace.event_id(last)

    def by_kind(self) -> dict[Kind, int]:
        """Return the bytes of the peak of each kind that has any."""
        total: Counter[Kind] = Counter()
        for part in self.composition:
            total[part.kind] += part.nbytes
        return {kind: total[kind] for kind in KINDS if kind in total}

    def variable(self, block: Block) -> str:
        """Return what the program calls a block; several plain names are all told."""
        known = (self._attached.get(TensorId(one)) for one in block.tensors)
        held = [fact for fact in known if fact is not None]
        if held:  # one gradient may be handed on from leaf to leaf: by the one that has a name
            return self._attachment(max(held, key=lambda fact: bool(self._names_of(fact.of))))
        named = list(dict.fromkeys(n for t in block.tensors for n in self._history.names_of(t)))
        if named:
            others = [n for n in named[1:] if n.isidentifier() and self._bearers[n] == 1]
            return ", ".join([named[0], *others[:3]])
        return self._history.name_of(block.tensors[0]) if block.tensors else ""

    def _names_of(self, tensor: int) -> list[str]:
        return self._history.names_of(tensor) if tensor >= 0 else []

    def _attachment(self, fact: Attached) -> str:
        leaf = self._history.name_of(fact.of) if fact.of >= 0 else "?"
        return f"{leaf}.grad" if fact.kind == "gradient" else f"{fact.part} of {leaf}"

    @cached_property
    def _bearers(self) -> Counter[str]:
        """For each name how many tensors bore it: a loop variable names many in turn."""
        pairs = {(name.name, name.tensor) for name in self._history.trace.names}
        return Counter(name for name, _ in pairs)

    # -- kinds -------------------------------------------------------------------------------

    def kind(self, block: Block, at: int) -> Kind:
        """Say what a block is at a moment, by what was seen up to the end."""
        roles = self._roles
        for tensor in block.tensors:
            if tensor in roles:
                return roles[tensor]
        if block.tensors and not self._computed(block):
            return "input"
        if self._only_graph(block, at):
            return "activation"
        if not block.tensors:
            return "input"
        return "temporary" if block.freed >= 0 else "other"

    @cached_property
    def _roles(self) -> dict[int, Kind]:
        """Tensors whose role is written down: what optimizers, modules and `.grad` hold."""
        trace = self._history.trace
        roles: dict[int, Kind] = {}
        for name in trace.names:
            if name.module:
                roles[name.tensor] = "buffer"
        for serial, tensor in trace.tensors.items():
            if tensor.kind == "Buffer":
                roles[serial] = "buffer"
            elif tensor.kind == "Parameter":
                roles[serial] = "parameter"
        roles |= dict.fromkeys(self._history.held, "parameter")
        for event in trace.events:
            for one in event.results:
                if event.operation in ("grad.__get__", "autograd.grad"):
                    roles[one.tensor] = "gradient"
                elif one.leaf and one.requires_grad:
                    roles.setdefault(one.tensor, "parameter")
        roles |= {serial: fact.kind for serial, fact in self._attached.items()}
        return roles

    def _only_graph(self, block: Block, at: int) -> bool:
        if block.released:
            return True
        if not block.tensors or not self._in_graph.intersection(block.tensors):
            return False
        lives = self._history.trace.tensors
        return all(t in lives and 0 <= lives[t].died <= at for t in block.tensors)

    @cached_property
    def _in_graph(self) -> set[int]:
        """Tensors that took part in a call whose result requires grad, or are such a result."""
        found: set[int] = set()
        for event in self._history.events:
            if event.grad_mode == GRAD_ON and any(
                one.requires_grad and not one.leaf for one in event.results
            ):
                found.update(one.tensor for one in (*event.reads, *event.results))
        return found

    def _computed(self, block: Block) -> bool:
        position = self._history.made_at(block.tensors[0]) if block.tensors else UNKNOWN
        if position < 0:
            return False
        event = self._history.events[position]
        return bool(_sources(event)) or any(
            one.requires_grad and not one.leaf for one in event.results
        )

    # -- growth ------------------------------------------------------------------------------

    @cached_property
    def steps(self) -> list[int]:
        """When the optimizer that stepped most began each of its steps."""
        moments: dict[int, list[int]] = defaultdict(list)
        for fact in self._history.steps:
            moments[fact.optimizer].append(fact.at)
        return max(moments.values(), key=len, default=[])

    @cached_property
    def growth(self) -> Growth | None:
        """What is held at each step of the optimizer that stepped most; None without steps."""
        steps = self.steps
        if not steps:
            return None
        held = tuple(self._held_at(steps))
        if len(steps) < 3:
            return Growth(held, ())
        more = self._by_line(steps[-1])
        more.subtract(self._by_line(steps[1]))
        lines = [
            More(self._history.site(site), size) for site, size in more.most_common() if size > 0
        ]
        return Growth(held, tuple(lines))

    @property
    def growing(self) -> Growth | None:
        """The growth, where most steps left something behind that was held to the last.

        A step whose batch is larger holds more and leaves nothing. What the last two steps made is
        not asked about: variables of a loop still hold it.
        """
        growth = self.growth if self._leaving else None
        return growth if growth and growth.per_step >= LEAST_GROWTH and growth.lines else None

    @property
    def _leaving(self) -> bool:
        """Whether most steps left something: from the lives alone, which takes no time."""
        steps = np.array(self.steps[1:-2], dtype=np.int64)
        if len(steps) < 3:
            return False
        lives = [
            (fact.born, fact.freed)
            for fact in self._history.trace.storages.values()
            if self._counts(fact)
        ]
        born, freed = np.array(lives, dtype=np.int64).reshape(-1, 2).T
        left = np.searchsorted(steps, born[(freed < 0) | (freed > self.steps[-1])], side="left")
        between = left[(left > 0) & (left < len(steps))]
        return 2 * len(np.unique(between)) > len(steps) - 1

    def _held_at(self, moments: Iterable[int]) -> Iterable[int]:
        line, place, held = self.timeline, 0, 0
        for moment in moments:
            while place < len(line) and line[place][0] <= moment:
                held = line[place][1]
                place += 1
            yield held

    def _by_line(self, at: int) -> Counter[int]:
        found: Counter[int] = Counter()
        for block in self.blocks:
            if block.held(at):
                found[block.site] += block.nbytes
        return found

    # -- what was not seen -------------------------------------------------------------------

    @cached_property
    def unseen(self) -> dict[str, int]:
        """For each device whose allocator was asked: bytes at its peak beyond those seen here.

        Workspace inside operations, gradients on their way, and what was made before or beside
        the recording. The two peaks may lie at different moments.
        """
        found: dict[str, int] = {}
        for fact in self._history.trace.allocators:
            if not self._device or fact.device == self._device:
                own = self if self._device else Memory.of(self._history, fact.device)
                found[fact.device] = max(0, fact.peak - own.peak)
        return found


class Growing:
    """By how much the memory held grows from step to step; None where it does not."""

    def __init__(self, history: History, found: tuple[Growth | None] | None = None) -> None:
        """Find it, or take what was `found` before."""
        self.found = found[0] if found else Memory.of(history).growing


def _sources(event: Event) -> tuple[int, ...]:
    """Return the tensors that an event read and did not give back as they were."""
    results = {one.tensor for one in event.results}
    return tuple(one.tensor for one in event.reads if one.tensor not in results)
