"""Memory of the program's own that `.grad` showed and let go of, read on: part of `tie-lost`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from tether.analysis.history import History
from tether.finding import At, CallOf, Claim, Code, Repair, Sentence, Step, Tensor, say
from tether.verdicts.tie_lost.gradients_parted import PartedGradient, parted_gradients


def gradients_apart(history: History) -> Iterator[Claim]:
    """Yield one claim for each line that dropped the ties; a certain one before a possible one."""
    groups: dict[int, list[PartedGradient]] = defaultdict(list)
    for one in parted_gradients(history):
        groups[history.events[one.dropped].site].append(one)
    for members in groups.values():
        certain = [one for one in members if one.certain]
        yield _claim(history, certain or members)


def _claim(history: History, members: list[PartedGradient]) -> Claim:
    first, events = members[0], history.events
    tied, dropped, passed, read = (
        events[at].site for at in (first.tied, first.dropped, first.passed, first.read)
    )
    kept = Tensor(first.kept)
    never = "no backward pass ever wrote" if first.blank else "no backward pass has written since"
    message = say(
        "The gradient of {subject} lay in {kept} ({tied}) until " + _ends(history, first) + "."
        " Backward at {passed} makes new gradients elsewhere, and {reader} at {read} reads {kept},"
        " which {never}.",
        kept=kept, tied=At(tied), call=CallOf(first.dropped), dropped=At(dropped),
        code=Code(dropped), passed=At(passed), reader=CallOf(first.read), read=At(read),
        never=never,
    )  # fmt: skip
    return Claim(
        tensors=tuple(one.tensor for one in members),
        cause=("gradients", dropped),
        site=dropped,
        calls=(first.dropped,),
        operation=events[first.dropped].operation.removesuffix(".__set__"),
        severity=None if first.certain else "note",
        message=message,
        story=(
            Step("shared", tied, say("`.grad` is given memory of {kept}", kept=kept)),
            Step("parted", dropped, say("`.grad` lets go of that memory")),
            Step("made", passed, say("backward makes a gradient in other memory")),
            Step("read", read, say("{reader} reads {kept}, without the new gradient",
                 reader=CallOf(first.read), kept=kept)),
        ),
        repair=Repair(_repair(history, first)),
        count=0,
    )  # fmt: skip


def _ends(history: History, parted: PartedGradient) -> str:
    """Return how the tie ended, as part of a sentence."""
    event = history.events[parted.dropped]
    if event.operation == "zero_grad":
        return "{call} at {dropped} let go of it"
    if event.operation == "backward":  # the graph of the gradients is why it adds out of place
        return "backward(create_graph=True) at {dropped} added to it out of place"
    if event.operation == "grad.__set__":
        return "{dropped} set it to None" if event.none else "{dropped} put another in its place"
    return "{code} at {dropped} gave it other memory"


def _repair(history: History, parted: PartedGradient) -> Sentence:
    dropped, kept = history.events[parted.dropped], Tensor(parted.kept)
    here, tied = At(dropped.site), At(history.events[parted.tied].site)
    if dropped.operation == "zero_grad":
        return say(
            "Call zero_grad(set_to_none=False) at {here}: it writes zeros into {kept} and keeps the"
            " tie.", here=here, kept=kept,
        )  # fmt: skip
    if dropped.none:
        return say("Write zeros at {here} and keep the tie: `.grad.zero_()`.", here=here)
    return say("Give `.grad` memory of {kept} again after {here}, as {tied} does.",
               here=here, kept=kept, tied=tied)  # fmt: skip
