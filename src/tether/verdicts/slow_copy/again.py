"""The lines that make the same of the same bytes run after run: part of `slow-copy`."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import pairwise

import numpy as np

from tether.analysis.copies.already_there import nbytes
from tether.analysis.copies.memory_lives import MemoryLives
from tether.analysis.history import History
from tether.facts import COMPARED, UNKNOWN, Drawn, Entered, Event, Operand
from tether.operations.table import operation
from tether.regions import may_overlap
from tether.source.calls import copied_text, fixed, listed_of, takes_tensors_alone
from tether.source.written_out import takes_the_same
from tether.verdicts.slow_copy.on_device import LARGE, STEPS, Lines, Slow, Spec, converts

TURNS = 64
"""Tensors of which a line makes the same again in turn, each time: those of a model's layers."""

NUMBERS = 10_000
"""Numbers, of a tenth of a microsecond each there and back, that take a millisecond together."""

PART = 4
"""How many times more is converted than there is, from which it is told."""


def repeated(again: Repeats) -> Iterator[Slow]:
    """Give each of the user's lines that converts the same bytes again, or an array at a time."""
    lines = again.lines
    for (_, name), places in lines.by_line.items():
        if operation(name).enters:
            found = (
                _of_arrays(lines, places, again.entered)
                or _of_lists(lines, places, again.entered)
                or _of_listed_arrays(again, places)
                or _from_data(again, places)
                or _of_parts(again, places)
            )
        elif _gives_the_same(lines, name, places):
            found = _from_tensor(again, places) or _from_grown(again, places)
        else:
            continue
        if found is not None and not lines.needless(found.at):
            yield found


def _gives_the_same(lines: Lines, name: str, places: Sequence[int]) -> bool:
    """Whether a line makes the same of the same tensor: a conversion, or a call of it alone."""
    row = operation(name)
    if converts(name) or row.copies == "clone":
        return True
    if len(places) <= STEPS or not row.known or row.random or row.writes or row.view:
        return False
    first = lines.events[places[0]]
    alone = len(first.reads) == 1 == len(first.results) and not first.writes
    return alone and fixed(name, lines.history.site_of(first).expression)


class Repeats:
    """What the questions about one line need of the whole recording."""

    def __init__(self, lines: Lines) -> None:
        self.lines = lines
        self.history: History = lines.history
        self.runs = Runs(lines)

    @cached_property
    def entered(self) -> dict[int, Entered]:
        """What is known of the data that tensors were made of, by position."""
        return {self.history.position(one.event): one for one in self.history.trace.entered}

    @cached_property
    def drawn(self) -> dict[int, Drawn]:
        """The arrays of which parts became tensors, by the position of the first call."""
        return {self.history.position(one.event): one for one in self.history.trace.drawn}

    def judged(self, at: int) -> bool:
        """Whether a call is of those that are asked by themselves, when they repeat."""
        event = self.lines.events[at]
        places = self.lines.by_line.get((event.site, event.operation), [])
        entering = operation(event.operation).enters
        return bool(places) and (entering or _gives_the_same(self.lines, event.operation, places))

    def needs_its_own(self, made: Operand) -> bool:
        """Whether what a call made is written, or has gradients."""
        at = self.history.made_at(made.tensor)
        return made.requires_grad or any(True for _ in self.lives.written(made, at, math.inf))

    @cached_property
    def lives(self) -> MemoryLives:
        """The writes to all memory that a conversion read or made."""
        history, events = self.history, self.lines.events
        chosen = np.zeros(len(events), bool)
        for (_, name), places in self.lines.by_line.items():
            if operation(name).enters or _gives_the_same(self.lines, name, places):
                chosen[places] = True
        at, rows = events.touched("reads", "results")
        storages = np.unique(events.operands.column("storage")[rows[chosen[at]]])
        memories = set(history.flow.memories(storages).tolist())
        return MemoryLives(history, memories | self.runs.memories)

    def kept(self, at: int, gone: float) -> Operand | None:
        """Return what a call made, if what it made the time before would have done as well.

        It is not written, and gone by a certain time: what is kept is a record of its own.
        """
        event = self.lines.events[at]
        if len(event.results) != 1 or event.results[0].requires_grad or event.writes:
            return None
        made = event.results[0]
        written = any(True for _ in self.lives.written(made, at, math.inf))
        record = gone < math.inf and self.lives.until(made) > gone
        return None if written or record or made.tensor in self.history.held else made

    @cached_property
    def entries(self) -> dict[int, int]:
        """Where each storage on the memory of data came about, by position."""
        enter = self.lines.events.where(lambda name: operation(name).enters)
        return {event.results[0].storage: at for at, event in enter if event.results}

    def unchanged(self, first: Operand, since: int, source: Operand, at: int) -> bool:
        """Whether nothing wrote the elements of a tensor between two calls, heard or unheard.

        While no tensor shows an array, its bytes say whether it is as it was.
        """
        if first.storage != source.storage:
            entered = self.entered.get(self.entries.get(source.storage, UNKNOWN))
            before = self.entries.get(first.storage, UNKNOWN)
            if entered is None or self.history.position(entered.since) != before:
                return False
        elif (
            self.history.arrays_unchecked
            and self.history.flow.memory(source) in self.lives.exported
        ):
            return False
        return not any(
            one.written is None
            or one.written.storage != source.storage
            or may_overlap(one.written, source)
            for one in self.lives.written(source, since, at + 1)
        )


def told(
    again: Repeats,
    places: Sequence[int],
    repeats: list[int],
    what: str,
    of: str = "runs",
    groups: Iterable[Sequence[int]] = (),
) -> Slow | None:
    """Give a line whose runs did the same again, where what was made so is worth a word.

    Of its runs, or of each group of them, every one took the place of the one before.
    """
    if len(repeats) < STEPS:
        return None
    after: dict[int, float] = {}
    for some in groups or (places,):
        after |= zip(some, (*some[2:], *[math.inf] * min(2, len(some))), strict=True)
    made = [one for at in repeats if (one := again.kept(at, after[at])) is not None]
    total = sum(map(nbytes, made))
    if len(made) < len(repeats) or total < LARGE:
        return None
    at = repeats[0]
    name = again.lines.events[at].operation
    runs = f"in {len(repeats):,} of its {len(places):,} {of}, {total:,} bytes"
    text = f"{name} makes the same again of {what} {runs}"
    fix = "Make it once, before the loop, and use what was made of it each time."
    operand = (again.lines.events[at].reads or made)[0]
    return Slow(at, operand, len(repeats), total, None, "copied", text, fix)


def _from_data(again: Repeats, places: Sequence[int]) -> Slow | None:
    """Find data of Python that became the same tensor as the time before.

    A line may convert several in turn: what is made of each could be kept where each comes often.
    """
    position, entered = again.history.position, again.entered
    groups: dict[int, list[int]] = {}  # by the last run of each
    for at in places:
        before = position(entered[at].since) if at in entered else UNKNOWN
        groups[at] = [*groups.pop(before, ()), at]
    repeats = sorted(at for some in groups.values() for at in some[1:])
    once = [some[0] for some in groups.values() if len(some) > 1]
    if len(once) > 1 and len(repeats) < PART * len(once):
        return None
    what = "data that has not changed,"
    return told(again, places, repeats, what, groups=groups.values())


def _of_parts(again: Repeats, places: Sequence[int]) -> Slow | None:
    """Find parts of one array, converted afresh each time: more than the whole array has."""
    fact = again.drawn.get(places[0])
    made = [one for at in places for one in again.lines.events[at].results]
    if fact is None or fact.written or fact.times != len(places) or fact.bytes < LARGE:
        return None
    if fact.bytes < PART * fact.whole or any(again.needs_its_own(one) for one in made):
        return None
    at = places[0]
    name = again.lines.events[at].operation
    what = f"{name} converts parts of one array, which nothing wrote, {fact.bytes:,} bytes in"
    what += f" {fact.times:,} runs where the whole has {fact.whole:,}"
    fix = "Convert the whole array once, and take the parts from that."
    return Slow(at, made[0], len(places), fact.bytes, None, "copied", what, fix)


def _from_tensor(again: Repeats, places: Sequence[int]) -> Slow | None:
    """Find elements that nothing wrote since the line last converted them.

    A line of several modules converts the elements of each in turn.
    """
    groups: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for at in places:
        reads = again.lines.events[at].reads
        groups[view(again, reads[0]) if len(reads) == 1 else ()].append(at)
        if len(groups) > TURNS:
            return None
    pairs = (pair for some in groups.values() for pair in pairwise(some))
    repeats = [at for before, at in pairs if _same_elements(again, before, at)]
    often = _often_in_turn(groups.values())
    if len(groups) > 1 and not often and not all(_comes_back(again, x) for x in groups.values()):
        return None
    what = "elements that nothing wrote,"
    return told(again, places, sorted(repeats), what, groups=groups.values())


def _from_grown(again: Repeats, places: Sequence[int]) -> Slow | None:
    """Find memory that is filled on, and converted each time from its beginning: a cache.

    What was converted at the run before is in the run's source, and nothing wrote it since.
    """
    events, pairs = again.lines.events, list[tuple[int, int]]()
    last: dict[int, int] = {}  # by the memory
    for at in places if converts(events[places[0]].operation) else ():
        event = events[at]
        if not len(event.reads) == len(event.results) == 1:
            return None
        if again.needs_its_own(event.results[0]):
            return None
        memory = again.history.flow.memory(event.reads[0])
        before = last.get(memory, at)
        first = events[before].reads[0]
        if _goes_on(first, event.reads[0]) and again.unchanged(first, before, first, at):
            pairs.append((before, at))
        last[memory] = at
    converted = sum(nbytes(events[before].results[0]) for before, _ in pairs)
    whole = sum(nbytes(events[at].results[0]) for at in last.values())
    mostly = 2 * len(pairs) >= len(places) and len(pairs) >= STEPS
    if not mostly or converted < max(LARGE, PART * whole):
        return None
    at = pairs[-1][1]
    what = f"{events[at].operation} converts what it had converted before, and nothing wrote since,"
    what += f" at each of {len(pairs):,} steps, {converted:,} bytes for {whole:,}"
    fix = "Keep what was converted, and convert only what is new; or keep it in that type at once."
    return Slow(at, events[at].reads[0], len(places), converted, None, "copied", what, fix)


def _goes_on(first: Operand, then: Operand) -> bool:
    """Whether an operand begins as another one does, and is longer in one dimension."""
    if (first.storage, first.offset, first.strides) != (then.storage, then.offset, then.strides):
        return False
    others = [(a, b) for a, b in zip(first.shape, then.shape, strict=True) if a != b]
    return len(others) == 1 and 0 < others[0][0] < others[0][1]


def _often_in_turn(groups: Collection[Sequence[int]]) -> bool:
    """Whether a line is given each of its tensors far more often than it has others meanwhile.

    Then little is kept at a time of what is made of them: the cache of each layer, for one batch.
    """
    turns = [sum(one[0] <= some[0] <= one[-1] for one in groups) for some in groups]
    return min(map(len, groups)) > PART * max(turns)


def _comes_back(again: Repeats, places: Sequence[int]) -> bool:
    """Whether what a line was given is a module's own, or comes back at each backward pass.

    To keep what is made of each row of a data set would take the room of all of them.
    """
    name = again.history.facts_of_name(again.lines.events[places[0]].reads[0].tensor)
    if name is not None and name.module:
        return True
    passes = again.history.backwards
    between = [bisect_right(passes, at) - bisect_right(passes, one) for one, at in pairwise(places)]
    return all(0 < one < STEPS for one in between)


def _same_elements(again: Repeats, before: int, at: int) -> bool:
    """Whether two runs of a line were given the same elements, and made other memory of them."""
    first, then = again.lines.events[before], again.lines.events[at]
    if len(first.reads) != 1 or len(then.reads) != 1 or not then.results or not first.results:
        return False
    one, other, made = first.reads[0], then.reads[0], then.results[0]
    memory = again.history.flow.memory
    if view(again, one) != view(again, other) or memory(made) == memory(other):
        return False
    alike = first.results[0][4:7] == made[4:7]
    here = again.lines.device(other) == again.lines.device(made)
    return alike and here and again.unchanged(one, before, other, at)


def view(again: Repeats, operand: Operand) -> tuple[object, ...]:
    """Return which bytes an operand shows, and how."""
    fact = again.history.trace.storages[operand.storage]
    start = fact.start if fact.memory != UNKNOWN else 0
    return again.history.flow.memory(operand), start, *operand[3:7]


def _largest(lines: Lines, calls: list[int]) -> tuple[list[int], list[Operand], int]:
    """Return some calls, what they made, and the one that made the largest; -1 for none."""
    found = {at: made[0] for at in calls if (made := lines.events[at].results)}
    largest = max(found, key=lambda at: nbytes(found[at]), default=UNKNOWN)
    return calls, list(found.values()), largest


def _of_arrays(lines: Lines, places: Sequence[int], entered: dict[int, Entered]) -> Slow | None:
    """Find lists of arrays, of which each element is taken out by itself."""
    found, made, at = _largest(lines, [at for at in places if at in entered and entered[at].arrays])
    if len(made) < len(places) or sum(map(nbytes, made)) < LARGE:
        return None
    largest = lines.events[at].results[0]
    name, count = lines.events[at].operation, entered[at].arrays
    fast = "torch.from_numpy(numpy.stack(list(x.numpy())))"
    spec = Spec("torch.tensor(list(x.numpy()))", fast, (largest,), lines.device(largest))
    what = f"{name} takes {math.prod(largest.shape):,} elements out of {count:,} arrays one by one"
    fix = "Join the arrays first: torch.from_numpy(numpy.stack(...))."
    return Slow(at, largest, len(found), sum(map(nbytes, made)), spec, "copied", what, fix)


def _of_lists(lines: Lines, places: Sequence[int], entered: dict[int, Entered]) -> Slow | None:
    """Find tensors made of the lists that others became: each number left alone, and came back."""
    found, made, at = _largest(lines, [at for at in places if at in entered and entered[at].lists])
    numbers = sum(math.prod(one.shape) for one in made)
    if len(made) < len(places) or numbers < NUMBERS:
        return None
    largest = lines.events[at].results[0]
    name = lines.events[at].operation
    spec = Spec("torch.tensor(x.tolist())", "x.clone()", (largest,), lines.device(largest))
    what = f"{name} takes {numbers:,} numbers of Python, which {entered[at].lists:,} tensors had"
    what += " become as lists"
    fix = "Keep the tensors in a list, and join them: torch.cat(...)."
    return Slow(at, largest, len(found), sum(map(nbytes, made)), spec, "made", what, fix)


def _of_listed_arrays(again: Repeats, places: Sequence[int]) -> Slow | None:
    """Find tensors made again and again of lists of numbers that arrays or bytes became before."""
    lines, entered = again.lines, again.entered
    listed = [at for at in places if at in entered and entered[at].listed != UNKNOWN]
    found, made, at = _largest(lines, listed)
    numbers = sum(math.prod(one.shape) for one in made)
    if len(made) <= STEPS or numbers < NUMBERS:
        return None
    largest = lines.events[at].results[0]
    array = listed_of(again.history.site(entered[at].listed).expression)
    name, slow = lines.events[at].operation, "torch.tensor(array.tolist())"
    spec = Spec(slow, "torch.from_numpy(array).clone()", (largest,), lines.device(largest))
    what = f"{name} takes {numbers:,} numbers of Python in {len(found):,} runs, which "
    what += "an array had become" if array else "were unpacked from bytes"
    fix = f"Leave out .tolist(): torch.tensor({array}, dtype=torch.{largest.dtype}) copies the"
    fix += " array as it lies, and torch.from_numpy(...) shares its memory."
    if not array:
        fix = "Read the bytes as they lie: numpy.frombuffer(...) or torch.frombuffer(...)."
    elif _is_one_of_many(again, at):
        fix = f"Leave out .tolist(): numpy.stack([{array}, ...]) joins the arrays as they lie, and"
        fix += " torch.from_numpy(...) shares its memory."
    return Slow(at, largest, len(found), sum(map(nbytes, made)), spec, "made", what, fix)


def _is_one_of_many(again: Repeats, at: int) -> bool:
    """Whether a list was one of several that a tensor was made of: by a comprehension."""
    event = again.lines.events[at]
    given = copied_text(event.operation, again.history.site_of(event).expression)
    return given.startswith(("[", "("))


# -- runs ------------------------------------------------------------------------------------------
# The runs of the lines that made the same again, and what each run was made of. Part of `slow-
# copy`.


FAR = 200
"""Calls behind a result that are looked through."""


class Runs:
    """The lines whose results had the same bytes whenever they were compared."""

    def __init__(self, lines: Lines) -> None:
        self._lines = lines
        self._history = lines.history
        position = self._history.position
        facts = ((position(one.event), one.looked) for one in self._history.trace.repeated)
        self.looked = {at: looked for at, looked in facts if at >= 0}
        self.layouts: dict[int, int] = {}
        """A number, for each later run, of how all lay that it was computed through."""

    @cached_property
    def lines(self) -> set[tuple[str, int]]:
        """The operations and the user's lines of them."""
        return {self._lines.events[at][:2] for at in self.looked}

    @cached_property
    def places(self) -> dict[int, list[int]]:
        """All runs of each line that were of a size to be compared, by the position of its first.

        A line of a library makes small and large tensors in turn, such as a model's parameters.
        """
        events = self._lines.events
        firsts = {_line(events[at]): at for at in self.looked}
        found: dict[int, list[int]] = {at: [] for at in self.looked}
        names = {name for name, *_ in firsts}
        for at, event in events.where(names.__contains__):
            first = firsts.get(_line(event))
            if first is not None and not event.raised and self._is_compared(event):
                found[first].append(at)
        return found

    def _is_compared(self, event: Event) -> bool:
        storages = self._history.trace.storages
        return any(storages[one.storage].nbytes >= COMPARED for one in event.results)

    def own(self, first: int) -> bool:
        """Whether the user's line makes the call itself."""
        event = self._lines.events[first]
        return first in self._lines.by_line.get((event.site, event.operation), ())

    @cached_property
    def made_of(self) -> dict[int, tuple[Operand, ...] | None]:
        """What was there at the run before of which each later run made its result.

        None where that is not known: chance took part, or too many calls; or something else was
        made on the way, and the result was the same in spite of that: a mask that met nothing.
        """
        return {
            at: self._inputs(before, at)
            for places in self.places.values()
            for before, at in pairwise(places)
        }

    @cached_property
    def memories(self) -> set[int]:
        """All memory that the runs read or gave."""
        memory, events = self._history.flow.memory, self._lines.events
        read = (one for found in self.made_of.values() for one in found or ())
        places = (at for places in self.places.values() for at in places)
        made = (one for at in places for one in events[at].results)
        return {memory(one) for one in (*read, *made)}

    def _inputs(self, before: int, at: int) -> tuple[Operand, ...] | None:
        """Return the operands from before an earlier run that a run's result was computed of."""
        events, edges = self._lines.events, self._history.flow.edges
        found: dict[int, Operand] = {}
        waiting, met = [at], {at}
        while waiting:
            one = waiting.pop()
            if not self._is_certain(one, at) or len(met) >= FAR:
                return None
            for source, operand in edges[one]:
                if source > before and source not in met:
                    met.add(source)
                    waiting.append(source)
                elif source <= before:
                    if operand is None:
                        return None
                    found[operand.tensor] = operand
            for operand in events[one].reads if not edges.sources(one) else ():
                found[operand.tensor] = operand
        return self._told(at, met, tuple(found.values()))

    def _told(
        self, at: int, calls: set[int], found: tuple[Operand, ...]
    ) -> tuple[Operand, ...] | None:
        """Return what some calls were computed of; None where their text hides what else it was.

        Of numbers alone, that are there for each run, the text need not say which.
        """
        events = map(self._lines.events.__getitem__, calls)
        lies = ((*_line(event), *made[3:7]) for event in events for made in event.results)
        self.layouts[at] = hash(frozenset(lies))
        plain = not found or all(map(self._is_plain, calls - {at}))
        return found if plain else None

    def _is_alike(self, event: Event) -> bool:
        """Whether a call on the way to a result gives the same each time: seen, or by its text."""
        if self._is_compared(event) and not _is_view(event):
            return _line(event) in self._alike
        return not operation(event.operation).enters or takes_the_same(self._text(event))

    def _is_plain(self, at: int) -> bool:
        """Whether a call is given nothing but tensors and constants, or its result says what."""
        event = self._lines.events[at]
        row, count = operation(event.operation), len(event.reads)
        told = row.fresh or row.copies or self._is_compared(event) or _is_view(event)
        return bool(told) or takes_tensors_alone(event.operation, self._text(event), count)

    def _text(self, event: Event) -> str:
        return self._history.site(event.inner if event.inner >= 0 else event.site).expression

    @cached_property
    def _alike(self) -> set[tuple[str, int, int]]:
        """The lines whose results were the same whenever they were compared."""
        return {_line(self._lines.events[at]) for at in self.looked}

    def _is_certain(self, at: int, last: int) -> bool:
        """Whether a call gives the same of the same, and on the way to the last one gave it."""
        event = self._lines.events[at]
        row = operation(event.operation)
        if row.random or not row.known:
            return False
        known = bool(event.reads) or row.fresh or row.enters
        return known and (at == last or self._is_alike(event))


def _is_view(event: Event) -> bool:
    """Whether a call made nothing but views, of which it is known how they lie."""
    return {one.storage for one in event.results} <= {one.storage for one in event.reads}


def _line(event: Event) -> tuple[str, int, int]:
    return event.operation, event.site, event.inner
