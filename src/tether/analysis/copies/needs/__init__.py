"""Whether a copy was needed: what would have gone otherwise had it been its source.

Asked of every call that made what was there already (`already_there`). Each condition that fails is
a reason, with the event it rests on; what the recording cannot tell makes the answer "unknown". A
copy that nothing in the whole program read, and of which nothing took a view, was not needed,
whatever was written, if none of its line was read. Of any other is asked, in this order:

- the source was written while the copy lived, or the copy while the source did. Lived, not read:
  memory lives as long as anything holds it, the gradient graph and exported arrays included;
- the copy as an object had something of its own: a hook, a retained gradient, a place in an
  optimizer, a ``requires_grad_``, a name inside a module;
- another layout was relied upon (`relied_layout`);
- the copy let a much larger memory go;
- the gradient graph would add up a gradient in another order.

A site's answer is the gravest of its executions': one that needed the copy is enough.
"""

from __future__ import annotations

from tether.analysis.copies.already_there import AlreadyThere, Copied, nbytes
from tether.analysis.copies.layouts import same_layout
from tether.analysis.copies.needs.answers import FLOOR, Key, Need, Needed, WhyNeeded
from tether.analysis.copies.needs.arrays import LOOKED
from tether.analysis.copies.needs.index import read_unseen
from tether.analysis.copies.needs.judge import Judge
from tether.analysis.copies.needs.lines import key_of
from tether.analysis.history import History
from tether.facts import LEAST_OF_A_LIST, UNKNOWN, Event
from tether.operations.table import operation

__all__ = [
    "FLOOR",
    "LOOKED",
    "CopyNeeds",
    "Judge",
    "Key",
    "Need",
    "Needed",
    "WhyNeeded",
    "left_out_with",
    "needed_by_site",
    "needs",
    "read_unseen",
]

OFTEN = 8
"""Runs of a line that each took everything in order, by numbers made of the values: fewer may be
an order that came about by chance."""


def needs(history: History) -> dict[Key, Need]:
    """Return for every line that copies whether its copies were needed."""
    return history.get(CopyNeeds).found


def left_out_with(history: History, key: Key) -> list[Key]:
    """Return the lines that are left out together, so that a line's copies are not made.

    Their sources stand for what they made. Empty where the copies are needed, or where more than
    these calls would have to go.
    """
    found = needs(history)
    keys = [key, *sorted(found[key].rests_on)]
    return keys if all(found[one].needed == "no" and not found[one].bound for one in keys) else []


def needed_by_site(history: History) -> dict[tuple[int, str], tuple[Needed, str]]:
    """Return the answers by (site, operation), lines of libraries joined with what led there."""
    joined: dict[tuple[int, str], Need] = {}
    for (site, _, _), need in needs(history).items():
        for name in {history.events[one.position].operation for one in need.executions}:
            total = joined.setdefault((site, name), Need(name))
            total.add(WhyNeeded(need.needed, need.reason, need.at))
    return {key: (need.needed, need.reason) for key, need in joined.items()}


class CopyNeeds:
    """The answers for one history, by copying line.

    A copy that was not needed counts as its source from then on: of a copy of a copy one may go
    where both may not.
    """

    def __init__(self, history: History) -> None:
        there = history.get(AlreadyThere)
        self.found: dict[Key, Need] = {}
        made: list[Copied] = []
        for position, copies in there.by_position.items():
            need = self._need(history, position)
            need.executions += copies
            need.count += 1
            made += copies
        for position in there.unseen:
            known = self.found.get(key_of(history, history.events[position]))
            if known is None:
                continue
            of_lists = all(one.taken is None for one in known.executions)
            if of_lists and _was_passed_over(history.events[position]):
                known.passed_over += 1
            else:
                text = "not all of its runs were seen to give what was there already"
                known.add(WhyNeeded("unknown", text, position))
        judge = Judge(history, made)
        for key, need in self.found.items():
            judge.index.library = key[1] != UNKNOWN
            judge.index.often = need.count >= OFTEN
            self._answer(judge, need)
        self._give_up()

    def _give_up(self) -> None:
        """Take back what rests on lines whose copies stay, and what rests on that."""
        waiting = [need for need in self.found.values() if need.needed == "no" and need.rests_on]
        while left := [one for one in waiting if any(map(self._stays, one.rests_on))]:
            for need in left:
                text = "it lets memory go, where copies of other parts of that stay"
                need.add(WhyNeeded("unknown", text))
            waiting = [one for one in waiting if one.needed == "no"]

    def _stays(self, key: Key) -> bool:
        return self.found[key].needed != "no"

    def _need(self, history: History, position: int) -> Need:
        key = key_of(history, history.events[position])
        return self.found.setdefault(key, Need(key[2]))

    def _answer(self, judge: Judge, need: Need) -> None:
        read: list[Copied] = []
        unread: list[Copied] = []
        need.looked = judge.arrays.look_at(need.executions)
        for one in need.executions:
            need.bytes += nbytes(one.copy)
            need.relaid |= not same_layout(one.source, one.copy)
            if need.needed == "yes":
                continue
            answer = judge.unread(one)
            need.bound |= bool(answer) or judge.bound(one)
            (read if answer is None else unread).append(one)
            if answer is None:
                need.add(judge.reason(one))
                need.replaces |= judge.writes.is_written(one)
                # Of a line that ran less often nothing is said where values choose.
                need.chosen = need.chosen or (
                    judge.index.often
                    and judge.values.chosen_by(one, judge.index.event(one)) != UNKNOWN
                )
        need.unread = len(unread)
        self._conclude(judge, need, read, unread)

    def _conclude(self, judge: Judge, need: Need, read: list[Copied], unread: list[Copied]) -> None:
        """Ask of copies that nothing read as well, where others of the line were read.

        One that another took the place of would have been read in its stead.
        """
        for one in unread if read else ():
            need.add(judge.reason(one))
        if need.needed == "no" and read:
            values = judge.values
            need.add(values.of_list(read[0]))
            need.add(values.coincidence(read[0]) if need.count == 1 else values.of_one(read[0]))
            need.single = values.is_single(read[0])
            need.lingers = any(map(judge.writes.lingers, read))
        if need.needed == "no":
            for one in read:
                need.rests_on |= judge.rests_on(one)
            for one in read:
                judge.index.leave_out(one)


def _was_passed_over(event: Event) -> bool:
    """Whether a call made of a list what is too small to be compared with what became one."""
    small = all(nbytes(one) < LEAST_OF_A_LIST for one in event.results)
    return small and not event.reads and operation(event.operation).enters
