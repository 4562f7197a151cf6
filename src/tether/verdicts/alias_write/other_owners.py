"""Memory that somebody else owns or shows as well, as claims: part of `alias-write`.

Arrays, other processes, two optimizers, an optimizer's own state.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import combinations, permutations
from typing import NamedTuple

import numpy as np

from tether.analysis.history import History
from tether.analysis.sharing.acts import Act, Acts
from tether.analysis.sharing.holding import Holding, first_word
from tether.analysis.sharing.shared_memory import Sharing, fills_anew, same_place
from tether.analysis.surroundings import CALLED, WaysThere
from tether.facts import UNKNOWN, Event, Operand, SiteId
from tether.finding import At, CallOf, Claim, Code, Repair, Step, Tensor, Where, named, say
from tether.operations.table import operation
from tether.regions import overlaps
from tether.source.names import container_of, steps_in
from tether.store.numbers import Numbers
from tether.verdicts.alias_write.one_rate import one_rate
from tether.verdicts.alias_write.telling import written


def other_owners(history: History) -> Iterator[Claim]:
    """Yield the claims, one function for each law."""
    yield from _sent(history)
    yield from _not_its_own(history)
    yield from _arrays_taken_again(history)
    yield from _owned_twice(history)
    yield from _buffers_of_two(history)
    yield from _loaded_itself(history)
    yield from one_rate(history)
    yield from stepped_twice(history)


def _sent(history: History) -> Iterator[Claim]:
    """Find memory that was handed to another process, and written afterwards: a note."""
    for act in history.get(Acts).all:
        if act.place.array == UNKNOWN or not _was_sent(history, act):
            continue
        sent, write = history.events[act.place.array], history.events[act.write]
        yield Claim(
            tensors=(act.place.tensor,),
            cause=("sent", sent.site, write.site),
            site=sent.site,
            operation=sent.operation,
            severity="note",
            message=say(
                "{x} is sent to another process at {since}, which is given the memory itself."
                " {call} at {write} changes what that process reads, unless it was read before.",
                x=Tensor(act.place.tensor), since=At(sent.site), call=CallOf(act.write),
                write=At(write.site),
            ),
            story=(
                Step("shared", sent.site, say("the other process is given the memory itself")),
                written(history, act.write),
            ),
            repair=Repair(say("Send a copy: `{x!s}.clone()`, or wait until it was read.",
                          x=Tensor(act.place.tensor))),
            calls=(act.place.array,),
        )  # fmt: skip


def _was_sent(history: History, act: Act) -> bool:
    return operation(history.events[act.place.array].operation).leaves == "process"


def _not_its_own(history: History) -> Iterator[Claim]:
    """Find a write into an array's memory that the program goes on to hold as an array: a note."""
    for act in history.get(Holding).all:
        event, made = history.events[act.write], history.made_at(act.tensor)
        array = next((one for one in act.others if one.tensor == UNKNOWN), None)
        if array is None or made < 0 or fills_anew(event):
            continue
        root = next((link.at for link in history.get(Sharing).chain(act.tensor)[-1:]), made)
        source = root if operation(history.events[root].operation).enters else made
        if not operation(history.events[source].operation).enters:
            continue
        since = history.events[source].site
        yield Claim(
            tensors=(act.tensor,),
            cause=("array", since, event.site),
            site=since,
            operation=history.events[source].operation,
            severity="note",
            message=say(
                "{x} is the memory of the array `{array}` since {since}: {call} at {write} changes"
                " the array too.",
                x=Tensor(act.tensor), array=array.name, since=At(since), call=CallOf(act.write),
                write=At(event.site),
            ),
            story=(
                Step("shared", since, say("{code} copies nothing", code=Code(since))),
                written(history, act.write),
            ),
            repair=Repair(say("If the array is to stay as it is, copy it: torch.tensor(...).")),
            calls=(source,),
        )  # fmt: skip


def _arrays_taken_again(history: History) -> Iterator[Claim]:
    """Find arrays of one memory, kept together, with a write between the first and the next."""
    groups: dict[tuple[SiteId, int], list[Act]] = defaultdict(list)
    for act in history.get(Acts).all:
        if act.place.array != UNKNOWN and not _was_sent(history, act):
            site = history.events[act.place.array].site
            groups[site, history.flow.memory(act.place.shown)].append(act)
    for (site, _), acts in groups.items():
        takings = _takings(history, acts[0])
        for act in acts:
            if not _is_kept_beside(history, act, takings):
                continue
            write = history.events[act.write]
            yield Claim(
                tensors=(act.place.tensor,),
                cause=("arrays", site),
                site=site,
                operation="numpy",
                message=say(
                    "The arrays taken at {since} all show the memory of {x}: {call} at {write}"
                    " changed the earlier ones, which are still there.",
                    since=At(site), x=Tensor(act.place.tensor), call=CallOf(act.write),
                    write=At(write.site),
                ),
                story=(
                    Step("shared", site, say("the array shares the memory of {x}",
                         x=Tensor(act.place.tensor))),
                    written(history, act.write),
                ),
                repair=Repair(say("Take a copy each time: `{code!s}.copy()`.", code=Code(site))),
                count=len({one.place.array for one in acts}),
                calls=(act.place.array,),
            )  # fmt: skip
            break


class _ArrayTaken(NamedTuple):
    """A call by which a line took an array of a memory."""

    at: int
    shown: Operand
    last: int  # position of the first event without the array, as far as that is known


def _takings(history: History, act: Act) -> list[_ArrayTaken]:
    """Return all calls by which the line of an array took others of its memory, in order."""
    memory, line = history.flow.memory(act.place.shown), history.events[act.place.array][:2]
    last = {one.array: one.last for one in history.get(Acts).places[memory]}
    calls = ((at, history.events[at]) for at in history.on_memory(memory))
    return [
        _ArrayTaken(at, event.reads[0], last.get(at, at + 1))
        for at, event in calls
        if event[:2] == line and event.reads
    ]


def _is_kept_beside(history: History, act: Act, takings: Sequence[_ArrayTaken]) -> bool:
    """Whether an array that was written is there beside the next one that its line takes.

    What takes its place in a variable is there before it goes: so it is to be there when a third is
    taken, or at the end, or longer than the second. When an array goes between two calls is not
    known: of two that go together either may have been first.
    """
    first = bisect_right(takings, act.write, key=lambda one: one.at)
    later = (one for one in takings[first:] if same_place(act.place.shown, one.shown))
    second, third = next(later, None), next(later, None)
    if second is None or act.place.last <= second.at:
        return False
    gone = len(history.events) if third is None else third.at
    return act.place.last > min(gone, max(second.last, second.at + 1))


class _Module(NamedTuple):
    """A module that has a buffer: by which name, and its own parameters."""

    name: str
    parameters: frozenset[int]


def _buffers_of_two(history: History) -> Iterator[Claim]:
    """Find a buffer of two modules with weights of their own, which one writes and the other reads.

    One module in two places has its weights in both; two that are tied have them in common.
    """
    told = set[tuple[str, str]]()
    for tensor, modules in _modules_with(history).items():
        for one, other in permutations(modules, 2):
            roots = first_word(one.name), first_word(other.name)
            if not one.parameters.isdisjoint(other.parameters) or roots in told:
                continue
            found = _written_and_read(history, tensor, one, other)
            if found is not None:
                told |= {roots, roots[::-1]}
                yield _buffers_claim(history, tensor, (one.name, other.name), found)


def _modules_with(history: History) -> dict[int, list[_Module]]:
    """Return the buffers that several modules with parameters have, each with these modules."""
    parameters: dict[int, set[int]] = defaultdict(set)
    names: dict[int, dict[int, str]] = defaultdict(dict)
    for one in history.trace.names:
        fact = history.trace.tensors.get(one.tensor)
        if one.module and one.holder != UNKNOWN and fact is not None:
            if fact.is_parameter:
                parameters[one.holder].add(one.tensor)
            else:
                names[one.tensor].setdefault(one.holder, one.name)
    return {
        tensor: [_Module(name, frozenset(parameters[of])) for of, name in owners.items()]
        for tensor, owners in names.items()
        if len(owners) > 1 and all(parameters[of] for of in owners)
    }


def _written_and_read(
    history: History, tensor: int, one: _Module, other: _Module
) -> tuple[int, int] | None:
    """Return a write to a buffer along with a module's weights, and a use with the other's."""
    operand, write = history.operand_of(tensor), UNKNOWN
    for at in () if operand is None else history.on_storage(operand):
        event = history.events[at]
        read = {int(each.tensor) for each in event.reads}
        if tensor in read and not read.isdisjoint(one.parameters):
            write = at if any(each.tensor == tensor for each in event.writes) else write
        elif tensor in read and write != UNKNOWN and not read.isdisjoint(other.parameters):
            return write, at
    return None


def _buffers_claim(
    history: History, tensor: int, names: tuple[str, str], found: tuple[int, int]
) -> Claim:
    event, read = (history.events[at] for at in found)
    fillings = history.get(Holding).fillings
    last = steps_in(names[0])[-1].lstrip(".")
    stored = [*fillings.of_any("_buffers"), *fillings.of_any(last)]
    since: Where = stored[0].site if stored else event.site
    callers = history.get(WaysThere).callers(read.site, (found[1],))
    return Claim(
        tensors=(tensor,),
        cause=("buffers of two", *(first_word(one) for one in names)),
        site=since,
        operation=event.operation,
        subject=names[1],
        also=names,
        message=say(
            "`{one}` and `{other}` are one tensor, of two modules that have weights of their own:"
            " {call} at {write} writes it for the one, and {line} goes by it for the other.",
            one=names[0], other=names[1], call=CallOf(found[0]), write=At(event.site),
            line=At(read.site),
        ),
        story=(
            *(Step("shared", one.site, say("the tensor itself may be handed over here"))
              for one in stored[:1]),
            written(history, found[0]),
            *(Step("called", one, CALLED) for one in callers[:1]),
            Step("read", read.site, say("`{other}` is read, with what was written",
                 other=names[1])),
        ),
        repair=Repair(say("Copy the values: `{other}`.copy_(...), or load_state_dict() of the"
                          " other module.", other=names[1])),
        count=0,
    )  # fmt: skip


def _owned_twice(history: History) -> Iterator[Claim]:
    """Find state that two optimizers hold, written by the step of one and read for the other."""
    for act in history.get(Holding).all:
        event = history.events[act.write]
        states = [
            one for one in (*act.others, *([act.by] if act.by else [])) if one.kind == "state"
        ]
        owners = {container_of(container_of(container_of(one.name))) for one in states}
        if len(owners) < 2 or event.operation != "step":
            continue
        if act.read < 0 and not _stepped_by_both(history, act.tensor):
            continue
        made = history.made_at(act.tensor)
        since = history.events[made].site if made >= 0 else event.site
        yield Claim(
            tensors=(act.tensor,),
            cause=("owners", event.site, tuple(sorted(owners))),
            site=since,
            operation="load_state_dict",
            subject=sorted(owners)[-1],
            message=say(
                "{one} and {other} keep the same tensors as their state: {call} at {write} changes"
                " both.",
                one=named(sorted(owners)[0]), other=named(sorted(owners)[1]),
                call=CallOf(act.write), write=At(event.site),
            ),
            story=(
                Step("shared", since, say("state_dict() hands out the state itself, and"
                     " load_state_dict keeps what it is given")),
                written(history, act.write),
            ),
            repair=Repair(say("Load a copy: load_state_dict(copy.deepcopy(other.state_dict())).")),
        )  # fmt: skip


def _stepped_by_both(history: History, tensor: int) -> bool:
    others = {
        frozenset(one.tensor for one in event.writes if one.tensor in history.held)
        for _, event in history.events.where("step".__eq__)
        if any(one.tensor == tensor for one in event.writes)
    }
    return len([one for one in others if one]) > 1


def _loaded_itself(history: History) -> Iterator[Claim]:
    """Find a state that was kept, followed the steps of its optimizer, and was loaded again.

    An optimizer keeps the very tensors that it loads: its steps go on in who has that state.
    """
    handed: dict[int, int] = {}
    stepped: dict[int, int] = {}
    loaded: dict[int, int] = {}
    states = ("state_dict", "load_state_dict")
    called = history.events.called(lambda name: name == "step" or name in states)
    kept = np.logical_or.accumulate(history.events.called(states.__contains__))
    for at, event in history.events.at(np.flatnonzero(called & kept)):
        if event.operation == "step":
            stepped.update((one.tensor, at) for one in event.writes if one.tensor in handed)
            continue
        tensors = [one.tensor for one in event.results]
        tied = [one for one in tensors if one in stepped]
        if event.operation == "load_state_dict":
            if tied:
                one = tied[0]
                calls = handed[one], loaded.get(one, UNKNOWN), stepped[one], at
                yield _restores_nothing(history, one, calls)
            loaded.update(dict.fromkeys(tensors, at))
        for one in tensors:
            handed.setdefault(one, at)
            stepped.pop(one, None)


def _restores_nothing(history: History, tensor: int, calls: tuple[int, int, int, int]) -> Claim:
    """Say which steps went on changing a state.

    `calls`: where it was handed out, loaded at first (UNKNOWN: it was not), stepped, and loaded.
    """
    events, (kept, taken, write, load) = history.events, calls
    since, handed = events[kept].site, events[kept].operation == "state_dict"
    shared = [Step("shared", since, say("state_dict() hands out the state itself"))]
    first = say("The state taken at {since} is the optimizer's own", since=At(since))
    repair = say("Keep a copy: copy.deepcopy({code}).", code=Code(since))
    if taken >= 0:
        begins, since = shared if handed else [], events[taken].site
        shared = [Step("shared", since, say("load_state_dict keeps what it is given")), *begins]
        first = say(
            "The state loaded at {line} is the optimizer's own from then on", line=At(since)
        )
        repair = say("Load a copy at {line}: load_state_dict(copy.deepcopy(...)).", line=At(since))
    return Claim(
        tensors=(tensor,),
        cause=("loaded", since, events[load].site),
        site=since,
        operation=events[max(kept, taken)].operation,
        subject=history.site(since).target,
        message=say(
            "{first}: {call} at {write} went on changing it, and loading it at {load} restores"
            " nothing of it.",
            first=first, call=CallOf(write), write=At(events[write].site),
            load=At(events[load].site),
        ),
        story=(
            *shared,
            written(history, write),
            Step("read", events[load].site, say("loaded here")),
        ),
        repair=Repair(repair),
        calls=(taken if taken >= 0 else kept,),
    )  # fmt: skip


# -- stepped twice ---------------------------------------------------------------------------------
# One memory that an optimizer steps as two parameters: part of `alias-write`. A parameter that
# stands in two places is listed once. Two Parameter objects on one memory are two: each has a
# gradient, a state and a weight decay of its own, and each step writes the memory twice.


def stepped_twice(history: History) -> Iterator[Claim]:
    """Yield a note for each line that steps one memory as two parameters of one optimizer.

    `.data` may have tied them on purpose: plain SGD then adds up both gradients.
    """
    told: set[int] = set()
    for at, event in history.events.at(_on_one_memory(history)):
        if event.site not in told:
            pairs = list(_pairs(history, event))
            if pairs:
                told.add(event.site)
                yield _claim(history, at, pairs)


def _on_one_memory(history: History) -> Numbers:
    """Return the steps that wrote two tensors on one memory, in order."""
    at, rows = history.events.touched("writes")
    steps = history.events.called("step".__eq__)[at]
    at, memories = at[steps], history.memories[rows[steps]]
    tensors = history.events.operands.column("tensor")[rows[steps]]
    order = np.lexsort((tensors, memories, at))
    at, memories, tensors = at[order], memories[order], tensors[order]
    same = (at[1:] == at[:-1]) & (memories[1:] == memories[:-1]) & (tensors[1:] != tensors[:-1])
    return np.unique(at[1:][same])


def _pairs(history: History, step: Event) -> Iterator[tuple[Operand, Operand]]:
    """Yield the parameters with elements in common, the one that was there first before."""
    by_memory: dict[int, dict[int, Operand]] = defaultdict(dict)
    for one in step.writes:
        if one.tensor in history.had_gradient:
            by_memory[history.flow.memory(one)].setdefault(one.tensor, one)
    for found in by_memory.values():
        ordered = sorted(found.values(), key=lambda one: history.made_at(one.tensor))
        yield from (pair for pair in combinations(ordered, 2) if overlaps(*pair))


def _put_together(history: History, at: int, pair: tuple[Operand, Operand]) -> tuple[int, int, int]:
    """Return which of two parameters had the memory, which one was given it, and by which call.

    One may have been there before, with memory of its own, and been given the other's by `.data`.
    """
    first, second = (operand.tensor for operand in pair)
    for position in reversed(history.on_storage(pair[0])):
        event = history.events[position]
        rebound = (
            event.reads[0].tensor if event.reads and operation(event.operation).rebinds else -1
        )
        if position < at and rebound in (first, second):
            return (first, second, position) if rebound == second else (second, first, position)
    return first, second, history.made_at(second)


def _claim(history: History, at: int, pairs: list[tuple[Operand, Operand]]) -> Claim:
    step, (owner, given, made) = history.events[at], _put_together(history, at, pairs[0])
    since = step.site if made < 0 else history.events[made].site
    x, y = Tensor(owner), Tensor(given)
    anew = "makes another parameter of" if made == history.made_at(given) else "gives {y}"
    return Claim(
        tensors=(given, owner),
        cause=("stepped twice", step.site),
        site=since,
        operation=step.operation if made < 0 else history.events[made].operation,
        severity="note",
        message=say(
            "{x} and {y} are two parameters on one memory, from {since} on: {call} at {write}"
            " updates it twice, with the gradient, the state and the weight decay of each.",
            x=x, y=y, since=At(since), call=CallOf(at), write=At(step.site),
        ),
        story=(
            Step("shared", since, say("{code} " + anew + " the memory of {x}", code=Code(since),
                 x=x, y=y)),
            Step("written", step.site, say("written once for each")),
        ),
        repair=Repair(
            say("If they are to be one parameter, let both places hold the same object; if not,"
                " give {y} memory of its own: .clone().", y=y)
        ),
        count=len(pairs),
    )  # fmt: skip
