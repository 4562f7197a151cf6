"""Records that a later call wrote in place, as claims: part of `alias-write`.

A hook or a forward keeps a tensor itself; the next layer, `ReLU(inplace=True)`, writes it; who
reads the record finds what that layer left. Mostly it is a note, for that may be known. It was not
meant where one container got the same tensor again under another key after the write, and a loop
reads both: two values were to be kept, and there is one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from tether.analysis.history import History
from tether.analysis.sharing.kept_then_written import KeptRecord, KeptThenWritten
from tether.analysis.surroundings import Surroundings
from tether.facts import Site
from tether.finding import At, CallOf, Claim, Repair, Sentence, Step, say
from tether.source.handing import made_of_class
from tether.verdicts.alias_write.telling import module_of, written


def records_that_follow(history: History, told: Collection[int]) -> Iterator[Claim]:
    """Yield one claim for each place and the line that fills it, but for tensors told of before."""
    groups: dict[tuple[Site, str], list[KeptRecord]] = defaultdict(list)
    for one in history.get(KeptThenWritten).all:
        groups[one.kept[0], one.place].append(one)
    for group in groups.values():
        if all(one.tensor not in told for one in group):
            yield _claim(history, group)


def _claim(history: History, group: list[KeptRecord]) -> Claim:
    first = next((one for one in group if one.all_read), group[0])
    event, read = history.events[first.last], history.events[first.read]
    module = module_of(history, first.last)
    parts = {
        "name": first.place, "kept": At(first.kept[0]), "call": CallOf(first.last),
        "write": At(event.site), "read": At(read.site), "module": module,
    }  # fmt: skip
    made = _made_at(history, module)
    return Claim(
        tensors=tuple(dict.fromkeys(one.tensor for one in group)),
        cause=("kept", first.kept[0], first.place),
        site=first.kept[0],
        operation=event.operation,
        severity=None if first.all_read else "note",
        subject=first.place,
        also=tuple(dict.fromkeys(one.holder.name for one in group))[:4],
        message=_message(first, parts),
        story=(
            *([] if made is None else
              [Step("made", made, say("the {module} that works in place is made here", **parts))]),
            *_keeping(first),
            *(written(history, one) for one in dict.fromkeys((first.write, first.last))),
            Step("read", read.site, say("read, as {call} left it", **parts)),
        ),
        repair=_repair(event.operation, first, module, parts),
        count=0,
    )  # fmt: skip


def _keeping(record: KeptRecord) -> Iterator[Step]:
    """Yield the line that keeps the tensor; of several it is not known which one does."""
    if len(record.kept) == 1:
        yield Step("kept", record.kept[0], say("kept here, the tensor itself"))
        return
    for one in record.kept[:2]:
        yield Step("kept", one, say("it may be this line that keeps the tensor itself"))


def _message(record: KeptRecord, parts: Mapping[str, Any]) -> Sentence:
    text = "`{name}` keeps a tensor and no copy of it"
    text += " ({kept})" if len(record.kept) == 1 else ""
    text += (
        ": {call} at {write} writes to it afterwards, so {read} reads what {call} left, and not"
        " what was kept."
    )
    if record.all_read:
        text += " The same container gets the same tensor again under another key."
    return say(text, **parts)


def _repair(name: str, record: KeptRecord, module: str, parts: Mapping[str, Any]) -> Repair:
    other = "use the call that makes a new tensor at {write}"
    if name == "zero_grad":
        other = "let {write} leave the tensor alone: zero_grad(set_to_none=True)"
    elif module:
        other = "let the {module} make a new tensor (inplace=False)"
    where = "at {kept}" if len(record.kept) == 1 else "where `{name}` is filled"
    return Repair(say(f"Keep a copy {where}: .clone(). Or {other}.", **parts))


def _made_at(history: History, module: str) -> Site | None:
    """Return the one call of the text that makes a module of a class, if there is one."""
    surroundings = history.get(Surroundings)
    found = [
        one
        for file in history.trace.sources if module
        for one in made_of_class(surroundings.source(file), file, module)
    ]  # fmt: skip
    return found[0] if len(found) == 1 else None
