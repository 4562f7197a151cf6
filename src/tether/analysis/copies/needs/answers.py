"""What is answered of a copying line: needed or not, why, and what goes with it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from tether.analysis.copies.already_there import Copied
from tether.facts import UNKNOWN

Needed = Literal["yes", "no", "unknown"]


FLOOR = 64 << 10  # bytes: how much more memory a copy must let go to be worth having


Key = tuple[int, int, str]
"""A copying line: the user's site, the library's site (or -1) and the operation."""


class WhyNeeded(NamedTuple):
    """Why a copy was needed, or why that is not known."""

    needed: Needed
    text: str  # a clause: "line 31 writes `x` while `identity` lives"
    at: int = UNKNOWN  # the event it rests on
    rounds: bool = False  # no more than rounding could differ: the source lies as is computed


@dataclass
class Need:
    """The answer for one site."""

    operation: str
    needed: Needed = "no"
    reason: str = ""  # the first that weighs most; "" when it was not needed
    at: int = UNKNOWN  # the event that the reason rests on
    count: int = 0
    bytes: int = 0  # copied, in all its executions
    executions: list[Copied] = field(default_factory=list)
    relaid: bool = False  # its copies have another layout than their sources
    unread: int = 0  # executions whose copies nothing read
    bound: bool = False  # more than calls that copy would have to go
    chosen: bool = False  # the values of the source decided what was taken of it: everything
    rounds: bool = True  # if it was needed, then for the rounding of what is computed of it
    rests_on: set[Key] = field(default_factory=set)  # the lines that would have to go as well
    looked: int = 0  # executions of which the array was looked at, where others' were not
    passed_over: int = 0  # other runs, whose results were too small to be looked at
    single: bool = False  # joins that were given one tensor each, where the text lists none
    replaces: bool = False  # a copy was written, of a source that nothing used again
    lingers: bool = False  # a source was written as no line could read its copy any more

    def add(self, reason: WhyNeeded | None) -> None:
        """Join the answer for one more execution: one that needed the copy decides."""
        rank = {"no": 0, "unknown": 1, "yes": 2}
        self.rounds &= reason is None or reason.rounds
        if reason is not None and rank[reason.needed] > rank[self.needed]:
            self.needed, self.reason, self.at = reason.needed, reason.text, reason.at
