"""All facts of one recording, and what it could not see."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from tether.facts.arrays import (
    ArrayAgain,
    ArrayCall,
    ArrayCopied,
    ArrayFact,
    ArrayKept,
    ArrayLine,
    Drawn,
    MappedFile,
    OnOthers,
    Rewritten,
    Taken,
    Unseen,
)
from tether.facts.calls import Callers, Event, Raised, Site, Span, WayThere
from tether.facts.gradients import (
    Altered,
    BackwardHooked,
    Followed,
    FunctionPass,
    FunctionState,
    GivenWritten,
    Gradients,
    Hooked,
    KeptByHook,
    Kind,
    RunAgain,
    Walk,
)
from tether.facts.holders import (
    CacheKept,
    Holder,
    MadeOnce,
    Name,
    Reassigned,
    ShallowCopy,
    Suspended,
    WrittenThrough,
)
from tether.facts.identity import UNKNOWN, EventId, Moment, SiteId
from tether.facts.lives import Allocator, Attached, InRing, StorageFact, TensorFact
from tether.facts.modules import (
    Drift,
    ModeSwitch,
    Movement,
    OwnBackward,
    Padded,
    PlainFlag,
    SlicesAlike,
    Unmatched,
)
from tether.facts.optimizers import (
    GivenTwice,
    IteratorHeld,
    IteratorTaken,
    OptimizerFact,
    Rate,
    RateOfAnother,
    RatePutBack,
    Schedule,
    SharedRate,
    StateGiven,
    StateLeft,
    StateOfAnother,
)
from tether.facts.processes import LOADER, Fork, Inherited, Process, Shared
from tether.facts.values import (
    AddressedApart,
    Bridge,
    Collision,
    Entered,
    KeptAgain,
    ReadBack,
    Repeated,
    Same,
    Tried,
)

GapCode = Literal[
    "killed", "forgotten", "steps", "sampled", "failed", "pytorch", "release",  # of the recording
    "child", "thread", "compiled", "scripted", "traced", "memory", "pretended",  # ran or was held
    # unseen
    "array-large", "array-many", "array-time", "gradient-threads", "autosave",  # what was given up
    "analysis",  # what failed as the recording was looked at
]  # fmt: skip

SCRIPTED_MODULE, SCRIPTED_FUNCTION = "a scripted module", "a scripted function"
"""What a gap says of TorchScript. A module may keep tensors that nobody sees it read."""

STRICT = "TETHER_STRICT"
"""The variable of the environment under which what fails inside tether raises, and looking may take
what time it takes: set in our tests."""


class Gap(NamedTuple):
    """Something that could not be seen. `report.tables.gaps` says what a code means, in words."""

    code: GapCode
    detail: str = ""  # what the words of the code name: a class, a number of calls
    site: SiteId = SiteId(UNKNOWN)
    times: int = 1  # that it was met

    @property
    def reason(self) -> str:
        """The code and what it names."""
        return f"{self.code}: {self.detail}" if self.detail else self.code


Outcome = Literal["finished", "raised", "interrupted", "unfinished"]
"""How the program ended; ``unfinished``: it was killed, or is still running."""


@dataclass
class Trace:
    """All facts of one recording."""

    program: list[str] = field(default_factory=list)  # ["train.py", "--lr", "1"]
    folder: str = ""  # of the program: paths under it are shown relative to it
    torch: str = ""
    outcome: Outcome = "finished"
    process: Process = field(default_factory=Process)
    dropped: Moment = field(default=Moment(0))  # what came before is forgotten, but for `kept`
    kept: list[EventId] = field(default_factory=list)  # the first of `events`: from before that
    events: Sequence[Event] = field(default_factory=list)
    sites: list[Site] = field(default_factory=list)
    callers: list[Callers] = field(default_factory=list)
    reached: list[WayThere] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    runs_again: list[RunAgain] = field(default_factory=list)
    kinds: list[Kind] = field(default_factory=list)
    walks: list[Walk] = field(default_factory=list)
    altered: list[Altered] = field(default_factory=list)
    tensors: Mapping[int, TensorFact] = field(default_factory=dict)  # by TensorId
    storages: Mapping[int, StorageFact] = field(default_factory=dict)  # by StorageId
    names: list[Name] = field(default_factory=list)
    plain_flags: list[PlainFlag] = field(default_factory=list)
    own_backwards: list[OwnBackward] = field(default_factory=list)
    reassigned: list[Reassigned] = field(default_factory=list)
    in_rings: list[InRing] = field(default_factory=list)
    cache_kept: list[CacheKept] = field(default_factory=list)
    made_once: list[MadeOnce] = field(default_factory=list)
    shallow_copies: list[ShallowCopy] = field(default_factory=list)
    written_through: list[WrittenThrough] = field(default_factory=list)
    suspended: list[Suspended] = field(default_factory=list)
    holders: list[Holder] = field(default_factory=list)
    hooks: list[Hooked] = field(default_factory=list)
    backward_hooks: list[BackwardHooked] = field(default_factory=list)
    optimizers: list[OptimizerFact] = field(default_factory=list)
    rates: list[Rate] = field(default_factory=list)
    schedules: list[Schedule] = field(default_factory=list)
    shared_rates: list[SharedRate] = field(default_factory=list)
    rates_of_others: list[RateOfAnother] = field(default_factory=list)
    iterators_taken: list[IteratorTaken] = field(default_factory=list)
    given_twice: list[GivenTwice] = field(default_factory=list)
    iterators_held: list[IteratorHeld] = field(default_factory=list)
    rates_put_back: list[RatePutBack] = field(default_factory=list)
    states_of_others: list[StateOfAnother] = field(default_factory=list)
    states_left: list[StateLeft] = field(default_factory=list)
    states_given: list[StateGiven] = field(default_factory=list)
    mode_switches: list[ModeSwitch] = field(default_factory=list)
    gradients: list[Gradients] = field(default_factory=list)
    movements: list[Movement] = field(default_factory=list)
    drifts: list[Drift] = field(default_factory=list)
    alike: list[SlicesAlike] = field(default_factory=list)
    followed: list[Followed] = field(default_factory=list)
    bridges: list[Bridge] = field(default_factory=list)
    same: list[Same] = field(default_factory=list)
    tried: list[Tried] = field(default_factory=list)
    collisions: list[Collision] = field(default_factory=list)
    addressed_apart: list[AddressedApart] = field(default_factory=list)
    function_states: list[FunctionState] = field(default_factory=list)
    kept_by_hooks: list[KeptByHook] = field(default_factory=list)
    function_passes: list[FunctionPass] = field(default_factory=list)
    given_written: list[GivenWritten] = field(default_factory=list)
    padded: list[Padded] = field(default_factory=list)
    taken: list[Taken] = field(default_factory=list)
    arrays_copied: list[ArrayCopied] = field(default_factory=list)
    array_lines: list[ArrayLine] = field(default_factory=list)
    array_calls: list[ArrayCall] = field(default_factory=list)
    entered: list[Entered] = field(default_factory=list)
    on_others: list[OnOthers] = field(default_factory=list)
    read_back: list[ReadBack] = field(default_factory=list)
    unmatched: list[Unmatched] = field(default_factory=list)
    repeated: list[Repeated] = field(default_factory=list)
    arrays_again: list[ArrayAgain] = field(default_factory=list)
    drawn: list[Drawn] = field(default_factory=list)
    kept_again: list[KeptAgain] = field(default_factory=list)
    rewritten: list[Rewritten] = field(default_factory=list)
    arrays: list[ArrayFact] = field(default_factory=list)
    arrays_kept: list[ArrayKept] = field(default_factory=list)
    unseen: list[Unseen] = field(default_factory=list)
    mapped_files: list[MappedFile] = field(default_factory=list)
    forks: list[Fork] = field(default_factory=list)
    inherited: list[Inherited] = field(default_factory=list)
    shared: list[Shared] = field(default_factory=list)
    raised: list[Raised] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)
    attached: list[Attached] = field(default_factory=list)
    allocators: list[Allocator] = field(default_factory=list)
    sources: dict[str, str] = field(default_factory=dict)  # file -> text, of the user's files
    concluded: str = ""  # what was made of the facts, for who opens the file (`report.kept`)

    @property
    def ended(self) -> Moment:
        """The time when the recording ended."""
        return Moment(self.dropped + len(self.events) - len(self.kept))

    @property
    def elsewhere(self) -> bool:
        """Whether the work was done where it was not recorded, as far as can be told.

        No call was recorded, or none that trains while other processes ran, which may have.
        """
        if not self.ended:
            return True
        if not any(gap.code == "child" and gap.detail != LOADER for gap in self.gaps):
            return False
        return not self.trains

    @property
    def trains(self) -> bool:
        """Whether a backward pass or an optimizer's step was recorded."""
        return any(one.kind in ("backward", "step") for one in self.spans)

    def position(self, at: int) -> int:
        """Return where in `events` an event is, or the first after a moment.

        -1 for an event that was forgotten, and for UNKNOWN.
        """
        if at >= self.dropped:
            return at - self.dropped + len(self.kept)
        place = bisect_left(self.kept, EventId(at))
        return place if place < len(self.kept) and self.kept[place] == at else -1

    def first_after(self, moment: Moment) -> int:
        """Return where in `events` the first is that came after a moment, of those kept."""
        found = self.position(moment)
        return found if found >= 0 else bisect_left(self.kept, EventId(moment))

    def event_id(self, position: int) -> EventId:
        """Return the index of the event that is at a position of `events`."""
        old = len(self.kept)
        return self.kept[position] if position < old else EventId(self.dropped + position - old)
