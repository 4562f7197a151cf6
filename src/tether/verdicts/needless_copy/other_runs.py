"""What a needless copy takes for granted of runs, gradients and sizes that were not looked at."""

from __future__ import annotations

from collections.abc import Iterator

from tether.analysis.copies.already_there import Copied, may_differ
from tether.analysis.copies.needs import Need
from tether.analysis.copies.relied_layout import Trials
from tether.analysis.history import History
from tether.facts import UNKNOWN
from tether.finding import Sentence, say
from tether.operations.table import operation, shown
from tether.source.written_out import is_part_written_out


def of_other_runs(
    history: History, need: Need, copied: Copied, *, unread: bool
) -> Iterator[Sentence]:
    """Yield what is taken for granted of runs, and gradients, that were not looked at."""
    if need.looked and not unread:
        yield say("the other runs go as those that were looked at")
    if need.relaid and copied.copy.requires_grad:
        yield say("sums over gradients round the same in the source's layout")
    if need.relaid and history.get(Trials).of(copied):
        yield say(
            "the calls that read it round in other runs and on other machines as here, where"
            " each was made again with the source and gave the same bits, and the same gradients"
            " where it has any"
        )
    if need.chosen or may_differ(history, copied):
        yield say("{call} gives what was there in other runs, too", call=shown(need.operation))
    yield from _of_other_sizes(history, need, copied)


def _of_other_sizes(history: History, need: Need, copied: Copied) -> Iterator[Sentence]:
    """Yield what is taken for granted of how many things there are in other runs, and of which."""
    if any(one.part for one in need.executions):
        yield say("what reads it can read the tensors by themselves in other runs, too, whatever"
                  " their sizes are")  # fmt: skip
    if need.single:
        yield say("the lists of other runs have one tensor each, too")
    if not _lie_together(history, copied):
        yield say("what is joined lies side by side in other runs, too: other numbers, sizes or"
                  " data change nothing of that")  # fmt: skip
    if _may_be_longer(history, copied):
        yield say("what is repeated has one element there in other runs, too, whatever the sizes")


def _lie_together(history: History, copied: Copied) -> bool:
    """Whether what is joined is known to lie in one piece: one call, or its text, parts it so."""
    event = history.events[copied.position]
    if not operation(event.operation).joins or copied.part or len(event.reads) < 2:
        return True
    makers = {history.made_at(one.tensor) for one in event.reads}
    if UNKNOWN in makers:
        return False
    texts = (history.site_of(history.events[at]).expression for at in makers)
    return len(makers) == 1 or all(map(is_part_written_out, texts))


def _may_be_longer(history: History, copied: Copied) -> bool:
    """Whether a dimension that is repeated has one element for no more than its size."""
    event = history.events[copied.position]
    if not operation(event.operation).repeats or 1 not in event.reads[0].shape:
        return False
    made = history.made_at(event.reads[0].tensor)
    before = history.events[made].reads[:1] if made >= 0 else ()
    return not any(len(one.shape) < len(event.reads[0].shape) for one in before)
