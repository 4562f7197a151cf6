"""Memory that other values stand in for a while: put aside, filled, read, and filled again.

Part of `slow-copy`. What was put there is only read, and the tensors that it came from are as they
were: whoever reads could have read those, and none of the three copies would have been made.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from tether.analysis.copies.already_there import Copied, nbytes
from tether.analysis.copies.memory_lives import MemoryLives
from tether.analysis.copies.needs import Key, Need, needs, read_unseen
from tether.analysis.copies.other_processes import OtherProcesses
from tether.facts import UNKNOWN, Event, Operand
from tether.operations.table import operation
from tether.verdicts.slow_copy.on_device import LARGE, STEPS, Lines, Slow
from tether.verdicts.slow_copy.overwritten import runs_of


class _Loan(NamedTuple):
    """A memory that was put aside, given others' values, and given its own again."""

    aside: Copied
    puts: tuple[int, ...]  # the calls that gave it others' values
    back: int  # the call that gave it its own
    read: bool  # something computed with others' values


def lent(lines: Lines) -> Iterator[Slow]:
    """Give each of the user's lines that put aside what is only to be read with other values."""
    if read_unseen(lines.history):
        return
    often = [need for key, need in needs(lines.history).items() if _is_often_needed(key, need)]
    found = [(need, loans) for need in often if (loans := _loans(lines, need))]
    if not found:
        return
    lives = MemoryLives(lines.history, _memories(lines, found))
    for need, loans in found:
        slow = _slow(need, loans)
        if slow.nbytes >= LARGE and not any(_is_needed(lines, lives, one) for one in loans):
            yield slow


def _is_often_needed(key: Key, need: Need) -> bool:
    """Whether a user's own line made copies again and again, which were needed as it is written."""
    return key[1] == UNKNOWN and need.needed == "yes" and runs_of(key[2], need) >= STEPS


def _loans(lines: Lines, need: Need) -> list[_Loan]:
    """Return how the memory of each of a line's copies was lent; none if that of one was not."""
    loans: list[_Loan] = []
    for one in need.executions:
        loan = _loan(lines, one)
        if loan is None:
            return []
        loans.append(loan)
    return loans if any(one.read for one in loans) else []


def _loan(lines: Lines, aside: Copied) -> _Loan | None:
    """Return how the memory of a copy's source was lent; None where it was not."""
    if aside.part or aside.taken is not None or aside.since != aside.position:
        return None
    back = _given_back(lines, aside)
    if back == UNKNOWN:
        return None
    touched = lines.history.on_storage(aside.source)
    puts: list[int] = []
    read = False
    for at in touched[bisect_right(touched, aside.position) : bisect_left(touched, back)]:
        event = lines.events[at]
        if _puts(event, aside.source):
            puts.append(at)
        elif not _only_reads(lines, event, aside.source, back):
            return None
        else:
            read |= bool(puts) and bool(event.results) and not _shows(lines, event, aside.source)
    return _Loan(aside, tuple(puts), back, read) if puts else None


def _given_back(lines: Lines, aside: Copied) -> int:
    """Return the call that put a copy where it came from, if nothing else was done with it."""
    back = UNKNOWN
    for at in lines.history.on_storage(aside.copy):
        event = lines.events[at]
        if at <= aside.position or (back == UNKNOWN and _shows(lines, event, aside.copy)):
            continue
        whole = back == UNKNOWN and _puts(event, aside.source)
        given = event.reads[1] if whole else None
        if given is None or given.storage != aside.copy.storage:
            return UNKNOWN
        if given[3:7] != aside.copy[3:7]:
            return UNKNOWN
        back = at
    return back


def _puts(event: Event, target: Operand) -> bool:
    """Whether a call gives all of a memory the values of another tensor that lies alike."""
    row = operation(event.operation)
    if event.raised or not (row.copies and row.writes) or len(event.reads) != 2:
        return False
    into, given = event.reads
    alike = into.storage == target.storage and into[3:7] == target[3:7]
    return alike and given.storage != target.storage and given[4:7] == target[4:7]


def _shows(lines: Lines, event: Event, operand: Operand) -> bool:
    """Whether a call does no more than give a memory as another tensor."""
    memory = lines.history.flow.memory
    leaves = operation(event.operation).leaves
    given = all(memory(one) == memory(operand) for one in event.results)
    return given and bool(event.results) and not event.writes and not leaves


def _only_reads(lines: Lines, event: Event, operand: Operand, back: int) -> bool:
    """Whether a call reads a memory, outside a graph, and keeps nothing of it for later."""
    memory, row = lines.history.flow.memory, operation(event.operation)
    if event.raised or event.kind >= 0 or row.lends:
        return False
    changes = row.own or row.replaces or row.rebinds
    if changes or memory(operand) in map(memory, event.writes):
        return False
    views = [one for one in event.results if memory(one) == memory(operand)]
    known = {one.tensor for one in event.reads}
    return not any(one.tensor not in known and lines.after(one.tensor, back) for one in views)


def _memories(lines: Lines, candidates: list[tuple[Need, list[_Loan]]]) -> set[int]:
    memory, found = lines.history.flow.memory, set()
    for loan in (one for _, loans in candidates for one in loans):
        found |= {memory(loan.aside.source), memory(loan.aside.copy)}
        found |= {memory(lines.events[at].reads[1]) for at in loan.puts}
    return found


def _is_needed(lines: Lines, lives: MemoryLives, loan: _Loan) -> bool:
    """Whether another process may have met the memory, or something wrote it, or what stood in."""
    known = {*loan.puts, loan.back}
    aside = loan.aside
    others = lines.history.get(OtherProcesses)
    for operand in (aside.source, aside.copy):
        if others.read(operand, aside.position, loan.back):
            return True
        if any(not one.is_of(known) for one in lives.written(operand, aside.position, loan.back)):
            return True
    for put, until in pairwise((*loan.puts, loan.back)):
        given = lines.events[put].reads[1]
        if lines.device(given) != lines.device(aside.source):
            return True
        if any(True for _ in lives.written(given, put, until)):
            return True
    return False


def _slow(need: Need, loans: list[_Loan]) -> Slow:
    """Say what is copied there and back."""
    first = max(loans, key=lambda one: nbytes(one.aside.copy))
    runs = runs_of(need.operation, need)
    total = sum(nbytes(one.aside.copy) * (2 + len(one.puts)) for one in loans)
    what = "it keeps values for as long as others, put in their place, are read there, and is"
    what += f" then put back: {total:,} bytes copied in {runs:,} runs"
    fix = "Compute with the other values where they are:"
    fix += " torch.func.functional_call(model, values, args), or a second module that holds them."
    at, source = first.aside.position, first.aside.source
    return Slow(at, source, runs, total, None, "copied", what, fix, first.back)
