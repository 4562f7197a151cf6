"""One object in many places, as claims: part of `alias-write`.

Slots of one container filled at different times or by repetition, one module in several places, a
value that a cache keeps, an argument that a function wrote and gave back.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

from tether.analysis.history import History
from tether.analysis.sharing.holding import (
    HeldAct,
    Holding,
    first_word,
    in_one_container,
    may_train,
)
from tether.analysis.sharing.shared_memory import fills_anew
from tether.facts import UNKNOWN, Holder, Site
from tether.finding import At, CallOf, Claim, Code, Repair, Step, Tensor, Where, named, say
from tether.operations.table import operation
from tether.source.filling import Fill, mentions
from tether.source.names import common_place, container_of, steps_in
from tether.verdicts.alias_write.telling import second_name, written

_DIGITS = re.compile(r"\d+")


def many_places(history: History) -> Iterator[Claim]:
    """Yield the claims, one function for each law."""
    yield from _grown(history)
    yield from _grown_inside(history)
    yield from _multiplied(history)
    yield from _each_time(history)
    yield from _one_module(history)
    yield from _cached(history)
    yield from _returned(history)


def _grown(history: History) -> Iterator[Claim]:
    """Find a container that got the same object again after it had been written.

    Its places are those of one look: what moves from place to place, as in a list that is sorted
    or turned, is in one of them at a time.
    """
    holding = history.get(Holding)
    looks = _slots_seen(history)
    for act in holding.all:
        held = [one for one in act.others if one.kind == "slot"]
        if not held or act.read < 0:
            continue
        patterns = {_pattern(one.name) for one in held}
        later = [
            {name for name in names if _pattern(name) in patterns}
            for at, names in looks[act.tensor].items()
            if at > act.write
        ]
        most = max(map(len, later), default=0)
        if most > len(held) and not _asks_for_address(history, act.tensor, act.write):
            yield _several(history, act, held[0], most)


def _pattern(name: str) -> tuple[str, str]:
    """Return what is the same of all places of a container."""
    return first_word(name), _DIGITS.sub("#", name)


def _grown_inside(history: History) -> Iterator[Claim]:
    """Find attributes that differ in a number alone, as ``steps[3].hidden``, of one object.

    Some showed it before a write, and others were seen beside them later.
    """
    later: dict[int, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
    for one in history.trace.holders:
        if one.kind == "attribute" and _DIGITS.search(one.name):
            later[one.tensor][history.position(one.event)].add(one.name)
    for act in history.get(Holding).all:
        looks = later.get(act.tensor)
        if looks is not None and act.read >= 0 and not may_train(history, act.tensor):
            series = _series_seen(act, looks)
            container = common_place(series)
            holder = next((one for one in act.others if one.name in series), None)
            if container and holder is not None and not _works_with(history, holder):
                site = _filled_at(history, act, holder)
                yield _holds_one(history, act, container, len(series), site)


def _series_seen(act: HeldAct, looks: dict[int, set[str]]) -> list[str]:
    """Return the names that showed an object at a write, with the alike ones seen beside later."""
    known = {one.name for one in (*act.others, *([act.by] if act.by else ()))}
    later = (names for at, names in looks.items() if at > act.write)
    found = (_series(names & known, names - known) for names in later)
    return next((series for series in found if series), [])


def _works_with(history: History, holder: Holder) -> bool:
    """Whether methods of the objects that have a tensor use it: they share it, and keep no record.

    The class of an object is known where a search for names came by it.
    """
    attribute = steps_in(holder.name)[-1]
    owners = {one.owner for one in history.trace.names
              if one.tensor == holder.tensor and one.name.endswith(attribute)}  # fmt: skip
    own = f"self{attribute}"
    operand = history.operand_of(holder.tensor)
    for at in () if operand is None else history.on_storage(operand):
        site = history.site_of(history.events[at])
        of_class = site.function.rpartition(".")[0].rpartition(".")[2]
        if mentions(site.expression, own) and (of_class in owners or not owners):
            return True
    return False


def _series(before: set[str], new: set[str]) -> list[str]:
    """Return the names of before, and new ones, that differ in numbers alone; none: []."""
    patterns = {_DIGITS.sub("#", name) for name in before}
    found = sorted(name for name in new if _DIGITS.sub("#", name) in patterns)
    alike = {_DIGITS.sub("#", name) for name in found}
    return sorted(name for name in before if _DIGITS.sub("#", name) in alike) + found


def _multiplied(history: History) -> Iterator[Claim]:
    """Find one object in several places of a container, written through one of them."""
    holding = history.get(Holding)
    for act in holding.all:
        if act.by is None or act.read < 0 or may_train(history, act.tensor):
            continue
        holders = (*act.others, act.by)
        slots = in_one_container(holders)
        if len(slots) < 2:
            continue
        container = container_of(slots[0].name)
        looped = any(
            one.how == "loop" and mentions(one.site.expression, container)
            for one in holding.filled(act.by)
        )
        if (act.by in slots or looped) and not _asks_for_address(history, act.tensor, act.write):
            yield _several(history, act, slots[0], len(slots))


def _asks_for_address(history: History, tensor: int, write: int) -> bool:
    """Whether the function that writes has asked where the memory is: it tells places apart."""
    written, shown = history.site_of(history.events[write]), history.operand_of(tensor)
    for at in history.on_storage(shown) if shown is not None else ():
        site = history.site_of(history.events[at])
        asked = at < write and operation(history.events[at].operation).leaves == "address"
        if asked and site.scope == written.scope:
            return True
    return False


def _each_time(history: History) -> Iterator[Claim]:
    """Find one object that a line wrote and returned again and again, kept each time."""
    returned = _written_and_returned(history)
    for tensor, looks in _slots_seen(history).items():
        container, names = max(map(_fullest, looks.values()), key=lambda one: len(one[1]))
        if len(names) < 2 or not container or may_train(history, tensor):
            continue
        calls = returned.get(tensor, [])
        times = Counter(history.events[at].site for at in calls)
        sites = [site for site, number in times.items() if number >= len(names)]
        last = max(calls, default=UNKNOWN)
        reads = [at for at, _ in history.get(Holding).reads_of(tensor) if at > last]
        if sites and reads and not _asks_for_address(history, tensor, last):
            act = HeldAct(tensor, last, None, (), reads[0])
            site = _assigned_at(history, tensor, container)
            yield _holds_one(history, act, container, len(names), site or sites[-1])


def _fullest(places: Iterable[str]) -> tuple[str, list[str]]:
    """Return the container that most of some places are in, and these."""
    groups: dict[str, list[str]] = defaultdict(list)
    for name in places:
        groups[container_of(name)].append(name)
    return max(groups.items(), key=lambda one: len(one[1]))


def _assigned_at(history: History, tensor: int, container: str) -> Site | None:
    """Return the line that made a container with all that is in it."""
    for one in history.trace.holders:
        if one.tensor == tensor and one.kind == "slot" and container_of(one.name) == container:
            filled = history.get(Holding).filled(one)
            return filled[-1].site if filled and filled[-1].how == "assigned" else None
    return None


def _written_and_returned(history: History) -> dict[int, list[int]]:
    """Return tensor -> the calls that wrote and returned it."""
    found: dict[int, list[int]] = defaultdict(list)
    for at, event in history.events.having("writes", "results"):
        for tensor in {one.tensor for one in event.writes} & {one.tensor for one in event.results}:
            found[tensor].append(at)
    return found


def _slots_seen(history: History) -> dict[int, dict[int, set[str]]]:
    """Return tensor -> the places of containers that it was seen in, by when that was."""
    found: dict[int, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
    for fact in history.trace.holders:
        if fact.kind == "slot":
            found[fact.tensor][history.position(fact.event)].add(fact.name)
    for name in history.trace.names:
        if name.name.endswith("]") and not name.module:
            at = history.position(name.at)
            found[name.tensor][at if at >= 0 else len(history.events)].add(name.name)
    return found


def _several(history: History, act: HeldAct, holder: Holder, count: int) -> Claim:
    site = _filled_at(history, act, holder)
    return _holds_one(history, act, container_of(holder.name), count, site)


def _filled_at(history: History, act: HeldAct, holder: Holder) -> Where:
    """Return the line that put an object into a place, or else the one that writes it."""
    ways = ("stored", "assigned")
    filled = [one for one in history.get(Holding).filled(holder) if one.how in ways]
    return filled[-1].site if filled else history.events[act.write].site


def _holds_one(history: History, act: HeldAct, container: str, count: int, site: Where) -> Claim:
    event, read = history.events[act.write], history.events[act.read]
    steps = [written(history, act.write)]
    if site != event.site:
        steps.insert(0, Step("shared", site, say("the same tensor is put in each place")))
    steps.append(Step("read", read.site, say("read: every place holds what came last")))
    return Claim(
        tensors=(act.tensor,),
        cause=("one object", container),
        site=site,
        operation=event.operation,
        subject=container,
        message=say(
            "{name} holds one tensor in several places ({count} were seen): the write at {write}"
            " ({call}) shows in every place.",
            name=named(container), count=count, call=CallOf(act.write), write=At(event.site),
        ),
        story=tuple(steps),
        repair=Repair(say("Give each place a tensor of its own, or put a copy there: .clone().")),
        count=0,
    )  # fmt: skip


def _one_module(history: History) -> Iterator[Claim]:
    """Find a module in several places of one container, trained: a note, for it may be meant."""
    # Two modules that a program gave one parameter are tied on purpose.
    modules = {(int(one.tensor), one.name): one.holder for one in history.trace.names}
    for act in history.get(Holding).all:
        event = history.events[act.write]
        if event.operation != "step" or act.tensor not in history.held:
            continue
        places = [one for one in (*act.others, *([act.by] if act.by else ())) if "." in one.name]
        groups: dict[tuple[str, int], set[str]] = defaultdict(set)
        for one in places:
            module = modules.get((act.tensor, one.name), UNKNOWN)
            groups[_DIGITS.sub("#", one.name), module].add(one.name)
        for (pattern, _), names in groups.items():
            if "#" in pattern and len(names) > 1:
                container = pattern[: pattern.index("#")].rstrip(".[")
                holder = next(one for one in places if one.name in names)
                yield _shared_by_places(history, act, container, sorted(names), holder)


def _shared_by_places(
    history: History, act: HeldAct, container: str, names: list[str], holder: Holder
) -> Claim:
    event = history.events[act.write]
    made = history.made_at(act.tensor)
    site = history.events[made].site if made >= 0 else event.site
    story = [Step("shared", one.site, say("{name} is filled here", name=named(container)))
             for one in _filled_with(history, holder, container)]  # fmt: skip
    return Claim(
        tensors=(act.tensor,),
        cause=("module", container),
        site=site,
        operation="step",
        severity="note",
        subject=names[-1],
        also=tuple(names[:4]),
        message=say(
            "{container} has one module in several places ({count} were seen): they share their"
            " parameters, and {call} at {write} trains them as one.",
            container=named(container), count=len(names), call=CallOf(act.write),
            write=At(event.site),
        ),
        story=(*story, Step("written", event.site, say("trained as one"))),
        repair=Repair(say("If each place is to have its own weights, make a module for each.")),
    )  # fmt: skip


def _filled_with(history: History, holder: Holder, container: str) -> list[Fill]:
    """Return the last line that fills a container; of an attribute, the one line that fills it."""
    filled = history.get(Holding).filled(holder._replace(name=container))
    own = [one for one in filled if one.target == container]
    return own[-1:] or (filled if len(filled) == 1 and "." in container else [])


def _cached(history: History) -> Iterator[Claim]:
    """Find a value that a cache holds on to, changed by who was given it, and read again."""
    for act in history.get(Holding).all:
        event = history.events[act.write]
        if fills_anew(event) or act.by is None:
            continue
        read = _given_again(history, act)
        cache = next((one for one in act.others if one.kind == "cache"), None)
        if cache is None or read == UNKNOWN or _is_state(history, act, cache):
            continue
        yield Claim(
            tensors=(act.tensor,),
            cause=("cache", cache.name, event.site),
            site=event.site,
            operation=event.operation,
            message=say(
                "{x} is the tensor that the cache of `{name}` keeps: {call} at {line} changes it,"
                " and from then on the cache returns the changed values.",
                x=Tensor(act.tensor), line=At(event.site), name=cache.name, call=CallOf(act.write),
            ),
            story=(
                *second_name(history, act),
                written(history, act.write),
                Step("read", history.events[read].site, say("used again, as changed")),
            ),
            repair=Repair(say("Write into a copy: `{x!s}.clone()`, or return one from the"
                              " function.",
                          x=Tensor(act.tensor))),
            calls=(act.write,),
        )  # fmt: skip


def _is_state(history: History, act: HeldAct, cache: Holder) -> bool:
    """Whether an attribute that is made when it is first asked for began with one value."""
    made, last = history.made_at(act.tensor), steps_in(cache.name)[-1]
    lazy = any(steps_in(name)[-1] == last for name in history.names_of(act.tensor))
    if not lazy or made < 0 or not operation(history.events[made].operation).blank:
        return False
    operand, function = history.operand_of(act.tensor), _function(history, made)
    writes = () if operand is None else history.writes_to(operand)
    return all(_function(history, at) != function for at in writes)


def _function(history: History, at: int) -> str:
    return history.site_of(history.events[at]).function


def _given_again(history: History, act: HeldAct) -> int:
    """Return the first use of a tensor after a write that lies in another call of the function."""
    done = history.site_of(history.events[act.write])
    operand = history.operand_of(act.tensor)
    for at in () if operand is None else history.on_storage(operand):
        event = history.events[at]
        site = history.site_of(event)
        if at > act.write and (site.function != done.function or site.line <= done.line):
            return UNKNOWN if event.writes and fills_anew(event) else at
    return UNKNOWN


def _returned(history: History) -> Iterator[Claim]:
    """Find a function that wrote its argument and gave it back: both names are read."""
    holding = history.get(Holding)
    for act in holding.all:
        event = history.events[act.write]
        if fills_anew(event) or act.by is None or not _had_values(history, act):
            continue
        name = history.site_of(event).function.rpartition(".")[2]
        if name.endswith("_"):
            continue
        for other in act.others:
            if other.kind != "variable" or other.depth != 1 or other.tensor == UNKNOWN:
                continue
            pair = _read_by_both(history, act, other)
            if pair is not None:
                yield _reached_further(history, act, other, *pair)
                break


def _had_values(history: History, act: HeldAct) -> bool:
    made = history.made_at(act.tensor)
    return made < 0 or not operation(history.events[made].operation).fresh


def _read_by_both(history: History, act: HeldAct, other: Holder) -> tuple[str, int] | None:
    """Return the name that the caller gave the result, and a read by the old one after the call."""
    target = history.site(other.site).target
    if not target or first_word(target) == first_word(other.name):
        return None
    old = _reads_naming(history, act, other, other.name)
    new = _reads_naming(history, act, other, target)
    return (target, old[0]) if old and new else None


def _reads_naming(history: History, act: HeldAct, other: Holder, name: str) -> list[int]:
    """Return the reads after a write whose lines, in the function of a place, have a name."""
    found, called = [], history.site(other.site).position
    for at, made in history.get(Holding).reads_of(act.tensor):
        site = history.site_of(history.events[at])
        there = site.function == other.function and site.position != called
        if min(at, made) > act.write and there and mentions(site.expression, name):
            found.append(at)
    return found


def _reached_further(
    history: History, act: HeldAct, other: Holder, target: str, read: int
) -> Claim:
    event, done = history.events[act.write], history.events[read]
    function = history.site_of(event).function.rpartition(".")[2]
    return Claim(
        tensors=(act.tensor,),
        cause=("returned", other.site, event.site),
        site=event.site,
        operation=event.operation,
        subject=other.name,
        message=say(
            "`{function}` writes into the tensor that it was given: {call} at {write} changed"
            " `{old}`, which {read} reads; `{new}` is the same tensor.",
            function=function, call=CallOf(act.write), write=At(event.site), old=other.name,
            read=At(done.site), new=target,
        ),
        story=(
            Step("shared", other.site, say("{code} is given `{old}` itself",
                 code=Code(other.site), old=other.name)),
            *second_name(history, act),
            written(history, act.write),
            Step("read", done.site, say("`{old}` is read, with what was written", old=other.name)),
        ),
        repair=Repair(
            say("Use the call that makes a new tensor in `{function}`, or give it"
                " `{old}`.clone().", function=function, old=other.name)
        ),
        calls=(act.write,),
    )  # fmt: skip
