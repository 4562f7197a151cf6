"""Arrays that NumPy copied on their way into PyTorch, or out of it: part of `needless-copy`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tether.analysis.history import History, shortened
from tether.facts import UNKNOWN, Event
from tether.finding import At, Claim, Repair, Segment, Sentence, Step, named, say, typed
from tether.operations.table import shown
from tether.verdicts.needless_copy.array_calls import CopiedByNumPy, copied_by_numpy
from tether.verdicts.needless_copy.array_copies import ArrayCopies, NeedlessArrays
from tether.verdicts.needless_copy.arrays_out import ArraysOut, arrays_out


def of_arrays(history: History, known: Iterable[Claim]) -> Iterator[Claim]:
    """Tell of each expression whose copies of an array were not needed, but of known lines."""
    told = {history.site(one.site).row for one in known}
    for found in history.get(NeedlessArrays).found:
        told |= {history.site(one).row for one in (found.site, found.entry)}
        yield _claim(history, found)
    for out in arrays_out(history):
        told |= {history.site(history.events[at].site).row for at in out.calls}
        yield _out(history, out)
    for by_numpy in copied_by_numpy(history):
        if history.site(by_numpy.line.site).row not in told:
            yield _by_numpy(history, by_numpy)


def _claim(history: History, found: ArrayCopies) -> Claim:
    site, event = history.site(found.site), _event(history, found)
    text = site.expression or site.target
    subject = site.target if found.site != found.entry and site.target else shortened(text)
    return Claim(
        tensors=tuple(dict.fromkeys(one.copy.tensor for one in found.executions)),
        cause=("array", found.site, found.entry),
        site=found.site,
        operation=event.operation,
        message=_message(history, found, subject),
        story=tuple(_story(history, found)),
        repair=Repair(_instead(found, event), "by hand"),
        subject=subject,
        assumes=tuple(_taken_for_granted(len(found.facts), found.count)),
        count=found.count,
        bytes=found.bytes,
    )


def _out(history: History, found: ArraysOut) -> Claim:
    event = history.events[found.calls[0]]
    begin = "{copy} ({line}) is a copy"
    if found.by_name:
        begin = "{copy} is a copy of what {array} ({line}) gives,"
    copy, array = (typed(shortened(text)) for text in (found.text, found.array))
    return Claim(
        tensors=(event.reads[0].tensor,),
        cause=("array out", event.site),
        site=event.site,
        operation=event.operation,
        message=say(
            begin + " that nothing needed{times}: nothing reads or writes the memory of the tensor"
            " after {array} has given its array.",
            copy=copy, line=At(event.site), array=array, times=_copies(len(found.calls)),
        ),
        story=(Step("made", event.site, say("what copies this array is all that reads it")),),
        repair=Repair(say("Keep the array itself: {array}.", array=array), "by hand"),
        subject=shortened(found.text),
        assumes=(say("no line of the program that did not run uses the tensor after that"),),
        count=len(found.calls),
        bytes=found.bytes,
    )  # fmt: skip


def _by_numpy(history: History, found: CopiedByNumPy) -> Claim:
    """Tell of a line at which NumPy copies arrays that PyTorch may never meet."""
    line, text = found.line, found.text
    site, looked = history.site(line.site), len(found.calls)
    subject = site.target or shortened(text.text)
    array = typed(shortened(text.array))
    begin = "{name} ({line}) is a copy of {array}, element by element,"
    if line.within:
        begin = "{name} ({line}) has copies of the arrays of {array}, element by element,"
    return Claim(
        tensors=(),
        cause=("array call", line.site),
        site=line.site,
        operation=line.operation,
        message=say(
            begin + " that nothing needed{times}: {why}{seen}.",
            name=named(subject), line=At(line.site), array=array,
            times=_copies(line.runs), why=_why_not(found), seen=_seen(looked, line.runs),
        ),
        story=(Step("made", line.site, say("{array} is copied here", array=array)),),
        repair=Repair(_without(found), "by hand"),
        subject=subject,
        assumes=tuple(_taken_for_granted(looked, line.runs)),
        count=line.runs,
        bytes=line.bytes,
    )  # fmt: skip


def _why_not(found: CopiedByNumPy) -> Sentence:
    taker = found.calls[0].taker
    if taker:
        taken = typed(taker)
        return say("{taker} takes the memory of an array as it is", taker=taken)
    return say("neither is written while both live")


def _without(found: CopiedByNumPy) -> Sentence:
    """Say what to write in the place of a call that copies."""
    array, name = shortened(found.text.array), found.line.operation
    if found.calls[0].taker:
        return say("Hand on the array itself: {array}.", array=_code(array))
    if found.line.within:
        return say("Copy what holds the arrays without the arrays, as {call} does.",
                   call=_code(f"copy.copy({array})"))  # fmt: skip
    if name == "astype":
        return say("Write {call}: it converts only what has another format.",
                   call=_code(f"{array}.astype(..., copy=False)"))  # fmt: skip
    if name == "array":
        return say("Write {call}: it copies only what has another format.",
                   call=_code(f"np.asarray({array}, ...)"))  # fmt: skip
    return say("Use {array} itself, or a view of it.", array=_code(array))


def _code(text: str) -> Segment:
    return typed(text)


def _copies(count: int) -> str:
    return f" (all {count:,} copies)" if count > 1 else ""


def _event(history: History, found: ArrayCopies) -> Event:
    """Return the first call that was given such a copy."""
    return history.events[found.executions[0].position]


def _message(history: History, found: ArrayCopies, subject: str) -> Sentence:
    begin = say("{name} ({line}) is a copy of {source}", name=named(subject),
                line=At(found.site), source=_source(found))  # fmt: skip
    return say(
        "{begin}{format} that nothing needed{times}: {why}{seen}.",
        begin=begin,
        format=f" in {found.executions[0].copy.dtype}" if found.how == "narrowed"
        else ", element by element,",
        times=_copies(found.count),
        why=_why(history, found),
        seen=_seen(len(found.facts), found.count),
    )  # fmt: skip


def _seen(looked: int, runs: int) -> str:
    return f" in each of the {looked:,} runs that were looked at" if looked < runs else ""


def _why(history: History, found: ArrayCopies) -> Sentence:
    """Say why a copy was not needed."""
    if found.how == "copied on":
        call = shown(_event(history, found).operation)
        return say("{call} ({line}) copies it once more", call=call, line=At(found.entry))
    if found.how == "narrowed":
        narrow = found.facts[0].dtype
        return say("all that reads it brings it back to {narrow}, as it was", narrow=narrow)
    return say("neither is written while both live")


def _source(found: ArrayCopies) -> Segment:
    return typed(shortened(found.facts[0].source))


def _story(history: History, found: ArrayCopies) -> Iterator[Step]:
    source, event = _source(found), _event(history, found)
    yield Step("made", found.site, say("{source} is copied here", source=source))
    if found.entry != found.site:
        verb = "copies it" if found.how == "copied on" else "makes a tensor of it"
        yield Step(
            "used", found.entry, say("{call} {verb}", call=shown(event.operation), verb=verb)
        )
    if found.read_at not in (UNKNOWN, found.site, found.entry):
        narrow = found.facts[0].dtype
        yield Step("read", found.read_at, say("it is brought back to {narrow}", narrow=narrow))


def _instead(found: ArrayCopies, event: Event) -> Sentence:
    """Say what to give PyTorch."""
    source, call = _source(found), shown(event.operation)
    if found.how == "copied on":
        return say("Give {call} {source}, or a view of it: {call} makes a copy.",
                   call=call, source=source)  # fmt: skip
    if found.how == "narrowed":
        return say("Leave the conversion out: torch.tensor(...) of {source}, or of a view of it,"
                   " is the one copy.", source=source)  # fmt: skip
    return say("Give {call} {source}, or a view of it: it has the same elements.",
               call=call, source=source)  # fmt: skip


def _taken_for_granted(looked: int, runs: int) -> Iterator[Sentence]:
    yield say("no line of the program that did not run writes either of them")
    if looked < runs:
        yield say("the other runs go as those that were looked at")
