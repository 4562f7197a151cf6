"""Arrays that NumPy copied on their way into PyTorch, or out of it: part of `needless-copy`."""

from __future__ import annotations

from collections.abc import Iterator

from tether.analysis.array_copies import ArrayCopies, NeedlessArrays
from tether.analysis.arrays_out import ArraysOut, arrays_out
from tether.analysis.history import History, shortened
from tether.facts import UNKNOWN, Event
from tether.finding import At, Claim, Repair, Segment, Sentence, Step, say
from tether.operations.table import shown


def of_arrays(history: History) -> Iterator[Claim]:
    """Tell of each expression whose copies of an array were not needed."""
    for found in history.get(NeedlessArrays).found:
        yield _claim(history, found)
    for out in arrays_out(history):
        yield _out(history, out)


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
        assumes=tuple(_assumes(found)),
        count=found.count,
        bytes=found.bytes,
    )


def _out(history: History, found: ArraysOut) -> Claim:
    event = history.events[found.calls[0]]
    begin = "{copy} ({line}) is a copy"
    if found.by_name:
        begin = "{copy} is a copy of what {array} ({line}) gives,"
    copy, array = (Segment(f"`{shortened(text)}`", "code") for text in (found.text, found.array))
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


def _copies(count: int) -> str:
    return f" (all {count:,} copies)" if count > 1 else ""


def _event(history: History, found: ArrayCopies) -> Event:
    """Return the first call that was given such a copy."""
    return history.events[found.executions[0].position]


def _message(history: History, found: ArrayCopies, subject: str) -> Sentence:
    begin = say("{name} ({line}) is a copy of {source}", name=Segment(f"`{subject}`", "name"),
                line=At(found.site), source=_source(found))  # fmt: skip
    return say(
        "{begin}{format} that nothing needed{times}: {why}{seen}.",
        begin=begin,
        format=f" in {found.executions[0].copy.dtype}" if found.how == "narrowed"
        else ", element by element,",
        times=_copies(found.count),
        why=_why(history, found),
        seen=f" in each of the {len(found.facts):,} runs that were looked at"
        if len(found.facts) < found.count else "",
    )  # fmt: skip


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
    return Segment(f"`{shortened(found.facts[0].source)}`", "code")


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


def _assumes(found: ArrayCopies) -> Iterator[Sentence]:
    yield say("no line of the program that did not run writes either of them")
    if len(found.facts) < found.count:
        yield say("the other runs go as those that were looked at")
