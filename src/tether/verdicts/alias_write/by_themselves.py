"""Writes that tell of a tie by themselves, as claims: part of `alias-write`.

Lost writes, operands changed before they are read, copies onto themselves, shared gradients, pieces
that overlap, and a memory that a call compares with itself.
"""

from __future__ import annotations

from collections.abc import Iterator

from tether.analysis.history import History
from tether.analysis.sharing.acts import Act, Acts
from tether.analysis.sharing.holding import Holding, first_word
from tether.analysis.sharing.odd_writes import OddWrite, OddWrites
from tether.analysis.sharing.shared_memory import Sharing, overlaps_itself
from tether.analysis.sharing.with_itself import WithItself, with_itself
from tether.facts import UNKNOWN, Event, Operand
from tether.finding import At, CallOf, Claim, Repair, Step, Tensor, Where, say
from tether.operations.table import operation
from tether.source.filling import mentions
from tether.verdicts.alias_write.telling import written


def by_themselves(history: History) -> Iterator[Claim]:
    """Yield the claims, one function for each law."""
    yield from _odd(history)
    yield from _swapped(history)
    yield from _beside_itself(history)
    yield from _siblings(history)


def _odd(history: History) -> Iterator[Claim]:
    makers = {
        "lost": _lost, "operand": _operand, "overlap": _onto_operand, "result": _onto_operand,
        "gradient": _gradient,
    }  # fmt: skip
    for one in history.get(OddWrites).all:
        make = makers.get(one.kind)
        if make is not None and history.site_of(history.events[one.write]).user:
            yield from make(history, one)


def _lost(history: History, one: OddWrite) -> Iterator[Claim]:
    """Yield a write into a copy that its own line made, and that is gone after it."""
    made, write = history.events[one.since[0]], history.events[one.write]
    yield Claim(
        tensors=(one.tensor,),
        cause=("lost", write.site),
        site=write.site,
        operation=write.operation,
        message=say(
            "{call} at {line} does not change {x}: it writes into a copy that {maker} made of it,"
            " and nothing read what was written before the copy was gone.",
            line=At(write.site), x=Tensor(one.tensor), call=CallOf(one.write),
            maker=CallOf(one.since[0]),
        ),
        story=(
            Step("shared", made.site, say("{call} makes a tensor of its own from {x}",
                 call=CallOf(one.since[0]), x=Tensor(one.tensor))),
            Step("written", write.site, say("that tensor is written, and read by nothing after")),
        ),
        repair=Repair(
            say("Write into {x} itself, or write the copy back to it.", x=Tensor(one.tensor))
            if operation(made.operation).regroups
            else say("Write into {x} itself: with one index on the left (x[mask] = ..., not"
                     " x[mask][0] = ...), or into the parameter that the value is computed from.",
                     x=Tensor(one.tensor))
        ),
        calls=(one.write,),
    )  # fmt: skip


def _operand(history: History, one: OddWrite) -> Iterator[Claim]:
    """Yield an operand that a call in the same expression changed before it was read."""
    write, read = history.events[one.write], history.events[one.read]
    inner, outer = history.site_of(write), history.site_of(read)
    if (inner.line, inner.column) <= (outer.line, outer.column):
        return  # the write comes first in the text too: both operands are what it left
    yield Claim(
        tensors=(one.tensor,),
        cause=("operand", read.site),
        site=read.site,
        operation=write.operation,
        message=say(
            "{x} is read at {line} after {call} in the same expression changed it: both operands"
            " are the same tensor, with the new values.",
            line=At(read.site), x=Tensor(one.tensor), call=CallOf(one.write),
        ),
        story=(
            Step("written", write.site, say("{call} writes {x}", call=CallOf(one.write),
                 x=Tensor(one.tensor))),
            Step("read", read.site, say("{x} is read afterwards", x=Tensor(one.tensor))),
        ),
        repair=Repair(say("Use the call that makes a new tensor, or keep `{x!s}.clone()` before.",
                      x=Tensor(one.tensor))),
        calls=(one.read,),
    )  # fmt: skip


_ONTO = {
    "overlap": (
        (
            "{call} at {line} copies elements of one memory onto others of it that it has still"
            " to read: the result depends on the order in which they are copied."
        ),
        "source and target overlap",
        "Copy the source first: .clone() of the right-hand side.",
    ),
    "result": (
        (
            "{call} at {line} writes its result into {x}, which is one of its operands. Each"
            " element of the result is made of several: some may be overwritten by then."
        ),
        "out= is an operand too",
        "Write the result into other memory, and copy it afterwards.",
    ),
}
"""What is said, what happened, and what to do, of a write onto what its own call reads."""


def _onto_operand(history: History, one: OddWrite) -> Iterator[Claim]:
    """Yield a copy, or a result (a note), that is written onto an operand of its own call."""
    write, result = history.events[one.write], one.kind == "result"
    message, happened, repair = _ONTO[one.kind]
    tensor = one.tensor if result else one.through
    yield Claim(
        tensors=(tensor,),
        cause=(one.kind, write.site),
        site=write.site,
        operation=write.operation,
        severity="note" if result else None,
        message=say(message, call=CallOf(one.write), line=At(write.site), x=Tensor(tensor)),
        story=(Step("written", write.site, say(happened)),),
        repair=Repair(say(repair)),
        calls=(one.write,),
    )


def _swapped(history: History) -> Iterator[Claim]:
    """Yield an assignment to several places whose right side shows what it has just written."""
    for act in history.get(Acts).all:
        if act.read < 0 or act.place.array != UNKNOWN or act.through == UNKNOWN:
            continue
        write, read = history.events[act.write], history.events[act.read]
        made = history.made_at(act.place.tensor)
        one, other = history.site_of(write), history.site_of(read)
        both = write.operation == read.operation == "__setitem__"
        if not both or made < 0 or one.row != other.row:
            continue
        if one.target == other.target or not _only_views(history, made, act.write):
            continue
        yield Claim(
            tensors=(act.place.tensor,),
            cause=("swapped", one.file, one.line),
            site=read.site,
            operation=read.operation,
            message=say(
                "The assignment at {line} overwrites what it has still to read: its right side is"
                " made of views of the memory that it writes.",
                line=At(read.site),
            ),
            story=(
                Step("shared", history.events[made].site, say("a view, and no copy")),
                written(history, act.write),
                Step("read", read.site, say("the view is read, with what was just written")),
            ),
            repair=Repair(say("Copy first: .clone() of one of the values on the right.")),
            calls=(act.read,),
        )


def _only_views(history: History, since: int, until: int) -> bool:
    """Whether calls from one to another only show memory: those of the right side of a swap."""
    between = (history.events[at] for at in range(since, until))
    return all(one.reads and one.shows(one.reads[0]) for one in between)


def _gradient(history: History, one: OddWrite) -> Iterator[Claim]:
    """Yield a gradient that several parameters were given, written in place."""
    write = history.events[one.write]
    row = operation(write.operation)
    if row.overwrites:
        return
    given = history.events[one.since[0]]
    yield Claim(
        tensors=(one.tensor,),
        cause=("gradient", given.site),
        site=given.site,
        operation="grad.__set__",
        message=say(
            "{x} is the gradient of several parameters since {line}: {call} at {write} writes it"
            " once for each of them.",
            x=Tensor(one.tensor), line=At(given.site), call=CallOf(one.write),
            write=At(write.site),
        ),
        story=(
            Step("shared", given.site, say("assigned to more than one parameter")),
            written(history, one.write),
        ),
        repair=Repair(say("Give each parameter its own: `p.grad = {x!s}.clone()`.",
                      x=Tensor(one.tensor))),
        calls=(one.since[0],),
    )  # fmt: skip


def _beside_itself(history: History) -> Iterator[Claim]:
    """Find a call that compares, or blends, two places of the same elements.

    They were two before a write through one of them: since then the call can only find them equal.
    """
    joins = history.events.where(lambda name: operation(name).compares or operation(name).blends)
    told: set[int] = set()
    for at, event in joins:
        for a, b in () if event.raised else _joined(event):
            if a.storage != b.storage or a.storage == UNKNOWN or a[3:6] != b[3:6]:
                continue
            pair = _two_places(history, at, event, a, b)
            if pair is not None:
                told.add(event.site)
                yield _one_for_two(history, event, a, b, *pair)
                break
    for one in with_itself(history):
        if history.events[one.call].site not in told:
            yield _same_object(history, one)


def _joined(event: Event) -> list[tuple[Operand, Operand]]:
    """Return the operands that a call joins: the first two, or two by two those of two lists."""
    lists = event.operation.startswith("_foreach_")
    half = len(event.reads) // 2 if lists else 1
    return list(zip(event.reads[:half], event.reads[half : 2 * half], strict=False))


def _one_for_two(
    history: History, event: Event, a: Operand, b: Operand, write: int, since: Where
) -> Claim:
    done = history.events[write]
    return Claim(
        tensors=(b.tensor if a.tensor == b.tensor else _older(history, a, b),),
        cause=("beside", since, done.site),
        site=since,
        operation=done.operation,
        message=say(
            "{x} and {y} are one memory since {since}: {call} at {write} changed both, and {read}"
            " uses both as if they were two.",
            x=Tensor(a.tensor), y=_other(history, a, b, event), since=At(since),
            call=CallOf(write), write=At(done.site), read=At(event.site),
        ),
        story=(
            Step("shared", since, say("from here on both names show the same elements")),
            written(history, write),
            Step("read", event.site, say("both are read here")),
        ),
        repair=Repair(say("Keep a copy: .clone() at {line}.", line=At(since))),
    )  # fmt: skip


def _same_object(history: History, one: WithItself) -> Claim:
    read = history.events[one.call]
    since = read.site if one.filled is None else one.filled.site
    keeps = (
        "`{kept}` is the object itself, which goes on changing"
        if one.filled is None
        else "{line} keeps the object, which goes on changing"
    )
    return Claim(
        tensors=(one.tensor,),
        cause=("with itself", since),
        site=since,
        operation=read.operation,
        subject=one.kept,
        message=say(
            "`{kept}` and `{other}` are one tensor at {read}, each of {n} times, though it was"
            f" written in between: {keeps}, and {{call}} can find no difference.",
            kept=one.kept, other=one.other, read=At(read.site), n=one.times,
            line=At(since), call=CallOf(one.call),
        ),
        story=(
            *([] if one.filled is None else
              [Step("shared", since, say("the object itself is kept here, and no copy"))]),
            Step("read", read.site, say("it is compared with itself")),
        ),
        repair=Repair(say("Keep a copy: .clone() at {line}.", line=At(since))
                      if one.filled is not None else
                      say("Keep copies where `{kept}` is filled: .detach().clone().",
                          kept=one.kept)),
        count=one.times,
    )  # fmt: skip


def _older(history: History, a: Operand, b: Operand) -> int:
    return max((a, b), key=lambda one: history.made_at(one.tensor)).tensor


def _other(history: History, a: Operand, b: Operand, event: Event) -> Tensor | str:
    """Return what a sentence calls the second operand: of one object, its other name."""
    if a.tensor != b.tensor:
        return Tensor(b.tensor)
    text = history.site_of(event).expression
    names = [one for one in history.names_of(a.tensor)[1:] if mentions(text, one)]
    return f"`{names[0]}`" if names else "its other name"


def _two_places(
    history: History, at: int, event: Event, a: Operand, b: Operand
) -> tuple[int, Where] | None:
    """Return the write and the site since which two operands are two kept places of one memory."""
    if a.tensor == b.tensor:
        return _two_names(history, at, event, a.tensor)
    acts = history.get(Acts)
    for act in acts.all:
        if act.write >= at:
            break
        if act.place.array == UNKNOWN and {act.place.tensor, act.through} <= _roots(history, a, b):
            made = act.since[0]
            if made < act.write and act.place.last > at:
                if _is_followed(history, event, act):
                    return None
                return act.write, history.events[made].site
    return None


def _is_followed(history: History, event: Event, act: Act) -> bool:
    """Whether a call asks only if two are equal, and another line takes the view as it now is.

    Then the view is meant to show what is written, and the call sees that it does.
    """
    memory = history.flow.memory
    for at, made in [] if event.results else history.get(Holding).reads_of(act.place.tensor):
        read = history.events[at]
        shown = {one.tensor for one in read.reads if memory(one) == memory(act.place.shown)}
        if min(at, made) > act.write and read.site != event.site and len(shown) == 1:
            return True
    return False


def _roots(history: History, *operands: Operand) -> set[int]:
    """Return the tensors and what they are views of."""
    found = set()
    for one in operands:
        found.add(int(one.tensor))
        found |= {int(link.source) for link in history.get(Sharing).chain(one.tensor)[:1]}
    return found


def _two_names(history: History, at: int, event: Event, tensor: int) -> tuple[int, Where] | None:
    """Return the write to one object that a call then reads by two names."""
    text = history.site_of(event).expression
    holding = history.get(Holding)
    for act in reversed(holding.all):
        if act.tensor != tensor or act.write >= at or act.by is None:
            continue
        for other in act.others:
            names = first_word(act.by.name), first_word(other.name)
            if names[0] != names[1] and all(mentions(text, name) for name in names):
                filled = holding.filled(other)
                return act.write, filled[-1].site if filled else history.events[act.write].site
    return None


def _siblings(history: History) -> Iterator[Claim]:
    """Find pieces of one `unfold` or `expand`, one written and the next one read."""
    found = history.get(Sharing)
    for act in history.get(Acts).all:
        if act.through == UNKNOWN or act.place.array != UNKNOWN or act.read < 0 or act.filled:
            continue
        mine, other = found.links.get(act.place.tensor), found.links.get(act.through)
        if mine is None or other is None or mine.at != other.at:
            continue
        source = next((one for one in history.events[mine.at].reads
                       if one.tensor == mine.source), None)  # fmt: skip
        if source is None or not overlaps_itself(source):
            continue
        write, made = history.events[act.write], history.events[mine.at]
        yield Claim(
            tensors=(source.tensor,),
            cause=("siblings", made.site, write.site),
            site=made.site,
            operation=write.operation,
            message=say(
                "The pieces taken at {made} have elements in common: {call} at {write} writes one"
                " of them, and {read} reads the next one with what was written.",
                made=At(made.site), call=CallOf(act.write), write=At(write.site),
                read=At(history.events[act.read].site),
            ),
            story=(
                Step("shared", made.site, say("the pieces overlap")),
                written(history, act.write),
            ),
            repair=Repair(say("Give each piece its own elements: .clone() before the loop.")),
            calls=(mine.at,),
        )  # fmt: skip
