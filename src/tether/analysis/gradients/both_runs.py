"""Where a block under activation checkpointing went another way when a backward pass ran it again.

Its two runs are compared call by call: what was called where, on tensors of which shape and type.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from tether.analysis.history import History, following, losses_of
from tether.facts import UNKNOWN, Event, Moment, Operand, Raised, RunAgain
from tether.operations.table import operation

Differs = Literal["more", "fewer", "other", "count", "shape", "dtype", "device", "requires grad",
                  "truth", "does"]  # fmt: skip
"""``more`` and ``fewer``: a call that the second run makes, or does not; ``other``: one in place of
another; ``does``: it gives or writes other tensors of those that it was given."""

Key = tuple[object, ...]
Call = tuple[int, Key]  # and what it is known by

_WINDOW = 2_000  # calls within which two runs that went apart are looked for together again
_BY_VALUE: tuple[Differs, ...] = ("truth", "shape")


class Parting(NamedTuple):
    """The first call at which the second run of a block is not as the first was."""

    differs: Differs
    first: int = UNKNOWN  # the call of the run in the forward
    again: int = UNKNOWN  # and of the one in the pass
    before: Operand | None = None  # the operand that differs, in the forward
    now: Operand | None = None
    result: bool = False  # it is what the call gives
    repeated: bool = False  # the other run makes the call as well, less often

    @property
    def calls(self) -> list[int]:
        """The calls at which the runs part, that of the pass first: one of them, or both."""
        return [at for at in (self.again, self.first) if at != UNKNOWN]

    @property
    def at(self) -> int:
        """The call in the pass, or the one that the pass does not make."""
        return self.calls[0]


def run_behind(history: History, fact: Raised) -> RunAgain | None:
    """Return the run of a block that an error came out of, or is about."""
    failed = (one for one in history.trace.runs_again if one.event != UNKNOWN)
    return next((one for one in failed if _is_about(history, fact, one)), None)


def _is_about(history: History, fact: Raised, run: RunAgain) -> bool:
    if run.end == "raised":
        inside = [one for one in history.trace.raised if run.again < one.at <= run.ended]
        return fact.event == run.event or (inside != [] and inside[-1].at == fact.at)
    if run.reentrant:
        return _gave_others(history, run, history.position(fact.event))
    return fact.event == run.event and fact.type == "CheckpointError"


def _gave_others(history: History, run: RunAgain, at: int) -> bool:
    """Whether a call is the block's own pass, and starts from results of another shape.

    The gradients that the pass around it hands on are of those that the forward gave.
    """
    since, until = history.trace.first_after(run.ended), history.position(run.event)
    if at != next((one for one in history.backwards if since <= one < until), UNKNOWN) or at < 0:
        return False
    after = (history.events[one] for one in range(history.trace.first_after(run.last), at))
    given = next((one.results for one in after if one.operation == "apply"), ())
    shapes = [one.shape for one in given]
    return any(one.shape not in shapes for one in losses_of(history.events[at]))


def pass_of(history: History, run: RunAgain) -> int:
    """Return the position of the backward pass that a block ran again in; UNKNOWN: not recorded.

    A reentrant block runs a pass of its own within it.
    """
    if run.event != UNKNOWN:
        return history.position(run.event)
    at = following(history.backwards, history.trace.first_after(run.ended) - 1)
    while at != UNKNOWN and history.inside(history.events[at], "backward") != UNKNOWN:
        at = following(history.backwards, at)
    return at


def known_whole(history: History, run: RunAgain) -> bool:
    """Whether nothing of the run in the forward was forgotten."""
    first, last = (history.trace.first_after(one) for one in (run.first, run.last))
    return last - first == run.last - run.first


class BothRuns:
    """The calls of both runs of a block.

    `same`: pairs of positions, the calls that both runs make, up to where they part; `first`: the
    positions of all calls of the run in the forward.
    """

    def __init__(self, history: History, run: RunAgain) -> None:
        self._history, self._run = history, run
        self.same: list[tuple[int, int]] = []
        passed = pass_of(history, run)
        self._first = self._keyed(run.first, run.last, run.thread, run.site)
        again_from = history.events[passed].site if passed >= 0 else UNKNOWN
        self._again = self._keyed(run.again, run.ended, run.again_in, again_from)
        self.first = [at for at, _ in self._first]
        self._skipped: list[Parting] = []
        self.parting = self._part() if known_whole(history, run) else None
        """Where the runs part: at the first call that the graph can differ by."""

    def _keyed(self, since: Moment, until: Moment, thread: int, base: int) -> list[Call]:
        """Return the calls of a run, each with what it is known by.

        A call that a library makes for the line which runs the block has another line each time.
        """
        history = self._history
        first, last = (history.trace.first_after(one) for one in (since, until))
        events = ((at, history.events[at]) for at in range(first, last))
        return [
            (at, (one.operation, UNKNOWN if one.site == base else one.site, one.inner, one.detail))
            for at, one in events
            if one.thread == thread
        ]

    def _part(self) -> Parting | None:
        first, again = self._first, self._again
        i = j = 0
        while i < len(first) and j < len(again):
            if first[i][1] == again[j][1]:
                found = self._compared(first[i][0], again[j][0])
                if found is not None:
                    return self._led_to(found)
                self.same.append((first[i][0], again[j][0]))
                i, j = i + 1, j + 1
                continue
            fewer, more = self._together(i, j)
            left, added = first[i : i + fewer], again[j : j + more]
            if self._graded(left) or self._graded(added):
                return self._jumped(i, j, fewer=self._graded(left), more=self._graded(added))
            if self._met_tensors(left) or self._met_tensors(added):
                self._skipped.append(self._jumped(i, j, fewer=fewer > 0, more=more > 0))
            i, j = i + fewer, j + more
        if j < len(again):
            return self._jumped(i, j, fewer=False, more=True)
        if i < len(first) and self._run.end == "returned":
            return self._jumped(i, j, fewer=True, more=False)
        return None

    def _together(self, i: int, j: int) -> tuple[int, int]:
        """Return how many calls of each run to pass over until both make the same call again."""
        first, again = self._first[i : i + _WINDOW], self._again[j : j + _WINDOW]
        places: dict[Key, int] = {}
        for number, (_, key) in enumerate(again):
            places.setdefault(key, number)
        pairs = [(n, places[key]) for n, (_, key) in enumerate(first) if key in places]
        if not pairs and self._run.end != "returned":
            return 0, 1  # the second run was cut short: what it would have come to is not known
        return min(pairs, key=sum, default=(len(first), len(again)))

    def _jumped(self, i: int, j: int, *, fewer: bool, more: bool) -> Parting:
        """Return the calls at which one run makes calls that the other does not."""
        if fewer and more:
            return Parting("other", self._first[i][0], self._again[j][0])
        (at, key), other = (self._again[j], self._first) if more else (self._first[i], self._again)
        repeated = any(key == one for _, one in other)
        if more:
            return Parting("more", again=at, repeated=repeated)
        return Parting("fewer", first=at, repeated=repeated)

    def _graded(self, calls: list[Call]) -> bool:
        """Whether one of some calls has to do with gradients: others leave nothing for a pass."""
        events = (self._history.events[at] for at, _ in calls)
        return any(one.requires_grad for event in events for one in (*event.reads, *event.results))

    def _met_tensors(self, calls: list[Call]) -> bool:
        events = (self._history.events[at] for at, _ in calls)
        return any(event.reads or event.results for event in events)

    def _led_to(self, found: Parting) -> Parting:
        """Return the call without gradients that made what differs, if only one run has made it."""
        for operand in (found.before, found.now):
            made = UNKNOWN if operand is None else self._history.made_at(operand.tensor)
            for one in self._skipped:
                if made != UNKNOWN and made in one.calls:
                    return one
        return found

    def _compared(self, first: int, again: int) -> Parting | None:
        """Return in what one call of both runs differs."""
        one, other = self._history.events[first], self._history.events[again]
        whole = not (one.raised or other.raised)
        pairs = [(one.reads, other.reads, False)]
        if whole:
            pairs.append((one.results, other.results, True))
        for before, now, result in pairs:
            if len(before) != len(now):
                return Parting("count", first, again, result=result)
            for x, y in zip(before, now, strict=True):
                differs = self._differs(x, y)
                if differs is not None:
                    return Parting(differs, first, again, x, y, result)
        if one.on != other.on:
            return Parting("truth", first, again)
        return Parting("does", first, again) if whole and _ties(one) != _ties(other) else None

    def _differs(self, x: Operand, y: Operand) -> Differs | None:
        """Return in what two operands differ; the forward of a reentrant block has no gradients."""
        storages = self._history.trace.storages
        if x.shape != y.shape:
            return "shape"
        if x.dtype != y.dtype:
            return "dtype"
        if x.storage != y.storage and storages[x.storage].device != storages[y.storage].device:
            return "device"
        if x.requires_grad != y.requires_grad and not self._run.reentrant:
            return "requires grad"
        return None


def _ties(event: Event) -> tuple[object, ...]:
    """Return which results of a call are what it was given, and how much it wrote."""
    same = [[one.tensor == read.tensor for read in event.reads] for one in event.results]
    return same, len(event.writes)


def drawn_for(history: History, found: Parting, run: RunAgain) -> int:
    """Return the call of the second run that drew other numbers, which the parting hangs on, or -1.

    Both runs draw the same where PyTorch puts the state of its generators back.
    """
    since, hangs = history.trace.first_after(run.again), found.differs in _BY_VALUE
    waiting = list(history.events[found.again].reads) if hangs and not run.keeps_random else []
    seen = set[int]()
    while waiting:
        at = history.made_at(waiting.pop().tensor)
        if at < since or at in seen:
            continue
        seen.add(at)
        event = history.events[at]
        if operation(event.operation).draws:
            return at
        waiting += event.reads
    return UNKNOWN


def calls_in(history: History, run: RunAgain) -> Iterator[int]:
    """Yield the calls of both runs of a block."""
    for since, until, thread in (
        (run.first, run.last, run.thread),
        (run.again, run.ended, run.again_in),
    ):
        for at in range(*(history.trace.first_after(one) for one in (since, until))):
            if history.events[at].thread == thread:
                yield at
