"""One thing that a program takes for several: part of `alias-write`.

Clients that are to train a copy each and have one model, whose parameters are averaged with
themselves; as many optimizers of one set of parameters as there are clients. Draws of a network's
weights that are all written into the one network before it computes. What was put into one list
before a write, and into another one after it.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise, permutations
from typing import NamedTuple

import numpy as np

from tether.analysis.copies.perhaps_again import joined, twice
from tether.analysis.history import History
from tether.analysis.sharing.holding import Holding
from tether.analysis.sharing.shared_memory import Sharing, Touch, fills_anew
from tether.analysis.surroundings import WaysThere
from tether.analysis.timelines import of_events
from tether.facts import OUT, UNKNOWN, Event, Operand, Site, SiteId
from tether.finding import At, CallOf, Claim, Code, Repair, Step, Tensor, named, say
from tether.operations.table import ALL, operation
from tether.regions import overlaps
from tether.source.filling import Fill
from tether.source.syntax import expression
from tether.store.numbers import Numbers, concatenated_ranges
from tether.verdicts.alias_write.telling import written

_MOST_BEHIND = 64
"""Calls behind a result that are looked through for the parameters that they read."""

_MOST_CALLS = 8
"""Calls that join the same tensors, of which each two are looked at."""

Comprehension = (ast.ListComp, ast.GeneratorExp)


def taken_for_several(history: History) -> Iterator[Claim]:
    """Yield the claims, one function for each law."""
    yield from _joined(history)
    if _are_written_over(history):
        yield from _last_of_many(history)
    yield from _before_and_after(history)
    yield from _in_turn(history)


# -- joined with itself --------------------------------------------------------------------------


def _joined(history: History) -> Iterator[Claim]:
    """Find a line that joins what a loop over several things gives, and that is one memory.

    It was written while the things were there: else they may well be equal.
    """
    told: set[int] = set()
    for at, event in history.events.at(joins_of_one(history)):
        if event.site in told or event.raised:
            continue
        memory = history.flow.memory(event.reads[0])
        writes = [one.at for one in history.get(Sharing).writes.get(memory) if one.at < at]
        steps = [one for one in writes if history.events[one].operation == "step"]
        if len(steps) > 1 and over_several(history.site_of(event)):
            told.add(event.site)
            yield _joined_claim(history, at, steps[-1])


def joins_of_one(history: History) -> Numbers:
    """Return the calls that join several tensors, all of them the same elements."""
    events = history.events
    joins = events.called(lambda name: operation(name).joins == "new")
    calls = np.flatnonzero(joins & (events.column("reads") > 1))
    counts = events.column("reads")[calls]
    of, places = concatenated_ranges(events.starts[calls], counts)
    same = np.ones(len(calls), bool)
    for column in ("storage", "offset", "shape", "strides"):  # the memory and what is shown of it
        numbers = events.operands.column(column)[events.rows[places]]
        first = numbers[np.cumsum(counts) - counts]
        same[of[numbers != first[of]]] = False
    found: Numbers = calls[same]
    return found


def over_several(site: Site) -> bool:
    """Whether what is joined is computed from the variable of a loop: of each thing another."""
    call = expression(site.expression)
    given = call.args[:1] if isinstance(call, ast.Call) else []
    for one in given:
        if isinstance(one, Comprehension):
            target = {n.id for n in ast.walk(one.generators[0].target) if isinstance(n, ast.Name)}
            return any(isinstance(n, ast.Name) and n.id in target for n in ast.walk(one.elt))
    return False


def _joined_claim(history: History, at: int, write: int) -> Claim:
    event, done = history.events[at], history.events[write]
    tensor = event.reads[0].tensor
    shown = (tensor, *(link.source for link in history.get(Sharing).chain(tensor)))
    owner = next((one for one in reversed(shown) if history.names_of(one)), shown[-1])
    return Claim(
        tensors=(owner,),
        cause=("joined", event.site),
        site=event.site,
        operation=event.operation,
        message=say(
            "{call} at {line} joins {n} tensors that are all {x}: what it takes them from has one"
            " tensor, which {step} at {write} trains for all.",
            call=CallOf(at), line=At(event.site), n=len(event.reads), x=Tensor(owner),
            step=CallOf(write), write=At(done.site),
        ),
        story=(
            *put_at(history, owner),
            written(history, write),
            Step("read", event.site, say("{code} reads the same elements {n} times",
                 code=Code(event.site), n=len(event.reads))),
        ),
        repair=Repair(say("Give each its own: copy.deepcopy(...) of the model, or of the state that"
                          " is kept.")),
        calls=(at,),
    )  # fmt: skip


def put_at(history: History, tensor: int) -> Iterator[Step]:
    """Yield the line that put a tensor, or what it is in, into one of many places."""
    for one in history.trace.holders:
        if one.tensor == tensor and one.kind != "variable" and any(c.isdigit() for c in one.name):
            filled = history.get(Holding).filled(one)
            if filled:
                text = say("`{name}` is filled here", name=filled[-1].target)
                yield Step("shared", filled[-1].site, text)
                return


# -- the last of many ----------------------------------------------------------------------------


class _UnreadRun(NamedTuple):
    """Writes that each left nothing of what the one before wrote, which nothing had read."""

    last: int
    times: int


def _last_of_many(history: History) -> Iterator[Claim]:
    """Find a line that joins as many results of one parameter as were written over each other.

    Each was computed from the last of them: the others were never read. Each read it for itself,
    and not through another of the results, as those of a chain of layers do.
    """
    runs, told = _UnreadRuns(history), set[SiteId]()
    for at, event in history.events.where(lambda name: bool(operation(name).joins)):
        if event.site in told or event.raised or len(event.reads) < 2:
            continue
        made = [history.made_at(one.tensor) for one in event.reads]
        if len({history.events[one].site for one in made if one >= 0}) > 1 or len(set(made)) < 2:
            continue
        for operand in runs.behind(made):
            run = runs.before(operand, min(made))
            if run is not None and run.times >= len(made):
                told.add(event.site)
                yield _last_of_many_claim(history, at, operand, run)
                break


def _are_written_over(history: History) -> bool:
    """Whether a line wrote a memory twice with other values that left nothing of the old ones."""
    events, storages = history.events, history.events.operands.column("storage")
    fills = events.called(lambda name: operation(name).overwrites)
    fills |= events.flagged(OUT)
    (at, rows), (read_at, read) = events.touched("writes"), events.touched("reads")
    at, rows = at[fills[at]], rows[fills[at]]
    written, given = of_events(at, storages[rows], read_at, storages[read])
    given.sort()
    own = np.searchsorted(given, written, "right") - np.searchsorted(given, written)
    brings = events.column("reads")[at] > own
    lines = np.stack([history.memories[rows], events.column("site")[at]], axis=1)[brings]
    return bool((np.unique(lines, axis=0, return_counts=True)[1] > 1).any())


class _UnreadRuns:
    """What results were computed from, and how often that had been written over unread."""

    def __init__(self, history: History) -> None:
        self._history = history

    def behind(self, made: list[int]) -> Iterator[Operand]:
        """Yield the parameters that were read for each of some calls' results, by calls apart."""
        if min(made) < 0:
            return
        first, *others = (self._reached(at) for at in made)
        for tensor, (operand, _) in first.items():
            found = [one[tensor] for one in (first, *others) if tensor in one]
            readers = set[int]().union(*(calls for _, calls in found))
            apart = len(readers) == sum(len(calls) for _, calls in found)
            if apart and [one for one, _ in found] == [operand] * len(made):
                yield operand

    def _reached(self, at: int) -> dict[int, tuple[Operand, set[int]]]:
        """Return the parameters that are read by a call, or by those that its operands came of.

        Each with the calls that read it.
        """
        history, found = self._history, dict[int, tuple[Operand, set[int]]]()
        waiting, seen = [at], set[int]()
        while waiting and len(seen) < _MOST_BEHIND:
            call = waiting.pop(0)
            if call in seen or call < 0:
                continue
            seen.add(call)
            for one in history.events[call].reads:
                if history.is_parameter(one.tensor):
                    found.setdefault(one.tensor, (one, set()))[1].add(call)
                else:
                    waiting.append(history.made_at(one.tensor))
        return found

    def before(self, shown: Operand, until: int) -> _UnreadRun | None:
        """Return the writes to a parameter right before a call, up to the last one read before."""
        history = self._history
        found, memory = history.get(Sharing), history.flow.memory(shown)
        writes = [one for one in found.writes.get(memory) if one.at < until]
        last = writes[-1] if writes else None
        if last is None or not self._is_whole(last, shown):
            return None
        reads = (one for one in found.reads_of(memory) if one.at < last.at)
        since = max((one.at for one in reads if not self._by_its_shape(one)), default=-1)
        site = history.events[last.at].site
        times = sum(
            one.at > since and self._is_whole(one, shown) and history.events[one.at].site == site
            for one in writes
        )
        return _UnreadRun(last.at, times // self._modules(shown.tensor))

    def _modules(self, tensor: int) -> int:
        """Return how many modules have a parameter: one load of a state writes it for each."""
        names = self._history.facts_of_names(tensor)
        return len({one.holder for one in names if one.holder != UNKNOWN}) or 1

    def _is_whole(self, write: Touch, shown: Operand) -> bool:
        """Whether a write brought values, and left nothing of those that a parameter had.

        What draws them in place, or fills it with a number, begins a parameter, perhaps again.
        """
        same, event = write.operand[3:6] == shown[3:6], self._history.events[write.at]
        brings = any(one.storage != write.operand.storage for one in event.reads)
        return same and fills_anew(event) and brings

    def _by_its_shape(self, read: Touch) -> bool:
        """Whether a call asks for the shape alone of what it reads: `randn_like`."""
        return operation(self._history.events[read.at].operation).template == ALL


def _last_of_many_claim(history: History, at: int, shown: Operand, run: _UnreadRun) -> Claim:
    event, write = history.events[at], history.events[run.last]
    x = Tensor(shown.tensor)
    first = history.made_at(event.reads[0].tensor)
    return Claim(
        tensors=(shown.tensor,),
        cause=("last of many", event.site),
        site=event.site,
        operation=event.operation,
        message=say(
            "{call} at {line} joins {n} results that are all computed from {x} as it is then:"
            " {write} wrote it {times} times, each time over what nothing had read.",
            call=CallOf(at), line=At(event.site), n=len(event.reads), x=x, write=At(write.site),
            times=run.times,
        ),
        story=(
            *put_at(history, shown.tensor),
            written(history, run.last),
            Step("read", history.events[first].site, say("{x} is read, with what was written last",
                 x=x)),
            Step("joined", event.site, say("{n} results of the one tensor", n=len(event.reads))),
        ),
        repair=Repair(say("Give each its own: copy.deepcopy(...) of the module that was written, or"
                          " compute with it before it is written again.")),
        calls=(at,),
    )  # fmt: skip


# -- before a write, and after it ----------------------------------------------------------------


def _joins_again(history: History) -> Numbers:
    """Return the calls that join tensors, which another one was given as well: by sums of them."""
    events = history.events
    joins = events.called(lambda name: bool(operation(name).joins)) & (events.column("reads") > 1)
    calls = np.flatnonzero(joins)
    if not len(calls):
        return calls
    counts = events.column("reads")[calls]
    of, places = concatenated_ranges(events.starts[calls], counts)
    first = np.cumsum(counts) - counts
    tensors = events.operands.column("tensor")[events.rows[places]]
    sums = np.add.reduceat(joined(tensors, places - places[first][of]), first)
    found: Numbers = calls[twice(sums)]
    return found


def _before_and_after(history: History) -> Iterator[Claim]:
    """Find two lists of the same tensors, one filled before a write to each, the other after it."""
    known: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for at, event in history.events.at(_joins_again(history)):
        tensors = tuple(one.tensor for one in event.reads)
        if len(set(tensors)) > 1 and not event.raised:
            known[tensors].append(at)
    told = set[tuple[SiteId, SiteId]]()
    for calls in known.values():
        for one, other in permutations(calls[:_MOST_CALLS], 2):
            sites = history.events[one].site, history.events[other].site
            if sites[0] == sites[1] or sites in told:
                continue
            found = _filled_around(history, one, other)
            if found is not None:
                told.add(sites)
                yield _around_claim(history, one, other, found)


class _Around(NamedTuple):
    """Where a loop put a tensor into one list, wrote it, and put it into another one."""

    before: Fill
    write: int
    after: Fill


def _filled_around(history: History, one: int, other: int) -> _Around | None:
    """Return the lines of one function that fill two lists, with a write to what they hold."""
    fillings = history.get(Holding).fillings
    (a, first), (b, second) = (_joined_name(history, at) for at in (one, other))
    if not first or not second or first == second or a.file != b.file:
        return None
    for write in _writes_to_all(history, history.events[one]):
        above = history.get(WaysThere).above(write)
        for line in map(history.site, (history.events[write].site, *above)):
            stored = fillings.stored(*line.scope)
            before = [each for each in stored if each.target == first]
            after = [each for each in stored if each.target == second]
            if len(before) == len(after) == 1 and _is_between(line, before[0], after[0]):
                return _Around(before[0], write, after[0])
    return None


def _joined_name(history: History, at: int) -> tuple[Site, str]:
    """Return the name of the list that a call joins: what it is given first."""
    site = history.site_of(history.events[at])
    call = expression(site.expression)
    given = call.args[0] if isinstance(call, ast.Call) and call.args else None
    return site, ast.unparse(given) if isinstance(given, (ast.Name, ast.Attribute)) else ""


def _writes_to_all(history: History, event: Event) -> list[int]:
    """Return a write to the first of what a call joins, by each line that wrote all of them."""
    found, memory = history.get(Sharing), history.flow.memory
    lines: dict[SiteId, set[int]] = defaultdict(set)
    first: dict[SiteId, int] = {}
    for operand in event.reads:
        made = history.made_at(operand.tensor)
        if made < 0 or operation(history.events[made].operation).blank:
            continue  # it held nothing before
        for one in found.writes.get(memory(operand)):
            if one.at > made and overlaps(one.operand, operand):
                site = history.events[one.at].site
                lines[site].add(operand.tensor)
                first.setdefault(site, one.at)
    every = {one.tensor for one in event.reads}
    return [at for site, at in first.items() if lines[site] == every]


def _is_between(line: Site, before: Fill, after: Fill) -> bool:
    return before.site.line < line.line < after.site.line


def _around_claim(history: History, one: int, other: int, found: _Around) -> Claim:
    event, again, done = (history.events[at] for at in (one, other, found.write))
    old, new = found.before.target, found.after.target
    return Claim(
        tensors=tuple(each.tensor for each in event.reads),
        cause=("before and after", event.site, again.site),
        site=found.before.site,
        operation=event.operation,
        subject=old,
        also=(new,),
        message=say(
            "`{old}` and `{new}` hold the same {n} tensors: {write} writes each of them after"
            " {line} has put it into `{old}`, and before it is put into `{new}`. `{old}` does not"
            " keep what was there before.",
            old=old, new=new, n=len(event.reads), write=At(done.site), line=At(found.before.site),
        ),
        story=(
            Step("kept", found.before.site, say("the tensor itself is put into `{old}`", old=old)),
            written(history, found.write),
            Step("kept", found.after.site, say("the same one is put into `{new}`", new=new)),
            Step("read", event.site, say("`{old}` is read: the values of `{new}`", old=old,
                 new=new)),
        ),
        repair=Repair(say("Keep a copy in `{old}`: .clone(); or use the call that makes a new"
                          " tensor instead of writing.", old=old)),
    )  # fmt: skip


# -- stepped in turn -----------------------------------------------------------------------------


def _in_turn(history: History) -> Iterator[Claim]:
    """Find optimizers that one line made of the same parameters, and that step them in turn."""
    groups: dict[tuple[int, frozenset[int]], list[int]] = defaultdict(list)
    for number, fact in enumerate(history.trace.optimizers):
        groups[fact.site, frozenset(fact.tensors)].append(number)
    for (_, tensors), numbers in groups.items():
        steps = [one for one in history.steps if one.optimizer in numbers]
        order = [one.optimizer for one in steps]
        again = any(a != b and a in order[n + 2 :] for n, (a, b) in enumerate(pairwise(order)))
        if again and tensors:
            yield _in_turn_claim(history, numbers, sorted(tensors), steps[0].site)


def _in_turn_claim(history: History, numbers: list[int], tensors: list[int], step: int) -> Claim:
    made = history.trace.optimizers[numbers[0]]
    names = [history.name_of(one).strip("`") for one in tensors[:2]]
    return Claim(
        tensors=tuple(tensors),
        cause=("in turn", made.site),
        site=made.site,
        operation="step",
        severity="note",
        subject=names[0],
        message=say(
            "{line} made {n} optimizers of one and the same parameters, {name} and the others, and"
            " {step} steps with one after the other: each begins with what the one before left.",
            line=At(made.site), n=len(numbers), name=named(names[0]), step=At(step),
        ),
        story=(
            *put_at(history, tensors[0]),
            Step("made", made.site, say("an optimizer for each, of the same parameters")),
            Step("written", step, say("stepped by one after the other")),
        ),
        repair=Repair(say("If each is to train weights of its own, give each a copy of the model:"
                          " copy.deepcopy(model).")),
        count=0,
    )  # fmt: skip
