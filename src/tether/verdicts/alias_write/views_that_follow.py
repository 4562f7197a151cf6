"""Views that a write to what they are of changed before they were read: part of `alias-write`.

``first = root[0]; root.sub_(low)``, ``last = beam.last(); last[unknown] = 0``: a view is a window,
and most windows are meant. So a tie of one is told of as a note, and only where somebody had seen
the values that were written over, the program's own line did so, and another line reads what shows
them. Nothing is said of what is written in its turn: both are there to write one memory by. What an
optimizer trains is told of also where `detach` gave it the memory, as in
``x = image.detach().requires_grad_()``.
"""

from __future__ import annotations

from collections.abc import Iterator

from tether.analysis.history import History
from tether.analysis.sharing.acts import Acts
from tether.analysis.sharing.shared_memory import Sharing
from tether.analysis.sharing.standing import TieReason
from tether.analysis.ties import ActedTie, Ties
from tether.facts import UNKNOWN, Site
from tether.finding import At, CallOf, Claim, Repair, Segment, Step, say
from tether.verdicts.alias_write.telling import written


def views_that_follow(history: History) -> Iterator[Claim]:
    """Yield a note for each tie between a tensor and a view of it that is worth a look.

    Not for a write of which another tie tells that looks less meant.
    """
    told = set[Site]()
    for tie in history.get(Ties).found:
        view = tie.kind == "tensor" and _is_a_window(history, tie)
        looked_at = view and not tie.standing.plain and tie.since and tie.writes and tie.reads
        if looked_at and told.isdisjoint(tie.writes):
            write = _told_write(history, tie)
            if not _is_written(history, tie, write):
                yield _claim(history, tie, write)
        elif not view:
            told.update(tie.writes)


def _is_a_window(history: History, tie: ActedTie) -> bool:
    """Whether a tensor is a view, or what an optimizer trains on memory that was detached.

    Not where an object keeps a window of its own tensor, and writes that by it.
    """
    chain, writes = history.get(Sharing).chain, history.events[tie.write].writes
    behind = {link.source for one in writes for link in chain(one.tensor)}
    through = not behind.isdisjoint(tie.tensors)  # what was written was taken of what shows it
    if tie.standing.reason is TieReason.COPY:
        return through and tie.operation == "step"
    own, _, attribute = tie.through.rpartition(".")
    kept = attribute and own and any(one.rpartition(".")[0] == own for one in tie.shows)
    return tie.standing.reason is TieReason.VIEW and not (through and kept)


def _told_write(history: History, tie: ActedTie) -> int:
    """Return the write of the act that a tie tells of first: its own first one may be another's."""
    acts = (one for one in history.get(Acts).all
            if one.place.tensor == tie.tensors[0] and one.through != UNKNOWN)  # fmt: skip
    line = tie.writes[0]
    told = (one.write for one in acts if history.site_of(history.events[one.write]) == line)
    return next(told, tie.write)


def _is_written(history: History, tie: ActedTie, at: int) -> bool:
    """Whether what shows a change is written itself as well, or something made of it."""
    sharing, write = history.get(Sharing), history.events[at].writes[0]
    writes = sharing.writes.get(history.flow.memory(write))
    writers = {one.operand.tensor for one in writes}
    behind = {link.source for one in writers for link in sharing.chain(one)}
    behind -= {link.source for link in sharing.chain(write.tensor)}
    return not writers.union(behind).isdisjoint(tie.tensors)


def _claim(history: History, tie: ActedTie, at: int) -> Claim:
    write = history.events[at]
    parts = {
        "shows": Segment(_quoted(tie.shows[0]), "name"),
        "by": Segment(_quoted(tie.through), "name"), "since": At(tie.since[0]),
        "call": CallOf(at), "write": At(tie.writes[0]), "read": At(tie.reads[0]),
    }  # fmt: skip
    return Claim(
        tensors=(*tie.tensors, write.writes[0].tensor),
        cause=("view that follows", tie.since[0]),
        site=tie.since[0],
        operation=write.operation,
        severity="note",
        message=say(
            "{shows} and {by} share memory from {since} on: {call} at {write} wrote to {by}, so"
            " {read} read changed values from {shows}.",
            **parts,
        ),
        story=(
            Step("shared", tie.since[0], say("a view, and no copy")),
            written(history, at),
            Step("read", tie.reads[0], say("{shows} is read with what was written", **parts)),
        ),
        repair=Repair(say("If {shows} is to keep what it was, keep a copy at {since}: .clone().",
                      **parts)),
        count=tie.times,
        calls=(at,),
    )  # fmt: skip


def _quoted(name: str) -> str:
    return name if "`" in name or " " in name else f"`{name}`"
