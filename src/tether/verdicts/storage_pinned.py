"""`storage-pinned`: a small view keeps a large storage alive, or writes it into a file."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from tether.analysis.already_there import nbytes as bytes_of
from tether.analysis.cut_off import FACTOR, LARGE, CutOff, CutsOff, bytes_shown, view_of
from tether.analysis.fillings import growth_of, put_at
from tether.analysis.graph import graph_of
from tether.analysis.history import History
from tether.analysis.holding import Holding
from tether.analysis.idle import LEAST_BYTES, LEAST_RUNS, Idle, IdleMemory
from tether.analysis.shared_memory import Sharing, container
from tether.analysis.surroundings import Surroundings, at_line
from tether.analysis.totals import UnusedTotals
from tether.analysis.wording import listed
from tether.facts import CACHE, UNKNOWN, ArrayKept, Event, Operand, Site, SiteId
from tether.finding import At, Bytes, Claim, Code, Repair, Segment, Sentence, Step, say
from tether.source.names import root_of, steps_in
from tether.verdicts.base import Example, Expected, Verdict

PAGE = """
# storage-pinned

## What it says
A small view is all that is left of a large storage, which stays in memory for it; or a small view
was given to `torch.save`, which writes the whole storage behind it. So it is with NumPy arrays that
show a part of what `numpy()` gave, and with objects that only the caches of functions
(`functools.lru_cache`) still have, as keys. A note tells of memory that a
line makes run after run, that a container, a closure or an exception's traceback keeps, and that
nothing uses again; and of memory of which a line took a small view, run after run, that is kept
while no call uses more of it.

## Why it matters
Ten rows of a table hold the table; a file of a few hundred bytes becomes a file of megabytes.

## Known problems
Only storages of at least 64 KiB, of which the view shows at most an eighth, are reported; from 4
KiB on where a container or an object keeps the view. Less than 1 MiB in all is a note, unless it
was saved to a file. Of what is kept unused, at least eight runs and 1 MiB of a program that
finished, more than its line had had before. Which other holders a storage has outside Python is not
known. Of arrays only those are told of that hold all references to the memory, at the end or while
as many again were made.

## Example
```python
torch.save(table[:10], "rows.pt")    # writes the whole table
```

## Use instead
```python
torch.save(table[:10].clone(), "rows.pt")
```

## Fix safety
A clone has the same values and other memory: never applied by itself.
"""

SMALL = 4 << 10
"""Bytes of a storage that is told of, as a note, where a container or an object keeps the view."""

LEAST_ENTRIES = 3
"""Objects that a cache keeps alone: fewer are what the last calls have left."""

MOST_RUNS = 64
"""Runs of a line, the last ones, whose graphs are looked into for what they keep."""


def check(history: History) -> Iterator[Claim]:
    """Give views written by `torch.save` with more than themselves, and those that pin memory."""
    for claim in _all(history):
        yield replace(claim, story=(*claim.story, *_way(history, claim)))


def _way(history: History, claim: Claim) -> Iterator[Step]:
    """Yield the lines by which what is kept came of the memory, and the one that puts it away."""
    tensor = claim.tensors[-1]
    told = {one.site for one in claim.story}
    for link in history.get(Sharing).chain(tensor):
        event = history.events[link.at]
        if event.site not in told:
            told.add(event.site)
            yield Step("shared", event.site, say("{code} is a view of it", code=Code(event.site)))
    put = put_at(history, tensor)
    if put is not None and all(step.role != "grows" for step in claim.story):
        yield Step("grows", put, say("kept in a container from here on"))


def _all(history: History) -> Iterator[Claim]:
    told: set[int] = set()
    for at, _ in history.events.where("save".__eq__):
        for claim in _saved(history, at):
            told.update(claim.tensors)
            yield claim
    yield from _by_arrays(history)
    for claim in _by_caches(history):
        told.update(claim.tensors)
        yield claim
    for claim in (*_pinning(history, told), *_unused(history, told)):
        told.update(claim.tensors)
        yield claim
    for kept in history.get(CutsOff).by_line.values():
        if told.isdisjoint(one.tensor for cut in kept for one in cut.views):
            yield _kept_of_each(history, kept)


# -- by arrays -----------------------------------------------------------------------------------


def _by_arrays(history: History) -> Iterator[Claim]:
    """Find memory of which NumPy arrays that show little of it are all that is left."""
    lines: dict[int, list[ArrayKept]] = defaultdict(list)
    for fact in history.trace.arrays_kept:
        at = history.position(fact.event)
        if at >= 0 and (fact.until > fact.since or _at_the_end(history, fact)):
            lines[history.events[at].site].append(fact)
    for found in lines.values():
        if len(found) >= LEAST_RUNS or any(_at_the_end(history, one) for one in found):
            yield _arrays(history, found)


def _at_the_end(history: History, fact: ArrayKept) -> bool:
    """Whether an array was there at the end, after further calls."""
    ended = history.trace.ended
    return history.whole and fact.until == ended > fact.event + 1


def _arrays(history: History, found: list[ArrayKept]) -> Claim:
    """Say what the arrays of one line keep, and which line puts them into their container."""
    exports = [history.events[history.position(one.event)] for one in found]
    event, names = exports[0], [one.name for one in found]
    tensors = tuple(int(one.reads[0].tensor) for one in exports if one.reads)
    name = (container(names) if len(names) > 1 else "") or names[0]
    nbytes = sum(one.nbytes for one in found)
    return Claim(
        tensors=tensors,
        cause=("arrays", event.site),
        site=event.site,
        operation=event.operation,
        severity=None if nbytes >= LEAST_BYTES else "note",
        subject=name,
        message=say(
            _ARRAYS if len(found) > 1 else _ARRAY,
            name=name, shown=Bytes(sum(one.shown for one in found)), size=Bytes(nbytes),
            code=Code(event.site), n=len(found), line=At(event.site),
        ),
        story=(
            Step("made", event.site, say("the array made here has the whole memory of the tensor")),
            *_taking(history, name, tensors),
        ),
        repair=Repair(say("Keep a copy of the part that is used: .copy() of it.")),
        count=len(found),
        bytes=nbytes,
    )  # fmt: skip


_ARRAY = (
    "`{name}` is an array that shows {shown} of the memory of a tensor, {size}, that {code}"
    " ({line}) gave out, and nothing else is left of it."
)
_ARRAYS = (
    "`{name}` has arrays that show {shown} of the memory of {n} tensors, {size}, that {code}"
    " ({line}) gave out, and nothing else is left of them."
)


def _taking(history: History, name: str, tensors: Iterable[int]) -> Iterator[Step]:
    """Yield the line that puts an array into its container."""
    grows = growth_of(history, name, tensors) if "[" not in name else None
    if grows is not None:
        yield Step("grows", grows, say("`{name}` takes it here", name=name))


def _by_caches(history: History) -> Iterator[Claim]:
    """Find what the cache of a function keeps though no call can find it again."""
    for fact in history.trace.cache_kept:
        if fact.entries < LEAST_ENTRIES or fact.nbytes < LARGE:
            continue
        site = history.site(fact.site)
        inside = next((one for one in history.trace.sites if _of_function(one, site)), site)
        but, others = _other_caches(history, fact.also)
        yield Claim(
            tensors=fact.tensors,
            cause=("cache", fact.site),
            site=fact.site,
            operation="",
            severity=None if fact.nbytes >= LEAST_BYTES else "note",
            subject=fact.name,
            message=say(
                "The cache of `{name}` ({line}) keeps {n} objects that it was called with, and"
                " {size} of tensors with them: nothing else"
                + (f" but the cache of {but} has any of" if but else " has")
                + " them, so no call can find what was cached for them.",
                name=fact.name, line=At(fact.site), n=fact.entries, size=Bytes(fact.nbytes),
                **others,
            ),
            story=(
                *(
                    Step("kept", one, say("the cache of this function keeps what it is given"))
                    for one in (fact.site, *fact.also)
                ),
                *history.get(Surroundings).calls(inside),
            ),
            repair=Repair(say("Keep the value on the object itself (functools.cached_property), or"
                              " let the cache be asked by plain values; "
                              + ("cache_clear() of each" if but else "{name}.cache_clear()")
                              + " lets all go.", name=fact.name)),
            count=fact.entries,
            bytes=fact.nbytes,
        )  # fmt: skip


def _other_caches(history: History, also: Sequence[SiteId]) -> tuple[str, dict[str, Any]]:
    """Return the functions of some definitions as a piece of a sentence, and its parts."""
    names = {f"other{at}": history.site(one).function for at, one in enumerate(also)}
    lines = {f"at{at}": At(one) for at, one in enumerate(also)}
    said = [f"`{{other{at}}}` ({{at{at}}})" for at in range(len(also))]
    return listed(said) if said else "", {**names, **lines}


def _of_function(one: Site, definition: Site) -> bool:
    own = (one.file, one.function, one.first_line)
    return own == (definition.file, definition.function, definition.first_line)


def _kept_of_each(history: History, kept: list[CutOff]) -> Claim:
    """Say what the small views that a line took run after run keep alive: a note."""
    last = kept[-1]
    cut, made = history.events[last.cut], history.events[last.made]
    views = [one for each in kept for one in each.views]
    nbytes = sum(one.nbytes for one in kept)
    return Claim(
        tensors=tuple(one.tensor for one in views),
        cause=("cut off", cut.site),
        site=cut.site,
        operation=cut.operation,
        severity="note",
        message=say(
            "{code} ({line}) gives small views, of which {n} are kept at one time: they show"
            " {shown}, and {size} are kept of which no call uses more.",
            code=Code(cut.site), line=At(cut.site), n=len(views),
            shown=Bytes(sum(map(bytes_of, views))), size=Bytes(nbytes),
        ),
        story=(
            Step("made", made.site, say("the memory is made here, run after run")),
            Step("kept", cut.site, say("a small view of it is kept")),
        ),
        repair=_copied(history, cut, "the view"),
        count=len(kept),
        bytes=nbytes,
    )  # fmt: skip


class _LeftOver(NamedTuple):
    """What the runs of one line left, and the tensors that keep it."""

    idle: Idle
    tensors: list[int]


def _unused(history: History, told: set[int]) -> Iterator[Claim]:
    """Give memory that a container, a closure or an exception keeps, run after run: a note."""
    holders: dict[tuple[str, ...], list[_LeftOver]] = defaultdict(list)
    for names, left in _left_over(history, told):
        if names:
            holders[names].append(left)
        else:
            yield _left(history, (), [left])
    for names, some in holders.items():
        yield _left(history, names, some)


def _left_over(history: History, told: set[int]) -> Iterator[tuple[tuple[str, ...], _LeftOver]]:
    """Yield what the runs of lines left outside of graphs, and what it lies in."""
    saved = _saved_by_graphs(history)
    for idle in (one for one in history.get(IdleMemory).all if one.more and not one.graph):
        tensors = _results(history, idle.kept)  # none: what is no tensor holds it
        named = [one for one in tensors if history.names_of(one) and one not in told]
        names = _holders_of(history, named, tensors)
        apart = names or saved.isdisjoint(_memories(history, idle.kept))
        if tensors and apart and told.isdisjoint(tensors):
            yield names, _LeftOver(idle, named or tensors[-1:])


def _holders_of(history: History, named: list[int], tensors: list[int]) -> tuple[str, ...]:
    """Return what all named tensors lie in, or the two things that all tensors lie in; or none.

    What a loop's variable still leads to is called by that variable, and the rest by the container.
    """
    names = [history.name_of(one) for one in named]
    whole = container(names) if len(names) > 1 else ""
    if whole or not named or len(named) < len(tensors):
        return (whole,) if whole else ()
    parts: dict[str, list[str]] = defaultdict(list)
    for name in names:
        parts[root_of(name)].append(name)
    most, *others = sorted(parts, key=lambda root: len(parts[root]), reverse=True)
    return (container(parts[most]), others[0]) if len(others) == 1 else ()


def _left(history: History, names: tuple[str, ...], lefts: list[_LeftOver]) -> Claim:
    """Say what the runs of some lines left, and by which line it is kept."""
    first, name = lefts[0].idle, names[0] if names else ""
    event = history.events[first.kept[-1]]
    tensors = [tensor for one in lefts for tensor in one.tensors]
    steps = [step for one in lefts for step in _making(history, one.idle)]
    nbytes = sum(one.idle.nbytes for one in lefts)
    return Claim(
        tensors=tuple(tensors),
        cause=("unused", name or event.site),
        site=event.site,
        operation=event.operation,
        severity="note",
        subject=name,
        message=_keeps(history, names, [one.idle for one in lefts], nbytes),
        story=(*steps, *_keeping(history, name, tensors, history.site(first.site))),
        repair=Repair(say("Keep only what is used later: numbers made of it, its last values,"
                          " the text of an exception. A hook lives until it is removed, and a"
                          " cache finds nothing by a new tensor.")),
        count=max(len(one.idle.made) for one in lefts),
        bytes=nbytes,
    )  # fmt: skip


def _keeps(history: History, names: tuple[str, ...], idle: list[Idle], nbytes: int) -> Sentence:
    """Say who keeps how much, and which lines made it."""
    made = dict.fromkeys(history.events[one.made[-1]].site for one in idle)
    lines = {f"line{number}": At(site) for number, site in enumerate(made)}
    return say(
        "{who} {keeps} {size} alive that {lines} made and nothing uses again.",
        who=listed([f"`{one}`" for one in names]) if names else "Something",
        keeps="keeps" if len(names) < 2 else "keep",
        size=Bytes(nbytes),
        lines=say(listed([f"{{{one}}}" for one in lines]), **lines),
    )


def _making(history: History, idle: Idle) -> Iterator[Step]:
    """Yield the line that made memory, and the one that made what keeps it."""
    made, kept = history.events[idle.made[-1]].site, history.events[idle.kept[-1]].site
    yield Step("made", made, say("made here, run after run"))
    if kept != made:
        yield Step("kept", kept, say("{code} is what is kept", code=Code(kept)))


def _saved_by_graphs(history: History) -> set[int]:
    """Return the memories that graphs which nothing uses have saved: those are told of by them."""
    runs = [at for idle in history.get(IdleMemory).all if idle.graph
            for at in idle.made[-MOST_RUNS:]]  # fmt: skip
    runs += [at for total in history.get(UnusedTotals).all for at in total.terms]
    graphs = set(runs).union(*(graph_of(history, at) for at in runs))
    return {history.flow.memory(one) for at in graphs for one in history.events[at].reads}


def _results(history: History, calls: Iterable[int]) -> list[int]:
    return [int(one.tensor) for at in calls for one in history.events[at].results]


def _memories(history: History, calls: Iterable[int]) -> set[int]:
    return {history.flow.memory(one) for at in calls for one in history.events[at].results}


def _keeping(history: History, name: str, tensors: list[int], made: Site) -> Iterator[Step]:
    """Yield the lines by which a container came to hold tensors that a line had made."""
    grows = growth_of(history, name, tensors) if name else None
    if grows is not None:
        yield Step("grows", grows, say("`{name}` takes another one here", name=name))
    if CACHE in name:
        first = at_line(made, made.first_line)
        yield Step("kept", first, say("the cache of this function keeps it"))
    if tensors and "__closure__" in history.name_of(tensors[0]):
        for one in history.get(Holding).fillings.of(made.file, made.function, made.target):
            if one.how == "closure":
                yield Step("kept", one.site, say("a function holds `{x}`", x=made.target))


def _large(history: History, operand: Operand, shown: int, least: int = LARGE) -> int:
    """Return the bytes of the storage when it is large beside what is shown of it, else 0."""
    fact = history.trace.storages.get(operand.storage)
    if fact is None or fact.nbytes < least or shown * FACTOR > fact.nbytes:
        return 0
    return fact.nbytes


def _saved(history: History, at: int) -> Iterator[Claim]:
    """Find views that `torch.save` wrote with all that lies behind them."""
    saved = history.events[at].site
    for operands in _by_storage(history.events[at].reads).values():
        nbytes = _large(history, operands[0], sum(map(bytes_shown, operands)))
        cut = view_of(history, operands[0].tensor)
        if nbytes:
            yield _claim(
                history, [(operands, nbytes)], at if cut == UNKNOWN else cut,
                say("torch.save ({line}) writes the whole storage behind it", line=At(saved)),
                Step("saved", saved, say("torch.save writes all {all} bytes of it", all=nbytes)),
            )  # fmt: skip


def _by_storage(operands: Iterable[Operand]) -> dict[int, list[Operand]]:
    found: dict[int, list[Operand]] = defaultdict(list)
    for one in operands:
        found[one.storage].append(one)
    return found


def _pinning(history: History, told: set[int]) -> Iterator[Claim]:
    """Find storages alive at the end on which only small views are left."""
    groups: dict[int, list[tuple[list[Operand], int]]] = defaultdict(list)
    for operands in _by_storage(_alive(history)).values():
        named = [one for one in operands if history.names_of(one.tensor)]
        cut = view_of(history, named[0].tensor) if named else UNKNOWN
        if cut == UNKNOWN or not told.isdisjoint(one.tensor for one in operands):
            continue
        least = SMALL if _is_put_away(history, named) else LARGE
        shown = sum(map(bytes_shown, _holders(history, operands)))
        nbytes = _large(history, operands[0], shown, least)
        if nbytes and _is_left_alone(history, named[0]) and not _is_of_a_loop(history, named):
            groups[history.events[cut].site].append((named, nbytes))
    for found in groups.values():
        yield _pinned(history, found)


def _pinned(history: History, found: Sequence[tuple[list[Operand], int]]) -> Claim:
    """Say what keeps some storages of which little is shown: of less than 1 MiB a note."""
    said = say("nothing else is left of {them}", them="it" if len(found) == 1 else "them")
    claim = _claim(history, found, view_of(history, found[0][0][0].tensor), said)
    return replace(claim, severity="note") if (claim.bytes or 0) < LEAST_BYTES else claim


def _is_put_away(history: History, named: Sequence[Operand]) -> bool:
    """Whether some tensors are kept in a container or an object: no variable of the moment."""
    return all(
        len(steps_in(name)) > 1 for one in named for name in history.names_of(one.tensor)[:1]
    )


def _is_left_alone(history: History, named: Operand) -> bool:
    """Whether the program made a call after all that showed more of a memory had gone.

    What the last turn of a loop leaves, as the program ends, keeps nothing from anyone.
    """
    events = (history.events[at] for at in history.on_storage(named))
    seen = {
        one.tensor
        for event in events
        for one in (*event.reads, *event.results, *event.writes)
        if one.storage == named.storage
    }
    lives = (history.trace.tensors.get(one) for one in seen)
    return all(life is None or life.died < history.trace.ended for life in lives)


def _is_of_a_loop(history: History, named: Sequence[Operand]) -> bool:
    """Whether only variables of loops have some tensors: the last turn left them there."""
    site = history.site_of(history.events[view_of(history, named[0].tensor)])
    fillings = history.get(Holding).fillings
    names = [name.strip("`") for one in named for name in history.names_of(one.tensor)]
    return all(
        name.isidentifier()
        and {one.how for one in fillings.of(site.file, site.function, name)} == {"loop"}
        for name in names
    )


def _alive(history: History) -> Iterator[Operand]:
    """Yield the tensors alive at the end whose memory was seen."""
    for tensor in history.left:
        operand = history.operand_of(tensor)
        if operand is not None and operand.storage != UNKNOWN:
            yield operand


def _copied(history: History, cut: Event, name: str) -> Repair:
    """Say how to keep a part alone: of a call that gives several, the part that is kept."""
    line, code = At(cut.site), history.site_of(cut).expression or name
    if len(cut.results) > 1:
        return Repair(
            say(
                "Keep a copy of the part that is kept, of those which {code} ({line})"
                " gives: .clone() of it.",
                line=line,
                code=Segment(code, "code"),
            )
        )
    return Repair(
        say("Give it memory of its own at {line}: {code}.clone().", line=line, code=code), "clone"
    )


def _holders(history: History, operands: list[Operand]) -> list[Operand]:
    """Leave out the bases of named views: those live on by their views alone."""
    named = [one.tensor for one in operands if history.names_of(one.tensor)]
    sharing = history.get(Sharing)
    bases = {link.source for one in named for link in sharing.chain(one)}.difference(named)
    return [one for one in operands if one.tensor not in bases]


def _claim(
    history: History,
    found: Sequence[tuple[list[Operand], int]],
    made: int,
    why: Sentence,
    *further: Step,
) -> Claim:
    """Say what some views show of their storages, which a call at a line made them of."""
    operands = [one for named, _ in found for one in named]
    names = [history.name_of(one.tensor) for one in operands]
    subject = (container(names) if len(found) > 1 else "") or names[0]
    maker, nbytes = history.events[made], sum(each for _, each in found)
    shows = say(
        "`{name}` shows {shown} bytes of a storage of {bytes}"
        if len(found) == 1
        else "`{name}` shows {shown} bytes of {storages} storages of {bytes} together",
        name=subject,
        shown=sum(map(bytes_shown, operands)),
        storages=len(found),
        bytes=nbytes,
    )
    return Claim(
        tensors=tuple(one.tensor for one in operands),
        cause=(maker.site, *(one.site for one in further)),
        site=maker.site,
        operation=maker.operation,
        subject=subject,
        message=say("{shows} since {line}, and {why}.", shows=shows, line=At(maker.site), why=why),
        story=(Step("made", maker.site, shows), *further),
        repair=_copied(history, maker, subject),
        count=len(found),
        bytes=nbytes,
    )  # fmt: skip


VERDICT = Verdict(
    slug="storage-pinned",
    severity="warning",
    summary="a small view keeps a large storage alive, or is saved with all of it",
    page=PAGE,
    check=check,
    past="some",
    damage="leak",
    examples=(
        Example(
            "Ten rows saved with their table",
            """import io
import torch

table = torch.randn(20_000, 4)
rows = table[:10]
torch.save(rows, io.BytesIO())
""",
            (Expected("storage-pinned", "rows", 5),),
        ),
        Example(
            "A copy, and a view beside its base",
            """import io
import torch

table = torch.randn(20_000, 4)
rows = table[:10].clone()
window = table[:10]
torch.save(rows, io.BytesIO())
""",
        ),
    ),
)
