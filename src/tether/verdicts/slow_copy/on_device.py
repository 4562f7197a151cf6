"""The slow ways of copying on one device, each as a question to one line: part of `slow-copy`.

A `Spec` says what `tether.measure.speedups` is to time; where it can be timed the clock decides
whether the finding is given, and the floors here only keep out what no clock could make worth a
word.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from tether.analysis.copies.already_there import copied, nbytes
from tether.analysis.copies.layouts import contiguous
from tether.analysis.copies.needs import needs
from tether.analysis.copies.other_processes import OtherProcesses
from tether.analysis.history import History
from tether.analysis.timelines import by_number
from tether.facts import GRAD_ON, RAISED, UNKNOWN, Event, Operand
from tether.operations import table
from tether.source.calls import as_operand, copied_text

COUNT = 64
"""Executions of a line from which what each call costs by itself, about a microsecond, is told."""
READS = 2 * COUNT
"""Calls of a line, one for an element or a row, from which the time of all is worth a word."""
SMALL = 256 << 10
"""Bytes of a copy up to which a microsecond per call is a tenth of its time (10 GB/s and more)."""
NODE = 64 << 10
"""The same for half a microsecond, which is what a node of the gradient graph costs."""
LARGE = 1 << 20
"""Bytes from which copying, or taking new memory, is worth a word by itself."""
STEPS = 3
"""Steps from which a line counts as one of every step."""


class Spec(NamedTuple):
    """Two ways to the same result, to be timed against each other.

    Both are expressions over ``x`` (like the first operand), ``xs`` (a dict of tensors like all of
    them), ``rows`` (those of ``x``, each in memory of its own), ``base`` (what ``x`` was expanded
    from), ``out`` (memory like that of ``x``), ``snapshot`` (of ``xs``), ``there`` (the other
    device), ``dtype`` and ``torch``.
    """

    slow: str
    fast: str
    operands: tuple[Operand, ...]
    device: str
    there: str = ""
    dtype: str = ""
    grad: bool = False  # grad mode was on
    runs: bool = False  # that the fast way runs at all is to be tried as well
    calls: int = 1  # recorded calls that one run of the slow way stands for


class Slow(NamedTuple):
    """One line that copies in a slow way."""

    at: int  # an event of it
    operand: Operand
    times: int
    nbytes: int  # moved by the slow way, in all executions; 0: it is the calls that cost
    spec: Spec | None
    done: str  # what is done slowly: "copied", "made", "moved", "read", "compared", "written"
    what: str  # a clause: "torch.tensor takes a general way for what is a tensor already"
    fix: str
    also: int = UNKNOWN  # another event that belongs to it
    others: tuple[Operand, ...] = ()  # tensors beside `operand` of which the same is done there


class Lines:
    """The user's own lines of a history, with the indexes that the questions need."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.events = history.events

    @cached_property
    def by_line(self) -> dict[tuple[int, str], Sequence[int]]:
        """Positions of what the user's lines called themselves, by (site, operation)."""
        spans, lines = self.history.trace.spans, self.history.lines
        compiled = [number for number, one in enumerate(spans) if one.kind == "compiled"]
        keys = {
            int(lines[at]): (event.site, event.operation)
            for at, event in self.events.at(self.history.first_of_lines)
            if event.site >= 0 and self.own(event)
        }
        chosen = np.isin(lines, list(keys)) & ~self.events.flagged(RAISED)
        chosen &= ~np.isin(self.events.column("span"), compiled)  # a backend may copy or not
        positions = np.flatnonzero(chosen)
        # One key for several numbers: a line that a library's line makes the call for.
        keyed = {key: number for number, key in enumerate(dict.fromkeys(keys.values()))}
        of_line = np.zeros(int(lines.max(initial=0)) + 1, np.int32)
        of_line[list(keys)] = [keyed[key] for key in keys.values()]
        names = list(keyed)
        found = by_number(of_line[lines[positions]], positions)
        ordered = sorted(found.items(), key=lambda one: one[1][0])  # by the first call of each
        return {names[number]: some for number, some in ordered}

    def own(self, event: Event) -> bool:
        """Whether the user's line makes the call itself; ``copy.deepcopy`` is no library here."""
        if event.inner in (UNKNOWN, event.site):
            return True
        expression = self.history.site_of(event).expression
        return event.operation == "__deepcopy__" and "deepcopy" in expression

    @cached_property
    def single(self) -> bytes:
        """For each event whether all that it was given, and gave, are single elements."""
        events, found = self.events, np.ones(len(self.events), bool)
        more = self.history.elements(np.arange(len(events.operands))) != 1
        for at, rows in (events.touched("reads"), events.touched("results")):
            found[at[more[rows]]] = False
        return found.tobytes()

    @cached_property
    def clones(self) -> bytes:
        """For each event whether it copies one tensor as it is."""
        clones = self.events.called(lambda name: table.operation(name).copies == "clone")
        found: bytes = (clones & (self.events.column("reads") == 1)).tobytes()
        return found

    @cached_property
    def picked_of(self) -> array[int]:
        """For each event the tensor that it picks elements or rows of; -1: it picks none."""
        picks = self.events.called(lambda name: table.operation(name).picks)
        picks &= self.events.column("reads") > 0
        found = np.full(len(self.events), UNKNOWN, np.int32)
        first = self.events.rows[self.events.starts[:-1][picks]]
        found[picks] = self.events.operands.column("tensor")[first]
        return array("i", found.tobytes())

    @cached_property
    def steps(self) -> list[int]:
        """Positions of the optimizers' steps."""
        return [at for at, _ in self.events.where("step".__eq__)]

    def after(self, tensor: int, at: int) -> list[int]:
        """Positions of the later events that were given a tensor."""
        found = self.history.reads_of(tensor)
        return found[bisect_right(found, at) :]

    def written(self, operand: Operand, after: int, until: float = math.inf) -> bool:
        """Return whether a call wrote a memory in between, or another process may have."""
        return self.history.get(OtherProcesses).written(operand, after, until)

    def device(self, operand: Operand) -> str:
        """Return where an operand lies."""
        fact = self.history.trace.storages.get(operand.storage)
        return fact.device if fact is not None else "cpu"

    def text(self, at: int) -> str:
        """Return the text of what a call copies, for another call of it: ``x`` of ``x.clone()``."""
        event = self.events[at]
        text = copied_text(event.operation, self.history.site_of(event).expression)
        return as_operand(text or "x")

    def pairs(self, places: Sequence[int]) -> list[tuple[int, Operand, Operand]]:
        """Return (position, source, copy) of the events that copied on one device."""
        return [(at, *pair) for at in places if (pair := copied(self.history, at)) is not None]

    def needless(self, at: int) -> bool:
        """Whether the copies of a line had better be left out altogether."""
        event = self.events[at]
        return any(
            need.needed == "no" and (key[0], key[2]) == (event.site, event.operation)
            for key, need in needs(self.history).items()
        )


def converts(name: str) -> bool:
    """Whether a call moves or converts."""
    return table.operation(name).copies in ("cast", "move")


def ways(lines: Lines) -> Iterator[Slow]:
    """Give each of the user's lines that copies in a slow way on one device."""
    for (_, operation), places in lines.by_line.items():
        found = None
        if operation in ("tensor", "new_tensor"):
            found = _converted(lines, places)
        elif operation in ("clone", "__deepcopy__"):
            found = (
                _node_dropped(lines, places)
                or _expanded(lines, places)
                or _new_each_step(lines, places)
            )
        elif operation == "contiguous" or converts(operation):
            found = _expanded(lines, places)
        elif table.operation(operation).leaves in ("number", "array"):
            found = _one_by_one(lines, places)
        if found is not None and not (found.done == "copied" and lines.needless(found.at)):
            yield found


def largest(pairs: list[tuple[int, Operand, Operand]]) -> tuple[int, Operand, Operand]:
    """Return the execution that copied the most."""
    return max(pairs, key=lambda one: nbytes(one[2]))


def _converted(lines: Lines, places: Sequence[int]) -> Slow | None:
    """Find ``torch.tensor(t)`` and ``x.new_tensor(t)``: a general way to a copy."""
    pairs = [one for one in lines.pairs(places) if nbytes(one[2]) <= SMALL]
    name = lines.events[places[0]].operation
    slow = "torch.tensor(x)" if name == "tensor" else "x.new_tensor(x)"
    what = f"{name}() is the way in for lists, and this is a tensor already"
    return _better_detached(lines, places, pairs, slow, what)


def _node_dropped(lines: Lines, places: Sequence[int]) -> Slow | None:
    """Find ``x.clone().detach()``: the clone's node is made, and nothing leads to it."""
    pairs = []
    for at, source, copy in lines.pairs(places):
        then = lines.after(copy.tensor, at)
        cut = len(then) == 1 and lines.events[then[0]].operation == "detach"
        if cut and copy.requires_grad and nbytes(copy) <= NODE:
            pairs.append((at, source, copy))
    what = "the clone puts a node into the gradient graph, which the detach drops at once"
    return _better_detached(lines, places, pairs, "x.clone().detach()", what)


def _better_detached(
    lines: Lines,
    places: Sequence[int],
    pairs: list[tuple[int, Operand, Operand]],
    slow: str,
    what: str,
) -> Slow | None:
    """Say of a line that always copies in another way what a clone of what is detached gives."""
    if len(pairs) < COUNT or len(pairs) < len(places):
        return None
    at, source, _ = largest(pairs)
    grad = lines.events[at].grad_mode == GRAD_ON
    spec = Spec(slow, "x.detach().clone()", (source,), lines.device(source), grad=grad)
    fix = f"Use `{lines.text(at)}.detach().clone()`."
    return Slow(at, source, len(pairs), _total(pairs), spec, "copied", what, fix)


def _expanded(lines: Lines, places: Sequence[int]) -> Slow | None:
    """Find copies of an expanded tensor, which write each of its elements many times over."""
    events = ((at, lines.events[at]) for at in places)
    found = [(at, one.reads[0], one.results[0]) for at, one in events if one.reads and one.results]
    if not found or not all(_widely_written(lines, *one) for one in found):
        return None
    at, source, copy = largest(found)
    event = lines.events[at]
    times = math.prod(copy.shape) // own_elements(source)
    same = source.dtype == copy.dtype
    spec = Spec(
        "x.contiguous()" if same else "x.to(dtype)",
        "base.clone().expand(x.shape)" if same else "base.to(dtype).expand(x.shape)",
        (source,),
        lines.device(source),
        dtype=copy.dtype,
        grad=event.grad_mode == GRAD_ON,
    )
    what = f"{event.operation} writes each element of an expanded tensor {times:,} times"
    fix = "Copy before it is expanded, and expand the copy."
    if same and lines.history.whole and not _source_written(lines, found):
        fix = "Use the expanded tensor itself: nothing is written."
    return Slow(at, source, len(found), _total(found), spec, "copied", what, fix)


def _widely_written(lines: Lines, at: int, source: Operand, copy: Operand) -> bool:
    """Whether a large copy on one device holds each element of its source four times and more."""
    return (
        source.storage != copy.storage
        and source.shape == copy.shape
        and lines.device(source) == lines.device(copy)
        and nbytes(copy) >= LARGE
        and math.prod(copy.shape) >= 4 * own_elements(source)
        and 0 not in copy.strides
        and only_read_as_is(lines, at, copy)
    )


def own_elements(operand: Operand) -> int:
    """Return how many elements there are, each counted once however far it is expanded."""
    pairs = zip(operand.shape, operand.strides, strict=True)
    return math.prod(size for size, stride in pairs if stride)


def only_read_as_is(lines: Lines, at: int, copy: Operand) -> bool:
    """Whether a copy was read, never written, and by no call for which it must be compact."""
    readers = [lines.events[one].operation for one in lines.after(copy.tensor, at)]
    written = lines.written(copy, at)
    compact = any(table.operation(one).compact for one in readers)
    return bool(readers) and not written and not compact


def _source_written(lines: Lines, found: list[tuple[int, Operand, Operand]]) -> bool:
    return any(lines.written(one, at) for at, one, _ in found)


def _new_each_step(lines: Lines, places: Sequence[int]) -> Slow | None:
    """Find large copies made anew at each step, when those of the step before have gone."""
    pairs = lines.pairs(places)
    if len(lines.steps) < STEPS or len(pairs) < max(STEPS, len(places)):
        return None
    rounds: dict[int, list[tuple[int, Operand, Operand]]] = defaultdict(list)
    for one in pairs:
        rounds[bisect_right(lines.steps, one[0])].append(one)
    groups = list(rounds.values())
    if not (_alike(groups) and _total(groups[0]) >= LARGE and _gone_in_time(lines, groups)):
        return None
    at, source, _ = groups[-1][0]
    sources = tuple(one for _, one, _ in groups[-1])
    deep = lines.events[at].operation == "__deepcopy__"
    if deep or len(sources) > 1:
        slow = "copy.deepcopy(xs)" if deep else "{key: x.clone() for key, x in xs.items()}"
        spec = Spec(slow, "snapshot.update()", sources, lines.device(source))
        fix = "Make one tether.Snapshot of it before the loop and call its update() here."
    else:
        spec = Spec("x.clone()", "out.copy_(x)", sources, lines.device(source))
        fix = (
            "Keep one buffer and write into it: buffer.copy_(...), or tether.copy(..., out=buffer)."
        )
    what = f"it takes {_total(groups[-1]):,} bytes of new memory at each of {len(groups)} steps"
    return Slow(at, source, len(groups), _total(pairs), spec, "copied", what, fix)


def _alike(groups: list[list[tuple[int, Operand, Operand]]]) -> bool:
    """Whether enough steps made copies, and each of them the same; of several, of the same tensors.

    One buffer for each would be filled from the same places: a data set's items change places.
    """
    made = [Counter((copy.shape, copy.dtype) for _, _, copy in group) for group in groups]
    places = [[(source.storage, source.offset) for _, source, _ in group] for group in groups]
    same = len(groups[0]) == 1 or all(one == places[0] for one in places)
    return len(groups) >= STEPS and same and all(one == made[0] for one in made)


def _gone_in_time(lines: Lines, groups: list[list[tuple[int, Operand, Operand]]]) -> bool:
    """Whether each copy was done with at the next one; a gradient graph may keep it longer."""
    if any(copy.requires_grad for group in groups for _, _, copy in group):
        return False
    return not any(
        _outlives(lines, copy, then) for group, then in pairwise(groups) for _, _, copy in group
    )


def _outlives(lines: Lines, copy: Operand, then: list[tuple[int, Operand, Operand]]) -> bool:
    """Whether a copy is of use after the next ones are made: then each needs its own memory."""
    history, last = lines.history, then[-1][0]
    freed = history.trace.storages[copy.storage].freed
    if freed == UNKNOWN or any(at > last for at in history.on_storage(copy)):
        return True
    following = bisect_right(lines.steps, last)
    gone = lines.steps[following] if following < len(lines.steps) else len(lines.events)
    return history.position(freed) > gone


def _one_by_one(lines: Lines, places: Sequence[int]) -> Slow | None:
    """Find a number, or an array of a row, taken out of one tensor at a time: a call for each."""
    array = table.operation(lines.events[places[0]].operation).leaves == "array"
    by_memory: dict[tuple[object, ...], list[tuple[int, Operand]]] = defaultdict(list)
    for at in places:
        for one in lines.events[at].reads[:1]:
            if array or math.prod(one.shape) == 1:
                by_memory[one.storage, one.version, one.dtype, one.shape].append((at, one))
    best = max(by_memory.values(), key=len, default=[])
    offsets = {operand.offset for _, operand in best}
    if len(offsets) < COUNT or len(places) < (COUNT if array else READS):
        return None
    at, operand = best[0]
    device, size = lines.device(operand), math.prod(operand.shape)
    shape: tuple[int, ...] = (len(offsets),)
    ways = ("[one.item() for one in x]", "x.tolist()")
    parts, fix = "elements", "Take them all at once: .tolist() of the whole tensor."
    if array:
        shape, ways = (len(offsets), size), ("[one.numpy() for one in x]", "list(x.numpy())")
        parts, fix = "parts", "Take the whole as one array, .numpy(), and its parts from that."
    like = operand._replace(shape=shape, strides=contiguous(shape))
    spec = Spec(*ways, (like,), device, calls=len(offsets))
    what = f"one call for each of {len(offsets):,} {parts} of one tensor"
    if device != "cpu":
        what += f", and each waits for {device}"
    return Slow(at, operand, sum(map(len, by_memory.values())), 0, spec, "read", what, fix)


def _total(pairs: list[tuple[int, Operand, Operand]]) -> int:
    return sum(nbytes(copy) for _, _, copy in pairs)
