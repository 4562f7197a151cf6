"""The tape: the facts of one recording while they grow, shared by all that listens.

It holds what every part of the recorder writes to: the log of events, who is who, where calls come
from, spans, errors, gaps. It knows none of those parts, so each of them gets the tape and nothing
else. A failure of the recorder's own ends here: it becomes a gap (and is raised when
``TETHER_STRICT`` is set, as under our tests).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import torch

from tether.facts import (
    GRAD_INFERENCE,
    GRAD_OFF,
    GRAD_ON,
    STRICT,
    UNKNOWN,
    Bridge,
    EventId,
    Gap,
    GapCode,
    GivenTwice,
    IteratorTaken,
    ModeSwitch,
    Moment,
    OptimizerFact,
    OptimizerId,
    Process,
    Raised,
    Rate,
    RateOfAnother,
    RatePutBack,
    Schedule,
    SharedRate,
    SiteId,
    Span,
    SpanId,
    SpanKind,
    Unmatched,
)
from tether.record.arrays.lives import ArrayLives
from tether.record.events import EventLog
from tether.record.identity import Identities
from tether.record.identity import Snapshot as Snapshot  # noqa: PLC0414 -- what events are made of
from tether.record.processes.elsewhere import elsewhere
from tether.record.sites import Places

NOWHERE = (UNKNOWN, UNKNOWN)
"""A place that could not be found out: of the user's line and of the library's."""

_MOST_ERRORS = 1000
_MOST_TEXT = 2000

_grad_enabled = torch.is_grad_enabled
_inference_enabled = torch.is_inference_mode_enabled


def grad_mode() -> int:
    """Return the mode that gradients are in here and now, as `facts.Event.grad_mode` says it."""
    if _grad_enabled():
        return GRAD_ON
    return GRAD_INFERENCE if _inference_enabled() else GRAD_OFF


def _rank() -> tuple[int, int]:
    """Return rank and number of ranks, as a launcher tells a process that it starts."""
    rank, ranks = (os.environ.get(name, "") for name in ("RANK", "WORLD_SIZE"))
    return (int(rank), int(ranks)) if rank.isdecimal() and ranks.isdecimal() else (UNKNOWN, 0)


def text_of(error: BaseException) -> str:
    """Return what an exception says, however unwilling its class is to."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001 -- a program's own class may do anything
        return ""


def cut(text: str) -> str:
    """Return as much of what an error says as is kept."""
    return text[:_MOST_TEXT]


class Tape:
    """The facts of one recording; `limit` keeps the last so many events."""

    def __init__(self, limit: int | None = None) -> None:
        self.strict = bool(os.environ.get(STRICT))
        self.active = False
        self.log = EventLog(limit)
        self.places = Places()
        self.who = Identities(self.gap, self.log)
        self.arrays = ArrayLives()
        self.spans: list[Span] = []
        self.raised: list[Raised] = []
        self.gaps: dict[tuple[GapCode, str, int], int] = {}
        self.bridges: list[Bridge] = []
        self.has_passed = False  # a backward pass of the program's has begun
        self.forks = "forked"  # what a child process is called that is about to be forked
        self.started: dict[int, tuple[GapCode, str, int]] = {}  # process id -> the gap noted for it
        self.process = Process(os.getpid(), *_rank())
        self.ear: Any = None  # in a forked process that is not recorded: what hears it
        self.received: dict[int, Any] = {}  # by id, within a call that a mode hears
        self.optimizers: list[OptimizerFact] = []
        self.rates: list[Rate] = []
        self.schedules: list[Schedule] = []
        self.shared_rates: list[SharedRate] = []
        self.rates_of_others: dict[tuple[int, int], RateOfAnother] = {}  # by both optimizers
        self.iterators_taken: list[IteratorTaken] = []
        self.given_twice: list[GivenTwice] = []
        self.rates_put_back: list[RatePutBack] = []
        self.mode_switches: list[ModeSwitch] = []
        self.unmatched: list[Unmatched] = []
        self.last_rates: dict[tuple[int, int], float] = {}  # by optimizer and group
        self.exports: dict[int, int] = {}  # storage serial -> event that exported its memory
        self.on_beat: Callable[[], None] = lambda: None  # saves what is new, if it is time
        self.on_error: Callable[[str], None] = lambda _: None  # told what a new one says
        self.last_error: tuple[int, type, str] | None = None  # noted last, while it travels up

    def now(self) -> int:
        """Return the time: how many events have been recorded."""
        return self.log.count

    def forget(self) -> None:
        """Let go of what hung on events that have just been forgotten."""
        since = self.log.dropped
        self.exports = {one: at for one, at in self.exports.items() if at >= since}
        self.bridges = [one for one in self.bridges if one.exit >= since]

    def add(
        self,
        operation: str,
        place: tuple[int, int],
        operands: tuple[Sequence[Snapshot], Sequence[Snapshot], Sequence[Snapshot]],
        span: int,
        thread: int,
        flags: int = 0,
        losses: int = 0,
        detail: str = "",
        kind: int = UNKNOWN,
        nodes: int = 0,
    ) -> int:
        """Append an event whose operands were read, returned and written; return its index."""
        log = self.log
        if self.who.dead:
            self.who.bury()
        reads, results, writes = operands
        head = (
            log.number(operation), place[0], grad_mode(), span, place[1], thread, flags, losses,
            log.number(detail), kind, nodes, len(reads), len(results), len(writes),
        )  # fmt: skip
        return log.add(head, [one[5] for one in (*reads, *results, *writes)])

    def note_rate(self, optimizer: int, group: int, rate: float) -> None:
        """Note the learning rate of a parameter group, which a step is about to use."""
        self.last_rates[optimizer, group] = rate
        self.rates.append(Rate(Moment(self.now()), OptimizerId(optimizer), group, rate))

    def take_received(self) -> dict[int, Any]:
        """Return by their ids the tensors that other processes filled since this was last asked."""
        found = self.received
        if found:
            self.received = {}
        return found

    # -- what went wrong -------------------------------------------------------------------------

    def gap(self, code: GapCode, detail: str = "", site: int = UNKNOWN) -> None:
        """Note something that could not be seen; what is met again is counted."""
        key = (code, detail, site)
        self.gaps[key] = self.gaps.get(key, 0) + 1

    def failed(self, where: str, error: BaseException) -> None:
        """Note a failure of the recorder itself: a gap for the user, an error under our tests."""
        if self.strict:
            raise error
        self.gap("failed", f"{where}: {type(error).__name__}: {text_of(error)}")

    def error(self, error: BaseException, site: int, event: int) -> None:
        """Note an exception that passes through a recorded call, once while it travels."""
        # Its id alone may come back once it is gone; holding it would keep its frames alive.
        if self.is_last_error(error):
            return
        text = text_of(error)
        self.last_error = (id(error), type(error), text)
        if len(self.raised) < _MOST_ERRORS:
            name = type(error).__name__
            said, lines = elsewhere(error, text)
            self.raised.append(
                Raised(
                    Moment(self.now()), name, cut(text), SiteId(site), fatal=False,
                    event=EventId(event), elsewhere=cut(said),
                    lines=tuple(SiteId(self.places.add_site(one)) for one in lines),
                )
            )  # fmt: skip
            try:
                self.on_error(text)
            except Exception as failure:  # noqa: BLE001
                self.failed("an error", failure)

    def is_last_error(self, error: BaseException) -> bool:
        """Whether this exception is the one that was noted last."""
        return (id(error), type(error), text_of(error)) == self.last_error

    # -- spans -----------------------------------------------------------------------------------

    def open_span(self, kind: SpanKind, name: str, site: int, parent: int) -> int:
        """Begin a stretch that belongs to one call; return its number."""
        now = Moment(self.now())
        self.spans.append(Span(kind, name, SiteId(site), now, parent=SpanId(parent)))
        return len(self.spans) - 1

    def close_span(self, number: int, event: int = UNKNOWN) -> None:
        """End a stretch; `event` is the event of the call itself."""
        if number == UNKNOWN:
            return
        kind, name, site, first, _, parent, _ = self.spans[number]
        last = Moment(self.now())
        self.spans[number] = Span(kind, name, site, first, last, parent, EventId(event))

    def gap_facts(self) -> list[Gap]:
        """Return the gaps noted so far, and one for the events that were forgotten."""
        gaps = [
            Gap(code, detail, SiteId(site), times)
            for (code, detail, site), times in list(self.gaps.items())
        ]
        dropped = self.log.dropped - len(self.log.kept)
        return [*gaps, Gap("forgotten", f"{dropped:,}")] if dropped else gaps
