"""What a call put in one memory, a write changed by one name, and is read by another."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from tether.analysis.history import History
from tether.analysis.libraries import hands_out_state
from tether.analysis.sharing.shared_memory import Sharing
from tether.facts import UNKNOWN
from tether.finding import At, CallOf, Claim, Sentence, Step, Tensor, say
from tether.operations.table import operation
from tether.source.names import joint_name
from tether.verdicts.alias_write.follower import follows
from tether.verdicts.alias_write.one_storage import parameters
from tether.verdicts.alias_write.records import SharedThenWritten, records
from tether.verdicts.alias_write.set_beside import set_beside
from tether.verdicts.alias_write.telling import copied
from tether.verdicts.alias_write.written_for import written_for


def claims(history: History) -> Iterator[Claim]:
    """Give one claim for each line that put something in one memory, with all its readers."""
    found = history.get(Sharing)
    groups: dict[int, list[SharedThenWritten]] = defaultdict(list)
    for story in (*records(history, found), *parameters(history, found)):
        groups[history.events[story.shared].site].append(story)
    for group in groups.values():
        yield _claim(history, found, group)


def _claim(history: History, found: Sharing, group: list[SharedThenWritten]) -> Claim:
    first = group[0]
    readers = list(dict.fromkeys(one.reader for one in group))
    shared, write, read = (history.events[at] for at in (first.shared, first.write, first.read))
    subject, line = joint_name([*map(history.name_of, readers)]).strip("`"), At(shared.site)
    call, writer = CallOf(first.write), Tensor(first.writer)
    story = [Step("shared", shared.site, _how(history, found, first))]
    for link in found.chain(first.reader)[1:]:
        made = history.events[link.at]
        site, results = made.site, {one.tensor for one in made.results}
        if site != shared.site and first.writer not in results:
            story.append(Step("shared", site, say("made by {call}", call=CallOf(link.at))))
    meant = all(_is_meant(history, found, one) for one in group)
    same = _did_nothing(history, first.reader, first.shared)
    if same != UNKNOWN:
        text = say("{call} returned the same tensor", call=CallOf(same))
        story.append(Step("shared", history.events[same].site, text))
    return Claim(
        tensors=tuple(readers),
        cause=("shared", shared.site),
        site=shared.site,
        operation=shared.operation,
        severity="note" if meant else None,
        subject=subject,
        message=say(
            "`{name}` and {writer} share memory from {line} on. {call} at {written} wrote to"
            " {writer}, so {read} read changed values from `{name}`.",
            name=subject, writer=writer, line=line, written=At(write.site), call=call,
            read=At(read.site),
        ),
        story=(
            *story,
            Step("written", write.site, say("{x} is written by {call}", x=writer, call=call)),
            Step("read", read.site, say("{x} is read here, with what was written",
                 x=Tensor(first.reader))),
        ),
        repair=copied(history, first.shared, subject),
        count=len({one.write for one in group}),
        calls=(first.shared,),
    )  # fmt: skip


def _is_meant(history: History, found: Sharing, one: SharedThenWritten) -> bool:
    return (
        follows(history, found, one.shared, one.reader)
        or written_for(history, found, one.reader, one.shared)
        or set_beside(history, one.reader, one.shared, one.write, one.read)
    )


def _how(history: History, found: Sharing, story: SharedThenWritten) -> Sentence:
    event = history.events[story.shared]
    if operation(event.operation).wraps:
        return say("nn.Parameter(t) makes a second object on the memory of t")
    if event.operation == "data.__set__":
        return say("assigning .data hands over the memory itself, not its values")
    if hands_out_state(history, event):
        return say("state_dict() holds detached tensors on the model's own memory")
    call, link = CallOf(story.shared), found.links.get(story.reader)
    if link is None:
        return say("{call} shares memory", call=call)
    return say("{call} shares the memory of {x}", call=call, x=Tensor(link.source))


def _did_nothing(history: History, tensor: int, since: int) -> int:
    """Find a call that was asked for a copy elsewhere and gave the same tensor back; or -1."""
    for at in range(since, min(since + 2001, len(history.events))):
        event = history.events[at]
        ends = [one.tensor for one in (*event.reads[:1], *event.results[:1])]
        if ends == [tensor, tensor] and operation(event.operation).records:
            return at
    return UNKNOWN
