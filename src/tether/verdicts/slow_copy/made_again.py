"""The lines that make the same run after run, of nothing or of what nothing wrote.

Part of `slow-copy`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterator, Sequence
from itertools import pairwise

from tether.analysis.history import History
from tether.analysis.sharing.holding import Holding
from tether.facts import COMPARED, UNKNOWN, ArrayAgain, Operand
from tether.finding import At, Bytes, Claim, Repair, Step, Where, named, say
from tether.operations.table import operation
from tether.source.calls import copied_text
from tether.verdicts.slow_copy.again import Repeats, told, view
from tether.verdicts.slow_copy.on_device import LARGE, STEPS, Slow


def made_again(again: Repeats) -> Iterator[Slow]:
    """Give each function that makes the same anew, of nothing that changed.

    Not those of which only another such line makes something; and of several lines of one
    function the one that makes the most, and of these the last, stands for all.
    """
    history, events = again.history, again.lines.events
    made = {at: one for at in again.runs.looked if (one := _same(again, at)) is not None}
    lines = {events[at][:2] for at in made}
    found: dict[tuple[str, str], list[Slow]] = defaultdict(list)
    for at, one in made.items():
        if again.lines.needless(at):
            continue
        users = [events[user][:2] for user in again.lines.after(events[at].results[0].tensor, at)]
        if not users or any(user not in lines for user in users):
            site = history.site_of(events[at])
            found[site.scope].append(one)
    for some in found.values():
        total = sum(one.nbytes for one in some)
        yield max(some, key=lambda one: (one.nbytes, one.at))._replace(nbytes=total)


def _same(again: Repeats, first: int) -> Slow | None:
    """Return a line of which each run made the same of what had not changed since the last."""
    row, places = operation(again.lines.events[first].operation), again.runs.places[first]
    few = min(again.runs.looked[first], len(places)) < STEPS
    if few or row.random or row.blank or row.empty:
        return None
    inputs = [again.runs.made_of[at] for at in places[1:]]
    if again.runs.own(first) and all(one == () for one in inputs):
        return _of_nothing(again, first)
    known = again.judged(first) and all(_is_of_itself(again, at) for at in places[1:])
    return None if known else _of_the_same(again, places)


def _is_of_itself(again: Repeats, at: int) -> bool:
    """Whether a run was given what was there before, and nothing that was made for it."""
    inputs = again.runs.made_of[at] or ()
    return {one.storage for one in again.lines.events[at].reads} <= {one.storage for one in inputs}


def _of_the_same(again: Repeats, places: Sequence[int]) -> Slow | None:
    """Return a line of which each run was given what the one before was given, unwritten."""
    pairs = list(pairwise(places[1:]))
    if not all(_unchanged(again, *pair) for pair in pairs):
        return None
    if not any(_used_with_more(again, *pair) for pair in pairs):
        return None  # all is the same each time, as where a call is timed
    runs = f"runs that made {COMPARED:,} bytes and more"
    return told(again, places, [at for _, at in pairs], "what nothing wrote,", runs)


def _of_nothing(again: Repeats, first: int) -> Slow | None:
    """Return a line of which each run made the same of what it had made itself."""
    places, looked = again.runs.places[first], again.runs.looked[first]
    alike = len({again.runs.layouts.get(at) for at in places[1:]}) == 1
    if not (alike and all(_new(again, before, at) for before, at in pairwise(places))):
        return None
    found = told(again, places, places[1:], "")
    if found is None:
        return None
    name = again.lines.events[first].operation
    what = f"{name} makes it of nothing that was there before, and its bytes were"
    what += f" the same each of the {looked:,} times that they were compared, {found.nbytes:,}"
    what += f" bytes made again in {len(places):,} runs"
    fix = "Make it once and keep it: in a variable, a cache, or a buffer of the module."
    return found._replace(what=what, fix=fix, done="made")


def _new(again: Repeats, before: int, at: int) -> bool:
    """Whether a run gave new memory, neither an earlier run's nor what it was given.

    Nor an array's: who made that is another question.
    """
    events, memory = again.lines.events, again.history.flow.memory
    if again.history.trace.storages[events[at].results[0].storage].memory != UNKNOWN:
        return False
    shown = {memory(one) for one in (events[before].results[0], *events[at].reads)}
    return memory(events[at].results[0]) not in shown


def _unchanged(again: Repeats, before: int, at: int) -> bool:
    """Whether a run was given what the run before was given, and nothing wrote it in between."""
    inputs, earlier = again.runs.made_of[at], again.runs.made_of[before]
    if inputs is None or earlier is None or not _new(again, before, at):
        return False
    if again.runs.layouts[before] != again.runs.layouts[at]:
        return False
    if {view(again, one) for one in inputs} != {view(again, one) for one in earlier}:
        return False
    return all(again.unchanged(one, before, one, at) for one in inputs)


def _used_with_more(again: Repeats, before: int, at: int) -> bool:
    """Whether what a run made is used together with something new, or changed since the last."""
    earlier = {(one.tensor, one.version) for one in _beside(again, before)}
    return any(
        (one.tensor, one.version) not in earlier and not _repeats(again, one)
        for one in _beside(again, at)
    )


def _beside(again: Repeats, at: int) -> Iterator[Operand]:
    """Yield what the calls that used a run's result were given beside it."""
    made = again.lines.events[at].results[0]
    for user in again.history.on_storage(made):
        if user > at:
            reads = again.lines.events[user].reads
            yield from (one for one in reads if one.storage != made.storage)


def _repeats(again: Repeats, operand: Operand) -> bool:
    """Whether an operand was made by a line that makes the same each time."""
    made = again.history.made_at(operand.tensor)
    return made >= 0 and again.lines.events[made][:2] in again.runs.lines


# -- arrays again ----------------------------------------------------------------------------------
# The arrays of NumPy that are made anew with the same bytes each time: part of `slow-copy`.


FIX = (
    "Make it once and keep it, and take what is needed from that each time; astype(...,"
    " copy=False) copies only where the type is another."
)


def arrays_again(history: History, known: Container[object]) -> Iterator[Claim]:
    """Give each line of which the array behind what it has to do with is made again.

    Once for each array: it may be behind several. Not where that is known already, by sites.
    """
    told: set[object] = set()
    for fact in history.trace.arrays_again:
        at = history.position(fact.event)
        if at < 0 or fact.looked <= STEPS or fact.runs * fact.nbytes < LARGE:
            continue
        name = copied_text(
            history.events[at].operation, history.site_of(history.events[at]).expression
        )
        made = _assigned(history, at, name)
        if history.events[at].site not in known and made not in told:
            told |= {made} - {None}
            yield _claim(history, fact, at, name, made)


def _assigned(history: History, at: int, name: str) -> Where | None:
    """Return the one place of the text that gives a variable of a function its value."""
    site = history.site_of(history.events[at])
    if not name.isidentifier():
        return None
    fills = history.get(Holding).fillings.of(*site.scope, name)
    return fills[0].site if [one.how for one in fills] == ["assigned"] else None


def _claim(history: History, fact: ArrayAgain, at: int, name: str, made: Where | None) -> Claim:
    event = history.events[at]
    site: Where = event.site if made is None else made
    shown = (event.results or event.reads)[0]
    part = ", of which a part is taken," if fact.given < fact.nbytes else ""
    first = (
        []
        if made is None
        else [Step("made", made, say("it comes from here, in new memory each time"))]
    )
    used = "and {call} is given a part of it here" if part else "and {call} is given it here"
    return Claim(
        tensors=(shown.tensor,),
        cause=("array again", at),
        site=site,
        operation="" if made is not None else event.operation,
        message=say(
            "{name} ({line}) is made in a slow way: the array behind it{part} lies in new memory"
            " each time, and its {size} were the same each of the {looked} times that they were"
            " compared, {whole} in {runs} runs.",
            name=named(name), line=At(site), part=part, size=Bytes(fact.nbytes),
            looked=f"{fact.looked:,}", whole=Bytes(fact.nbytes * fact.runs), runs=f"{fact.runs:,}",
        ),
        story=(*first, Step("used", event.site, say(used, call=event.operation))),
        repair=Repair(say("{fix}", fix=FIX)),
        subject=name if name.isidentifier() else history.site_of(event).target or name,
        count=fact.runs,
        bytes=fact.runs * fact.nbytes,
    )  # fmt: skip
