"""Ties that a copy or a conversion leaves out: part of `tie-lost`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator
from itertools import combinations
from typing import NamedTuple

from tether.analysis.copies.other_processes import OtherProcesses
from tether.analysis.history import History
from tether.analysis.sharing.shared_memory import Sharing
from tether.facts import UNKNOWN, Operand
from tether.finding import At, CallOf, Claim, Code, Repair, Step, Tensor, say
from tether.operations.table import operation
from tether.source.names import steps_in

_MOST_STEPS = 8
"""Calls from a copied parameter back to the one that it is a copy of: data, clone, Parameter."""


def read_after(history: History, operand: Operand, since: int) -> bool:
    """Whether a call used the tensor after a moment."""
    readers = history.readers(operand, since)
    return any(history.events[at].operation not in ("step", "zero_grad") for at in readers)


# -- copied apart --------------------------------------------------------------------------------


class _SeparateCopy(NamedTuple):
    """A parameter that is a copy of another one."""

    tensor: int
    made: int
    names: tuple[str, ...]


def copied_apart(history: History) -> Iterator[Claim]:
    """Find two trained copies of one parameter in places that show one and the same elsewhere."""
    names: dict[int, list[str]] = defaultdict(list)
    for fact in history.trace.names:
        if fact.module:
            names[fact.tensor].append(fact.name)
    groups: dict[int, list[_SeparateCopy]] = defaultdict(list)
    for tensor in history.held:
        origin, made = _origin(history, tensor, names) if tensor in names else (UNKNOWN, UNKNOWN)
        if made != UNKNOWN:
            groups[origin].append(_SeparateCopy(tensor, made, tuple(names[tensor])))
    for origin, copies in groups.items():
        if origin in history.held:
            itself = _SeparateCopy(origin, UNKNOWN, tuple(names[origin]))
            copies.append(itself)
        for pair in combinations(sorted(copies, key=lambda one: one.made), 2):
            places = _same_places(pair, names[origin])
            if places and all(_used_after(history, one, pair[1].made) for one in pair):
                yield _copies(history, origin, pair, *places)


def _filled_from(history: History, tensor: int) -> tuple[int, int]:
    """Return what a tensor was filled from before it was trained, and the call; or -1, -1."""
    operand = history.operand_of(tensor)
    trained = min(history.steps_of(tensor), default=len(history.events))
    for at in () if operand is None else history.writes_to(operand):
        if at >= trained:
            break
        event = history.events[at]
        if operation(event.operation).copies and len(event.reads) > 1:
            return event.reads[1].tensor, at
    return UNKNOWN, UNKNOWN


def _used_after(history: History, copy: _SeparateCopy, since: int) -> bool:
    operand = history.operand_of(copy.tensor)
    return operand is not None and read_after(history, operand, since)


def _origin(history: History, tensor: int, names: Collection[int]) -> tuple[int, int]:
    """Return the named tensor that one is a copy of, and the call that copied it; or -1, -1."""
    source, copied = _filled_from(history, tensor)
    tensor = tensor if source == UNKNOWN else source
    if copied != UNKNOWN and tensor in names:
        return tensor, copied
    for made in _ways_back(history, tensor):
        event = history.events[made]
        copied = made if operation(event.operation).copies == "clone" else copied
        tensor = event.reads[0].tensor
        if copied != UNKNOWN and tensor in names:
            return tensor, copied
    return UNKNOWN, UNKNOWN


def _ways_back(history: History, tensor: int) -> Iterator[int]:
    """Yield the calls from a tensor back that copy it, detach it or wrap it as a Parameter."""
    for _ in range(_MOST_STEPS):
        made = history.made_at(tensor)
        event = history.events[made] if made >= 0 else None
        row = operation(event.operation) if event is not None and event.reads else None
        if event is None or row is None:
            return
        if row.copies != "clone" and not row.records and not row.wraps:
            return
        yield made
        tensor = event.reads[0].tensor


def _same_places(pair: tuple[_SeparateCopy, ...], names: list[str]) -> tuple[str, ...]:
    """Return the names of two copies, and the two of their origin that end alike; none: ().

    A name that both have had is of a variable that was given one model after the other.
    """
    known, had = set(names), set(pair[0].names).intersection(pair[1].names)
    first, second = ([name for name in one.names if name not in had] for one in pair)
    for one in first:
        for other in second:
            a, b = steps_in(one), steps_in(other)
            common = next((n for n, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), 0)
            ends = "".join(a[common:]), "".join(b[common:])
            for name in names if common else ():
                root = name.removesuffix(ends[0])
                elsewhere = name != one and name.endswith(ends[0])
                if elsewhere and f"{root}{ends[1]}" in known - {other}:
                    return one, other, name, f"{root}{ends[1]}"
    return ()


def _copies(
    history: History, origin: int, pair: tuple[_SeparateCopy, ...], one: str, other: str, *tied: str
) -> Claim:
    if pair[0].tensor == origin:
        return _copied_beside(history, pair[1], one, other, *tied)
    first, second = (history.events[each.made].site for each in pair)
    return Claim(
        tensors=(pair[1].tensor,),
        cause=("copied", second, origin),
        site=second,
        operation=history.events[pair[1].made].operation,
        subject=other,
        also=(one,),
        message=say(
            "`{a}` and `{b}` are one tensor; `{one}` and `{other}` are separate copies of it"
            " ({line}), which are trained apart.",
            a=tied[0], b=tied[1], one=one, other=other, line=At(second),
        ),
        story=(
            Step("made", first, say("`{one}` is copied here", one=one)),
            Step("parted", second, say("{code} copies the same tensor a second time",
                 code=Code(second))),
        ),
        repair=Repair(
            say("Copy both in one call, which keeps what they share: copy.deepcopy of the whole"
                " model; or tie them again: {other} = {one}.", one=one, other=other)
        ),
        count=0,
    )  # fmt: skip


def _copied_beside(
    history: History, copy: _SeparateCopy, one: str, other: str, *tied: str
) -> Claim:
    """Return a note on a copy that stands beside the tensor itself: it may be meant to be apart."""
    event = history.events[copy.made]
    return Claim(
        tensors=(copy.tensor,),
        cause=("copied beside", event.site),
        site=event.site,
        operation=event.operation,
        severity="note",
        subject=other,
        also=(one,),
        message=say(
            "`{a}` and `{b}` are one tensor, and so is `{one}`; `{other}` is a copy of it since"
            " {line}, and the two are trained apart.",
            a=tied[0], b=tied[1], one=one, other=other, line=At(event.site),
        ),
        story=(Step("parted", event.site, say("the values are copied, and not the tie")),),
        repair=Repair(say("If they are to stay one, assign the Parameter itself: {other} = {one}.",
                          one=one, other=other)),
        count=0,
        calls=(copy.made,),
    )  # fmt: skip


# -- windows left behind -------------------------------------------------------------------------


class _LeftWindow(NamedTuple):
    """A tensor that was a window of another one, and is none since a call."""

    tensor: int
    tied: int
    parted: int
    write: int
    written: int  # the tensor that is written since


def left_behind(history: History) -> Iterator[Claim]:
    """Find windows that got other memory, while what they were windows of is written and read."""
    groups: dict[int, list[_LeftWindow]] = defaultdict(list)
    moved = _moves(history)
    given = (history.events[moves[-1]].reads[1] for moves in moved.values())
    windowed = {history.flow.memory(one) for one in given}
    for tensor, moves in moved.items():
        left = _window_before(history, tensor, moves, windowed)
        if left is not None:
            groups[history.events[left.parted].site].append(left)
    for found in groups.values():
        yield _windows(history, found)


def _moves(history: History) -> dict[int, list[int]]:
    """Return tensor -> the calls that put other memory under it."""
    moves: dict[int, list[int]] = defaultdict(list)
    for at, event in history.events.where(lambda name: operation(name).replaces):
        if len(event.reads) > 1 and not event.raised:
            moves[event.reads[0].tensor].append(at)
    return moves


def _window_before(
    history: History, tensor: int, moves: list[int], windowed: set[int]
) -> _LeftWindow | None:
    """Return how a tensor ceased to be a window that a line of the user's had made of it.

    `windowed`: memories that tensors are windows of to the end.
    """
    events, memory = history.events, history.flow.memory
    if len(moves) < 2 or events[moves[-2]].inner != events[moves[-2]].site:
        return None
    tied, parted = moves[-2:]
    window, given = events[tied].reads[1], events[parted].reads[1]
    chain = history.get(Sharing).chain(window.tensor)
    operand = history.operand_of(tensor)
    if not chain or memory(given) == memory(window) or operand is None:
        return None
    if history.get(OtherProcesses).written(operand, parted):
        return None  # it is trained by itself
    for whole in _heirs(history, chain[-1].source, tied):
        place = window if memory(whole) == memory(window) else whole  # of a copy, all of it
        write = _updated(history, place, parted, anew=memory(whole) in windowed)
        if write != UNKNOWN:
            used = read_after(history, operand, write)
            return _LeftWindow(tensor, tied, parted, write, whole.tensor) if used else None
    return None


def _updated(history: History, operand: Operand, since: int, *, anew: bool) -> int:
    """Return the first write by which a line of the user's goes on from what a tensor has.

    `anew`: or fills it anew, since it is written for others that are windows of it.
    """
    for write in history.writes_to(operand, since):
        done = history.events[write]
        if done.inner == done.site and (anew or not operation(done.operation).overwrites):
            return write
    return UNKNOWN


def _heirs(history: History, tensor: int, since: int) -> Iterator[Operand]:
    """Yield a tensor and its copies and conversions from a moment on."""
    operand = history.operand_of(tensor)
    if operand is None:
        return
    yield operand
    for at in history.on_storage(operand):
        event = history.events[at]
        copied = at > since and operation(event.operation).copies and event.reads and event.results
        if copied and event.reads[0].tensor == tensor:
            last = history.operand_of(event.results[0].tensor)
            if last is not None and history.flow.memory(last) != history.flow.memory(operand):
                yield last


def _windows(history: History, found: list[_LeftWindow]) -> Claim:
    first = found[0]
    tied, parted, write = (history.events[at].site for at in first[1:4])
    whole = Tensor(first.written)
    return Claim(
        tensors=tuple(one.tensor for one in found),
        cause=("windows", parted),
        site=parted,
        operation=history.events[first.parted].operation,
        message=say(
            "{x} was a window of {whole} ({tied}) and has memory of its own since {parted}:"
            " {call} at {write} goes on writing {whole}, and nothing writes {x}.",
            x=Tensor(first.tensor), whole=whole, tied=At(tied), parted=At(parted),
            call=CallOf(first.write), write=At(write),
        ),
        story=(
            Step("shared", tied, say("{x} is made a window", x=Tensor(first.tensor))),
            Step("parted", parted, say("{code} gives it memory of its own", code=Code(parted))),
            Step("written", write, say("{whole} is written, and the window does not follow",
                 whole=whole)),
        ),
        repair=Repair(
            say("Make the windows anew after {parted}, of what {whole} is then.",
                parted=At(parted), whole=whole)
        ),
        count=0,
    )  # fmt: skip
