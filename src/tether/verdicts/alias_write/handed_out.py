"""Items that are changed as they are asked for: part of `alias-write`.

``dataset[i]`` asks for an item and means to change none. Where `__getitem__`, or a function that it
calls, writes into the tensor that the data set keeps and hands that out, the next one who asks for
the item gets it changed twice: a normalization, noise or new labels add up from epoch to epoch.

An array's items are changed by NumPy code: that they had other bytes each time is in the facts, and
the text says which statement below the asking method goes on from what was there.

Nothing is said of a count: it began blank, and nothing was ever put into it but by asking.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from tether.analysis.history import History
from tether.analysis.sharing.holding import first_word, written_text
from tether.analysis.sharing.odd_writes import goes_on
from tether.analysis.sharing.rewritten import RewrittenArray, RewrittenArrays
from tether.analysis.sharing.shared_memory import Sharing
from tether.analysis.surroundings import Surroundings
from tether.facts import UNKNOWN, Event, Site, SiteId
from tether.finding import At, CallOf, Claim, Code, Repair, Step, Tensor, named, say
from tether.operations.table import operation
from tether.source.array_writes import goes_on_from, written_below
from tether.verdicts.alias_write.telling import written

ASKING = frozenset({"__getitem__", "__getitems__"})
"""Methods that ask for an item by its index: not for the next state of an iterator."""


class _HandedItem(NamedTuple):
    """An item that a line wrote."""

    memory: int
    offset: int
    shape: tuple[int, ...]


def handed_out(history: History) -> Iterator[Claim]:
    """Yield one claim for each line that writes an item again, from what it made of it before."""
    asked: dict[SiteId, str] = {}
    for site, items in _written_items(history, asked).items():
        counts = {one: _counts(history, one) for one in {item.memory for item in items}}
        again = [one for item, one in items.items() if len(one) > 1 and not counts[item.memory]]
        if again and _read_by_others(history, again[0][0]):
            yield _claim(history, asked[site], again)
    yield from _of_arrays(history)


def _of_arrays(history: History) -> Iterator[Claim]:
    """Yield one claim for each method that is asked for items of an array, and changes them."""
    told = set[str]()
    for one in history.get(RewrittenArrays).all:
        site = history.site_of(history.events[one.read])
        function = _asked_by(history, site)
        same = history.events[one.before].site == history.events[one.read].site
        if not function or function in told or one.times < 2 or not (same and one.part_of):
            continue
        sources = history.trace.sources
        writes = written_below(sources, (function.rpartition(".")[2],), one.perhaps)
        source = history.get(Surroundings).source
        if writes and all(goes_on_from(source(each.file), each) for each in writes):
            told.add(function)
            yield _claim_on_array(history, function, one, writes)


def _written_items(
    history: History, asked: dict[SiteId, str]
) -> dict[SiteId, dict[_HandedItem, list[int]]]:
    """Return the writes to kept items, by line; `asked` is given the method that asks for them."""
    lines: dict[SiteId, dict[_HandedItem, list[int]]] = defaultdict(lambda: defaultdict(list))
    events = history.events
    sites = events.column("site")
    writes = np.flatnonzero(events.column("writes") > 0)
    _, first = np.unique(sites[writes], return_index=True)
    for site in sites[writes[np.sort(first)]].tolist():
        if site not in asked:
            asked[site] = _asked_by(history, history.site(site))
    of_these = writes[np.isin(sites[writes], [site for site, name in asked.items() if name])]
    for at, event in events.at(of_these):
        if goes_on(history, at, event) and _is_kept(history, event):
            one = event.writes[0]
            item = _HandedItem(history.flow.memory(one), one.offset, one.shape)
            lines[event.site][item].append(at)
    return lines


def _asked_by(history: History, site: Site) -> str:
    """Return the method that a line belongs to, or was reached from, which asks for an item."""
    around = (site, *history.get(Surroundings).callers(site)) if site.user else ()
    found = (one.function for one in around)
    return next((one for one in found if one.rpartition(".")[2] in ASKING), "")


def _is_kept(history: History, event: Event) -> bool:
    """Whether a write goes through a variable into memory that another function had made."""
    site, one = history.site_of(event), event.writes[0]
    if first_word(written_text(site, event)) in ("", "self"):
        return False
    made = history.made_at(history.get(Sharing).owner(one.tensor))
    if made < 0:
        return False
    maker = history.events[made]
    return operation(maker.operation).enters or not _asked_by(history, history.site_of(maker))


def _counts(history: History, memory: int) -> bool:
    """Whether a memory counts how often it was asked for: it was made blank, and is no data.

    Every write to it comes from where an item is asked for, and reads nothing else.
    """
    events = [history.events[at] for at in history.on_memory(memory)]
    made = next((one for one in events if one.results), None)
    if made is None or not operation(made.operation).blank:
        return False
    return all(
        len({one.tensor for one in event.reads}) == 1
        and _asked_by(history, history.site_of(event)) != ""
        for event in events
        if event.writes
    )


def _read_by_others(history: History, write: int) -> bool:
    """Whether another function reads the very tensor that was written, or a view of it."""
    event = history.events[write]
    one, function = event.writes[0], history.site_of(event).function
    chain = history.get(Sharing).chain
    for at in history.on_memory(history.flow.memory(one)):
        done = history.events[at]
        if at <= write or done.writes or history.site_of(done).function == function:
            continue
        shown = {int(read.tensor) for read in done.reads}
        shown |= {int(link.source) for read in done.reads for link in chain(read.tensor)}
        if one.tensor in shown:
            return True
    return False


def _claim_on_array(
    history: History, function: str, found: RewrittenArray, writes: list[Site]
) -> Claim:
    event = history.events[found.read]
    return Claim(
        tensors=tuple(one.tensor for one in event.results[:1]),
        cause=("handed out", function),
        site=writes[0],
        operation=event.operation,
        subject=found.part_of,
        message=say(
            "`{function}` changes what it is asked for: {line} writes into {x}, which is kept, and"
            " {read} hands that out. {n} times an item came with other bytes than the time before.",
            function=function, line=At(writes[0]), x=named(found.part_of), read=At(event.site),
            n=found.times,
        ),
        story=(
            *(Step("written", one, say("NumPy code goes on from what is there")) for one in writes),
            Step("read", event.site, say("{code} is given the item, with other bytes than before",
                 code=Code(event.site))),
        ),
        repair=Repair(say("Write into a copy: take .copy() of what is kept, or compute a new"
                          " array.")),
        count=found.times,
    )  # fmt: skip


def _claim(history: History, function: str, again: list[list[int]]) -> Claim:
    write = again[0][-1]
    event = history.events[write]
    owner = history.get(Sharing).owner(event.writes[0].tensor)
    made = history.made_at(owner)
    story = [written(history, write)]
    if made != UNKNOWN:
        made_at = history.events[made].site
        story.insert(0, Step("shared", made_at, say("what is kept is made here")))
    return Claim(
        tensors=(owner,),
        cause=("handed out", function),
        site=event.site,
        operation=event.operation,
        message=say(
            "`{function}` changes what it is asked for: {call} at {line} writes into {x}, which is"
            " kept, and hands that out. It wrote {n} items more than once, each time from what the"
            " time before had left.",
            function=function, call=CallOf(write), line=At(event.site), x=Tensor(owner),
            n=len(again),
        ),
        story=tuple(story),
        repair=Repair(say("Write into a copy: take .clone() of what is kept, or use the call that"
                          " makes a new tensor.")),
        count=sum(len(times) - 1 for times in again),
        calls=(write,),
    )  # fmt: skip
