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
from tether.analysis.speaking import bytes_text
from tether.analysis.timelines import same_lines
from tether.facts import GRAD_ON, UNKNOWN, Attached, Event, Site, TensorId
from tether.regions import element_size, extent
from tether.store.columns import STORAGE
from tether.store.lives import StorageLives, storages_of
from tether.store.numbers import Numbers

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
    storages: tuple[int, ...]  # serial numbers of those that are on it
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


class _Table(NamedTuple):
    """Blocks as columns, and the storages on them: lines of their table, of which block each."""

    members: Numbers
    of: Numbers
    nbytes: Numbers
    device: Numbers
    born: Numbers
    freed: Numbers
    site: Numbers
    made: Numbers
    released: Numbers

    @property
    def columns(self) -> tuple[Numbers, ...]:
        """What there is of each block, in the order of its fields."""
        return self[2:]

    def held(self, at: int) -> Numbers:
        """Return for each whether it is there at the height of a moment, as `Block.held`."""
        there = (self.freed < 0) | (self.freed > at) | (self.freed == self.born)
        found: Numbers = there & (self.born <= at)
        return found


_NEVER = np.int64(np.iinfo(np.int64).max)  # of its own width beside a narrow column


def _over(join: np.ufunc, of: Numbers, values: Numbers) -> Numbers:
    """Return what the values of each number are together."""
    found = np.zeros(int(of.max(initial=UNKNOWN)) + 1, np.int64)
    found[of] = values  # of each any one, to begin with
    join.at(found, of, values)
    return found


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
        table, words = self._table, self._lives.names.words
        columns = (one.tolist() for one in table.columns)
        ends = np.cumsum(np.bincount(table.of, minlength=len(table.born))).tolist()
        storages = self._lives.column("serial")[table.members].tolist()
        begins = [0, *ends]
        return [
            Block(
                nbytes, words[device], born, freed, site, made, tuple(storages[begin:end]), released
            )
            for (nbytes, device, born, freed, site, made, released), begin, end in zip(
                zip(*columns, strict=True), begins, ends, strict=False
            )
        ]

    @cached_property
    def _lives(self) -> StorageLives:
        return storages_of(self._history.trace.storages)

    @cached_property
    def _counted(self) -> Numbers:
        """Whether each storage has memory, on the devices that are looked at."""
        words = self._lives.names.words
        device = self._lives.column("device")
        used = [
            number
            for number in np.unique(device).tolist()
            if words[number] not in _NO_MEMORY and self._device in ("", words[number])
        ]
        return np.isin(device, used)

    def _members(self) -> tuple[Numbers, Numbers]:
        """Return the lines of all storages that count, and of which block each is, in its order."""
        members = np.flatnonzero(self._counted)
        serial, memory, born = (
            self._lives.column(name)[members] for name in ("serial", "memory", "born")
        )
        key = np.where(memory >= 0, -2 - memory, serial)
        _, seen, of = np.unique(key, return_index=True, return_inverse=True)
        of = np.argsort(np.lexsort((seen, _over(np.minimum, of, born))))[of]
        order = np.argsort(of, kind="stable")
        return members[order], of[order]

    @cached_property
    def _table(self) -> _Table:
        """The blocks as columns: of millions of them objects would take gigabytes."""
        members, of = self._members()
        serial, size, device, born, freed, _, start = (
            self._lives.column(name)[members] for name in STORAGE
        )
        begins = np.flatnonzero(np.diff(of, prepend=UNKNOWN))
        # Several storages on one memory: as far as they reach, and no byte twice.
        start = start.astype(np.int64)
        nbytes = _over(np.maximum, of, start + size) - _over(np.minimum, of, start)
        last = _over(np.maximum, of, np.where(freed < 0, _NEVER, freed))
        last[last == _NEVER] = UNKNOWN
        first = serial[np.lexsort((serial, born, of))[begins]]
        sites, made = self._origins
        released = _over(np.maximum, of, np.isin(serial, list(self._released)))
        return _Table(
            members, of, nbytes, device[begins], _over(np.minimum, of, born), last,
            sites[first + 1], made[first + 1], (released > 0) & (last >= 0),
        )  # fmt: skip

    @cached_property
    def _origins(self) -> tuple[Numbers, Numbers]:
        """By storage, from -1 on, the site where it was first seen; whether it was made there."""
        events, most = self._history.events, int(self._lives.column("serial").max(initial=0))
        at, operands = events.touched()
        storages = events.operands.column("storage")[operands]
        first: Numbers = np.full(max(most, int(storages.max(initial=0))) + 2, UNKNOWN)
        first[storages[::-1] + 1] = np.arange(len(storages))[::-1]
        seen = np.flatnonzero(first >= 0)
        calls = at[first[seen]]
        sites, made = np.full(len(first), UNKNOWN, np.int32), np.zeros(len(first), bool)
        sites[seen] = events.column("site")[calls]
        made[seen] = first[seen] >= events.starts[calls] + events.column("reads")[calls]
        attached = [*self._attached.values()][::-1]
        for storage, fact in {one.storage: one for one in attached}.items():  # the first of each
            place = int(first[storage + 1]) if storage <= most else UNKNOWN
            call = self._history.trace.event_id(int(at[place])) if place >= 0 else fact.at
            if storage <= most and call >= fact.at:
                sites[storage + 1], made[storage + 1] = fact.site, True
        return sites, made

    @cached_property
    def _on(self) -> dict[int, dict[int, None]]:
        """For each storage the tensors seen on it, in order."""
        found: dict[int, dict[int, None]] = defaultdict(dict)
        _, operands = self._history.events.touched()
        column = self._history.events.operands.column
        both = column("tensor"), column("storage")
        pairs = same_lines(*both)
        first = np.full(int(pairs.max(initial=UNKNOWN)) + 1, UNKNOWN, np.int64)
        first[pairs[operands[::-1]]] = np.arange(len(operands))[::-1]
        rows = operands[np.sort(first[first >= 0])]
        for tensor, storage in zip(*(one[rows].tolist() for one in both), strict=True):
            found[storage][tensor] = None
        for fact in self._attached.values():
            found[fact.storage][fact.tensor] = None
        return found

    @cached_property
    def devices(self) -> list[str]:
        """Devices with memory, the one with the most bytes allocated first."""
        total = self._bytes_by(self._table.device)
        return [self._lives.names.words[device] for device, _ in total.most_common()]

    # -- over time ---------------------------------------------------------------------------

    @cached_property
    def timeline(self) -> list[tuple[int, int]]:
        """Bytes held from each moment on at which they changed: ``(at, bytes)``."""
        line = []
        for at, held, within in zip(*(one.tolist() for one in self._heights), strict=True):
            line.append((at, held))
            if within:
                line.append((at, held - within))
        return line

    @cached_property
    def _heights(self) -> tuple[Numbers, Numbers, Numbers]:
        """The moments at which the bytes held changed, these, and how many of them went at once."""
        _, _, nbytes, _, born, freed, *_ = self._table
        at_once, later = freed == born, (freed >= 0) & (freed != born)
        moments = np.unique(np.concatenate([born, freed[later]]))
        change, within = np.zeros((2, len(moments)), np.int64)
        np.add.at(change, np.searchsorted(moments, born), nbytes)
        np.subtract.at(change, np.searchsorted(moments, freed[later]), nbytes[later])
        np.add.at(within, np.searchsorted(moments, born[at_once]), nbytes[at_once])
        return moments, np.cumsum(change) - np.cumsum(within) + within, within

    @cached_property
    def peak(self) -> int:
        """The most bytes held at once."""
        return int(self._heights[1].max(initial=0))

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
        moments, held, _ = self._heights
        return int(moments[held.argmax()]) if len(held) else UNKNOWN

    @property
    def peak_site(self) -> Site:
        """Line of the last block that came before the peak."""
        sites = self._table.site[self._table.born == self.peak_at].tolist()
        return self._history.site(sites[-1] if sites else UNKNOWN)

    @property
    def held_end(self) -> int:
        """Bytes held when the recording ended."""
        return int(self._table.nbytes[self._table.freed < 0].sum())

    @property
    def allocated(self) -> int:
        """Bytes of all blocks together."""
        return int(self._table.nbytes.sum())

    # -- by line and by variable -------------------------------------------------------------

    @cached_property
    def lines(self) -> list[Line]:
        """What each line allocated, the largest share of the peak first."""
        table, rows = self._table, dict[tuple[str, int], Line]()
        left, at_peak = (
            self._bytes_by(table.site, chosen)
            for chosen in (table.freed < 0, table.held(self.peak_at))
        )
        counts = np.bincount(table.site + 1).tolist()
        for number, size in self._bytes_by(table.site).items():
            site = self._history.site(number)
            old = rows.get((site.file, site.line)) or Line(site, 0, 0, 0, 0, 0)
            rows[site.file, site.line] = Line(
                old.site,
                old.allocated + size,
                old.freed + size - left[number],
                old.held_end + left[number],
                old.held_peak + at_peak[number],
                old.count + counts[number + 1],
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
        for tensor in self.tensors_on(block):
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
        known = (self._attached.get(TensorId(one)) for one in self.tensors_on(block))
        held = [fact for fact in known if fact is not None]
        if held:  # one gradient may be handed on from leaf to leaf: by the one that has a name
            return self._attachment(max(held, key=lambda fact: bool(self._names_of(fact.of))))
        named = list(
            dict.fromkeys(n for t in self.tensors_on(block) for n in self._history.names_of(t))
        )
        if named:
            others = [n for n in named[1:] if n.isidentifier() and self._bearers[n] == 1]
            return ", ".join([named[0], *others[:3]])
        return self._history.name_of(self.tensors_on(block)[0]) if self.tensors_on(block) else ""

    def tensors_on(self, block: Block) -> tuple[int, ...]:
        """Return the tensors seen on a block, first to last."""
        seen = (tensor for one in block.storages for tensor in self._on.get(one, ()))
        return tuple(dict.fromkeys(seen))

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
        for tensor in self.tensors_on(block):
            if tensor in roles:
                return roles[tensor]
        if self.tensors_on(block) and not self._computed(block):
            return "input"
        if self._only_graph(block, at):
            return "activation"
        if not self.tensors_on(block):
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
            elif tensor.is_parameter:
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
        if not self.tensors_on(block) or not self._in_graph.intersection(self.tensors_on(block)):
            return False
        lives = self._history.trace.tensors
        return all(t in lives and 0 <= lives[t].died <= at for t in self.tensors_on(block))

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
        position = (
            self._history.made_at(self.tensors_on(block)[0]) if self.tensors_on(block) else UNKNOWN
        )
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
        born, freed = (self._lives.column(one)[self._counted] for one in ("born", "freed"))
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
        return self._bytes_by(self._table.site, self._table.held(at))

    def _bytes_by(self, numbers: Numbers, chosen: Numbers | None = None) -> Counter[int]:
        """Return the bytes of some blocks by a number of theirs, in the order of the blocks."""
        nbytes = self._table.nbytes
        if chosen is not None:
            numbers, nbytes = numbers[chosen], nbytes[chosen]
        each, first, of = np.unique(numbers, return_index=True, return_inverse=True)
        total = np.zeros(len(each), np.int64)
        np.add.at(total, of, nbytes)
        order = np.argsort(first)
        return Counter(dict(zip(each[order].tolist(), total[order].tolist(), strict=True)))

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
